"""Operator cases: graphs with several copies of one node, and the same graphs without them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from .cases import Case, Part
from .graphs import GraphBuilder

FLOAT, UINT8, INT32, INT64, BOOL = (
    TensorProto.FLOAT,
    TensorProto.UINT8,
    TensorProto.INT32,
    TensorProto.INT64,
    TensorProto.BOOL,
)
Shape = tuple[int, ...]
Emit = Callable[[GraphBuilder, str], str]
"""Adds one copy of the operator, applied to a value; returns the output's name."""

CASES: list[Case] = []

PICTURE = (1, 64, 112, 112)
TOKENS = (1, 128, 384)
HIDDEN = (1, 128, 1536)


def sample(builder: GraphBuilder, value: str, shape: Shape, kind: int) -> None:
    """Make a few elements spread over `value` an output of the graph, so that copying results out costs nothing."""
    rank = len(shape)
    steps = [max(1, extent // 3) for extent in shape]
    ends = np.full(rank, np.iinfo(np.int64).max)
    constants = [np.zeros(rank, np.int64), ends, np.arange(rank), np.array(steps)]
    few = builder.node("Slice", value, *(builder.constant(c) for c in constants))
    builder.output(few, [-(-extent // step) for extent, step in zip(shape, steps, strict=True)], kind)


def values(name: str, shape: Shape, kind: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng([seed, *name.encode()])
    if kind == FLOAT:
        return rng.standard_normal(shape, np.float32)
    if kind == BOOL:
        return rng.random(shape) < 0.5
    return rng.integers(0, 127, shape).astype(helper.tensor_dtype_to_np_dtype(kind))


def parts(
    name: str, shape: Shape, out: Shape, emit: Emit, copies: int, shared: bool, kind: int, out_kind: int
) -> list[Part]:
    """The graph with `copies` nodes and the one with none. Both sample their inputs."""
    made = []
    for nodes in (copies, 0):
        builder = GraphBuilder(name)
        inputs = [builder.input(shape, kind) for _ in range(1 if shared else copies)]
        feeds = {value: values(value, shape, kind, number) for number, value in enumerate(inputs)}
        for value in inputs:
            sample(builder, value, shape, kind)
        for number in range(nodes):
            sample(builder, emit(builder, inputs[0 if shared else number]), out, out_kind)
        made.append(Part(builder.model().SerializeToString(), feeds))
    return made


def case(
    name: str,
    copies: int,
    shape: Shape,
    emit: Emit,
    out: Shape | None = None,
    *,
    shared: bool = False,
    kind: int = FLOAT,
    out_kind: int | None = None,
    tolerance: float = 1e-4,
) -> None:
    """Add a case. With `shared`, all copies read the same input (and differ in their weights)."""
    made = partial(parts, name, shape, out or shape, emit, copies, shared, kind, kind if out_kind is None else out_kind)
    CASES.append(Case(name, "operator", made, copies, tolerance))


def simple(operator: str, *constants: Any, **attributes: Any) -> Emit:
    """A node with the value as its first input and these constants after it."""
    return lambda b, x: b.node(operator, x, *(b.constant(c) for c in constants), **attributes)


def product(k: int, n: int) -> Emit:
    return lambda b, x: b.node("MatMul", x, b.constant(b.normal(k, n, scale=k**-0.5)))


def convolution(c_in: int, c_out: int, kernel: int, stride: int = 1, groups: int = 1) -> Emit:
    def emit(b: GraphBuilder, x: str) -> str:
        fan = c_in // groups * kernel * kernel
        weights = b.constant(b.normal(c_out, c_in // groups, kernel, kernel, scale=fan**-0.5))
        return b.node(
            "Conv", x, weights, b.constant(b.normal(c_out, scale=0.1)), group=groups, **window(kernel, stride)
        )

    return emit


def window(kernel: int, stride: int) -> dict[str, Any]:
    return {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [kernel // 2] * 4}


def integers(b: GraphBuilder, *shape: int) -> str:
    """8-bit weights small enough that no engine saturates between products."""
    return b.constant(b.rng.integers(-63, 64, shape).astype(np.int8))


def integer_product(k: int, n: int) -> Emit:
    def emit(b: GraphBuilder, x: str) -> str:
        return b.node("MatMulInteger", x, integers(b, k, n), b.constant(np.uint8(128)), b.constant(np.int8(0)))

    return emit


def product_by_nibbles(k: int, n: int) -> Emit:
    """Weights of 4 bits in blocks of 32, as language models have them."""

    def emit(b: GraphBuilder, x: str) -> str:
        weights = b.constant(b.rng.integers(0, 256, (n, k // 32, 16), np.uint8))
        scales = b.constant(np.abs(b.normal(n * k // 32, scale=0.1 * k**-0.5)))
        attributes = {"K": k, "N": n, "bits": 4, "block_size": 32}
        return b.node("MatMulNBits", x, weights, scales, domain="com.microsoft", **attributes)

    return emit


def product_by_bytes(k: int, n: int) -> Emit:
    """Weights of 8 bits that are made float32."""

    def emit(b: GraphBuilder, x: str) -> str:
        scales = b.constant(np.full(n, 0.01 * k**-0.5, np.float32))
        return b.node("MatMul", x, b.node("DequantizeLinear", integers(b, k, n), scales, axis=1))

    return emit


def quantized_convolution(c_in: int, c_out: int, kernel: int, groups: int = 1) -> Emit:
    def emit(b: GraphBuilder, x: str) -> str:
        weights = integers(b, c_out, c_in // groups, kernel, kernel)
        scales, zeros = b.constant(np.full(c_out, 0.01, np.float32)), b.constant(np.zeros(c_out, np.int8))
        bias = b.constant(b.rng.integers(-1000, 1000, c_out).astype(np.int32))
        x_scale, y_scale, zero = b.constant(np.float32(0.02)), b.constant(np.float32(0.5)), b.constant(np.uint8(128))
        inputs = (x, x_scale, zero, weights, scales, zeros, y_scale, zero, bias)
        return b.node("QLinearConv", *inputs, group=groups, **window(kernel, 1))

    return emit


def recurrent(operator: str, gates: int, size: int, hidden: int) -> Emit:
    def emit(b: GraphBuilder, x: str) -> str:
        w = b.constant(b.normal(1, gates * hidden, size, scale=size**-0.5))
        r = b.constant(b.normal(1, gates * hidden, hidden, scale=hidden**-0.5))
        bias = b.constant(b.normal(1, 2 * gates * hidden, scale=0.1))
        return b.node(operator, x, w, r, bias, hidden_size=hidden)

    return emit


def layer_norm(b: GraphBuilder, x: str) -> str:
    return b.node("LayerNormalization", x, b.constant(1 + b.normal(384, scale=0.1)), b.constant(b.normal(384)), axis=-1)


def batch_norm(b: GraphBuilder, x: str) -> str:
    parameters = [1 + b.normal(64, scale=0.1), b.normal(64), b.normal(64), 1 + np.abs(b.normal(64))]
    return b.node("BatchNormalization", x, *(b.constant(p.astype(np.float32)) for p in parameters))


for n, copies in ((128, 16), (256, 8), (512, 4), (1024, 2)):
    case(f"MatMul {n}x{n}x{n}", copies, (n, n), product(n, n), shared=True)
for m, k, n in ((128, 384, 384), (128, 384, 1536), (128, 1536, 384)):
    case(f"MatMul {m}x{k}x{n}", 4, (m, k), product(k, n), (m, n), shared=True)
for n, copies in ((128, 8), (512, 2)):
    case(f"MatMul dynamic {n}x{n}x{n}", copies, (n, n), lambda b, x: b.node("MatMul", x, x))
case(
    "MatMul dynamic 12x128x64x128", 4, (12, 128, 64),
    lambda b, x: b.node("MatMul", x, b.node("Transpose", x, perm=[0, 2, 1])),
    (12, 128, 128),
)  # fmt: skip
case("GEMV 1x1024x1024", 8, (1, 1024), product(1024, 1024), shared=True)

for c_in, c_out, size in ((256, 256, 28), (64, 256, 56), (32, 192, 28), (576, 96, 14)):
    name = f"Conv 1x1 {c_in}-{c_out} {size}x{size}"
    case(name, 4, (1, c_in, size, size), convolution(c_in, c_out, 1), (1, c_out, size, size), shared=True)
for channels, size in ((64, 56), (128, 28), (256, 14), (512, 7)):
    name = f"Conv 3x3 {channels}-{channels} {size}x{size}"
    case(name, 4, (1, channels, size, size), convolution(channels, channels, 3), shared=True)
case("Conv 3x3 s2 3-32 224x224", 4, (1, 3, 224, 224), convolution(3, 32, 3, 2), (1, 32, 112, 112), shared=True)
case("Conv 7x7 s2 3-64 224x224", 4, (1, 3, 224, 224), convolution(3, 64, 7, 2), PICTURE, shared=True)
for channels, size, kernel, stride in ((96, 56, 3, 1), (96, 112, 3, 2), (384, 14, 3, 1), (144, 28, 5, 1)):
    out = (1, channels, size // stride, size // stride)
    name = f"Conv depthwise {kernel}x{kernel}{' s2' if stride == 2 else ''} {channels} {size}x{size}"
    case(
        name, 4, (1, channels, size, size), convolution(channels, channels, kernel, stride, channels), out, shared=True
    )  # fmt: skip

for m, k, n in ((256, 256, 256), (512, 512, 512), (128, 384, 1536)):
    case(
        f"MatMulInteger {m}x{k}x{n}", 4, (m, k), integer_product(k, n), (m, n), shared=True, kind=UINT8, out_kind=INT32
    )  # fmt: skip
for m in (1, 128):
    case(f"MatMulNBits 4 bits {m}x1024x1024", 4, (m, 1024), product_by_nibbles(1024, 1024), shared=True)
    # onnxruntime rounds the left matrix to 8 bits too, where it runs natively.
    name = f"MatMul by int8 weights {m}x1024x1024"
    case(name, 4, (m, 1024), product_by_bytes(1024, 1024), shared=True, tolerance=0.02)
for name, channels, size, kernel, groups in (
    ("1x1", 256, 28, 1, 1),
    ("3x3", 64, 56, 3, 1),
    ("depthwise 3x3", 96, 56, 3, 96),
):
    emit = quantized_convolution(channels, channels, kernel, groups)
    shape = (1, channels, size, size)
    # A sum that lies on a half may be rounded either way: one step of 255.
    case(f"QLinearConv {name} {channels} {size}x{size}", 4, shape, emit, shared=True, kind=UINT8, tolerance=0.005)

case("LayerNormalization 128x384", 16, TOKENS, layer_norm, shared=True)
case("Softmax 12x128x128", 8, (12, 128, 128), simple("Softmax", axis=-1))
for operator in ("Gelu", "Erf", "Tanh", "Exp", "Sigmoid"):
    case(f"{operator} 128x1536", 8, HIDDEN, simple(operator))
case("Relu 64x112x112", 4, PICTURE, simple("Relu"))
case("Clip 64x112x112", 4, PICTURE, simple("Clip", np.float32(-1), np.float32(6)))
case("Add 64x112x112", 4, PICTURE, lambda b, x: b.node("Add", x, b.constant(b.normal(*PICTURE))), shared=True)
case("Add last axis 128x1536", 8, HIDDEN, lambda b, x: b.node("Add", x, b.constant(b.normal(1536))), shared=True)
case(
    "Mul channel 64x112x112", 4, PICTURE, lambda b, x: b.node("Mul", x, b.constant(b.normal(1, 64, 1, 1))), shared=True
)
case("BatchNormalization 64x112x112", 4, PICTURE, batch_norm, shared=True)
case("ReduceMean last axis 1536x384", 8, (1, 128, 12, 384), simple("ReduceMean", np.array([-1])), (1, 128, 12, 1))
case("ReduceMean planes 64x112x112", 4, PICTURE, simple("ReduceMean", np.array([2, 3])), (1, 64, 1, 1))
case("GlobalAveragePool 64x112x112", 4, PICTURE, simple("GlobalAveragePool"), (1, 64, 1, 1))
case("MaxPool 3x3 s2 64x112x112", 4, PICTURE, simple("MaxPool", **window(3, 2)), (1, 64, 56, 56))
case("Transpose 0213 128x12x128", 8, (1, 128, 12, 128), simple("Transpose", perm=[0, 2, 1, 3]), (1, 12, 128, 128))
case("Transpose 0231 64x112x112", 4, PICTURE, simple("Transpose", perm=[0, 2, 3, 1]), (1, 112, 112, 64))
case("Transpose 1024x1024", 4, (1024, 1024), simple("Transpose", perm=[1, 0]))
case("Concat channels 64x112x112", 4, PICTURE, lambda b, x: b.node("Concat", x, x, axis=1), (1, 128, 112, 112))
case(
    "Gather rows 128 of 2000x384", 8, (1, 128),
    lambda b, x: b.node("Gather", b.constant(b.normal(2000, 384)), x),
    TOKENS, shared=True, kind=INT64, out_kind=FLOAT,
)  # fmt: skip
case(
    "Where 12x128x128", 8, (12, 128, 128),
    lambda b, x: b.node("Where", x, b.constant(b.normal(12, 128, 128)), b.constant(np.float32(-1e9))),
    shared=True, kind=BOOL, out_kind=FLOAT,
)  # fmt: skip


def upscale(**attributes: Any) -> Emit:
    sizes = np.array([1, 1, 2, 2], np.float32)
    return lambda b, x: b.node("Resize", x, "", b.constant(sizes), **attributes)


NEAREST = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
case("Resize linear 2x 64x56x56", 4, (1, 64, 56, 56), upscale(mode="linear"), PICTURE)
case("Resize nearest 2x 64x56x56", 4, (1, 64, 56, 56), upscale(**NEAREST), PICTURE)
case("LSTM 128 steps 256-256", 2, (128, 1, 256), recurrent("LSTM", 4, 256, 256), (128, 1, 1, 256), shared=True)
case("GRU 128 steps 256-256", 2, (128, 1, 256), recurrent("GRU", 3, 256, 256), (128, 1, 1, 256), shared=True)


def chain(length: int) -> list[Part]:
    """Nodes on 16 numbers, one after the other."""
    builder = GraphBuilder("chain")
    value = start = builder.input((1, 16))
    row = builder.constant(np.full((1, 16), 0.5, np.float32))
    for number in range(length):
        operator = ("Add", "Relu", "Mul", "Neg")[number % 4]
        value = builder.node(operator, value, *([row] if operator in ("Add", "Mul") else []))
    builder.output(value, (1, 16))
    return [Part(builder.model().SerializeToString(), {start: np.linspace(-1, 1, 16, dtype=np.float32)[None]})]


CASES.append(Case("one tiny node", "overhead", partial(chain, 1)))
CASES.append(Case("200 tiny nodes", "overhead", partial(chain, 200)))
