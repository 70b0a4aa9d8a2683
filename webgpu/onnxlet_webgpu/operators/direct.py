"""Convolution of any rank with weights in the order in which the model has them: constants or fed, floats or integers.

One invocation computes one output element. `convolution` has faster kernels for images with constant weights.
"""

from __future__ import annotations

from math import prod

from ..kernel import Binding
from ..lowering import Lowering, Tensor
from ..wgsl import contiguous_strides, signed
from .arithmetic import at
from .windows import Window, coordinate


def emit_direct(
    n: Lowering, x: Tensor, w: Tensor, out: Tensor, g: Window, zeros: tuple[int, int] | None = None
) -> None:
    """Add the convolution of `x` with `w`. `zeros` are the numbers of the inputs that hold the zero points of
    integers."""
    group = n.attribute("group", 1)
    channels, filters = x.shape[1] // group, w.shape[0] // group
    reads = [x.binding("x"), w.binding("w")]
    lines = [f"let filter0 = {at(out.shape, 1)};"]
    value, weight = "x[place]", "w[tap]"
    if x.element != out.element:
        value = f"i32({value})"
    if w.element != out.element:
        weight = f"i32({weight})"
    for name, index in zip(("x0", "w0"), zeros or (), strict=False):
        if not n.has_input(index):
            continue
        z = n.input(index, "int32", "uint32")
        reads.append(Binding(name + "_at", z.value, z.element, z.size))
        place = "0" if z.size == 1 else "filter0"
        lines.append(f"let {name} = {'' if z.element == 'i32' else 'i32'}({name}_at[{place}]);")
        if name == "x0":
            value = f"({value} - x0)"
        else:
            weight = f"({weight} - w0)"
    image, taps = prod(g.sizes), prod(g.kernel)
    strides = contiguous_strides(x.shape)[2:]
    for d in range(g.rank):
        lines.append(f"let start{d} = {coordinate(at(out.shape, d + 2), g.strides[d], g.begins[d])};")
    lines += [
        f"let plane = (i / {prod(out.shape[1:])}u * {x.shape[1]}u + filter0 / {filters}u * {channels}u) * {image}u;",
        f"let first = filter0 * {channels * taps}u;",
        f"var total = {'0.0' if out.element == 'f32' else '0'};",
        f"for (var c = 0u; c < {channels}u; c++) {{",
    ]
    indent, place, tap = "    ", f"plane + c * {image}u", f"first + c * {taps}u"
    inner = taps
    for d in range(g.rank):
        inner //= g.kernel[d]
        lines += [
            f"{indent}for (var k{d} = 0; k{d} < {g.kernel[d]}; k{d}++) {{",
            f"{indent}    let at{d} = start{d} + k{d} * {g.dilations[d]};",
            f"{indent}    if (at{d} < 0 || at{d} >= {signed(g.sizes[d])}) {{ continue; }}",
        ]
        indent += "    "
        place += f" + u32(at{d}) * {strides[d]}u"
        tap += f" + u32(k{d}) * {inner}u"
    lines += [f"{indent}let place = {place};", f"{indent}let tap = {tap};", f"{indent}total += {value} * {weight};"]
    lines += ["    " * d + "}" for d in reversed(range(g.rank + 1))]
    lines.append("store(i, total);")
    note = f"group {group} stride {list(g.strides)} pad {list(g.begins)} dilation {list(g.dilations)} plain"
    n.emit_flat(n.title(x, w, note=note), reads, "\n".join(lines), out)


def emit_direct_transposed(n: Lowering, x: Tensor, w: Tensor, out: Tensor, g: Window) -> None:
    """Add the transposed convolution: each output element gathers the input elements whose windows cover it."""
    group = n.attribute("group", 1)
    channels, filters = x.shape[1] // group, w.shape[1]
    image, taps = prod(g.sizes), prod(g.kernel)
    strides = contiguous_strides(x.shape)[2:]
    lines = [f"let filter0 = {at(out.shape, 1)};"]
    lines += [f"let t{d} = i32({at(out.shape, d + 2)}) + {g.begins[d]};" for d in range(g.rank)]
    lines += [
        f"let first = filter0 / {filters}u * {channels}u;",
        f"let plane = (i / {prod(out.shape[1:])}u * {x.shape[1]}u + first) * {image}u;",
        "var total = 0.0;",
    ]
    indent, place, tap, inner = "", "plane", f"(first * {filters}u + filter0 % {filters}u) * {taps}u", taps
    for d in range(g.rank):
        inner //= g.kernel[d]
        lines += [
            f"{indent}for (var k{d} = 0; k{d} < {g.kernel[d]}; k{d}++) {{",
            f"{indent}    let d{d} = t{d} - k{d} * {g.dilations[d]};",
            f"{indent}    let at{d} = d{d} / {g.strides[d]};",
            f"{indent}    if (d{d} < 0 || d{d} % {g.strides[d]} != 0 || at{d} >= {signed(g.sizes[d])}) {{ continue; }}",
        ]
        indent += "    "
        place += f" + u32(at{d}) * {strides[d]}u"
        tap += f" + u32(k{d}) * {inner}u"
    lines += [
        f"{indent}let place = {place};",
        f"{indent}let tap = {tap};",
        f"{indent}for (var c = 0u; c < {channels}u; c++) {{",
        f"{indent}    total += x[place + c * {image}u] * w[tap + c * {filters * taps}u];",
        f"{indent}}}",
    ]
    lines += ["    " * d + "}" for d in reversed(range(g.rank))]
    lines.append("store(i, total);")
    note = f"group {group} stride {list(g.strides)} pad {list(g.begins)} dilation {list(g.dilations)} plain"
    n.emit_flat(n.title(x, w, note=note), [x.binding("x"), w.binding("w")], "\n".join(lines), out)
