"""Reading images at positions between their elements."""

from __future__ import annotations

from math import prod

from onnxlet.providers.base import Step

from ..compiler import Compiler
from .common import grain, need_float32, shape_of, text
from .registry import Emit, Refused, lower

_MODES = {"nearest": 0, "bilinear": 1, "linear": 1, "bicubic": 2, "cubic": 2}
_PADDINGS = {"zeros": 0, "border": 1, "reflection": 2}


@lower("GridSample")
@lower("GridSample", domain="com.microsoft")
def grid_sample(step: Step) -> Emit:
    need_float32(step)
    (batch, channels, *sizes), grid = shape_of(step, 0), shape_of(step, 1)
    mode, padding = _MODES.get(text(step.attribute("mode", "linear"))), text(step.attribute("padding_mode", "zeros"))
    rank = len(sizes)
    if mode is None or padding not in _PADDINGS or not 1 <= rank <= 3 or grid[-1] != rank or grid[0] != batch:
        raise Refused("this way to sample has no kernel")
    if not prod(sizes):
        raise Refused("sampling an empty image has no kernel")
    points = prod(grid[1:-1])

    def emit(c: Compiler) -> None:
        work = batch * points * (channels + 8) * (1, 2, 4)[mode] ** rank
        c.emit(
            "grid_sample", units=batch * points, grain=grain(batch * points, 4 * work), x=c.input(0), grid=c.input(1),
            y=c.output(), sizes=c.words(sizes), rank=rank, channels=channels, points=points, mode=mode,
            padding=_PADDINGS[padding], corners=step.attribute("align_corners", 0),
        )  # fmt: skip

    return emit
