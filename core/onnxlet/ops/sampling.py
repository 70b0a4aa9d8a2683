"""Reading images at positions between their elements: GridSample, RoiAlign, DeformConv, CropAndResize."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np


def gather_points(images: np.ndarray, index: Sequence[np.ndarray]) -> np.ndarray:
    """Elements of images (N, C, *sizes) at integer positions, one array (N, *points) per spatial axis; 0 outside.

    Returns (N, C, *points).
    """
    n, channels, *sizes = images.shape
    inside = np.ones(np.broadcast_shapes(*(i.shape for i in index)), bool)
    flat = np.zeros(inside.shape, np.int64)
    for i, size in zip(index, sizes, strict=True):
        inside &= (i >= 0) & (i < size)
        flat = flat * size + np.clip(i, 0, max(size - 1, 0))
    pixels = images.reshape(n, channels, -1)
    picked = np.take_along_axis(pixels, flat.reshape(n, 1, -1), axis=2).reshape(n, channels, *inside.shape[1:])
    return np.where(inside[:, None], picked, images.dtype.type(0))


def sample_linear(images: np.ndarray, positions: Sequence[np.ndarray]) -> np.ndarray:
    """Multilinear interpolation of images (N, C, *sizes) at fractional positions, taking 0 outside.

    `positions` holds one array (N, *points) per spatial axis; returns (N, C, *points).
    """
    floors = [np.floor(p) for p in positions]
    fractions = [p - f for p, f in zip(positions, floors, strict=True)]
    corners = [np.where(np.isfinite(f), f, -2).clip(-2, 2**31 - 2).astype(np.int64) for f in floors]
    result = np.zeros((), images.dtype)
    for corner in itertools.product((0, 1), repeat=len(positions)):
        weight = np.ones((), images.dtype)
        for upper, fraction in zip(corner, fractions, strict=True):
            weight = weight * (fraction if upper else 1 - fraction)
        picked = gather_points(images, [c + upper for c, upper in zip(corners, corner, strict=True)])
        result = result + picked * weight[:, None].astype(images.dtype)
    return result
