"""Sampling at positions that a grid gives: GridSample, AffineGrid."""

from __future__ import annotations

import itertools

import numpy as np

from .common import to_float32
from .precision import narrow
from .registry import op
from .resize import cubic_kernel, linear_kernel
from .sampling import gather_points


def into_range(index: np.ndarray, size: int, padding_mode: str, align_corners: int) -> np.ndarray:
    """Move integer positions outside an axis of `size` elements inside, as the padding mode says.

    Mode zeros leaves them: what is outside reads 0.
    """
    if padding_mode == "border":
        return np.clip(index, 0, size - 1)
    if padding_mode == "reflection":
        # Mirrors stand at the outermost elements' centres, or else at their outer edges; the pattern repeats.
        period = 2 * (size - 1) if align_corners else 2 * size
        if period == 0:
            return np.zeros_like(index)
        folded = np.mod(index, period)
        return np.where(folded < size, folded, (period if align_corners else period - 1) - folded)
    return index


def denormalize(position: np.ndarray, size: int, align_corners: int) -> np.ndarray:
    """From [-1, 1] to elements of an axis."""
    if align_corners:
        return (position + 1) / 2 * (size - 1)
    return ((position + 1) * size - 1) / 2


MODES = {"bilinear": "linear", "bicubic": "cubic", "linear": "linear", "cubic": "cubic", "nearest": "nearest"}


def grid_sample_impl(x: np.ndarray, grid: np.ndarray, mode: str, padding_mode: str, align_corners: int) -> np.ndarray:
    if mode not in MODES:
        raise ValueError(f"mode is {mode!r}; linear, nearest and cubic are known")
    if padding_mode not in ("zeros", "border", "reflection"):
        raise ValueError(f"padding_mode is {padding_mode!r}; zeros, border and reflection are known")
    sizes = x.shape[2:]
    if grid.shape[-1] != len(sizes) or grid.shape[0] != x.shape[0]:
        raise ValueError(f"a grid of shape {grid.shape} does not fit an input of shape {x.shape}")
    images = to_float32(x)
    if images.dtype.kind in "iub":
        images = images.astype(np.float32 if images.dtype.itemsize < 4 else np.float64)
    coordinates = to_float32(grid)
    if mode == "nearest":
        taps, kernel = (0,), None
    else:
        taps, kernel = ((0, 1), linear_kernel) if MODES[mode] == "linear" else ((-1, 0, 1, 2), cubic_kernel(-0.75))
    # Per axis: for each tap, which elements are read and with which weight. The grid lists the innermost axis first.
    neighbours: list[list[tuple[np.ndarray, np.ndarray | None]]] = []
    for axis, size in enumerate(sizes):
        position = denormalize(coordinates[..., len(sizes) - 1 - axis], size, align_corners)
        base = np.rint(position) if kernel is None else np.floor(position)
        whole = np.where(np.isfinite(base), base, -2).clip(-(2**40), 2**40).astype(np.int64)
        choices = []
        for tap in taps:
            weight = None if kernel is None else kernel(base + tap - position).astype(images.dtype)
            choices.append((into_range(whole + tap, size, padding_mode, align_corners), weight))
        neighbours.append(choices)
    total = np.zeros((), images.dtype)
    for corner in itertools.product(*neighbours):
        value = gather_points(images, [index for index, _ in corner])
        for _, weight in corner:
            if weight is not None:
                value = value * weight[:, None]
        total = total + value
    if x.dtype.kind in "iu":
        info = np.iinfo(x.dtype)
        total = np.clip(np.trunc(total), info.min, info.max)
    return narrow(total, x.dtype)


@op("GridSample", since=16)
@op("GridSample", since=1, domain="com.microsoft")
def grid_sample_16(
    x: np.ndarray,
    grid: np.ndarray,
    *,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: int = 0,
):
    return grid_sample_impl(x, grid, mode, padding_mode, align_corners)


@op("GridSample", since=20)
def grid_sample_20(
    x: np.ndarray,
    grid: np.ndarray,
    *,
    mode: str = "linear",
    padding_mode: str = "zeros",
    align_corners: int = 0,
):
    return grid_sample_impl(x, grid, mode, padding_mode, align_corners)


@op("AffineGrid", since=20)
def affine_grid(theta: np.ndarray, size: np.ndarray, *, align_corners: int = 0):
    """Positions (N, *sizes, rank) for GridSample from matrices (N, rank, rank + 1); `size` is (N, C, *sizes)."""
    sizes = [int(n) for n in size][2:]
    rank = len(sizes)
    wide = to_float32(theta)
    if theta.shape[1:] != (rank, rank + 1):
        raise ValueError(f"theta has shape {theta.shape}; {rank} spatial sizes need (N, {rank}, {rank + 1})")
    lines = []
    for n in sizes:
        if align_corners:
            lines.append(np.linspace(-1, 1, n, dtype=wide.dtype) if n > 1 else np.zeros(n, wide.dtype))
        else:
            lines.append(((np.arange(n, dtype=wide.dtype) * 2 + 1) / n - 1).astype(wide.dtype))
    mesh = np.meshgrid(*lines, indexing="ij")
    points = np.stack([*mesh[::-1], np.ones(sizes, wide.dtype)], axis=-1).reshape(-1, rank + 1)
    grid = np.matmul(points, wide.swapaxes(1, 2)).reshape(theta.shape[0], *sizes, rank)
    return narrow(grid, theta.dtype)
