"""Convolution and transposed convolution, channels first.

A 1 × 1 convolution is a matrix product of the weights with each image. Otherwise `direct` computes it: an invocation
keeps a strip of neighbouring output pixels of four or eight channels in registers, so that one row of input pixels
serves all taps of a kernel row. On real GPUs a large convolution is a tiled matrix product whose second operand is
gathered from the image on the fly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import numpy as np

from ..kernel import Binding, Kernel, Operand, single_body, single_groups
from ..lowering import MICROSOFT, Lowering, Tensor, lowering
from ..wgsl import signed
from .activations import apply_activation
from .direct import emit_direct, emit_direct_transposed
from .matmul import TILED_BYTES, Matrix, Product, emit_product, matrix_load, shifted_stores, tiled_kernel
from .windows import Window, coordinate, window


@lowering("Conv")
def conv(n: Lowering) -> None:
    emit_conv(n)


@lowering("FusedConv", domain=MICROSOFT)
def fused_conv(n: Lowering) -> None:
    """Conv, plus a residual (input 3), then an activation."""
    emit_conv(n)
    if n.has_input(3):
        n.extend([n.chain(), n.operand(3)], "{0} + {1}")
    apply_activation(n)


@dataclass(frozen=True, slots=True)
class Filters:
    """Weights of a convolution: the tensor, whether its values are known, and what makes a constant of them that is
    laid out in another way."""

    tensor: Tensor
    known: bool
    pack: Callable[[str, Callable[[np.ndarray], np.ndarray]], str]


def emit_conv(n: Lowering) -> None:
    w = n.input(1)
    filters = Filters(w, n.is_constant(1), lambda tag, make: n.derive((1,), tag, make))
    x = n.input(0)
    emit_convolution(n, x, filters, n.output(0, "float32"))
    _add_bias(n, w.shape[0], len(x.shape) - 2)


def emit_convolution(n: Lowering, x: Tensor, weights: Filters, out: Tensor) -> None:
    """Add the convolution of floats, without a bias."""
    w = weights.tensor
    rank = len(x.shape) - 2
    group = n.attribute("group", 1)
    g = given = window(n, x.shape[2:], n.attribute("kernel_shape") or w.shape[2:], out.shape[2:])
    channels, filters = x.shape[1], w.shape[0]
    if rank not in (1, 2) or (group > 1 and not weights.known):
        emit_direct(n, x, w, out, g)
        return
    if rank == 1:  # a row of pixels
        g = Window((1, *g.kernel), (1, *g.strides), (1, *g.dilations), (0, *g.begins), (1, *g.sizes), (1, *g.out_sizes))
    elif g.sizes[1] == g.kernel[1] == g.out_sizes[1] == 1:  # a column of pixels: strips go along rows
        g = Window(
            *(tuple(reversed(pair)) for pair in (g.kernel, g.strides, g.dilations, g.begins, g.sizes, g.out_sizes))
        )
    title = n.title(x, w, note=f"group {group} stride {list(g.strides)} pad {list(g.begins)} dilation "
                               f"{list(g.dilations)}")  # fmt: skip
    pointwise = g.kernel == (1, 1) and g.strides == (1, 1) and g.begins == (0, 0) and g.sizes == g.out_sizes
    if pointwise and group == 1:
        pixels = prod(g.sizes)
        a = Matrix(w.value, w.size, channels, 1)
        b = Matrix(x.value, x.size, pixels, 1, f"batch * {channels * pixels}u", channels * pixels % 4 == 0)
        emit_product(n, Product(a, b, filters, pixels, channels, x.shape[0]), out, title)
    elif group == 1 and _fits_tiles(n) and (not weights.known or _worth_tiles(n, g, channels, filters)):
        n.emit(_implicit(n, x, w, out, g, title))
    elif not weights.known:  # what is packed when it is uploaded has to be known
        emit_direct(n, x, w, out, given)
    else:
        n.emit(_direct(n, x, weights, out, g, group, title))


def _add_bias(n: Lowering, filters: int, rank: int) -> None:
    if n.has_input(2):
        bias = n.input(2)
        n.extend([n.chain(), Operand(bias.value, (filters,) + (1,) * rank, "f32")], "{0} + {1}")


def _fits_tiles(n: Lowering) -> bool:
    return n.target.max_invocations >= 256 and n.target.max_shared_bytes >= TILED_BYTES


def _worth_tiles(n: Lowering, g: Window, channels: int, filters: int) -> bool:
    """Whether the tiled kernel is the faster one: on a real GPU, for a convolution that fills its tiles."""
    large = filters >= 32 and prod(g.out_sizes) >= 64 and channels * prod(g.kernel) >= 64
    return large and not n.target.software


def _implicit(n: Lowering, x: Tensor, w: Tensor, out: Tensor, g: Window, title: str) -> Kernel:
    """The weights times the image's patches, which are read in place."""
    (kh, kw), (height, width), (oh, ow) = g.kernel, g.sizes, g.out_sizes
    channels, filters = x.shape[1], w.shape[0]
    depth = channels * kh * kw
    row = coordinate(f"column / {ow}u", g.strides[0], g.begins[0], f"i32(row / {kw}u % {kh}u * {g.dilations[0]}u)")
    column = coordinate(f"(column % {ow}u)", g.strides[1], g.begins[1], f"i32(row % {kw}u * {g.dilations[1]}u)")
    row = row.replace(f"i32(column / {ow}u *", f"i32((column / {ow}u) *")
    load_b = f"""fn load_b(batch: u32, row: u32, column: u32) -> f32 {{
    let iy = {row};
    let ix = {column};
    if (iy < 0 || iy >= {signed(height)} || ix < 0 || ix >= {signed(width)}) {{ return 0.0; }}
    let plane = batch * {channels * height * width}u + row / {kh * kw}u * {height * width}u;
    return b[plane + u32(iy * {signed(width)} + ix)];
}}"""
    a = Matrix(w.value, w.size, depth, 1)
    p = Product(a, Matrix(x.value, x.size, 0, 0), filters, oh * ow, depth, x.shape[0])
    reads = [Binding("a", w.value, "f32", w.size), Binding("b", x.value, "f32", x.size)]
    return tiled_kernel(p, out, title, n.target.max_groups, matrix_load("a", a), load_b, reads)


UNROLLED = 8
"""The widest kernel whose taps are written out one by one."""


def _strip(width: int) -> int:
    """How many output pixels an invocation computes: up to eight, wasting as few as possible."""
    return min(range(1, 9), key=lambda p: (-(-width // p) * p * (1 + 1 / p), -p))


def packed_weights(w: np.ndarray, group: int, block: int) -> np.ndarray:
    """Weights [filters, channels, kh, kw] as [group, filter block, channels, kh, kw, block], zero-filled."""
    filters = w.shape[0] // group
    blocks = -(-filters // block)
    grouped = w.reshape(group, filters, -1)
    padded = np.zeros((group, blocks * block, grouped.shape[2]), np.float32)
    padded[:, :filters] = grouped
    return np.ascontiguousarray(padded.reshape(group, blocks, block, -1).transpose(0, 1, 3, 2))


def _direct(n: Lowering, x: Tensor, given: Filters, out: Tensor, g: Window, group: int, title: str) -> Kernel:
    w = given.tensor
    (kh, kw), (sy, sx), (dy, dx) = g.kernel, g.strides, g.dilations
    (height, width), (oh, ow) = g.sizes, g.out_sizes
    channels, filters = x.shape[1] // group, w.shape[0] // group
    pixels = _strip(ow)
    block = 8 if filters % 8 == 0 else 4 if filters > 2 else 1
    vectors = max(block // 4, 1)
    element = "vec4<f32>" if block > 1 else "f32"
    blocks, strips, taps = -(-filters // block), -(-ow // pixels), kh * kw
    weights = given.pack(f"packed {group} {block}", lambda a: packed_weights(a, group, block))
    # Strips may reach over the edge on the right even without padding: what they read there is not stored.
    last = (strips * pixels - 1) * sx - g.begins[1] + (kw - 1) * dx
    padded = g.begins[1] > 0 or last >= width
    lines = [
        f"let ox = i % {strips}u * {pixels}u;",
        f"let oy = i / {strips}u % {oh}u;",
        f"let block = i / {strips * oh}u % {blocks * group}u;",
        f"let batch = i / {strips * oh * blocks * group}u;",
        f"let iy0 = {coordinate('oy', sy, g.begins[0])};",
        f"let ix0 = {coordinate('ox', sx, g.begins[1])};",
        f"var plane = (batch * {channels * group}u + block / {blocks}u * {channels}u) * {height * width}u;",
        f"var tap = block * {channels * taps * vectors}u;",
    ]
    unrolled = kw <= UNROLLED
    # Which pixels of an input row the taps of this strip touch, as offsets from the first.
    offsets = sorted({p * sx + k * dx for p in range(pixels) for k in range(kw if unrolled else 1)})
    if padded and unrolled:
        lines += [f"let in{o} = ix0 + {o} >= 0 && ix0 + {o} < {signed(width)};" for o in offsets]
    lines += [f"var c{p}{v} = {element}();" for p in range(pixels) for v in range(vectors)]
    lines += [
        f"for (var channel = 0u; channel < {channels}u; channel++) {{",
        f"    for (var ky = 0; ky < {kh}; ky++) {{",
        f"        let iy = iy0 + ky * {dy};",
        f"        if (iy >= 0 && iy < {signed(height)}) {{",
        f"            let line = i32(plane) + iy * {signed(width)} + ix0;",
    ]
    taps_of_row = range(kw) if unrolled else range(1)
    at = "" if unrolled else f" + kx * {dx}"
    inner = []
    for o in offsets:
        if padded and not unrolled:
            inner.append(f"let in{o} = ix0 + {o}{at} >= 0 && ix0 + {o}{at} < {signed(width)};")
        read = f"x[line + {o}{at}]"
        inner.append(f"let p{o} = {f'select(0.0, {read}, in{o})' if padded else read};")
    for k in taps_of_row:
        for v in range(vectors):
            place = f"tap + {k * vectors + v}u" if unrolled else f"tap + u32(kx) * {vectors}u + {v}u"
            inner.append(f"let w{k}{v} = w[{place}];")
        for p in range(pixels):
            inner += [f"c{p}{v} += p{p * sx + k * dx} * w{k}{v};" for v in range(vectors)]
    if not unrolled:
        inner = [f"for (var kx = 0; kx < {kw}; kx++) {{", *("    " + line for line in inner), "}"]
    lines += ["            " + line for line in inner]
    lines += ["        }", f"        tap += {kw * vectors}u;", "    }", f"    plane += {height * width}u;", "}"]
    lines += [
        f"let filter0 = block % {blocks}u * {block}u;",
        f"let first = ((batch * {group}u + block / {blocks}u) * {filters}u + filter0) * {oh}u + oy;",
    ]
    place = f"(first + c * {oh}u) * {ow}u + ox + r"
    lines += shifted_stores("c", pixels, f"{ow}u - ox", block, f"{filters}u - filter0", place)
    count = x.shape[0] * group * blocks * oh * strips
    size = group * blocks * block * channels * taps
    reads = [Binding("x", x.value, "f32", x.size), Binding("w", weights, element, size // (4 if block > 1 else 1))]
    image, blocks_of_image = filters * group * oh * ow, group * blocks * oh * strips
    body = single_body("\n".join(lines), f"arrayLength(&y) / {image}u * {blocks_of_image}u")
    groups = single_groups(count, n.target.max_groups)
    return Kernel(title + " direct", reads, out.value, out.shape, "f32", body, groups)


@lowering("ConvTranspose")
def conv_transpose(n: Lowering) -> None:
    """Each output pixel gathers the input pixels whose windows cover it."""
    x, w, out = n.input(0), n.input(1), n.output(0, "float32")
    rank = len(x.shape) - 2
    group = n.attribute("group", 1)
    kernel = tuple(n.attribute("kernel_shape") or w.shape[2:])
    strides = tuple(n.attribute("strides") or [1] * rank)
    dilations = tuple(n.attribute("dilations") or [1] * rank)
    begins = _transpose_begins(n, x.shape[2:], kernel, strides, dilations, out.shape[2:])
    sizes, out_sizes = x.shape[2:], out.shape[2:]
    if rank not in (1, 2) or not n.is_constant(1):
        emit_direct_transposed(n, x, w, out, Window(kernel, strides, dilations, begins, sizes, out_sizes))
        _add_bias(n, w.shape[1] * group, rank)
        return
    if rank == 1:
        kernel, strides, dilations, begins = (1, *kernel), (1, *strides), (1, *dilations), (0, *begins)
        sizes, out_sizes = (1, *sizes), (1, *out_sizes)
    channels, filters = x.shape[1] // group, w.shape[1]
    (kh, kw), (sy, sx), (dy, dx), (height, width), (oh, ow) = kernel, strides, dilations, sizes, out_sizes
    block = 8 if filters % 8 == 0 else 4 if filters > 2 else 1
    vectors, blocks, across = max(block // 4, 1), -(-filters // block), -(-ow // sx)
    element = "vec4<f32>" if block > 1 else "f32"
    weights = n.derive((1,), f"transposed {group} {block}", lambda a: packed_transposed(a, group, block))
    # Neighbouring invocations compute output pixels a stride apart: the same taps reach them.
    images = f"arrayLength(&y) / {group * filters * oh * ow}u"
    lines = [
        f"let ox = i % {across}u * {sx}u + i / {across}u % {sx}u;",
        f"let oy = i / {across * sx}u % {oh}u;",
        f"let block = i / {across * sx * oh}u % {group * blocks}u;",
        f"let batch = i / {across * sx * oh * group * blocks}u;",
        f"if (ox >= {ow}u) {{ return; }}",
        f"let ty = i32(oy) + {begins[0]};",
        f"let tx = i32(ox) + {begins[1]};",
        f"let image = (batch * {group}u + block / {blocks}u) * {channels * height * width}u;",
        *(f"var c0{v} = {element}();" for v in range(vectors)),
        *_taps("y", kh, sy, dy, height, ""),
        *_taps("x", kw, sx, dx, width, "    "),
        f"        var at = image + u32(iy * {signed(width)} + ix);",
        f"        var tap = (block * {kh * kw}u + u32(ky * {kw} + kx)) * {channels * vectors}u;",
        f"        for (var channel = 0u; channel < {channels}u; channel++) {{",
        "            let value = x[at];",
        *(f"            c0{v} += value * w[tap + {v}u];" for v in range(vectors)),
        f"            at += {height * width}u;",
        f"            tap += {vectors}u;",
        "        }",
        "    }",
        "}",
        f"let filter0 = block % {blocks}u * {block}u;",
        f"let plane = (batch * {group}u + block / {blocks}u) * {filters}u + filter0;",
    ]
    place = f"((plane + c) * {oh}u + oy) * {ow}u + ox"
    lines += shifted_stores("c", 1, "1u", block, f"{filters}u - filter0", place)
    each = across * sx * oh * group * blocks
    size = group * blocks * block * channels * kh * kw
    reads = [x.binding("x"), Binding("w", weights, element, size // (4 if block > 1 else 1))]
    title = n.title(x, w, note=f"group {group} stride {list(strides)} pad {list(begins)} dilation {list(dilations)}")
    body = single_body("\n".join(lines), f"{images} * {each}u")
    groups = single_groups(x.shape[0] * each, n.target.max_groups)
    n.emit(Kernel(title, reads, out.value, out.shape, "f32", body, groups))
    _add_bias(n, filters * group, rank)


def _taps(axis: str, kernel: int, stride: int, dilation: int, size: int, indent: str) -> list[str]:
    """The head of a loop over the taps along an axis that reach an output pixel, each with its input coordinate."""
    t, k, i = f"t{axis}", f"k{axis}", f"i{axis}"
    first, step = (f"({t} % {stride} + {stride}) % {stride}", stride) if dilation == 1 else ("0", 1)
    distance = f"{t} - {k}" if dilation == 1 else f"{t} - {k} * {dilation}"
    missed = "" if dilation == 1 else f" || d{axis} % {stride} != 0"
    return [
        f"{indent}for (var {k} = {first}; {k} < {kernel}; {k} += {step}) {{",
        f"{indent}    let d{axis} = {distance};",
        f"{indent}    let {i} = d{axis} / {stride};",
        f"{indent}    if (d{axis} < 0{missed} || {i} >= {signed(size)}) {{ continue; }}",
    ]


def packed_transposed(w: np.ndarray, group: int, block: int) -> np.ndarray:
    """Weights [channels, filters, kh, kw] as [group, filter block, kh, kw, channels, block], zero-filled."""
    channels, filters = w.shape[0] // group, w.shape[1]
    blocks = -(-filters // block)
    grouped = w.reshape(group, channels, filters, -1)
    padded = np.zeros((group, channels, blocks * block, grouped.shape[3]), np.float32)
    padded[:, :, :filters] = grouped
    return np.ascontiguousarray(padded.reshape(group, channels, blocks, block, -1).transpose(0, 2, 4, 1, 3))


def _transpose_begins(
    n: Lowering,
    sizes: tuple[int, ...],
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
    out_sizes: tuple[int, ...],
) -> tuple[int, ...]:
    """Padding before each dimension: given, or what makes the output as large as it is."""
    rank = len(kernel)
    auto_pad = n.attribute("auto_pad", "NOTSET") or "NOTSET"
    pads = tuple(n.attribute("pads") or [0] * (2 * rank))
    if auto_pad == "NOTSET" and n.attribute("output_shape") is None:
        return pads[:rank]
    if auto_pad == "VALID":
        return (0,) * rank
    extra = n.attribute("output_padding") or [0] * rank
    total = [
        s * (size - 1) + e + (k - 1) * d + 1 - out
        for s, size, e, k, d, out in zip(strides, sizes, extra, kernel, dilations, out_sizes, strict=True)
    ]
    if auto_pad == "SAME_UPPER":
        return tuple(t // 2 for t in total)
    return tuple(t - t // 2 for t in total)
