"""Pooling, channels last."""

from __future__ import annotations

from math import prod

from onnxlet.providers.base import Step

from ..compiler import Compiler
from ..layouts import LAST
from .common import Window, grain, need_float32, need_single_output, shape_of, window_of
from .registry import Emit, Refused, lower

CHANNEL_BLOCK = 32
"""Channels of an image that are a unit of the kernel `global_pool`."""


def _window(step: Step) -> Window:
    need_float32(step, 0)
    need_single_output(step)
    shape = shape_of(step, 0)
    if not 3 <= len(shape) <= 4:
        raise Refused(f"pooling in {len(shape) - 2} dimensions has no kernel")
    return window_of(step, shape[2:], step.attribute("kernel_shape")).in_two_dimensions()


def _fields(w: Window, batch: int, channels: int) -> dict[str, int]:
    return {
        "batch": batch, "h": w.input[0], "w": w.input[1], "c": channels, "oh": w.output[0], "ow": w.output[1],
        "kh": w.kernel[0], "kw": w.kernel[1], "stride_h": w.strides[0], "stride_w": w.strides[1],
        "pad_top": w.begin[0], "pad_left": w.begin[1], "dilation_h": w.dilations[0], "dilation_w": w.dilations[1],
    }  # fmt: skip


@lower("MaxPool")
def max_pool(step: Step) -> Emit:
    window = _window(step)
    batch, channels = shape_of(step, 0)[:2]
    rows = batch * window.output[0]

    def emit(c: Compiler) -> None:
        x, y = c.input(0, LAST), c.output(0, LAST)
        work = rows * window.output[1] * channels * prod(window.kernel)
        c.emit("pool_max", units=rows, grain=grain(rows, work), x=x, y=y, **_fields(window, batch, channels))

    return emit


@lower("AveragePool")
def average_pool(step: Step) -> Emit:
    window = _window(step)
    batch, channels = shape_of(step, 0)[:2]
    rows = batch * window.output[0]

    def emit(c: Compiler) -> None:
        x, y = c.input(0, LAST), c.output(0, LAST)
        work = rows * window.output[1] * channels * prod(window.kernel)
        c.emit(
            "pool_average", units=rows, grain=grain(rows, work), x=x, y=y, **_fields(window, batch, channels),
            pad_bottom=window.end[0], pad_right=window.end[1], include_pad=step.attribute("count_include_pad", 0),
        )  # fmt: skip

    return emit


@lower("GlobalAveragePool", "GlobalMaxPool")
def global_pool(step: Step) -> Emit:
    need_float32(step, 0)
    shape = shape_of(step, 0)
    if len(shape) < 3:
        raise Refused("global pooling without spatial axes has no kernel")
    maximum = int(step.node.op_type == "GlobalMaxPool")

    def emit(c: Compiler) -> None:
        global_pool_call(c, shape, maximum)

    return emit


def global_pool_call(c: Compiler, shape: tuple[int, ...], maximum: int) -> None:
    """Output 0 = the mean or the maximum of input 0 over all axes behind the channels."""
    batch, channels, pixels = shape[0], shape[1], prod(shape[2:])
    x, y = c.input(0, LAST), c.output(0)
    units = batch * -(-channels // CHANNEL_BLOCK)
    c.emit("global_pool", units=units, grain=grain(units, batch * channels * pixels), x=x, y=y, batch=batch,
           pixels=pixels, c=channels, maximum=maximum)  # fmt: skip
