"""Operators that look along an axis: positions of extremes, sorting, cumulative sums, one-hot vectors."""

from __future__ import annotations

from math import prod

import numpy as np

from ..kernel import Kernel, flat_body, flat_groups
from ..lowering import Lowering, Tensor, lowering
from ..storage import MOVED
from ..wgsl import contiguous_strides, index_expression, literal
from .arithmetic import NUMBERS, at, before, combined, line, same, whole

LONGEST_SORTED = 8192
"""TopK compares every element of a line with every other: longer lines are left to others."""


def emit_lines(n: Lowering, title: str, reads: list, out: Tensor, lines: int, statements: str) -> None:
    """Add a kernel with one invocation for each of `lines` lines, which stores all that lies along it."""
    body = flat_body(statements, f"{lines}u")
    groups = flat_groups(lines, n.target.flat_groups)
    n.emit(Kernel(title, reads, out.value, out.shape, out.element, body, groups))


@lowering("ArgMax", "ArgMin")
def arg_extreme(n: Lowering) -> None:
    x, out = n.input(0, *NUMBERS), n.output(0)
    axis = n.attribute("axis", 0) % max(len(x.shape), 1)
    if not x.shape:
        n.emit_flat(n.title(x), [], f"store(i, {literal(0, out.element)});", out)
        return
    largest = n.step.node.op_type == "ArgMax"
    start, step, length, _ = line(x.shape, axis)
    better = _beats(x.kind, "value", "best", largest)
    if n.attribute("select_last_index", 0):
        better = f"{better} || {same(x.kind, 'value', 'best')}"
    statements = f"""
let start = {start};
var best = x[start];
var place = 0u;
for (var k = 1u; k < {length}u; k++) {{
    let value = x[start + k * {step}u];
    if ({better}) {{
        best = value;
        place = k;
    }}
}}
store(i, vec2<u32>(place, 0u));
"""
    n.emit_flat(n.title(x, note=f"axis {axis}"), [x.binding("x")], statements, out)


def _beats(kind: str, a: str, b: str, largest: bool) -> str:
    """Whether `a` is the more extreme; NaN is both the greatest and the least."""
    if kind == "float32" and not largest:
        return f"({a} < {b} || (is_nan({a}) && !is_nan({b})))"
    return before(kind, a, b, largest)


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


@lowering("TopK")
def top_k(n: Lowering) -> None:
    """Each element counts those before it: that is its place in the sorted line."""
    x = n.input(0, *NUMBERS)
    axis = n.attribute("axis", -1) % len(x.shape)
    n.ignore("sorted", "k")
    largest = bool(n.attribute("largest", 1))
    if x.shape[axis] > LONGEST_SORTED:
        n.refuse(f"TopK along more than {LONGEST_SORTED} elements has no GPU kernel")
    shape = tuple(n.output(0 if n.has_output(0) else 1).shape)
    k = shape[axis]
    places = n.output(1) if n.has_output(1) else n.temporary("places", shape, np.int64)
    start, step, length, _ = line(x.shape, axis, "row")
    target, target_step, _, _ = line(shape, axis, "row")
    ahead = before(x.kind, "other", "value", largest)
    statements = f"""
let row = i / {length}u;
let j = i % {length}u;
let start = {start};
let value = x[start + j * {step}u];
var place = 0u;
for (var k = 0u; k < {length}u; k++) {{
    let other = x[start + k * {step}u];
    if ({ahead} || (k < j && {same(x.kind, "other", "value")})) {{ place += 1u; }}
}}
if (place < {k}u) {{ store({target} + place * {target_step}u, vec2<u32>(j, 0u)); }}
"""
    body = flat_body(statements, "arrayLength(&x)")
    groups = flat_groups(x.size, n.target.flat_groups)
    title = n.title(x, note=f"axis {axis} largest {int(largest)}")
    n.emit(Kernel(title, [x.binding("x")], places.value, shape, places.element, body, groups))
    if n.has_output(0):
        out = n.output(0)
        others = [0 if d == axis else s for d, s in enumerate(contiguous_strides(x.shape))]
        place = f"{index_expression(shape, others)} + places[i].x * {step}u"
        reads = [x.binding("x"), places.binding("places")]
        n.emit_flat(n.title(x, note=f"axis {axis} chosen"), reads, f"store(i, x[{place}]);", out)


@lowering("CumSum", "CumProd")
def cumulate(n: Lowering) -> None:
    x, out = n.input(0, *NUMBERS), n.output(0, *NUMBERS)
    axis = int(n.known(1, "the axis").reshape(-1)[0]) % len(x.shape)
    exclusive, reverse = n.attribute("exclusive", 0), n.attribute("reverse", 0)
    sums = n.step.node.op_type == "CumSum"
    start, step, length, lines = line(x.shape, axis)
    place = f"start + ({length - 1}u - k) * {step}u" if reverse else f"start + k * {step}u"
    update = f"total = {combined('add' if sums else 'mul', x.kind, 'total', 'x[at]')};"
    write = "store(at, total);"
    statements = f"""
let start = {start};
var total = {literal(0 if sums else 1, x.element)};
for (var k = 0u; k < {length}u; k++) {{
    let at = {place};
    {f"{write} {update}" if exclusive else f"{update} {write}"}
}}
"""
    title = n.title(x, note=f"axis {axis} exclusive {exclusive} reverse {reverse}")
    emit_lines(n, title, [x.binding("x")], out, lines, statements)


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
