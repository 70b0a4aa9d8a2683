"""Operators of com.microsoft made of standard ones, through compiled programs, against their NumPy definitions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxlet.errors import NodeError

from .helpers import check, make_segment, node
from .test_lowering_types import definition

RNG = np.random.default_rng(41)
MICROSOFT = "com.microsoft"


def some(*shape: int) -> np.ndarray:
    return RNG.uniform(-1, 1, shape).astype(np.float32)


def numbers(high: int, *shape: int) -> np.ndarray:
    return RNG.integers(0, high, shape).astype(np.int32)


def agree(provider, operator: str, inputs: str, feeds: dict[str, np.ndarray], outputs: str = "y", **attributes: Any):
    one = node(operator, inputs, outputs, domain=MICROSOFT, version=1, **attributes)
    constants = {n: feeds.pop(n) for n in [*feeds] if n.isupper()}
    check(provider, one, feeds, constants, references=definition(operator, 1, MICROSOFT), atol=1e-5)


def test_embeddings(provider):
    tables = {"e": some(9, 8), "p": some(7, 8), "g": some(8), "b": some(8)}
    words = {"w": numbers(9, 2, 5)}
    segments = {"s": numbers(2, 2, 5), "t": some(2, 8), "m": numbers(2, 2, 5)}
    agree(provider, "EmbedLayerNormalization", "w s e p t g b m", words | tables | segments, "y n z")
    agree(provider, "EmbedLayerNormalization", "w - e p - g b", words | tables, "y n", epsilon=1e-5)
    agree(provider, "EmbedLayerNormalization", "w - e p - g b - i", words | tables | {"i": numbers(7, 2, 5)})


@pytest.mark.parametrize("wrong", [-1, 9])
def test_a_word_that_no_table_has_is_an_error(provider, wrong):
    feeds = {"w": numbers(9, 1, 2), "e": some(9, 8), "p": some(7, 8), "g": some(8), "b": some(8)}
    one = node("EmbedLayerNormalization", "w - e p - g b", domain=MICROSOFT, version=1)
    segment, _ = make_segment([one], feeds, {}, ["y"], definition("EmbedLayerNormalization", 1, MICROSOFT))
    with pytest.raises(NodeError, match="out of bounds"):
        provider.compile(segment).run([np.array([[0, wrong]], np.int32), *[*feeds.values()][1:]])


@pytest.mark.parametrize(("bias", "axis", "inner"), [((2, 1, 1, 5), 3, 1), ((4, 5), 2, 0), ((2, 5), 3, 1)], ids=str)
def test_bias_softmax(provider, bias, axis, inner):
    feeds = {"x": some(2, 3, 4, 5), "b": some(*bias)}
    agree(provider, "BiasSoftmax", "x b", feeds, axis=axis, is_inner_broadcast=inner)


@pytest.mark.parametrize("activation", [0, 1])
@pytest.mark.parametrize("last", [0, 1])
def test_group_norm(provider, activation, last):
    shape = (2, 4, 5, 6) if last else (2, 6, 4, 5)
    how = {"activation": activation, "channels_last": last, "groups": 3}
    feeds = {"x": some(*shape), "s": some(6), "b": some(6)}
    agree(provider, "GroupNorm", "x s b", dict(feeds), **how)
    agree(provider, "SkipGroupNorm", "x s b k d", {**feeds, "k": some(*shape), "d": some(6)}, "y z", **how)
    agree(provider, "SkipGroupNorm", "x s b k", {**feeds, "k": some(2, 6)}, **how)


def test_small_ones(provider):
    agree(provider, "BiasAdd", "x b s", {"x": some(2, 3, 4), "b": some(4), "s": some(2, 3, 4)})
    agree(provider, "BiasSplitGelu", "x b", {"x": some(2, 3, 8), "b": some(8)})
    agree(provider, "GemmFastGelu", "x w b", {"x": some(2, 3, 4), "w": some(4, 5), "b": some(5)})
    agree(provider, "GemmFastGelu", "x W", {"x": some(2, 3, 4), "W": some(4, 5)})
    agree(provider, "TransposeMatMul", "a b", {"a": some(4, 3), "b": some(4, 5)}, transA=1, alpha=0.5)
    agree(provider, "FusedMatMulActivation", "a b", {"a": some(3, 4), "b": some(4, 5)}, activation="Relu")
    agree(provider, "ScaledSiLU", "x", {"x": some(3, 4)}, alpha=0.7)
    agree(provider, "ScaledSiLU", "x s", {"x": some(3, 4), "s": some(1)})
    agree(provider, "Pad", "x P", {"x": some(3, 4), "P": np.array([1, 0, 2, 1])})
    agree(provider, "GatherND", "x i", {"x": some(3, 4), "i": np.array([[0], [2]])})
    agree(provider, "Trilu", "x", {"x": some(3, 4)})
    agree(provider, "ExpandDims", "x A", {"x": some(3, 4), "A": np.array(-1, np.int32)})


def test_channels_last(provider):
    x, w, b, z = some(2, 7, 8, 3), some(4, 3, 3, 3), some(4), some(2, 7, 8, 4)
    pads = [1, 1, 1, 1]
    agree(provider, "NhwcConv", "x W B", {"x": x, "W": w, "B": b}, pads=pads)
    agree(provider, "NhwcFusedConv", "x w b z", {"x": x, "w": w, "b": b, "z": z}, pads=pads, activation="Relu")
    agree(provider, "NhwcMaxPool", "x", {"x": x}, kernel_shape=[2, 3], strides=[2, 1])
    agree(provider, "NhwcMaxPool", "x", {"x": numbers(200, 2, 7, 8, 3).astype(np.uint8)}, kernel_shape=[2, 2])
