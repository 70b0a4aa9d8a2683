"""Operators that pick or write by index, and casts, through compiled programs, against onnxruntime and NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from onnxlet.errors import NodeError

from .helpers import check, make_segment, node, refusal

RNG = np.random.default_rng(17)


def some(shape, dtype=np.float32):
    return RNG.integers(0, 100, shape).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.bool_, np.float16], ids=lambda t: t.__name__)
def test_where(provider, dtype):
    a, b = some((2, 3, 4), dtype), some((4,), dtype)
    check(provider, node("Where", "c a b"), {"c": RNG.random((3, 1)) > 0.5, "a": a, "b": b})
    check(provider, node("Where", "c b a"), {"c": RNG.random((2, 3, 4)) > 0.5, "a": a}, {"b": b})


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("indices", [np.array(1), np.array([0, -1, 2]), np.array([[1, 1], [0, -2]], np.int32)], ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.bool_], ids=lambda t: t.__name__)
def test_gather(provider, axis, indices, dtype):
    x = some((3, 4, 5), dtype)
    check(provider, node("Gather", "x i", axis=axis), {"x": x, "i": indices})
    check(provider, node("Gather", "x i", axis=axis), {"i": indices}, {"x": x})


def test_gather_out_of_bounds_is_an_error_and_the_next_run_works(provider):
    x = some((3, 4))
    segment, _ = make_segment([node("Gather", "x i")], {"x": x, "i": np.array([0, 1])}, {}, ["y"])
    program = provider.compile(segment)
    with pytest.raises(NodeError, match=r"Gather_y.*index number 1.*out of bounds"):
        program.run([x, np.array([0, 3])])
    np.testing.assert_array_equal(program.run([x, np.array([2, -3])])[0], x[[2, 0]])


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_gather_elements(provider, axis):
    x, indices = some((3, 4, 5)), RNG.integers(-3, 3, (2, 3, 4))
    check(provider, node("GatherElements", "x i", axis=axis), {"x": x, "i": indices})


@pytest.mark.parametrize(("shape", "indices", "batch"), [
    ((4, 5, 6), [[0, 1], [-1, 2]], 0), ((4, 5), [[[3]], [[-4]]], 0), ((4, 5, 6), [[0, 1, 2]], 0),
    ((2, 5, 6), [[[4]], [[1]]], 1),
])  # fmt: skip
def test_gather_nd(provider, shape, indices, batch):
    check(provider, node("GatherND", "x i", batch_dims=batch), {"x": some(shape), "i": np.array(indices)})


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
def test_scatter_nd(provider, reduction):
    feeds = {"x": some((4, 5)), "i": np.array([[0], [2], [-1]]), "u": some((3, 5))}
    check(provider, node("ScatterND", "x i u", reduction=reduction), feeds)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("reduction", ["none", "add", "max"])
def test_scatter_elements(provider, axis, reduction):
    feeds = {"x": some((4, 5)), "i": np.array([[0, 2, 1], [1, -1, 0]]), "u": some((2, 3))}
    check(provider, node("ScatterElements", "x i u", axis=axis, reduction=reduction), feeds)


def test_scatter_leaves_its_operand_alone_while_it_is_needed(provider):
    nodes = [node("ScatterND", "x i u", "s"), node("Add", "x s", "y")]
    feeds = {"x": some((4, 5)), "i": np.array([[0], [2]]), "u": some((2, 5))}
    check(provider, nodes, feeds)


@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize("k", [-2, 0, 1, 9])
def test_trilu(provider, upper, k):
    check(provider, node("Trilu", "x k", upper=upper), {"x": some((2, 4, 5))}, {"k": np.array(k)})


TYPES = [np.float32, np.float64, np.float16, np.int8, np.uint8, np.int32, np.int64, np.bool_]


@pytest.mark.parametrize("source", TYPES, ids=lambda t: t.__name__)
@pytest.mark.parametrize("target", TYPES, ids=lambda t: t.__name__)
def test_cast(provider, source, target):
    import onnx

    code = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(target))
    x, references = some((3, 5), source), {"Cast": lambda v, **_: v.astype(target)}
    twice = target is np.float16 and source in (np.float64, np.int32, np.int64)
    if twice or (source is np.float16 and np.dtype(target).kind in "iub"):
        # Inside of a program 16-bit floats are float32: not rounded, which a cast to integers would show, or rounded to
        # that first.
        assert "16-bit" in str(refusal(provider, node("Cast", "x", to=code), {"x": x}, references=references))
        return
    check(provider, node("Cast", "x", to=code), {"x": x}, references=references)


def test_indices_of_odd_types_are_refused(provider):
    feeds = {"x": some((3, 4)), "i": np.array([0], np.int8)}
    reason = refusal(provider, node("Gather", "x i"), feeds, references={"Gather": lambda x, i: x[i]})
    assert reason == "int8 has no kernel here"
