"""Resize: every output coordinate along an axis is a weighted sum of a few input coordinates.

Which ones and with what weights does not depend on the data: NumPy computes them for each axis, with every coordinate
transformation that `onnxlet.ops` knows, and one shader applies the tables of all axes.
"""

from __future__ import annotations

from math import prod

import numpy as np

from onnxlet.ops.resize import (
    ROUNDINGS,
    TRANSFORMS,
    AxisPlan,
    axis_plans,
    cubic_kernel,
    linear_kernel,
    stencil,
)

from ..kernel import Binding
from ..lowering import Lowering, lowering
from ..storage import MOVED
from ..wgsl import contiguous_strides, literal

Taps = tuple[np.ndarray, np.ndarray]
"""For one axis: which input coordinates each output coordinate reads, and their weights; two (outputs, taps) arrays."""


OUTSIDE = -1
"""Instead of an input coordinate: the output coordinate lies outside of what is cropped."""


@lowering("Resize", "Upsample")
def resize(n: Lowering) -> None:
    nearest = n.attribute("mode", "nearest") == "nearest"
    x, out = n.input(0, *(MOVED if nearest else ("float32",))), n.output(0)
    tables = {d: t for d, t in _tables(n, x.shape).items() if t is not None}
    if any(len(index) != out.shape[d] for d, (index, _) in tables.items()):
        n.refuse("the output's size does not follow from scales and sizes")
    if not tables:
        n.alias(out, x)
        return
    # Two words per tap, the index and the bits of the weight, all axes one after another in one buffer.
    words, starts = [], {}
    for d, (index, weight) in tables.items():
        starts[d] = sum(w.size for w in words) // 2
        pair = np.stack([index.astype(np.int32), weight.astype(np.float32).view(np.int32)], axis=-1)
        words.append(pair.reshape(-1))
    packed = np.concatenate(words)
    taps = Binding("taps", n.table("taps", packed), "vec2<i32>", packed.size // 2)
    lines, place = [], []
    inner, strides = prod(out.shape), contiguous_strides(x.shape)
    for d in range(len(x.shape)):
        inner //= out.shape[d]
        lines.append(f"let o{d} = {f'i / {inner}u' if inner > 1 else 'i'} % {out.shape[d]}u;")
        if d not in tables:
            place.append(f"o{d} * {strides[d]}u")
    lines += [f"let base = {' + '.join(place) or '0u'};", f"var total = {literal(0, x.element)};"]
    indent, weights, at = "", [], "base"
    for d, (index, _) in tables.items():
        count = index.shape[1]
        lines.append(f"{indent}for (var t{d} = 0u; t{d} < {count}u; t{d}++) {{")
        indent += "    "
        lines.append(f"{indent}let tap{d} = taps[{starts[d]}u + o{d} * {count}u + t{d}];")
        weights.append(f"bitcast<f32>(tap{d}.y)")
        at += f" + u32(tap{d}.x) * {strides[d]}u"
    if all(index.shape[1] == 1 for index, _ in tables.values()):
        lines.append(f"{indent}total = x[{at}];")
    else:
        # A weight of zero must not turn an infinity into a NaN.
        lines.append(f"{indent}let w = {' * '.join(weights)};")
        lines.append(f"{indent}if (w != 0.0) {{ total += w * x[{at}]; }}")
    lines += ["    " * k + "}" for k in reversed(range(len(tables)))]
    for d, (index, _) in tables.items():
        if (index == OUTSIDE).any():
            value = literal(n.attribute("extrapolation_value", 0.0), x.element)
            lines.append(f"if (taps[{starts[d]}u + o{d} * {index.shape[1]}u].x == {OUTSIDE}) {{ total = {value}; }}")
    n.ignore("extrapolation_value")
    lines.append("store(i, total);")
    n.emit_flat(n.title(x, out, note=f"{list(tables)} resized"), [x.binding("x"), taps], "\n".join(lines), out)


def _tables(n: Lowering, shape: tuple[int, ...]) -> dict[int, Taps | None]:
    """The taps of each axis, `None` for one that stays as it is."""
    mode: str = n.attribute("mode", "nearest")
    if n.version < 11 or n.step.node.op_type == "Upsample":
        return _tables_by_scales(n, shape, "linear" if mode in ("bilinear", "trilinear") else mode)
    transform = n.attribute("coordinate_transformation_mode", "half_pixel")
    crop = transform == "tf_crop_and_resize"
    roi = _present(n, 1) if crop else None
    scales, sizes = (_present(n, i) for i in (2, 3))
    axes = [a % len(shape) for a in n.attribute("axes") or range(len(shape))]
    policy = n.attribute("keep_aspect_ratio_policy", "stretch")
    plans = axis_plans(shape, axes, roi, scales, sizes, policy, crop)
    rounding = ROUNDINGS[n.attribute("nearest_mode", "round_prefer_floor")]
    cubic = cubic_kernel(n.attribute("cubic_coeff_a", -0.75))
    antialias, exclude = bool(n.attribute("antialias", 0)), bool(n.attribute("exclude_outside", 0))
    tables: dict[int, Taps | None] = {}
    for d, axis in plans.items():
        positions = TRANSFORMS[transform](axis.coordinates(), axis)
        if axis.after == axis.before == axis.exact and (axis.start, axis.end) == (0.0, 1.0):
            tables[d] = None
        elif mode == "nearest":
            tables[d] = _nearest(rounding(positions), axis)
        else:
            kernel, radius = (linear_kernel, 1) if mode == "linear" else (cubic, 2)
            tables[d] = stencil(positions, axis, kernel, radius, antialias, exclude)
        table = tables[d]
        if crop and table is not None:
            beyond = (positions < 0) | (positions > axis.before - 1)
            tables[d] = np.where(beyond[:, None], OUTSIDE, table[0]), table[1]
    return tables


def _tables_by_scales(n: Lowering, shape: tuple[int, ...], mode: str) -> dict[int, Taps | None]:
    """Resize and Upsample before opset 11."""
    if n.has_input(1):
        scales = n.known(1, "the scales").reshape(-1)
    elif n.attribute("scales") is not None:
        scales = np.asarray(n.attribute("scales"))
    else:
        scales = np.asarray([1, 1, n.attribute("height_scale"), n.attribute("width_scale")])
    tables: dict[int, Taps | None] = {}
    plans = axis_plans(shape, range(len(shape)), None, scales.astype(np.float32), None, "stretch", False)
    for d, axis in plans.items():
        positions = TRANSFORMS["asymmetric"](axis.coordinates(), axis)
        if axis.after == axis.before == axis.exact:
            tables[d] = None
        elif mode == "nearest":
            tables[d] = _nearest((np.ceil if axis.exact < axis.before else np.floor)(positions), axis)
        else:
            tables[d] = stencil(positions, axis, linear_kernel, 1, False, False)
    return tables


def _present(n: Lowering, index: int) -> np.ndarray | None:
    """Optional scales or sizes; an empty tensor counts as absent."""
    if not n.has_input(index):
        return None
    value = n.known(index, "the size of the output").reshape(-1)
    return value if value.size else None


def _nearest(positions: np.ndarray, axis: AxisPlan) -> Taps:
    index = np.clip(positions, 0, axis.before - 1).astype(np.int64)[:, None]
    return index, np.ones(index.shape, np.float32)
