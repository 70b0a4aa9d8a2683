"""Convolutions: Conv, ConvTranspose, DeformConv, Col2Im, CausalConvWithState."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from .common import to_float32
from .precision import narrow
from .registry import op
from .sampling import sample_linear
from .windows import (
    Pads,
    conv_geometry,
    explicit_pads,
    extent,
    fold,
    output_sizes,
    pad_spatial,
    per_axis,
    split_pad,
    taps,
    windows,
)


def check_weights(x: np.ndarray, w: np.ndarray, kernel_shape: Sequence[int] | None, group: int) -> tuple[int, ...]:
    """The kernel's spatial shape, after checking that input, weights and `group` go together."""
    if x.ndim < 3 or w.ndim != x.ndim:
        raise ValueError(f"input of shape {x.shape} and weights of shape {w.shape} must have the same rank, 3 or more")
    if kernel_shape and tuple(kernel_shape) != w.shape[2:]:
        raise ValueError(f"kernel_shape {list(kernel_shape)} differs from the weights' spatial shape {w.shape[2:]}")
    if group < 1 or x.shape[1] % group:
        raise ValueError(f"group {group} does not divide the {x.shape[1]} input channels")
    return w.shape[2:]


def convolve(x: np.ndarray, w: np.ndarray, strides: Sequence[int], dilations: Sequence[int], group: int) -> np.ndarray:
    """Correlate a padded input (N, C, *sizes) with weights (M, C / group, *kernel), giving (N, M, *output sizes)."""
    n, channels = x.shape[:2]
    m, per_group, *kernel = w.shape
    if channels != per_group * group or m % group:
        raise ValueError(
            f"weights of shape {w.shape} need {per_group * group} input channels and a multiple of {group} output "
            f"channels in {group} group(s); the input has {channels} channels"
        )
    out = output_sizes(x.shape[2:], kernel, strides, dilations)
    result_type = np.result_type(x, w)
    if per_group == 1:  # depthwise: a sum of scaled, shifted images
        spread = (slice(None), slice(None), *(None,) * len(out))
        w = w.reshape(group, m // group, *kernel)
        y = np.zeros((n, group, m // group, *out), result_type)
        for tap, where in taps(kernel, out, strides, dilations) if y.size else ():
            y += x[(slice(None), slice(None), None, *where)] * w[(slice(None), slice(None), *tap)][spread]
        return y.reshape(n, m, *out)
    # Every window becomes a column, one image at a time to bound the memory that takes.
    view = windows(x, kernel, strides, dilations)
    columns_shape = (group, per_group * prod(kernel), prod(out))
    order = (0, *range(1 + len(out), 1 + 2 * len(out)), *range(1, 1 + len(out)))
    w = w.reshape(group, m // group, -1)
    y = np.empty((n, m, *out), result_type)
    for i in range(n):
        y[i] = np.matmul(w, view[i].transpose(order).reshape(columns_shape)).reshape(m, *out)
    return y


def add_channel_bias(y: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    """Add a bias (M) to (N, M, ...) in place."""
    if bias is not None:
        y += bias.reshape(-1, *(1,) * (y.ndim - 2))
    return y


def convolution(
    x: np.ndarray,
    w: np.ndarray,
    b: np.ndarray | None,
    kernel_shape: Sequence[int] | None,
    strides: Sequence[int] | None,
    pads: Sequence[int] | None,
    dilations: Sequence[int] | None,
    group: int,
    auto_pad: str,
) -> np.ndarray:
    """Conv from its attributes, with a result that is not yet rounded to a narrow type."""
    kernel = check_weights(x, w, kernel_shape, group)
    steps, spread, padding = conv_geometry(x.shape[2:], kernel, strides, pads, dilations, auto_pad)
    y = convolve(pad_spatial(to_float32(x), padding), to_float32(w), steps, spread, group)
    return add_channel_bias(y, None if b is None else to_float32(b))


@op("Conv")
def conv(
    x: np.ndarray,
    w: np.ndarray,
    b: np.ndarray | None = None,
    *,
    kernel_shape: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    group: int = 1,
    auto_pad: str = "NOTSET",
):
    return narrow(convolution(x, w, b, kernel_shape, strides, pads, dilations, group, auto_pad), x.dtype)


def transposed_pads(
    sizes: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    output_padding: Sequence[int],
    auto_pad: str,
    pads: Sequence[int] | None,
    output_shape: Sequence[int] | None,
) -> Pads:
    """What ConvTranspose cuts off (or, where negative, adds) at each side of the full result."""
    rank = len(sizes)
    if output_shape:
        wanted = list(output_shape)[-rank:]  # some exporters write the whole shape, batch and channels too
    elif auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        wanted = [n * s for n, s in zip(sizes, strides, strict=True)]
    else:
        begin_end = explicit_pads(None if auto_pad == "VALID" else pads, rank)
        return tuple((a, b - extra) for (a, b), extra in zip(begin_end, output_padding, strict=True))
    result = []
    for n, k, s, d, extra, size in zip(sizes, kernel, strides, dilations, output_padding, wanted, strict=True):
        total = s * (n - 1) + extra + extent(k, d) - size
        # Too small a full result is extended at the end alone.
        begin, end = split_pad(total, auto_pad) if total > 0 else (0, total)
        result.append((begin, end - extra))
    return tuple(result)


@op("ConvTranspose")
def conv_transpose(
    x: np.ndarray,
    w: np.ndarray,
    b: np.ndarray | None = None,
    *,
    kernel_shape: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    output_padding: Sequence[int] | None = None,
    output_shape: Sequence[int] | None = None,
    group: int = 1,
    auto_pad: str = "NOTSET",
):
    """Weights are (C, M / group, *kernel)."""
    dtype = x.dtype
    kernel = check_weights(x, w, kernel_shape, group)
    rank = len(kernel)
    strides = per_axis(strides, rank, 1, "strides")
    dilations = per_axis(dilations, rank, 1, "dilations")
    output_padding = per_axis(output_padding, rank, 0, "output_padding")
    sizes = x.shape[2:]
    n, channels = x.shape[:2]
    if w.shape[0] != channels:
        raise ValueError(f"weights of shape {w.shape} need {w.shape[0]} input channels, the input has {channels}")
    cut = transposed_pads(sizes, kernel, strides, dilations, output_padding, auto_pad, pads, output_shape)

    x, w = to_float32(x), to_float32(w)
    per_group = w.shape[1]
    columns = np.matmul(
        w.reshape(group, channels // group, -1).transpose(0, 2, 1), x.reshape(n, group, channels // group, -1)
    )
    columns = columns.reshape(n, group * per_group, prod(kernel), prod(sizes))
    full = [(size - 1) * s + extent(k, d) for size, s, k, d in zip(sizes, strides, kernel, dilations, strict=True)]
    y = fold(columns, kernel, sizes, strides, dilations, full)
    y = pad_spatial(y, tuple((-a, -b) for a, b in cut))
    if b is not None:
        y = y + to_float32(b).reshape(-1, *(1,) * rank)
    return narrow(y, dtype)


@op("DeformConv", since=19)
def deform_conv(
    x: np.ndarray,
    w: np.ndarray,
    offset: np.ndarray,
    b: np.ndarray | None = None,
    mask: np.ndarray | None = None,
    *,
    kernel_shape: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    group: int = 1,
    offset_group: int = 1,
):
    dtype = x.dtype
    kernel = check_weights(x, w, kernel_shape, group)
    rank, count = len(kernel), prod(kernel)
    strides = per_axis(strides, rank, 1, "strides")
    dilations = per_axis(dilations, rank, 1, "dilations")
    padding = explicit_pads(pads, rank)
    n, channels, *sizes = x.shape
    out = output_sizes([s + a + b for s, (a, b) in zip(sizes, padding, strict=True)], kernel, strides, dilations)
    if offset.shape != (n, offset_group * count * rank, *out):
        raise ValueError(f"offset has shape {offset.shape}; {(n, offset_group * count * rank, *out)} is needed")

    # Where each tap of each window samples the input, as (N * offset_group, rank, taps, *out).
    positions = to_float32(offset).reshape(n * offset_group, count, rank, *out).swapaxes(1, 2).copy()
    for axis in range(rank):
        tap = np.indices(kernel)[axis].reshape(count, *(1,) * rank) * dilations[axis]
        window = np.indices(out)[axis] * strides[axis] - padding[axis][0]
        positions[:, axis] += tap + window
    images = to_float32(x).reshape(n * offset_group, channels // offset_group, *sizes)
    sampled = sample_linear(images, list(positions.swapaxes(0, 1)))
    if mask is not None:
        sampled = sampled * to_float32(mask).reshape(n * offset_group, 1, count, *out)
    columns = sampled.reshape(n, group, channels // group * count, prod(out))
    y = np.matmul(to_float32(w).reshape(group, w.shape[0] // group, -1), columns).reshape(n, w.shape[0], *out)
    return narrow(add_channel_bias(y, None if b is None else to_float32(b)), dtype)


@op("Col2Im", since=18)
def col2im(
    columns: np.ndarray,
    image_shape: np.ndarray,
    block_shape: np.ndarray,
    *,
    strides: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
):
    sizes, kernel = [int(v) for v in image_shape], [int(v) for v in block_shape]
    rank = len(sizes)
    strides = per_axis(strides, rank, 1, "strides")
    dilations = per_axis(dilations, rank, 1, "dilations")
    padding = explicit_pads(pads, rank)
    padded = [s + a + b for s, (a, b) in zip(sizes, padding, strict=True)]
    counts = output_sizes(padded, kernel, strides, dilations)
    n, rows, blocks = columns.shape
    if rows % prod(kernel) or blocks != prod(counts):
        raise ValueError(
            f"columns of shape {columns.shape} do not hold blocks of {kernel} at the {list(counts)} positions that an "
            f"image of {sizes} has"
        )
    columns = columns.reshape(n, rows // prod(kernel), prod(kernel), blocks)
    image = fold(to_float32(columns), kernel, counts, strides, dilations, padded)
    return narrow(pad_spatial(image, tuple((-a, -b) for a, b in padding)), columns.dtype)


@op("CausalConvWithState", since=27)
def causal_conv_with_state(
    x: np.ndarray,
    weight: np.ndarray,
    bias: np.ndarray | None = None,
    past_state: np.ndarray | None = None,
    *,
    activation: str = "none",
):
    """A depthwise convolution over (batch, channels, length) that looks only back, `past_state` first."""
    n, channels, _ = x.shape
    taps_before = weight.shape[2] - 1
    if past_state is None:
        past_state = np.zeros((n, channels, taps_before), x.dtype)
    line = np.concatenate([past_state, x], axis=2)
    y = add_channel_bias(
        convolve(to_float32(line), to_float32(weight), (1,), (1,), channels), None if bias is None else to_float32(bias)
    )
    if activation in ("silu", "swish"):
        y = y / (1 + np.exp(-y))
    elif activation != "none":
        raise ValueError(f"activation is {activation!r}; silu, swish and none are known")
    return narrow(y, x.dtype), line[:, :, line.shape[2] - taps_before :].copy()
