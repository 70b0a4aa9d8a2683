"""Operators on quantised tensors: dequantise, compute, quantise again; and products of integers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from ..activations import leaky_relu, sigmoid, softmax, softmax_1
from ..common import to_float32
from ..matrix import mat_mul_integer
from ..pool import average_pool_wide, max_pool_values
from ..quantize import dequantize, dynamic_quantize, qlinear_conv, quantize, saturated
from ..registry import op
from ..rnn import Step, activations_of, lstm_step, recurrent, split_bias
from .layers import embed_layer_normalization

MICROSOFT = "com.microsoft"


def real(x: np.ndarray, scale: np.ndarray, zero_point: np.ndarray | None) -> np.ndarray:
    """The numbers that a quantised tensor with one scale and zero point stands for."""
    values = x.astype(np.float32)
    if zero_point is not None:
        values = values - zero_point.astype(np.float32).reshape(())
    return values * scale.reshape(())


def requantized(y: np.ndarray, scale: np.ndarray, zero_point: np.ndarray | None, dtype: np.dtype) -> np.ndarray:
    """`y` quantised with one scale and zero point, to the zero point's type or else `dtype`."""
    zero = np.zeros((), dtype) if zero_point is None else zero_point.reshape(())
    return quantize(y, scale.reshape(()), zero)


@op("QLinearAdd", domain=MICROSOFT)
def qlinear_add(
    a: np.ndarray,
    a_scale: np.ndarray,
    a_zero_point: np.ndarray | None,
    b: np.ndarray,
    b_scale: np.ndarray,
    b_zero_point: np.ndarray | None,
    c_scale: np.ndarray,
    c_zero_point: np.ndarray | None = None,
):
    """Rounds once, after C's zero point is added: halves go to even results, not to even distances from zero."""
    dtype = a.dtype if c_zero_point is None else c_zero_point.dtype
    ratio_a, ratio_b = a_scale.reshape(()) / c_scale.reshape(()), b_scale.reshape(()) / c_scale.reshape(())
    zeros = [np.float32(0 if z is None else z.reshape(())) for z in (a_zero_point, b_zero_point, c_zero_point)]
    shift = zeros[2] - (ratio_a * zeros[0] + ratio_b * zeros[1])
    return saturated(shift + (a.astype(np.float32) * ratio_a + b.astype(np.float32) * ratio_b), 0, dtype)


@op("QLinearMul", domain=MICROSOFT)
def qlinear_mul(
    a: np.ndarray,
    a_scale: np.ndarray,
    a_zero_point: np.ndarray | None,
    b: np.ndarray,
    b_scale: np.ndarray,
    b_zero_point: np.ndarray | None,
    c_scale: np.ndarray,
    c_zero_point: np.ndarray | None = None,
):
    y = real(a, a_scale, a_zero_point) * real(b, b_scale, b_zero_point)
    return requantized(y, c_scale, c_zero_point, a.dtype)


@op("QLinearSigmoid", domain=MICROSOFT)
def qlinear_sigmoid(
    x: np.ndarray,
    x_scale: np.ndarray,
    x_zero_point: np.ndarray | None,
    y_scale: np.ndarray,
    y_zero_point: np.ndarray | None = None,
):
    return requantized(sigmoid(real(x, x_scale, x_zero_point)), y_scale, y_zero_point, x.dtype)


@op("QLinearLeakyRelu", domain=MICROSOFT)
def qlinear_leaky_relu(
    x: np.ndarray,
    x_scale: np.ndarray,
    x_zero_point: np.ndarray | None,
    y_scale: np.ndarray,
    y_zero_point: np.ndarray | None = None,
    *,
    alpha: float = 0.01,
):
    y = leaky_relu(real(x, x_scale, x_zero_point), alpha=alpha)
    return requantized(y, y_scale, y_zero_point, x.dtype)


@op("QLinearSoftmax", domain=MICROSOFT)
def qlinear_softmax(
    x: np.ndarray,
    x_scale: np.ndarray,
    x_zero_point: np.ndarray | None,
    y_scale: np.ndarray,
    y_zero_point: np.ndarray,
    *,
    axis: int = -1,
    opset: int,
):
    """`opset` says which Softmax is meant: over one axis (13 and newer), or over all from `axis` on."""
    numbers = real(x, x_scale, x_zero_point)
    y = softmax(numbers, axis=axis) if opset >= 13 else softmax_1(numbers, axis=axis)
    return requantized(y, y_scale, y_zero_point, x.dtype)


@op("QLinearConcat", domain=MICROSOFT)
def qlinear_concat(y_scale: np.ndarray, y_zero_point: np.ndarray, first: np.ndarray, *others: np.ndarray, axis: int):
    """Inputs are triples of tensor, scale and zero point."""
    inputs = (first, *others)
    if len(inputs) % 3:
        raise ValueError(f"{len(inputs)} inputs are not triples of tensor, scale and zero point")
    parts = [
        x
        if scale == y_scale and zero == y_zero_point
        else requantized(real(x, scale, zero), y_scale, y_zero_point, x.dtype)
        for x, scale, zero in zip(inputs[::3], inputs[1::3], inputs[2::3], strict=True)
    ]
    return np.concatenate(parts, axis=axis)


@op("QLinearWhere", domain=MICROSOFT)
def qlinear_where(
    condition: np.ndarray,
    x: np.ndarray,
    x_scale: np.ndarray,
    x_zero_point: np.ndarray,
    y: np.ndarray,
    y_scale: np.ndarray,
    y_zero_point: np.ndarray,
    z_scale: np.ndarray,
    z_zero_point: np.ndarray,
):
    chosen = np.where(condition, real(x, x_scale, x_zero_point), real(y, y_scale, y_zero_point))
    return requantized(chosen, z_scale, z_zero_point, x.dtype)


@op("QLinearReduceMean", domain=MICROSOFT)
def qlinear_reduce_mean(
    data: np.ndarray,
    data_scale: np.ndarray,
    data_zero_point: np.ndarray | None,
    reduced_scale: np.ndarray,
    reduced_zero_point: np.ndarray | None = None,
    *,
    axes: Sequence[int],
    keepdims: int,
):
    mean = real(data, data_scale, data_zero_point).mean(axis=tuple(axes), keepdims=bool(keepdims))
    return requantized(mean, reduced_scale, reduced_zero_point, data.dtype)


def in_channels_first(x: np.ndarray, channels_last: int, function: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """`function` of an image (N, C, ...), which may come and go as (N, ..., C)."""
    if not channels_last:
        return function(x)
    return np.ascontiguousarray(np.moveaxis(function(np.moveaxis(x, -1, 1)), 1, -1))


@op("QLinearAveragePool", domain=MICROSOFT)
def qlinear_average_pool(
    x: np.ndarray,
    x_scale: np.ndarray,
    x_zero_point: np.ndarray | None,
    y_scale: np.ndarray,
    y_zero_point: np.ndarray | None = None,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    channels_last: int = 0,
    count_include_pad: int = 0,
    kernel_shape: Sequence[int],
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
):
    def pooled(images: np.ndarray) -> np.ndarray:
        y = average_pool_wide(
            real(images, x_scale, x_zero_point),
            kernel_shape, strides, pads, None, auto_pad, ceil_mode, count_include_pad,
        )  # fmt: skip
        zero = np.zeros((), x.dtype) if y_zero_point is None else y_zero_point.reshape(())
        # Rounded after the zero point is added, as in QLinearAdd.
        return saturated(y / y_scale.reshape(()) + zero.astype(np.float32), 0, zero.dtype)

    return in_channels_first(x, channels_last, pooled)


@op("QLinearGlobalAveragePool", domain=MICROSOFT)
def qlinear_global_average_pool(
    x: np.ndarray,
    x_scale: np.ndarray,
    x_zero_point: np.ndarray,
    y_scale: np.ndarray,
    y_zero_point: np.ndarray,
    *,
    channels_last: int = 0,
):
    axes = tuple(range(1, x.ndim - 1)) if channels_last else tuple(range(2, x.ndim))
    total = (x.astype(np.int64) - int(x_zero_point.reshape(()))).sum(axis=axes, keepdims=True)
    count = np.float32(math.prod(x.shape[a] for a in axes))
    factor = x_scale.reshape(()) / (y_scale.reshape(()) * count)
    return saturated(total.astype(np.float32) * factor, np.float64(y_zero_point.reshape(())), y_zero_point.dtype)


@op("NhwcMaxPool", domain=MICROSOFT)
def nhwc_max_pool(
    x: np.ndarray,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Sequence[int] | None = None,
    kernel_shape: Sequence[int],
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
):
    return in_channels_first(
        x, 1, lambda images: max_pool_values(images, kernel_shape, strides, pads, dilations, auto_pad, ceil_mode)
    )


@op("QLinearConv", domain=MICROSOFT)
def qlinear_conv_microsoft(
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
    auto_pad: str = "NOTSET",
    channels_last: int = 0,
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
):
    def convolved(images: np.ndarray) -> np.ndarray:
        return qlinear_conv(
            images, x_scale, x_zero_point, w, w_scale, w_zero_point, y_scale, y_zero_point, b,
            auto_pad=auto_pad, dilations=dilations, group=group, kernel_shape=kernel_shape, pads=pads, strides=strides,
        )  # fmt: skip

    return in_channels_first(x, channels_last, convolved)


@op("QGemm", domain=MICROSOFT)
def q_gemm(
    a: np.ndarray,
    a_scale: np.ndarray,
    a_zero_point: np.ndarray,
    b: np.ndarray,
    b_scale: np.ndarray,
    b_zero_point: np.ndarray,
    c: np.ndarray | None = None,
    y_scale: np.ndarray | None = None,
    y_zero_point: np.ndarray | None = None,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
):
    """C is in units of alpha * a_scale * b_scale. Without `y_scale` the result is float32."""
    total = mat_mul_integer(a.T if transA else a, b.T if transB else b, a_zero_point, b_zero_point)
    if c is not None:
        total = total + c
    factor = np.float32(alpha) * a_scale.reshape(()) * b_scale.reshape(-1)
    if y_scale is None:
        return total.astype(np.float32) * factor
    zero = np.zeros((), a.dtype) if y_zero_point is None else y_zero_point.reshape(())
    return saturated(total.astype(np.float32) * (factor / y_scale.reshape(())), zero.astype(np.float64), zero.dtype)


@op("MatMulIntegerToFloat", domain=MICROSOFT)
def mat_mul_integer_to_float(
    a: np.ndarray,
    b: np.ndarray,
    a_scale: np.ndarray,
    b_scale: np.ndarray,
    a_zero_point: np.ndarray | None = None,
    b_zero_point: np.ndarray | None = None,
    bias: np.ndarray | None = None,
):
    y = mat_mul_integer(a, b, a_zero_point, b_zero_point).astype(np.float32) * (to_float32(a_scale) * b_scale)
    return (y if bias is None else y + bias).astype(a_scale.dtype)


@op("DynamicQuantizeMatMul", domain=MICROSOFT)
def dynamic_quantize_mat_mul(
    a: np.ndarray,
    b: np.ndarray,
    b_scale: np.ndarray,
    b_zero_point: np.ndarray | None = None,
    bias: np.ndarray | None = None,
):
    """A is quantised over its own range first."""
    quantized, scale, zero_point = dynamic_quantize(a)
    y = mat_mul_integer(quantized, b, zero_point, b_zero_point).astype(np.float32) * (scale * b_scale)
    return y if bias is None else y + bias


@op("MatMulInteger16", domain=MICROSOFT)
def mat_mul_integer16(a: np.ndarray, b: np.ndarray):
    """The product of 16-bit integers as int32 (uint32 for unsigned ones), which may wrap around."""
    unsigned = a.dtype.kind == b.dtype.kind == "u"
    return np.matmul(a.astype(np.int64), b.astype(np.int64)).astype(np.uint32 if unsigned else np.int32)


@op("MulInteger", domain=MICROSOFT)
def mul_integer(
    a: np.ndarray,
    a_zero_point: np.ndarray | None,
    b: np.ndarray,
    b_zero_point: np.ndarray | None = None,
):
    x, y = a.astype(np.int32), b.astype(np.int32)
    if a_zero_point is not None:
        x = x - a_zero_point
    if b_zero_point is not None:
        y = y - b_zero_point
    return (x * y).astype(np.int32)


@op("ReduceSumInteger", domain=MICROSOFT)
def reduce_sum_integer(data: np.ndarray, *, axes: Sequence[int], keepdims: int):
    dtype = np.uint32 if data.dtype.kind == "u" else np.int32
    return data.sum(axis=tuple(axes), keepdims=bool(keepdims), dtype=dtype)


def quantized_product(x: np.ndarray, w: np.ndarray, scale: np.ndarray, zero_point: np.ndarray) -> np.ndarray:
    """`x`, quantised over its own range, times integer weights; (rows, columns)."""
    quantized, x_scale, x_zero = dynamic_quantize(x)
    return mat_mul_integer(quantized, w, x_zero, zero_point).astype(np.float32) * (x_scale * scale)


@op("DynamicQuantizeLSTM", domain=MICROSOFT)
def dynamic_quantize_lstm(
    x: np.ndarray,
    w: np.ndarray,
    r: np.ndarray,
    b: np.ndarray | None,
    sequence_lens: np.ndarray | None,
    initial_h: np.ndarray | None,
    initial_c: np.ndarray | None,
    p: np.ndarray | None,
    w_scale: np.ndarray,
    w_zero_point: np.ndarray,
    r_scale: np.ndarray,
    r_zero_point: np.ndarray,
    *,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    activations: Sequence[str] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
):
    """LSTM with weights (directions, input size, 4 * hidden) of 8 bits. Inputs, all together, and hidden states, at
    each step, are quantised over their own ranges."""
    functions = activations_of(activations, ["Sigmoid", "Tanh", "Tanh"], activation_alpha, activation_beta, direction)
    input_bias, recurrence_bias = split_bias(b)
    bias = None if input_bias is None or recurrence_bias is None else input_bias + recurrence_bias

    def contribution(d: int, inputs: np.ndarray) -> np.ndarray:
        rows = inputs.reshape(-1, inputs.shape[-1])
        return quantized_product(rows, w[d], w_scale[d], w_zero_point[d]).reshape(*inputs.shape[:2], -1)

    def make_step(d: int) -> Step:
        return lstm_step(
            lambda h: quantized_product(h, r[d], r_scale[d], r_zero_point[d]),
            functions[d],
            None if p is None else p[d],
            clip,
            input_forget,
        )

    return recurrent(make_step, contribution, x, bias, sequence_lens, [initial_h, initial_c], r.shape[1], direction, 0)


@op("QEmbedLayerNormalization", domain=MICROSOFT)
def q_embed_layer_normalization(
    input_ids: np.ndarray,
    segment_ids: np.ndarray | None,
    word_embedding: np.ndarray,
    position_embedding: np.ndarray,
    segment_embedding: np.ndarray | None,
    gamma: np.ndarray,
    beta: np.ndarray,
    mask: np.ndarray | None,
    word_scale: np.ndarray,
    position_scale: np.ndarray,
    segment_scale: np.ndarray | None,
    gamma_scale: np.ndarray,
    beta_scale: np.ndarray,
    word_zero_point: np.ndarray,
    position_zero_point: np.ndarray,
    segment_zero_point: np.ndarray | None,
    gamma_zero_point: np.ndarray,
    beta_zero_point: np.ndarray,
    *,
    epsilon: float = 1e-12,
):
    """EmbedLayerNormalization of tables that are quantised, each as a whole."""
    segments = None
    if segment_embedding is not None and segment_scale is not None:
        segments = dequantize(segment_embedding, segment_scale, segment_zero_point)
    y, words, _ = embed_layer_normalization(
        input_ids,
        segment_ids,
        dequantize(word_embedding, word_scale, word_zero_point),
        dequantize(position_embedding, position_scale, position_zero_point),
        segments,
        dequantize(gamma, gamma_scale, gamma_zero_point),
        dequantize(beta, beta_scale, beta_zero_point),
        mask,
        epsilon=epsilon,
    )
    return y, words
