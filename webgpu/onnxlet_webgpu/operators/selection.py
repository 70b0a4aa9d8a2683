"""Operators that look along an axis: the greatest, one-hot vectors, reversed sequences."""

from __future__ import annotations

from math import prod

import numpy as np

from ..kernel import Kernel, flat_body, flat_groups
from ..lowering import Lowering, Tensor, lowering
from ..storage import MOVED
from ..wgsl import contiguous_strides, index_expression, literal
from .arithmetic import NUMBERS, at, before, line, whole


def emit_lines(n: Lowering, title: str, reads: list, out: Tensor, lines: int, statements: str) -> None:
    """Add a kernel with one invocation for each of `lines` lines, which stores all that lies along it."""
    body = flat_body(statements, f"{lines}u")
    groups = flat_groups(lines, n.target.flat_groups)
    n.emit(Kernel(title, reads, out.value, out.shape, out.element, body, groups))


@lowering("Hardmax")
def hardmax(n: Lowering) -> None:
    x, out = n.input(0), n.output(0, "float32")
    rank = len(x.shape)
    if n.version < 13:  # the tensor is seen as a matrix, cut before the axis
        axis = n.attribute("axis", 1) % max(rank, 1)
        shape = (prod(x.shape[:axis]), prod(x.shape[axis:]))
        axis = 1
    else:
        shape, axis = x.shape or (1,), n.attribute("axis", -1) % max(rank, 1)
    start, step, length, lines = line(shape, axis)
    statements = f"""
let start = {start};
var place = 0u;
for (var k = 1u; k < {length}u; k++) {{
    if ({before("float32", f"x[start + k * {step}u]", f"x[start + place * {step}u]", True)}) {{ place = k; }}
}}
for (var k = 0u; k < {length}u; k++) {{ store(start + k * {step}u, select(0.0, 1.0, k == place)); }}
"""
    emit_lines(n, n.title(x, note=f"axis {axis}"), [x.binding("x")], out, lines, statements)


@lowering("OneHot")
def one_hot(n: Lowering) -> None:
    indices, values, out = n.input(0, *NUMBERS), n.input(2, *MOVED), n.output(0)
    axis = n.attribute("axis", -1) % len(out.shape)
    depth = out.shape[axis]
    strides = contiguous_strides(indices.shape)
    spread = [*strides[:axis], 0, *strides[axis:]]
    wrap = f"select(k, k + {depth}, k < 0)" if n.version >= 11 else "k"
    statements = f"""
let k = {whole(n, "index", indices, index_expression(out.shape, spread))};
let wanted = {wrap};
store(i, select(values[0], values[1], wanted == i32({at(out.shape, axis)})));
"""
    reads = [indices.binding("index"), values.binding("values")]
    n.emit_flat(n.title(indices, out, note=f"axis {axis}"), reads, statements, out)


@lowering("EyeLike")
def eye_like(n: Lowering) -> None:
    out = n.output(0)
    n.attribute("dtype")
    k = n.attribute("k", 0)
    one, zero = literal(1, out.element), literal(0, out.element)
    if out.dtype == np.float64:
        one = "double_of_float(1.0)"
    column = f"i32({at(out.shape, 1)})"
    test = f"{column} == i32({at(out.shape, 0)}) + {k}".replace("+ -", "- ")
    n.emit_flat(n.title(out, note=f"k {k}"), [], f"store(i, select({zero}, {one}, {test}));", out)


@lowering("ReverseSequence")
def reverse_sequence(n: Lowering) -> None:
    x, lengths, out = n.input(0, *MOVED), n.input(1, "int64", "int32"), n.output(0)
    batch, time = n.attribute("batch_axis", 1), n.attribute("time_axis", 0)
    strides = contiguous_strides(x.shape)
    others = [0 if d == time else s for d, s in enumerate(strides)]
    statements = f"""
let t = i32({at(x.shape, time)});
let length = {whole(n, "lengths", lengths, at(x.shape, batch))};
let source = u32(select(t, length - 1 - t, t < length));
store(i, x[{index_expression(x.shape, others)} + source * {strides[time]}u]);
"""
    reads = [x.binding("x"), lengths.binding("lengths")]
    n.emit_flat(n.title(x, note=f"batch {batch} time {time}"), reads, statements, out)
