"""Reductions over any axes, and the global pools that are reductions."""

from __future__ import annotations

from math import prod

import numpy as np

from ..combining import combining
from ..kernel import WORKGROUP, Kernel, grid, single_body, single_groups
from ..lowering import Lowering, Tensor, lowering
from ..storage import PAIR
from ..wgsl import contiguous_strides, index_expression, literal
from .arithmetic import HIGHEST, LOWEST, NUMBERS, combined

# start, element, combination of `total` and `value`, end
FORMS: dict[str, tuple[str, str, str, str]] = {
    "ReduceSum": ("{zero}", "{x}", "{a} + {b}", "{total}"),
    "ReduceMean": ("{zero}", "{x}", "{a} + {b}", "{total} / {count}"),
    "ReduceMax": ("-infinity()", "{x}", "max_nan({a}, {b})", "{total}"),
    "ReduceMin": ("infinity()", "{x}", "min_nan({a}, {b})", "{total}"),
    "ReduceProd": ("{one}", "{x}", "{a} * {b}", "{total}"),
    "ReduceL1": ("{zero}", "abs({x})", "{a} + {b}", "{total}"),
    "ReduceL2": ("{zero}", "{x} * {x}", "{a} + {b}", "sqrt({total})"),
    "ReduceSumSquare": ("{zero}", "{x} * {x}", "{a} + {b}", "{total}"),
    "ReduceLogSum": ("{zero}", "{x}", "{a} + {b}", "logarithm({total})"),
}


def integer_form(name: str, kind: str) -> tuple[str, str, str, str] | None:
    """The same for integers, whose sums wrap around, and booleans."""
    zero, one = (literal(v, "u32" if kind == "bool" else {"int32": "i32", "uint32": "u32"}.get(kind, PAIR))
                 for v in (0, 1))  # fmt: skip
    wide = kind in ("int64", "uint64")
    magnitude = {"int32": "abs({x})", "int64": "pair_absolute({x})"}.get(kind, "{x}")
    square = "pair_multiply({x}, {x})" if wide else "{x} * {x}"
    forms = {
        "ReduceSum": (zero, "{x}", "add"),
        "ReduceProd": (one, "{x}", "mul"),
        "ReduceL1": (zero, magnitude, "add"),
        "ReduceSumSquare": (zero, square, "add"),
        "ReduceMax": (LOWEST[kind], "{x}", "max"),
        "ReduceMin": (HIGHEST[kind], "{x}", "min"),
    }
    if name not in forms or (kind == "bool" and name not in ("ReduceMax", "ReduceMin")):
        return None
    start, element, how = forms[name]
    return start, element, combined(how, kind, "{a}", "{b}"), "{total}"


@lowering(*FORMS, "ReduceLogSumExp")
def reduce(n: Lowering) -> None:
    name = n.step.node.op_type
    n.ignore("noop_with_empty_axes", "axes")
    if n.is_empty(0):
        _reduce_nothing(n, name)
        return
    x, out = n.input(0, *NUMBERS, "bool"), n.output(0)
    rank = len(x.shape)
    axes = n.attribute("axes")
    if axes is None and n.has_input(1):
        axes = n.known(1, "the list of axes").reshape(-1).tolist()
    unreduced = n.attribute("noop_with_empty_axes", 0)
    if not axes and not unreduced:
        axes = list(range(rank))
    emit_reduction(n, name, x, out, sorted({int(a) % rank for a in axes or ()} if rank else set()))


def _reduce_nothing(n: Lowering, name: str) -> None:
    """Every result is that of no elements."""
    out = n.output(0, *NUMBERS, "bool")
    if out.kind == "float32":
        start, _, _, finish = FORMS["ReduceLogSum" if name == "ReduceLogSumExp" else name]
        start = start.format(zero="0.0", one="1.0")
        value = finish.format(total="total", count="f32(0u)")
    else:
        form = integer_form(name, out.kind)
        if form is None:
            n.refuse(f"{name} of no integers has no GPU kernel")
        start, value = form[0], "total"
    n.emit_flat(n.title(out, note="of nothing"), [], f"let total = {start};\nstore(i, {value});", out)


@lowering("GlobalAveragePool", "GlobalMaxPool")
def global_pool(n: Lowering) -> None:
    x, out = n.input(0), n.output(0, "float32")
    name = "ReduceMean" if n.step.node.op_type == "GlobalAveragePool" else "ReduceMax"
    emit_reduction(n, name, x, out, list(range(2, len(x.shape))))


VERY_LONG, FEW = 1 << 16, 256
"""Elements to a result from which on several workgroups share them, where there are few results."""


def _emit_in_pieces(
    n: Lowering, name: str, x: Tensor, out: Tensor, axes: list[int], form: tuple[str, str, str, str] | None
) -> None:
    """Add a reduction of many elements to each result: of pieces of them first, then of what those gave."""
    reads = []
    if form is None:  # ReduceLogSumExp: where the highest is not finite, x - highest would be NaN for it too
        highest = n.temporary("highest", out.shape)
        emit_reduction(n, "ReduceMax", x, highest, axes)
        reads = [highest.binding("highest")]
        shift = "select(highest[o], 0.0, is_inf(highest[o]))"
        form = ("0.0", f"exponential({{x}} - {shift})", "{a} + {b}", f"{shift} + logarithm({{total}})")
    start, element, combine, finish = form
    start = start.format(zero="0.0", one="1.0")
    strides = contiguous_strides(x.shape)
    kept = [d for d in range(len(x.shape)) if d not in axes]
    count = prod(x.shape[d] for d in axes)
    pieces = min(256, count >> 12)
    size = -(-count // pieces)
    base = index_expression([x.shape[d] for d in kept], [strides[d] for d in kept], 0, "o")
    offset = index_expression([x.shape[d] for d in axes], [strides[d] for d in axes], 0, "r")
    dtype = np.dtype("uint32" if x.kind == "bool" else x.kind).type
    parts = n.temporary(f"parts {len(n.kernels)}", (out.size, pieces), dtype)
    body = f"""
let group = wid.x + wid.y * groups.x;
if (group >= arrayLength(&y)) {{ return; }}
let o = group / {pieces}u;
let base = {base};
let first = group % {pieces}u * {size}u;
var total = {start};
for (var k = lane; k < {size}u; k += {WORKGROUP}u) {{
    let r = first + k;
    if (r >= {count}u) {{ break; }}
    let value = x[base + {offset}];
    total = {combine.format(a="total", b=element.format(x="value"))};
}}
total = gather(total, lane);
if (lane == 0u) {{ store(group, total); }}
"""
    title = n.title(x, note=f"over axes {axes}")
    groups = grid(parts.size, n.target.max_groups)
    declarations = combining("gather", x.element, combine, n.target.subgroups)
    n.emit(
        Kernel(f"{title} in pieces", [x.binding("x"), *reads], parts.value, parts.shape, parts.element, body, groups,
               declarations=declarations)
    )  # fmt: skip
    statements = f"""
let o = i;
var total = {start};
for (var k = 0u; k < {pieces}u; k++) {{ total = {combine.format(a="total", b=f"parts[o * {pieces}u + k]")}; }}
store(o, {finish.format(total="total", count=f"f32({count}u)")});
"""
    n.emit_flat(f"{title} of {count} joined", [parts.binding("parts"), *reads], statements, out)


def emit_reduction(n: Lowering, name: str, x: Tensor, out: Tensor, axes: list[int]) -> None:
    form = FORMS.get(name) if x.kind == "float32" else integer_form(name, x.kind)
    if form is None and (x.kind != "float32" or name != "ReduceLogSumExp"):
        n.refuse(f"{name} of {x.kind} has no GPU kernel")
    strides = contiguous_strides(x.shape)
    kept = [d for d in range(len(x.shape)) if d not in axes]
    count = prod(x.shape[d] for d in axes)
    if count >= (VERY_LONG if out.size < FEW else VERY_LONG << 5):
        _emit_in_pieces(n, name, x, out, axes, form)
        return
    base = index_expression([x.shape[d] for d in kept], [strides[d] for d in kept], 0, "o")
    offset = index_expression([x.shape[d] for d in axes], [strides[d] for d in axes], 0, "r")
    load = f"x[base + {offset}]" if offset != "0u" else "x[base]"
    if name == "ReduceLogSumExp":
        passes = [
            ("highest", FORMS["ReduceMax"]),
            ("total", ("0.0", "exponential({x} - shift)", "{a} + {b}", "shift + logarithm({total})")),
        ]
    else:
        assert form is not None
        passes = [("total", form)]
    wide = count >= (1024 if n.target.software else 128)
    numbers = {"zero": "0.0", "one": "1.0"}
    body, declarations = [f"let base = {base};"], ""
    first, step = ("lane", WORKGROUP) if wide else ("0u", 1)
    for number, (variable, (start, element, combine, _)) in enumerate(passes):
        body += [
            f"var {variable} = {start.format(**numbers)};",
            f"for (var r = {first}; r < {count}u; r += {step}u) {{",
            f"    let value{number} = {load};",
            f"    {variable} = {combine.format(a=variable, b=element.format(x=f'value{number}'))};",
            "}",
        ]
        if wide:
            body.append(f"{variable} = gather{number}({variable}, lane);")
            declarations += combining(f"gather{number}", x.element, combine, n.target.subgroups) + "\n"
        if variable == "highest":
            # Where the highest is infinite or NaN, x - highest would be NaN for it too.
            body.append("let shift = select(highest, 0.0, is_inf(highest));")
    finish = passes[-1][1][3]
    store = f"store(o, {finish.format(total='total', count=f'f32({count}u)')});"
    title = n.title(x, note=f"over axes {axes}")
    if wide:
        groups = grid(out.size, n.target.max_groups)
        head = ["let o = wid.x + wid.y * groups.x;", "if (o >= arrayLength(&y)) { return; }"]
        text = "\n".join([*head, *body, f"if (lane == 0u) {{ {store} }}"])
    else:
        groups = single_groups(out.size, n.target.max_groups)
        text = single_body("\n".join(["let o = i;", *body, store]))
    n.emit(
        Kernel(title, [x.binding("x")], out.value, out.shape, out.element, text, groups,
               declarations=declarations)
    )  # fmt: skip
