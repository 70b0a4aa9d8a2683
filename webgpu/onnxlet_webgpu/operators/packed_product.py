"""Products of 8-bit integers, four to a word, by the instruction for sums of four products (DP4A).

Bytes are packed along the sum as signed ones: unsigned ones less 128, as is their zero point then. With a' and b' for
those, ``sum((a' - za) * (b' - zb)) = sum(a' * b') - za * sum(b') - zb * sum(a') + k * za * zb``, exact modulo 2 ** 32.
"""

from __future__ import annotations

from math import prod

import numpy as np

from ..kernel import Kernel, Operand, single_body, single_groups
from ..lowering import Lowering, Tensor
from ..wgsl import broadcast_strides, index_expression
from .matmul import shifted_stores

ONES = "0x01010101u"


def packable(n: Lowering, a: Tensor, b: Tensor) -> bool:
    """Whether the kernels here can compute a product: of matrices of bytes, on a device with the instruction."""
    return n.target.dots and min(len(a.shape), len(b.shape)) > 1


def emit_packed(
    n: Lowering, a: Tensor, b: Tensor, zeros: list[tuple[Tensor, tuple[int, ...]] | None], out: Tensor, transposed: bool
) -> None:
    """Add the product of `a` and `b`, whose last two dimensions are swapped where `transposed`, as i32. `zeros` are the
    zero points of both with the shapes in which they are broadcast over the result."""
    m, k = a.shape[-2:]
    columns = b.shape[-2 if transposed else -1]
    width, words = columns + -columns % 4, -(-k // 4)
    batch = tuple(np.broadcast_shapes(a.shape[:-2], b.shape[:-2]))
    a_words, a_sum = _rows(n, a, words)
    b_words, b_sum = _columns(n, b, transposed, columns, width, words)
    offsets = [128 if t.dtype.kind == "u" else 0 for t in (a, b)]
    factors = [zero_factor(zero, offset) for zero, offset in zip(zeros, offsets, strict=True)]
    sums = [
        a_sum() if factors[1] is not None else None,
        b_sum() if factors[0] is not None else None,
    ]
    rows = min(m, 8) if m < 3 else 4 if m < 5 else 8
    row_blocks, column_blocks = -(-m // rows), width // 4
    a_base = index_expression(batch, [s * m * words for s in broadcast_strides(a.shape[:-2], batch)], 0, "batch")
    b_base = index_expression(batch, [s * words * column_blocks for s in broadcast_strides(b.shape[:-2], batch)], 0,
                              "batch")  # fmt: skip
    lines = [
        f"let column = i % {column_blocks}u * 4u;",
        f"let row = i / {column_blocks}u % {row_blocks}u * {rows}u;",
        f"let batch = i / {row_blocks * column_blocks}u;",
        f"var q = {b_base} + column / 4u;",
    ]
    for r in range(rows):
        clamped = f"min(row + {r}u, {m - 1}u)" if m % rows else f"(row + {r}u)"
        lines += [f"var p{r} = {a_base} + {clamped} * {words}u;", f"var c{r}0 = vec4<i32>();"]
    lines += [f"for (var k = 0u; k < {words}u; k++) {{", "    let w = b[q];", f"    q += {column_blocks}u;"]
    for r in range(rows):
        dots = ", ".join(f"dot4I8Packed(v{r}, w.{c})" for c in "xyzw")
        lines += [f"    let v{r} = a[p{r} + k];", f"    c{r}0 += vec4<i32>({dots});"]
    lines.append("}")
    place = f"(batch * {m}u + row + r) * {columns}u + column + c"
    lines += shifted_stores("c", rows, f"{m}u - row", 4, f"{columns}u - column", place, "i32")
    count = prod(batch) * row_blocks * column_blocks
    reads = [a_words.binding("a"), b_words.binding("b", 4)]
    body, groups = single_body("\n".join(lines), f"{count}u"), single_groups(count, n.target.max_groups)
    n.emit(Kernel(n.title(a, b, note="of packed bytes"), reads, out.value, out.shape, "i32", body, groups))
    correct(n, factors, sums, k)


def zero_factor(zero: tuple[Tensor, tuple[int, ...]] | None, offset: int) -> tuple[list[Operand], str] | None:
    """A zero point less its offset, as operands and text of them; `None` if it is 0."""
    if zero is None:
        return ([], f"({-offset})") if offset else None
    t, shape = zero
    return [Operand(t.value, shape, t.element)], f"(i32(@) - {offset})"


def correct(
    n: Lowering, factors: list[tuple[list[Operand], str] | None], sums: list[Operand | None], depth: int
) -> None:
    """Add to the store of the last kernel what zero points take away."""
    operands, texts = [n.chain()], []
    for factor in factors:
        if factor is None:
            texts.append("")
            continue
        texts.append(factor[1].replace("@", f"{{{len(operands)}}}"))
        operands += factor[0]
    expression = "{0}"
    for text, sum_ in zip(texts, reversed(sums), strict=True):
        if sum_ is not None:
            expression += f" - {text} * {{{len(operands)}}}"
            operands.append(sum_)
    if all(texts):
        expression += f" + {depth} * {texts[0]} * {texts[1]}"
    if expression != "{0}":
        n.extend(operands, expression, "i32")


def _rows(n: Lowering, a: Tensor, words: int):
    """The rows of `a` in words, and a function that gives their sums."""
    k, rows = a.shape[-1], a.size // a.shape[-1]
    flip = "0x80808080u" if a.dtype.kind == "u" else "0u"
    made = n.temporary("packed rows", (*a.shape[:-1], words), np.uint32)
    if k % 4 == 0:
        reads, value = [a.binding("a", 4)], "let v = vec4<u32>(a[i]) & vec4<u32>(255u);"
    else:
        reads = [a.binding("a")]
        value = "\n".join(
            [
                f"let first = i % {words}u * 4u;",
                f"let row = i / {words}u * {k}u;",
                # What is beyond the end must be packed as 0.
                f"var v = vec4<u32>({'128u' if a.dtype.kind == 'u' else '0u'});",
                f"for (var s = 0u; s < min(4u, {k}u - first); s++) {{ v[s] = u32(a[row + first + s]) & 255u; }}",
            ]
        )
    word = f"store(i, (v.x | (v.y << 8u) | (v.z << 16u) | (v.w << 24u)) ^ {flip});"
    n.emit_flat(n.title(a, note="packed"), reads, f"{value}\n{word}", made)

    def sums() -> Operand:
        result = n.temporary("sums of rows", (*a.shape[:-1], 1), np.int32)
        total = f"for (var k = 0u; k < {words}u; k++) {{ total += dot4I8Packed(a[i * {words}u + k], {ONES}); }}"
        statements = f"var total = 0;\n{total}\nstore(i, total);"
        n.emit_flat(n.title(made, note=f"sums of {rows}"), [made.binding("a")], statements, result)
        return Operand(result.value, result.shape, "i32")

    return made, sums


def _columns(n: Lowering, b: Tensor, transposed: bool, columns: int, width: int, words: int):
    """The columns of `b` in words (batch, words, width), and a function that gives their sums."""
    k = b.shape[-1 if transposed else -2]
    shape = (*b.shape[:-2], words, width)
    sum_shape = (*b.shape[:-2], 1, columns)
    unsigned = b.dtype.kind == "u"
    inputs = n.step.node.inputs
    index = inputs.index(b.value) if b.value in inputs and b.value in n.step.constants else None

    def signed(w: np.ndarray) -> np.ndarray:
        w = w.swapaxes(-1, -2) if transposed else w
        return (w.astype(np.int16) - 128).astype(np.int8) if unsigned else w.astype(np.int8)

    if index is not None:

        def packed(w: np.ndarray) -> np.ndarray:
            padded = np.zeros((*shape[:-2], words * 4, width), np.int8)
            padded[..., :k, :columns] = signed(w)
            parts = padded.view(np.uint8).reshape(*shape[:-2], words, 4, width).astype(np.uint32)
            return parts[..., 0, :] | parts[..., 1, :] << 8 | parts[..., 2, :] << 16 | parts[..., 3, :] << 24

        made = Tensor(n.derive((index,), f"packed {transposed}", packed), shape, np.dtype(np.uint32))
        total = n.derive((index,), f"sums {transposed}", lambda w: signed(w).sum(axis=-2, dtype=np.int32))
        return made, lambda: Operand(total, sum_shape, "i32")
    made = n.temporary("packed columns", shape, np.uint32)
    step, across = (1, k) if transposed else (columns, 1)
    statements = f"""
let column = i % {width}u;
let first = i / {width}u % {words}u * 4u;
var v = vec4<u32>({"128u" if unsigned else "0u"});
if (column < {columns}u) {{
    let base = i / {width * words}u * {k * columns}u + column * {across}u;
    for (var s = 0u; s < min(4u, {k}u - first); s++) {{ v[s] = u32(b[base + (first + s) * {step}u]) & 255u; }}
}}
store(i, (v.x | (v.y << 8u) | (v.z << 16u) | (v.w << 24u)) ^ {"0x80808080u" if unsigned else "0u"});
"""
    n.emit_flat(n.title(b, note=f"packed {transposed}"), [b.binding("b")], statements, made)

    def sums() -> Operand:
        result = n.temporary("sums of columns", sum_shape, np.int32)
        place = f"i / {columns}u * {words * width}u + i % {columns}u + k * {width}u"
        statements = (
            f"var total = 0;\nfor (var k = 0u; k < {words}u; k++) {{ total += dot4I8Packed(b[{place}], {ONES}); }}\n"
            "store(i, total);"
        )
        n.emit_flat(n.title(made, note="sums of columns"), [made.binding("b")], statements, result)
        return Operand(result.value, result.shape, "i32")

    return made, sums
