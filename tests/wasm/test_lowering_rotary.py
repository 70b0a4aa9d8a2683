"""Rotary positions, attention over caches, Einsum, and regions of images, through compiled programs, against their
NumPy definitions and onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxlet.errors import NodeError

from .helpers import check, make_segment, node, refusal
from .test_lowering_types import definition

RNG = np.random.default_rng(37)
MICROSOFT = "com.microsoft"


def some(*shape: int) -> np.ndarray:
    return RNG.uniform(-1, 1, shape).astype(np.float32)


@pytest.mark.parametrize("interleaved", [0, 1])
def test_rotary_embedding(provider, interleaved):
    references = definition("RotaryEmbedding", 23)
    four, three, places = some(2, 3, 4, 8), some(2, 4, 24), RNG.integers(0, 10, (2, 4))
    cases: list[tuple[dict[str, np.ndarray], dict[str, int]]] = [
        ({"x": four, "c": some(10, 4), "s": some(10, 4), "p": places}, {}),
        ({"x": four, "c": some(2, 4, 4), "s": some(2, 4, 4)}, {}),
        ({"x": three, "c": some(2, 4, 4), "s": some(2, 4, 4)}, {"num_heads": 3}),
        ({"x": three, "c": some(10, 2), "s": some(10, 2), "p": places}, {"num_heads": 3, "rotary_embedding_dim": 4}),
    ]
    for feeds, attributes in cases:
        one = node("RotaryEmbedding", " ".join(feeds), version=23, interleaved=interleaved, **attributes)
        check(provider, one, feeds, references=references)


@pytest.mark.parametrize("interleaved", [0, 1])
def test_rotary_embedding_of_onnxruntime(provider, interleaved):
    references = definition("RotaryEmbedding", 1, MICROSOFT)
    for places in (RNG.integers(0, 10, (2, 4)), np.array([3])):
        for x in (some(2, 3, 4, 8), some(2, 4, 24)):
            feeds = {"x": x, "p": places, "c": some(10, 4), "s": some(10, 4)}
            one = node("RotaryEmbedding", "x p c s", domain=MICROSOFT, version=1, interleaved=interleaved)
            check(provider, one, feeds, references=references)


def test_a_position_without_angles_is_an_error(provider):
    feeds = {"x": some(1, 1, 2, 4), "c": some(3, 2), "s": some(3, 2), "p": np.array([[0, 1]])}
    one = node("RotaryEmbedding", "x c s p", version=23)
    segment, _ = make_segment([one], feeds, {}, ["y"], definition("RotaryEmbedding", 23))
    program = provider.compile(segment)
    for wrong in (3, -1):
        with pytest.raises(NodeError, match="out of bounds"):
            program.run([feeds["x"], feeds["c"], feeds["s"], np.array([[0, wrong]])])


# Batch, new tokens, total length, length of the cache, lengths less one, attributes, inputs left out or added.
CACHES: list[tuple[int, int, int, int, list[int], dict[str, Any], str]] = [
    (2, 5, 5, 0, [4, 4], {}, ""),
    (2, 5, 5, 0, [4, 4], {"do_rotary": 1}, ""),
    (2, 5, 5, 9, [4, 4], {}, ""),
    (2, 1, 6, 5, [5, 3], {}, ""),
    (2, 1, 6, 10, [5, 3], {"do_rotary": 1}, ""),
    (2, 3, 6, 10, [5, 3], {"do_rotary": 1, "rotary_interleaved": 1, "local_window_size": 2}, ""),
    (1, 2, 6, 4, [5], {"softcap": 2.0, "scale": 0.3}, ""),
    (1, 2, 6, 4, [5], {}, "bias"),
    (1, 2, 6, 4, [5], {"do_rotary": 1}, "packed"),
    (2, 1, 6, 10, [5, 3], {"do_rotary": 1}, "positions"),
    (2, 3, 6, 10, [5, 3], {"causal": 0}, ""),
]


@pytest.mark.parametrize("case", CACHES, ids=str)
def test_group_query_attention(provider, case):
    batch, length, total, past, lengths, attributes, special = case
    heads, shared, size = 4, 2, 8
    feeds = {"q": some(batch, length, heads * size), "k": some(batch, length, shared * size)}
    feeds["v"] = some(batch, length, shared * size)
    names = "q k v"
    if special == "packed":
        feeds, names = {"q": some(batch, length, (heads + 2 * shared) * size)}, "q - -"
    if past:
        feeds |= {"a": some(batch, shared, past, size), "b": some(batch, shared, past, size)}
    names += " a b l t c s" if past else " - - l t c s"
    feeds |= {"l": np.array(lengths, np.int32), "c": some(16, size // 2), "s": some(16, size // 2)}
    if special == "positions":
        feeds["p"], names = RNG.integers(0, 16, (batch, length)), f"{names} p"
    if special == "bias":
        feeds["z"], names = some(batch, 1, length, total), f"{names} - z"
    one = node("GroupQueryAttention", names, "y e f", domain=MICROSOFT, version=1, num_heads=heads,
               kv_num_heads=shared, **attributes)  # fmt: skip
    check(provider, one, feeds, {"t": np.array([total], np.int32)}, atol=1e-5,
          references=definition("GroupQueryAttention", 1, MICROSOFT))  # fmt: skip


def test_lengths_that_leave_no_room_are_an_error(provider):
    feeds = {n: some(1, 2, 8) for n in "qkv"} | {"l": np.array([3], np.int32)}
    feeds |= {"a": some(1, 1, 4, 8), "b": some(1, 1, 4, 8)}
    one = node(
        "GroupQueryAttention", "q k v a b l t", "y e f", domain=MICROSOFT, version=1, num_heads=1, kv_num_heads=1
    )
    references = definition("GroupQueryAttention", 1, MICROSOFT)
    segment, _ = make_segment([one], feeds, {"t": np.array([4], np.int32)}, ["y", "e", "f"], references)
    program = provider.compile(segment)
    for wrong in (0, 4):
        with pytest.raises(NodeError, match="out of bounds"):
            program.run([np.array([wrong], np.int32) if n == "l" else feeds[n] for n in segment.inputs])


@pytest.mark.parametrize("mode", ["linear", "circular"])
def test_tensor_scatter(provider, mode):
    references = definition("TensorScatter", 24)
    first = np.array([1, 4]) if mode == "linear" else np.array([5, 4])
    feeds = {"x": some(2, 3, 6, 4), "u": some(2, 3, 2, 4), "i": first}
    check(provider, node("TensorScatter", "x u i", version=24, mode=mode), feeds, references=references)
    feeds = {"x": some(2, 6, 4), "u": some(2, 2, 4)}
    check(provider, node("TensorScatter", "x u", version=24, mode=mode, axis=1), feeds, references=references)


EQUATIONS = [
    ("ij,jk->ik", (3, 4), (4, 5)),
    ("bhid,bhjd->bhij", (2, 3, 4, 5), (2, 3, 6, 5)),
    ("bhij,bhjd->bhid", (2, 3, 4, 5), (2, 3, 5, 6)),
    ("bthd,bshd->bhts", (2, 5, 3, 4), (2, 6, 3, 4)),
    ("ij->ji", (3, 4)),
    ("ij->", (3, 4)),
    ("ij->i", (3, 4)),
    ("i,j->ij", (3,), (4,)),
    ("i, i ->", (4,), (4,)),
    ("i,i->i", (4,), (4,)),
    ("ij,jk", (3, 4), (4, 5)),
    ("kj,ij", (3, 4), (5, 4)),
    ("ij,jk,kl->il", (3, 4), (4, 5), (5, 2)),
    ("...ij,...jk->...ik", (2, 3, 4), (2, 4, 5)),
    ("...ij,jk->...ik", (2, 7, 3, 4), (4, 5)),
    ("b...,b->...", (3, 4, 5), (3,)),
    ("b...,b", (3, 4, 5), (3,)),
    ("abc,cd,a->db", (2, 3, 4), (4, 5), (2,)),
    ("bhwc,hkc->bhwk", (2, 3, 4, 5), (3, 6, 5)),
    ("ji,jk->ik", (4, 3), (4, 5)),
    ("ij,kj->", (3, 4), (5, 4)),
    ("nctkv,kvw->nctw", (2, 3, 4, 3, 5), (3, 5, 5)),
]


@pytest.mark.parametrize("case", EQUATIONS, ids=lambda c: c[0])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64], ids=lambda t: t.__name__)
def test_einsum(provider, case, dtype):
    equation, *shapes = case
    feeds = {n: (9 * some(*s)).astype(dtype) for n, s in zip("abc", shapes, strict=False)}
    references = {"Einsum": lambda *xs, equation: np.einsum(equation, *xs)}
    one = node("Einsum", " ".join(feeds), equation=equation)
    check(provider, one, feeds, rtol=1e-4, atol=1e-4, references=references)
    (name, weights) = feeds.popitem()
    if feeds:
        check(provider, one, feeds, {name: weights}, rtol=1e-4, atol=1e-4, references=references)


def test_einsum_of_a_diagonal_stays(provider):
    reason = refusal(provider, node("Einsum", "a", equation="ii->i"), {"a": some(3, 3)})
    assert reason == "an Einsum of a diagonal has no kernel"


@pytest.mark.parametrize("inside", [(1, 0), (0, 1), (1, 1)], ids=str)
@pytest.mark.parametrize("swapped", [(0, 0), (1, 1)], ids=str)
def test_products_of_inner_stacks(provider, inside, swapped):
    shapes = [[2, 3, 4, 5], [2, 3, 5, 6]]
    for i in (0, 1):
        if swapped[i]:
            shapes[i][2:] = shapes[i][:1:-1]
        if inside[i]:
            shapes[i] = [shapes[i][2], *shapes[i][:2], shapes[i][3]]
    one = node("FusedMatMul", "a b", domain=MICROSOFT, version=1, transBatchA=inside[0], transBatchB=inside[1],
               transA=swapped[0], transB=swapped[1], alpha=0.5)  # fmt: skip
    check(
        provider,
        one,
        {"a": some(*shapes[0]), "b": some(*shapes[1])},
        references=definition("FusedMatMul", 1, MICROSOFT),
    )


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("version", [10, 16])
def test_roi_align(provider, mode, version):
    rois = np.abs(some(5, 4)) * 8
    rois[:, 2:] += rois[:, :2]
    feeds = {"x": some(2, 3, 10, 9), "r": rois, "b": RNG.integers(0, 2, 5)}
    one = node("RoiAlign", "x r b", version=version, mode=mode, output_height=3, output_width=2, spatial_scale=0.7)
    check(provider, one, feeds, references=definition("RoiAlign", version))
