"""Gradient against differences of the function's values."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import onnxlet
from onnxlet.errors import UnsupportedError

DOMAIN = "ai.onnx.preview.training"


def build(nodes, inputs, xs, y, zs=(), constants=None):
    attributes: dict[str, Any] = {"xs": list(xs), "y": y, **({"zs": list(zs)} if zs else {})}
    gradient = helper.make_node("Gradient", [*xs, *zs], [f"d{x}" for x in xs], domain=DOMAIN, **attributes)
    graph = helper.make_graph(
        [*nodes, gradient],
        "g",
        [helper.make_tensor_value_info(n, TensorProto.DOUBLE, v.shape) for n, v in inputs.items()],
        [helper.make_empty_tensor_value_info(n) for n in [y, *(f"d{x}" for x in xs)]],
        [onnx.numpy_helper.from_array(v, n) for n, v in (constants or {}).items()],
    )
    imports = [helper.make_opsetid("", 18), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9).SerializeToString()


def differences(run, feeds, name, step=1e-6):
    """The derivative of the sum of run(feeds) by feeds[name], from central differences."""
    x = feeds[name]
    out = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[i] += step
        down[i] -= step
        out[i] = (run({**feeds, name: up}).sum() - run({**feeds, name: down}).sum()) / (2 * step)
    return out


RNG = np.random.default_rng(0)
A, B = RNG.random((2, 3)) + 0.5, RNG.random((1, 3)) + 0.5
M = RNG.random((3, 4))
node = helper.make_node


def square(*nodes):
    return [*nodes, node("Mul", ["t", "t"], ["y"])]


CASES = {
    **{
        name: ([node(name, ["a"], ["y"])], {"a": A})
        for name in (
            *("Neg", "Exp", "Log", "Sqrt", "Abs", "Sin", "Cos", "Tanh", "Sigmoid", "Softplus", "Reciprocal", "Relu"),
            *("Erf", "Identity", "Softmax"),
        )
    },
    **{
        name: ([node(name, ["a", "b"], ["y"])], {"a": A, "b": B}) for name in ("Add", "Sub", "Mul", "Div", "Pow", "Sum")
    },
    "MatMul": ([node("MatMul", ["a", "m"], ["y"])], {"a": A, "m": M}),
    "MatMul batched": ([node("MatMul", ["a", "m"], ["y"])], {"a": np.stack([A, A + B]), "m": M}),
    "Gemm": (
        [node("Gemm", ["a", "m", "c"], ["y"], transA=1, transB=1, alpha=0.5, beta=2.0)],
        {"a": A.T.copy(), "m": M.T.copy(), "c": B[:, :1]},
    ),
    "Transpose": (square(node("Transpose", ["a"], ["t"])), {"a": A}),
    "Transpose by perm": (square(node("Transpose", ["a"], ["t"], perm=[2, 0, 1])), {"a": A.reshape(1, 2, 3)}),
    "Flatten": (square(node("Flatten", ["a"], ["t"], axis=0)), {"a": A}),
    "ReduceMean": ([node("ReduceMean", ["a"], ["t"], keepdims=0), node("Mul", ["t", "a"], ["y"])], {"a": A}),
    "ReduceSum": ([node("ReduceSum", ["a", "axis"], ["t"]), node("Mul", ["t", "a"], ["y"])], {"a": A}),
    "Where": ([node("Greater", ["a", "b"], ["t"]), node("Where", ["t", "a", "b"], ["y"])], {"a": A, "b": B}),
}


@pytest.mark.parametrize("name", CASES)
def test_rules_against_differences(name):
    nodes, feeds = CASES[name]
    # A weight for each element, as the sum of a Softmax has no slope.
    nodes = [*nodes, node("Mul", ["y", "y"], ["z"])]
    model = build(nodes, feeds, list(feeds), "z", constants={"axis": np.array([1])})
    session = onnxlet.InferenceSession(model)
    for name, got in zip(feeds, session.run(None, feeds)[1:], strict=True):
        expected = differences(lambda f: session.run(["z"], f)[0], feeds, name)
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-6)


def test_other_values_and_second_order():
    # y = a³: the slope at a is 3a², and that slope's own is 6a.
    nodes = [node("Mul", ["a", "a"], ["s"]), node("Mul", ["s", "a"], ["y"])]
    first = node("Gradient", ["b"], ["first"], domain=DOMAIN, xs=["a"], y="y")
    second = node("Gradient", ["b"], ["second"], domain=DOMAIN, xs=["b"], y="first")
    scalar = [helper.make_tensor_value_info(n, TensorProto.DOUBLE, []) for n in ("a", "b")]
    outputs = [helper.make_empty_tensor_value_info(n) for n in ("y", "first", "second")]
    graph = helper.make_graph([*nodes, first, second], "g", scalar, outputs)
    imports = [helper.make_opsetid("", 18), helper.make_opsetid(DOMAIN, 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=9)
    session = onnxlet.InferenceSession(model.SerializeToString())
    got = session.run(None, {"a": np.array(2.0), "b": np.array(5.0)})
    np.testing.assert_allclose(got, [8, 75, 30])


def test_a_variable_without_influence_has_slope_zero():
    model = build([node("Exp", ["a"], ["y"])], {"a": A, "b": B}, ["a", "b"], "y")
    np.testing.assert_array_equal(onnxlet.InferenceSession(model).run(["db"], {"a": A, "b": B})[0], np.zeros_like(B))


def test_an_operator_without_a_rule_is_named():
    model = build([node("CumSum", ["a", "axis"], ["y"])], {"a": A}, ["a"], "y", constants={"axis": np.array(0)})
    with pytest.raises(UnsupportedError, match="Gradient has no rule for CumSum"):
        onnxlet.InferenceSession(model)
