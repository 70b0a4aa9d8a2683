"""If nodes whose condition is known when the graph is rewritten, or when a plan is made."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import onnxlet

from .models import BOOL, FLOAT, INT64, graph, model, node
from .test_rewrites import agree, operators


def halves(name: str, *nodes: onnx.NodeProto, constants: dict[str, Any] | None = None) -> onnx.GraphProto:
    return graph(list(nodes), [], [(name, FLOAT, ["n"])], constants)


RATE = node("Equal", ["rate", "wanted"], ["c"])
X = np.arange(4, dtype=np.float32)


def by_rate(then: onnx.GraphProto, other: onnx.GraphProto, *around: onnx.NodeProto, rate: Any = ("rate", INT64, [])):
    nodes = [RATE, node("If", ["c"], ["y"], then_branch=then, else_branch=other), *around]
    return model(nodes, [("x", FLOAT, ["n"]), rate], [("y", FLOAT, ["n"])], {"wanted": np.array(16000)})


def test_an_integer_that_decides_makes_one_call():
    made = by_rate(
        halves("b", node("Exp", ["x"], ["a"]), node("Add", ["a", "k"], ["b"]), constants={"k": np.float32(1)}),
        halves("b", node("Neg", ["x"], ["a"]), node("Mul", ["a", "k"], ["b"]), constants={"k": np.float32(3)}),
    )
    session = onnxlet.InferenceSession(made)
    for rate in (16000, 8000, 16000, *range(20), 16000):
        expected = np.exp(X) + 1 if rate == 16000 else -3 * X
        np.testing.assert_allclose(session.run(None, {"x": X, "rate": np.array(rate)})[0], expected, rtol=1e-6)
    fresh = onnxlet.InferenceSession(made)
    fresh.run(None, {"x": X, "rate": np.array(8000)})
    explanation = fresh.explain()
    assert [row.operator for row in explanation.rows if row.provider != "plan"] == ["Neg", "Mul"]
    assert explanation.calls == 1


@pytest.mark.parametrize("rate", [("rate", INT64, [1]), ("rate", INT64, [None])])
def test_other_shapes_of_what_decides(rate: Any):
    made = by_rate(halves("b", node("Exp", ["x"], ["b"])), halves("b", node("Neg", ["x"], ["b"])), rate=rate)
    session = onnxlet.InferenceSession(made)
    for value in (16000, 1):
        expected = np.exp(X) if value == 16000 else -X
        np.testing.assert_allclose(session.run(None, {"x": X, "rate": np.array([value])})[0], expected, rtol=1e-6)


def test_data_that_decides_is_looked_at_in_every_run():
    nodes = [
        node("ReduceSum", ["x"], ["t"], keepdims=0), node("Greater", ["t", "zero"], ["c"]),
        node("If", ["c"], ["y"], then_branch=halves("b", node("Exp", ["x"], ["b"])),
             else_branch=halves("b", node("Neg", ["x"], ["b"]))),
    ]  # fmt: skip
    made = model(nodes, [("x", FLOAT, [4])], [("y", FLOAT, [4])], {"zero": np.float32(0)})
    session = onnxlet.InferenceSession(made)
    for sign in (1, -1, 1, -1):
        expected = np.exp(X) if sign == 1 else X
        np.testing.assert_allclose(session.run(None, {"x": sign * X})[0], expected, rtol=1e-6)


def test_a_shape_that_decides():
    """torch writes a Squeeze of an axis that may be 1 so."""
    nodes = [
        node("Shape", ["x"], ["s"]), node("Gather", ["s", "zero"], ["d"]), node("Equal", ["d", "one"], ["c"]),
        node("If", ["c"], ["y"], then_branch=halves("b", node("Squeeze", ["x", "axis"], ["b"])),
             else_branch=graph([node("Identity", ["x"], ["b"])], [], [("b", FLOAT, None)])),
    ]  # fmt: skip
    made = model(
        nodes, [("x", FLOAT, ["m", "n"])], [("y", FLOAT, None)],
        {"zero": np.array(0), "one": np.array(1), "axis": np.array([0])}, check=False,
    )  # fmt: skip
    session = onnxlet.InferenceSession(made)
    for rows in (1, 3, 1):
        x = np.arange(rows * 2, dtype=np.float32).reshape(rows, 2)
        y = session.run(None, {"x": x})[0]
        np.testing.assert_array_equal(y, x[0] if rows == 1 else x)


def test_names_that_are_taken_already():
    """The branches, the graph around them and another If use the same names for different values."""
    then = halves("a", node("Exp", ["x"], ["a"]))
    other = halves("a", node("Neg", ["x"], ["a"]))
    nodes = [
        RATE, node("If", ["c"], ["p"], then_branch=then, else_branch=other),
        node("If", ["c"], ["q"], then_branch=other, else_branch=then), node("Sub", ["p", "q"], ["p/a"]),
        node("Abs", ["p/a"], ["y"]),
    ]  # fmt: skip
    made = model(nodes, [("x", FLOAT, ["n"]), ("rate", INT64, [])], [("y", FLOAT, ["n"])], {"wanted": np.array(16000)})
    for rate in (16000, 0):
        y = onnxlet.InferenceSession(made).run(None, {"x": X, "rate": np.array(rate)})[0]
        np.testing.assert_allclose(y, np.abs(np.exp(X) + X), rtol=1e-6)


def test_branches_that_only_pass_values_on():
    """Outputs that are a constant, a value from outside, and one value twice."""
    outputs = [(name, FLOAT, ["n"]) for name in ("k", "x", "e")]
    then = graph([node("Exp", ["x"], ["e"])], [], [*outputs, outputs[2]], {"k": X})
    other = graph([node("Exp", ["x"], ["e"])], [], [outputs[2], *outputs], {"k": X})
    names = ["p", "q", "r", "s"]
    nodes = [RATE, node("If", ["c"], names, then_branch=then, else_branch=other)]
    made = model(
        nodes, [("x", FLOAT, ["n"]), ("rate", INT64, [])], [(n, FLOAT, ["n"]) for n in names],
        {"wanted": np.array(16000)}, check=False,
    )  # fmt: skip
    x = X + 1
    session = onnxlet.InferenceSession(made)
    for rate, expected in ((16000, [X, x, np.exp(x), np.exp(x)]), (1, [np.exp(x), X, x, np.exp(x)])):
        for given, wanted in zip(session.run(None, {"x": x, "rate": np.array(rate)}), expected, strict=True):
            np.testing.assert_allclose(given, wanted, rtol=1e-6)


def test_bodies_inside_of_a_branch_see_its_values():
    """A Loop in a branch that reads what the branch computes, under a name that its own body has for another value."""
    body = graph(
        [node("Add", ["state", "a"], ["b"]), node("Identity", ["go"], ["on"])],
        [("i", INT64, []), ("go", BOOL, []), ("state", FLOAT, ["n"])], [("on", BOOL, []), ("b", FLOAT, ["n"])],
    )  # fmt: skip
    then = halves(
        "b", node("Exp", ["x"], ["a"]), node("Loop", ["three", "", "a"], ["b"], body=body),
        constants={"three": np.array(3)},
    )  # fmt: skip
    nested = node("If", ["c"], ["b"], then_branch=then, else_branch=halves("b", node("Neg", ["x"], ["b"])))
    made = by_rate(halves("b", nested), halves("b", node("Abs", ["x"], ["b"])))
    session = onnxlet.InferenceSession(made)
    for rate in (16000, 1):
        expected = 4 * np.exp(X) if rate == 16000 else X
        np.testing.assert_allclose(session.run(None, {"x": X, "rate": np.array(rate)})[0], expected, rtol=1e-6)


def test_the_other_branch_is_never_looked_at():
    broken = halves("b", node("Reshape", ["x", "seven"], ["b"]), constants={"seven": np.array([7])})
    made = by_rate(halves("b", node("Exp", ["x"], ["b"])), broken)
    y = onnxlet.InferenceSession(made).run(None, {"x": X, "rate": np.array(16000)})[0]
    np.testing.assert_allclose(y, np.exp(X), rtol=1e-6)


@pytest.mark.parametrize("condition", [True, False])
def test_a_condition_that_is_constant(condition: bool):
    made = model(
        [
            node("If", ["c"], ["p"], then_branch=halves("a", node("Exp", ["x"], ["a"])),
                 else_branch=halves("a", node("Mul", ["x", "a_half"], ["a"]), constants={"a_half": np.float32(0.5)})),
            node("Sigmoid", ["p"], ["g"]), node("Mul", ["p", "g"], ["y"]),
        ],
        [("x", FLOAT, ["n"])], [("y", FLOAT, ["n"])], {"c": np.array(condition)},
    )  # fmt: skip
    assert operators(made) == ["Exp" if condition else "Mul", "QuickGelu"]
    agree(made, x=X)
