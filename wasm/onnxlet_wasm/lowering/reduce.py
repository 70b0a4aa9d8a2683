"""Reductions, searches and sums along axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from onnxlet.providers.base import Step

from ..compiler import Compiler, Place
from ..layouts import LAST, PLAIN, axis_order, size_of, strides_of
from .common import (
    F32,
    I8,
    I32,
    I64,
    MOVED,
    TYPE_CODES,
    U8,
    axes_of,
    dtype_of,
    grain,
    need_constant,
    need_types,
    normal_axis,
    output_shape,
    shape_of,
)
from .copies import copy_block
from .elementwise import kept_layout
from .registry import Emit, Refused, lower

F64 = np.dtype(np.float64)

OPERATIONS = {
    "ReduceSum": 0, "ReduceMean": 1, "ReduceMax": 2, "ReduceMin": 3, "ReduceProd": 4, "ReduceL1": 5, "ReduceL2": 6,
    "ReduceSumSquare": 7, "ReduceLogSum": 8, "ReduceLogSumExp": 9,
}  # fmt: skip
"""The kernel's numbers of what is computed."""

_OF_INTEGERS = ("ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd")


@dataclass(frozen=True, slots=True)
class Lines:
    """A tensor as [outer, length, inner], where the middle is what is reduced, and the layouts of both sides."""

    outer: int
    length: int
    inner: int
    source: str
    target: str


def _lines(shape: Sequence[int], axes: Sequence[int], keepdims: bool, layout: str) -> Lines | None:
    """How `axes` lie in memory, if they follow each other there and what is left lies in one of the layouts."""
    order = [a for a in axis_order(len(shape), layout) if shape[a] != 1]
    reduced = [i for i, a in enumerate(order) if a in axes]
    if reduced and reduced[-1] - reduced[0] != len(reduced) - 1:
        return None
    first, last = (reduced[0], reduced[-1] + 1) if reduced else (len(order), len(order))
    kept = [a for a in order if a not in axes]
    target = _layout_of(kept, shape, axes, keepdims)
    if target is None:
        return None
    sizes = [shape[a] for a in order]
    return Lines(prod(sizes[:first]), prod(sizes[first:last]), prod(sizes[last:]), layout, target)


def _layout_of(kept: Sequence[int], shape: Sequence[int], axes: Sequence[int], keepdims: bool) -> str | None:
    """The layout of a result whose axes longer than 1 lie in memory in the order `kept`."""
    names = [a for a in range(len(shape)) if keepdims or a not in axes]
    for layout in (PLAIN, LAST):
        order = [names[i] for i in axis_order(len(names), layout)]
        if [a for a in order if a in kept] == list(kept):
            return layout
    return None


def _arranged(c: Compiler, axes: Sequence[int], keepdims: bool) -> tuple[Place, Lines]:
    """The place of input 0 with `axes` next to each other: as it lies, or a copy."""
    shape = shape_of(c.step, 0)
    layouts = (PLAIN,) if c.tensor(0) is not None else c.layouts(0)
    for layout in layouts:
        lines = _lines(shape, axes, keepdims, layout)
        if lines is not None:
            return c.input(0, layout), lines
    itemsize = dtype_of(c.step, 0).itemsize
    order = [a for a in range(len(shape)) if a not in axes] + list(axes)
    strides = strides_of(shape, layouts[0])
    lengths = [shape[a] for a in order]
    copy = c.temporary(size_of(shape) * itemsize)
    copy_block(c, c.input(0, layouts[0]), [strides[a] for a in order], copy, strides_of(lengths), lengths, itemsize)
    length = prod(shape[a] for a in axes)
    return copy, Lines(size_of(shape) // length, length, 1, PLAIN, PLAIN)


@lower(*OPERATIONS)
def reduce(step: Step) -> Emit:
    operator, shape = step.node.op_type, shape_of(step, 0)
    allowed = [F32]
    if operator in _OF_INTEGERS:
        allowed += [I32, I64, F64]
    elif operator == "ReduceMean":
        allowed += [F64]
    need_types(step, allowed, 0)
    if not size_of(shape):
        raise Refused("reducing an empty tensor has no kernel")
    axes = axes_of(step, len(shape))
    if not axes:
        if step.attribute("noop_with_empty_axes", 0):
            raise Refused("reducing nothing has no kernel")
        axes = list(range(len(shape)))
    keepdims = bool(step.attribute("keepdims", 1))
    dtype = dtype_of(step, 0)

    def emit(c: Compiler) -> None:
        x, lines = _arranged(c, axes, keepdims)
        y = c.output(0, lines.target)
        units = lines.outer * lines.inner
        c.emit("reduce", units=units, grain=grain(units, units * lines.length * MOVED), op=OPERATIONS[operator],
               type=TYPE_CODES[dtype], x=x, y=y, axis=lines.length, inner=lines.inner)  # fmt: skip

    return emit


@lower("ArgMax", "ArgMin")
def arg_reduce(step: Step) -> Emit:
    need_types(step, (F32, F64, I32, I64, I8, U8), 0)
    shape = shape_of(step, 0)
    axis = normal_axis(step.attribute("axis", 0), len(shape))
    if not size_of(shape) or not shape:
        raise Refused("searching an empty tensor or a scalar has no kernel")
    keepdims = bool(step.attribute("keepdims", 1))

    def emit(c: Compiler) -> None:
        x, lines = _arranged(c, [axis], keepdims)
        units = lines.outer * lines.inner
        c.emit(
            "arg_reduce", units=units, grain=grain(units, 4 * units * lines.length),
            type=TYPE_CODES[dtype_of(step, 0)], minimum=int(step.node.op_type == "ArgMin"),
            last=step.attribute("select_last_index", 0), x=x, y=c.output(0, lines.target), axis=lines.length,
            inner=lines.inner,
        )  # fmt: skip

    return emit


@lower("CumSum")
def cumsum(step: Step) -> Emit:
    need_types(step, (F32, F64, I32, I64), 0)
    shape = shape_of(step, 0)
    axis = normal_axis(int(need_constant(step, 1, "axes").reshape(())), len(shape))
    if not shape:
        raise Refused("CumSum of a scalar has no kernel")

    def emit(c: Compiler) -> None:
        layout = kept_layout(c, 0)
        order = axis_order(len(shape), layout)
        inner = prod(shape[a] for a in order[order.index(axis) + 1 :])
        units = size_of(shape) // max(1, shape[axis])
        x, y = c.input(0, layout), c.output(0, layout)
        c.emit(
            "cumsum", units=units, grain=grain(units, size_of(shape)), type=TYPE_CODES[dtype_of(step, 0)], x=x, y=y,
            axis=shape[axis], inner=inner, exclusive=step.attribute("exclusive", 0),
            reverse=step.attribute("reverse", 0),
        )  # fmt: skip

    return emit


@lower("TopK")
def topk(step: Step) -> Emit:
    """Always sorted. The number of elements is known from the shape of the output."""
    need_types(step, (F32, F64, I32, I64, I8, U8), 0)
    shape = shape_of(step, 0)
    if not shape:
        raise Refused("TopK of a scalar has no kernel")
    axis = normal_axis(step.attribute("axis", -1), len(shape))
    k = output_shape(step, 0 if step.node.outputs[0] else 1)[axis]
    if len(step.node.inputs) > 1:
        need_constant(step, 1, "size")

    def emit(c: Compiler) -> None:
        inner = prod(shape[axis + 1 :])
        units = size_of(shape) // max(1, shape[axis])
        nbytes = 8 * units * k
        values, indices = (c.output(i) if c.wanted(i) else c.temporary(nbytes) for i in (0, 1))
        c.emit(
            "topk", units=units, grain=grain(units, 8 * size_of(shape)), scratch=16 * k,
            type=TYPE_CODES[dtype_of(step, 0)], x=c.input(0), values=values, indices=indices, axis=shape[axis],
            inner=inner, k=k, largest=step.attribute("largest", 1),
        )  # fmt: skip

    return emit
