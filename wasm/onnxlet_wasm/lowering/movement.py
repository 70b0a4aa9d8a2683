"""Operators that move elements and compute nothing: views where memory allows, else strided copies."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxlet.providers.base import Step

from ..compiler import Compiler, Place
from ..layouts import LAST, PLAIN, broadcast_strides, size_of, strides_of
from .common import (
    dtype_of,
    integers,
    need_constant,
    normal_axis,
    output_shape,
    present,
    shape_of,
    text,
)
from .copies import copy_block, fill, need_copyable
from .registry import Emit, Refused, lower


@lower("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Dropout")
def reshape(step: Step) -> Emit:
    """The same elements in the same order: no copy."""
    need_copyable(step, 0)
    if step.node.op_type == "Dropout":
        training = present(step, 2) and need_constant(step, 2, "mode").any()
        if training or any(step.node.outputs[1:]):
            raise Refused("Dropout in training has no kernel")
    shape, target = shape_of(step, 0), output_shape(step)
    keeps_channels = len(shape) > 2 and len(target) > 2 and shape[:2] == target[:2]

    def emit(c: Compiler) -> None:
        layouts = c.layouts(0)
        if not keeps_channels or c.tensor(0) is not None:
            layouts = (PLAIN,)
        for layout in layouts:
            c.share(c.input(0, layout), 0, layout)

    return emit


@lower("Transpose")
def transpose(step: Step) -> Emit:
    """A view where the elements already lie in the wanted order in one of the layouts, else a copy."""
    need_copyable(step, 0)
    shape = shape_of(step, 0)
    order = step.attribute("perm") or list(range(len(shape)))[::-1]
    target = output_shape(step)

    def emit(c: Compiler) -> None:
        shared = False
        for layout in c.layouts(0) if c.tensor(0) is None else (PLAIN,):
            strides = strides_of(shape, layout)
            permuted = [strides[a] for a in order]
            for wanted in (PLAIN, LAST):
                if not shared and _agree(target, permuted, strides_of(target, wanted)):
                    c.share(c.input(0, layout), 0, wanted)
                    shared = True
        if not shared:
            layout = c.layouts(0)[0]
            strides = strides_of(shape, layout)
            x, y = c.input(0, layout), c.output()
            copy_block(c, x, [strides[a] for a in order], y, strides_of(target), target, dtype_of(step, 0).itemsize)

    return emit


def _agree(shape: Sequence[int], a: Sequence[int], b: Sequence[int]) -> bool:
    """Whether two lists of strides reach the same elements."""
    return all(d == 1 or x == y for d, x, y in zip(shape, a, b, strict=True))


def _common_layout(c: Compiler, indices: Sequence[int]) -> str:
    """The layout in which the largest part of the inputs lies already."""
    balance = 0
    for i in indices:
        type_ = c.step.inputs[i]
        layouts = c.layouts(i)
        if type_ is not None and len(layouts) == 1:
            balance += type_.size if layouts[0] == LAST else -type_.size
    return LAST if balance > 0 else PLAIN


@lower("Concat")
def concat(step: Step) -> Emit:
    need_copyable(step)
    shapes = [shape_of(step, i) for i in range(len(step.node.inputs))]
    axis = normal_axis(step.attribute("axis", 1), len(shapes[0]))
    target = output_shape(step)
    itemsize = dtype_of(step, 0).itemsize

    def emit(c: Compiler) -> None:
        layout = _common_layout(c, range(len(shapes)))
        y = c.output(0, layout)
        strides = strides_of(target, layout)
        position = 0
        for i, shape in enumerate(shapes):
            if size_of(shape):
                x = c.input(i, layout)
                copy_block(c, x, strides_of(shape, layout), y + position * strides[axis] * itemsize, strides, shape,
                           itemsize)  # fmt: skip
            position += shape[axis]

    return emit


@lower("Split")
def split(step: Step) -> Emit:
    need_copyable(step, 0)
    shape = shape_of(step, 0)
    axis = normal_axis(step.attribute("axis", 0), len(shape))
    starts, position = [], 0
    for i, name in enumerate(step.node.outputs):
        starts.append(position)
        position += output_shape(step, i)[axis] if name else 0
    if position != shape[axis]:
        raise Refused("Split with an unnamed output has no kernel")

    def emit(c: Compiler) -> None:
        for i, start in enumerate(starts):
            begin = [0] * len(shape)
            begin[axis] = start
            _cut(c, i, begin, [1] * len(shape))

    return emit


@lower("Slice")
def slice_(step: Step) -> Emit:
    need_copyable(step, 0)
    shape = shape_of(step, 0)
    rank = len(shape)
    starts, ends = integers(step, "starts", 1), integers(step, "ends", 2)
    if starts is None or ends is None:
        raise Refused("Slice without starts and ends")
    axes = [normal_axis(a, rank) for a in integers(step, "axes", 3) or range(len(starts))]
    steps = integers(step, "steps", 4) or [1] * len(starts)
    begin, stride = [0] * rank, [1] * rank
    for axis, first, last, by in zip(axes, starts, ends, steps, strict=True):
        bounds = slice(first, _end(last, by, shape[axis]), by).indices(shape[axis])
        if len(range(*bounds)) != output_shape(step)[axis]:
            raise Refused("bounds beyond the axis have no kernel")
        begin[axis], _, stride[axis] = bounds

    def emit(c: Compiler) -> None:
        _cut(c, 0, begin, stride)

    return emit


def _end(end: int, step: int, length: int) -> int | None:
    """Where a Python slice ends that goes on as far as an ONNX slice does: going back, -length - 1 and less is all."""
    return None if step < 0 and end < -length else end


def _cut(c: Compiler, index: int, begin: Sequence[int], step: Sequence[int]) -> None:
    """Output `index` is input 0 from `begin` on, every `step`-th element of each axis."""
    if not c.wanted(index):
        return
    shape, target = shape_of(c.step, 0), output_shape(c.step, index)
    itemsize = dtype_of(c.step, 0).itemsize
    constant = c.tensor(0) is not None
    layout = PLAIN if constant else c.layouts(0)[0]
    strides = strides_of(shape, layout)
    offset = sum(b * s for b, s in zip(begin, strides, strict=True)) * itemsize
    moved = [a * b for a, b in zip(strides, step, strict=True)]
    if not size_of(target):
        c.output(index, layout)
        return
    x = c.input(0, layout) + offset
    if _agree(target, moved, strides_of(target, layout)):
        c.share(x, index, layout)
    else:
        y = c.output(index, layout)
        copy_block(c, x, moved, y, strides_of(target, layout), target, itemsize)


@lower("Pad")
def pad(step: Step) -> Emit:
    """Constant padding, negative numbers cropping; and `edge` and `reflect` by copies of borders along each axis."""
    need_copyable(step, 0)
    mode = text(step.attribute("mode", "constant"))
    shape, target = shape_of(step, 0), output_shape(step)
    rank, dtype = len(shape), dtype_of(step, 0)
    pads = integers(step, "pads", 1)
    pads = integers(step, "paddings", 1) if pads is None else pads
    if pads is None:
        raise Refused("Pad without pads")
    axes = [normal_axis(a, rank) for a in integers(step, "axes", 3) or range(rank)]
    begin, end = [0] * rank, [0] * rank
    for i, axis in enumerate(axes):
        begin[axis], end[axis] = pads[i], pads[i + len(axes)]
    if mode not in ("constant", "edge", "reflect"):
        raise Refused(f"Pad of mode {mode} has no kernel")
    if mode != "constant" and min([*begin, *end]) < 0:
        raise Refused(f"Pad of mode {mode} with negative numbers has no kernel")
    if mode != "constant" and not size_of(shape):
        raise Refused(f"Pad of mode {mode} on an empty tensor has no kernel")
    if mode == "reflect" and any(max(b, e) >= d for b, e, d in zip(begin, end, shape, strict=True) if b or e):
        raise Refused("Pad that reflects more than once has no kernel")
    if present(step, 2):
        value = need_constant(step, 2, "value").reshape(-1)
        filler = np.asarray(value[0] if value.size else 0, dtype)
    else:
        filler = np.asarray(step.attribute("value", 0), dtype)

    def emit(c: Compiler) -> None:
        layout = c.layouts(0)[0] if c.tensor(0) is None else PLAIN
        x, y = c.input(0, layout), c.output(0, layout)
        source, strides = strides_of(shape, layout), strides_of(target, layout)
        kept = [max(0, d + min(b, 0) + min(e, 0)) for d, b, e in zip(shape, begin, end, strict=True)]
        if mode == "constant" and kept != list(target):
            fill(c, y, size_of(target), filler)
        first = sum(max(0, -b) * s for b, s in zip(begin, source, strict=True)) * dtype.itemsize
        place = sum(max(0, b) * s for b, s in zip(begin, strides, strict=True)) * dtype.itemsize
        if size_of(kept):
            copy_block(c, x + first, source, y + place, strides, kept, dtype.itemsize)
        if mode != "constant":
            _pad_borders(c, y, strides, shape, begin, end, mode, dtype.itemsize)

    return emit


def _pad_borders(
    c: Compiler,
    y: Place,
    strides: Sequence[int],
    shape: Sequence[int],
    begin: Sequence[int],
    end: Sequence[int],
    mode: str,
    itemsize: int,
) -> None:
    """Fill the borders of `y` axis by axis from what lies inside, so that corners come from borders."""
    lengths = list(shape)
    origin = [b for b in begin]
    for axis, (before, after) in enumerate(zip(begin, end, strict=True)):
        for amount, edge, direction in ((before, begin[axis], -1), (after, begin[axis] + shape[axis] - 1, 1)):
            if not amount:
                continue
            corner = sum(o * s for a, (o, s) in enumerate(zip(origin, strides, strict=True)) if a != axis)
            along = strides[axis]
            from_ = corner + (edge if mode == "edge" else edge - direction) * along
            to = corner + (edge + direction) * along
            block = [*lengths]
            block[axis] = amount
            source, target = list(strides), list(strides)
            source[axis] = 0 if mode == "edge" else -direction * along
            target[axis] = direction * along
            copy_block(c, y + from_ * itemsize, source, y + to * itemsize, target, block, itemsize)
        lengths[axis] += before + after
        origin[axis] = 0


@lower("Expand")
def expand(step: Step) -> Emit:
    need_copyable(step, 0)
    shape, target = shape_of(step, 0), output_shape(step)

    def emit(c: Compiler) -> None:
        layout = PLAIN
        if c.tensor(0) is None and len(shape) == len(target):
            layout = c.layouts(0)[0]
        if shape == target:
            c.share(c.input(0, layout), 0, layout)
            return
        x, y = c.input(0, layout), c.output(0, layout)
        copy_block(c, x, broadcast_strides(shape, target, layout), y, strides_of(target, layout), target,
                   dtype_of(step, 0).itemsize)  # fmt: skip

    return emit


@lower("Tile")
def tile(step: Step) -> Emit:
    need_copyable(step, 0)
    shape, target = shape_of(step, 0), output_shape(step)
    if len(step.node.inputs) > 2:
        raise Refused("Tile of opset 1 has no kernel")
    if len(shape) != len(target) or not size_of(shape):
        raise Refused("Tile of an empty tensor has no kernel")

    def emit(c: Compiler) -> None:
        x, y = c.input(0), c.output()
        lengths: list[int] = []
        source: list[int] = []
        place: list[int] = []
        for length, total, s, t in zip(shape, target, strides_of(shape), strides_of(target), strict=True):
            lengths += [total // length, length]
            source += [0, s]
            place += [t * length, t]
        copy_block(c, x, source, y, place, lengths, dtype_of(step, 0).itemsize)

    return emit


@lower("DepthToSpace")
def depth_to_space(step: Step) -> Emit:
    need_copyable(step, 0)
    n, channels, height, width = shape_of(step, 0)
    block = step.attribute("blocksize")
    depth = channels // (block * block)
    columns_first = text(step.attribute("mode", "DCR")) == "DCR"
    target = output_shape(step)

    def emit(c: Compiler) -> None:
        layout = c.layouts(0)[0] if c.tensor(0) is None else PLAIN
        sn, sc, sh, sw = strides_of((n, channels, height, width), layout)
        tn, tc, th, tw = strides_of(target, layout)
        by, bx, d = (block * depth * sc, depth * sc, sc) if columns_first else (block * sc, sc, block * block * sc)
        lengths = [n, depth, height, block, width, block]
        source = [sn, d, sh, by, sw, bx]
        place = [tn, tc, th * block, th, tw * block, tw]
        if layout == LAST:
            lengths, source, place = ([v[i] for i in (0, 2, 3, 4, 5, 1)] for v in (lengths, source, place))
        x, y = c.input(0, layout), c.output(0, layout)
        copy_block(c, x, source, y, place, lengths, dtype_of(step, 0).itemsize)

    return emit


@lower("SpaceToDepth")
def space_to_depth(step: Step) -> Emit:
    need_copyable(step, 0)
    n, channels, height, width = shape_of(step, 0)
    block = step.attribute("blocksize")
    target = output_shape(step)

    def emit(c: Compiler) -> None:
        layout = c.layouts(0)[0] if c.tensor(0) is None else PLAIN
        sn, sc, sh, sw = strides_of((n, channels, height, width), layout)
        tn, tc, th, tw = strides_of(target, layout)
        lengths = [n, block, block, channels, height // block, width // block]
        source = [sn, sh, sw, sc, sh * block, sw * block]
        block_row, block_column, channel = tc * block * channels, tc * channels, tc
        if text(step.attribute("mode", "DCR")) == "CRD":
            block_row, block_column, channel = tc * block, tc, tc * block * block
        place = [tn, block_row, block_column, channel, th, tw]
        if layout == LAST:
            lengths, source, place = ([v[i] for i in (0, 4, 5, 1, 2, 3)] for v in (lengths, source, place))
        x, y = c.input(0, layout), c.output(0, layout)
        copy_block(c, x, source, y, place, lengths, dtype_of(step, 0).itemsize)

    return emit
