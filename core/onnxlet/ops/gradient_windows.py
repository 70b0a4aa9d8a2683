"""Operators of onnxlet's own for the gradients of windows and of parts: the adjoints of Conv, pooling, Slice, Gather.

Each is linear in the derivative that it is given, and its own derivative is the operator whose adjoint it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .common import in_float32
from .pool import max_pool, pool_geometry, window_counts
from .registry import op
from .shape import slice_10
from .windows import Pads, conv_geometry, pad_spatial, taps

OWN = "onnxlet"


def cropped(padded: np.ndarray, pads: Pads) -> np.ndarray:
    """What lies within the padding of the last axes."""
    return pad_spatial(padded, tuple((-a, -b) for a, b in pads))


@op("ConvInput", domain=OWN)
@in_float32
def conv_input(
    g: np.ndarray,
    w: np.ndarray,
    x: np.ndarray,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
):
    """The derivative by Conv's input `x`, of which the shape is asked for, from that by its output."""
    kernel, out = w.shape[2:], g.shape[2:]
    steps, spread, padding = conv_geometry(x.shape[2:], kernel, strides, pads, dilations, auto_pad)
    batch, channels = x.shape[:2]
    whole = np.zeros((batch, channels, *(n + a + b for n, (a, b) in zip(x.shape[2:], padding, strict=True))), g.dtype)
    apart = g.reshape(batch, group, -1, int(np.prod(out)))
    weights = w.reshape(group, -1, *w.shape[1:])
    for tap, where in taps(kernel, out, steps, spread) if g.size else ():
        part = np.einsum("ngmp,gmc->ngcp", apart, weights[(..., *tap)])
        whole[(..., *where)] += part.reshape(batch, channels, *out)
    return cropped(whole, padding)


@op("ConvWeights", domain=OWN)
@in_float32
def conv_weights(
    g: np.ndarray,
    x: np.ndarray,
    w: np.ndarray,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
):
    """The derivative by Conv's weights `w`, of which the shape is asked for, from that by its output."""
    kernel = w.shape[2:]
    steps, spread, padding = conv_geometry(x.shape[2:], kernel, strides, pads, dilations, auto_pad)
    padded = pad_spatial(x, padding)
    out = g.shape[2:]
    apart = g.reshape(len(g), group, -1, int(np.prod(out)))
    result = np.zeros(w.shape, g.dtype)
    for tap, where in taps(kernel, out, steps, spread) if g.size else ():
        seen = padded[(..., *where)].reshape(len(x), group, -1, apart.shape[3])
        result[(..., *tap)] = np.einsum("ngmp,ngcp->gmc", apart, seen).reshape(w.shape[:2])
    return result


@op("AveragePoolInput", domain=OWN)
@in_float32
def average_pool_input(
    g: np.ndarray,
    x: np.ndarray,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: Sequence[int] | None = None,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
):
    """The derivative by AveragePool's input, of which the shape is asked for: each window's, shared out in it."""
    sizes = x.shape[2:]
    kernel, steps, spread, out, asked, extended = pool_geometry(
        sizes, kernel_shape, strides, pads, dilations, auto_pad, ceil_mode
    )
    shared = g / window_counts(sizes, kernel, steps, spread, out, asked, count_include_pad, g.dtype)
    whole = np.zeros((*x.shape[:2], *(n + a + b for n, (a, b) in zip(sizes, extended, strict=True))), g.dtype)
    for _, where in taps(kernel, out, steps, spread) if g.size else ():
        whole[(..., *where)] += shared
    return cropped(whole, extended)


@op("GlobalAveragePoolInput", domain=OWN)
@in_float32
def global_average_pool_input(g: np.ndarray, x: np.ndarray):
    """The derivative by GlobalAveragePool's input, of which the shape is asked for."""
    return np.broadcast_to(g / g.dtype.type(math.prod(x.shape[2:])), x.shape).copy()


@op("MaxPoolInput", domain=OWN)
@in_float32
def max_pool_input(
    g: np.ndarray,
    x: np.ndarray,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Sequence[int] | None = None,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    storage_order: int = 0,
    strides: Sequence[int] | None = None,
):
    """The derivative by MaxPool's input `x`: each window's goes to its greatest element, of equal ones to the first."""
    _, where = max_pool(
        x, auto_pad=auto_pad, ceil_mode=ceil_mode, dilations=dilations, kernel_shape=kernel_shape, pads=pads,
        strides=strides, n_outputs=2,
    )  # fmt: skip
    total = np.bincount(where.reshape(-1), weights=g.reshape(-1), minlength=x.size)
    return total.reshape(x.shape).astype(g.dtype)


@op("MaxPoolPicked", domain=OWN)
def max_pool_picked(
    h: np.ndarray,
    x: np.ndarray,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Sequence[int] | None = None,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    storage_order: int = 0,
    strides: Sequence[int] | None = None,
):
    """The elements of `h` where `x` has the greatest of each window."""
    _, where = max_pool(
        x, auto_pad=auto_pad, ceil_mode=ceil_mode, dilations=dilations, kernel_shape=kernel_shape, pads=pads,
        strides=strides, n_outputs=2,
    )  # fmt: skip
    return h.reshape(-1)[where]


@op("SliceInput", domain=OWN)
def slice_input(
    g: np.ndarray,
    x: np.ndarray,
    starts: np.ndarray,
    ends: np.ndarray,
    axes: np.ndarray | None = None,
    steps: np.ndarray | None = None,
):
    """The derivative by Slice's data, of which the shape is asked for: zero outside of the slice."""
    places = slice_10(np.arange(x.size).reshape(x.shape), starts, ends, axes, steps)
    result = np.zeros(x.size, g.dtype)
    result[places.reshape(-1)] = g.reshape(-1)
    return result.reshape(x.shape)


@op("GatherInput", domain=OWN)
def gather_input(g: np.ndarray, x: np.ndarray, indices: np.ndarray, *, axis: int = 0):
    """The derivative by Gather's data, of which the shape is asked for: the sum of that of all that came from it."""
    result = np.zeros(x.shape, g.dtype)
    where: tuple[Any, ...] = (*(slice(None),) * (axis % x.ndim), indices)
    np.add.at(result, where, g)
    return result
