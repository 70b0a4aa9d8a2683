"""Operators made of others, sampling, and three dimensions, through compiled programs, against onnxruntime, ONNX's
reference evaluator, or their NumPy definitions where those lack them or differ from the standard."""

from __future__ import annotations

import numpy as np
import pytest

from .helpers import check, node
from .test_lowering_types import definition

RNG = np.random.default_rng(29)


def some(*shape: int) -> np.ndarray:
    return RNG.uniform(-1, 1, shape).astype(np.float32)


@pytest.mark.parametrize("axis", [-1, 0, 1])
@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.float32], ids=lambda t: t.__name__)
def test_one_hot(provider, axis, dtype):
    indices = RNG.integers(-8, 8, (3, 4)).astype(dtype)
    feeds, constants = {"i": indices, "v": np.array([2.0, 5.0], np.float32)}, {"d": np.array([6])}
    check(provider, node("OneHot", "i d v", axis=axis), feeds, constants, references=definition("OneHot"))
    one = node("OneHot", "i d v", axis=axis, version=9)
    check(provider, one, feeds, constants, references=definition("OneHot", 9))


@pytest.mark.parametrize("version", [11, 13])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_hardmax(provider, version, axis):
    x = RNG.integers(0, 3, (3, 4, 5)).astype(np.float32)
    check(
        provider, node("Hardmax", "x", version=version, axis=axis), {"x": x}, references=definition("Hardmax", version)
    )


@pytest.mark.parametrize("p", [1, 2])
def test_lp_normalization(provider, p):
    x = np.concatenate([some(3, 4), np.zeros((1, 4), np.float32)])
    check(provider, node("LpNormalization", "x", p=p), {"x": x}, references=definition("LpNormalization"))
    check(provider, node("LpNormalization", "x", p=p, axis=0), {"x": x}, references=definition("LpNormalization"))


def test_mean_variance_normalization(provider):
    references = definition("MeanVarianceNormalization")
    check(provider, node("MeanVarianceNormalization", "x"), {"x": some(2, 3, 4, 5)}, references=references)
    one = node("MeanVarianceNormalization", "x", axes=[-1])
    check(provider, one, {"x": some(2, 3, 4)}, references=references)


def test_shrink(provider):
    x = np.concatenate([some(50), [np.nan, np.inf, -np.inf, 0.4, -0.4]]).astype(np.float32)
    check(provider, node("Shrink", "x", bias=0.3, lambd=0.4), {"x": x}, references=definition("Shrink"))


@pytest.mark.parametrize("size", [1, 2, 3, 5, 9])
@pytest.mark.parametrize("shape", [(2, 6, 3, 4), (1, 5, 7)], ids=str)
def test_lrn(provider, size, shape):
    one = node("LRN", "x", size=size, alpha=0.9, beta=0.6, bias=1.5)
    check(provider, one, {"x": some(*shape)}, references=definition("LRN"))


@pytest.mark.parametrize("target", [[2, 9, 3], [5, 2, 3], [2, 3, 4], [3, 6, 6]], ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.int64], ids=lambda t: t.__name__)
def test_center_crop_pad(provider, target, dtype):
    x = RNG.integers(1, 99, (3, 6, 4)).astype(dtype)
    check(
        provider,
        node("CenterCropPad", "x t"),
        {"x": x},
        {"t": np.array(target)},
        references=definition("CenterCropPad"),
    )


@pytest.mark.parametrize(("time", "batch"), [(0, 1), (1, 0)])
@pytest.mark.parametrize("dtype", [np.float32, np.uint8, np.int64], ids=lambda t: t.__name__)
def test_reverse_sequence(provider, time, batch, dtype):
    x = RNG.integers(0, 99, (5, 3, 2) if time == 0 else (3, 5)).astype(dtype)
    one = node("ReverseSequence", "x n", time_axis=time, batch_axis=batch)
    check(provider, one, {"x": x, "n": np.array([0, 5, 3])}, references=definition("ReverseSequence"))


def test_max_unpool(provider):
    x = some(2, 3, 3, 4)
    numbers = (np.arange(72).reshape(2, 3, 3, 4) * 4 + RNG.integers(0, 4, x.shape)).astype(np.int64)
    one = node("MaxUnpool", "x i", kernel_shape=[2, 2], strides=[2, 2])
    check(provider, one, {"x": x, "i": numbers})
    one = node("MaxUnpool", "x i s", kernel_shape=[2, 2], strides=[2, 2])
    constants = {"s": np.array([2, 3, 7, 9])}
    check(provider, one, {"x": x, "i": numbers}, constants, references=definition("MaxUnpool"))


@pytest.mark.parametrize("corners", [0, 1])
@pytest.mark.parametrize("size", [[2, 3, 4, 5], [2, 3, 2, 4, 2]], ids=str)
def test_affine_grid(provider, corners, size):
    rank = len(size) - 2
    one = node("AffineGrid", "t s", align_corners=corners)
    check(provider, one, {"t": some(2, rank, rank + 1)}, {"s": np.array(size)})


def test_constants_too_large_to_hold(provider):
    shape = np.array([300, 4000])
    check(provider, node("ConstantOfShape", "s", value=np.array([7])), {"s": shape}, {"s": shape},
          references={"ConstantOfShape": lambda s, **_: np.full(s, 7)})  # fmt: skip


@pytest.mark.parametrize("dtype", [np.int64, np.float32], ids=lambda t: t.__name__)
def test_ranges_too_large_to_hold(provider, dtype):
    bounds = {n: np.array(v, dtype) for n, v in (("a", 3), ("b", 200000), ("c", 2))}
    check(provider, [node("Range", "a b c", "r"), node("Add", "r x", "y")], {"x": np.ones(1, dtype)}, bounds)
    check(provider, node("Range", "a b c"), {"x": np.ones(1, dtype)}, bounds)


@pytest.mark.parametrize("k", [0, 2, -3, 9])
def test_eye_like(provider, k):
    check(provider, node("EyeLike", "x", k=k), {"x": some(4, 6)}, references=definition("EyeLike"))


def test_bit_cast(provider):
    one = node("BitCast", "x", version=26, to=6)
    check(provider, one, {"x": some(3, 4)}, references={"BitCast": lambda x, **_: x.view(np.int32)})


@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("corners", [0, 1])
def test_grid_sample(provider, mode, padding, corners):
    one = node("GridSample", "x g", mode=mode, padding_mode=padding, align_corners=corners)
    for x, grid in ((some(2, 3, 5, 4), 1.5 * some(2, 4, 6, 2)), (some(1, 2, 3, 5, 4), 1.5 * some(1, 2, 3, 4, 3))):
        if mode != "cubic" or x.ndim == 4:
            check(provider, one, {"x": x, "g": grid})


def test_grid_sample_far_outside(provider):
    grid = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, 3, -3, 0], np.float32)
    grid = np.stack(np.meshgrid(grid, grid), -1)[None]
    for padding in ("zeros", "border", "reflection"):
        one = node("GridSample", "x g", mode="linear", padding_mode=padding)
        with np.errstate(invalid="ignore"):
            check(provider, one, {"x": some(1, 2, 4, 5), "g": grid}, references=definition("GridSample"))


VOLUMES = [
    {}, {"strides": [2, 1, 2], "pads": [1, 0, 2, 1, 1, 0]}, {"dilations": [2, 1, 2]}, {"auto_pad": "SAME_LOWER"},
]  # fmt: skip


@pytest.mark.parametrize("attributes", VOLUMES, ids=str)
@pytest.mark.parametrize(("channels", "outputs", "groups", "kernel"), [
    (3, 4, 1, (2, 2, 2)), (3, 9, 1, (2, 3, 2)), (3, 6, 3, (2, 2, 3)), (8, 8, 8, (3, 3, 2)), (5, 7, 1, (1, 1, 1)),
])  # fmt: skip
def test_conv_of_volumes(provider, attributes, channels, outputs, groups, kernel):
    x, w, b = some(2, channels, 5, 6, 7), some(outputs, channels // groups, *kernel), some(outputs)
    one = node("Conv", "x w b", group=groups, **attributes)
    check(provider, one, {"x": x}, {"w": w, "b": b})
    check(provider, one, {"x": x, "w": w, "b": b})


def test_a_stack_of_volumes(provider):
    nodes = [
        node("Conv", "x v", "a", pads=[1, 1, 1, 1, 1, 1]),
        node("Relu", "a", "b"),
        node("MaxPool", "b", "c", kernel_shape=[2, 2, 2], strides=[2, 2, 2]),
        node("Conv", "c w", "d"),
        node("GlobalAveragePool", "d", "y"),
    ]
    check(provider, nodes, {"x": some(1, 2, 6, 8, 6)}, {"v": some(8, 2, 3, 3, 3), "w": some(5, 8, 2, 2, 2)})


@pytest.mark.parametrize("attributes", [
    {}, {"strides": [2, 1, 2], "pads": [1, 0, 2, 1, 1, 0]}, {"strides": [2, 2, 2]}, {"dilations": [2, 1, 2]},
    {"strides": [1, 2, 3], "output_padding": [0, 1, 1]},
], ids=str)  # fmt: skip
@pytest.mark.parametrize("groups", [1, 3])
def test_transposed_conv_of_volumes(provider, attributes, groups):
    x, w, b = some(2, 3, 3, 4, 5), some(3, 4, 2, 2, 2), some(4 * groups)
    one = node("ConvTranspose", "x w b", group=groups, **attributes)
    check(provider, one, {"x": x}, {"w": w, "b": b})


POOLS = [
    {"kernel_shape": [2, 2, 2]}, {"kernel_shape": [3, 2, 2], "pads": [1, 0, 1, 1, 1, 0], "strides": [2, 1, 2]},
    {"kernel_shape": [3, 2, 2], "ceil_mode": 1, "strides": [2, 2, 3]},
    {"kernel_shape": [2, 2, 2], "auto_pad": "SAME_UPPER", "strides": [2, 2, 2]},
    {"kernel_shape": [2, 2, 2], "dilations": [2, 1, 2]},
]  # fmt: skip


@pytest.mark.parametrize("attributes", POOLS, ids=str)
def test_pools_of_volumes(provider, attributes):
    x = some(2, 3, 6, 7, 5)
    check(provider, node("MaxPool", "x", "y i", **attributes), {"x": x})
    check(provider, node("MaxPool", "x", **attributes), {"x": x})
    for include in (0, 1):
        one = node("AveragePool", "x", count_include_pad=include, **attributes)
        check(provider, one, {"x": x}, references=definition("AveragePool"))
    check(provider, node("LpPool", "x", version=18, p=3, **attributes), {"x": x}, references=definition("LpPool", 18))


@pytest.mark.parametrize("order", [0, 1])
def test_indices_of_maxima(provider, order):
    for shape, kernel in (((1, 2, 9), [3]), ((2, 3, 7, 8), [3, 2])):
        one = node("MaxPool", "x", "y i", kernel_shape=kernel, strides=[2] * len(kernel), storage_order=order)
        check(provider, one, {"x": some(*shape)})
