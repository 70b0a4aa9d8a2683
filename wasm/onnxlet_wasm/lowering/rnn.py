"""Recurrent layers: one product for the inputs of all times, then a kernel that walks along the sequence."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from onnxlet.providers.base import Step

from .. import pieces
from ..compiler import Compiler, Place
from ..engine import f32
from .common import NO_ACTIVATION, grain, need_constant, need_float32, present, shape_of, text
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
    if present(step, _LENGTHS) and (need_constant(step, _LENGTHS, "sequence lengths") != steps).any():
        raise Refused(f"{name} with sequences of different lengths has no kernel")
    if present(step, _BIAS):
        need_constant(step, _BIAS, "biases")
    return Layer(steps, batch, shape[2], hidden, gates, reverse, batch_first)


def _packed_rows(c: Compiler, index: int, direction: int, first: int, rows: int, k: int) -> Place:
    """Rows of the weights of a direction, transposed and in panels: a k × rows matrix."""
    tensor = c.tensor(index)
    offset = 4 * k * (direction * shape_of(c.step, index)[1] + first)
    fields = {"step_k": 1, "step_n": k, "k": k, "n": rows}
    nbytes, units = pieces.packed_size(k, rows), pieces.panels(rows)
    if tensor is None:
        panels = c.temporary(nbytes)
        c.emit("pack_b", units=units, b=c.input(index) + offset, panels=panels, **fields)
        return panels

    def pack(raw: int, address: int) -> None:
        c.memory.engine.call("pack_b", units=units, b=raw + offset, panels=address, **fields)

    return c.memory.packed(tensor, ("rows", direction, first, rows), nbytes, pack)


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
    weights = _packed_rows(c, 1, direction, 0, s.columns, s.inputs)
    gemm_call(c, c.input(0), s.inputs, weights, gates, s.columns, rows, s.columns, s.inputs, bias, 0, 0, NO_ACTIVATION)
    return gates


def run_directions(
    c: Compiler, kernel: str, s: Layer, states: int, folded: int, gates_of: Callable[..., Place] = _gates,
    work: tuple[int, int] | None = None, **weights: list[Place] | int,
) -> None:  # fmt: skip
    """Record the kernel for each direction. Lists among `weights` have a value per direction. `work` are the units and
    the scratch of a kernel that is not cut by batch entries."""
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
            begin = c.input(_H0 + i)
            fields[f"{name}0"] = begin + d * s.state_bytes if present(c.step, _H0 + i) else 0
        units, scratch = work or (s.batch, 4 * s.batch * 4 * s.hidden)
        c.emit(
            kernel, units=units, grain=grain(units, s.steps * s.batch * s.hidden * s.columns), scratch=scratch,
            gates=gates, gates_time=times * s.columns, gates_batch=entries * s.columns, lengths=0,
            y=0 if y is None else y + d * s.state_bytes, y_time=times * directions * s.hidden,
            y_batch=entries * s.hidden, steps=s.steps, hidden=s.hidden, reverse=reverse, clip=f32(math.inf), **fields,
        )  # fmt: skip


@lower("LSTM")
def lstm(step: Step) -> Emit:
    s = layer_of(step, "LSTM", 4, shape_of(step, 2)[-1])

    def emit(c: Compiler) -> None:
        directions = range(len(s.reverse))
        recurrent = [_packed_rows(c, 2, d, 0, s.columns, s.hidden) for d in directions]
        peephole = [c.input(_PEEPHOLE) + 12 * s.hidden * d if present(step, _PEEPHOLE) else 0 for d in directions]
        run_directions(c, "lstm", s, 2, 4, recurrent=recurrent, peephole=peephole)

    return emit


@lower("GRU")
def gru(step: Step) -> Emit:
    s = layer_of(step, "GRU", 3, shape_of(step, 2)[-1])
    linear = int(step.attribute("linear_before_reset", 0))

    def emit(c: Compiler) -> None:
        directions = range(len(s.reverse))
        recurrent = [_packed_rows(c, 2, d, 0, 2 * s.hidden, s.hidden) for d in directions]
        of_hidden = [_packed_rows(c, 2, d, 2 * s.hidden, s.hidden, s.hidden) for d in directions]
        bias: list[Place] = [0 for _ in directions]
        if linear and present(step, _BIAS):
            bias = [c.input(_BIAS) + 4 * s.hidden * (6 * d + 5) for d in directions]
        run_directions(
            c, "gru", s, 1, 2 if linear else 3, recurrent=recurrent, recurrent_hidden=of_hidden, hidden_bias=bias,
            linear_before_reset=linear,
        )  # fmt: skip

    return emit


@lower("RNN")
def rnn(step: Step) -> Emit:
    s = layer_of(step, "RNN", 1, shape_of(step, 2)[-1])
    relu = int(text((step.attribute("activations") or ["tanh"])[0]).lower() == "relu")

    def emit(c: Compiler) -> None:
        recurrent = [_packed_rows(c, 2, d, 0, s.hidden, s.hidden) for d in range(len(s.reverse))]
        run_directions(c, "rnn", s, 1, 1, recurrent=recurrent, relu=relu)

    return emit
