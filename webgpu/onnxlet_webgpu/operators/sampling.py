"""Sampling between elements: GridSample, AffineGrid, RoiAlign, MaxRoiPool, DeformConv; Col2Im, which adds windows up.

Each one's twin is the NumPy function of `onnxlet.ops`.
"""

from __future__ import annotations

from math import prod

from ..lowering import MICROSOFT, Lowering, lowering
from ..wgsl import contiguous_strides, literal
from .arithmetic import at, whole

GRID_MODES = {"bilinear": "linear", "bicubic": "cubic", "linear": "linear", "cubic": "cubic", "nearest": "nearest"}

CUBIC = """fn cubic(x: f32) -> f32 {
    let a = abs(x);
    if (a <= 1.0) { return ((1.25 * a - 2.25) * a) * a + 1.0; }
    if (a < 2.0) { return ((-0.75 * a + 3.75) * a - 6.0) * a + 3.0; }
    return 0.0;
}"""
"""The kernel of cubic convolution with a coefficient of -0.75."""

REFLECTED = """fn reflected(index: i32, size: i32, period: i32, last: i32) -> i32 {
    if (period == 0) { return 0; }
    let folded = (index % period + period) % period;
    return select(last - folded, folded, folded < size);
}"""


@lowering("GridSample")
@lowering("GridSample", domain=MICROSOFT)
def grid_sample(n: Lowering) -> None:
    x, grid, out = n.input(0), n.input(1), n.output(0, "float32")
    mode = GRID_MODES[n.attribute("mode", "linear")]
    padding, corners = n.attribute("padding_mode", "zeros"), n.attribute("align_corners", 0)
    sizes = x.shape[2:]
    rank = len(sizes)
    image, points = prod(sizes), prod(out.shape[2:])
    lines = [
        f"let point = (i / {x.shape[1] * points}u * {points}u + i % {points}u) * {rank}u;",
        f"let plane = i / {points}u * {image}u;",
    ]
    for d, size in enumerate(sizes):
        p = f"grid[point + {rank - 1 - d}u]"
        place = f"({p} + 1.0) / 2.0 * {size - 1}.0" if corners else f"(({p} + 1.0) * {size}.0 - 1.0) / 2.0"
        lines.append(f"let p{d} = {place};")
        lines.append(f"let b{d} = {'round' if mode == 'nearest' else 'floor'}(p{d});")
        finite = f"is_nan(b{d}) || is_inf(b{d})"
        lines.append(f"let w{d} = i32(clip(select(b{d}, -2.0, {finite}), -1e9, 1e9));")
    lines.append("var total = 0.0;")
    first, last = {"nearest": (0, 0), "linear": (0, 1), "cubic": (-1, 2)}[mode]
    indent, weights, terms, inside = "", [], [], []
    strides = contiguous_strides(sizes)
    for d, size in enumerate(sizes):
        lines.append(f"{indent}for (var t{d} = {first}; t{d} <= {last}; t{d}++) {{")
        indent += "    "
        index = f"w{d} + t{d}"
        if padding == "border":
            index = f"clamp({index}, 0, {size - 1})"
        elif padding == "reflection":
            period = 2 * (size - 1) if corners else 2 * size
            index = f"reflected({index}, {size}, {period}, {period if corners else period - 1})"
        lines.append(f"{indent}let at{d} = {index};")
        inside.append(f"at{d} >= 0 && at{d} < {size}")
        terms.append(f"u32(at{d}) * {strides[d]}u")
        distance = f"b{d} + f32(t{d}) - p{d}"
        if mode != "nearest":
            weights.append(f"cubic({distance})" if mode == "cubic" else f"max(0.0, 1.0 - abs({distance}))")
    lines.append(f"{indent}var value = 0.0;")
    lines.append(f"{indent}if ({' && '.join(inside)}) {{ value = x[plane + {' + '.join(terms)}]; }}")
    lines.append(f"{indent}total += {' * '.join(['value', *weights])};")
    lines += ["    " * d + "}" for d in reversed(range(rank))]
    lines.append("store(i, total);")
    helpers = [text for name, text in (("cubic(", CUBIC), ("reflected(", REFLECTED)) if name in "\n".join(lines)]
    title = n.title(x, grid, note=f"{mode} {padding} corners {corners}")
    n.emit_flat(title, [x.binding("x"), grid.binding("grid")], "\n".join(lines), out, "\n".join(helpers))


@lowering("AffineGrid")
def affine_grid(n: Lowering) -> None:
    theta, out = n.input(0), n.output(0, "float32")
    n.known(1, "the size")
    corners = n.attribute("align_corners", 0)
    sizes = out.shape[1:-1]
    rank = len(sizes)
    lines = [f"let row = (i / {prod(out.shape[1:])}u * {rank}u + i % {rank}u) * {rank + 1}u;", "var total = 0.0;"]
    for d, size in enumerate(sizes):
        c = f"f32({at(out.shape, d + 1)})"
        if corners:
            position = f"{c} * {literal(2 / (size - 1), 'f32')} - 1.0" if size > 1 else "0.0"
        else:
            position = f"({c} * 2.0 + 1.0) / {size}.0 - 1.0"
        lines.append(f"total += theta[row + {rank - 1 - d}u] * ({position});")
    lines.append(f"store(i, total + theta[row + {rank}u]);")
    n.emit_flat(n.title(theta, out, note=f"corners {corners}"), [theta.binding("theta")], "\n".join(lines), out)


@lowering("RoiAlign")
def roi_align(n: Lowering) -> None:
    x, rois, out = n.input(0), n.input(1), n.output(0, "float32")
    batch = n.input(2, "int64", "int32")
    n.index_limits.append((batch.value, x.shape[0]))
    rows, columns = n.attribute("output_height", 1), n.attribute("output_width", 1)
    ratio, scale = n.attribute("sampling_ratio", 0), n.attribute("spatial_scale", 1.0)
    default = "half_pixel" if n.version >= 16 else "output_half_pixel"
    half = n.attribute("coordinate_transformation_mode", default) == "half_pixel"
    largest = n.attribute("mode", "avg") == "max"
    height, width = x.shape[2:]
    shift = "0.5" if half else "0.0"
    least = "{0}" if half else "max({0}, 1.0)"
    count = "{0}" if ratio <= 0 else f"{ratio}"
    corner = "let {0} = rois[roi + {1}u] * {2} - {3};"
    names = {"x1": 0, "y1": 1, "x2": 2, "y2": 3}
    combine = "max_nan(max_nan(v00, v01), max_nan(v10, v11))" if largest else "v00 + v01 + v10 + v11"
    statements = "\n".join(
        [
            f"let roi = i / {x.shape[1] * rows * columns}u * 4u;",
            *(corner.format(name, place, literal(scale, "f32"), shift) for name, place in names.items()),
            f"let w = {least.format('x2 - x1')};",
            f"let h = {least.format('y2 - y1')};",
            f"let samples_y = {count.format(f'i32(ceil(h / {rows}.0))')};",
            f"let samples_x = {count.format(f'i32(ceil(w / {columns}.0))')};",
            f"let image = u32({whole(n, 'batch', batch, 'roi / 4u')});",
            f"let plane = (image * {x.shape[1]}u + {at(out.shape, 1)}) * {height * width}u;",
            f"var total = {'-infinity()' if largest else '0.0'};",
            "for (var sy = 0; sy < samples_y; sy++) {",
            f"    let fy = f32({at(out.shape, 2)} * u32(samples_y) + u32(sy)) + 0.5;",
            f"    let py = y1 + fy / f32(samples_y) / {rows}.0 * h;",
            "    for (var sx = 0; sx < samples_x; sx++) {",
            f"        let fx = f32({at(out.shape, 3)} * u32(samples_x) + u32(sx)) + 0.5;",
            f"        let px = x1 + fx / f32(samples_x) / {columns}.0 * w;",
            "        var value = 0.0;",
            f"        if (py >= -1.0 && py <= {height}.0 && px >= -1.0 && px <= {width}.0) {{",
            f"            let cy = clamp(py, 0.0, {height - 1}.0);",
            f"            let cx = clamp(px, 0.0, {width - 1}.0);",
            "            let y0 = u32(cy);",
            "            let x0 = u32(cx);",
            f"            let yb = plane + min(y0 + 1u, {height - 1}u) * {width}u;",
            f"            let ya = plane + y0 * {width}u;",
            f"            let xb = min(x0 + 1u, {width - 1}u);",
            "            let wy = cy - f32(y0);",
            "            let wx = cx - f32(x0);",
            "            let v00 = x[ya + x0] * ((1.0 - wy) * (1.0 - wx));",
            "            let v01 = x[ya + xb] * ((1.0 - wy) * wx);",
            "            let v10 = x[yb + x0] * (wy * (1.0 - wx));",
            "            let v11 = x[yb + xb] * (wy * wx);",
            f"            value = {combine};",
            "        }",
            f"        total = {'max_nan(total, value)' if largest else 'total + value'};",
            "    }",
            "}",
            "let samples = samples_y * samples_x;",
            f"store(i, select(0.0, {'total' if largest else 'total / f32(samples)'}, samples > 0));",
        ]
    )
    reads = [x.binding("x"), rois.binding("rois"), batch.binding("batch")]
    n.emit_flat(n.title(x, rois, out, note=f"ratio {ratio}"), reads, statements, out)


@lowering("MaxRoiPool")
def max_roi_pool(n: Lowering) -> None:
    x, rois, out = n.input(0), n.input(1), n.output(0, "float32")
    rows, columns = n.attribute("pooled_shape")
    scale = literal(n.attribute("spatial_scale", 1.0), "f32")
    height, width = x.shape[2:]
    lines = [f"let roi = i / {x.shape[1] * rows * columns}u * 5u;"]
    for axis, (first, count, size, where) in enumerate(((2, rows, height, 2), (1, columns, width, 3))):
        # Corners are rounded with halves away from zero, and both belong to the region.
        for name, place in (("low", first), ("high", first + 2)):
            value = f"rois[roi + {place}u] * {scale}"
            lines.append(f"let {name}{axis} = i32(sign({value}) * floor(abs({value}) + 0.5));")
        lines += [
            f"let length{axis} = f32(max(high{axis} - low{axis} + 1, 1)) / {count}.0;",
            f"let bin{axis} = f32({at(out.shape, where)});",
            f"let begin{axis} = clamp(i32(floor(bin{axis} * length{axis})) + low{axis}, 0, {size});",
            f"let end{axis} = clamp(i32(ceil((bin{axis} + 1.0) * length{axis})) + low{axis}, 0, {size});",
        ]
    lines += [
        f"let plane = (i32(rois[roi]) * {x.shape[1]} + i32({at(out.shape, 1)})) * {height * width};",
        "var total = -infinity();",
        "for (var r = begin0; r < end0; r++) {",
        f"    for (var c = begin1; c < end1; c++) {{ total = max_nan(total, x[plane + r * {width} + c]); }}",
        "}",
        "store(i, select(0.0, total, begin0 < end0 && begin1 < end1));",
    ]
    n.emit_flat(n.title(x, rois, out), [x.binding("x"), rois.binding("rois")], "\n".join(lines), out)


@lowering("Col2Im")
def col2im(n: Lowering) -> None:
    x, out = n.input(0), n.output(0, "float32")
    n.known(1, "the image's shape")
    kernel = n.known(2, "the block's shape").reshape(-1).tolist()
    rank = len(kernel)
    strides, dilations = n.attribute("strides") or [1] * rank, n.attribute("dilations") or [1] * rank
    pads = n.attribute("pads") or [0] * (2 * rank)
    sizes = out.shape[2:]
    counts = [
        (size + pads[d] + pads[d + rank] - (k - 1) * dilations[d] - 1) // strides[d] + 1
        for d, (size, k) in enumerate(zip(sizes, kernel, strict=True))
    ]
    blocks, taps = prod(counts), prod(kernel)
    lines = [f"let t{d} = i32({at(out.shape, d + 2)}) + {pads[d]};" for d in range(rank)]
    lines += [f"let plane = i / {prod(sizes)}u * {taps * blocks}u;", "var total = 0.0;"]
    indent, place = "", "plane"
    k_strides, c_strides = contiguous_strides(kernel), contiguous_strides(counts)
    for d in range(rank):
        lines += [
            f"{indent}for (var k{d} = 0; k{d} < {kernel[d]}; k{d}++) {{",
            f"{indent}    let d{d} = t{d} - k{d} * {dilations[d]};",
            f"{indent}    let at{d} = d{d} / {strides[d]};",
            f"{indent}    if (d{d} < 0 || d{d} % {strides[d]} != 0 || at{d} >= {counts[d]}) {{ continue; }}",
        ]
        indent += "    "
        place += f" + u32(k{d}) * {k_strides[d] * blocks}u + u32(at{d}) * {c_strides[d]}u"
    lines.append(f"{indent}total += x[{place}];")
    lines += ["    " * d + "}" for d in reversed(range(rank))]
    lines.append("store(i, total);")
    title = n.title(x, out, note=f"blocks {kernel} stride {strides} pad {pads} dilation {dilations}")
    n.emit_flat(title, [x.binding("x")], "\n".join(lines), out)


@lowering("DeformConv")
def deform_conv(n: Lowering) -> None:
    """Two kernels: the input sampled for every tap of every window, and the products with the weights."""
    x, w, offset, out = n.input(0), n.input(1), n.input(2), n.output(0, "float32")
    group, offset_group = n.attribute("group", 1), n.attribute("offset_group", 1)
    kernel = list(n.attribute("kernel_shape") or w.shape[2:])
    rank, taps = len(kernel), prod(kernel)
    strides, dilations = n.attribute("strides") or [1] * rank, n.attribute("dilations") or [1] * rank
    pads = n.attribute("pads") or [0] * (2 * rank)
    batch, channels, *sizes = x.shape
    points = prod(out.shape[2:])
    sampled = n.temporary("samples", (batch, channels, taps, *out.shape[2:]))
    reads = [x.binding("x"), offset.binding("offset")]
    lines = [
        f"let tap = {at(sampled.shape, 2)};",
        f"let part = i / {taps * points * (channels // offset_group)}u;",
        f"let plane = i / {taps * points}u * {prod(sizes)}u;",
    ]
    tap_strides, x_strides = contiguous_strides(kernel), contiguous_strides(sizes)
    for d in range(rank):
        own = f"offset[(part * {taps * rank}u + tap * {rank}u + {d}u) * {points}u + i % {points}u]"
        step = f"f32(i32(tap / {tap_strides[d]}u % {kernel[d]}u) * {dilations[d]}"
        lines.append(
            f"let p{d} = {own} + {step} + i32({at(sampled.shape, d + 3)}) * {strides[d]} - {pads[d]});".replace(
                "- -", "+ "
            )
        )
        lines.append(f"let b{d} = clip(floor(p{d}), -2.0, 1e9);")
        lines.append(f"let w{d} = i32(select(b{d}, -2.0, is_nan(b{d})));")
    lines.append("var total = 0.0;")
    indent, weights, terms, inside = "", [], [], []
    for d, size in enumerate(sizes):
        lines.append(f"{indent}for (var t{d} = 0; t{d} < 2; t{d}++) {{")
        indent += "    "
        lines.append(f"{indent}let at{d} = w{d} + t{d};")
        weights.append(f"select(1.0 - (p{d} - b{d}), p{d} - b{d}, t{d} == 1)")
        inside.append(f"at{d} >= 0 && at{d} < {size}")
        terms.append(f"u32(at{d}) * {x_strides[d]}u")
    lines.append(
        f"{indent}if ({' && '.join(inside)}) {{ total += x[plane + {' + '.join(terms)}] * {' * '.join(weights)}; }}"
    )
    lines += ["    " * d + "}" for d in reversed(range(rank))]
    if n.has_input(4):
        reads.append(n.input(4).binding("mask"))
        lines.append(f"total = total * mask[(part * {taps}u + tap) * {points}u + i % {points}u];")
    lines.append("store(i, total);")
    n.emit_flat(n.title(x, offset, note="samples"), reads, "\n".join(lines), sampled)
    filters, depth = w.shape[0], channels // group * taps
    statements = f"""
let filter0 = {at(out.shape, 1)};
let first = (i / {filters * points}u * {channels}u + filter0 / {filters // group}u * {channels // group}u)
    * {taps * points}u + i % {points}u;
var total = 0.0;
for (var k = 0u; k < {depth}u; k++) {{ total += samples[first + k * {points}u] * w[filter0 * {depth}u + k]; }}
store(i, total{" + bias[filter0]" if n.has_input(3) else ""});
"""
    reads = [sampled.binding("samples"), w.binding("w")]
    if n.has_input(3):
        reads.append(n.input(3).binding("bias"))
    n.emit_flat(n.title(x, w, note=f"group {group}"), reads, statements, out)
