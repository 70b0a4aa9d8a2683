"""Convolutions of 8-bit integers, four channels to a word. See `packed_product` for how zero points are taken away."""

from __future__ import annotations

from math import prod

import numpy as np

from ..kernel import Binding, Kernel, Operand, single_body, single_groups
from ..lowering import Lowering, Tensor
from ..wgsl import contiguous_strides
from .arithmetic import at
from .matmul import shifted_stores
from .packed_product import ONES, correct, zero_factor
from .windows import Window, coordinate

FILTERS = 8
"""Filters that an invocation computes at one place."""

WORD = "(v.x | (v.y << 8u) | (v.z << 16u) | (v.w << 24u)) ^ "


def emit_packed_convolution(
    n: Lowering, x: Tensor, w: Tensor, weights: int, zeros: tuple[int, int], out: Tensor, g: Window
) -> bool:
    """Add the convolution as i32; `weights` and `zeros` are the numbers of the inputs with the weights and the zero
    points. Says whether it can: not for few channels, nor for zero points of the weights in groups."""
    group = n.attribute("group", 1)
    channels, filters = x.shape[1] // group, w.shape[0] // group
    given = [n.input(i, "int32", "uint32") if n.has_input(i) else None for i in zeros]
    upright = (w.shape[0],) + (1,) * g.rank
    shapes = [(), () if given[1] is None or given[1].size == 1 else upright]
    factors = [
        zero_factor(zero and (zero, shape), 128 if t.dtype.kind == "u" else 0)
        for zero, shape, t in zip(given, shapes, (x, w), strict=True)
    ]
    if not n.target.dots or channels < 4 or (group > 1 and factors[1] is not None):
        return False
    words, image, taps, blocks = -(-channels // 4), prod(g.sizes), prod(g.kernel), -(-filters // FILTERS)
    packed = _pack_images(n, x, group, channels, words, image)
    pad, reads = "0u", []
    if factors[0] is not None:
        operands, text = factors[0]
        if operands:
            reads = [Binding("zero_at", operands[0].value, operands[0].element, 1)]
        pad = f"u32(i32({text.replace('@', 'zero_at[0]')}) & 255) * {ONES}"
    lines = [f"let pad = {pad};"]
    lines += [
        f"let start{d} = {coordinate(at(out.shape, d + 2, 'place'), g.strides[d], g.begins[d])};" for d in range(g.rank)
    ]

    def loops(inner: list[str]) -> list[str]:
        """Statements for every word of the window: `v` is the word, `tap` its number."""
        text, indent, inside, spot = [f"for (var c = 0u; c < {words}u; c++) {{"], "    ", [], f"plane + c * {image}u"
        tap, size = f"c * {taps}u", taps
        strides = contiguous_strides(g.sizes)
        for d in range(g.rank):
            size //= g.kernel[d]
            text += [
                f"{indent}for (var k{d} = 0; k{d} < {g.kernel[d]}; k{d}++) {{",
                f"{indent}    let at{d} = start{d} + k{d} * {g.dilations[d]};",
            ]
            indent += "    "
            inside.append(f"at{d} >= 0 && at{d} < {g.sizes[d]}")
            spot += f" + u32(at{d}) * {strides[d]}u"
            tap += f" + u32(k{d}) * {size}u"
        text += [
            f"{indent}var v = pad;",
            f"{indent}if ({' && '.join(inside)}) {{ v = x[{spot}]; }}",
            f"{indent}let tap = {tap};",
            *(indent + line for line in inner),
        ]
        return [*text, *("    " * d + "}" for d in reversed(range(g.rank + 1)))]

    pixels = prod(out.shape[2:])
    last = (1 << 8 * (channels % 4)) - 1 if channels % 4 else 0
    a_sum = None
    if factors[1] is not None:
        sums = n.temporary("sums of windows", (x.shape[0], 1, *out.shape[2:]), np.int32)
        word = f"select(v, v & {last}u, c == {words - 1}u)" if last else "v"
        statements = [
            f"let place = i % {pixels}u;",
            f"let plane = i / {pixels}u * {words * image}u;",
            *lines,
            "var total = 0;",
            *loops([f"total += dot4I8Packed({word}, {ONES});"]),
            "store(i, total);",
        ]
        n.emit_flat(n.title(x, w, note="sums of windows"), [packed.binding("x"), *reads], "\n".join(statements), sums)
        a_sum = Operand(sums.value, sums.shape, "i32")
    ordered, b_sum = _pack_filters(n, w, weights, (group, blocks, words, taps, FILTERS), factors[0] is not None)
    body = [
        f"let place = i % {pixels}u;",
        f"let block = i / {pixels}u % {blocks}u;",
        f"let number = i / {pixels * blocks}u;",
        f"let plane = number * {words * image}u;",
        f"let first = (number % {group}u * {blocks}u + block) * {words * taps * FILTERS // 4}u;",
        *lines,
        "var c00 = vec4<i32>();",
        "var c01 = vec4<i32>();",
        *loops(
            [
                f"let q{b} = w[first + tap * 2u + {b}u];\n"
                f"c0{b} += vec4<i32>({', '.join(f'dot4I8Packed(v, q{b}.{e})' for e in 'xyzw')});"
                for b in range(FILTERS // 4)
            ]
        ),
        *shifted_stores(
            "c", 1, "1u", FILTERS, f"{filters}u - block * {FILTERS}u",
            f"(number * {filters}u + block * {FILTERS}u + c) * {pixels}u + place", "i32",
        ),
    ]  # fmt: skip
    count = x.shape[0] * group * blocks * pixels
    title = n.title(x, w, note=f"group {group} stride {list(g.strides)} pad {list(g.begins)} of packed bytes")
    reads = [packed.binding("x"), ordered.binding("w", 4), *reads]
    text, groups = single_body("\n".join(body), f"{count}u"), single_groups(count, n.target.max_groups)
    n.emit(Kernel(title, reads, out.value, out.shape, "i32", text, groups))
    correct(n, factors, [a_sum, b_sum], channels * taps)
    return True


def _pack_images(n: Lowering, x: Tensor, group: int, channels: int, words: int, image: int) -> Tensor:
    made = n.temporary("packed channels", (x.shape[0], group * words, image), np.uint32)
    unsigned = x.dtype.kind == "u"
    statements = f"""
let channel = i / {image}u % {words}u * 4u;
let base = (i / {image * words}u * {channels}u + channel) * {image}u + i % {image}u;
var v = vec4<u32>({"128u" if unsigned else "0u"});
for (var s = 0u; s < min(4u, {channels}u - channel); s++) {{ v[s] = u32(x[base + s * {image}u]) & 255u; }}
store(i, {WORD}{"0x80808080u" if unsigned else "0u"});
"""
    n.emit_flat(n.title(x, note=f"packed group {group}"), [x.binding("x")], statements, made)
    return made


def _pack_filters(
    n: Lowering, w: Tensor, index: int, shape: tuple[int, ...], summed: bool
) -> tuple[Tensor, Operand | None]:
    """The filters in words (group, block, word, tap, filter), and their sums if those are wanted."""
    group, blocks, words, taps, width = shape
    filters, channels = w.shape[0] // group, w.shape[1]
    unsigned = w.dtype.kind == "u"
    upright = (w.shape[0],) + (1,) * (len(w.shape) - 2)

    def signed(values: np.ndarray) -> np.ndarray:
        return (values.astype(np.int16) - (128 if unsigned else 0)).astype(np.int8)

    if n.is_constant(index):

        def packed(values: np.ndarray) -> np.ndarray:
            padded = np.zeros((group, blocks * width, words * 4, taps), np.int8)
            padded[:, :filters, :channels] = signed(values).reshape(group, filters, channels, taps)
            parts = padded.view(np.uint8).reshape(group, blocks, width, words, 4, taps).transpose(0, 1, 3, 5, 2, 4)
            return np.ascontiguousarray(parts).view(np.uint32)

        made = Tensor(n.derive((index,), f"packed filters {group}", packed), shape, np.dtype(np.uint32))
        if not summed:
            return made, None
        total = n.derive(
            (index,), "sums of filters", lambda v: signed(v).reshape(len(v), -1).sum(axis=1, dtype=np.int32)
        )
        return made, Operand(total, upright, "i32")
    made = n.temporary("packed filters", shape, np.uint32)
    statements = f"""
let f = i / {words * taps * width}u % {blocks}u * {width}u + i % {width}u;
let channel = i / {taps * width}u % {words}u * 4u;
let base = ((i / {blocks * words * taps * width}u * {filters}u + f) * {channels}u + channel) * {taps}u
    + i / {width}u % {taps}u;
var v = vec4<u32>({"128u" if unsigned else "0u"});
if (f < {filters}u) {{
    for (var s = 0u; s < min(4u, {channels}u - channel); s++) {{ v[s] = u32(w[base + s * {taps}u]) & 255u; }}
}}
store(i, {WORD}{"0x80808080u" if unsigned else "0u"});
"""
    n.emit_flat(n.title(w, note=f"packed group {group}"), [w.binding("w")], statements, made)
    if not summed:
        return made, None
    sums = n.temporary("sums of filters", upright, np.int32)
    size = channels * taps
    value = "i32(w[i * SIZEu + k])".replace("SIZE", str(size)) + (" - 128" if unsigned else "")
    loop = f"for (var k = 0u; k < {size}u; k++) {{ total += {value}; }}"
    n.emit_flat(n.title(w, note="sums"), [w.binding("w")], f"var total = 0;\n{loop}\nstore(i, total);", sums)
    return made, Operand(sums.value, upright, "i32")
