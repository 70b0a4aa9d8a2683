"""Reductions and searches through compiled programs, against onnxruntime and NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from .helpers import check, node, refusal

RNG = np.random.default_rng(19)
OPERATORS = ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2",
             "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp"]  # fmt: skip


def some(*shape: int) -> np.ndarray:
    return RNG.uniform(0.5, 2, shape).astype(np.float32)


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("axes", [None, [0], [-1], [1], [0, 2], [1, 2], [0, 1, 2, 3], [-1, 1]], ids=str)
@pytest.mark.parametrize("keepdims", [0, 1])
def test_reduce(provider, operator, axes, keepdims):
    x = some(2, 3, 4, 5)
    attributes = {"keepdims": keepdims}
    if axes is None:
        check(provider, node(operator, "x", **attributes), {"x": x}, rtol=1e-4)
    else:
        check(provider, node(operator, "x a", version=18, **attributes), {"x": x}, {"a": np.array(axes)}, rtol=1e-4)
        check(provider, node(operator, "x", version=11, axes=axes, **attributes), {"x": x}, rtol=1e-4)


@pytest.mark.parametrize("shape", [(1, 3, 1), (1, 1), (5,), ()], ids=str)
def test_reduce_all_of_odd_shapes(provider, shape):
    check(provider, node("ReduceSum", "x"), {"x": np.asarray(some(*shape))})


@pytest.mark.parametrize("operator", ["ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd"])
@pytest.mark.parametrize("dtype", [np.int32, np.int64], ids=lambda t: t.__name__)
def test_reduce_integers(provider, operator, dtype):
    x = RNG.integers(-4, 5, (3, 4, 5)).astype(dtype)
    check(provider, node(operator, "x a"), {"x": x}, {"a": np.array([1])})


@pytest.mark.parametrize("axes", [[1], [2, 3], [3], [1, 2, 3], [0]], ids=str)
@pytest.mark.parametrize("keepdims", [0, 1])
def test_reduce_channels_last(provider, axes, keepdims):
    nodes = [node("Conv", "x w", "c"), node("ReduceMax", "c a", "r", keepdims=keepdims), node("Abs", "r", "y")]
    check(provider, nodes, {"x": some(2, 4, 5, 6)}, {"w": some(8, 4, 1, 1), "a": np.array(axes)})


def test_global_mean_channels_last_moves_nothing(provider):
    nodes = [node("Conv", "x w", "c", pads=[1, 1, 1, 1]), node("ReduceMean", "c a", "y", keepdims=0)]
    program = check(provider, nodes, {"x": some(1, 4, 5, 6)}, {"w": some(8, 4, 3, 3), "a": np.array([2, 3])})
    assert program.kernels == ["nchw_to_nhwc", "conv", "reduce"]


@pytest.mark.parametrize("operator", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("last", [0, 1])
def test_arg_reduce(provider, operator, axis, keepdims, last):
    one = node(operator, "x", axis=axis, keepdims=keepdims, select_last_index=last)
    for dtype in (np.float32, np.int64):
        check(provider, one, {"x": RNG.integers(0, 4, (3, 4, 5)).astype(dtype)})


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
def test_cumsum(provider, axis, exclusive, reverse):
    one = node("CumSum", "x a", exclusive=exclusive, reverse=reverse)
    check(provider, one, {"x": some(3, 4, 5)}, {"a": np.array(axis)})


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("k", [1, 3])
def test_topk(provider, axis, largest, k):
    one = node("TopK", "x k", "v i", axis=axis, largest=largest)
    check(provider, one, {"x": some(4, 5, 6)}, {"k": np.array([k])})
    check(provider, node("TopK", "x", "v i", version=9, k=k, axis=axis), {"x": some(4, 5, 6)}) if largest else None


def test_axes_by_data_are_refused(provider):
    feeds = {"x": some(2, 3), "a": np.array([1])}
    assert refusal(provider, node("ReduceSum", "x a"), feeds) == "its axes must be constant"
