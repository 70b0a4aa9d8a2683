"""Operators that pick or write elements by index, and other selections."""

from __future__ import annotations

from math import prod

from onnxlet.providers.base import Step

from ..compiler import COPY_GRAIN, MOVE_GRAIN, Compiler
from ..layouts import axis_order, size_of, strides_of
from .common import (
    BOOL,
    F32,
    I32,
    I64,
    TYPE_CODES,
    dtype_of,
    need_constant,
    need_types,
    normal_axis,
    output_shape,
    present,
    shape_of,
    text,
)
from .copies import copy_flat, need_copyable
from .elementwise import GRAIN, common_layout, need_rank, operand
from .registry import Emit, Refused, lower


@lower("Where")
def where(step: Step) -> Emit:
    need_copyable(step, 1, 2)
    need_types(step, (BOOL,), 0)
    need_rank(step)
    target = output_shape(step)
    if dtype_of(step, 1) != dtype_of(step, 2):
        raise Refused("operands of different types have no kernel")
    itemsize = dtype_of(step, 1).itemsize

    def emit(c: Compiler) -> None:
        layout = common_layout(c, target, (0, 1, 2))
        order = axis_order(len(target), layout)
        places = [operand(c, i, target, layout) for i in (0, 1, 2)]
        y = c.output(0, layout, over=[i for i in (1, 2) if shape_of(step, i) == target])
        c.emit(
            "where", units=size_of(target), grain=GRAIN, size=itemsize, condition=places[0][0], a=places[1][0],
            b=places[2][0], y=y, rank=len(target), shape=c.words([target[a] for a in order]),
            condition_strides=c.words(places[0][1]), a_strides=c.words(places[1][1]),
            b_strides=c.words(places[2][1]),
        )  # fmt: skip

    return emit


def _index_size(step: Step, index: int) -> int:
    need_types(step, (I32, I64), index)
    return dtype_of(step, index).itemsize


@lower("Gather")
def gather(step: Step) -> Emit:
    need_copyable(step, 0)
    shape, indices = shape_of(step, 0), shape_of(step, 1)
    axis = normal_axis(step.attribute("axis", 0), len(shape))
    size, inner = _index_size(step, 1), prod(shape[axis + 1 :]) * dtype_of(step, 0).itemsize
    outer, count = prod(shape[:axis]), prod(indices)

    def emit(c: Compiler) -> None:
        x, places, y = c.input(0), c.input(1), c.output()
        if not inner:
            return
        c.emit(
            "gather", units=outer * count, grain=4 * MOVE_GRAIN / inner, x=x, indices=places, index_size=size,
            y=y, axis=shape[axis], count=count, inner_bytes=inner, error=c.error_flag(),
        )  # fmt: skip

    return emit


@lower("GatherElements")
def gather_elements(step: Step) -> Emit:
    need_copyable(step, 0)
    need_rank(step)
    shape, indices = shape_of(step, 0), shape_of(step, 1)
    axis, size = normal_axis(step.attribute("axis", 0), len(shape)), _index_size(step, 1)
    strides = strides_of(shape)
    if not shape:
        raise Refused("GatherElements of a scalar has no kernel")

    def emit(c: Compiler) -> None:
        others = [0 if a == axis else s for a, s in enumerate(strides)]
        c.emit(
            "gather_elements", units=size_of(indices), grain=GRAIN, size=dtype_of(step, 0).itemsize, x=c.input(0),
            indices=c.input(1), index_size=size, y=c.output(), rank=len(shape), shape=c.words(indices),
            x_strides=c.words(others), axis=shape[axis], axis_stride=strides[axis], error=c.error_flag(),
        )  # fmt: skip

    return emit


@lower("GatherND")
def gather_nd(step: Step) -> Emit:
    need_copyable(step, 0)
    shape, indices = shape_of(step, 0), shape_of(step, 1)
    batch = step.attribute("batch_dims", 0)
    depth, size = indices[-1], _index_size(step, 1)
    dims = shape[batch : batch + depth]
    inner = prod(shape[batch + depth :]) * dtype_of(step, 0).itemsize
    if not depth or not inner:
        raise Refused("GatherND of nothing has no kernel")

    def emit(c: Compiler) -> None:
        tuples = prod(indices[:-1])
        c.emit(
            "gather_nd", units=tuples, grain=4 * MOVE_GRAIN / inner, x=c.input(0), indices=c.input(1),
            index_size=size, y=c.output(), depth=depth, dims=c.words(dims), strides=c.words(strides_of(dims)),
            inner_bytes=inner, batch_tuples=max(1, prod(indices[batch:-1])), batch_pieces=prod(dims),
            error=c.error_flag(),
        )  # fmt: skip

    return emit


REDUCTIONS = {"none": 0, "add": 1, "mul": 2, "max": 3, "min": 4}


def _reduction(step: Step) -> int:
    """The kernels' number of the `reduction` attribute."""
    operation = REDUCTIONS.get(text(step.attribute("reduction", "none")))
    if operation is None:
        raise Refused(f"reduction {step.attribute('reduction')} has no kernel")
    if operation:
        need_types(step, (F32, I32, I64), 0)
    need_copyable(step, 0)
    return operation


@lower("ScatterND")
def scatter_nd(step: Step) -> Emit:
    operation = _reduction(step)
    shape, indices = shape_of(step, 0), shape_of(step, 1)
    depth, size, dtype = indices[-1], _index_size(step, 1), dtype_of(step, 0)
    dims, inner = shape[:depth], prod(shape[depth:])
    if dtype not in TYPE_CODES:
        raise Refused(f"{dtype} has no kernel here")

    def emit(c: Compiler) -> None:
        x, y = c.input(0), c.output(0, over=[0])
        if x is not y:
            copy_flat(c, x, y, size_of(shape), dtype.itemsize)
        c.emit(
            "scatter_nd", units=inner, grain=GRAIN, op=operation, type=TYPE_CODES[dtype], indices=c.input(1),
            index_size=size, updates=c.input(2), y=y, tuples=prod(indices[:-1]), depth=depth, dims=c.words(dims),
            strides=c.words([s * inner for s in strides_of(dims)]), inner=inner, error=c.error_flag(),
        )  # fmt: skip

    return emit


@lower("ScatterElements", "Scatter")
def scatter_elements(step: Step) -> Emit:
    operation = _reduction(step)
    need_rank(step)
    shape, indices = shape_of(step, 0), shape_of(step, 1)
    axis, size, dtype = normal_axis(step.attribute("axis", 0), len(shape)), _index_size(step, 1), dtype_of(step, 0)
    strides = strides_of(shape)
    if dtype not in TYPE_CODES or not shape:
        raise Refused(f"{dtype} has no kernel here")

    def emit(c: Compiler) -> None:
        x, y = c.input(0), c.output(0, over=[0])
        if x is not y:
            copy_flat(c, x, y, size_of(shape), dtype.itemsize)
        if not size_of(indices):
            return
        others = [0 if a == axis else s for a, s in enumerate(strides)]
        c.emit(
            "scatter_elements", units=1, op=operation, type=TYPE_CODES[dtype], indices=c.input(1), index_size=size,
            updates=c.input(2), y=y, rank=len(shape), shape=c.words(indices), y_strides=c.words(others),
            count=size_of(indices), axis=shape[axis], axis_stride=strides[axis], error=c.error_flag(),
        )  # fmt: skip

    return emit


@lower("Trilu")
def trilu(step: Step) -> Emit:
    need_copyable(step, 0)
    shape, dtype = shape_of(step, 0), dtype_of(step, 0)
    k = int(need_constant(step, 1, "diagonal").reshape(())) if present(step, 1) else 0

    def emit(c: Compiler) -> None:
        rows, columns = shape[-2:]
        c.emit("trilu", units=size_of(shape) // max(1, columns), grain=max(1, COPY_GRAIN // max(1, columns)),
               size=dtype.itemsize, x=c.input(0), y=c.output(), rows=rows, columns=columns, k=k,
               upper=step.attribute("upper", 1))  # fmt: skip

    return emit
