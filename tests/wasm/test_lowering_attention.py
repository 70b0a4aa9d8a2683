"""Attention and other operators that are written out as several, against the NumPy definitions."""

from __future__ import annotations

import numpy as np
import pytest

from onnxlet.ops.registry import find

from .helpers import check, node, refusal

RNG = np.random.default_rng(43)
MICROSOFT = "com.microsoft"


def some(*shape: int) -> np.ndarray:
    return RNG.uniform(-1, 1, shape).astype(np.float32)


def definition(operator: str, version: int = 23, domain: str = ""):
    found = find(operator, domain, version)
    assert found is not None, operator
    return {operator: found.function}


@pytest.mark.parametrize("heads", [(4, 4), (6, 2)], ids=str)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("attributes", [{}, {"is_causal": 1}, {"scale": 0.3, "softcap": 2.0}], ids=str)
@pytest.mark.parametrize("mask", [None, "bool", "float"])
def test_attention(provider, heads, packed, attributes, mask):
    queries, keys, size = 5, 7, 8
    many, few = heads
    feeds = {"q": some(2, many, queries, size), "k": some(2, few, keys, size), "v": some(2, few, keys, 6)}
    attributes = dict(attributes)
    if packed:
        feeds = {n: x.transpose(0, 2, 1, 3).reshape(2, x.shape[2], -1).copy() for n, x in feeds.items()}
        attributes |= {"q_num_heads": many, "kv_num_heads": few}
    if mask == "bool":
        feeds["m"] = RNG.random((2, 1, queries, keys)) > 0.4
        feeds["m"][0, 0, 2] = False  # a query that sees no key
    elif mask == "float":
        feeds["m"] = some(queries, keys)
    one = node("Attention", "q k v" + " m" * (mask is not None), version=23, **attributes)
    check(provider, one, feeds, references=definition("Attention"))


def test_attention_with_a_cache(provider):
    feeds = {"q": some(1, 4, 2, 8), "k": some(1, 4, 2, 8), "v": some(1, 4, 2, 8), "pk": some(1, 4, 5, 8),
             "pv": some(1, 4, 5, 8)}  # fmt: skip
    one = node("Attention", "q k v - pk pv", "y nk nv", version=23, is_causal=1)
    check(provider, one, feeds, references=definition("Attention"))


@pytest.mark.parametrize("mask", [None, "lengths", "bounds", 2, 3])
@pytest.mark.parametrize(
    "attributes", [{}, {"unidirectional": 1}, {"qkv_hidden_sizes": [12, 12, 24], "scale": 0.2}], ids=str
)
def test_attention_with_projection(provider, mask, attributes):
    width = sum(attributes.get("qkv_hidden_sizes", [16] * 3))
    feeds = {"x": some(2, 5, 10)}
    if mask == "lengths":
        feeds["m"] = np.array([5, 2], np.int32)
    elif mask == "bounds":  # ends, then starts
        feeds["m"] = np.array([5, 4, 0, 2], np.int32)
    elif mask:
        feeds["m"] = (RNG.random((2, 5) if mask == 2 else (2, 5, 5)) > 0.3).astype(np.int32)
    one = node("Attention", "x w b" + " m" * bool(mask), domain=MICROSOFT, version=1, num_heads=4, **attributes)
    check(provider, one, feeds, {"w": some(10, width), "b": some(width)},
          references=definition("Attention", 1, MICROSOFT))  # fmt: skip


@pytest.mark.parametrize("inputs", ["q k v", "q k v b", "q k v b m", "q k v - - s", "q k v b - - pk pv"])
def test_multi_head_attention(provider, inputs):
    values = {n: some(2, 5, 16) for n in ("k", "v")} | {n: some(2, 4, 2, 4) for n in ("pk", "pv")}
    values |= {"q": some(2, 3, 16), "b": some(48), "s": some(1, 4, 3, 5)}
    values["m"] = (RNG.random((2, 5)) > 0.3).astype(np.int32)
    outputs = "y nk nv" if "pk" in inputs else "y"
    one = node("MultiHeadAttention", inputs, outputs, domain=MICROSOFT, version=1, num_heads=4)
    feeds = {n: values[n] for n in one.inputs if n}
    function = definition("MultiHeadAttention", 1, MICROSOFT)["MultiHeadAttention"]
    check(provider, one, feeds, references={"MultiHeadAttention": function})


@pytest.mark.parametrize("operator", ["SkipLayerNormalization", "SkipSimplifiedLayerNormalization"])
def test_skip_with_bias(provider, operator):
    inputs = "x k s b c" if operator == "SkipLayerNormalization" else "x k s c"
    one = node(operator, inputs, domain=MICROSOFT, version=1, epsilon=1e-5)
    constants = {n: some(20) for n in one.inputs[2:]}
    check(provider, one, {"x": some(2, 3, 20), "k": some(2, 3, 20)}, constants,
          references=definition(operator, 1, MICROSOFT))  # fmt: skip


def test_group_normalization_with_a_scale_per_group(provider):
    one = node("GroupNormalization", "x s b", num_groups=3, version=18)
    check(provider, one, {"x": some(2, 6, 5, 7)}, {"s": some(3), "b": some(3)},
          references=definition("GroupNormalization", 18))  # fmt: skip


def test_refusals(provider):
    feeds = {"q": some(1, 2, 3, 4), "k": some(1, 2, 3, 4), "v": some(1, 2, 3, 4)}
    windowed = node("Attention", "q k v", version=25, left_window_size=2)
    assert "window" in (refusal(provider, windowed, feeds, references=definition("Attention", 25)) or "")
