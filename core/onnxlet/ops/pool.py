"""Pooling over sliding windows and over whole images."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from .common import to_float32
from .precision import narrow
from .registry import op
from .windows import Pads, extent, output_sizes, pad_spatial, per_axis, taps, window_pads


def lowest(dtype: np.dtype) -> float | int:
    """The value that no element of `dtype` is below."""
    return -np.inf if dtype.kind == "f" else int(np.iinfo(dtype).min)


def pool_geometry(
    sizes: Sequence[int],
    kernel_shape: Sequence[int] | None,
    strides: Sequence[int] | None,
    pads: Sequence[int] | None,
    dilations: Sequence[int] | None,
    auto_pad: str,
    ceil_mode: int,
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...], Pads, Pads]:
    """Kernel, strides, dilations, output sizes, the padding asked for, and that padding made long enough for the
    windows that `ceil_mode` adds at the end."""
    rank = len(sizes)
    if not kernel_shape:
        raise ValueError("kernel_shape is missing")
    kernel = per_axis(kernel_shape, rank, 1, "kernel_shape")
    steps = per_axis(strides, rank, 1, "strides")
    spread = per_axis(dilations, rank, 1, "dilations")
    asked = window_pads(auto_pad, pads, sizes, kernel, steps, spread)
    padded = [n + a + b for n, (a, b) in zip(sizes, asked, strict=True)]
    if not ceil_mode or auto_pad not in ("NOTSET", ""):
        return kernel, steps, spread, output_sizes(padded, kernel, steps, spread), asked, asked
    out, extended = [], []
    for size, total, k, s, d, (a, b) in zip(sizes, padded, kernel, steps, spread, asked, strict=True):
        count = max(0, -(-(total - extent(k, d)) // s)) + 1
        if (count - 1) * s >= size + a:  # a window may not start in the padding at the end
            count -= 1
        out.append(count)
        extended.append((a, b + max(0, (count - 1) * s + extent(k, d) - total)))
    return kernel, steps, spread, tuple(out), asked, tuple(extended)


def max_pool_values(
    x: np.ndarray,
    kernel_shape: Sequence[int] | None,
    strides: Sequence[int] | None,
    pads: Sequence[int] | None,
    dilations: Sequence[int] | None,
    auto_pad: str,
    ceil_mode: int,
) -> np.ndarray:
    kernel, steps, spread, out, _, extended = pool_geometry(
        x.shape[2:], kernel_shape, strides, pads, dilations, auto_pad, ceil_mode
    )
    wide = to_float32(x)
    padded = pad_spatial(wide, extended, lowest(wide.dtype))
    best = np.full((*x.shape[:2], *out), lowest(wide.dtype), wide.dtype)
    for _, where in taps(kernel, out, steps, spread) if best.size else ():
        np.maximum(best, padded[(..., *where)], out=best)
    return narrow(best, x.dtype)


@op("MaxPool")
def max_pool(
    x: np.ndarray,
    *,
    kernel_shape: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    storage_order: int = 0,
    n_outputs: int = 1,
):
    """Indices count elements of the whole input, in each image by columns if `storage_order` is 1."""
    if n_outputs == 1:
        return max_pool_values(x, kernel_shape, strides, pads, dilations, auto_pad, ceil_mode)
    sizes = x.shape[2:]
    kernel, steps, spread, out, _, extended = pool_geometry(
        sizes, kernel_shape, strides, pads, dilations, auto_pad, ceil_mode
    )
    wide = to_float32(x)
    padded = pad_spatial(wide, extended, lowest(wide.dtype))
    best = np.full((*x.shape[:2], *out), lowest(wide.dtype), wide.dtype)
    plane = prod(sizes)
    positions = np.arange(plane).reshape(sizes, order="F" if storage_order else "C")
    positions = pad_spatial(positions, extended, -1)
    chosen = np.full(best.shape, -1, np.int64)
    for _, where in taps(kernel, out, steps, spread) if best.size else ():
        candidate, position = padded[(..., *where)], positions[where]
        better = (candidate > best) | (chosen < 0) | (np.isnan(candidate) & ~np.isnan(best))
        better &= position >= 0
        np.copyto(best, candidate, where=better)
        np.copyto(chosen, position, where=better)
    chosen += np.arange(x.shape[0] * x.shape[1]).reshape(*x.shape[:2], *(1,) * len(sizes)) * plane
    return narrow(best, x.dtype), chosen


def window_sum(
    x: np.ndarray,
    kernel: Sequence[int],
    out: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Pads,
) -> np.ndarray:
    """Sum of each window of `x` (N, C, *sizes)."""
    padded = pad_spatial(x, pads)
    total = np.zeros((*x.shape[:2], *out), x.dtype)
    for _, where in taps(kernel, out, strides, dilations) if total.size else ():
        total += padded[(..., *where)]
    return total


def window_counts(
    sizes: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    out: Sequence[int],
    pads: Pads,
    count_include_pad: int,
    dtype: np.dtype,
) -> np.ndarray:
    """By what the sum of each window is divided: a product over axes of how many taps lie in the input (or in its
    padding, where that counts; what ceil_mode adds beyond the padding never does)."""
    count = np.ones((), dtype)
    for size, k, s, d, n, (a, b) in zip(sizes, kernel, strides, dilations, out, pads, strict=True):
        first, last = (0, a + size + b) if count_include_pad else (a, a + size)
        tap = np.arange(n)[:, None] * s + np.arange(k) * d
        count = count[..., None] * ((tap >= first) & (tap < last)).sum(axis=1).astype(dtype)
    return count


def average_pool_wide(
    x: np.ndarray,
    kernel_shape: Sequence[int] | None,
    strides: Sequence[int] | None,
    pads: Sequence[int] | None,
    dilations: Sequence[int] | None,
    auto_pad: str,
    ceil_mode: int,
    count_include_pad: int,
) -> np.ndarray:
    """Average pooling of floats that need no widening."""
    sizes = x.shape[2:]
    kernel, steps, spread, out, asked, extended = pool_geometry(
        sizes, kernel_shape, strides, pads, dilations, auto_pad, ceil_mode
    )
    total = window_sum(x, kernel, out, steps, spread, extended)
    return total / window_counts(sizes, kernel, steps, spread, out, asked, count_include_pad, x.dtype)


@op("AveragePool")
def average_pool(
    x: np.ndarray,
    *,
    kernel_shape: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
):
    y = average_pool_wide(to_float32(x), kernel_shape, strides, pads, dilations, auto_pad, ceil_mode, count_include_pad)
    return narrow(y, x.dtype)


def power_sum_root(total: np.ndarray, p: float) -> np.ndarray:
    """The p-th root of sums of p-th powers."""
    return total if p == 1 else np.sqrt(total) if p == 2 else total ** total.dtype.type(1 / p)


@op("LpPool")
def lp_pool(
    x: np.ndarray,
    *,
    kernel_shape: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    p: float = 2,
):
    kernel, steps, spread, out, _, extended = pool_geometry(
        x.shape[2:], kernel_shape, strides, pads, dilations, auto_pad, ceil_mode
    )
    wide = to_float32(x)
    powers = np.abs(wide) ** wide.dtype.type(p)
    return narrow(power_sum_root(window_sum(powers, kernel, out, steps, spread, extended), p), x.dtype)


def spatial_axes(x: np.ndarray) -> tuple[int, ...]:
    return tuple(range(2, x.ndim))


@op("GlobalAveragePool")
def global_average_pool(x: np.ndarray):
    return narrow(to_float32(x).mean(axis=spatial_axes(x), keepdims=True), x.dtype)


@op("GlobalMaxPool")
def global_max_pool(x: np.ndarray):
    return narrow(to_float32(x).max(axis=spatial_axes(x), keepdims=True), x.dtype)


@op("GlobalLpPool")
def global_lp_pool(x: np.ndarray, *, p: float = 2):
    wide = to_float32(x)
    powers = np.abs(wide) ** wide.dtype.type(p)
    return narrow(power_sum_root(powers.sum(axis=spatial_axes(x), keepdims=True), p), x.dtype)


@op("MaxUnpool", since=9)
def max_unpool(
    x: np.ndarray,
    indices: np.ndarray,
    output_shape: np.ndarray | None = None,
    *,
    kernel_shape: Sequence[int],
    strides: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
):
    """Indices count in the shape that kernel, strides and pads give; `output_shape` extends or cuts that at the end."""
    rank = x.ndim - 2
    kernel = per_axis(kernel_shape, rank, 1, "kernel_shape")
    strides = per_axis(strides, rank, 1, "strides")
    cut = window_pads("NOTSET", pads, x.shape[2:], kernel, strides, (1,) * rank)
    sizes = [(n - 1) * s + k - a - b for n, s, k, (a, b) in zip(x.shape[2:], strides, kernel, cut, strict=True)]
    flat = np.zeros(x.shape[0] * x.shape[1] * prod(sizes), x.dtype)
    if indices.size and (indices.min() < 0 or indices.max() >= flat.size):
        raise ValueError(f"indices reach {indices.min()} to {indices.max()}; the output has {flat.size} elements")
    flat[indices.reshape(-1)] = x.reshape(-1)
    y = flat.reshape(*x.shape[:2], *sizes)
    if output_shape is not None:
        wanted = [int(n) for n in output_shape][2:]
        y = pad_spatial(y, tuple((0, w - n) for w, n in zip(wanted, sizes, strict=True)))
    return y
