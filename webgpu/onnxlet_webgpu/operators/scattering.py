"""Operators that pick by tuples of indices, and that write elements to places that indices give."""

from __future__ import annotations

from math import prod

from ..kernel import Kernel, flat_body, flat_groups
from ..lowering import Lowering, Tensor, lowering
from ..storage import MOVED
from ..wgsl import contiguous_strides, index_expression
from .arithmetic import NUMBERS, at, combined, line, whole
from .movement import emit_strided, index_at, wrapped


def tuples(n: Lowering, index: int, sizes: tuple[int, ...]) -> Tensor:
    """Input `index`, whose last dimension holds positions along axes of these sizes; checked when it is uploaded."""
    t = n.input(index, "int64", "int32")
    n.index_limits.append((t.value, sizes))
    return t


def _place(name: str, t: Tensor, row: str, sizes: tuple[int, ...], strides: list[int]) -> list[str]:
    """Statements that define `place`: where the slice starts that tuple number `row` names."""
    lines, terms = [], []
    for d, size in enumerate(sizes):
        lines.append(f"let k{d} = {index_at(name, t, f'({row}) * {len(sizes)}u + {d}u')};")
        terms.append(f"{wrapped(f'k{d}', size)} * {strides[d]}u")
    return [*lines, f"let place = {' + '.join(terms)};"]


@lowering("GatherND")
def gather_nd(n: Lowering) -> None:
    x, out = n.input(0, *MOVED), n.output(0)
    batch_dims = n.attribute("batch_dims", 0)
    index_shape = n.input(1, "int64", "int32").shape
    width = index_shape[-1]
    sizes = x.shape[batch_dims : batch_dims + width]
    index = tuples(n, 1, sizes)
    strides = contiguous_strides(x.shape)
    inner = prod(x.shape[batch_dims + width :])
    tuples_of_batch = prod(index_shape[batch_dims:-1])
    image = prod(x.shape[batch_dims:])
    row = f"i / {inner}u"
    lines = _place("index", index, row, sizes, strides[batch_dims : batch_dims + width])
    batch = f" + i / {inner * tuples_of_batch}u * {image}u" if batch_dims else ""
    lines.append(f"store(i, x[place + i % {inner}u{batch}]);")
    reads = [x.binding("x"), index.binding("index")]
    n.emit_flat(n.title(x, index, note=f"batch dimensions {batch_dims}"), reads, "\n".join(lines), out)


def _copied(n: Lowering, x: Tensor, out: Tensor, reduction: str) -> Tensor:
    """A copy of the data, to be written to: the output, or, where sums must not be rounded in between, a value that
    is copied to the output at the end."""
    work = out
    if reduction != "none" and out.dtype.itemsize < 4:
        work = Tensor(f"{out.value}\0sums", out.shape, out.dtype)
    size = [x.size]
    emit_strided(n, x, work, size, [1])
    return work


def _finish(n: Lowering, work: Tensor, out: Tensor) -> None:
    if work is not out:
        emit_strided(n, work, out, [out.size], [1])


def _write(
    n: Lowering, title: str, reads: list, work: Tensor, count: int, statements: str, atomic: bool = False
) -> None:
    body = flat_body(statements, f"{count}u")
    groups = flat_groups(count, n.target.flat_groups)
    n.emit(Kernel(title, reads, work.value, work.shape, work.element, body, groups, fusable=False, atomic=atomic))


def _by_output(n: Lowering, x: Tensor, updates: int) -> bool:
    """Whether each element of the output looks for its own updates, in order: so for few of both, and on real GPUs
    for more, as reading side by side is cheaper there than one invocation's writing."""
    return x.size * updates < (1 << 16 if n.target.software else 1 << 28)


def _any_order(x: Tensor, reduction: str) -> bool:
    """Whether updates may come in any order, and there are atomic operations for it."""
    return x.element in ("i32", "u32") or (x.element == "f32" and reduction in ("max", "min"))


def _atomic(x: Tensor, reduction: str, update: str) -> str:
    """Statements that combine the element at `place` with `update`."""
    if x.element != "f32" and reduction != "mul":
        return f"atomic{reduction.title()}(&y[place], {update});"
    value, bits = ("bitcast<f32>(old)", "bitcast<u32>") if x.element == "f32" else ("old", "")
    return f"""let update = {update};
var old = atomicLoad(&y[place]);
loop {{
    let made = atomicCompareExchangeWeak(&y[place], old, {bits}({combined(reduction, x.kind, value, "update")}));
    if (made.exchanged) {{ break; }}
    old = made.old_value;
}}"""


@lowering("ScatterElements", "Scatter")
def scatter_elements(n: Lowering) -> None:
    """Lines of updates are independent of each other; floats along one are added in order."""
    reduction = n.attribute("reduction", "none")
    kinds = MOVED if reduction == "none" else NUMBERS
    x, updates, out = n.input(0, *kinds), n.input(2, *kinds), n.output(0)
    axis = n.attribute("axis", 0) % len(x.shape)
    index = n.input(1, "int64", "int32")
    n.index_limits.append((index.value, x.shape[axis]))
    strides = contiguous_strides(x.shape)
    others = [0 if d == axis else s for d, s in enumerate(strides)]
    target = f"{index_expression(updates.shape, others, 0, 'at')} + {wrapped('k', x.shape[axis])} * {strides[axis]}u"
    reads = [index.binding("index"), updates.binding("updates")]
    title = n.title(x, index, note=f"axis {axis} {reduction}")
    body = f"let k = {index_at('index', index, 'at')};\nlet place = {target};\n"
    start, step, length, lines = line(updates.shape, axis)
    if reduction != "none" and _by_output(n, x, length):
        places = contiguous_strides(updates.shape)
        inside = [
            f"{at(x.shape, d)} < {size}u" for d, size in enumerate(updates.shape) if d != axis and size != x.shape[d]
        ]
        start = " + ".join(f"{at(x.shape, d)} * {places[d]}u" for d in range(len(places)) if d != axis) or "0u"
        statements = f"""
var value = x[i];
let start = {start};
let stop = select(0u, {length}u, {" && ".join(inside) or "true"});
for (var j = 0u; j < stop; j++) {{
    let at = start + j * {step}u;
    let k = {index_at("index", index, "at")};
    if ({wrapped("k", x.shape[axis])} == {at(x.shape, axis)}) {{
        value = {combined(reduction, x.kind, "value", "updates[at]")};
    }}
}}
store(i, value);
"""
        n.emit_flat(f"{title} of {list(updates.shape)} by output", [x.binding("x"), *reads], statements, out)
        return
    work = _copied(n, x, out, reduction)
    if reduction == "none":
        _write(n, title, reads, work, updates.size, f"let at = i;\n{body}store(place, updates[at]);")
    elif _any_order(x, reduction):
        statements = f"let at = i;\n{body}{_atomic(x, reduction, 'updates[at]')}"
        _write(n, title, reads, work, updates.size, statements, atomic=True)
    else:
        statements = f"""
let start = {start};
for (var j = 0u; j < {length}u; j++) {{
    let at = start + j * {step}u;
    {body}
    store(place, {combined(reduction, x.kind, "y[place]", "updates[at]")});
}}
"""
        _write(n, title, reads, work, lines, statements)
    _finish(n, work, out)


@lowering("ScatterND")
def scatter_nd(n: Lowering) -> None:
    """Without a reduction every element of every update is written by an invocation of its own."""
    reduction = n.attribute("reduction", "none")
    kinds = MOVED if reduction == "none" else NUMBERS
    x, updates, out = n.input(0, *kinds), n.input(2, *kinds), n.output(0)
    width = n.input(1, "int64", "int32").shape[-1]
    sizes = x.shape[:width]
    index = tuples(n, 1, sizes)
    inner, rows = prod(x.shape[width:]), index.size // width
    reads = [index.binding("index"), updates.binding("updates")]
    title = n.title(x, index, note=reduction)
    strides = contiguous_strides(x.shape)
    if reduction != "none" and _by_output(n, x, rows):
        update = f"updates[row * {inner}u + i % {inner}u]"
        statements = "\n".join(
            [
                "var value = x[i];",
                f"for (var row = 0u; row < {rows}u; row++) {{",
                *("    " + t for t in _place("index", index, "row", sizes, strides)),
                f"    if (place == i - i % {inner}u) {{ value = {combined(reduction, x.kind, 'value', update)}; }}",
                "}",
                "store(i, value);",
            ]
        )
        n.emit_flat(f"{title} by output", [x.binding("x"), *reads], statements, out)
        return
    work = _copied(n, x, out, reduction)
    each = _place("index", index, f"i / {inner}u", sizes, strides)
    if reduction == "none":
        _write(n, title, reads, work, updates.size, "\n".join([*each, f"store(place + i % {inner}u, updates[i]);"]))
    elif _any_order(x, reduction):
        each[-1] = f"{each[-1].removesuffix(';')} + i % {inner}u;"
        statements = "\n".join([*each, _atomic(x, reduction, "updates[i]")])
        _write(n, title, reads, work, updates.size, statements, atomic=True)
    else:
        lines = _place("index", index, "row", sizes, strides)
        lines.append("let at = place + i;")
        lines.append(f"store(at, {combined(reduction, x.kind, 'y[at]', f'updates[row * {inner}u + i]')});")
        statements = "\n".join([f"for (var row = 0u; row < {rows}u; row++) {{", *("    " + t for t in lines), "}"])
        _write(n, title, reads, work, inner, statements)
    _finish(n, work, out)


@lowering("TensorScatter")
def tensor_scatter(n: Lowering) -> None:
    """A cache with an update written from each sample's position on."""
    x, update, out = n.input(0, *MOVED), n.input(1, *MOVED), n.output(0)
    axis = n.attribute("axis", -2) % len(x.shape)
    space, length = x.shape[axis], update.shape[axis]
    circular = n.attribute("mode", "linear") == "circular"
    reads = [update.binding("updates")]
    first = "0"
    if n.has_input(2):
        t = n.input(2, "int64", "int32")
        if not circular:
            n.index_limits.append((t.value, (space - length + 1,)))
        reads.append(t.binding("first"))
        first = whole(n, "first", t, at(update.shape, 0))
    strides = contiguous_strides(x.shape)
    others = [0 if d == axis else s for d, s in enumerate(strides)]
    position = f"i32({at(update.shape, axis)}) + {first}"
    if circular:
        position = f"(({position}) % {space} + {space}) % {space}"
    emit_strided(n, x, out, [x.size], [1])
    statements = (
        f"let position = u32({position});\n"
        f"store({index_expression(update.shape, others)} + position * {strides[axis]}u, updates[i]);"
    )
    _write(n, n.title(x, update, note=f"axis {axis}"), reads, out, update.size, statements)


@lowering("MaxUnpool")
def max_unpool(n: Lowering) -> None:
    """Zeros, and each element where its index in the whole output says; without an output's shape, in the smallest
    output that has pooled to the input."""
    x, out = n.input(0), n.output(0, "float32")
    index = n.input(1, "int64", "int32")
    kernel, strides, pads = n.attribute("kernel_shape"), n.attribute("strides"), n.attribute("pads")
    rank = len(kernel)
    strides, pads = strides or [1] * rank, pads or [0] * (2 * rank)
    small = [
        (size - 1) * s - pads[d] - pads[d + rank] + k
        for d, (size, s, k) in enumerate(zip(x.shape[2:], strides, kernel, strict=True))
    ]
    inner_shape = (*x.shape[:2], *small)
    n.emit_flat(n.title(out, note="zeros"), [], "store(i, 0.0);", out)
    n.index_limits.append((index.value, prod(inner_shape)))
    place = index_expression(inner_shape, contiguous_strides(out.shape), 0, "k")
    statements = f"let k = u32({index_at('index', index, 'i')});\nstore({place}, x[i]);"
    _write(n, n.title(x, index), [x.binding("x"), index.binding("index")], out, x.size, statements)
