"""Operators that move elements without computing: views, transposes, slices, joins, gathers, padding."""

from __future__ import annotations

from math import prod

import numpy as np

from ..kernel import Kernel, flat_body, flat_groups
from ..lowering import Lowering, Tensor, lowering
from ..storage import MOVED, PAIR, widened
from ..wgsl import broadcast_strides, contiguous_strides, index_expression, literal, signed
from .arithmetic import at


@lowering("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity")
def view(n: Lowering) -> None:
    """The same elements under another shape: no kernel, the output is the input's buffer."""
    n.attribute("axis")  # of Flatten: the output's shape says it
    n.alias(n.output(0), n.input(0, *MOVED))


@lowering("Dropout")
def dropout(n: Lowering) -> None:
    ratio = n.attribute("ratio", 0.5)
    if n.has_input(1):
        ratio = float(widened(n.known(1, "the ratio").reshape(-1))[0])
    training = n.version < 7 and not n.attribute("is_test", 0)
    if n.has_input(2):
        training = bool(n.known(2, "training_mode").reshape(-1)[0])
    if training and ratio != 0:
        n.refuse("Dropout in training mode has no GPU kernel")
    view(n)
    if n.has_output(1):
        mask = n.output(1)
        n.emit_flat(n.title(mask, note="mask"), [], f"store(i, {literal(1, mask.element)});", mask)


def emit_strided(n: Lowering, x: Tensor, out: Tensor, dims: list[int], strides: list[int], offset: int = 0) -> None:
    """Add a kernel that reads `x` over `dims` (the output's shape, perhaps split further) with other strides."""
    place = index_expression(dims, strides, offset)
    n.emit_flat(n.title(x, out, note=f"at {place}"), [x.binding("x")], f"store(i, x[{place}]);", out)


@lowering("Transpose")
def transpose(n: Lowering) -> None:
    x, out = n.input(0, *MOVED), n.output(0)
    order = list(n.attribute("perm") or range(len(x.shape))[::-1])
    moved = [d for d in order if x.shape[d] != 1]
    if moved == sorted(moved):
        n.alias(out, x)
        return
    strides = contiguous_strides(x.shape)
    emit_strided(n, x, out, list(out.shape), [strides[d] for d in order])


@lowering("Expand")
def expand(n: Lowering) -> None:
    x, out = n.input(0, *MOVED), n.output(0)
    if x.size == out.size:
        n.alias(out, x)
        return
    emit_strided(n, x, out, list(out.shape), broadcast_strides(x.shape, out.shape))


@lowering("Tile")
def tile(n: Lowering) -> None:
    x, out = n.input(0, *MOVED), n.output(0)
    dims, strides = [], []
    for size, target, stride in zip(x.shape, out.shape, contiguous_strides(x.shape), strict=True):
        dims += [target // size, size]
        strides += [0, stride]
    emit_strided(n, x, out, dims, strides)


@lowering("Slice")
def slice_(n: Lowering) -> None:
    x, out = n.input(0, *MOVED), n.output(0)
    rank = len(x.shape)
    if n.version < 10:
        starts, ends = list(n.attribute("starts")), list(n.attribute("ends"))
        axes, steps = list(n.attribute("axes") or range(len(starts))), [1] * len(starts)
    else:
        starts = n.known(1, "where the slice starts").reshape(-1).tolist()
        ends = n.known(2, "where the slice ends").reshape(-1).tolist()
        axes = n.known(3, "the axes").reshape(-1).tolist() if n.has_input(3) else list(range(len(starts)))
        steps = n.known(4, "the steps").reshape(-1).tolist() if n.has_input(4) else [1] * len(starts)
    strides = contiguous_strides(x.shape)
    offset, taken = 0, list(strides)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        axis %= rank
        # Python's own rule, for starts and ends of any size.
        first = range(x.shape[axis])[_slice(start, end, step, x.shape[axis])]
        offset += first.start * strides[axis]
        taken[axis] = strides[axis] * step
    if x.shape == out.shape and offset == 0 and all(s == 1 for s in steps):
        n.alias(out, x)
        return
    emit_strided(n, x, out, list(out.shape), taken, offset)


def _slice(start: int, end: int, step: int, size: int) -> slice:
    """ONNX's slice as Python's: an end below -size with a negative step means 'to the very start'."""
    if step < 0:
        start = min(start, size - 1)
        return slice(start, None if end < -size else end, step)
    return slice(start, end, step)


@lowering("Split")
def split(n: Lowering) -> None:
    x = n.input(0, *MOVED)
    axis = n.attribute("axis", 0) % len(x.shape)
    strides, start = contiguous_strides(x.shape), 0
    for number, name in enumerate(n.step.node.outputs):
        if not name:
            n.refuse("an output of Split is not used")
        if n.is_empty_output(number):
            continue
        out = n.output(number)
        emit_strided(n, x, out, list(out.shape), strides, start * strides[axis])
        start += out.shape[axis]
    if start != x.shape[axis]:
        n.refuse("the outputs of Split do not add up to its input")


@lowering("Concat")
def concat(n: Lowering) -> None:
    """One kernel that reads all inputs; where the device can't bind as many, one for each, which writes its part."""
    out = n.output(0)
    axis = n.attribute("axis", 1) % len(out.shape)
    inner = prod(out.shape[axis + 1 :])
    xs = [n.input(number, *MOVED) for number in range(len(n.step.node.inputs)) if not n.is_empty(number)]
    parts = [x.shape[axis] * inner for x in xs]
    whole, start = out.shape[axis] * inner, 0
    if len(xs) == 1:
        n.alias(out, xs[0])
        return
    if len(xs) < n.target.max_bindings:
        _joined(n, xs, parts, out)
        return
    for x, part in zip(xs, parts, strict=True):
        place = f"i / {part}u * {whole}u + i % {part}u + {start}u"
        body = flat_body(f"store({place}, x[i]);", "arrayLength(&x)")
        groups = flat_groups(x.size, n.target.flat_groups)
        title = n.title(x, out, note=f"to {place}")
        n.emit(
            Kernel(title, [x.binding("x")], out.value, out.shape, out.element, body, groups, fusable=False)
        )  # fmt: skip
        start += part


def _joined(n: Lowering, xs: list[Tensor], parts: list[int], out: Tensor) -> None:
    """Rows of `xs`, of `parts` elements, side by side."""
    whole, start = sum(parts), 0
    lines = [f"let row = i / {whole}u;", f"let at = i % {whole}u;", f"var value: {out.element};"]
    for number, part in enumerate(parts):
        test = f"if (at < {start + part}u) " if number < len(parts) - 1 else ""
        back = f" - {start}u" if start else ""
        lines.append(f"{'else ' if number else ''}{test}{{ value = x{number}[row * {part}u + at{back}]; }}")
        start += part
    lines.append("store(i, value);")
    reads = [x.binding(f"x{number}") for number, x in enumerate(xs)]
    n.emit_flat(n.title(*xs, out), reads, "\n".join(lines), out)


def indices(n: Lowering, index: int, axis_size: int) -> Tensor:
    """Input `index` as indices of an axis, which the host checks before it uploads them. Read them by `index_at`."""
    t = n.input(index, "int64", "int32", "uint32")
    name = n.step.node.inputs[index]
    if n.is_constant(index):
        limit = axis_size

        def narrow(values: np.ndarray) -> np.ndarray:
            check_indices(values, limit, name)
            return values.astype(np.int32)

        return Tensor(n.derive((index,), f"index below {limit}", narrow), t.shape, np.dtype(np.int32))
    n.index_limits.append((t.value, axis_size))
    return t


def index_at(name: str, t: Tensor, place: str) -> str:
    """Text of the index (i32) at `place` of a binding `name` for `t`: of 64 bits the low word."""
    text = f"{name}[{place}]"
    return f"bitcast<i32>({text}.x)" if t.element == PAIR else text if t.element == "i32" else f"i32({text})"


def check_indices(values: np.ndarray, limit: int | tuple[int, ...], name: str) -> None:
    """Raise `IndexError` where an index lies outside of an axis of `limit` elements; a tuple holds the limits of the
    elements of the last dimension."""
    if isinstance(limit, tuple):
        for column, size in enumerate(limit):
            check_indices(values[..., column], size, name)
    elif values.size and (values.min() < -limit or values.max() >= limit):
        wrong = values[(values < -limit) | (values >= limit)].reshape(-1)[0]
        raise IndexError(f"{name!r} holds the index {wrong}, outside of an axis of {limit}")


def wrapped(text: str, size: int) -> str:
    """Text of an index as u32, with negative ones counted from the end."""
    return f"u32(select({text}, {text} + {signed(size)}, {text} < 0))"


@lowering("Gather")
def gather(n: Lowering) -> None:
    parts = n.parts(0, 0)
    if parts is not None and n.attribute("axis", 0) == 0:
        _gather_in_parts(n, parts)
        return
    x, out = n.input(0, *MOVED), n.output(0)
    axis = n.attribute("axis", 0) % len(x.shape)
    index = indices(n, 1, x.shape[axis])
    inner, size = prod(x.shape[axis + 1 :]), x.shape[axis]
    row = "i" if inner == 1 else f"i / {inner}u"
    which = row if axis == 0 else f"({row}) % {index.size}u" if inner == 1 else f"{row} % {index.size}u"
    place = f"{wrapped('k', size)} * {inner}u" if inner > 1 else wrapped("k", size)
    if inner > 1:
        place += f" + i % {inner}u"
    if axis > 0:
        place += f" + i / {index.size * inner}u * {size * inner}u"
    statements = f"let k = {index_at('index', index, which)};\nstore(i, x[{place}]);"
    n.emit_flat(n.title(x, index, note=f"axis {axis}"), [x.binding("x"), index.binding("index")], statements, out)


def _gather_in_parts(n: Lowering, parts: list[tuple[int, int]]) -> None:
    """Rows of a table that is too large to be bound: one kernel for each part of it."""
    type_ = n.step.inputs[0]
    assert type_ is not None
    assert type_.dtype is not None
    size, row_shape = parts[-1][1], type_.dims[1:]
    index, out = indices(n, 1, size), n.output(0)
    inner = prod(row_shape)
    for start, stop in parts:

        def rows(table: np.ndarray, start: int = start, stop: int = stop) -> np.ndarray:
            return table[start:stop]

        x = Tensor(n.derive((0,), f"rows {start}:{stop}", rows), (stop - start, *row_shape), type_.dtype)
        statements = (
            f"let k = {index_at('index', index, f'i / {inner}u')};\n"
            f"let row = {wrapped('k', size)};\n"
            f"if (row >= {start}u && row < {stop}u) {{ store(i, x[(row - {start}u) * {inner}u + i % {inner}u]); }}"
        )
        reads = [x.binding("x"), index.binding("index")]
        n.emit_flat(n.title(x, index, note=f"rows from {start}"), reads, statements, out)
        n.kernels[-1].fusable = False


@lowering("GatherElements")
def gather_elements(n: Lowering) -> None:
    x, out = n.input(0, *MOVED), n.output(0)
    axis = n.attribute("axis", 0) % len(x.shape)
    index = indices(n, 1, x.shape[axis])
    strides = contiguous_strides(x.shape)
    others = [0 if d == axis else s for d, s in enumerate(strides)]
    place = f"{index_expression(out.shape, others)} + {wrapped('k', x.shape[axis])} * {strides[axis]}u"
    statements = f"let k = {index_at('index', index, 'i')};\nstore(i, x[{place}]);"
    n.emit_flat(n.title(x, index, note=f"axis {axis}"), [x.binding("x"), index.binding("index")], statements, out)


@lowering("DepthToSpace", "SpaceToDepth")
def depth_space(n: Lowering) -> None:
    """A reshape to six dimensions and a transpose, in one read."""
    x, out = n.input(0, *MOVED), n.output(0)
    b = n.attribute("blocksize")
    batch, channels, height, width = x.shape
    depth_first = n.attribute("mode", "DCR") == "DCR"
    if n.step.node.op_type == "SpaceToDepth":
        split_shape = [batch, channels, height // b, b, width // b, b]
        order = [0, 3, 5, 1, 2, 4] if depth_first else [0, 1, 3, 5, 2, 4]
    elif depth_first:
        split_shape, order = [batch, b, b, channels // (b * b), height, width], [0, 3, 4, 1, 5, 2]
    else:
        split_shape, order = [batch, channels // (b * b), b, b, height, width], [0, 1, 4, 2, 5, 3]
    strides = contiguous_strides(split_shape)
    emit_strided(n, x, out, [split_shape[d] for d in order], [strides[d] for d in order])


@lowering("Pad")
def pad(n: Lowering) -> None:
    x, out = n.input(0, *MOVED), n.output(0)
    rank = len(x.shape)
    mode = n.attribute("mode", "constant")
    value: object = n.attribute("value", 0.0)
    axes = list(range(rank))
    if n.version < 11:
        given = list(n.attribute("pads"))
    else:
        given = n.known(1, "the padding").reshape(-1).tolist()
        if n.has_input(2):
            known = n.constant(2)
            value = "fill[0]" if known is None else widened(known).reshape(-1)[0]
        if n.has_input(3):
            axes = [a % rank for a in n.known(3, "the axes to pad").reshape(-1).tolist()]
    begins = [0] * rank
    for position, axis in enumerate(axes):
        begins[axis] = given[position]
    lines, place, inside = [], [], []
    inner, strides = prod(out.shape), contiguous_strides(x.shape)
    for d, size in enumerate(x.shape):
        inner //= out.shape[d]
        if out.shape[d] == 1 and size == 1:
            continue
        at = (
            f"i32(i / {inner}u % {out.shape[d]}u) - {begins[d]}"
            if inner > 1
            else f"i32(i % {out.shape[d]}u) - {begins[d]}"
        )
        lines.append(f"let at{d} = {at};".replace("- -", "+ "))
        if mode == "constant":
            inside.append(f"at{d} >= 0 && at{d} < {signed(size)}")
            place.append(f"at{d} * {signed(strides[d])}")
        else:
            place.append(f"{_folded(mode, f'at{d}', size)} * {signed(strides[d])}")
    index = " + ".join(place) or "0"
    reads = [x.binding("x")]
    if mode == "constant":
        if isinstance(value, str):
            reads.append(n.input(2, *MOVED).binding("fill"))
            fill = value
        elif x.dtype == np.float64:
            n.refuse("padding with a known float64 has no GPU kernel")
        else:
            fill = literal(int(bool(value)) if x.dtype == np.bool_ else value, x.element)
        lines.append(f"var value = {fill};")
        lines.append(f"if ({' && '.join(inside) or 'true'}) {{ value = x[{index}]; }}")
        lines.append("store(i, value);")
    else:
        lines.append(f"store(i, x[{index}]);")
    title = n.title(x, out, note=f"{mode} before {begins}")
    n.emit_flat(title, reads, "\n".join(lines), out)


def _folded(mode: str, at: str, size: int) -> str:
    """Text of the input coordinate that an output coordinate outside of the input stands for."""
    if mode == "edge":
        return f"clamp({at}, 0, {size - 1})"
    if mode == "wrap":
        return f"(({at} % {size} + {size}) % {size})"
    if size == 1:
        return "0"
    period = 2 * (size - 1)  # reflect, over and over where the padding is longer than the input
    return f"({size - 1} - abs({size - 1} - ({at} % {period} + {period}) % {period}))"


@lowering("Trilu")
def trilu(n: Lowering) -> None:
    x, out = n.input(0, *MOVED), n.output(0)
    k = int(n.known(1, "the diagonal").reshape(-1)[0]) if n.has_input(1) else 0
    rows, columns = x.shape[-2:]
    k = max(-(rows + columns), min(k, rows + columns))
    test = ">=" if n.attribute("upper", 1) else "<="
    column, row = f"i32(i % {columns}u)", f"i32(i / {columns}u % {rows}u)"
    zero = literal(0, x.element)
    statements = f"store(i, select({zero}, x[i], {column} {test} {row} + {k}));".replace("+ -", "- ")
    n.emit_flat(n.title(x, note=f"k {k} {test}"), [x.binding("x")], statements, out)


@lowering("CenterCropPad")
def center_crop_pad(n: Lowering) -> None:
    x, out = n.input(0, *MOVED), n.output(0)
    n.known(1, "the target")
    strides = contiguous_strides(x.shape)
    inside, place = [], ["0"]
    for d, (have, want) in enumerate(zip(x.shape, out.shape, strict=True)):
        shift = abs(have - want) // 2 * (1 if have > want else -1)
        c = f"(i32({at(out.shape, d)}) + {shift})".replace("+ -", "- ")
        inside.append(f"{c} >= 0 && {c} < {have}")
        place.append(f"{c} * {strides[d]}")
    statements = f"""
var value = {literal(0, x.element)};
if ({" && ".join(inside)}) {{ value = x[{" + ".join(place)}]; }}
store(i, value);
"""
    n.emit_flat(n.title(x, out), [x.binding("x")], statements, out)
