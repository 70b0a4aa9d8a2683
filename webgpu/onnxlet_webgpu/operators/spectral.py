"""Fourier transforms, term by term: the twins are in `onnxlet.ops.signal`."""

from __future__ import annotations

import numpy as np

from ..kernel import Binding
from ..lowering import Lowering, lowering
from ..wgsl import contiguous_strides, index_expression
from .arithmetic import at


def turns(n: Lowering, count: int) -> Binding:
    """Cosines and sines of all multiples of a turn's `count`-th part."""
    angle = 2 * np.pi * np.arange(count) / count
    table = np.stack([np.cos(angle), np.sin(angle)], axis=-1).astype(np.float32).reshape(-1)
    return Binding("turns", n.table(f"turns {count}", table), "vec2<f32>", count)


@lowering("DFT")
def dft(n: Lowering) -> None:
    """One-sided and inverse, the rest of the spectrum follows from its symmetry."""
    x, out = n.input(0), n.output(0, "float32")
    rank = len(x.shape)
    axis = n.attribute("axis", 1) if n.version < 20 else -2
    if n.version >= 20 and n.has_input(2):
        axis = int(n.known(2, "the axis").reshape(-1)[0])
    axis %= rank
    inverse, onesided = bool(n.attribute("inverse", 0)), bool(n.attribute("onesided", 0))
    given = x.shape[axis]
    count = out.shape[axis]
    if n.has_input(1):
        count = int(n.known(1, "the length").reshape(-1)[0])
    elif onesided and not inverse:
        count = given
    parts = x.shape[-1]
    strides = contiguous_strides(x.shape)
    others = [0 if d in (axis, rank - 1) else s for d, s in enumerate(strides)]
    used = min(given, count // 2 + 1 if onesided and inverse else count)
    sign = "" if inverse else "-"
    lines = [
        f"let base = {index_expression(out.shape, others)};",
        f"let bin = {at(out.shape, axis)};",
        "var total = vec2<f32>();",
        f"for (var k = 0u; k < {used}u; k++) {{",
        f"    let turn = turns[(k * bin) % {count}u];",
        f"    let at = base + k * {strides[axis]}u;",
        f"    let value = vec2<f32>(x[at], {'x[at + 1u]' if parts == 2 else '0.0'});",
        f"    let s = {sign}turn.y;",
        "    let product = vec2<f32>(value.x * turn.x - value.y * s, value.x * s + value.y * turn.x);",
    ]
    if onesided and inverse:  # what is left out is the mirror image: its real part counts once more
        lines.append(f"    let twice = k > 0u && k * 2u < {count}u;")
        lines.append("    let once = vec2<f32>(value.x * turn.x, 0.0);")
        lines.append("    total += select(once, 2.0 * product, twice);")
    else:
        lines.append("    total += product;")
    scale = f" / {count}.0" if inverse else ""
    if onesided and inverse:
        lines += ["}", f"store(i, total.x{scale});"]
    else:
        lines += ["}", f"store(i, select(total.x, total.y, i % 2u == 1u){scale});"]
    title = n.title(x, out, note=f"axis {axis} of {count} inverse {int(inverse)} one-sided {int(onesided)}")
    n.emit_flat(title, [x.binding("x"), turns(n, count)], "\n".join(lines), out)


@lowering("STFT")
def stft(n: Lowering) -> None:
    x, out = n.input(0), n.output(0, "float32")
    step = int(n.known(1, "the step between frames").reshape(-1)[0])
    n.attribute("onesided")
    length = x.shape[1]
    if n.has_input(2):
        length = n.input(2).size
    if n.has_input(3):
        length = int(n.known(3, "the length of frames").reshape(-1)[0])
    parts = x.shape[2]
    reads = [x.binding("x"), turns(n, length)]
    weight = ""
    if n.has_input(2):
        reads.append(n.input(2).binding("window"))
        weight = " * window[k]"
    statements = f"""
let base = (i / {out.shape[1] * out.shape[2] * 2}u * {x.shape[1]}u + {at(out.shape, 1)} * {step}u) * {parts}u;
let bin = {at(out.shape, 2)};
var total = vec2<f32>();
for (var k = 0u; k < {length}u; k++) {{
    let turn = turns[(k * bin) % {length}u];
    let at = base + k * {parts}u;
    let value = vec2<f32>(x[at], {"x[at + 1u]" if parts == 2 else "0.0"}){weight};
    total += vec2<f32>(value.x * turn.x + value.y * turn.y, value.y * turn.x - value.x * turn.y);
}}
store(i, select(total.x, total.y, i % 2u == 1u));
"""
    n.emit_flat(n.title(x, out, note=f"frames of {length} every {step}"), reads, statements, out)
