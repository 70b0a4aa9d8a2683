"""LSTM with weights of 8 bits, whose inputs and states are quantised over their ranges: DynamicQuantizeLSTM."""

from __future__ import annotations

from math import prod

from onnxlet.providers.base import Step

from .. import pieces
from ..compiler import Compiler, Place
from .common import F32, I8, TYPE_CODES, U8, dtype_of, grain, need_types, present, shape_of
from .quantize import Epilogue, packed_int8, quantize_call
from .registry import Emit, Refused, lower
from .rnn import Layer, layer_of, run_directions

_W, _R, _PEEPHOLE, _W_SCALE, _W_ZERO, _R_SCALE, _R_ZERO = 1, 2, 7, 8, 9, 10, 11


@lower("DynamicQuantizeLSTM", domain="com.microsoft")
def dynamic_quantize_lstm(step: Step) -> Emit:
    """X, W (directions, inputs, 4 * hidden), R (directions, hidden, 4 * hidden), bias, lengths, first states,
    peepholes, scales and zero points of W and R: one per direction, or one per column."""
    s = layer_of(step, "LSTM", 4, shape_of(step, _R)[1], (_W, _R, _W_ZERO, _R_ZERO))
    directions = len(s.reverse)
    for weights, scale, zero in ((_W, _W_SCALE, _W_ZERO), (_R, _R_SCALE, _R_ZERO)):
        need_types(step, (U8, I8), weights)
        need_types(step, (dtype_of(step, weights),), zero)
        if prod(shape_of(step, scale)) not in (directions, directions * s.columns):
            raise Refused("scales that fit neither directions nor columns have no kernel")
        if present(step, zero) and prod(shape_of(step, zero)) not in (directions, directions * s.columns):
            raise Refused("zero points that fit neither directions nor columns have no kernel")

    def emit(c: Compiler) -> None:
        count = s.steps * s.batch * s.inputs
        x_scale, x_zero, x = c.temporary(4), c.temporary(1), c.temporary(count)
        quantize_call(c, c.input(0), count, x, x_scale, x_zero)

        def gates_of(c: Compiler, s: Layer, direction: int, bias: Place) -> Place:
            rows = s.steps * s.batch
            gates = c.temporary(4 * rows * s.columns)
            panels, columns = _packed(c, s, direction, _W, _W_ZERO, s.inputs)
            scale, scales = _scale(c, s, direction, _W_SCALE)
            units = pieces.gemm(rows, s.columns)
            c.emit(
                "gemm_int8", units=units, grain=grain(units, rows * s.columns * s.inputs),
                scratch=pieces.int8_scratch(s.inputs), a=x, type=TYPE_CODES[U8], lda=s.inputs, a_zero=x_zero, b=panels,
                columns=columns, c=gates, ldc=s.columns, m=rows, n=s.columns, k=s.inputs,
                **Epilogue(F32, x_scale, scale, scales, bias).fields(),
            )  # fmt: skip
            return gates

        each = range(directions)
        packed = [_packed(c, s, d, _R, _R_ZERO, s.hidden) for d in each]
        scales = [_scale(c, s, d, _R_SCALE) for d in each]
        scratch = pieces.int8_scratch(s.hidden) + 17 * s.batch * s.hidden + 128
        run_directions(
            c, "lstm_int8", s, 2, 4, gates_of, rounds=1, units=1, scratch=scratch, panels=[p for p, _ in packed],
            columns=[p for _, p in packed], scale=[p for p, _ in scales], scales=scales[0][1],
            peephole=[c.input(_PEEPHOLE) + 12 * s.hidden * d if present(step, _PEEPHOLE) else 0 for d in each],
        )  # fmt: skip

    return emit


def _packed(c: Compiler, s: Layer, direction: int, weights: int, zero: int, k: int) -> tuple[Place, Place]:
    part = (0, 0)
    if present(c.step, zero):
        count = prod(shape_of(c.step, zero)) // len(s.reverse)
        part = (count, direction * count)
    steps = (k, 0, s.columns, 1)
    return packed_int8(c, weights, zero, k, s.columns, steps, direction * k * s.columns, part=part)


def _scale(c: Compiler, s: Layer, direction: int, index: int) -> tuple[Place, int]:
    """The place of a direction's scales, and how many they are."""
    count = prod(shape_of(c.step, index)) // len(s.reverse)
    return c.input(index) + 4 * direction * count, count
