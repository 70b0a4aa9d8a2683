"""Products of one row, for real GPUs: a workgroup computes some columns, its invocations share the sum out."""

from __future__ import annotations

from ..combining import combining
from ..kernel import Kernel, grid
from ..lowering import Target, Tensor
from .product import Product

SLICES = 8
"""Parts of the sum in a workgroup, where neighbouring invocations have neighbouring columns."""


def vector_kernel(p: Product, out: Tensor, title: str, t: Target) -> Kernel:
    """The kernel for the layout of the matrix: rows of it that lie together are read as such, and so are columns."""
    by_four = p.a.vectorised(1) and p.k % 4 == 0
    if by_four and p.b.vectorised(0):
        return _along_columns(p, out, title, t)
    return _across(p, out, title, t, by_four and p.b.vectorised(1))


def _along_columns(p: Product, out: Tensor, title: str, t: Target) -> Kernel:
    """Columns lie together (a transposed matrix): all 64 invocations go along four of them at once."""
    columns = -(-p.n // 4)
    clamped = [f"min(column + {c}u, {p.n - 1}u)" if p.n % 4 else f"(column + {c}u)" for c in range(4)]
    starts = [f"let b{c} = ({p.b.base} + {clamped[c]} * {p.b.column_stride}u) / 4u;" for c in range(4)]
    dots = ", ".join(f"dot(x, vec4<f32>(b[b{c} + k]))" for c in range(4))
    lines = [
        "let group = wid.x + wid.y * groups.x;",
        f"if (group >= arrayLength(&y) / {p.n}u * {columns}u) {{ return; }}",
        f"let batch = group / {columns}u;",
        f"let column = group % {columns}u * 4u;",
        f"let a0 = ({p.a.base}) / 4u;",
        *starts,
        "var part = vec4<f32>();",
        f"for (var k = lane; k < {p.k // 4}u; k += 64u) {{",
        "    let x = a[a0 + k];",
        f"    part += vec4<f32>({dots});",
        "}",
        "let total = row_total(part, lane);",
        f"if (lane < min(4u, {p.n}u - column)) {{ store(batch * {p.n}u + column + lane, total[lane]); }}",
    ]
    reads = [p.a.binding("a", True), p.b.binding("b", True)]
    groups = grid((p.batch or 1) * columns, t.max_groups)
    declarations = combining("row_total", "vec4<f32>", "{a} + {b}", t.subgroups)
    body = "\n".join(lines)
    return Kernel(title + " one row along", reads, out.value, out.shape, "f32", body, groups, (64, 1, 1), declarations)


def _across(p: Product, out: Tensor, title: str, t: Target, by_four: bool) -> Kernel:
    """8 columns, or fours of columns, by 8 slices of the sum."""
    width = 4 if by_four else 1
    element = "vec4<f32>" if by_four else "f32"
    columns = -(-p.n // (SLICES * width))
    step = width
    lines = [
        "let group = wid.x + wid.y * groups.x;",
        f"if (group >= arrayLength(&y) / {p.n}u * {columns}u) {{ return; }}",
        f"let batch = group / {columns}u;",
        f"let column = (group % {columns}u * 8u + lane % 8u) * {width}u;",
        f"let a0 = {p.a.base};",
        f"let b0 = {p.b.base};",
        f"var total = {element}();",
        f"if (column < {p.n}u) {{",
        f"    for (var k = lane / 8u * {step}u; k < {p.k}u; k += {SLICES * step}u) {{",
    ]
    if by_four:
        lines.append("        let x = a[(a0 + k) / 4u];")
        lines.append(f"        let place = (b0 + k * {p.b.row_stride}u + column) / 4u;")
        lines += [
            f"        total += x.{'xyzw'[s]} * vec4<f32>(b[place + {s * p.b.row_stride // 4}u]);" for s in range(4)
        ]
    else:
        place = f"b[b0 + k * {p.b.row_stride}u + column * {p.b.column_stride}u]"
        lines.append(f"        total += a[a0 + k * {p.a.column_stride}u] * f32({place});")
    lines += [
        "    }",
        "}",
        "partial[lane] = total;",
        "workgroupBarrier();",
        f"if (lane < 8u && column < {p.n}u) {{",
        f"    for (var s = 1u; s < {SLICES}u; s++) {{ total += partial[lane + s * 8u]; }}",
    ]
    if by_four:
        lines += [
            f"    for (var c = 0u; c < min(4u, {p.n}u - column); c++) {{",
            f"        store(batch * {p.n}u + column + c, total[c]);",
            "    }",
        ]
    else:
        lines.append(f"    store(batch * {p.n}u + column, total);")
    lines.append("}")
    reads = [p.a.binding("a", by_four), p.b.binding("b", by_four)]
    groups = grid((p.batch or 1) * columns, t.max_groups)
    declarations = f"var<workgroup> partial: array<{element}, 64>;"
    body = "\n".join(lines)
    return Kernel(title + " one row", reads, out.value, out.shape, "f32", body, groups, (64, 1, 1), declarations)
