"""Recurrent layers through compiled programs, against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

from .helpers import check, node, refusal

RNG = np.random.default_rng(29)
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def some(*shape: int) -> np.ndarray:
    return RNG.uniform(-0.5, 0.5, shape).astype(np.float32)


def layer(operator: str, directions: int, inputs: int, hidden: int) -> dict[str, np.ndarray]:
    gates = GATES[operator] * hidden
    return {
        "w": some(directions, gates, inputs),
        "r": some(directions, gates, hidden),
        "b": some(directions, 2 * gates),
    }


@pytest.mark.parametrize("operator", GATES)
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("optional", ["", "b", "bh"])
@pytest.mark.parametrize("hidden", [5, 16])
def test_layers(provider, operator, direction, optional, hidden):
    directions = 2 if direction == "bidirectional" else 1
    constants = layer(operator, directions, 7, hidden)
    feeds = {"x": some(6, 3, 7)}
    inputs = "x w r"
    if optional:
        inputs += " b"
    else:
        del constants["b"]
    if "h" in optional:
        feeds["h"] = some(directions, 3, hidden)
        inputs += " - h"
        if operator == "LSTM":
            feeds["c"] = some(directions, 3, hidden)
            inputs += " c"
    outputs = "y yh yc" if operator == "LSTM" else "y yh"
    attributes = {"hidden_size": hidden, "direction": direction}
    check(provider, node(operator, inputs, outputs, **attributes), feeds, constants)
    check(provider, node(operator, inputs, "- yh", **attributes), feeds, constants)
    check(provider, node(operator, inputs, "y", **attributes), feeds, constants)


def test_gru_with_linear_before_reset(provider):
    for direction, n in (("forward", 1), ("bidirectional", 2)):
        one = node("GRU", "x w r b", "y yh", hidden_size=9, linear_before_reset=1, direction=direction)
        check(provider, one, {"x": some(5, 2, 4)}, layer("GRU", n, 4, 9))


def test_lstm_with_peepholes(provider):
    one = node("LSTM", "x w r b - - - p", "y yh yc", hidden_size=6)
    check(provider, one, {"x": some(5, 2, 4)}, {**layer("LSTM", 1, 4, 6), "p": some(1, 18)})


def test_rnn_with_relu(provider):
    one = node("RNN", "x w r b", "y yh", hidden_size=6, activations=["Relu"])
    check(provider, one, {"x": some(5, 2, 4)}, layer("RNN", 1, 4, 6))


def test_computed_weights(provider):
    one = node("LSTM", "x w r", "y yh yc", hidden_size=6)
    weights = layer("LSTM", 1, 4, 6)
    check(provider, one, {"x": some(5, 2, 4), "w": weights["w"], "r": weights["r"]})


def test_batch_first(provider):
    from onnxlet.ops.registry import find

    operator = find("LSTM", "", 14)
    assert operator is not None
    one = node("LSTM", "x w r b", "y yh yc", hidden_size=6, layout=1, version=14)
    check(provider, one, {"x": some(2, 5, 4)}, layer("LSTM", 1, 4, 6), references={"LSTM": operator.function})


@pytest.mark.parametrize("lengths", [[5, 5], [5, 3], [1, 4]])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_constant_lengths(provider, direction, lengths):
    directions = 2 if direction == "bidirectional" else 1
    for operator, outputs in (("LSTM", "y yh yc"), ("GRU", "y yh"), ("RNN", "y yh")):
        one = node(operator, "x w r b n", outputs, hidden_size=6, direction=direction)
        constants = {**layer(operator, directions, 4, 6), "n": np.array(lengths, np.int32)}
        check(provider, one, {"x": some(5, 2, 4)}, constants)


def test_refusals(provider):
    feeds, constants = {"x": some(5, 2, 4)}, layer("GRU", 1, 4, 6)
    clipped = node("GRU", "x w r b", "y", hidden_size=6, clip=0.5)
    assert "clip" in (refusal(provider, clipped, feeds, constants) or "")
    odd = node("GRU", "x w r b", "y", hidden_size=6, activations=["Sigmoid", "Relu"])
    assert "activations" in (refusal(provider, odd, feeds, constants) or "")
