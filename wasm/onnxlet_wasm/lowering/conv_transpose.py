"""Transposed convolution, channels last: a matrix product, whose results are gathered per output pixel."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from onnxlet.ops.conv import transposed_pads
from onnxlet.providers.base import Step

from .. import pieces
from ..compiler import Compiler, Place
from ..layouts import LAST, strides_of
from .common import (
    MOVED,
    NO_ACTIVATION,
    Window,
    grain,
    need_constant,
    need_float32,
    output_shape,
    present,
    shape_of,
    text,
)
from .copies import copy_block
from .gemm import activation_fields, gemm_call
from .registry import Emit, Refused, lower


@lower("ConvTranspose")
def conv_transpose(step: Step) -> Emit:
    need_float32(step)
    shape, weights, target = shape_of(step, 0), shape_of(step, 1), output_shape(step)
    rank = len(shape) - 2
    if not 1 <= rank <= 3:
        raise Refused(f"transposed convolution in {rank} dimensions has no kernel")
    kernel = weights[2:]
    strides, dilations, more = (
        list(step.attribute(name) or [default] * rank)
        for name, default in (("strides", 1), ("dilations", 1), ("output_padding", 0))
    )
    auto_pad = text(step.attribute("auto_pad", "NOTSET"))
    cut = transposed_pads(
        shape[2:], kernel, strides, dilations, more, auto_pad, step.attribute("pads"), step.attribute("output_shape")
    )
    begin = [a for a, _ in cut]
    sizes = _sizes(shape[2:], target[2:], kernel, strides, dilations, begin)
    groups, (batch, channels), per_group = step.attribute("group", 1), shape[:2], weights[1]
    depth, taps = channels // groups, prod(kernel)
    columns, pixels = taps * per_group, batch * prod(shape[2:])
    apart = rank < 3 and not any(begin) and list(kernel) == strides and prod(dilations) == 1
    apart = apart and list(target[2:]) == [n * s for n, s in zip(shape[2:], strides, strict=True)]

    def emit(c: Compiler) -> None:
        panels = _packed(c, groups, depth, per_group, taps)
        x, y = c.input(0, LAST), c.output(0, LAST)
        parts = c.temporary(4 * pixels * groups * columns)
        panel_bytes = pieces.packed_size(depth, columns)
        simple = apart and (c.tensor(2) is not None or not present(step, 2))
        for g in range(groups):
            bias = _tiled_bias(c, g, per_group, taps) if simple and present(step, 2) else 0
            gemm_call(c, x + 4 * g * depth, channels, panels + g * panel_bytes, parts + 4 * g * columns,
                      groups * columns, pixels, columns, depth, bias, 0, 0, NO_ACTIVATION)  # fmt: skip
        if simple:
            # Windows that do not overlap are only to be put side by side.
            lengths = (batch, sizes["h"], sizes["kh"], sizes["w"], sizes["kw"], groups, per_group)
            pixel = groups * columns
            source = (sizes["h"] * sizes["w"] * pixel, sizes["w"] * pixel, sizes["kw"] * per_group, pixel, per_group,
                      columns, 1)  # fmt: skip
            copy_block(c, parts, source, y, strides_of(lengths), lengths, 4)
            return
        units = pieces.spans(batch * sizes["od"] * sizes["oh"], sizes["ow"])
        c.emit(
            "gather_windows", units=units, grain=grain(units, pixels * groups * columns), parts=parts, bias=c.input(2),
            y=y, batch=batch, oc=per_group, groups=groups, **sizes, **activation_fields(NO_ACTIVATION),
        )  # fmt: skip

    return emit


def _tiled_bias(c: Compiler, group: int, outputs: int, taps: int) -> int:
    """A group's bias, once per tap."""
    tensor = c.tensor(2)
    assert tensor is not None

    def tile() -> np.ndarray:
        return np.tile(tensor.numpy()[group * outputs : (group + 1) * outputs], taps)

    return c.computed(("tiled bias", group, taps), tile, c.step.node.inputs[2])


def _packed(c: Compiler, groups: int, depth: int, outputs: int, taps: int) -> Place:
    """The place of the weights in panels per group."""
    nbytes = groups * pieces.packed_size(depth, taps * outputs)
    units = groups * pieces.panels(taps * outputs)
    fields = {"groups": groups, "ic": depth, "oc": outputs, "taps": taps}
    tensor = c.tensor(1)
    if tensor is None:
        panels = c.temporary(nbytes)
        work = groups * depth * outputs * taps * MOVED
        c.emit("pack_conv_transpose", units=units, grain=grain(units, work), w=c.input(1), panels=panels, **fields)
        return panels

    def pack(raw: int, address: int) -> None:
        c.memory.engine.call("pack_conv_transpose", units=units, w=raw, panels=address, **fields)

    return c.memory.packed(tensor, ("conv transpose", groups), nbytes, pack)


@lower("Col2Im")
def col2im(step: Step) -> Emit:
    """The same sums, of columns that are given."""
    need_float32(step, 0)
    (batch, rows, blocks), target = shape_of(step, 0), output_shape(step)
    kernel = [int(n) for n in need_constant(step, 2, "block")]
    rank, taps, channels = len(kernel), prod(kernel), target[1]
    if not 1 <= rank <= 3 or rows != taps * channels:
        raise Refused("columns of this shape have no kernel")
    strides, dilations = (list(step.attribute(name) or [1] * rank) for name in ("strides", "dilations"))
    pads = list(step.attribute("pads") or [0] * 2 * rank)
    counts = [
        (size + pads[i] + pads[i + rank] - (k - 1) * d - 1) // s + 1
        for i, (size, k, s, d) in enumerate(zip(target[2:], kernel, strides, dilations, strict=True))
    ]
    if prod(counts) != blocks:
        raise Refused("columns of this shape have no kernel")
    sizes = _sizes(counts, target[2:], kernel, strides, dilations, pads[:rank])

    def emit(c: Compiler) -> None:
        parts, y = c.temporary(4 * batch * rows * blocks), c.output(0, LAST)
        lengths = (batch, blocks, taps, channels)
        copy_block(c, c.input(0), (rows * blocks, 1, blocks, taps * blocks), parts, strides_of(lengths), lengths, 4)
        units = pieces.spans(batch * sizes["od"] * sizes["oh"], sizes["ow"])
        c.emit("gather_windows", units=units, grain=grain(units, batch * blocks * rows), parts=parts, bias=0, y=y,
               batch=batch, oc=channels, groups=1, **sizes, **activation_fields(NO_ACTIVATION))  # fmt: skip

    return emit


def _sizes(
    inputs: Sequence[int],
    outputs: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    begin: Sequence[int],
) -> dict[str, int]:
    """The fields of the kernel `gather_windows` that speak of its window."""
    parts = (tuple(part) for part in (inputs, outputs, kernel, strides, dilations, begin, begin))
    window = Window(*parts).in_two_dimensions()
    return window.layers() | {
        "h": window.input[-2], "w": window.input[-1], "oh": window.output[-2], "ow": window.output[-1],
        "kh": window.kernel[-2], "kw": window.kernel[-1], "stride_h": window.strides[-2],
        "stride_w": window.strides[-1], "pad_top": window.begin[-2], "pad_left": window.begin[-1],
        "dilation_h": window.dilations[-2], "dilation_w": window.dilations[-1],
    }  # fmt: skip
