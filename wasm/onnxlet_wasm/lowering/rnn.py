"""Recurrent layers: one product for the inputs of all times, then a kernel that walks along the sequence."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxlet.providers.base import Step

from .. import pieces
from ..compiler import Compiler, Place
from ..engine import f32
from .common import MOVED, NO_ACTIVATION, grain, need_constant, need_float32, present, shape_of, text
from .gemm import gemm_call
from .registry import Emit, Refused, lower

_DEFAULTS = {"LSTM": ["sigmoid", "tanh", "tanh"], "GRU": ["sigmoid", "tanh"], "RNN": ["tanh"]}
_REVERSE = {"forward": [0], "reverse": [1], "bidirectional": [0, 1]}
_BIAS, _LENGTHS, _H0, _C0, _PEEPHOLE = 3, 4, 5, 6, 7


@dataclass(frozen=True, slots=True)
class Layer:
    """Sizes of a layer. `gates` is how many times `hidden` columns the weights have; `reverse` is per direction."""

    steps: int
    batch: int
    inputs: int
    hidden: int
    gates: int
    reverse: list[int]
    batch_first: bool

    @property
    def columns(self) -> int:
        return self.gates * self.hidden

    @property
    def state_bytes(self) -> int:
        """Bytes of the states of one direction."""
        return 4 * self.batch * self.hidden


def layer_of(step: Step, name: str, gates: int, hidden: int, other_types: Sequence[int] = ()) -> Layer:
    """The sizes of a node of the kind `name` with default activations; inputs are float32 but for lengths and
    `other_types`. Raises `Refused` for what the kernels do not have."""
    need_float32(step, *(i for i in range(len(step.node.inputs)) if i not in (_LENGTHS, *other_types)))
    reverse = _REVERSE.get(text(step.attribute("direction", "forward")))
    if reverse is None:
        raise Refused("this direction has no kernel")
    activations = [text(a).lower() for a in step.attribute("activations") or []]
    usual = [_DEFAULTS[name] * len(reverse)] + ([["relu"] * len(reverse)] if name == "RNN" else [])
    if activations and activations not in usual:
        raise Refused(f"{name} with activations {', '.join(activations)} has no kernel")
    if step.attribute("clip") or step.attribute("input_forget", 0):
        raise Refused(f"{name} with clip or input_forget has no kernel")
    shape = shape_of(step, 0)
    batch_first = bool(step.attribute("layout", 0))
    batch, steps = (shape[0], shape[1]) if batch_first else (shape[1], shape[0])
    if batch_first and len(reverse) > 1:
        raise Refused(f"a bidirectional {name} with layout 1 has no kernel")
    if present(step, _LENGTHS):
        lengths = need_constant(step, _LENGTHS, "sequence lengths")
        if lengths.dtype != np.int32 or ((lengths < 0) | (lengths > steps)).any():
            raise Refused(f"{name} with these sequence lengths has no kernel")
    if not steps or not batch:
        raise Refused(f"an empty {name} has no kernel")
    if present(step, _BIAS):
        need_constant(step, _BIAS, "biases")
    return Layer(steps, batch, shape[2], hidden, gates, reverse, batch_first)


def _packed_rows(c: Compiler, index: int, direction: int, rows: int, k: int) -> Place:
    """The weights of a direction, transposed and in panels: a k × rows matrix."""
    tensor = c.tensor(index)
    offset = 4 * k * direction * rows
    fields = {"step_k": 1, "step_n": k, "k": k, "n": rows}
    nbytes, units = pieces.packed_size(k, rows), pieces.panels(rows)
    if tensor is None:
        panels = c.temporary(nbytes)
        work = rows * k * MOVED
        c.emit("pack_b", units=units, grain=grain(units, work), b=c.input(index) + offset, panels=panels, **fields)
        return panels

    def pack(raw: int, address: int) -> None:
        c.memory.engine.call("pack_b", units=units, b=raw + offset, panels=address, **fields)

    return c.memory.packed(tensor, ("rows", direction, rows), nbytes, pack)


def _recurrent(c: Compiler, s: Layer, direction: int, gates: int, first: int = 0) -> Place:
    """The recurrent weights of `gates` gates of a direction, from the `first` on, as the kernels have them."""
    tensor = c.tensor(2)
    offset = 4 * s.hidden * (direction * s.columns + first * s.hidden)
    fields = {"k": s.hidden, "hidden": s.hidden, "gates": gates}
    units = gates * pieces.panels(s.hidden)
    nbytes = gates * pieces.packed_size(s.hidden, s.hidden)
    if tensor is None:
        panels = c.temporary(nbytes)
        work = gates * s.hidden * s.hidden * MOVED
        c.emit("pack_gates", units=units, grain=grain(units, work), r=c.input(2) + offset, panels=panels, **fields)
        return panels

    def pack(raw: int, address: int) -> None:
        c.memory.engine.call("pack_gates", units=units, r=raw + offset, panels=address, **fields)

    return c.memory.packed(tensor, ("gates", direction, first, gates), nbytes, pack)


def combined_bias(c: Compiler, s: Layer, direction: int, folded: int) -> Place:
    """The biases of the inputs, plus the recurrent ones of the first `folded` gates; 0 if there are none."""
    if not present(c.step, _BIAS):
        return 0
    values = c.step.constant(_BIAS)
    assert values is not None

    def combine() -> np.ndarray:
        own, recurrent = values[direction].reshape(2, s.columns)
        kept = np.arange(s.columns) < folded * s.hidden
        return own + np.where(kept, recurrent, np.float32(0))

    return c.computed(("rnn bias", direction, folded), combine, c.step.node.inputs[_BIAS])


def _gates(c: Compiler, s: Layer, direction: int, bias: Place) -> Place:
    """What the inputs contribute at all times."""
    rows = s.steps * s.batch
    gates = c.temporary(4 * rows * s.columns)
    weights = _packed_rows(c, 1, direction, s.columns, s.inputs)
    gemm_call(c, c.input(0), s.inputs, weights, gates, s.columns, rows, s.columns, s.inputs, bias, 0, 0, NO_ACTIVATION)
    return gates


def run_directions(
    c: Compiler, kernel: str, s: Layer, states: int, folded: int, gates_of: Callable[..., Place] = _gates,
    *, rounds: int, units: int, scratch: int, **weights: list[Place] | Place,
) -> None:  # fmt: skip
    """Record the kernel for each direction. Lists among `weights` have a value per direction. `units` are those of all
    `rounds`."""
    directions = len(s.reverse)
    y = c.output(0) if c.wanted(0) else None
    nbytes = directions * s.state_bytes
    ends = [c.output(i) if c.wanted(i) else c.temporary(nbytes) for i in range(1, 1 + states)]
    times, entries = (1, s.steps) if s.batch_first else (s.batch, 1)
    for d, reverse in enumerate(s.reverse):
        gates = gates_of(c, s, d, combined_bias(c, s, d, folded))
        fields: dict[str, Place] = {name: w[d] if isinstance(w, list) else w for name, w in weights.items()}
        for i, (name, end) in enumerate(zip("hc", ends, strict=False)):
            fields[name] = end + d * s.state_bytes
            given = present(c.step, _H0 + i)
            fields[f"{name}0"] = c.input(_H0 + i) + d * s.state_bytes if given else c.memory.zeros(s.state_bytes)
        fields |= {
            "gates": gates, "gates_time": times * s.columns, "gates_batch": entries * s.columns,
            "lengths": c.input(_LENGTHS) if present(c.step, _LENGTHS) else 0,
            "y": 0 if y is None else y + d * s.state_bytes, "y_time": times * directions * s.hidden,
            "y_batch": entries * s.hidden, "steps": s.steps, "batch": s.batch, "hidden": s.hidden, "reverse": reverse,
            "clip": f32(math.inf),
        }  # fmt: skip
        work = s.steps * max(s.batch, MOVED) * s.hidden * s.columns
        c.emit_rounds(kernel, rounds, units, grain(units, work), scratch, fields)


def _run_in_rounds(c: Compiler, kernel: str, s: Layer, states: int, folded: int, rounds: int, **weights: Any) -> None:
    """Record a kernel whose rounds, so many for each step, are cut by columns of the states."""
    blocks = pieces.panels(s.hidden)
    run_directions(
        c, kernel, s, states, folded, rounds=rounds * s.steps, units=rounds * s.steps * blocks,
        scratch=4 * s.batch * s.gates * blocks * pieces.PANEL, other=c.temporary(s.state_bytes), **weights,
    )  # fmt: skip


@lower("LSTM")
def lstm(step: Step) -> Emit:
    s = layer_of(step, "LSTM", 4, shape_of(step, 2)[-1])

    def emit(c: Compiler) -> None:
        directions = range(len(s.reverse))
        recurrent = [_recurrent(c, s, d, 4) for d in directions]
        peephole = [c.input(_PEEPHOLE) + 12 * s.hidden * d if present(step, _PEEPHOLE) else 0 for d in directions]
        _run_in_rounds(c, "lstm", s, 2, 4, 1, recurrent=recurrent, peephole=peephole)

    return emit


@lower("GRU")
def gru(step: Step) -> Emit:
    s = layer_of(step, "GRU", 3, shape_of(step, 2)[-1])
    linear = int(step.attribute("linear_before_reset", 0))

    def emit(c: Compiler) -> None:
        directions = range(len(s.reverse))
        recurrent = [_recurrent(c, s, d, 3 if linear else 2) for d in directions]
        of_hidden = [0 if linear else _recurrent(c, s, d, 1, 2) for d in directions]
        between = [0 if linear else c.temporary(s.state_bytes) for _ in ("update", "reset")]
        bias: list[Place] = [0 for _ in directions]
        if linear and present(step, _BIAS):
            bias = [c.input(_BIAS) + 4 * s.hidden * (6 * d + 5) for d in directions]
        _run_in_rounds(
            c, "gru", s, 1, 2 if linear else 3, 1 if linear else 2, recurrent=recurrent, recurrent_hidden=of_hidden,
            hidden_bias=bias, update=between[0], reset=between[1], linear_before_reset=linear,
        )  # fmt: skip

    return emit


@lower("RNN")
def rnn(step: Step) -> Emit:
    s = layer_of(step, "RNN", 1, shape_of(step, 2)[-1])
    relu = int(text((step.attribute("activations") or ["tanh"])[0]).lower() == "relu")

    def emit(c: Compiler) -> None:
        recurrent = [_recurrent(c, s, d, 1) for d in range(len(s.reverse))]
        _run_in_rounds(c, "rnn", s, 1, 1, 1, recurrent=recurrent, relu=relu)

    return emit
