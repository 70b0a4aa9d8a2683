"""Pooling by the kernel for all that the faster ones leave out: three dimensions, indices of maxima, powers."""

from __future__ import annotations

from math import prod

from onnxlet.providers.base import Step

from ..compiler import Compiler
from ..engine import f32
from .common import grain, need_float32, output_shape, shape_of, window_of
from .registry import Emit, Refused, lower

_OPERATIONS = {"MaxPool": 0, "AveragePool": 1, "LpPool": 2}


@lower("LpPool")
def pool_any(step: Step) -> Emit:
    need_float32(step, 0)
    shape, operator = shape_of(step, 0), step.node.op_type
    rank = len(shape) - 2
    if not 1 <= rank <= 4:
        raise Refused(f"pooling in {rank} dimensions has no kernel")
    w = window_of(step, shape[2:], step.attribute("kernel_shape"))
    window = [v for part in (w.input, w.output, w.kernel, w.strides, w.dilations, w.begin, w.end) for v in part]
    units = shape[0] * shape[1] * prod(w.output)
    if output_shape(step)[:2] != shape[:2]:
        raise Refused("pooling over channels has no kernel")

    def emit(c: Compiler) -> None:
        c.emit(
            "pool_any", units=units, grain=grain(units, 4 * units * prod(w.kernel)), op=_OPERATIONS[operator],
            x=c.input(0), y=c.output(0), indices=c.output(1) if c.wanted(1) else 0, planes=shape[0] * shape[1],
            rank=rank, window=c.words(window), include_pad=step.attribute("count_include_pad", 0),
            power=f32(step.attribute("p", 2)), by_columns=step.attribute("storage_order", 0),
        )  # fmt: skip

    return emit
