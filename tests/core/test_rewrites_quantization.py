"""Rewrites of quantised models: what optimised models give is within a step of what the originals give."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import onnxlet
from onnxlet import rewrites
from onnxlet.model.loader import load_model

from .models import FLOAT, model, node

RNG = np.random.default_rng(71)
MIDDLE = np.uint8(120)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def integers(dtype: Any, *shape: int) -> np.ndarray:
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max + 1, shape).astype(dtype)


class Builder:
    """Nodes and constants of a model under construction."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, np.ndarray] = {}

    def constant(self, value: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(value)
        return name

    def add(self, operator: str, *inputs: Any, output: str = "", **attributes: Any) -> str:
        """A node; what is no name among the inputs is a constant."""
        names = [i if isinstance(i, str) else self.constant(i) for i in inputs]
        name = output or f"v{len(self.nodes)}"
        self.nodes.append(node(operator, names, [name], **attributes))
        return name

    def rounded(self, x: str, scale: float = 0.05, zero: Any = MIDDLE, output: str = "") -> str:
        """`x` quantised and dequantised."""
        q = self.add("QuantizeLinear", x, np.float32(scale), zero)
        return self.add("DequantizeLinear", q, np.float32(scale), zero, output=output)

    def weights(self, dtype: Any, *shape: int, axis: int | None = None, scale: float = 0.01) -> str:
        """Dequantised integers, per element of `axis`."""
        count = () if axis is None else (shape[axis],)
        scales = np.asarray(RNG.uniform(0.5, 1.5, count) * scale, np.float32)
        zero = np.zeros(count, dtype) if dtype == np.int8 else np.asarray(RNG.integers(100, 140, count), dtype)
        return self.add("DequantizeLinear", integers(dtype, *shape), scales, zero, axis=0 if axis is None else axis)

    def model(self, *dims: Any, rank: int | None = None) -> onnx.ModelProto:
        """The model of float32 input `x` and output `y`, of the same rank unless it is given."""
        outputs = [("y", FLOAT, [None] * (len(dims) if rank is None else rank))]
        return model(self.nodes, [("x", FLOAT, list(dims))], outputs, self.constants)


def operators(made: onnx.ModelProto, **options: Any) -> list[str]:
    optimized = rewrites.optimize(load_model(made).graph, onnxlet.SessionOptions(**options))
    return [n.op_type for n in optimized.nodes]


def agree(made: onnx.ModelProto, step: float, **feeds: np.ndarray) -> None:
    """Run with all rewrites and with none: the same but for a step here and there."""
    plain = onnxlet.SessionOptions(graph_optimization_level=onnxlet.GraphOptimizationLevel.ORT_DISABLE_ALL)
    expected = onnxlet.InferenceSession(made, plain).run(None, feeds)
    given = onnxlet.InferenceSession(made).run(None, feeds)
    for a, b in zip(given, expected, strict=True):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        difference = np.abs(a.astype(np.float64) - b.astype(np.float64))
        assert difference.max(initial=0) <= step * 1.01
        assert (difference > step / 2).mean() < 0.02
    assert np.ptp(expected[0]) > 10 * step


@pytest.mark.parametrize("axis", [None, 0])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8], ids=["int8", "uint8"])
@pytest.mark.parametrize("bias", ["none", "float", "integer"])
@pytest.mark.parametrize("activation", ["", "Relu", "Clip"])
def test_convolutions(axis, dtype, bias, activation):
    b = Builder()
    w = b.weights(dtype, 6, 4, 3, 3, axis=axis)
    inputs = [b.rounded("x"), w]
    if bias == "float":
        inputs.append(b.constant(normal(6)))
    elif bias == "integer":
        scale = b.constants[b.nodes[0].input[1]] * np.float32(0.05)
        inputs.append(b.add("DequantizeLinear", integers(np.int16, 6).astype(np.int32), scale, axis=0))
    y = b.add("Conv", *inputs, pads=[1, 1, 1, 1], strides=[2, 2])
    if activation == "Relu":
        y = b.add("Relu", y)
    elif activation == "Clip":
        y = b.add("Clip", y, np.float32(-1), np.float32(6))
    b.rounded(y, 0.05, np.uint8(0 if activation == "Relu" else 100), output="y")
    made = b.model("n", 4, 9, 8)
    assert operators(made) == [
        "QuantizeLinear", "QLinearConv", *(["Clip"] if activation == "Clip" else []), "DequantizeLinear"
    ]  # fmt: skip
    agree(made, 0.05, x=normal(2, 4, 9, 8) * 3)


def test_an_activation_that_rounding_does_not_imply_stays():
    b = Builder()
    y = b.add("Relu", b.add("Conv", b.rounded("x"), b.weights(np.int8, 6, 4, 3, 3)))
    b.rounded(y, 0.05, np.int8(0), output="y")
    made = b.model(1, 4, 9, 8)
    assert operators(made) == ["QuantizeLinear", "QLinearConv", "Clip", "DequantizeLinear"]
    agree(made, 0.05, x=normal(1, 4, 9, 8))


def test_a_bias_that_would_overflow_is_left_alone():
    b = Builder()
    b.rounded(b.add("Conv", b.rounded("x"), b.weights(np.int8, 6, 4, 3, 3, scale=1e-9), normal(6)), output="y")
    made = b.model(1, 4, 9, 8)
    assert "QLinearConv" not in operators(made)


def test_a_value_that_is_read_elsewhere_stays_a_number():
    b = Builder()
    y = b.add("Conv", b.rounded("x"), b.weights(np.int8, 4, 4, 1, 1))
    b.add("Add", b.rounded(y), y, output="y")
    made = b.model(1, 4, 9, 8)
    assert "QLinearConv" not in operators(made)
    agree(made, 0.05, x=normal(1, 4, 9, 8))


@pytest.mark.parametrize("axis", [None, 1])
@pytest.mark.parametrize("quantizes", [False, True])
def test_products(axis, quantizes):
    b = Builder()
    y = b.add("MatMul", b.rounded("x"), b.weights(np.int8, 20, 7, axis=axis), output="" if quantizes else "y")
    if quantizes:
        b.rounded(y, 0.02, output="y")
    made = b.model("n", 5, 20)
    middle = ["QLinearMatMul", "DequantizeLinear"] if quantizes else ["MatMulIntegerToFloat"]
    assert operators(made) == ["QuantizeLinear", *middle]
    agree(made, 0.02 if quantizes else 1e-5, x=normal(3, 5, 20))


def test_products_of_computed_matrices():
    b = Builder()
    right = b.add("Transpose", b.rounded("x", 0.03, np.int8(3)), perm=[0, 2, 1])
    b.rounded(b.add("MatMul", b.rounded("x"), right), 0.3, output="y")
    made = b.model(2, 5, 20)
    assert operators(made).count("QLinearMatMul") == 1
    agree(made, 0.3, x=normal(2, 5, 20))


@pytest.mark.parametrize("transposed", [0, 1])
@pytest.mark.parametrize("quantizes", [False, True])
@pytest.mark.parametrize("per_column", [False, True])
def test_gemm(transposed, quantizes, per_column):
    b = Builder()
    axis = 1 - transposed if per_column else None
    w = b.weights(np.int8, *((7, 20) if transposed else (20, 7)), axis=axis)
    y = b.add("Gemm", b.rounded("x"), w, normal(7), transB=transposed, output="" if quantizes else "y")
    if quantizes:
        b.rounded(y, 0.02, output="y")
    made = b.model("n", 20)
    assert operators(made) == ["QuantizeLinear", "QGemm", *(["DequantizeLinear"] if quantizes else [])]
    # A float32 bias is rounded to the units of the products, which are smaller than a step.
    agree(made, 0.02 if quantizes else 0.05 * 0.015, x=normal(3, 20))


def test_bytes_are_moved_instead_of_numbers():
    b = Builder()
    y = b.add("MaxPool", b.rounded("x"), kernel_shape=[2, 2], strides=[2, 2])
    y = b.add("Transpose", b.rounded(y), perm=[0, 2, 3, 1])
    y = b.add("Reshape", y, np.array([2, -1], np.int64))
    b.rounded(y, output="y")
    made = b.model(2, 3, 8, 6, rank=2)
    assert operators(made) == ["QuantizeLinear", "MaxPool", "Transpose", "Reshape", "DequantizeLinear"]
    agree(made, 0, x=normal(2, 3, 8, 6))


def test_equally_scaled_parts_are_joined_as_bytes():
    b = Builder()
    one, other = b.rounded("x"), b.rounded(b.add("Neg", "x"))
    b.rounded(b.add("Concat", one, other, axis=1), output="y")
    made = b.model(2, 3, 4)
    assert operators(made).count("DequantizeLinear") == 1
    agree(made, 0, x=normal(2, 3, 4))
    b = Builder()
    one, other = b.rounded("x"), b.rounded(b.add("Neg", "x"), 0.06)
    b.rounded(b.add("Concat", one, other, axis=1), output="y")
    agree(b.model(2, 3, 4), 0, x=normal(2, 3, 4))


def test_rounding_to_another_scale_stays():
    b = Builder()
    b.rounded(b.rounded("x", 0.05), 0.3, output="y")
    made = b.model(2, 3)
    assert operators(made) == ["QuantizeLinear", "DequantizeLinear"] * 2
    agree(made, 0, x=normal(2, 3) * 3)


@pytest.mark.parametrize("per_column", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_dynamically_quantised_products(per_column, bias):
    nodes = [
        node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        node("MatMulInteger", ["q", "w", "z", "wz"], ["p"]),
        node("Cast", ["p"], ["f"], to=FLOAT),
        node("Mul", ["s", "ws"], ["t"]),
        node("Mul", ["f", "t"], ["m" if bias else "y"]),
        *([node("Add", ["b", "m"], ["y"])] if bias else []),
    ]
    count = (9,) if per_column else (1,)
    constants = {
        "w": integers(np.int8, 20, 9), "wz": integers(np.int8, *count) // 4, "b": normal(9),
        "ws": RNG.uniform(0.01, 0.02, count).astype(np.float32),
    }  # fmt: skip
    made = model(nodes, [("x", FLOAT, ["n", 4, 20])], [("y", FLOAT, [None, None, None])], constants)
    assert operators(made) == ["DynamicQuantizeLinear", "MatMulIntegerToFloat"]
    agree(made, 1e-4, x=normal(2, 4, 20))


def test_rewrites_can_be_switched_off():
    b = Builder()
    b.rounded(b.add("Conv", b.rounded("x"), b.weights(np.int8, 6, 4, 3, 3)), output="y")
    made = b.model(1, 4, 9, 8)
    assert "QLinearConv" not in operators(made, disabled_rewrites=frozenset({"fuse_quantized"}))
    level = onnxlet.GraphOptimizationLevel.ORT_ENABLE_BASIC
    assert "QLinearConv" not in operators(made, graph_optimization_level=level)


@pytest.mark.parametrize("form", ["per row", "per column", "cast", "cast per column"])
def test_rows_of_a_table_are_gathered_as_bytes(form):
    b = Builder()
    table = integers(np.int8, 30, 8)
    if form.startswith("cast"):
        shape = (1, 8) if form.endswith("column") else (30, 1)
        numbers = b.add("Cast", table, to=FLOAT)
        numbers = b.add("Mul", numbers, RNG.uniform(0.01, 0.02, shape).astype(np.float32))
    else:
        axis = 0 if form == "per row" else 1
        numbers = b.add(
            "DequantizeLinear", table, RNG.uniform(0.01, 0.02, table.shape[axis]).astype(np.float32), axis=axis
        )
    ids = b.add("Cast", b.add("Abs", "x"), to=onnx.TensorProto.INT64)
    b.add("Gather", numbers, ids, output="y")
    made = b.model(2, 5, rank=3)
    optimized = rewrites.optimize(load_model(made).graph, onnxlet.SessionOptions())
    gathered = [n.inputs[0] for n in optimized.nodes if n.op_type == "Gather"]
    assert optimized.initializers[gathered[0]].dtype == np.int8
    agree(made, 1e-7, x=RNG.uniform(-29, 29, (2, 5)).astype(np.float32))


def test_products_by_many_bytes_keep_them_and_what_follows():
    b = Builder()
    numbers = b.add("DequantizeLinear", integers(np.int8, 256, 260), np.float32(0.01))
    product = b.add("MatMul", "x", numbers)
    b.add("Relu", b.add("Add", product, normal(260)), output="y")
    made = b.model(3, 256)
    assert operators(made) == ["DequantizeLinear", "FusedMatMul"]
    agree(made, 1e-4, x=normal(3, 256))


@pytest.mark.parametrize("per_column", [False, True])
def test_transposed_weights_lie_transposed(per_column):
    b = Builder()
    w = b.add("Transpose", b.weights(np.int8, 7, 20, axis=0 if per_column else None), perm=[1, 0])
    b.rounded(b.add("MatMul", b.rounded("x"), w), 0.02, output="y")
    made = b.model("n", 5, 20)
    assert operators(made) == ["QuantizeLinear", "QLinearMatMul", "DequantizeLinear"]
    agree(made, 0.02, x=normal(3, 5, 20))


@pytest.mark.parametrize("per_channel", [False, True])
def test_weights_that_are_quantised_in_the_graph(per_channel):
    b = Builder()
    scale = RNG.uniform(0.01, 0.02, 6 if per_channel else ()).astype(np.float32)
    zero = np.zeros(scale.shape, np.int8)
    q = b.add("QuantizeLinear", normal(6, 4, 3, 3), scale, zero, axis=0)
    w = b.add("DequantizeLinear", q, scale, zero, axis=0)
    b.rounded(b.add("Conv", b.rounded("x"), w), output="y")
    made = b.model("n", 4, 9, 8)
    assert operators(made) == ["QuantizeLinear", "QLinearConv", "DequantizeLinear"]
    agree(made, 0.05, x=normal(2, 4, 9, 8))


@pytest.mark.parametrize("quantised_bias", [False, True])
def test_a_bias_goes_into_a_product_that_stays_a_number(quantised_bias):
    b = Builder()
    product = b.add("MatMul", b.rounded("x"), b.weights(np.int8, 20, 7))
    bias = b.constant(normal(7))
    if quantised_bias:
        bias = b.add("DequantizeLinear", integers(np.int16, 7).astype(np.int32), np.float32(1e-4))
    b.add("Add", bias, product, output="y")
    made = b.model("n", 5, 20)
    assert operators(made) == ["QuantizeLinear", "MatMulIntegerToFloat"]
    agree(made, 1e-4, x=normal(3, 5, 20))
