"""Rotary positions, as exporters of language models write them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from .models import FLOAT, INT64, model, node
from .test_rewrites import agree, normal, operators

FREQUENCIES = (1 / 100 ** (np.arange(4) / 4)).astype(np.float32)


def rotary(half: str = "Slice", **changed: Any) -> onnx.ModelProto:
    """Positions (batch, length) to angles, twice side by side; x (batch, heads, length, 8) turned by them."""
    if half == "Slice":
        parts = [
            node("Slice", ["x", "four", "end", "axis"], ["u"]),
            node("Slice", ["x", "zero", "four", "axis"], ["l"]),
        ]
    else:
        parts = [node("Split", ["x"], ["l", "u"], axis=-1, num_outputs=2)]
    angles = [
        node("Cast", ["positions"], ["p"], to=FLOAT), node("Unsqueeze", ["p", "last"], ["p1"]),
        node("Mul", ["p1", "f"], ["a"]), node("Exp", ["a"], ["other"]),
        node("Concat", changed.get("twice", ["a", "a"]), ["e"], axis=-1), node("Cos", ["e"], ["c"]),
        node("Sin", ["e"], ["s"]), node("Mul", ["c", "k"], ["ck"]), node("Unsqueeze", ["ck", "one"], ["cos"]),
        node("Unsqueeze", ["s", "one"], ["sin"]),
    ]  # fmt: skip
    turned = [
        node("Mul", ["x", "cos"], ["xc"]), *parts, node("Neg", ["u"], ["n"]),
        node("Concat", changed.get("order", ["n", "l"]), ["r"], axis=-1), node("Mul", ["r", "sin"], ["rs"]),
        node(changed.get("last", "Add"), ["xc", "rs"], ["y"]),
    ]  # fmt: skip
    known = {"four": np.array([4]), "end": np.array([2**63 - 1]), "axis": np.array([3]), "zero": np.array([0]),
             "last": np.array([-1]), "one": np.array([1]), "f": FREQUENCIES, "k": np.float32(1.5)}  # fmt: skip
    nodes = [*angles, *turned]
    used = {name for n in nodes for name in n.input}
    return model(
        nodes, [("x", FLOAT, ["b", 3, "t", 8]), ("positions", INT64, changed.get("positions", ["b", "t"]))],
        [("y", FLOAT, ["b", 3, "t", 8]), *changed.get("outputs", [])], {n: v for n, v in known.items() if n in used},
    )  # fmt: skip


def feeds(batch: int = 2, length: int = 5) -> dict[str, np.ndarray]:
    return {"x": normal(batch, 3, length, 8), "positions": np.arange(batch * length).reshape(batch, length)}


@pytest.mark.parametrize("half", ["Slice", "Split"])
def test_rotary(half: str):
    made = rotary(half)
    assert "RotaryEmbedding" in operators(made)
    assert not {"Neg", "Add"} & {*operators(made)}
    agree(made, **feeds())
    agree(made, **feeds(1, 1))


def test_one_row_of_positions_for_all():
    made = rotary(positions=[1, "t"])
    assert "RotaryEmbedding" in operators(made)
    agree(made, x=normal(2, 3, 5, 8), positions=np.arange(5)[None])


@pytest.mark.parametrize(
    "changed",
    [
        {"positions": ["b", "other"]},  # maybe one for all rows
        {"twice": ["a", "other"]},
        {"order": ["l", "n"]},
        {"last": "Sub"},
        {"outputs": [("r", FLOAT, ["b", 3, "t", 8])]},
    ],
    ids=str,
)
def test_what_is_no_rotary(changed: dict[str, Any]):
    made = rotary(**changed)
    assert "RotaryEmbedding" not in operators(made)
    agree(made, **feeds())


def interleaved(spread: str = "Expand", **changed: Any) -> onnx.ModelProto:
    """The same for neighbours in x, with each angle twice."""
    nodes = [
        node("Cast", ["positions"], ["p"], to=FLOAT), node("Unsqueeze", ["p", "last"], ["p1"]),
        node("Mul", ["p1", "f"], ["a"]), node("Unsqueeze", ["a", changed.get("axis", "last")], ["a1"]),
        node(spread, ["a1", "twice"], ["a2"]), node("Reshape", ["a2", "rows"], ["e"]),
        node("Cos", ["e"], ["c"]), node("Sin", ["e"], ["s"]), node("Unsqueeze", ["c", "one"], ["cos"]),
        node("Unsqueeze", ["s", "one"], ["sin"]), node("Mul", ["x", "cos"], ["xc"]),
        node("Slice", ["x", "one", "end", "axis", "two"], ["u"]),
        node("Slice", ["x", "zero", "end", "axis", "two"], ["l"]), node("Neg", ["u"], ["n"]),
        node("Unsqueeze", ["n", "last"], ["n1"]), node("Unsqueeze", ["l", "last"], ["l1"]),
        node("Concat", changed.get("order", ["n1", "l1"]), ["r2"], axis=-1), node("Reshape", ["r2", "whole"], ["r"]),
        node("Mul", ["r", "sin"], ["rs"]), node("Add", ["xc", "rs"], ["y"]),
    ]  # fmt: skip
    constants = {"two": np.array([2]), "end": np.array([2**63 - 1]), "axis": np.array([3]), "zero": np.array([0]),
                 "last": np.array([-1]), "one": np.array([1]), "f": FREQUENCIES,
                 "twice": np.array(changed.get("twice", [1, 1, 1, 2])),
                 "before": np.array([2]), "rows": np.array([0, 0, 8]), "whole": np.array([0, 0, 0, 8])}  # fmt: skip
    if "axis" not in changed:
        del constants["before"]
    inputs = [("x", FLOAT, ["b", 3, "t", 8]), ("positions", INT64, ["b", "t"])]
    return model(nodes, inputs, [("y", FLOAT, ["b", 3, "t", 8])], constants)


@pytest.mark.parametrize("spread", ["Expand", "Tile"])
def test_neighbours(spread: str):
    made = interleaved(spread)
    assert "RotaryEmbedding" in operators(made)
    assert not {"Neg", "Add"} & {*operators(made)}
    agree(made, **feeds())
    agree(made, **feeds(1, 1))


@pytest.mark.parametrize(
    "changed", [{"order": ["l1", "n1"]}, {"spread": "Tile", "axis": "before", "twice": [1, 1, 2, 1]}], ids=str
)
def test_what_is_no_rotary_of_neighbours(changed: dict[str, Any]):
    """Their order; and angles that are repeated as a whole."""
    made = interleaved(**changed)
    assert "RotaryEmbedding" not in operators(made)
    agree(made, **feeds())


@pytest.mark.parametrize("pick", ["Gather", "GatherND", "first rows"])
@pytest.mark.parametrize("good", [True, False])
def test_tables_of_angles(pick: str, good: bool):
    """Rows of constant tables, whose halves are equal or not."""
    angles = np.arange(12)[:, None] * FREQUENCIES
    tables = {"cosines": np.cos(angles), "sines": np.sin(angles)}
    tables = {name: np.concatenate([t, t], axis=1).astype(np.float32) for name, t in tables.items()}
    tables["sines"][3, 5] += 0 if good else 1
    places, rows, first = "p1" if pick == "GatherND" else "positions", ["cosines", "sines"], []
    if pick == "first rows":  # of which are as many as x may have
        first = [
            node("ReduceMax", ["positions"], ["m"], keepdims=0), node("Add", ["m", "one"], ["end"]),
            *(node("Slice", [f"{name}4", "zero", "end", "two"], [f"{name}3"]) for name in rows),
            *(node("Squeeze", [f"{name}3", "front"], [f"{name}2"]) for name in rows),
        ]  # fmt: skip
        tables = {f"{name}4": t[None, None] for name, t in tables.items()}
        tables |= {"zero": np.array([0]), "two": np.array([2]), "front": np.array([0, 1])}
        rows, pick = ["cosines2", "sines2"], "Gather"
    made = model(
        [
            *first, node("Unsqueeze", ["positions", "last"], ["p1"]), node(pick, [rows[0], places], ["c"]),
            node(pick, [rows[1], places], ["s"]), node("Unsqueeze", ["c", "one"], ["cos"]),
            node("Unsqueeze", ["s", "one"], ["sin"]), node("Mul", ["x", "cos"], ["xc"]),
            node("Split", ["x"], ["l", "u"], axis=-1, num_outputs=2), node("Neg", ["u"], ["n"]),
            node("Concat", ["n", "l"], ["r"], axis=-1), node("Mul", ["r", "sin"], ["rs"]),
            node("Add", ["xc", "rs"], ["y"]),
        ],
        [("x", FLOAT, ["b", 3, "t", 8]), ("positions", INT64, ["b", "t"])], [("y", FLOAT, ["b", 3, "t", 8])],
        {"last": np.array([-1]), "one": np.array([1]), **tables},
    )  # fmt: skip
    assert ("RotaryEmbedding" in operators(made)) == good
    agree(made, **feeds())
