"""LSTM, GRU and RNN against the standard's equations in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxlet_wasm import pieces
from onnxlet_wasm.engine import f32

from .workbench import Workbench

CASES = [(1, 1, 1), (5, 1, 8), (7, 3, 16), (4, 5, 13), (3, 9, 40)]
"""steps, batch, hidden"""


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def random(*shape: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


def pack(bench: Workbench, r: np.ndarray) -> int:
    """The address of recurrent weights (hidden x gates * hidden) in panels."""
    hidden = len(r)
    gates, blocks = r.shape[1] // hidden, pieces.panels(hidden)
    panels = bench.out((blocks, gates, hidden, 8))
    bench.call(
        "pack_gates", units=blocks * gates, r=bench.put(r.T), panels=panels, k=hidden, hidden=hidden, gates=gates
    )
    padded = np.zeros((hidden, gates, 8 * blocks), np.float32)
    padded[:, :, :hidden] = r.reshape(hidden, gates, hidden)
    expected = padded.reshape(hidden, gates, blocks, 8).transpose(2, 1, 0, 3)
    np.testing.assert_array_equal(bench.get(panels), expected)
    return bench.put(bench.get(panels))


def walk(
    step, gates: np.ndarray, state: list[np.ndarray], lengths, reverse: bool
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Results of all times, and last states, of `step(gates of one entry, its state) -> new state`."""
    steps, batch, _ = gates.shape
    y = np.zeros((steps, batch, state[0].shape[1]))
    state = [s.astype(np.float64) for s in state]
    for b in range(batch):
        length = steps if lengths is None else int(lengths[b])
        for t in reversed(range(length)) if reverse else range(length):
            for s, new in zip(state, step(gates[t, b].astype(np.float64), [s[b] for s in state]), strict=True):
                s[b] = new
            y[t, b] = state[0][b]
    return y, state


class Case:
    """Operands in the workbench, with the batch outside of time (`batch_first`) or inside."""

    def __init__(self, bench: Workbench, steps: int, batch: int, hidden: int, columns: int, **options: Any):
        self.bench, self.shape, self.columns = bench, (steps, batch, hidden), columns
        self.reverse = options.get("reverse", False)
        self.gates = random(steps, batch, columns * hidden, seed=1) * 2
        self.recurrent = random(hidden, columns * hidden, seed=2)
        self.h0 = random(batch, hidden, seed=3)
        self.c0 = random(batch, hidden, seed=4)
        self.lengths = None
        if options.get("lengths"):
            self.lengths = np.random.default_rng(5).integers(0, steps + 1, batch).astype(np.int32)
        self.batch_first = options.get("batch_first", False)
        self.y = bench.out((batch, steps, hidden) if self.batch_first else (steps, batch, hidden))
        self.h, self.c = bench.out((batch, hidden)), bench.out((batch, hidden))

    def run(self, kernel: str, rounds: int = 1, **fields: int) -> tuple[np.ndarray, np.ndarray]:
        steps, batch, hidden = self.shape
        bench, row = self.bench, self.columns * hidden
        gates = self.gates.swapaxes(0, 1) if self.batch_first else self.gates
        bench.call(
            kernel,
            units=rounds * steps * pieces.panels(hidden),
            rounds=rounds * steps,
            scratch=4 * self.columns * batch * 8 * pieces.panels(hidden),
            gates=bench.put(gates),
            gates_time=row if self.batch_first else batch * row,
            gates_batch=steps * row if self.batch_first else row,
            lengths=0 if self.lengths is None else bench.put(self.lengths),
            y=self.y,
            y_time=hidden if self.batch_first else batch * hidden,
            y_batch=steps * hidden if self.batch_first else hidden,
            h=self.h,
            other=bench.put(np.full((batch, hidden), np.nan, np.float32)),
            batch=batch,
            steps=steps,
            hidden=hidden,
            reverse=int(self.reverse),
            **fields,
        )
        y = bench.get(self.y)
        return y.swapaxes(0, 1) if self.batch_first else y, bench.get(self.h)

    def check(self, results: tuple[np.ndarray, np.ndarray], step) -> list[np.ndarray]:
        """Compare the results, and return all last states as they should be."""
        state = [self.h0, self.c0] if self.columns == 4 else [self.h0]
        y, last = walk(step, self.gates, state, self.lengths, self.reverse)
        np.testing.assert_allclose(results[0], y, rtol=1e-5, atol=2e-6)
        np.testing.assert_allclose(results[1], last[0], rtol=1e-5, atol=2e-6)
        return last


OPTIONS: list[dict[str, bool]] = [
    {},
    {"reverse": True},
    {"lengths": True},
    {"lengths": True, "reverse": True},
    {"batch_first": True, "lengths": True},
]


@pytest.mark.parametrize("peepholes", [False, True])
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize(("steps", "batch", "hidden"), CASES)
def test_lstm(bench: Workbench, steps: int, batch: int, hidden: int, options: dict[str, bool], peepholes: bool) -> None:
    case = Case(bench, steps, batch, hidden, 4, **options)
    p = random(3, hidden, seed=6)
    results = case.run(
        "lstm",
        recurrent=pack(bench, case.recurrent),
        peephole=bench.put(p) if peepholes else 0,
        h0=bench.put(case.h0),
        c0=bench.put(case.c0),
        c=case.c,
        clip=f32(np.inf),
    )
    p = p if peepholes else np.zeros_like(p)

    def step(gates, state):
        h, c = state
        i, o, f, g = np.split(gates + h @ case.recurrent, 4)
        c_new = sigmoid(f + p[2] * c) * c + sigmoid(i + p[0] * c) * np.tanh(g)
        return sigmoid(o + p[1] * c_new) * np.tanh(c_new), c_new

    last = case.check(results, step)
    np.testing.assert_allclose(bench.get(case.c), last[1], rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("linear_before_reset", [0, 1])
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize(("steps", "batch", "hidden"), CASES)
def test_gru(bench: Workbench, steps, batch, hidden, options: dict[str, bool], linear_before_reset: int) -> None:
    case = Case(bench, steps, batch, hidden, 3, **options)
    bias = random(hidden, seed=7)
    recurrent, candidate = case.recurrent[:, : 2 * hidden], case.recurrent[:, 2 * hidden :]
    between = [bench.put(np.full((batch, hidden), np.nan, np.float32)) for _ in range(2)]
    results = case.run(
        "gru",
        2 - linear_before_reset,
        recurrent=pack(bench, case.recurrent if linear_before_reset else recurrent),
        recurrent_hidden=0 if linear_before_reset else pack(bench, candidate),
        hidden_bias=bench.put(bias),
        update=between[0],
        reset=between[1],
        h0=bench.put(case.h0),
        linear_before_reset=linear_before_reset,
        clip=f32(np.inf),
    )

    def step(gates, state):
        (h,) = state
        z, r = np.split(sigmoid(gates[: 2 * hidden] + h @ recurrent), 2)
        inner = r * (h @ candidate + bias) if linear_before_reset else (r * h) @ candidate
        return [(1 - z) * np.tanh(gates[2 * hidden :] + inner) + z * h]

    case.check(results, step)


@pytest.mark.parametrize("relu", [0, 1])
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize(("steps", "batch", "hidden"), CASES)
def test_rnn(bench: Workbench, steps: int, batch: int, hidden: int, options: dict[str, bool], relu: int) -> None:
    case = Case(bench, steps, batch, hidden, 1, **options)
    recurrent = case.recurrent / hidden
    results = case.run("rnn", recurrent=pack(bench, recurrent), h0=bench.put(case.h0), relu=relu, clip=f32(np.inf))
    function = (lambda x: np.maximum(x, 0)) if relu else np.tanh
    case.check(results, lambda gates, state: [function(gates + state[0] @ recurrent)])


def test_gates_are_clipped(bench: Workbench) -> None:
    case = Case(bench, 4, 2, 6, 4)
    case.h0[:], case.c0[:] = 0, 0
    zeros = bench.put(case.h0)
    results = case.run(
        "lstm", recurrent=pack(bench, case.recurrent), peephole=0, h0=zeros, c0=zeros, c=case.c, clip=f32(0.5)
    )

    def step(gates, state):
        h, c = state
        i, o, f, g = np.split(np.clip(gates + h @ case.recurrent, -0.5, 0.5), 4)
        c_new = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        return sigmoid(o) * np.tanh(c_new), c_new

    case.check(results, step)
