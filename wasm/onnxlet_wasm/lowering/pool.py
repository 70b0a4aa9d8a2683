"""Pooling, in the layout in which the input lies."""

from __future__ import annotations

from math import prod

from onnxlet.providers.base import Step

from ..compiler import Compiler
from ..layouts import LAST, PLAIN, same_in_both, size_of
from ..pieces import spans
from .common import F32, MOVED, TYPE_CODES, Window, grain, need_float32, shape_of, window_of
from .pool_any import pool_any
from .reduce import OPERATIONS
from .registry import Emit, Refused, lower

CHANNEL_BLOCK = 32
"""Channels of an image that are a unit of the kernel `global_pool`."""


def _window(step: Step) -> Window:
    need_float32(step, 0)
    shape = shape_of(step, 0)
    if len(shape) < 3:
        raise Refused("pooling without spatial axes has no kernel")
    return window_of(step, shape[2:], step.attribute("kernel_shape")).in_two_dimensions()


def _layout(c: Compiler, shape: tuple[int, ...]) -> str:
    """The layout in which input 0 lies: channels last if it lies in both, as what comes next may well want that."""
    moved = c.tensor(0) is None and LAST in c.layouts(0) and not same_in_both(shape)
    return LAST if moved else PLAIN


def _fields(w: Window) -> dict[str, int]:
    return {
        "h": w.input[0], "w": w.input[1], "oh": w.output[0], "ow": w.output[1], "kh": w.kernel[0], "kw": w.kernel[1],
        "stride_h": w.strides[0], "stride_w": w.strides[1], "pad_top": w.begin[0], "pad_left": w.begin[1],
        "dilation_h": w.dilations[0], "dilation_w": w.dilations[1],
    }  # fmt: skip


def _planes_scratch(w: Window) -> int:
    """Bytes of scratch of the kernel `pool_planes`."""
    places = -(-w.output[1] // 8) * 8
    line = max(w.begin[1] + w.input[1], places * w.strides[1] + (w.kernel[1] - 1) * w.dilations[1] + 2)
    return 4 * (line + places)


@lower("MaxPool", "AveragePool")
def pool(step: Step) -> Emit:
    if len(shape_of(step, 0)) > 4 or any(step.node.outputs[1:]):
        return pool_any(step)
    window = _window(step)
    shape = shape_of(step, 0)
    batch, channels = shape[:2]
    maximum = step.node.op_type == "MaxPool"
    work = prod(window.output) * batch * channels * prod(window.kernel) * MOVED
    mean = {
        "pad_bottom": window.end[0], "pad_right": window.end[1], "include_pad": step.attribute("count_include_pad", 0),
    }  # fmt: skip

    def emit(c: Compiler) -> None:
        layout = _layout(c, shape)
        x, y, fields = c.input(0, layout), c.output(0, layout), _fields(window)
        if layout == PLAIN:
            units = batch * channels * window.output[0]
            c.emit("pool_planes", units=units, grain=grain(units, work), scratch=_planes_scratch(window), x=x, y=y,
                   planes=batch * channels, maximum=int(maximum), **fields, **mean)  # fmt: skip
            return
        units = spans(batch * window.output[0], window.output[1])
        fields |= {"batch": batch, "c": channels}
        if maximum:
            c.emit("pool_max", units=units, grain=grain(units, work), x=x, y=y, **fields)
        else:
            c.emit("pool_average", units=units, grain=grain(units, work), x=x, y=y, **fields, **mean)

    return emit


@lower("GlobalAveragePool", "GlobalMaxPool")
def global_pool(step: Step) -> Emit:
    need_float32(step, 0)
    shape = shape_of(step, 0)
    if len(shape) < 3:
        raise Refused("global pooling without spatial axes has no kernel")
    maximum = step.node.op_type == "GlobalMaxPool"
    operation = OPERATIONS["ReduceMax" if maximum else "ReduceMean"]

    def emit(c: Compiler) -> None:
        batch, channels, pixels = shape[0], shape[1], prod(shape[2:])
        layout = _layout(c, shape)
        x, y = c.input(0, layout), c.output(0)
        if layout == PLAIN:
            units = batch * channels
            c.emit("reduce", units=units, grain=grain(units, size_of(shape) * MOVED), op=operation,
                   type=TYPE_CODES[F32], x=x, y=y, axis=pixels, inner=1)  # fmt: skip
            return
        units = batch * -(-channels // CHANNEL_BLOCK)
        c.emit("global_pool", units=units, grain=grain(units, size_of(shape) * MOVED), x=x, y=y, batch=batch,
               pixels=pixels, c=channels, maximum=int(maximum))  # fmt: skip

    return emit
