"""Arithmetic with shapes of which some dimensions are known: what becomes constant, and what must not."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import onnxlet
from onnxlet import rewrites
from onnxlet.model.loader import load_model

from .models import FLOAT, INT64, model, node
from .test_rewrites import agree, normal, operators


def part(source: str, index: int, result: str) -> list[onnx.NodeProto]:
    """One dimension of a value as torch's older exporter takes it: Shape, Gather, Unsqueeze."""
    return [
        node("Shape", [source], [f"{result}_s"]), node("Gather", [f"{result}_s", f"{result}_i"], [f"{result}_d"]),
        node("Unsqueeze", [f"{result}_d", "zero"], [result]),
    ]  # fmt: skip


def parts(*indices: int) -> dict[str, np.ndarray]:
    return {f"d{k}_i": np.array(i) for k, i in enumerate(indices)} | {"zero": np.array([0])}


def target_of(made: onnx.ModelProto) -> list[int] | None:
    graph = rewrites.optimize(load_model(made).graph, onnxlet.SessionOptions()).nodes, made
    reshape = next(n for n in graph[0] if n.op_type == "Reshape")
    tensor = rewrites.optimize(load_model(made).graph, onnxlet.SessionOptions()).initializers.get(reshape.inputs[1])
    return None if tensor is None else tensor.numpy().tolist()


def test_dimensions_that_stay_are_copied():
    made = model(
        [*part("x", 0, "d0"), *part("x", 1, "d1"), node("Concat", ["d0", "d1", "h", "s"], ["t"], axis=0),
         node("Reshape", ["x", "t"], ["y"])],
        [("x", FLOAT, ["n", "m", 12])], [("y", FLOAT, ["n", "m", 3, 4])],
        {**parts(0, 1), "h": np.array([3]), "s": np.array([4])},
    )  # fmt: skip
    assert operators(made) == ["Reshape"]
    assert target_of(made) == [0, 0, 3, 4]
    for shape in ((2, 5, 12), (0, 5, 12), (1, 1, 12)):
        agree(made, x=normal(*shape))


def test_a_known_dimension_stays_a_scalar():
    made = model(
        [node("Shape", ["x"], ["s"]), node("Gather", ["s", "one"], ["y"], axis=0)],
        [("x", FLOAT, ["n", 5])], [("y", INT64, [])], {"one": np.array(1)},
    )  # fmt: skip
    assert operators(made) == []
    for shape in ((2, 5), (0, 5)):
        agree(made, x=normal(*shape))


def test_dimensions_that_move_are_not():
    made = model(
        [*part("x", 1, "d0"), *part("x", 0, "d1"), node("Concat", ["d0", "d1", "h"], ["t"], axis=0),
         node("Reshape", ["x", "t"], ["y"])],
        [("x", FLOAT, ["n", "m", 12])], [("y", FLOAT, ["m", "n", 12])], {**parts(1, 0), "h": np.array([12])},
    )  # fmt: skip
    assert target_of(made) is None
    agree(made, x=normal(2, 5, 12))


def test_zeros_and_computed_numbers_stay():
    made = model(
        [*part("x", 0, "d0"), node("Concat", ["d0", "h"], ["t"], axis=0), node("Reshape", ["x", "t"], ["y"])],
        [("x", FLOAT, ["n", 4])], [("y", FLOAT, ["n", None])], {**parts(0), "h": np.array([-1])},
    )  # fmt: skip
    assert target_of(made) is None
    agree(made, x=normal(3, 4))


@pytest.mark.parametrize("opset", [13, 21])
def test_numbers_made_of_known_dimensions(opset: int):
    """The scale of attention, from the size of a head."""
    made = model(
        [node("Shape", ["x"], ["s"]), node("Slice", ["s", "last", "end"], ["d"]), node("Cast", ["d"], ["f"], to=FLOAT),
         node("Sqrt", ["f"], ["r"]), node("Div", ["x", "r"], ["y"])],
        [("x", FLOAT, ["n", 16])], [("y", FLOAT, ["n", 16])],
        {"last": np.array([-1]), "end": np.array([2**63 - 1])}, opset=opset,
    )  # fmt: skip
    assert operators(made) == ["Mul"]  # by 1/4
    agree(made, x=normal(3, 16))


def test_an_unknown_dimension_is_recognised_where_it_comes_back():
    """The number of rows that NonZero finds has no name in the model."""
    made = model(
        [node("NonZero", ["x"], ["z"]), node("Transpose", ["z"], ["p"], perm=[1, 0]), *part("p", 0, "d0"),
         node("Concat", ["d0", "one", "two"], ["t"], axis=0), node("Reshape", ["p", "t"], ["y"])],
        [("x", FLOAT, ["n", "m"])], [("y", INT64, [None, 1, 2])],
        {**parts(0), "one": np.array([1]), "two": np.array([2])},
    )  # fmt: skip
    assert target_of(made) == [0, 1, 2]
    agree(made, x=np.eye(4, dtype=np.float32))
    agree(made, x=np.zeros((2, 3), np.float32))


def test_outputs_that_are_shapes_stay_outputs():
    made = model(
        [node("Shape", ["x"], ["y"]), node("Mul", ["y", "two"], ["z"])],
        [("x", FLOAT, [2, 3])], [("y", INT64, [2]), ("z", INT64, [2])], {"two": np.array(2)},
    )  # fmt: skip
    agree(made, x=normal(2, 3))
    assert operators(made) == []


def test_a_shape_is_read_before_elementwise_operators():
    """The dequantised value has one reader left, so that the bytes themselves are reshaped."""
    made = model(
        [
            node("QuantizeLinear", ["x", "scale", "middle"], ["q"]),
            node("DequantizeLinear", ["q", "scale", "middle"], ["r"]), node("Shape", ["r"], ["s"]),
            node("Concat", ["minus", "s"], ["t"], axis=0), node("ReduceProd", ["t"], ["p"], keepdims=1),
            node("Reshape", ["r", "flat"], ["f"]), node("Concat", ["p", "s"], ["z"], axis=0),
            node("QuantizeLinear", ["f", "scale", "middle"], ["y"]),
        ],
        [("x", FLOAT, ["n", "m"])], [("y", onnx.TensorProto.UINT8, ["k"]), ("z", INT64, [3])],
        {"scale": np.float32(0.1), "middle": np.uint8(128), "minus": np.array([-1]), "flat": np.array([-1])},
    )  # fmt: skip
    found = operators(made)
    assert found.index("Reshape") < found.index("DequantizeLinear")
    for shape in ((2, 3), (0, 3)):
        agree(made, x=normal(*shape))
