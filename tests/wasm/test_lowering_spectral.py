"""Fourier transforms, and sums of windows, through compiled programs, against NumPy and onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

from .helpers import check, node, refusal
from .test_lowering_types import definition

RNG = np.random.default_rng(43)


def some(*shape: int) -> np.ndarray:
    return RNG.uniform(-1, 1, shape).astype(np.float32)


@pytest.mark.parametrize("onesided", [0, 1])
@pytest.mark.parametrize("batch", [1, 3])
def test_stft(provider, onesided, batch):
    feeds = {"x": some(batch, 100, 1)}
    one = node("STFT", "x s w", version=17, onesided=onesided)
    check(provider, one, feeds, {"s": np.array(7), "w": some(16)}, references=definition("STFT"))
    one = node("STFT", "x s - n", version=17, onesided=onesided)
    check(provider, one, feeds, {"s": np.array(16), "n": np.array(33)}, references=definition("STFT"))


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("inverse", [0, 1])
@pytest.mark.parametrize("length", [None, 5, 12])
@pytest.mark.parametrize("axis", [0, 1, -2])
def test_dft(provider, parts, inverse, length, axis):
    x, names, constants = some(2, 8, 3, parts), "x - a", {"a": np.array(axis)}
    if length is not None:
        names, constants = "x n a", constants | {"n": np.array(length)}
    references = definition("DFT")
    check(provider, node("DFT", names, inverse=inverse), {"x": x}, constants, references=references)
    if parts == 1 + inverse:
        check(provider, node("DFT", names, inverse=inverse, onesided=1), {"x": x}, constants, references=references)


def test_dft_before_opset_20(provider):
    one = node("DFT", "x", version=17, axis=2, onesided=1)
    check(provider, one, {"x": some(2, 3, 9, 1)}, references=definition("DFT", 17))


def test_long_transforms_stay(provider):
    reason = refusal(provider, node("DFT", "x"), {"x": some(1, 4000, 1)}, references=definition("DFT"))
    assert reason == "a transform of 4000 elements has no kernel"


COLUMNS = [
    ((2, 12, 20), [6, 5], [2, 2], {}),
    ((2, 12, 9), [6, 5], [2, 2], {"pads": [0, 1, 0, 1], "strides": [2, 2]}),
    ((1, 18, 12), [6, 5], [3, 3], {"dilations": [2, 1], "pads": [0, 1, 1, 0]}),
    ((1, 16, 24), [3, 4, 5], [2, 2, 2], {}),
    ((2, 6, 4), [6], [3], {}),
]


@pytest.mark.parametrize("case", COLUMNS, ids=str)
def test_col2im(provider, case):
    shape, image, block, attributes = case
    constants = {"s": np.array(image), "b": np.array(block)}
    check(provider, node("Col2Im", "x s b", **attributes), {"x": some(*shape)}, constants)


@pytest.mark.parametrize("p", [1, 2])
def test_global_lp_pool(provider, p):
    check(provider, node("GlobalLpPool", "x", p=p), {"x": some(2, 3, 4, 5)})


@pytest.mark.parametrize("activation", ["none", "silu"])
def test_causal_conv_with_state(provider, activation):
    references = definition("CausalConvWithState", 27)
    feeds = {"x": some(2, 3, 6), "w": some(3, 1, 4)}
    one = node("CausalConvWithState", "x w", "y s", version=27, activation=activation)
    check(provider, one, feeds, references=references)
    one = node("CausalConvWithState", "x w b p", "y s", version=27, activation=activation)
    check(provider, one, {**feeds, "b": some(3), "p": some(2, 3, 3)}, references=references)
