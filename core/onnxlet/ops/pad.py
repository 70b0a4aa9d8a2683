"""Padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..graph.ir import STRING
from .common import check_axes, ints, zeros
from .registry import op


@op("Pad")
def pad_1(data: np.ndarray, *, paddings: list[int], mode: str = "constant", value: float = 0.0):
    return _pad(data, paddings, mode, value, None)


@op("Pad", since=2)
def pad_2(data: np.ndarray, *, pads: list[int], mode: str = "constant", value: float = 0.0):
    return _pad(data, pads, mode, value, None)


@op("Pad", since=11)
def pad(
    data: np.ndarray,
    pads: np.ndarray,
    constant_value: np.ndarray | None = None,
    axes: np.ndarray | None = None,
    *,
    mode: str = "constant",
):
    value = None if constant_value is None or not constant_value.size else constant_value.reshape(-1)[0]
    return _pad(data, ints(pads), mode, value, None if axes is None else ints(axes))


def _pad(data: np.ndarray, pads: Sequence[int], mode: str, value: Any, axes: Sequence[int] | None):
    """`pads` holds what to add before each axis, then after each. Negative numbers cut off, before any is added."""
    axes = check_axes(range(data.ndim) if axes is None else axes, data.ndim)
    if len(pads) != 2 * len(axes):
        raise ValueError(f"{len(pads)} pads for {len(axes)} axes: there must be two for each")
    before, after = [0] * data.ndim, [0] * data.ndim
    for axis, first, last in zip(axes, pads[: len(axes)], pads[len(axes) :], strict=True):
        before[axis], after[axis] = first, last
    for axis, (first, last) in enumerate(zip(before, after, strict=True)):
        if first < 0 or last < 0:
            kept = slice(max(-first, 0), max(data.shape[axis] - max(-last, 0), 0))
            data = data[(slice(None),) * axis + (kept,)]
    before, after = [max(p, 0) for p in before], [max(p, 0) for p in after]
    if mode == "constant":
        return _constant(data, before, after, value)
    if mode not in _SOURCES:
        raise ValueError(f"mode is constant, {', '.join(_SOURCES)}, not {mode!r}")
    for axis, (first, last) in enumerate(zip(before, after, strict=True)):
        if first or last:
            n = data.shape[axis]
            if n == 0:
                raise ValueError(f"axis {axis} is empty: mode {mode} has nothing to pad it with")
            data = np.take(data, _SOURCES[mode](np.arange(-first, n + last), n), axis)
    return data


def _constant(data: np.ndarray, before: list[int], after: list[int], value: Any):
    shape = [b + d + a for b, d, a in zip(before, data.shape, after, strict=True)]
    out = zeros(shape, data.dtype)
    if value is not None:
        out[...] = str(value) if data.dtype == STRING else value
    out[tuple(slice(b, b + d) for b, d in zip(before, data.shape, strict=True))] = data
    return out


def _reflected(position: np.ndarray, n: int):
    """Mirrored at the first and last elements, which are not repeated; again and again where the padding is long."""
    if n == 1:
        return np.zeros_like(position)
    folded = position % (2 * (n - 1))
    return np.where(folded < n, folded, 2 * (n - 1) - folded)


_SOURCES = {
    "reflect": _reflected,
    "edge": lambda position, n: np.clip(position, 0, n - 1),
    "wrap": lambda position, n: position % n,
}
