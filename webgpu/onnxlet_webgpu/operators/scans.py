"""Operators that go along lines: cumulative sums, positions of extremes, the first of the sorted elements.

Where there are few lines, and long ones, an invocation takes a chunk of a line; one more dispatch joins the chunks.
"""

from __future__ import annotations

from math import isqrt, prod

import numpy as np

from ..kernel import Kernel, flat_body, flat_groups
from ..lowering import Lowering, Tensor, lowering
from ..wgsl import contiguous_strides, index_expression, literal
from .arithmetic import NUMBERS, before, combined, line, same

FEW, LONG, VERY_LONG = 256, 256, 1 << 15
"""Lines are few below the first number, and long from the second on; of the third length, long in any number."""


def chunks_of(lines: int, length: int) -> int:
    """How many chunks each line is cut into: 1 for none."""
    return -(-length // isqrt(length)) if length >= (LONG if lines < FEW else VERY_LONG) else 1


def emit_many(
    n: Lowering, title: str, reads: list, out: Tensor, count: int, statements: str, fusable: bool = True
) -> None:
    """Add a kernel with `count` invocations, which store what lies along a chunk, or some elements of their choice."""
    body, groups = flat_body(statements, f"{count}u"), flat_groups(count, n.target.flat_groups)
    n.emit(Kernel(title, reads, out.value, out.shape, out.element, body, groups, fusable=fusable))


@lowering("CumSum", "CumProd")
def cumulate(n: Lowering) -> None:
    x, out = n.input(0, *NUMBERS), n.output(0, *NUMBERS)
    axis = int(n.known(1, "the axis").reshape(-1)[0]) % len(x.shape)
    exclusive, reverse = n.attribute("exclusive", 0), n.attribute("reverse", 0)
    sums = n.step.node.op_type == "CumSum"
    start, step, length, lines = line(x.shape, axis, "row")
    chunks = chunks_of(lines, length)
    size = -(-length // chunks)
    place = f"start + ({length - 1}u - k) * {step}u" if reverse else f"start + k * {step}u"
    how = "add" if sums else "mul"
    update = f"total = {combined(how, x.kind, 'total', 'x[at]')};"
    write = "store(at, total);"
    head = f"""
let row = i / {chunks}u;
let chunk = i % {chunks}u;
let start = {start};
var total = {literal(0 if sums else 1, x.element)};"""

    def loop(statements: str) -> str:
        stop = f"min(chunk * {size}u + {size}u, {length}u)"
        head = f"\nfor (var k = chunk * {size}u; k < {stop}; k++) {{\n    let at = {place};\n    "
        return f"{head}{statements}\n}}\n"

    title = n.title(x, note=f"axis {axis} exclusive {exclusive} reverse {reverse}")
    reads = [x.binding("x")]
    if chunks > 1:
        totals = n.temporary("totals", (lines, chunks), np.dtype(x.kind).type)
        emit_many(n, f"{title} totals", reads, totals, totals.size, f"{head}{loop(update)}store(i, total);")
        reads = [*reads, totals.binding("totals")]
        add = combined(how, x.kind, "total", f"totals[row * {chunks}u + s]")
        head += f"\nfor (var s = 0u; s < chunk; s++) {{ total = {add}; }}"
    statements = head + loop(f"{write} {update}" if exclusive else f"{update} {write}")
    emit_many(n, title, reads, out, lines * chunks, statements)


@lowering("ArgMax", "ArgMin")
def arg_extreme(n: Lowering) -> None:
    x, out = n.input(0, *NUMBERS), n.output(0)
    axis = n.attribute("axis", 0) % max(len(x.shape), 1)
    if not x.shape:
        n.emit_flat(n.title(x), [], f"store(i, {literal(0, out.element)});", out)
        return
    largest = n.step.node.op_type == "ArgMax"
    start, step, length, lines = line(x.shape, axis, "row")
    better = _beats(x.kind, "value", "best", largest)
    if n.attribute("select_last_index", 0):
        better = f"{better} || {same(x.kind, 'value', 'best')}"
    chunks = chunks_of(lines, length)
    size = -(-length // chunks)

    def search(first: str, stop: str, place: str) -> str:
        return f"""
let start = {start};
var k = {first};
var place = {place};
var best = x[start + place * {step}u];
for (k += 1u; k < {stop}; k++) {{
    let other = {place};
    let value = x[start + other * {step}u];
    if ({better}) {{
        best = value;
        place = other;
    }}
}}
"""

    title, reads = n.title(x, note=f"axis {axis}"), [x.binding("x")]
    if chunks > 1:
        found = n.temporary("best of chunks", (lines, chunks), np.uint32)
        begin = f"i % {chunks}u * {size}u"
        statements = search(f"min({begin}, {length - 1}u)", f"min({begin} + {size}u, {length}u)", "k")
        statements = f"let row = i / {chunks}u;{statements}store(i, place);"
        emit_many(n, f"{title} of chunks", reads, found, found.size, statements)
        reads = [*reads, found.binding("found")]
        statements = search(f"i * {chunks}u", f"i * {chunks}u + {chunks}u", "found[k]")
    else:
        statements = search("0u", f"{length}u", "k")
    n.emit_flat(title, reads, f"let row = i;{statements}store(i, vec2<u32>(place, 0u));", out)


def _beats(kind: str, a: str, b: str, largest: bool) -> str:
    """Whether `a` is the more extreme; NaN is both the greatest and the least."""
    if kind == "float32" and not largest:
        return f"({a} < {b} || (is_nan({a}) && !is_nan({b})))"
    return before(kind, a, b, largest)


@lowering("TopK")
def top_k(n: Lowering) -> None:
    """The places of the first `k` of each line in sorted order, and what is there."""
    x = n.input(0, *NUMBERS)
    axis = n.attribute("axis", -1) % len(x.shape)
    n.ignore("sorted", "k")
    largest = bool(n.attribute("largest", 1))
    shape = tuple(n.output(0 if n.has_output(0) else 1).shape)
    places = n.output(1) if n.has_output(1) else n.temporary("places", shape, np.int64)
    _sort(n, x, axis, places, largest)
    if n.has_output(0):
        out, step = n.output(0), prod(x.shape[axis + 1 :])
        others = [0 if d == axis else s for d, s in enumerate(contiguous_strides(x.shape))]
        place = f"{index_expression(shape, others)} + places[i].x * {step}u"
        reads = [x.binding("x"), places.binding("places")]
        n.emit_flat(n.title(x, note=f"axis {axis} chosen"), reads, f"store(i, x[{place}]);", out)


RUN = 128
"""Elements that are sorted by comparing each with each; sorted runs of more are merged."""


def _sort(n: Lowering, x: Tensor, axis: int, places: Tensor, largest: bool) -> None:
    """Add kernels that find the places of the first of each line in order, equal ones in the order in which they lie.

    Each element counts those of its run that come before it. Then runs are merged by twos: an element's new place is
    its own plus the number of elements of the other run before it, which a binary search finds.
    """
    start, step, length, lines = line(x.shape, axis, "row")
    k = places.shape[axis]
    target, target_step, _, _ = line(places.shape, axis, "row")
    span = RUN if length > 4 * RUN else length
    runs, held = -(-length // span), min(span, k)

    def ahead(other: str, value: str) -> str:
        return f"({before(x.kind, other, value, largest)})"

    def emit(statements: str, what: str, reads: list, count: int, chosen: str) -> Tensor:
        out = places if runs == 1 else n.temporary(f"order of {span}", (lines, runs, held), np.uint32)
        if runs == 1:
            write = f"store({target} + place * {target_step}u, vec2<u32>({chosen}, 0u));"
        else:
            write = f"store((row * {runs}u + run) * {held}u + place, {chosen});"
        statements += f"if (place < {held}u) {{ {write} }}"
        emit_many(n, f"{title} {what} {span}", [x.binding("x"), *reads], out, count, statements, fusable=False)
        return out

    title = n.title(x, note=f"axis {axis} largest {int(largest)} first {k}")
    statements = f"""
let row = i / {length}u;
let j = i % {length}u;
let start = {start};
let value = x[start + j * {step}u];
let run = j / {span}u;
var place = 0u;
for (var k = run * {span}u; k < min(run * {span}u + {span}u, {length}u); k++) {{
    let other = x[start + k * {step}u];
    if ({ahead("other", "value")} || (k < j && {same(x.kind, "other", "value")})) {{ place += 1u; }}
}}
"""
    order = emit(statements, "in runs of", [], x.size, "j")
    while runs > 1:
        statements = f"""
let own = i / {held}u % {runs}u;
if (i % {held}u >= min({held}u, {length}u - own * {span}u)) {{ continue; }}
let row = i / {runs * held}u;
let start = {start};
let value = x[start + order[i] * {step}u];
let sibling = own ^ 1u;
let run = own / 2u;
var low = 0u;
var high = 0u;
if (sibling < {runs}u) {{ high = min({held}u, {length}u - sibling * {span}u); }}
while (low < high) {{
    let middle = (low + high) / 2u;
    let other = x[start + order[(row * {runs}u + sibling) * {held}u + middle] * {step}u];
    if (select({ahead("other", "value")}, !{ahead("value", "other")}, sibling < own)) {{ low = middle + 1u; }}
    else {{ high = middle; }}
}}
let place = i % {held}u + low;
"""
        count = lines * runs * held
        span, runs, held = 2 * span, -(-runs // 2), min(2 * held, k)
        order = emit(statements, "merged to", [order.binding("order")], count, "order[i]")
