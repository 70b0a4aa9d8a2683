"""Reductions, positions of extremes, and cumulative sums and products."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .common import check_axes, check_axis, in_float32, ints, scalar
from .registry import op

Reduction = Callable[[np.ndarray, tuple[int, ...], bool], np.ndarray]
"""Gets the data, the axes to reduce (none: every element is a set of its own), and whether they stay as 1."""


def by_attribute(reduction: Reduction):
    """The form in which `axes` is an attribute and an absent or empty one means all."""

    def operator(data: np.ndarray, *, axes: list[int] | None = None, keepdims: int = 1):
        chosen = check_axes(axes, data.ndim) if axes else tuple(range(data.ndim))
        return reduction(data, chosen, bool(keepdims))

    return in_float32(operator)


def by_input(reduction: Reduction):
    """The form in which `axes` is an input; an absent or empty one means all, or none with `noop_with_empty_axes`."""

    def operator(data: np.ndarray, axes: np.ndarray | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0):
        if axes is not None and axes.size:
            chosen = check_axes(ints(axes), data.ndim)
        else:
            chosen = () if noop_with_empty_axes else tuple(range(data.ndim))
        return reduction(data, chosen, bool(keepdims))

    return in_float32(operator)


def _count(x: np.ndarray, axes: tuple[int, ...]) -> int:
    return math.prod(x.shape[a] for a in axes)


def _as_float(x: np.ndarray) -> np.ndarray:
    """Integers as float64, for reductions whose exact result is no integer."""
    return x if x.dtype.kind == "f" else x.astype(np.float64)


def reduce_sum(x: np.ndarray, axes: tuple[int, ...], keepdims: bool):
    return np.sum(x, axes, dtype=x.dtype, keepdims=keepdims)


def reduce_mean(x: np.ndarray, axes: tuple[int, ...], keepdims: bool):
    """The mean of integers is truncated toward zero; that of no floats is NaN."""
    if x.dtype.kind == "f":
        return np.sum(x, axes, keepdims=keepdims) / x.dtype.type(_count(x, axes))
    total = np.sum(x, axes, dtype=np.uint64 if x.dtype.kind == "u" else np.int64, keepdims=keepdims)
    count = total.dtype.type(_count(x, axes))
    return np.floor_divide(total - np.fmod(total, count), count).astype(x.dtype)


def _lowest(dtype: np.dtype):
    return {"f": -np.inf, "b": False}[dtype.kind] if dtype.kind in "fb" else np.iinfo(dtype).min


def _highest(dtype: np.dtype):
    return {"f": np.inf, "b": True}[dtype.kind] if dtype.kind in "fb" else np.iinfo(dtype).max


def reduce_max(x: np.ndarray, axes: tuple[int, ...], keepdims: bool):
    """NaN if any is; of no elements the lowest value of the type."""
    return np.max(x, axes, keepdims=keepdims, initial=_lowest(x.dtype))


def reduce_min(x: np.ndarray, axes: tuple[int, ...], keepdims: bool):
    """NaN if any is; of no elements the highest value of the type."""
    return np.min(x, axes, keepdims=keepdims, initial=_highest(x.dtype))


def reduce_prod(x: np.ndarray, axes: tuple[int, ...], keepdims: bool):
    return np.prod(x, axes, dtype=x.dtype, keepdims=keepdims)


def reduce_l1(x: np.ndarray, axes: tuple[int, ...], keepdims: bool):
    return np.sum(np.abs(x), axes, dtype=x.dtype, keepdims=keepdims)


def reduce_l2(x: np.ndarray, axes: tuple[int, ...], keepdims: bool):
    return np.sqrt(np.sum(np.square(_as_float(x)), axes, keepdims=keepdims)).astype(x.dtype)


def reduce_sum_square(x: np.ndarray, axes: tuple[int, ...], keepdims: bool):
    return np.sum(np.square(x), axes, dtype=x.dtype, keepdims=keepdims)


def reduce_log_sum(x: np.ndarray, axes: tuple[int, ...], keepdims: bool):
    return np.log(np.sum(_as_float(x), axes, keepdims=keepdims)).astype(x.dtype)


def reduce_log_sum_exp(x: np.ndarray, axes: tuple[int, ...], keepdims: bool):
    y = _as_float(x)
    peak = np.max(y, axes, keepdims=True, initial=-np.inf)
    peak = np.where(np.isfinite(peak), peak, 0).astype(y.dtype)
    total = np.log(np.sum(np.exp(y - peak), axes, keepdims=keepdims))
    return (total + peak.reshape(total.shape)).astype(x.dtype)


# The opset from which `axes` is an input.
for _name, _since, _reduction in (
    ("ReduceSum", 13, reduce_sum),
    ("ReduceMean", 18, reduce_mean),
    ("ReduceMax", 18, reduce_max),
    ("ReduceMin", 18, reduce_min),
    ("ReduceProd", 18, reduce_prod),
    ("ReduceL1", 18, reduce_l1),
    ("ReduceL2", 18, reduce_l2),
    ("ReduceSumSquare", 18, reduce_sum_square),
    ("ReduceLogSum", 18, reduce_log_sum),
    ("ReduceLogSumExp", 18, reduce_log_sum_exp),
):
    op(_name)(by_attribute(_reduction))
    op(_name, since=_since)(by_input(_reduction))


def _position(find: Any, x: np.ndarray, axis: int, keepdims: int, last: int):
    axis = check_axis(axis, x.ndim)
    if x.shape[axis] == 0:
        raise ValueError(f"axis {axis} of shape {list(x.shape)} is empty: it has no extreme")
    if not last:
        return find(x, axis, keepdims=bool(keepdims)).astype(np.int64)
    return (x.shape[axis] - 1 - find(np.flip(x, axis), axis, keepdims=bool(keepdims))).astype(np.int64)


@op("ArgMax")
@in_float32
def arg_max(x: np.ndarray, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0):
    """The first of equal ones, or the last. NaN counts as the greatest."""
    return np.asarray(_position(np.argmax, x, axis, keepdims, select_last_index))


@op("ArgMin")
@in_float32
def arg_min(x: np.ndarray, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0):
    """The first of equal ones, or the last. NaN counts as the least."""
    return np.asarray(_position(np.argmin, x, axis, keepdims, select_last_index))


def _cumulate(accumulate: Any, neutral: int, x: np.ndarray, axis: np.ndarray, exclusive: int, reverse: int):
    along = check_axis(int(scalar(axis, "axis")), x.ndim)
    if reverse:
        x = np.flip(x, along)
    out = accumulate(x, axis=along, dtype=x.dtype)
    if exclusive:
        before = (slice(None),) * along
        out = np.concatenate([np.full_like(out[(*before, slice(0, 1))], neutral), out[(*before, slice(0, -1))]], along)
    return np.flip(out, along) if reverse else out


@op("CumSum", since=11)
@in_float32
def cum_sum(x: np.ndarray, axis: np.ndarray, *, exclusive: int = 0, reverse: int = 0):
    return _cumulate(np.cumsum, 0, x, axis, exclusive, reverse)


@op("CumProd", since=26)
@in_float32
def cum_prod(x: np.ndarray, axis: np.ndarray, *, exclusive: int = 0, reverse: int = 0):
    return _cumulate(np.cumprod, 1, x, axis, exclusive, reverse)
