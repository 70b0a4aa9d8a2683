"""Matrix products: MatMul, Gemm, and the kernels that convolutions share.

Three shaders compute the same product; the device decides which. Long sums for few results are cut into pieces, which
are computed side by side and added up in order.

* `registers`: an invocation keeps a block of rows and columns in registers and reads both operands directly. No
  workgroup barriers: the fastest on software adapters, and for small products everywhere.
* `tiled`: a workgroup of 16 × 16 invocations stages 64 × 64 tiles in shared memory. For real GPUs.
* `vector`: one row: the invocations of a workgroup share the sum out. For real GPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from ..kernel import Binding, Kernel, Operand, flat_body, flat_groups, grid, single_body, single_groups
from ..lowering import INTERNAL, MICROSOFT, Lowering, Target, Tensor, lowering
from ..wgsl import broadcast_strides, index_expression, literal
from .activations import apply_activation
from .product import Matrix, Product
from .vector import vector_kernel


def emit_product(n: Lowering, p: Product, out: Tensor, title: str) -> None:
    """Add the kernels for a product, the variant that suits the device and the sizes."""
    pieces = _pieces(p, n.target)
    if pieces == 1 or p.m * p.n * (p.batch or 1) * pieces * 4 > n.most_bytes:
        n.emit(_kernel(p, out, title, n.target))
        return
    depth, area, batch = p.k // pieces, p.m * p.n, p.batch or 1
    parts = n.temporary(f"pieces {len(n.kernels)}", (batch * pieces, p.m, p.n))
    batched = p.batch is not None
    a = p.a.part(pieces, depth * p.a.column_stride, batched)
    b = p.b.part(pieces, depth * p.b.row_stride, batched)
    n.emit(_kernel(Product(a, b, p.m, p.n, depth, batch * pieces), parts, f"{title} in {pieces} pieces", n.target))
    place = f"i / {area}u * {area * pieces}u + i % {area}u" if batched else "i"
    lines = [
        f"let first = {place};",
        "var total = x[first];",
        f"for (var s = 1u; s < {pieces}u; s++) {{ total += x[first + s * {area}u]; }}",
        "store(i, total);",
    ]
    n.emit_flat(f"{title} sum of {pieces} pieces of {area}", [parts.binding("x")], "\n".join(lines), out)


def candidates(p: Product, t: Target) -> tuple[str, list[str]]:
    """The class of a product's shapes, and the kernels that can compute it, first the one to take untried."""
    row = p.m == 1 and p.k >= 64
    if not t.software and row and t.max_invocations >= 64:
        return "row", ["vector", "registers"]
    fits = t.max_invocations >= 256 and t.max_shared_bytes >= TILED_BYTES
    if not t.software and fits and p.m * p.n >= 64 * 16:
        return "square", ["tiled", "registers"]
    return "small", ["registers"]


def _variant(p: Product, t: Target) -> tuple[str, str]:
    """The kernel to take, and why."""
    shapes, known = candidates(p, t)
    return t.choices.get(shapes, (known[0], ""))


def _tiled(p: Product, out: Tensor, title: str, t: Target) -> Kernel:
    loads = matrix_load("a", p.a), matrix_load("b", p.b)
    return tiled_kernel(p, out, title, t.max_groups, *loads, [p.a.binding("a"), p.b.binding("b")])


def _registers(p: Product, out: Tensor, title: str, t: Target) -> Kernel:
    return registers_kernel(p, out, title, t.max_groups)


VARIANTS = {"registers": _registers, "tiled": _tiled, "vector": vector_kernel}


def _kernel(p: Product, out: Tensor, title: str, t: Target) -> Kernel:
    variant, why = _variant(p, t)
    kernel = VARIANTS[variant](p, out, title, t)
    kernel.note = why
    return kernel


def _pieces(p: Product, t: Target) -> int:
    """Into how many pieces the sums are cut, so that a few long ones keep the device busy: 1 for no pieces."""
    variant, _ = _variant(p, t)
    rows, columns, enough = {"registers": (8, 8, 128), "vector": (1, 16, 64), "tiled": (TILE, TILE, 64)}[variant]
    blocks = -(-p.m // rows) * -(-p.n // columns) * (p.batch or 1)
    step = 4 if p.k % 4 == 0 else 1
    least = -(-2 * p.k // t.max_steps) if t.max_steps else 1
    most = max(min(enough // blocks, p.k // SHORTEST), 8 * least if least > 1 else 1)
    return next((s for s in range(most, max(least, FEWEST if least == 1 else 2) - 1, -1) if p.k % (s * step) == 0), 1)


FEWEST, SHORTEST = 4, 512
"""Sums are cut into so many pieces or more, none shorter than the second number: less does not pay for a dispatch."""


def _place(base: str, *terms: tuple[str, int]) -> str:
    """Text of ``base + term * factor + ...``, without factors of one and terms of nothing."""
    parts = [] if base == "0u" else [base]
    parts += [name if factor == 1 else f"{name} * {factor}u" for name, factor in terms if factor]
    return " + ".join(parts) or "0u"


def registers_kernel(p: Product, out: Tensor, title: str, limit: int) -> Kernel:
    """Each invocation computes a block of rows by 8 (or 4) columns, in registers."""
    rows = 8 if p.m > 4 else 4 if p.m > 2 else p.m
    vectors = 2 if p.n > 4 else 1
    columns = 4 * vectors
    a_vector = p.a.vectorised(1) and p.k % 4 == 0
    b_vector = p.b.vectorised(1)
    step = 4 if a_vector else 1
    row_blocks, column_blocks = -(-p.m // rows), -(-p.n // columns)
    lines = [
        f"let column = i % {column_blocks}u * {columns}u;",
        f"let row = i / {column_blocks}u{p.within(row_blocks)} * {rows}u;",
        f"let batch = {p.quotient('i', row_blocks * column_blocks)};",
        f"let a_base = {p.a.base};",
        f"let b_base = {p.b.base};",
    ]
    for r in range(rows):
        # A block that reaches over the edge reads the last row again and doesn't store it.
        clamped = f"min(row + {r}u, {p.height} - 1u)" if p.m % rows else f"(row + {r}u)"
        place = _place("a_base", (clamped, p.a.row_stride))
        lines.append(f"var a{r} = ({place}) / 4u;" if a_vector else f"var a{r} = {place};")
    if b_vector:
        for v in range(vectors):
            clamped = f"min(column + {4 * v}u, {p.n + -p.n % 4 - 4}u)" if p.n % columns else f"(column + {4 * v}u)"
            lines.append(f"var b{v} = (b_base + {clamped}) / 4u;")
    else:
        for c in range(columns):
            clamped = f"min(column + {c}u, {p.n - 1}u)" if p.n % columns else f"(column + {c}u)"
            lines.append(f"var b{c} = {_place('b_base', (clamped, p.b.column_stride))};")
    lines += [f"var c{r}{v} = vec4<f32>();" for r in range(rows) for v in range(vectors)]
    lines.append(f"for (var k = 0u; k < {p.k}u; k += {step}u) {{")
    lines += [f"    let p{r} = a[a{r}];" for r in range(rows)]
    for s in range(step):
        for v in range(vectors):
            if b_vector:
                place = f"b{v}" if s == 0 else f"b{v} + {s * p.b.row_stride // 4}u"
                lines.append(f"    let q{s}{v} = vec4<f32>(b[{place}]);")
            else:
                parts = [f"f32(b[b{4 * v + c} + {s * p.b.row_stride}u])" for c in range(4)]
                lines.append(f"    let q{s}{v} = vec4<f32>({', '.join(parts)});")
        for r in range(rows):
            factor = f"p{r}.{'xyzw'[s]}" if a_vector else f"p{r}"
            lines += [f"    c{r}{v} += {factor} * q{s}{v};" for v in range(vectors)]
    lines += [f"    a{r} += {1 if a_vector else p.a.column_stride}u;" for r in range(rows)]
    advance = step * p.b.row_stride
    lines += [f"    b{v} += {advance // 4 if b_vector else advance}u;" for v in range(vectors if b_vector else columns)]
    lines.append("}")
    place = f"(batch * {p.height} + row + r) * {p.n}u + column + c"
    lines += shifted_stores("c", rows, f"{p.height} - row", columns, f"{p.n}u - column", place)
    count = (p.batch or 1) * row_blocks * column_blocks
    reads = [p.a.binding("a", a_vector), p.b.binding("b", b_vector)]
    body = single_body("\n".join(lines), p.blocks(rows, columns))
    return Kernel(title + " in registers", reads, out.value, out.shape, "f32", body, single_groups(count, limit))


def shifted_stores(
    name: str, rows: int, rows_left: str, columns: int, columns_left: str, place: str, element: str = "f32"
) -> list[str]:
    """Statements that store the block of registers ``NAME<row><vector>``: element (`r`, `c`) at `place`.

    `rows_left` and `columns_left` are texts of how many rows and columns there are from the block's first on. The
    registers are moved along instead of being put into an array: software adapters take a second to compile an array
    that is indexed by a variable. In a loop, `store` and all that is fused into it is compiled once and not for every
    element.
    """
    vectors = -(-columns // 4)
    lines = [f"for (var r = 0u; r < min({rows}u, {rows_left}); r++) {{"]
    if columns == 1:
        lines.append(f"    let c = 0u;\n    store({place}, {name}00);")
    else:
        lines += [f"    var u{v} = {name}0{v};" for v in range(vectors)]
        lines += [
            f"    for (var c = 0u; c < min({columns}u, {columns_left}); c++) {{",
            f"        store({place}, u0.x);",
            *(f"        u{v} = vec4<{element}>(u{v}.yzw, u{v + 1}.x);" for v in range(vectors - 1)),
            f"        u{vectors - 1} = vec4<{element}>(u{vectors - 1}.yzw, {element}());",
            "    }",
        ]
    lines += [f"    {name}{r}{v} = {name}{r + 1}{v};" for r in range(rows - 1) for v in range(vectors)]
    return [*lines, "}"]


TILE = 64
DEPTH = 16
TILED_BYTES = 2 * TILE * DEPTH * 4


def matrix_load(name: str, matrix: Matrix) -> str:
    """A WGSL function ``load_NAME(batch, row, column)`` that reads a matrix (inside its bounds)."""
    place = _place("base", ("row", matrix.row_stride), ("column", matrix.column_stride))
    return (
        f"fn load_{name}(batch: u32, row: u32, column: u32) -> f32 {{\n"
        f"    let base = {matrix.base};\n    return f32({name}[{place}]);\n}}"
    )


def tiled_kernel(
    p: Product, out: Tensor, title: str, limit: int, load_a: str, load_b: str, reads: Sequence[Binding]
) -> Kernel:
    """A workgroup computes a 64 × 64 tile through shared memory; every invocation 4 × 4 of it."""
    row_tiles, column_tiles = -(-p.m // TILE), -(-p.n // TILE)
    declarations = "\n".join(
        [
            load_a,
            load_b,
            f"var<workgroup> tile_a: array<f32, {TILE * DEPTH}>;  // [depth][row]",
            f"var<workgroup> tile_b: array<f32, {TILE * DEPTH}>;  // [depth][column]",
        ]
    )
    body = f"""
let tile = wid.x + wid.y * groups.x;
if (tile >= {p.blocks(TILE, TILE)}) {{ return; }}
let height = {p.height};
let column0 = tile % {column_tiles}u * {TILE}u;
let row0 = tile / {column_tiles}u{p.within(row_tiles)} * {TILE}u;
let batch = {p.quotient("tile", column_tiles * row_tiles)};
let tx = lane % 16u * 4u;
let ty = lane / 16u * 4u;
var c: array<vec4<f32>, 4>;
for (var k0 = 0u; k0 < {p.k}u; k0 += {DEPTH}u) {{
    for (var e = lane; e < {TILE * DEPTH}u; e += 256u) {{
        let ak = e % {DEPTH}u;
        let ar = e / {DEPTH}u;
        var av = 0.0;
        if (row0 + ar < height && k0 + ak < {p.k}u) {{ av = load_a(batch, row0 + ar, k0 + ak); }}
        tile_a[ak * {TILE}u + ar] = av;
        let bk = e / {TILE}u;
        let bc = e % {TILE}u;
        var bv = 0.0;
        if (k0 + bk < {p.k}u && column0 + bc < {p.n}u) {{ bv = load_b(batch, k0 + bk, column0 + bc); }}
        tile_b[e] = bv;
    }}
    workgroupBarrier();
    for (var k = 0u; k < {DEPTH}u; k++) {{
        let o = k * {TILE}u;
        let q = vec4<f32>(tile_b[o + tx], tile_b[o + tx + 1u], tile_b[o + tx + 2u], tile_b[o + tx + 3u]);
        c[0] += tile_a[o + ty] * q;
        c[1] += tile_a[o + ty + 1u] * q;
        c[2] += tile_a[o + ty + 2u] * q;
        c[3] += tile_a[o + ty + 3u] * q;
    }}
    workgroupBarrier();
}}
for (var r = 0u; r < 4u; r++) {{
    for (var s = 0u; s < 4u; s++) {{
        let row = row0 + ty + r;
        let column = column0 + tx + s;
        if (row < height && column < {p.n}u) {{ store((batch * height + row) * {p.n}u + column, c[r][s]); }}
    }}
}}
"""
    groups = grid((p.batch or 1) * row_tiles * column_tiles, limit)
    return Kernel(
        title + " in tiles", list(reads), out.value, out.shape, "f32", body, groups, (256, 1, 1), declarations
    )


def padded_columns(matrix: np.ndarray) -> np.ndarray:
    """The last dimension filled up with zeros to a multiple of four."""
    extra = -matrix.shape[-1] % 4
    widths = [(0, 0)] * (matrix.ndim - 1) + [(0, extra)]
    return np.ascontiguousarray(np.pad(matrix, widths) if extra else matrix)


@dataclass(frozen=True, slots=True)
class MatrixOperand:
    """An operand of MatMul: matrices of `rows` by `columns`, `step` elements apart, and the shape of their batch."""

    tensor: Tensor
    matrix: Matrix
    batch: tuple[int, ...]
    rows: int
    columns: int
    step: int


def _operand(n: Lowering, index: int, transposed: bool, rows_first: bool = False) -> MatrixOperand:
    """Input `index` as matrices; where `rows_first`, the rows stand before the batch."""
    t = n.input(index)
    shape = t.shape
    if len(shape) == 1:
        shape = (1, *shape) if index == 0 else (*shape, 1)
    batch, (rows, columns) = tuple(shape[:-2]), shape[-2:]
    row_stride, column_stride, step = columns, 1, rows * columns
    if rows_first and len(shape) > 2:
        rows, batch = shape[0], tuple(shape[1:-1])
        row_stride, step = prod(batch) * columns, columns
    if transposed and len(t.shape) > 1:
        rows, columns, row_stride, column_stride = columns, rows, column_stride, row_stride
    return MatrixOperand(t, Matrix(t.value, t.size, row_stride, column_stride), batch, rows, columns, step)


def emit_matmul(
    n: Lowering, trans_a: bool = False, trans_b: bool = False, rows_first: tuple[bool, bool] = (False, False)
) -> None:
    """Add the product of inputs 0 and 1 with NumPy's broadcasting of leading dimensions."""
    weights = n.step.inputs[1]
    if weights is not None and weights.concrete and len(weights.dims) == 2 and not any(rows_first):
        parts = n.parts(1, 0 if trans_b else 1)
        if parts is not None:
            _emit_in_parts(n, trans_a, trans_b, parts)
            return
    a, b = _operand(n, 0, trans_a, rows_first[0]), _operand(n, 1, trans_b, rows_first[1])
    out = n.output(0, "float32")
    m, k, columns = a.rows, a.columns, b.columns
    if k != b.rows:
        n.refuse("its inner dimensions differ")
    right = b.matrix
    half = n.target.half and not n.target.software and b.tensor.dtype == np.float16
    if n.is_constant(1) and not b.batch and (trans_b or columns % 4 or half) and columns > 4:
        # Lay a weight out once so that four columns are one vec4.
        width = columns + -columns % 4
        tag = f"columns{'T' if trans_b else ''}{' half' if half else ''}"
        make: Callable[..., Any] = (lambda w: padded_columns(w.T)) if trans_b else padded_columns
        element = "f16" if half else "f32"
        right = Matrix(n.derive((1,), tag, make, half), k * width, width, 1, element=element)
    a_batch = a.batch
    if not b.batch and not trans_a and not rows_first[0]:
        m, a_batch = m * prod(a_batch), ()
    batch_dims = np.broadcast_shapes(a_batch, b.batch)

    def batched(matrix: Matrix, own: tuple[int, ...], step: int) -> Matrix:
        if not batch_dims:
            return matrix
        strides = [s * step for s in broadcast_strides(own, batch_dims)]
        base = index_expression(batch_dims, strides, 0, "batch")
        return replace(matrix, base=base, aligned=step % 4 == 0)

    left, right = batched(a.matrix, a_batch, a.step), batched(right, b.batch, b.step)
    product = Product(left, right, m, columns, k, prod(batch_dims) if batch_dims else None)
    emit_product(n, product, out, n.title(a.tensor, b.tensor, note="transposed " if trans_a or trans_b else ""))


def _emit_in_parts(n: Lowering, trans_a: bool, trans_b: bool, parts: list[tuple[int, int]]) -> None:
    """The product with a constant matrix that is too large to be bound: some columns at a time, joined at the end."""
    a = _operand(n, 0, trans_a)
    if trans_a and a.batch:
        n.refuse("transposed matrices in a batch times one that is too large to be bound have no GPU kernel")
    out = n.output(0, "float32")
    rows, k, columns = a.rows * prod(a.batch), a.columns, parts[-1][1]
    whole = n.temporary("whole", (rows, columns))
    for start, stop in parts:
        width = stop - start + -(stop - start) % 4

        def slice_of(w: np.ndarray, start: int = start, stop: int = stop) -> np.ndarray:
            return padded_columns(np.ascontiguousarray((w.T if trans_b else w)[:, start:stop]))

        b = Matrix(n.derive((1,), f"columns {start}:{stop} {trans_b}", slice_of), k * width, width, 1)
        part = n.temporary(f"columns {start}", (rows, stop - start))
        title = n.title(a.tensor, part, note="some columns")
        emit_product(n, Product(a.matrix, b, rows, stop - start, k), part, title)
        place = f"i / {stop - start}u * {columns}u + i % {stop - start}u + {start}u"
        body, groups = (
            flat_body(f"store({place}, x[i]);", "arrayLength(&x)"),
            flat_groups(part.size, n.target.flat_groups),
        )
        title = n.title(part, whole, note=f"from column {start}")
        n.emit(Kernel(title, [part.binding("x")], whole.value, whole.shape, "f32", body, groups, fusable=False))
    n.emit_map([Operand(whole.value, out.shape, "f32")], "{0}", out)


@lowering("MatMul")
def matmul(n: Lowering) -> None:
    emit_matmul(n)


@lowering("FusedMatMul", domain=INTERNAL)
@lowering("FusedMatMul", "TransposeMatMul", domain=MICROSOFT)
def fused_matmul(n: Lowering) -> None:
    """MatMul with transposed operands, a factor, and in onnxlet's own form a bias, a residual and an activation."""
    rows_first = bool(n.attribute("transBatchA", 0)), bool(n.attribute("transBatchB", 0))
    emit_matmul(n, bool(n.attribute("transA", 0)), bool(n.attribute("transB", 0)), rows_first)
    alpha = n.attribute("alpha", 1.0)
    if alpha != 1.0:
        n.extend([n.chain()], f"{{0}} * {literal(alpha, 'f32')}")
    for extra in range(2, len(n.step.node.inputs)):
        if n.has_input(extra):
            n.extend([n.chain(), n.operand(extra)], "{0} + {1}")
    apply_activation(n)


@lowering("Gemm")
@lowering("FusedGemm", domain=MICROSOFT)
def gemm(n: Lowering) -> None:
    emit_matmul(n, bool(n.attribute("transA", 0)), bool(n.attribute("transB", 0)))
    alpha, beta = n.attribute("alpha", 1.0), n.attribute("beta", 1.0)
    scaled = "{0}" if alpha == 1.0 else f"{{0}} * {literal(alpha, 'f32')}"
    if n.has_input(2) and beta != 0.0:
        c: Operand = n.operand(2)
        added = "{1}" if beta == 1.0 else f"{{1}} * {literal(beta, 'f32')}"
        n.extend([n.chain(), c], f"{scaled} + {added}")
    elif alpha != 1.0:
        n.extend([n.chain()], scaled)
    apply_activation(n)
