"""Reductions, positions of extremes, and cumulative sums and products."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from .common import check_axes, check_axis, in_float32, ints, scalar
from .registry import op

Reduction = Callable[[np.ndarray, tuple[int, ...], bool], np.ndarray]
"""Gets the data, the axes to reduce (none: every element is a set of its own), and whether they stay as 1."""


def by_attribute(reduction: Reduction):
    """The form in which `axes` is an attribute and an absent or empty one means all."""

    def operator(data, *, axes: list[int] | None = None, keepdims: int = 1):
        chosen = check_axes(axes, data.ndim) if axes else tuple(range(data.ndim))
        return reduction(data, chosen, bool(keepdims))

    return in_float32(operator)


def by_input(reduction: Reduction):
    """The form in which `axes` is an input; an absent or empty one means all, or none with `noop_with_empty_axes`."""

    def operator(data, axes=None, *, keepdims: int = 1, noop_with_empty_axes: int = 0):
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


def reduce_sum(x, axes, keepdims):
    return np.sum(x, axes, dtype=x.dtype, keepdims=keepdims)


def reduce_mean(x, axes, keepdims):
    """The mean of integers is truncated toward zero; that of no floats is NaN."""
    if x.dtype.kind == "f":
        return np.sum(x, axes, keepdims=keepdims) / x.dtype.type(_count(x, axes))
    total = np.sum(x, axes, keepdims=keepdims)
    count = total.dtype.type(_count(x, axes))
    return np.floor_divide(total - np.fmod(total, count), count).astype(x.dtype)


def _lowest(dtype: np.dtype):
    return {"f": -np.inf, "b": False}[dtype.kind] if dtype.kind in "fb" else np.iinfo(dtype).min


def _highest(dtype: np.dtype):
    return {"f": np.inf, "b": True}[dtype.kind] if dtype.kind in "fb" else np.iinfo(dtype).max


def reduce_max(x, axes, keepdims):
    """NaN if any is; of no elements the lowest value of the type."""
    return np.max(x, axes, keepdims=keepdims, initial=_lowest(x.dtype))


def reduce_min(x, axes, keepdims):
    """NaN if any is; of no elements the highest value of the type."""
    return np.min(x, axes, keepdims=keepdims, initial=_highest(x.dtype))


def reduce_prod(x, axes, keepdims):
    return np.prod(x, axes, dtype=x.dtype, keepdims=keepdims)


def reduce_l1(x, axes, keepdims):
    return np.sum(np.abs(x), axes, dtype=x.dtype, keepdims=keepdims)


def reduce_l2(x, axes, keepdims):
    return np.sqrt(np.sum(np.square(_as_float(x)), axes, keepdims=keepdims)).astype(x.dtype)


def reduce_sum_square(x, axes, keepdims):
    return np.sum(np.square(x), axes, dtype=x.dtype, keepdims=keepdims)


def reduce_log_sum(x, axes, keepdims):
    return np.log(np.sum(_as_float(x), axes, keepdims=keepdims)).astype(x.dtype)


def reduce_log_sum_exp(x, axes, keepdims):
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


def _position(find, x, axis, keepdims, last):
    axis = check_axis(axis, x.ndim)
    if x.shape[axis] == 0:
        raise ValueError(f"axis {axis} of shape {list(x.shape)} is empty: it has no extreme")
    if not last:
        return find(x, axis, keepdims=bool(keepdims)).astype(np.int64)
    return (x.shape[axis] - 1 - find(np.flip(x, axis), axis, keepdims=bool(keepdims))).astype(np.int64)


@op("ArgMax")
@in_float32
def arg_max(x, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0):
    """The first of equal ones, or the last. NaN counts as the greatest."""
    return np.asarray(_position(np.argmax, x, axis, keepdims, select_last_index))


@op("ArgMin")
@in_float32
def arg_min(x, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0):
    """The first of equal ones, or the last. NaN counts as the least."""
    return np.asarray(_position(np.argmin, x, axis, keepdims, select_last_index))


def _cumulate(accumulate, neutral, x, axis, exclusive, reverse):
    axis = check_axis(scalar(axis, "axis"), x.ndim)
    if reverse:
        x = np.flip(x, axis)
    out = accumulate(x, axis=axis, dtype=x.dtype)
    if exclusive:
        first = np.full_like(out[(slice(None),) * axis + (slice(0, min(1, x.shape[axis])),)], neutral)
        out = np.concatenate([first, out[(slice(None),) * axis + (slice(0, -1),)]], axis)
    return np.flip(out, axis) if reverse else out


@op("CumSum", since=11)
@in_float32
def cum_sum(x, axis, *, exclusive: int = 0, reverse: int = 0):
    return _cumulate(np.cumsum, 0, x, axis, exclusive, reverse)


@op("CumProd", since=26)
@in_float32
def cum_prod(x, axis, *, exclusive: int = 0, reverse: int = 0):
    return _cumulate(np.cumprod, 1, x, axis, exclusive, reverse)
