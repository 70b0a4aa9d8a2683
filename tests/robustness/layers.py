"""Layers of random graphs: quantised products, attention, recurrent layers, operators of com.microsoft, strings."""

from __future__ import annotations

import math

import numpy as np
from onnx import TensorProto

from onnxlet.model.dtypes import dtype_of, narrow

from .graphs import F32, INTEGERS, STRING, Builder, Unfit
from .templates import I8, MICROSOFT, U8, layer_norm, template
from .windows import image

# Quantised -----------------------------------------------------------------------------------------------------------


def quantised(b: Builder, x: str, dtype: np.dtype, scale: float = 0.05) -> tuple[str, str, str]:
    s = b.constant(scale, F32)
    zero = b.constant(b.rng.choice((0, 0, 3) if dtype != U8 else (128, 0, 120)), dtype)
    return b.add("QuantizeLinear", [x, s, zero]), s, zero


@template(4)
def round_trip(b: Builder) -> str:
    x = b.floats(1, 4)
    kinds = [I8, U8, U8]
    if b.opset >= 21:
        kinds += [dtype_of(n) for n in (TensorProto.INT4, TensorProto.UINT4, 17, 19)]
        kinds += [np.dtype(np.int16), np.dtype(np.uint16)]
    dtype = b.rng.choice(kinds)
    a = b.values[x]
    if b.opset >= 13 and b.chance(0.4):
        axis = b.rng.randrange(a.ndim)
        s = b.constant(b.array(F32, (a.shape[axis],), 0.02, 0.2))
        z = b.constant(_zeros(dtype, (a.shape[axis],)))
        q = b.add("QuantizeLinear", [x, s, z], axis=axis)
        return b.add("DequantizeLinear", [q, s, z], axis=axis)
    if dtype in (I8, U8):
        q, s, z = quantised(b, x, dtype)
    else:
        s, z = b.constant(0.3, F32), b.constant(_zeros(dtype, ()))
        q = b.add("QuantizeLinear", [x, s, z])
    if b.chance(0.3) and a.ndim > 1:
        q = b.add("Transpose", [q])
    return b.add("DequantizeLinear", [q, s, z])


def _zeros(dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    zeros = np.zeros(shape, np.float32)
    return zeros.astype(dtype) if dtype in INTEGERS else narrow(zeros, dtype)


@template(4)
def quantised_product(b: Builder) -> str:
    """Products between Quantize and Dequantize, as quantisers write them."""
    x = b.floats(2, 3) if b.chance(0.5) else image(b)
    a = b.values[x]
    convolution = a.ndim > 2 and a.shape[1] > 0 and min(a.shape[2:]) > 2 and b.chance(0.7)
    kind = b.rng.choice((I8, U8))
    q, s, z = quantised(b, x, kind)
    columns = b.rng.choice((1, 4, 8, 17))
    shape = (columns, a.shape[1], *[3] * (a.ndim - 2)) if convolution else (a.shape[-1], columns)
    w = b.constant(b.array(I8, shape, -20, 20))
    per_channel = b.opset >= 13 and b.chance(0.5)
    ws = b.constant(b.array(F32, (columns,) if per_channel else (), 0.005, 0.02))
    wz = b.constant(np.zeros((columns,) if per_channel else (), np.int8))
    axis = {"axis": 0 if convolution else 1} if b.opset >= 13 else {}
    way = b.rng.randrange(3)
    if way == 0:
        left = b.add("DequantizeLinear", [q, s, z])
        right = b.add("DequantizeLinear", [w, ws, wz], **axis)
        y = b.add("Conv" if convolution else "MatMul", [left, right])
        if b.chance(0.4):
            y = b.add("Relu", [y])
        q2, s2, z2 = quantised(b, y, kind, 0.1)
        return b.add("DequantizeLinear", [q2, s2, z2])
    if way == 1:
        ys, yz = b.constant(0.1, F32), b.constant(3, kind)
        operator = "QLinearConv" if convolution else "QLinearMatMul"
        if not convolution and per_channel:
            raise Unfit
        return b.add("DequantizeLinear", [b.add(operator, [q, s, z, w, ws, wz, ys, yz]), ys, yz])
    wz = b.constant(0, I8)
    y = b.add("ConvInteger" if convolution else "MatMulInteger", [q, w, z, wz])
    return b.add("Mul", [b.add("Cast", [y], to=TensorProto.FLOAT), b.constant(0.001, F32)])


@template()
def dynamic_quantised(b: Builder) -> str:
    x = b.floats(2, 3)
    q, s, z = b.add_all("DynamicQuantizeLinear", [x], 3)
    w = b.constant(b.array(I8, (b.values[x].shape[-1], b.rng.choice((1, 8, 17))), -20, 20))
    y = b.add("Cast", [b.add("MatMulInteger", [q, w, z])], to=TensorProto.FLOAT)
    return b.add("Mul", [y, b.add("Mul", [s, b.constant(0.01, F32)])])


# Layers --------------------------------------------------------------------------------------------------------------


@template(3)
def attention(b: Builder) -> str:
    """Self-attention in the nodes that exporters write."""
    heads, size = b.rng.choice((1, 2, 4)), b.rng.choice((2, 4, 8))
    width = heads * size
    x = b.pick(lambda v: v.dtype == F32 and v.ndim == 3 and v.shape[-1] == width and v.size > 0,
               lambda: b.fresh(F32, (b.rng.choice((1, 2)), b.rng.choice((1, 3, 5)), width)))  # fmt: skip
    batch, length, _ = b.values[x].shape

    def head(perm: list[int]) -> str:
        y = b.add("MatMul", [x, b.fresh(F32, (width, width), -0.5, 0.5)])
        if b.chance(0.7):
            y = b.add("Add", [y, b.fresh(F32, (width,))])
        shape = [0, 0, heads, size] if b.chance(0.5) else [batch, length, heads, size]
        return b.add("Transpose", [b.add("Reshape", [y, b.constant(shape)])], perm=perm)

    q, k, v = head([0, 2, 1, 3]), head([0, 2, 3, 1]), head([0, 2, 1, 3])
    scores = b.add("MatMul", [q, k])
    if b.chance(0.5):
        scores = b.add("Div", [scores, b.constant(math.sqrt(size), F32)])
    else:
        scores = b.add("Mul", [scores, b.constant(1 / math.sqrt(size), F32)])
    if b.chance(0.4):
        scores = b.add("Add", [scores, b.fresh(F32, b.rng.choice([(length, length), (batch, 1, 1, length)]))])
    y = b.add("MatMul", [b.add("Softmax", [scores], axis=-1 if b.opset >= 11 else 3), v])
    y = b.add("Reshape", [b.add("Transpose", [y], perm=[0, 2, 1, 3]), b.constant([0, 0, width])])
    y = b.add("MatMul", [y, b.fresh(F32, (width, width), -0.5, 0.5)])
    if b.chance(0.6):
        y = layer_norm(b, b.add("Add", [x, y]))
    return y


@template(2)
def recurrent(b: Builder) -> str:
    operator = b.rng.choice(["RNN", "GRU", "LSTM"])
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[operator]
    x = b.pick(lambda v: v.dtype == F32 and v.ndim == 3 and v.size > 0, lambda: b.fresh(F32, (3, 2, 4)))
    length, batch, width = b.values[x].shape
    direction = b.rng.choice(["forward", "reverse", "bidirectional"])
    d, hidden = 1 + (direction == "bidirectional"), b.rng.choice((1, 3, 8))
    w = b.fresh(F32, (d, gates * hidden, width), -0.5, 0.5)
    r = b.fresh(F32, (d, gates * hidden, hidden), -0.5, 0.5)
    inputs = [x, w, r, b.fresh(F32, (d, 2 * gates * hidden)) if b.chance(0.5) else ""]
    if b.chance(0.3):
        inputs.append(b.setting(b.numbers.integers(1, length + 1, batch), np.int32))
        inputs += [b.fresh(F32, (d, batch, hidden))] if b.chance(0.5) else []
    attributes = {"linear_before_reset": 1} if operator == "GRU" and b.chance(0.5) else {}
    return b.add(operator, inputs, outputs=b.rng.choice((1, 2)), hidden_size=hidden, direction=direction, **attributes)


@template(3)
def microsoft(b: Builder) -> str:
    """Operators that onnxruntime's optimiser writes."""
    x = b.floats(2, 3, (F32,))
    a = b.values[x]
    if a.dtype != F32 or not a.size:
        raise Unfit
    last = a.shape[-1:]
    kind = b.rng.randrange(7)
    if kind == 0:
        return b.add("BiasGelu", [x, b.fresh(F32, last)], domain=MICROSOFT)
    if kind == 1:
        return b.add("FastGelu", [x, *([b.fresh(F32, last)] if b.chance(0.5) else [])], domain=MICROSOFT)
    if kind == 2:
        return b.add("QuickGelu", [x], domain=MICROSOFT, alpha=b.rng.choice((1.0, 1.702)))
    if kind == 3 and a.ndim == 3:
        given = [b.fresh(F32, a.shape), b.fresh(F32, last), b.fresh(F32, last)]
        return b.add("SkipLayerNormalization", [x, *given], domain=MICROSOFT)
    if kind == 4:
        w = b.fresh(F32, (a.shape[-1], 5), -0.5, 0.5)
        return b.add("FusedMatMul", [x, w], domain=MICROSOFT, alpha=0.5)
    if kind == 5 and a.ndim == 3:
        given = [b.fresh(F32, a.shape), b.fresh(F32, last)]
        return b.add("SkipSimplifiedLayerNormalization", [x, *given], domain=MICROSOFT)
    return b.add("Gelu", [x], domain=MICROSOFT)


@template()
def in_words(b: Builder) -> str:
    """Strings."""
    x = b.pick(lambda v: v.dtype == STRING, lambda: b.fresh(STRING, (3,)))
    kind = b.rng.randrange(4)
    if kind == 0:
        return b.add("Equal", [x, b.partner(x)])
    if kind == 1:
        return b.add("StringConcat", [x, b.partner(x)])
    if kind == 2:
        return b.add("Gather", [b.add("Identity", [x]), b.constant([0])], axis=0)
    return b.add("StringNormalizer", [x], case_change_action="UPPER")


@template(2)
def narrow_weights(b: Builder) -> str:
    """A product with weights of 4 bits, in blocks or columns."""
    if b.opset < 21:
        raise Unfit
    x = b.floats(2, 3, (F32,))
    depth, columns = b.values[x].shape[-1], b.rng.choice((1, 4, 9))
    if b.values[x].dtype != F32 or not depth:
        raise Unfit
    kind = b.rng.choice((TensorProto.INT4, TensorProto.UINT4))
    numbers = b.numbers.integers(0, 8, (depth, columns)) - (4 if kind == TensorProto.INT4 else 0)
    w = b.constant(narrow(numbers, dtype_of(kind)))
    block = b.rng.choice((2, 4)) if depth % 4 == 0 else 0
    s = b.constant(b.array(F32, (depth // block, columns) if block else (columns,), 0.02, 0.2))
    y = b.add("DequantizeLinear", [w, s], axis=0 if block else 1, **({"block_size": block} if block else {}))
    return b.add("MatMul", [x, y])
