from __future__ import annotations

import json

import numpy as np
import pytest

from onnxlet.graph.ir import TensorType
from onnxlet.model.dtypes import dtype_of
from onnxlet.model.loader import load_model
from onnxlet.tools.comparing import EXACT, Side, Tolerance, compare, difference
from onnxlet.tools.engines import blocks, saved
from tests.core.models import FLOAT, model, node

X = np.array([[1, -2], [3, 4]], np.float32)


def f32(*values):
    return np.array(values, np.float32)


def test_a_difference_says_where_and_how_much():
    d = difference("v", f32(1, 2, 4), f32(1, 2.5, 4))
    assert (d.largest, d.place, d.scale, d.within) == (0.5, [1], 4, False)
    assert d.mean == pytest.approx(0.5 / 3)
    assert d.outside == pytest.approx(1 / 3)
    assert difference("v", f32(1, 2, 4), f32(1, 2.001, 4)).within  # one part in a thousand
    assert not difference("v", f32(1, 2, 4), f32(1, 2.003, 4)).within


def test_whole_numbers_are_exact_to_the_last_bit_of_64():
    top = np.array([2**63 - 1], np.int64)
    d = difference("v", top, top - 1)
    assert (d.largest, d.within) == (1, False)
    ends = np.array([-(2**63)], np.int64)
    assert difference("v", ends, top).largest == pytest.approx(2.0**64)
    assert difference("v", top, top).within
    assert difference("v", np.array([2**64 - 1], np.uint64), np.array([0], np.uint64)).largest == pytest.approx(2.0**64)


def test_nans_and_infinities_match_only_themselves():
    assert difference("v", f32(np.nan, np.inf, -np.inf, 1), f32(np.nan, np.inf, -np.inf, 1)).within
    d = difference("v", f32(np.nan, 1), f32(0, 1))
    assert (d.within, d.place, d.not_finite) == (False, [0], (1, 0))
    assert not difference("v", f32(np.inf), f32(-np.inf)).within


def test_other_types_and_shapes():
    assert difference("v", f32(1, 2), f32(1)).problem == "is float[2]"
    assert difference("v", f32(1), np.array([1])).problem == "is float[1]"
    words = np.array(["a", "b"], object)
    assert difference("v", words, words).within
    assert difference("v", words, words[::-1]).outside == 1
    assert difference("v", [f32(1)], [f32(1)]).within
    assert difference("v", [f32(1)], [f32(2)]).problem == "not equal"
    assert difference("v", np.zeros((0, 3), np.float32), np.zeros((0, 3), np.float32)).within
    halves = np.array([1, 2]).astype(dtype_of(16)), np.array([1, 2.0625]).astype(dtype_of(16))
    assert difference("v", *halves).within
    assert not difference("v", *halves, EXACT).within
    assert difference("v", np.array([True]), np.array([True])).within
    assert difference("v", np.array([3j]), np.array([4 + 0j])).largest == 5


def chain(last="Neg", factor=2.0):
    nodes = [
        node("Mul", ["x", "k"], ["a"], name="scale"),
        node("Exp", ["a"], ["b"]),
        node(last, ["b"], ["y"], name="last"),
    ]
    made = model(nodes, [("x", FLOAT, [2, 2])], [("y", FLOAT, [2, 2])], {"k": f32(factor)})
    return load_model(made)


@pytest.mark.parametrize("engine", ["numpy", "onnxruntime", "reference"])
def test_one_model_on_two_engines(engine):
    made = chain()
    found = compare(Side("ours", made), Side(engine, made, engine), {"x": X}, nodes=True)
    assert found.agree
    assert [d.name for d in found.nodes] == ["a", "b", "y"]
    assert found.first is None
    assert "they agree" in str(found)
    assert json.loads(json.dumps(found.to_dict()))["agree"] is True


def test_the_first_divergence_of_two_models():
    found = compare(Side("one", chain()), Side("two", chain(factor=2.1)), {"x": X}, nodes=True)
    assert not found.agree
    assert (found.first.name, found.first.node, found.first.operator) == ("a", "scale", "Mul")
    # exp is the same function of what differed before it: the last node is not the first that is wrong
    assert all(not d.within for d in found.nodes)
    assert "first divergence: 'a', made by Mul 'scale'" in str(found)


def test_the_first_nan_of_only_one():
    found = compare(Side("one", chain()), Side("two", chain("Log", -1e4)), {"x": np.abs(X)}, nodes=True)
    assert found.first_not_finite.name == "b" or found.first_not_finite.name == "y"
    assert not found.agree


def test_saved_outputs(tmp_path):
    np.savez(tmp_path / "out.npz", y=-np.exp(2 * X), other=X)
    values = saved(str(tmp_path / "out.npz"))
    assert compare(Side("ours", chain()), Side("saved", None, values=values), {"x": X}).agree
    assert not compare(Side("ours", chain()), Side("saved", None, values={"y": X}), {"x": X}).agree
    with pytest.raises(ValueError, match="no output in common"):
        compare(Side("ours", chain()), Side("saved", None, values={"z": X}), {"x": X})


def test_a_tolerance_that_is_asked_for():
    sides = Side("one", chain()), Side("two", chain(factor=2.001))
    assert not compare(*sides, {"x": X}).agree
    assert compare(*sides, {"x": X}, tolerance=Tolerance(0.01, 0.0, "asked for")).agree


def test_values_are_kept_in_blocks():
    types = {n: TensorType(np.dtype(np.float32), (size,)) for n, size in (("a", 10), ("b", 10), ("c", 100), ("d", 1))}
    assert list(blocks(["a", "b", "c", "d"], types, 80)) == [["a", "b"], ["c"], ["d"]]
