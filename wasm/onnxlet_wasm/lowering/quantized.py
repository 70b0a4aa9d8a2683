"""Operators on quantised tensors, written out: dequantise, compute, quantise."""

from __future__ import annotations

from math import prod

import numpy as np

from .common import F32, I8, U8, dtype_of, need_constant, output_dtype, output_shape, present, shape_of
from .expansion import Expansion, expand
from .registry import Refused

MICROSOFT = "com.microsoft"


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
