"""Attention with a cache of any length reads keys and values where they are, before each head is repeated."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import onnxlet

from .models import FLOAT, INT64, model, node
from .test_rewrites import agree, normal

HEADS, SHARED, SIZE = 6, 2, 8


def cached(spread: str = "Expand", outputs: tuple[Any, ...] = ()) -> onnx.ModelProto:
    """Queries attend to a cache whose keys and values each serve three heads; only a run tells that `like` is as long
    as the cache."""

    def repeated(name: str) -> list[onnx.NodeProto]:
        spreading = node(spread, [f"{name}1", "shape" if spread == "Expand" else "times"], [f"{name}2"])
        return [
            node("Unsqueeze", [name, "two"], [f"{name}1"]), spreading,
            node("Reshape", [f"{name}2", "joined"], [f"{name}3"]),
        ]  # fmt: skip

    return model(
        [
            node("Shape", ["like"], ["rows"]), node("Concat", ["front", "rows", "size"], ["shape"], axis=0),
            node("Concat", ["all", "rows", "size"], ["joined"], axis=0),
            *repeated("k"), *repeated("v"), node("Transpose", ["k3"], ["kt"], perm=[0, 1, 3, 2]),
            node("MatMul", ["q", "kt"], ["s"]), node("Softmax", ["s"], ["w"]), node("MatMul", ["w", "v3"], ["y"]),
        ],
        [("q", FLOAT, [1, HEADS, "n", SIZE]), ("k", FLOAT, [1, SHARED, "past", SIZE]),
         ("v", FLOAT, [1, SHARED, "past", SIZE]), ("like", FLOAT, ["l"])],
        [("y", FLOAT, [1, HEADS, "n", SIZE]), *outputs],
        {"two": np.array([2]), "size": np.array([SIZE]),
         "front": np.array([1, SHARED, HEADS // SHARED]), "all": np.array([1, HEADS]),
         "times": np.array([1, 1, HEADS // SHARED, 1, 1])},
    )  # fmt: skip


def values(past: int, length: int | None = None) -> dict[str, np.ndarray]:
    like = normal(past if length is None else length)
    return {"q": normal(1, HEADS, 3, SIZE), "k": normal(1, SHARED, past, SIZE), "v": normal(1, SHARED, past, SIZE),
            "like": like}  # fmt: skip


def steps(made: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[str]:
    with onnxlet.InferenceSession(made) as session:
        session.run(None, feeds)
        return [row.operator for row in session.explain().rows if row.provider != "plan"]


@pytest.mark.parametrize("spread", ["Expand", "Tile"])
def test_heads_are_read_where_they_are(spread: str):
    made = cached(spread)
    assert steps(made, values(7)) == ["ai.onnxlet::FusedAttention"]
    for past in (7, 1, 20):
        agree(made, **values(past))


def test_one_key_that_is_repeated_too():
    """The heads are repeated, and so is the only key: what is repeated must be made."""
    made, feeds = cached(), values(1, 4)
    assert "Expand" in steps(made, feeds)
    agree(made, **feeds)


def test_what_is_read_elsewhere_is_made():
    made = cached(outputs=(("k2", FLOAT, [1, SHARED, "r", "p", SIZE]),))
    assert steps(made, values(5)).count("Expand") == 1
    agree(made, **values(5))


def test_attention_of_opset_23():
    made = model(
        [
            node("Unsqueeze", ["k", "two"], ["k1"]), node("Expand", ["k1", "shape"], ["k2"]),
            node("Reshape", ["k2", "joined"], ["k3"]), node("Attention", ["q", "k3", "k3"], ["y"]),
        ],
        [("q", FLOAT, [1, HEADS, "n", SIZE]), ("k", FLOAT, [1, SHARED, "past", SIZE]), ("shape", INT64, [5]),
         ("joined", INT64, [4])],
        [("y", FLOAT, [1, HEADS, "n", SIZE])], {"two": np.array([2])}, opset=23,
    )  # fmt: skip
    shapes = {"shape": np.array([1, SHARED, HEADS // SHARED, 5, SIZE]), "joined": np.array([1, HEADS, 5, SIZE])}
    feeds = {"q": normal(1, HEADS, 3, SIZE), "k": normal(1, SHARED, 5, SIZE), **shapes}
    agree(made, **feeds)
