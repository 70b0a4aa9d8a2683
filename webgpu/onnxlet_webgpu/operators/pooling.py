"""Pooling over windows of any rank. One invocation computes one output element."""

from __future__ import annotations

from math import prod

from ..lowering import Lowering, Tensor, lowering
from ..wgsl import contiguous_strides, literal, signed
from .arithmetic import LOWEST, NUMBERS, before, combined
from .windows import Window, coordinate, window


@lowering("MaxPool", "AveragePool", "LpPool")
def pool(n: Lowering) -> None:
    name = n.step.node.op_type
    kinds = NUMBERS if name == "MaxPool" else ("float32",)
    emit_pool(n, name, n.input(0, *kinds), n.output(0, *kinds))


def emit_pool(n: Lowering, name: str, x: Tensor, out: Tensor) -> None:
    """Add a pool over windows: MaxPool, AveragePool or LpPool."""
    g = window(n, x.shape[2:], n.attribute("kernel_shape"), out.shape[2:])
    combine, finish = "", "total"
    column_major = n.attribute("storage_order", 0)
    if name == "MaxPool":
        start, combine = LOWEST[x.kind], f"total = {combined('max', x.kind, 'total', 'value')};"
    elif name == "AveragePool":
        start, combine = "0.0", "total += value;"
        finish = f"total / {_count(n, g)}"
    else:
        p = n.attribute("p", 2)
        power = {1: "abs(value)", 2: "value * value"}.get(p, f"power(abs(value), {literal(p, 'f32')})")
        start, combine = "0.0", f"total += {power};"
        finish = {1: "total", 2: "sqrt(total)"}.get(p, f"power(total, {literal(1 / p, 'f32')})")
    strides = contiguous_strides(x.shape)[2:]
    note = f"window {list(g.kernel)} stride {list(g.strides)} pad {list(g.begins)} dilation {list(g.dilations)}"
    head, indent, place = _walk(g, prod(x.shape[2:]), strides)
    lines = [f"var total = {start};", "var count = 0.0;", *head]
    lines += [f"{indent}let value = x[{place}];", f"{indent}{combine}", f"{indent}count += 1.0;"]
    lines += ["    " * d + "}" for d in reversed(range(g.rank))]
    lines.append(f"store(i, {finish});")
    n.emit_flat(n.title(x, out, note=note), [x.binding("x")], "\n".join(lines), out)
    if name == "MaxPool" and n.has_output(1):
        _indices(n, x, g, column_major, note)


def _walk(g: Window, image: int, strides: list[int]) -> tuple[list[str], str, str]:
    """Loops over the window of output element `i` that lies inside of the input: their heads, the indent inside of
    them, and the text of the place of the element there."""
    lines = []
    inner = prod(g.out_sizes)
    lines.append(f"let plane = i32(i / {inner}u * {image}u);")
    indent, place = "", "plane"
    for d in range(g.rank):
        inner //= g.out_sizes[d]
        at = f"(i / {inner}u % {g.out_sizes[d]}u)" if inner > 1 else f"(i % {g.out_sizes[d]}u)"
        lines.append(f"let start{d} = {coordinate(at, g.strides[d], g.begins[d])};")
    for d in range(g.rank):
        lines.append(f"{indent}for (var k{d} = 0; k{d} < {g.kernel[d]}; k{d}++) {{")
        indent += "    "
        lines.append(f"{indent}let at{d} = start{d} + k{d} * {g.dilations[d]};")
        lines.append(f"{indent}if (at{d} < 0 || at{d} >= {signed(g.sizes[d])}) {{ continue; }}")
        place += f" + at{d} * {signed(strides[d])}" if strides[d] > 1 else f" + at{d}"
    return lines, indent, place


def _indices(n: Lowering, x: Tensor, g: Window, column_major: int, note: str) -> None:
    """The second output of MaxPool: where in the whole input, row by row or column by column, the first greatest is."""
    out = n.output(1)
    strides = contiguous_strides(x.shape)[2:]
    head, indent, place = _walk(g, prod(x.shape[2:]), strides)
    lines = [f"var best = {LOWEST[x.kind]};", "var found = -1;", *head]
    shown = place
    if column_major:
        columns = contiguous_strides(x.shape[:1:-1])[::-1]
        shown = "plane" + "".join(f" + at{d} * {columns[d]}" for d in range(g.rank))
    better = before(x.kind, f"x[{place}]", "best", True)
    lines += [
        f"{indent}if (found < 0 || {better}) {{",
        f"{indent}    best = x[{place}];",
        f"{indent}    found = {shown};",
        f"{indent}}}",
    ]
    lines += ["    " * d + "}" for d in reversed(range(g.rank))]
    lines.append("store(i, pair_of_int(found));")
    n.emit_flat(n.title(x, out, note=f"indices {note}"), [x.binding("x")], "\n".join(lines), out)


def _count(n: Lowering, g: Window) -> str:
    """Text of the divisor of an average: elements inside the input, or inside the padded input."""
    if not n.attribute("count_include_pad", 0):
        return "count"
    auto_pad = n.attribute("auto_pad", "NOTSET") or "NOTSET"
    pads = list(n.attribute("pads") or [0] * (2 * g.rank))
    ends = pads[g.rank :] if auto_pad == "NOTSET" else None
    if ends is None:
        ends = [
            max(0, (o - 1) * s + (k - 1) * d + 1 - size - b)
            for o, s, k, d, size, b in zip(
                g.out_sizes, g.strides, g.kernel, g.dilations, g.sizes, g.begins, strict=True
            )
        ]
        if auto_pad == "VALID":
            ends = [0] * g.rank
    factors = []
    for d in range(g.rank):
        padded_end = g.sizes[d] + ends[d]
        reach = (g.out_sizes[d] - 1) * g.strides[d] - g.begins[d] + (g.kernel[d] - 1) * g.dilations[d]
        if reach < padded_end:
            factors.append(str(g.kernel[d]))
        else:  # ceil_mode lets the last window reach over the padding: what lies beyond doesn't count
            room = f"({padded_end} - start{d} + {g.dilations[d] - 1}) / {g.dilations[d]}"
            factors.append(f"min({g.kernel[d]}, {room})")
    return f"f32({' * '.join(factors)})"


@lowering("GlobalLpPool")
def global_lp_pool(n: Lowering) -> None:
    x, out = n.input(0), n.output(0, "float32")
    inner, p = prod(x.shape[2:]), n.attribute("p", 2)
    statements = f"""
var total = 0.0;
for (var k = 0u; k < {inner}u; k++) {{ total += power(abs(x[i * {inner}u + k]), {literal(p, "f32")}); }}
store(i, power(total, {literal(1 / p, "f32")}));
"""
    n.emit_flat(n.title(x, note=f"p {p}"), [x.binding("x")], statements, out)
