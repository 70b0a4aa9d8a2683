"""Operators on quantised tensors, written out: dequantise, compute, quantise.

Convolutions are computed in float32 on whole numbers, which is exact while no sum exceeds 2^24.
"""

from __future__ import annotations

from math import prod

import numpy as np

from .common import F32, I8, I32, U8, dtype_of, need_constant, output_dtype, output_shape, present, shape_of
from .expansion import Expansion, expand
from .registry import Refused

MICROSOFT = "com.microsoft"
EXACT = 1 << 24
"""Up to here every whole number is a float32."""


def _scalar(e: Expansion, index: int, what: str = "scale") -> np.ndarray:
    """A constant input of one element, 0-d."""
    value = need_constant(e.step, index, what)
    if value.size != 1:
        raise Refused(f"a {what} per row or channel has no kernel here")
    return value.reshape(())


def _real(e: Expansion, index: int, scale: float | np.ndarray, zero: int | None) -> str:
    """Input `index` less the zero point at input `zero`, times `scale`."""
    inputs = [e.input(index), e.literal(scale)]
    if zero is not None and present(e.step, zero):
        _scalar(e, zero, "zero point")
        inputs.append(e.input(zero))
    return e.add("DequantizeLinear", inputs)


def _quantized(e: Expansion, x: str, scale: float | np.ndarray, zero: int | None, output: str = "") -> str:
    """`x` over `scale`, rounded, plus the zero point at input `zero`, as the step's output."""
    dtype = output_dtype(e.step)
    if zero is not None and present(e.step, zero):
        _scalar(e, zero, "zero point")
        point = e.input(zero)
    else:
        point = e.literal(0, dtype)
    return e.add("QuantizeLinear", [x, e.literal(scale), point], dtype=dtype, output=output or e.output())


def _whole_weights(e: Expansion, weights: int, zero: int) -> str:
    """Constant weights less their zero points (one, or one per output channel), as whole float32 numbers."""
    shape = shape_of(e.step, weights)
    indices = [weights, zero] if present(e.step, zero) else [weights]

    def compute(w: np.ndarray, *zeros: np.ndarray) -> np.ndarray:
        wide = w.astype(F32)
        return wide - zeros[0].astype(F32).reshape(-1, *(1,) * (w.ndim - 1)) if zeros else wide

    return e.derived("whole weights", indices, shape, compute)


_CONV_ATTRIBUTES = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")


def _convolution(e: Expansion, x: str, weights: str, bias: str, output: str = "") -> str:
    attributes = {k: v for k, v in e.step.node.attributes.items() if k in _CONV_ATTRIBUTES}
    inputs = [x, weights, bias] if bias else [x, weights]
    return e.add("Conv", inputs, output_shape(e.step), output=output, exact=1, **attributes)


@expand("ConvInteger")
def conv_integer(e: Expansion) -> None:
    zeros = need_constant(e.step, 3, "zero point").astype(np.int64) if present(e.step, 3) else np.int64(0)
    weights = need_constant(e.step, 1, "weights").astype(np.int64)
    per_channel = np.abs(weights - np.reshape(zeros, (-1, *(1,) * (weights.ndim - 1))))
    if per_channel.reshape(len(weights), -1).sum(axis=1).max(initial=0) * 255 >= EXACT:
        raise Refused("sums of this size are not exact in float32")
    x = _input_of_conv_integer(e)
    whole = _convolution(e, x, _whole_weights(e, 1, 3), "")
    e.add("Cast", [whole], dtype=I32, output=e.output(), to=6)


def _input_of_conv_integer(e: Expansion) -> str:
    inputs = [e.input(0), e.literal(1)]
    if present(e.step, 2):
        if shape_of(e.step, 2) not in ((), (1,)):
            raise Refused("a zero point per channel has no kernel here")
        inputs.append(e.input(2))
    return e.add("DequantizeLinear", inputs)


@expand("QLinearConv")
def qlinear_conv(e: Expansion) -> None:
    """x, its scale and zero point, w, its scale and zero point, y's scale and zero point, bias."""
    if len(shape_of(e.step, 0)) > 4:
        raise Refused("convolution in 3 dimensions has no kernel")
    x = _real(e, 0, 1, 2)
    channels, rank = shape_of(e.step, 3)[0], len(shape_of(e.step, 0))
    bias = e.derived("whole bias", [8], (channels,), lambda b: b.astype(F32)) if present(e.step, 8) else ""
    total = _convolution(e, x, _whole_weights(e, 3, 5), bias)
    size = need_constant(e.step, 4, "scale").size

    def factor(x_scale: np.ndarray, w_scale: np.ndarray, y_scale: np.ndarray) -> np.ndarray:
        return (x_scale * w_scale / y_scale).astype(F32)

    shape = (size, *(1,) * (rank - 2)) if size > 1 else ()
    scaled = e.binary("Mul", total, e.derived(("factor", shape), [1, 4, 6], shape, factor))
    _quantized(e, scaled, 1, 7)


@expand("QLinearMatMul")
def qlinear_matmul(e: Expansion) -> None:
    _product(e, 0, 1, 2, 3, 4, 5, None, 6, 7, 1.0)


@expand("QGemm", domain=MICROSOFT)
def q_gemm(e: Expansion) -> None:
    """A, its scale and zero point, B, its scale and zero point, C in units of the product, y's scale and zero point."""
    if e.step.attribute("transA", 0):
        raise Refused("a transposed A has no kernel")
    _product(e, 0, 1, 2, 3, 4, 5, 6, 7, 8, float(e.step.attribute("alpha", 1.0)))


def _product(
    e: Expansion, a: int, a_scale: int, a_zero: int, b: int, b_scale: int, b_zero: int, c: int | None, y_scale: int,
    y_zero: int, alpha: float,
) -> None:  # fmt: skip
    transposed = int(e.step.attribute("transB", 0))
    columns = shape_of(e.step, b)[-2 if transposed else -1]
    _scalar(e, a_scale)
    size = need_constant(e.step, b_scale, "scale").size
    quantizes = present(e.step, y_scale)
    if quantizes:
        _scalar(e, y_scale)
    indices = [a_scale, b_scale, *([y_scale] if quantizes else [])]
    shape = (columns,) if size > 1 else ()

    def factor(one: np.ndarray, other: np.ndarray, *over: np.ndarray) -> np.ndarray:
        product = np.float32(alpha) * one.reshape(()) * other.reshape(shape)
        return (product / over[0].reshape(()) if over else product).astype(F32)

    bias = ""
    if c is not None and present(e.step, c):
        if need_constant(e.step, c, "bias").size != columns:
            raise Refused("a bias that is not a vector has no kernel")
        bias = e.derived(
            ("product bias", alpha, quantizes), [*indices, c], (columns,),
            lambda *values: values[-1].reshape(-1).astype(F32) * factor(*values[:-1]),
        )  # fmt: skip
    scales = e.derived(("product factor", alpha, quantizes), indices, shape, factor)
    inputs = [e.input(a), e.input(b), e.literal(1), scales, e.input(a_zero), e.input(b_zero), bias]
    total = e.add(
        "MatMulIntegerToFloat", inputs, output_shape(e.step), domain=MICROSOFT, version=1, transB=transposed,
        output="" if quantizes else e.output(),
    )  # fmt: skip
    if quantizes:
        _quantized(e, total, 1, y_zero)


@expand("QLinearAdd", domain=MICROSOFT)
def qlinear_add(e: Expansion) -> None:
    """Rounds after the zero point of the result is added."""
    a_scale, b_scale, c_scale = (_scalar(e, i) for i in (1, 4, 6))
    zeros = [np.float32(_scalar(e, i, "zero point") if present(e.step, i) else 0) for i in (2, 5, 7)]
    ratio_a, ratio_b = a_scale / c_scale, b_scale / c_scale
    shift = zeros[2] - (ratio_a * zeros[0] + ratio_b * zeros[1])
    a, b = _real(e, 0, ratio_a, None), _real(e, 3, ratio_b, None)
    total = e.binary("Add", e.binary("Add", a, b), e.literal(shift))
    _quantized(e, total, 1, None)


@expand("QLinearMul", domain=MICROSOFT)
def qlinear_mul(e: Expansion) -> None:
    a, b = (_real(e, i, _scalar(e, i + 1), i + 2) for i in (0, 3))
    _quantized(e, e.binary("Mul", a, b), _scalar(e, 6), 7)


@expand("QLinearSigmoid", "QLinearLeakyRelu", "QLinearSoftmax", domain=MICROSOFT)
def qlinear_unary(e: Expansion) -> None:
    operator = e.step.node.op_type.removeprefix("QLinear")
    attributes = dict(e.step.node.attributes)
    version = attributes.pop("opset", 21) if operator == "Softmax" else 21
    x = _real(e, 0, _scalar(e, 1), 2)
    y = e.add(operator, [x], version=version, **attributes)
    _quantized(e, y, _scalar(e, 3), 4)


@expand("QLinearConcat", domain=MICROSOFT)
def qlinear_concat(e: Expansion) -> None:
    scale, zero = _scalar(e, 0), _scalar(e, 1, "zero point")
    dtype, parts = output_dtype(e.step), []
    for i in range(2, len(e.step.node.inputs), 3):
        name = e.input(i)
        if _scalar(e, i + 1) != scale or _scalar(e, i + 2, "zero point") != zero:
            real = _real(e, i, _scalar(e, i + 1), i + 2)
            name = e.add("QuantizeLinear", [real, e.literal(scale), e.literal(zero, dtype)], dtype=dtype)
        parts.append(name)
    e.add("Concat", parts, output_shape(e.step), dtype=dtype, output=e.output(), axis=e.step.attribute("axis"))


@expand("QLinearGlobalAveragePool", domain=MICROSOFT)
def qlinear_global_average_pool(e: Expansion) -> None:
    if e.step.attribute("channels_last", 0):
        raise Refused("channels last has no kernel here")
    shape = shape_of(e.step, 0)
    axes = list(range(2, len(shape)))
    total = e.add("ReduceSum", [_real(e, 0, 1, 2)], output_shape(e.step), version=11, axes=axes)
    factor = _scalar(e, 1) / (_scalar(e, 3) * np.float32(prod(shape[2:])))
    _quantized(e, e.binary("Mul", total, e.literal(factor)), 1, 4)


@expand("QLinearAveragePool", domain=MICROSOFT)
def qlinear_average_pool(e: Expansion) -> None:
    """Rounds after the zero point of the result is added."""
    if e.step.attribute("channels_last", 0):
        raise Refused("channels last has no kernel here")
    attributes = {k: v for k, v in e.step.node.attributes.items() if k != "channels_last"}
    x = _real(e, 0, _scalar(e, 1), 2)
    y = e.add("AveragePool", [x], output_shape(e.step), **attributes)
    over = e.binary("Div", y, e.literal(_scalar(e, 3)))
    zero = _scalar(e, 4, "zero point") if present(e.step, 4) else np.int64(0)
    _quantized(e, e.binary("Add", over, e.literal(zero.astype(F32))), 1, None)


@expand("MaxPool")
def max_pool_of_bytes(e: Expansion) -> None:
    """8-bit images are pooled as float32; others as they are."""
    dtype = dtype_of(e.step, 0)
    if dtype not in (I8, U8):
        e.steps.append(e.step)
        return
    wide = e.add("Cast", [e.input(0)], to=1)
    pooled = e.add("MaxPool", [wide], output_shape(e.step), **e.step.node.attributes)
    e.add("Cast", [pooled], dtype=dtype, output=e.output(), to=2 if dtype == U8 else 3)
