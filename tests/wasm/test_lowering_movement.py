"""Operators that move elements, through compiled programs, against onnxruntime and ONNX's reference evaluator."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from .helpers import check, node, refusal

RNG = np.random.default_rng(3)
TYPES = [np.float32, np.int64, np.bool_, np.float16, np.float64, np.uint8]


def some(shape, dtype=np.float32):
    return RNG.integers(0, 100, shape).astype(dtype)


def integers(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


@pytest.mark.parametrize("dtype", TYPES, ids=lambda t: t.__name__)
def test_views(provider, dtype):
    x = some((2, 3, 4), dtype)
    program = check(provider, node("Reshape", "x s"), {"x": x}, {"s": integers(4, -1)})
    assert program.kernels == []
    check(provider, node("Flatten", "x", axis=2), {"x": x})
    check(provider, node("Unsqueeze", "x a"), {"x": x}, {"a": integers(0, 3)})
    check(provider, node("Squeeze", "x"), {"x": some((1, 3, 1), dtype)})
    check(provider, node("Identity", "x"), {"x": x})
    check(provider, node("Squeeze", "x", version=11, axes=[0]), {"x": some((1, 3, 1), dtype)})


def test_dropout_at_inference_is_a_view(provider):
    assert check(provider, node("Dropout", "x"), {"x": some((2, 3))}).kernels == []


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
@pytest.mark.parametrize("shape", [(2, 3, 4), (17, 33, 5), (1, 3, 1), (0, 2, 3)], ids=str)
def test_transpose(provider, order, shape):
    check(provider, node("Transpose", "x", perm=list(order)), {"x": some(shape)})


@pytest.mark.parametrize("dtype", TYPES, ids=lambda t: t.__name__)
def test_transpose_of_any_type(provider, dtype):
    check(provider, node("Transpose", "x"), {"x": some((18, 5, 19), dtype)})
    check(provider, node("Transpose", "x", perm=[0, 2, 1, 3]), {"x": some((2, 3, 4, 5), dtype)})


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.bool_], ids=lambda t: t.__name__)
def test_concat(provider, axis, dtype):
    shapes = [[2, 3, 4] for _ in range(4)]
    for shape, size in zip(shapes, [3, 1, 0, 5], strict=True):
        shape[axis] = size
    feeds = {f"x{i}": some(s, dtype) for i, s in enumerate(shapes)}
    check(provider, node("Concat", " ".join(feeds), axis=axis), feeds)
    check(provider, node("Concat", "x c x", axis=axis), {"x": feeds["x0"]}, {"c": feeds["x3"]})


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_split(provider, axis):
    x = some((4, 6, 8))
    check(provider, node("Split", "x", "a b", axis=axis), {"x": x}) if axis else None
    sizes = integers(1, x.shape[axis] - 1)
    check(provider, node("Split", "x s", "a b", axis=axis), {"x": x}, {"s": sizes})
    check(provider, node("Split", "x", "a b", version=11, axis=axis, split=sizes.tolist()), {"x": x})


SLICES = [
    ([1], [3], [0], [1]), ([0, 1], [9, -1], [1, 2], [2, 1]), ([-1], [-1000], [2], [-1]), ([5], [0], [1], [-2]),
    ([-100], [100], [0], [3]), ([2], [2], [0], [1]), ([-1, -1], [-(2**63), -(2**31)], [0, 1], [-1, -3]),
]  # fmt: skip


@pytest.mark.parametrize("case", SLICES, ids=str)
def test_slice(provider, case):
    starts, ends, axes, steps = (integers(*v) for v in case)
    x = some((4, 6, 8))
    check(provider, node("Slice", "x b e a s"), {"x": x}, {"b": starts, "e": ends, "a": axes, "s": steps})


def test_slice_with_attributes(provider):
    check(provider, node("Slice", "x", version=9, starts=[1, 0], ends=[3, -1], axes=[0, 2]), {"x": some((4, 6, 8))})


def test_slice_by_data_is_refused(provider):
    feeds = {"x": some((4, 6)), "b": integers(0), "e": integers(2)}
    assert "must be constant" in (refusal(provider, node("Slice", "x b e"), feeds) or "")


@pytest.mark.parametrize("pads", [(0, 1, 2, 0, 3, 4), (0, 0, 0, 0, 0, 0), (0, -1, 2, 0, 1, -2), (1, -1, -2, 0, -1, 1)])
def test_pad_with_a_constant(provider, pads):
    x = some((2, 5, 6))
    check(provider, node("Pad", "x p"), {"x": x}, {"p": integers(*pads)})
    check(provider, node("Pad", "x p v"), {"x": x}, {"p": integers(*pads), "v": np.array(3.5, np.float32)})
    check(provider, node("Pad", "x", version=2, pads=list(pads), value=1.5), {"x": x})


@pytest.mark.parametrize("mode", ["edge", "reflect"])
def test_pad_with_borders(provider, mode):
    check(
        provider,
        node("Pad", "x p", mode=mode),
        {"x": some((2, 5, 6))},
        {"p": integers(1, 2, 3, 0, 3, 4)[[0, 1, 2, 3, 4, 5]]},
    )


def test_pad_of_some_axes(provider):
    check(provider, node("Pad", "x p - a"), {"x": some((2, 5, 6))}, {"p": integers(1, 2), "a": integers(-1)})


@pytest.mark.parametrize("target", [(2, 3, 4), (5, 2, 3, 4), (2, 1, 1)], ids=str)
@pytest.mark.parametrize("shape", [(1, 3, 1), (3, 4), (), (2, 3, 4)], ids=str)
def test_expand(provider, shape, target):
    if np.broadcast_shapes(shape, target) is not None:
        check(
            provider, node("Expand", "x s"), {"x": some(shape) + np.zeros(shape, np.float32)}, {"s": integers(*target)}
        )


@pytest.mark.parametrize("repeats", [(1, 1, 1), (2, 1, 3), (1, 4, 1), (0, 1, 1)])
def test_tile(provider, repeats):
    check(provider, node("Tile", "x r"), {"x": some((2, 3, 4))}, {"r": integers(*repeats)})


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_depth_to_space(provider, mode):
    check(provider, node("DepthToSpace", "x", blocksize=2, mode=mode), {"x": some((2, 12, 3, 5))})


def test_space_to_depth(provider):
    check(provider, node("SpaceToDepth", "x", blocksize=3), {"x": some((2, 2, 6, 9))})


def test_strings_are_refused(provider):
    feeds = {"x": np.array(["a", "b"], object)}
    one = node("Identity", "x")
    assert refusal(provider, one, feeds, references={"Identity": lambda x: x}) == "string has no kernel here"
