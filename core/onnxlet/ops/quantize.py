"""Quantisation: to and from small integers and floats, and integer matrix products and convolutions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..model.dtypes import dtype_of, element_type_of, is_extended
from ..model.dtypes import narrow as narrow_small
from .cast import convert
from .common import check_axis, to_float32
from .conv import check_weights, convolve
from .matrix import mat_mul_integer
from .precision import narrow
from .registry import op
from .windows import conv_geometry, pad_spatial

# Types of fewer than 8 bits: the range of the integers (element type number: low, high).
SMALL_RANGES = {21: (0, 15), 22: (-8, 7), 25: (0, 3), 26: (-2, 1)}


def integer_range(dtype: np.dtype) -> tuple[int, int] | None:
    """The least and greatest integer of a type, or `None` for a floating-point type."""
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return int(info.min), int(info.max)
    return SMALL_RANGES.get(element_type_of(dtype))


def granular(values: np.ndarray, shape: tuple[int, ...], axis: int, block_size: int) -> np.ndarray:
    """Scales or zero points shaped to broadcast over a tensor of `shape`.

    One value holds for the whole tensor, a vector has one value per element of `axis`, and a tensor of the input's
    rank one value per block of elements along `axis`.
    """
    if values.size == 1 and values.ndim <= 1:
        return values.reshape(())
    if values.ndim == 1 and not block_size:
        axis = 0 if len(shape) == 1 else check_axis(axis, len(shape))
        if values.size != shape[axis]:
            raise ValueError(f"{values.size} scales or zero points are given for axis {axis} of {shape[axis]} elements")
        return values.reshape(-1, *(1,) * (len(shape) - axis - 1))
    axis = check_axis(axis, len(shape))
    if values.ndim != len(shape):
        raise ValueError(f"scales or zero points of shape {list(values.shape)} do not fit a tensor {list(shape)}")
    block_size = block_size or -(-shape[axis] // values.shape[axis])
    repeated = np.repeat(values, block_size, axis=axis)
    return repeated[(slice(None),) * axis + (slice(shape[axis]),)]


def saturated(
    x: np.ndarray, zero_point: np.ndarray | np.generic | int, dtype: np.dtype, saturate: bool = True
) -> np.ndarray:
    """Floats rounded to nearest, ties to even, plus a zero point, clipped to the range of `dtype`.

    NaN becomes the zero point. Floating-point targets are rounded to as Cast does.
    """
    limits = integer_range(dtype)
    if limits is None:
        return convert((x + zero_point).astype(np.float32), dtype, saturate=saturate)
    y = np.clip(np.rint(np.where(np.isnan(x), 0, x)) + zero_point, *limits)
    return narrow_small(y, dtype) if is_extended(dtype) else y.astype(dtype)


def quantize(
    x: np.ndarray,
    scale: np.ndarray,
    zero_point: np.ndarray | None,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
    saturate: int = 1,
) -> np.ndarray:
    if zero_point is not None:
        dtype = zero_point.dtype
        if output_dtype and dtype_of(output_dtype) != dtype:
            raise ValueError(f"output_dtype {dtype_of(output_dtype)} differs from the zero point's type {dtype}")
    else:
        dtype = dtype_of(output_dtype) if output_dtype else np.dtype(np.uint8)
    divisor = dtype_of(precision) if precision else scale.dtype
    wide_x, wide_scale = to_float32(x), granular(to_float32(scale), x.shape, axis, block_size)
    if divisor.kind in "iu" or element_type_of(divisor) == 24:  # dividing in integers or powers of two is not meant
        ratio = wide_x / wide_scale
    else:
        ratio = to_float32(
            narrow(to_float32(narrow(wide_x, divisor)) / to_float32(narrow(wide_scale, divisor)), divisor)
        )
    zero = 0 if zero_point is None else granular(to_float32(zero_point), x.shape, axis, block_size)
    if isinstance(zero, np.ndarray) and zero.dtype.kind in "iu":
        zero = zero.astype(np.float64)
    return saturated(ratio, zero, dtype, bool(saturate))


@op("QuantizeLinear", since=10)
@op("QuantizeLinear", domain="com.microsoft")
def quantize_linear_10(x: np.ndarray, y_scale: np.ndarray, y_zero_point: np.ndarray | None = None, *, axis: int = 1):
    return quantize(x, y_scale, y_zero_point, axis)


@op("QuantizeLinear", since=19)
def quantize_linear_19(
    x: np.ndarray, y_scale: np.ndarray, y_zero_point: np.ndarray | None = None, *, axis: int = 1, saturate: int = 1
):
    return quantize(x, y_scale, y_zero_point, axis, saturate=saturate)


@op("QuantizeLinear", since=21)
def quantize_linear_21(
    x: np.ndarray,
    y_scale: np.ndarray,
    y_zero_point: np.ndarray | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
    saturate: int = 1,
):
    return quantize(x, y_scale, y_zero_point, axis, block_size, output_dtype, precision, saturate)


def dequantize(
    x: np.ndarray,
    scale: np.ndarray,
    zero_point: np.ndarray | None,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> np.ndarray:
    dtype = dtype_of(output_dtype) if output_dtype else scale.dtype
    values = to_float32(x)
    if zero_point is not None:
        zero = granular(to_float32(zero_point), x.shape, axis, block_size)
        if values.dtype.kind in "iu":
            values, zero = values.astype(np.int64), zero.astype(np.int64)
        values = values - zero
    wide_scale = granular(to_float32(scale), x.shape, axis, block_size)
    return narrow(values.astype(np.float32) * wide_scale.astype(np.float32), dtype)


@op("DequantizeLinear", since=10)
def dequantize_linear_10(x: np.ndarray, x_scale: np.ndarray, x_zero_point: np.ndarray | None = None, *, axis: int = 1):
    return dequantize(x, x_scale, x_zero_point, axis)


@op("DequantizeLinear", since=21)
@op("DequantizeLinear", domain="com.microsoft")
def dequantize_linear_21(
    x: np.ndarray,
    x_scale: np.ndarray,
    x_zero_point: np.ndarray | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
):
    return dequantize(x, x_scale, x_zero_point, axis, block_size, output_dtype)


def dynamic_quantize(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`x` as uint8 over its own range made to include 0, the scale, and the zero point. NaN is left out of the range;
    where that is infinite, the zero point is 0."""
    low = np.fmin.reduce(x, axis=None, initial=np.float32(0))
    high = np.fmax.reduce(x, axis=None, initial=np.float32(0))
    scale = np.float32((high - low) / np.float32(255)) if high > low else np.float32(1)
    zero_point = np.uint8(np.rint(np.clip(-low / scale, 0, 255)) if np.isfinite(scale) else 0)
    return saturated(x / scale, np.float64(zero_point), np.dtype(np.uint8)), np.asarray(scale), np.asarray(zero_point)


@op("DynamicQuantizeLinear", since=11)
def dynamic_quantize_linear(x: np.ndarray):
    return dynamic_quantize(x)


def per_row(values: np.ndarray, rank: int) -> np.ndarray:
    """One value, or one per row of a matrix: a vector stands upright."""
    return values.reshape(-1, 1) if values.ndim == 1 and values.size > 1 and rank > 1 else values


@op("QLinearMatMul", since=10)
def qlinear_mat_mul(
    a: np.ndarray,
    a_scale: np.ndarray,
    a_zero_point: np.ndarray,
    b: np.ndarray,
    b_scale: np.ndarray,
    b_zero_point: np.ndarray,
    y_scale: np.ndarray,
    y_zero_point: np.ndarray,
):
    """Scales and zero points are one number, or one per row of A, column of B, row of Y."""
    if is_extended(a.dtype):  # float8
        x = to_float32(a) - per_row(to_float32(a_zero_point), a.ndim)
        total = np.matmul(x, to_float32(b) - to_float32(b_zero_point))
    else:
        total = mat_mul_integer(a, b, a_zero_point, b_zero_point).astype(np.float32)
    factor = per_row(to_float32(a_scale), a.ndim) * to_float32(b_scale) / per_row(to_float32(y_scale), a.ndim)
    zero = per_row(to_float32(y_zero_point), a.ndim)
    return saturated(total * factor, zero.astype(np.float64), y_zero_point.dtype)


def integer_convolve(
    x: np.ndarray,
    w: np.ndarray,
    x_zero_point: np.ndarray | None,
    w_zero_point: np.ndarray | None,
    kernel_shape: Sequence[int] | None,
    strides: Sequence[int] | None,
    pads: Sequence[int] | None,
    dilations: Sequence[int] | None,
    group: int,
    auto_pad: str,
) -> np.ndarray:
    """A convolution of 8-bit integers, less their zero points, as int32. Padding stands for the real number 0."""
    kernel = check_weights(x, w, kernel_shape, group)
    steps, spread, padding = conv_geometry(x.shape[2:], kernel, strides, pads, dilations, auto_pad)
    # float64 holds sums of products of 9-bit numbers exactly, and has the fastest exact matrix product.
    images, weights = x.astype(np.float64), w.astype(np.float64)
    if x_zero_point is not None:
        images -= x_zero_point.reshape(())
    if w_zero_point is not None:
        weights -= w_zero_point.reshape(-1, *(1,) * (w.ndim - 1))
    y = convolve(pad_spatial(images, padding), weights, steps, spread, group)
    return y.astype(np.int64).astype(np.int32)


@op("ConvInteger", since=10)
def conv_integer(
    x: np.ndarray,
    w: np.ndarray,
    x_zero_point: np.ndarray | None = None,
    w_zero_point: np.ndarray | None = None,
    *,
    kernel_shape: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    group: int = 1,
    auto_pad: str = "NOTSET",
):
    return integer_convolve(x, w, x_zero_point, w_zero_point, kernel_shape, strides, pads, dilations, group, auto_pad)


@op("QLinearConv", since=10)
def qlinear_conv(
    x: np.ndarray,
    x_scale: np.ndarray,
    x_zero_point: np.ndarray,
    w: np.ndarray,
    w_scale: np.ndarray,
    w_zero_point: np.ndarray,
    y_scale: np.ndarray,
    y_zero_point: np.ndarray,
    b: np.ndarray | None = None,
    *,
    kernel_shape: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    group: int = 1,
    auto_pad: str = "NOTSET",
):
    """The bias is int32, in units of x_scale * w_scale. Weights' scale and zero point may be per output channel."""
    total = integer_convolve(x, w, x_zero_point, w_zero_point, kernel_shape, strides, pads, dilations, group, auto_pad)
    channels = (-1, *(1,) * (x.ndim - 2))
    if b is not None:
        total = total + b.reshape(channels)
    factor = (x_scale * w_scale / y_scale).astype(np.float32).reshape(channels)
    return saturated(total.astype(np.float32) * factor, y_zero_point.astype(np.float64), y_zero_point.dtype)
