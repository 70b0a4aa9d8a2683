"""Attention out of elementary operators: the forms of exporters, and what looks like it but is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from .models import BOOL, FLOAT, model, node
from .test_rewrites import agree, normal, operators

BATCH, HEADS, QUERIES, KEYS, SIZE = 2, 4, 5, 7, 8
WIDTH = HEADS * SIZE
SPLIT = np.array([0, 0, HEADS, SIZE])
JOIN = np.array([0, 0, WIDTH])


def attention_model(
    scores: list[onnx.NodeProto],
    constants: dict[str, Any],
    *,
    weights: list[onnx.NodeProto] | None = None,
    inputs: tuple[Any, ...] = (),
    outputs: tuple[Any, ...] = (),
    key_perm: tuple[int, ...] = (0, 2, 3, 1),
    opset: int = 21,
    axis: int = -1,
) -> onnx.ModelProto:
    """Heads are split off by Reshape and Transpose; `scores` leads from "qh" and "kt" to "s", `weights` from "w" to
    "p"."""
    nodes = [
        node("Reshape", ["q", "split"], ["q4"]), node("Transpose", ["q4"], ["qh"], perm=[0, 2, 1, 3]),
        node("Reshape", ["k", "split"], ["k4"]), node("Transpose", ["k4"], ["kt"], perm=key_perm),
        node("Reshape", ["v", "split"], ["v4"]), node("Transpose", ["v4"], ["vh"], perm=[0, 2, 1, 3]),
        *scores, node("Softmax", ["s"], ["w"], axis=axis), *(weights or [node("Dropout", ["w"], ["p"])]),
        node("MatMul", ["p", "vh"], ["yh"]), node("Transpose", ["yh"], ["yt"], perm=[0, 2, 1, 3]),
        node("Reshape", ["yt", "join"], ["y"]),
    ]  # fmt: skip
    given = [("q", FLOAT, ["b", "m", WIDTH]), ("k", FLOAT, ["b", "n", WIDTH]), ("v", FLOAT, ["b", "n", WIDTH])]
    return model(
        nodes, [*given, *inputs], [("y", FLOAT, ["b", "m", WIDTH]), *outputs],
        {"split": SPLIT, "join": JOIN, **constants}, opset=opset,
    )  # fmt: skip


def feeds(**more: np.ndarray) -> dict[str, np.ndarray]:
    return {
        "q": normal(BATCH, QUERIES, WIDTH),
        "k": normal(BATCH, KEYS, WIDTH),
        "v": normal(BATCH, KEYS, WIDTH),
        **more,
    }


PRODUCT = node("MatMul", ["qh", "kt"], ["qk"])
FUSED = ["Reshape", "Reshape", "Reshape", "FusedAttention", "Reshape"]
KEPT = np.random.default_rng(3).random((BATCH, 1, QUERIES, KEYS)) > 0.3
KEPT[..., 0] = True
BIAS = ("bias", FLOAT, ["b", 1, "m", "n"])
SEEN = ("seen", BOOL, ["b", 1, "m", "n"])

FORMS: dict[str, tuple[list[onnx.NodeProto], dict[str, Any], tuple[Any, ...], dict[str, np.ndarray]]] = {
    "BERT": (
        [PRODUCT, node("Div", ["qk", "root"], ["d"]), node("Add", ["d", "bias"], ["s"])],
        {"root": np.float32(8**0.5)}, (BIAS,), {"bias": np.where(KEPT, 0, -10000).astype(np.float32)},
    ),
    "mask first": (
        [PRODUCT, node("Mul", ["root", "qk"], ["d"]), node("Add", ["bias", "d"], ["s"])],
        {"root": np.float32(8**-0.5)}, (BIAS,), {"bias": np.where(KEPT, 0, -np.inf).astype(np.float32)},
    ),
    "scales on both sides": (
        [node("Mul", ["qh", "root"], ["a"]), node("Mul", ["kt", "root"], ["b"]), node("MatMul", ["a", "b"], ["s"])],
        {"root": np.array([8**-0.25], np.float32)}, (), {},
    ),
    "GPT-2": (
        [PRODUCT, node("Div", ["qk", "root"], ["d"]), node("Where", ["seen", "d", "low"], ["s"])],
        {"root": np.float32(8**0.5), "low": np.float32(np.finfo(np.float32).min)}, (SEEN,), {"seen": KEPT},
    ),
    "masked_fill": (
        [PRODUCT, node("Where", ["seen", "low", "qk"], ["s"])],
        {"low": np.float32(-np.inf)}, (SEEN,), {"seen": ~KEPT},
    ),
    "bias and mask": (
        [PRODUCT, node("Add", ["qk", "bias"], ["d"]), node("Where", ["seen", "d", "low"], ["s"])],
        {"low": np.float32(-1e4)}, (SEEN, BIAS), {"seen": KEPT, "bias": normal(BATCH, 1, QUERIES, KEYS)},
    ),
    "no scale": ([node("MatMul", ["qh", "kt"], ["s"])], {}, (), {}),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_exporters(form: str):
    scores, constants, inputs, more = FORMS[form]
    made = attention_model(scores, constants, inputs=inputs)
    found = operators(made)
    assert [o for o in found if o != "Not"] == FUSED
    assert ("Not" in found) == (form == "masked_fill")
    agree(made, **feeds(**more))


def test_keys_transposed_in_two_steps():
    swap = node("Transpose", ["kt"], ["kk"], perm=[0, 1, 3, 2])
    made = attention_model([swap, node("MatMul", ["qh", "kk"], ["s"])], {}, key_perm=(0, 2, 1, 3))
    assert operators(made) == FUSED
    agree(made, **feeds())


@pytest.mark.parametrize(("opset", "axis", "fused"), [(12, 3, True), (12, -1, True), (12, 1, False), (21, 2, False)])
def test_the_axis_of_the_softmax(opset: int, axis: int, fused: bool):
    made = attention_model([node("MatMul", ["qh", "kt"], ["s"])], {}, opset=opset, axis=axis)
    assert ("FusedAttention" in operators(made)) == fused
    agree(made, **feeds())


@pytest.mark.parametrize("value", [-np.inf, np.nan])
def test_rows_that_see_nothing(value: float):
    """Softmax makes them NaN; exporters of today put zeros there."""
    scores = [PRODUCT, node("Add", ["qk", "bias"], ["s"])]
    bias = np.zeros((BATCH, 1, QUERIES, KEYS), np.float32)
    bias[0, 0, 1] = bias[1, 0, 2, 3] = value
    made = attention_model(scores, {}, inputs=(BIAS,))
    assert operators(made) == FUSED
    agree(made, **feeds(bias=bias))
    guard = [node("IsNaN", ["w"], ["nan"]), node("Where", ["nan", "zero", "w"], ["p"])]
    guarded = attention_model(scores, {"zero": np.float32(0)}, weights=guard, inputs=(BIAS,))
    assert operators(guarded) == FUSED
    agree(guarded, **feeds(bias=bias))


def test_another_replacement_of_nan_stays():
    guard = [node("IsNaN", ["w"], ["nan"]), node("Where", ["nan", "one", "w"], ["p"])]
    made = attention_model([node("MatMul", ["qh", "kt"], ["s"])], {"one": np.float32(1)}, weights=guard)
    assert "FusedAttention" not in operators(made)
    agree(made, **feeds())


@pytest.mark.parametrize("name", ["s", "w", "qk", "p"])
def test_scores_and_weights_that_are_outputs_stay(name: str):
    shape = ["b", HEADS, "m", "n"]
    made = attention_model(
        [PRODUCT, node("Mul", ["qk", "root"], ["s"])], {"root": np.float32(0.3)}, outputs=((name, FLOAT, shape),)
    )
    assert "FusedAttention" not in operators(made)
    agree(made, **feeds())


def test_heads_that_are_read_elsewhere_are_fused_and_stay():
    made = attention_model([node("MatMul", ["qh", "kt"], ["s"])], {}, outputs=(("vh", FLOAT, ["b", HEADS, "n", SIZE]),))
    assert operators(made).count("Transpose") == 1
    assert "FusedAttention" in operators(made)
    agree(made, **feeds())


@pytest.mark.parametrize(
    "scores",
    [
        [PRODUCT, node("Mul", ["qk", "bias"], ["s"])],  # a scale that is no number
        [PRODUCT, node("Div", ["root", "qk"], ["s"])],  # divided by the scores
        [PRODUCT, node("Add", ["qk", "bias"], ["a"]), node("Mul", ["a", "root"], ["s"])],  # scaled after the bias
        [PRODUCT, node("Add", ["qk", "qk"], ["s"])],
        [node("MatMul", ["qh", "qt"], ["qk"]), node("Sub", ["qk", "bias"], ["s"])],
    ],
)
def test_scores_made_otherwise_stay(scores: list[onnx.NodeProto]):
    if "qt" in scores[0].input:
        scores = [node("Transpose", ["qh"], ["qt"], perm=[0, 1, 3, 2]), *scores]
    used = {name for n in scores for name in n.input}
    constants = {"root": np.float32(0.3)} if "root" in used else {}
    made = attention_model(scores, constants, inputs=(BIAS,))
    assert "FusedAttention" not in operators(made)
    square = {name: normal(BATCH, 5, WIDTH) for name in "qkv"}
    agree(made, **square, bias=normal(BATCH, 1, 5, 5))


def test_one_value_for_queries_keys_and_values():
    made = model(
        [node("Transpose", ["x"], ["t"], perm=[0, 2, 1]), node("MatMul", ["x", "t"], ["s"]),
         node("Softmax", ["s"], ["w"]), node("MatMul", ["w", "x"], ["y"])],
        [("x", FLOAT, ["n", "s", 4])], [("y", FLOAT, ["n", "s", 4])],
    )  # fmt: skip
    assert operators(made) == ["FusedAttention"]
    agree(made, x=normal(2, 5, 4))


def test_a_bias_that_is_a_product_too():
    made = model(
        [node("Transpose", ["k"], ["kt"], perm=[0, 2, 1]), node("MatMul", ["q", "kt"], ["qk"]),
         node("MatMul", ["b", "c"], ["bias"]), node("Add", ["qk", "bias"], ["s"]), node("Softmax", ["s"], ["w"]),
         node("MatMul", ["w", "v"], ["y"])],
        [(name, FLOAT, [2, 5, 4]) for name in "qkvb"] + [("c", FLOAT, [2, 4, 5])], [("y", FLOAT, [2, 5, 4])],
    )  # fmt: skip
    assert sorted(operators(made)) == ["FusedAttention", "MatMul"]
    agree(made, **{name: normal(2, 5, 4) for name in "qkvb"}, c=normal(2, 4, 5))


def test_keys_in_their_own_order_stay():
    """A product with keys that nobody transposed reads them as they lie: a copy would cost more than it brings."""
    made = model(
        [node("MatMul", ["q", "kt"], ["s"]), node("Softmax", ["s"], ["w"]), node("MatMul", ["w", "v"], ["y"])],
        [("q", FLOAT, [1, 2, 3, 4]), ("kt", FLOAT, [1, 2, 4, 5]), ("v", FLOAT, [1, 2, 5, 6])],
        [("y", FLOAT, [1, 2, 3, 6])],
    )
    assert operators(made) == ["MatMul", "Softmax", "MatMul"]


def test_masks_that_add_to_the_batch():
    made = model(
        [
            node("Transpose", ["k"], ["kt"], perm=[0, 1, 3, 2]), node("MatMul", ["q", "kt"], ["qk"]),
            node("Add", ["qk", "bias"], ["s"]), node("Softmax", ["s"], ["w"]), node("MatMul", ["w", "v"], ["y"]),
        ],
        [("q", FLOAT, [1, 2, 3, 4]), ("k", FLOAT, [1, 2, 5, 4]), ("v", FLOAT, [1, 2, 5, 6]),
         ("bias", FLOAT, ["n", 1, 3, 1])],
        [("y", FLOAT, ["n", 2, 3, 6])],
    )  # fmt: skip
    for batch in (1, 3):
        agree(made, q=normal(1, 2, 3, 4), k=normal(1, 2, 5, 4), v=normal(1, 2, 5, 6), bias=normal(batch, 1, 3, 1))


def test_products_of_three_axes():
    """torch's MultiheadAttention: (heads, rows, size) out of (rows, batch * heads, size)."""
    made = model(
        [
            node("Transpose", ["q"], ["qh"], perm=[1, 0, 2]), node("Transpose", ["k"], ["kt"], perm=[1, 2, 0]),
            node("Transpose", ["v"], ["vh"], perm=[1, 0, 2]), node("MatMul", ["qh", "kt"], ["s"]),
            node("Softmax", ["s"], ["w"]), node("MatMul", ["w", "vh"], ["yh"]),
            node("Transpose", ["yh"], ["y"], perm=[1, 0, 2]),
        ],
        [("q", FLOAT, ["m", 6, 8]), ("k", FLOAT, ["n", 6, 8]), ("v", FLOAT, ["n", 6, 4])],
        [("y", FLOAT, ["m", 6, 4])],
    )  # fmt: skip
    assert operators(made) == ["FusedAttention"]
    agree(made, q=normal(5, 6, 8), k=normal(7, 6, 8), v=normal(7, 6, 4))


@pytest.mark.parametrize("spread", ["Expand", "Tile"])
def test_repeated_heads_are_read_where_they_are(spread: str):
    repeats = {"Expand": [2, 2, 3, 7, 8], "Tile": [1, 1, 3, 1, 1]}[spread]

    def repeated(name: str) -> list[onnx.NodeProto]:
        return [
            node("Unsqueeze", [name, "two"], [f"{name}1"]), node(spread, [f"{name}1", "spread"], [f"{name}2"]),
            node("Reshape", [f"{name}2", "joined"], [f"{name}3"]),
        ]  # fmt: skip

    made = model(
        [
            *repeated("k"), *repeated("v"), node("Transpose", ["k3"], ["kt"], perm=[0, 1, 3, 2]),
            node("MatMul", ["q", "kt"], ["s"]), node("Softmax", ["s"], ["w"]), node("MatMul", ["w", "v3"], ["y"]),
        ],
        [("q", FLOAT, [2, 6, 5, 8]), ("k", FLOAT, [2, 2, 7, 8]), ("v", FLOAT, [2, 2, 7, 8])],
        [("y", FLOAT, [2, 6, 5, 8])],
        {"two": np.array([2]), "spread": np.array(repeats), "joined": np.array([2, 6, 7, 8])},
    )  # fmt: skip
    assert operators(made) == ["FusedAttention"]
    agree(made, q=normal(2, 6, 5, 8), k=normal(2, 2, 7, 8), v=normal(2, 2, 7, 8))


@pytest.mark.parametrize("attributes", [{}, {"is_causal": 1}, {"scale": 0.2}], ids=str)
@pytest.mark.parametrize("masked", [False, True])
def test_attention_of_opset_23(attributes: dict[str, Any], masked: bool):
    def split(name: str) -> list[onnx.NodeProto]:
        return [
            node("Reshape", [name, "split"], [f"{name}4"]),
            node("Transpose", [f"{name}4"], [f"{name}h"], perm=TURN),
        ]

    inputs = ["qh", "kh", "vh", *(["seen"] if masked else [])]
    made = model(
        [*split("q"), *split("k"), *split("v"), node("Attention", inputs, ["a"], **attributes),
         node("Transpose", ["a"], ["t"], perm=TURN), node("Reshape", ["t", "join"], ["y"])],
        [*((name, FLOAT, ["b", "n", WIDTH]) for name in "qkv"), *[SQUARE_SEEN] * masked],
        [("y", FLOAT, ["b", "n", WIDTH])],
        {"split": SPLIT, "join": JOIN}, opset=23,
    )  # fmt: skip
    assert operators(made) == FUSED
    more = {}
    if masked:
        more["seen"] = np.random.default_rng(5).random((BATCH, 1, 6, 6)) > 0.4
        more["seen"][0, 0, 2] = False
    agree(made, **{name: normal(BATCH, 6, WIDTH) for name in "qkv"}, **more)


TURN = [0, 2, 1, 3]
SQUARE_SEEN = ("seen", BOOL, ["b", 1, "n", "n"])


def test_attention_of_opset_23_with_a_short_mask():
    """What the mask does not reach is hidden, which FusedAttention does not know."""
    made = model(
        [node("Transpose", ["q"], ["t"], perm=TURN), node("Attention", ["t", "k", "v", "seen"], ["y"])],
        [("q", FLOAT, [1, 5, 2, 4]), ("k", FLOAT, [1, 2, 6, 4]), ("v", FLOAT, [1, 2, 6, 4]), ("seen", BOOL, [5, "n"])],
        [("y", FLOAT, [1, 2, 5, 4])], opset=24,
    )  # fmt: skip
    assert operators(made) == ["Transpose", "Attention"]
    seen = np.ones((5, 3), bool)
    agree(made, q=normal(1, 5, 2, 4), k=normal(1, 2, 6, 4), v=normal(1, 2, 6, 4), seen=seen)


def channels_first(first: str, second: str, extra: list[onnx.NodeProto] | None = None) -> onnx.ModelProto:
    """Queries, keys and values of (batch, size, rows), as convolutions make them."""
    einsum = [node("Einsum", ["q", "k"], ["d"], equation=first), node("Mul", ["d", "root"], ["s"])]
    order = ["w", "v"] if second.startswith("bij") else ["v", "w"]
    return model(
        [*(node("Abs", [f"{n}_in"], [n]) for n in "qkv"), *(extra or []), *einsum, node("Softmax", ["s"], ["w"]),
         node("Einsum", order, ["y"], equation=second)],
        [("q_in", FLOAT, ["b", 4, "m"]), ("k_in", FLOAT, ["b", 4, "n"]), ("v_in", FLOAT, ["b", 6, "n"])],
        [("y", FLOAT, ["b", "i", "j"])], {"root": np.float32(0.5)},
    )  # fmt: skip


@pytest.mark.parametrize("second", ["bij,bdj->bid", "bij,bdj->bdi", "bdj,bij->bdi", "bdj,bij->bid"])
def test_rows_behind_their_size(second: str):
    made = channels_first("bci,bcj->bij", second)
    assert operators(made).count("FusedAttention") == 1
    assert "Softmax" not in operators(made)
    agree(made, q_in=normal(2, 4, 5), k_in=normal(2, 4, 7), v_in=normal(2, 6, 7))


def test_values_by_transposed_weights():
    """As autoencoders of pictures have it: V Wᵀ."""
    made = model(
        [
            node("Relu", ["k"], ["k1"]), node("Relu", ["v"], ["v1"]), node("Transpose", ["q"], ["qt"], perm=[0, 2, 1]),
            node("MatMul", ["qt", "k1"], ["s"]), node("Softmax", ["s"], ["w"], axis=2),
            node("Transpose", ["w"], ["wt"], perm=[0, 2, 1]), node("MatMul", ["v1", "wt"], ["y"]),
        ],
        [("q", FLOAT, [1, 4, 5]), ("k", FLOAT, [1, 4, 7]), ("v", FLOAT, [1, 6, 7])], [("y", FLOAT, [1, 6, 5])],
    )  # fmt: skip
    assert "FusedAttention" in operators(made)
    agree(made, q=normal(1, 4, 5), k=normal(1, 4, 7), v=normal(1, 6, 7))


def test_a_cache_of_keys_behind_their_size_stays():
    made = model(
        [
            node("Concat", ["past", "k"], ["keys"], axis=3), node("MatMul", ["q", "keys"], ["s"]),
            node("Softmax", ["s"], ["w"]), node("MatMul", ["w", "v"], ["y"]),
        ],
        [("q", FLOAT, [1, 2, 1, 4]), ("past", FLOAT, [1, 2, 4, "p"]), ("k", FLOAT, [1, 2, 4, 1]),
         ("v", FLOAT, [1, 2, "n", 6])],
        [("y", FLOAT, [1, 2, 1, 6]), ("keys", FLOAT, [1, 2, 4, "n"])],
    )  # fmt: skip
    assert "FusedAttention" not in operators(made)
    agree(made, q=normal(1, 2, 1, 4), past=normal(1, 2, 4, 5), k=normal(1, 2, 4, 1), v=normal(1, 2, 6, 6))


@pytest.mark.parametrize("attributes", [{}, {"alpha": 1.0}, {"transB": 1, "alpha": 2.0}, {"transA": 1}], ids=str)
def test_second_products_of_other_kinds_stay(attributes: dict[str, Any]):
    """Of square matrices, which fit in every way."""
    made = model(
        [
            node("Relu", ["v"], ["v1"]), node("Transpose", ["k"], ["kt"], perm=[0, 2, 1]),
            node("MatMul", ["q", "kt"], ["s"]), node("Softmax", ["s"], ["w"]),
            node("FusedMatMul", ["w", "v1"], ["y"], domain="com.microsoft", **attributes),
        ],
        [(name, FLOAT, [2, 4, 4]) for name in "qkv"], [("y", FLOAT, [2, 4, 4])], domains=["com.microsoft"],
    )  # fmt: skip
    assert "FusedAttention" not in operators(made)
    agree(made, **{name: normal(2, 4, 4) for name in "qkv"})
