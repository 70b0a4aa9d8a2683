"""Reading images at positions between their elements."""

from __future__ import annotations

from math import prod

from onnxlet.errors import LimitError
from onnxlet.ops.detection import MAX_SAMPLES
from onnxlet.providers.base import Step

from ..compiler import Compiler
from ..engine import f32
from .common import I64, grain, need_float32, need_types, output_shape, shape_of, text
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


@lower("RoiAlign")
def roi_align(step: Step) -> Emit:
    need_float32(step, 0, 1)
    need_types(step, (I64,), 2)
    images, channels, height, width = shape_of(step, 0)
    regions, mode = shape_of(step, 1)[0], text(step.attribute("mode", "avg"))
    half_pixel = step.node.version >= 16 and text(
        step.attribute("coordinate_transformation_mode", "half_pixel")
    ) == "half_pixel"  # fmt: skip
    rows, columns = output_shape(step)[2:]
    samples = int(step.attribute("sampling_ratio", 0))
    if mode not in ("avg", "max") or not height * width or samples < 0 or samples**2 * rows * columns > MAX_SAMPLES:
        raise Refused("this way to sample has no kernel")

    def emit(c: Compiler) -> None:
        units = regions * channels
        c.emit(
            "roi_align", units=units, grain=grain(units, 64 * units * rows * columns), x=c.input(0), rois=c.input(1),
            batch=c.input(2), y=c.output(), images=images, channels=channels, h=height, w=width, oh=rows, ow=columns,
            samples=samples, scale=f32(step.attribute("spatial_scale", 1.0)), half_pixel=int(half_pixel),
            maximum=int(mode == "max"), error=c.error_flag(),
            limit=c.error_flag(LimitError, f"region {{}} takes more than {MAX_SAMPLES:,} samples"),
        )  # fmt: skip

    return emit
