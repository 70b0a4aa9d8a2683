"""Softmax and normalisations through compiled programs, against onnxruntime and NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from .helpers import check, node, refusal

RNG = np.random.default_rng(13)


def some(*shape: int) -> np.ndarray:
    return RNG.uniform(-2, 2, shape).astype(np.float32)


@pytest.mark.parametrize("operator", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("version", [11, 13])
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("shape", [(3, 4, 5), (2, 17), (1, 1)], ids=str)
def test_softmax(provider, operator, version, axis, shape):
    attributes = {} if axis is None else {"axis": axis}
    check(provider, node(operator, "x", version=version, **attributes), {"x": some(*shape)})


def test_softmax_of_large_numbers(provider):
    check(provider, node("Softmax", "x"), {"x": np.array([[1000, 999, -1000], [-np.inf, 0, 0]], np.float32)})


@pytest.mark.parametrize(("shape", "axis"), [((3, 4, 17), -1), ((3, 4, 5), 1), ((2, 64), 1)])
@pytest.mark.parametrize("inputs", ["x s", "x s b"])
def test_layer_normalization(provider, shape, axis, inputs):
    rest = shape[axis:]
    one = node("LayerNormalization", inputs, axis=axis, epsilon=1e-3)
    check(provider, one, {"x": some(*shape)}, {n: some(*rest) for n in one.inputs[1:]})


def test_layer_normalization_with_statistics(provider):
    one = node("LayerNormalization", "x s b", "y mean inverse")
    check(provider, one, {"x": some(3, 9)}, {"s": some(9), "b": some(9)})


def rms(x, scale, *, epsilon=1e-5, axis=-1):
    return (x / np.sqrt((x * x).mean(axis, keepdims=True) + np.float32(epsilon)) * scale).astype(np.float32)


def layer(x, scale, bias=0, epsilon=1e-12):
    d = x - x.mean(-1, keepdims=True)
    return (d / np.sqrt((d * d).mean(-1, keepdims=True) + np.float32(epsilon)) * scale + bias).astype(np.float32)


def test_rms_normalization(provider):
    one = node("RMSNormalization", "x s", version=23, axis=-1)
    check(provider, one, {"x": some(2, 5, 24)}, {"s": some(24)}, references={"RMSNormalization": rms})


@pytest.mark.parametrize("outputs", ["y", "y - - t"])
def test_skip_layer_normalization(provider, outputs):
    def reference(x, skip, scale, bias, epsilon=1e-12):
        return [layer(x + skip, scale, bias, epsilon), np.empty(0), np.empty(0), x + skip]

    one = node("SkipLayerNormalization", "x k s b", outputs, domain="com.microsoft", version=1, epsilon=1e-6)
    feeds = {"x": some(2, 3, 20), "k": some(2, 3, 20)}
    check(provider, one, feeds, {"s": some(20), "b": some(20)}, references={"SkipLayerNormalization": reference})


def test_skip_simplified_layer_normalization(provider):
    def reference(x, skip, scale, epsilon=1e-12):
        return [rms(x + skip, scale, epsilon=epsilon)]

    one = node("SkipSimplifiedLayerNormalization", "x k s", domain="com.microsoft", version=1, epsilon=1e-6)
    feeds = {"x": some(2, 3, 20), "k": some(2, 3, 20)}
    check(provider, one, feeds, {"s": some(20)}, references={"SkipSimplifiedLayerNormalization": reference})


@pytest.mark.parametrize("shape", [(2, 5, 7), (1, 4, 5, 6), (2, 3, 1, 1)], ids=str)
def test_instance_normalization(provider, shape):
    one = node("InstanceNormalization", "x s b", epsilon=1e-3)
    check(provider, one, {"x": some(*shape)}, {"s": some(shape[1]), "b": some(shape[1])}, atol=1e-4)


def test_group_normalization(provider):
    one = node("GroupNormalization", "x s b", num_groups=3, version=21)
    check(provider, one, {"x": some(2, 6, 5, 7)}, {"s": some(6), "b": some(6)})


@pytest.mark.parametrize("shape", [(2, 5), (2, 5, 7), (1, 4, 5, 6)], ids=str)
def test_batch_normalization(provider, shape):
    channels = shape[1]
    constants = {"s": some(channels), "b": some(channels), "m": some(channels), "v": np.abs(some(channels)) + 0.1}
    constants["v"] = constants["v"].astype(np.float32)
    check(provider, node("BatchNormalization", "x s b m v", epsilon=1e-3), {"x": some(*shape)}, constants)


def test_batch_normalization_with_computed_statistics_is_refused(provider):
    feeds = {"x": some(2, 3, 4), **{n: np.abs(some(3)) for n in "sbmv"}}
    assert refusal(provider, node("BatchNormalization", "x s b m v"), feeds) == "its statistics must be constant"
