"""bfloat16 in sessions: rounded after every operator, as `ml_dtypes` rounds."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto

import onnxlet
from tests.core.models import model, node

BF16 = np.dtype(ml_dtypes.bfloat16)
RNG = np.random.default_rng(5)


def numbers(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(BF16)


def outcome(nodes, outputs: dict[str, list[int]], **feeds: np.ndarray) -> list[np.ndarray]:
    made = model(
        nodes,
        [(name, TensorProto.BFLOAT16, x.shape) for name, x in feeds.items()],
        [(name, TensorProto.BFLOAT16, shape) for name, shape in outputs.items()],
    )
    with onnxlet.InferenceSession(made.SerializeToString()) as session:
        results = session.run(None, feeds)
        assert {row["provider"] for row in session.explain().to_dict()["nodes"]} == {"CPUExecutionProvider"}
    return [np.asarray(r).view(BF16) for r in results]


@pytest.mark.parametrize("shape", [(), (0, 3), (1000,), (2, 3, 7)], ids=str)
def test_each_operator_of_a_chain_rounds(shape):
    x, y = numbers(*shape), numbers(*shape)
    nodes = [node("Add", ["x", "y"], ["a"]), node("Mul", ["a", "x"], ["b"]), node("Sub", ["b", "y"], ["c"])]
    got = outcome(nodes, {"c": list(shape)}, x=x, y=y)[0]
    np.testing.assert_array_equal(got, (x + y) * x - y)


def test_products_sum_in_float32():
    x, w, bias = numbers(5, 300), numbers(300, 9), numbers(9)
    nodes = [node("MatMul", ["x", "w"], ["m"]), node("Relu", ["m"], ["r"]), node("Div", ["r", "b"], ["y"])]
    got = outcome(nodes, {"m": [5, 9], "y": [5, 9]}, x=x, w=w, b=bias)
    exact = x.astype(np.float64) @ w.astype(np.float64)
    np.testing.assert_allclose(got[0].astype(np.float64), exact, rtol=2**-8, atol=1e-3)
    np.testing.assert_array_equal(got[1], np.maximum(got[0], BF16.type(0)) / bias)


@pytest.mark.parametrize(
    ("source", "element"),
    [(np.float64, TensorProto.DOUBLE), (np.int64, TensorProto.INT64), (np.int32, TensorProto.INT32)],
)
def test_wider_numbers_are_rounded_once(source, element):
    """By way of float32, which can't hold them, these would be rounded to a tie first, and then away."""
    x = np.array([1 + 2**-8 + 2**-40, 2**62 + 2**54 + 1, 2**30 + 2**22 + 1, -(2**30) - 2**22 - 1])
    x = x[np.abs(x) < 2**31].astype(source) if source == np.int32 else x.astype(source)
    if source != np.float64:
        x = x[1:]
    made = model(
        [node("Cast", ["x"], ["y"], to=TensorProto.BFLOAT16)],
        [("x", element, x.shape)],
        [("y", TensorProto.BFLOAT16, x.shape)],
    )
    with onnxlet.InferenceSession(made.SerializeToString()) as session:
        got = np.asarray(session.run(None, {"x": x})[0]).view(BF16).astype(np.float64)
    exact = x.astype(np.longdouble)
    steps = 2.0 ** (np.floor(np.log2(np.abs(exact.astype(np.float64)))) - 7)
    np.testing.assert_array_equal(got, (np.rint(exact / steps) * steps).astype(np.float64))
