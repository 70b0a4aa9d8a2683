"""Operators that look at a whole row before they write it: softmax and the normalisations.

A row is `length` elements, `stride` apart. Long rows get a workgroup each, which combines partial results in shared
memory; on software adapters, where barriers are slow, one invocation computes a row unless there are few long ones.
"""

from __future__ import annotations

from math import prod

import numpy as np

from ..combining import combining
from ..kernel import WORKGROUP, Binding, Kernel, Operand, grid, single_body, single_groups
from ..lowering import MICROSOFT, Lowering, Tensor, lowering
from ..storage import type_name
from ..wgsl import literal
from .reduction import emit_reduction

VERY_LONG = 1 << 14
"""Elements in rows from which on a workgroup takes each, however many there are."""


def row_functions(subgroups: bool) -> str:
    """WGSL functions that combine what the invocations of a workgroup have found."""
    return "\n".join(
        combining(name, "f32", combine, subgroups)
        for name, combine in (("row_sum", "{a} + {b}"), ("row_max", "max_nan({a}, {b})"))
    )


ALONE_FUNCTIONS = """fn row_sum(value: f32, lane: u32) -> f32 { return value; }
fn row_max(value: f32, lane: u32) -> f32 { return value; }"""


def emit_rows(
    n: Lowering, title: str, reads: list[Binding], out: Tensor, rows: int, length: int, base: str, stride: int,
    statements: str, load: str = "x[at]", alone: bool = False,
) -> None:  # fmt: skip
    """Add a kernel that computes row `row`, whose first element is at `base`.

    In `statements` a line ``each { ... }`` is run for every element ``at`` (its position in the row is ``j``, its
    value ``value``), and ``row_sum`` and ``row_max`` combine what the invocations of a row have found; `alone`, one
    invocation takes the row from its begin to its end.
    """
    few = 64 if length < VERY_LONG else rows + 1
    wide = not alone and (length >= 256 and rows < few if n.target.software else length >= 32)
    first, step = ("lane", WORKGROUP) if wide else ("0u", 1)
    at = "base + j" if stride == 1 else f"base + j * {stride}u"
    loop = f"for (var j = {first}; j < {length}u; j += {step}u) {{\n    let at = {at};\n    let value = {load};\n   "
    text = f"let base = {base};\n" + statements.strip("\n").replace("each {", loop)
    count = f"arrayLength(&y) / {length}u"
    if wide:
        body = f"let row = wid.x + wid.y * groups.x;\nif (row >= {count}) {{ return; }}\n{text}"
        groups = grid(rows, n.target.max_groups)
    else:
        body = single_body(f"let row = i;\n{text}", count)
        groups = single_groups(rows, n.target.max_groups)
    n.emit(
        Kernel(title, reads, out.value, out.shape, "f32", body, groups,
               declarations=row_functions(n.target.subgroups) if wide else ALONE_FUNCTIONS)
    )  # fmt: skip


@lowering("Softmax", "LogSoftmax")
def softmax(n: Lowering) -> None:
    x, out = n.input(0), n.output(0, "float32")
    rank = len(x.shape)
    if n.version < 13:  # the tensor is seen as a matrix, cut before the axis
        axis = n.attribute("axis", 1) % max(rank, 1)
        length, inner = prod(x.shape[axis:]), 1
    else:
        axis = n.attribute("axis", -1) % max(rank, 1)
        length, inner = (x.shape[axis] if rank else 1), prod(x.shape[axis + 1 :])
    rows = x.size // length
    base = f"row * {length}u" if inner == 1 else f"row / {inner}u * {length * inner}u + row % {inner}u"
    log = n.step.node.op_type == "LogSoftmax"
    title = n.title(x, note=f"axis {axis}")
    if not log and x.dtype != np.float32:
        emit_softmax_in_steps(n, title, x.binding("x"), out, rows, length, base, inner, type_name(x.dtype))
        return
    write = "value - highest - denominator" if log else "exponential(value - highest) / denominator"
    statements = f"""
var part = -infinity();
each {{ part = max_nan(part, value); }}
let highest = row_max(part, lane);
var sum = 0.0;
each {{ sum += exponential(value - highest); }}
let denominator = {"logarithm(row_sum(sum, lane))" if log else "row_sum(sum, lane)"};
each {{ store(at, {write}); }}
"""
    emit_rows(n, title, [x.binding("x")], out, rows, length, base, inner, statements)


def emit_softmax_in_steps(
    n: Lowering, title: str, x: Binding, out: Tensor, rows: int, length: int, base: str, stride: int, dtype: str,
    unseen: str = "",
) -> None:  # fmt: skip
    """Add a Softmax that is rounded to a 16-bit type after each step; see `onnxlet.ops.precision`. Where the highest of
    a row is -infinity the result is `unseen`, if that is given."""
    rounded = "rounded_to_half" if dtype == "float16" else "rounded_to_bfloat"
    weight = f"{rounded}(exponential({rounded}(value - highest)))"
    eights = dtype == "bfloat16"
    add = "sum += weight;"
    if eights:
        add = f"eight = {rounded}(eight + weight);\n    if (j % 8u == 7u) {{ sum += eight; eight = 0.0; }}"
    result = f"{rounded}({weight} / total)"
    statements = f"""
var part = -infinity();
each {{ part = max_nan(part, value); }}
let highest = row_max(part, lane);
var sum = 0.0;
var eight = 0.0;
each {{
    let weight = {weight};
    {add} }}
let total = {rounded}(row_sum(sum + eight, lane));
each {{ store(at, {f"select({result}, {unseen}, highest == -infinity())" if unseen else result}); }}
"""
    emit_rows(n, title + " in steps", [x], out, rows, length, base, stride, statements, alone=eights)


def _normalise(n: Lowering, centred: bool, epsilon: float, write: str) -> str:
    """Statements that normalise a row; `write` is the stored expression of ``normal`` at ``at`` and ``j``."""
    mean = "" if centred else "let mean = 0.0;"
    if centred:
        mean = "var sum = 0.0;\neach { sum += value; }\nlet mean = row_sum(sum, lane) / COUNT;"
    return f"""
{mean}
var squares = 0.0;
each {{ squares += (value - mean) * (value - mean); }}
let factor = 1.0 / sqrt(row_sum(squares, lane) / COUNT + {literal(epsilon, "f32")});
each {{
    let normal = (value - mean) * factor;
    store(at, {write}); }}
"""


def _over_last(n: Lowering, x: Tensor, axis: int) -> tuple[int, int]:
    length = prod(x.shape[axis:])
    return x.size // length, length


def _scaled(n: Lowering, length: int, scale: int, bias: int | None) -> tuple[list[Binding], str]:
    """Bindings of scale and bias over a row, and the text that applies them to ``normal``."""
    reads, text = [], "normal"
    for index, name, sign in ((scale, "scale", "*"), (bias, "bias", "+")):
        if index is None or not n.has_input(index):
            continue
        t = n.input(index)
        if t.size not in (1, length):
            n.refuse(f"{name} varies from row to row")
        reads.append(t.binding(name))
        text += f" {sign} {name}[{'j' if t.size == length else '0'}]"
    return reads, text


@lowering("LayerNormalization", "RMSNormalization")
@lowering("SimplifiedLayerNormalization", domain=MICROSOFT)
def layer_normalization(n: Lowering) -> None:
    x, out = n.input(0), n.output(0, "float32")
    axis = n.attribute("axis", -1) % len(x.shape)
    rows, length = _over_last(n, x, axis)
    centred = n.step.node.op_type == "LayerNormalization"
    reads, write = _scaled(n, length, 1, 2 if centred else None)
    statements = _normalise(n, centred, n.attribute("epsilon", 1e-5), write).replace("COUNT", f"f32({length}u)")
    title = n.title(x, note=f"axis {axis}")
    emit_rows(n, title, [x.binding("x"), *reads], out, rows, length, f"row * {length}u", 1, statements)
    _statistics(n, x, length, n.attribute("epsilon", 1e-5), centred)


def _statistics(n: Lowering, x: Tensor, length: int, epsilon: float, centred: bool) -> None:
    """The further outputs: the mean of every row, where it is subtracted, and the reciprocal of its deviation."""
    texts = ["mean", f"1.0 / sqrt(squares / {length}.0 + {literal(epsilon, 'f32')})"]
    for index, text in enumerate(texts if centred else texts[1:], 1):
        if not n.has_output(index):
            continue
        mean = f"""
var sum = 0.0;
for (var k = 0u; k < {length}u; k++) {{ sum += x[i * {length}u + k]; }}
let mean = sum / {length}.0;
"""
        statements = f"""{mean if centred else "let mean = 0.0;"}
var squares = 0.0;
for (var k = 0u; k < {length}u; k++) {{
    let centred = x[i * {length}u + k] - mean;
    squares += centred * centred;
}}
store(i, {text});
"""
        n.emit_flat(n.title(x, note=text.split(" ")[0]), [x.binding("x")], statements, n.output(index, "float32"))


# com.microsoft registers SimplifiedLayerNormalization in the default domain too.
lowering("SimplifiedLayerNormalization")(layer_normalization)


@lowering("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_layer_normalization(n: Lowering) -> None:
    """The sum of input, skip and bias, normalised over the last dimension. The sum itself may be an output too."""
    if n.has_output(1) or n.has_output(2):
        n.refuse("the mean and deviation as outputs have no GPU kernel")
    centred = n.step.node.op_type == "SkipLayerNormalization"
    x, skip, out = n.input(0), n.input(1), n.output(0, "float32")
    if skip.shape != x.shape:
        n.refuse("a skip that is broadcast has no GPU kernel")
    length = x.shape[-1]
    reads, write = _scaled(n, length, 2, 3 if centred else None)
    reads = [x.binding("x"), skip.binding("skip"), *reads]
    load = "x[at] + skip[at]"
    bias_index = 4 if centred else 3
    if n.has_input(bias_index):
        reads.append(n.input(bias_index).binding("added"))
        load += " + added[j]"
    statements = _normalise(n, centred, n.attribute("epsilon", 1e-5), write).replace("COUNT", f"f32({length}u)")
    emit_rows(n, n.title(x), reads, out, x.size // length, length, f"row * {length}u", 1, statements, load)
    if n.has_output(3):
        used = [b for b in reads if b.name in ("x", "skip", "added")]
        total = load.replace("at]", "i]").replace("added[j]", f"added[i % {length}u]")
        n.emit_flat(n.title(x, note="sum"), used, f"store(i, {total});", n.output(3, "float32"))


@lowering("InstanceNormalization", "GroupNormalization")
def group_normalization(n: Lowering) -> None:
    x, out = n.input(0), n.output(0, "float32")
    channels, inner = x.shape[1], prod(x.shape[2:])
    groups = channels if n.step.node.op_type == "InstanceNormalization" else n.attribute("num_groups")
    length = channels // groups * inner
    rows = x.shape[0] * groups
    scale, bias = n.input(1), n.input(2)
    if scale.size == channels:
        which = f"row % {groups}u * {channels // groups}u + j / {inner}u"
    elif scale.size == groups:
        which = f"row % {groups}u"
    else:
        n.refuse("scale is neither per channel nor per group")
    write = f"normal * scale[{which}] + bias[{which}]"
    statements = _normalise(n, True, n.attribute("epsilon", 1e-5), write).replace("COUNT", f"f32({length}u)")
    reads = [x.binding("x"), scale.binding("scale"), bias.binding("bias")]
    title = n.title(x, note=f"groups {groups}")
    emit_rows(n, title, reads, out, rows, length, f"row * {length}u", 1, statements)


@lowering("LpNormalization")
def lp_normalization(n: Lowering) -> None:
    x, out = n.input(0), n.output(0, "float32")
    axis, p = n.attribute("axis", -1) % len(x.shape), n.attribute("p", 2)
    length, inner = x.shape[axis], prod(x.shape[axis + 1 :])
    base = f"row * {length}u" if inner == 1 else f"row / {inner}u * {length * inner}u + row % {inner}u"
    norm = "sqrt(total)" if p == 2 else "total"
    statements = f"""
var sum = 0.0;
each {{ sum += {"value * value" if p == 2 else "abs(value)"}; }}
let total = row_sum(sum, lane);
let norm = {norm};
each {{ store(at, select(value / norm, 0.0, norm == 0.0)); }}
"""
    title = n.title(x, note=f"axis {axis} p {p}")
    emit_rows(n, title, [x.binding("x")], out, x.size // length, length, base, inner, statements)


@lowering("MeanVarianceNormalization")
def mean_variance_normalization(n: Lowering) -> None:
    x, out = n.input(0), n.output(0, "float32")
    rank = len(x.shape)
    axes = sorted({a % rank for a in n.attribute("axes", [0, 2, 3])})
    kept = tuple(1 if d in axes else size for d, size in enumerate(x.shape))
    mean = n.temporary("mean", kept)
    emit_reduction(n, "ReduceMean", x, mean, axes)
    centred = n.temporary("centred", x.shape)
    operands = [Operand(x.value, x.shape, "f32"), Operand(mean.value, kept, "f32")]
    n.emit_map(operands, "{0} - {1}", centred)
    deviation = n.temporary("deviation", kept)
    emit_reduction(n, "ReduceSumSquare", centred, deviation, axes)
    count = prod(x.shape[d] for d in axes)
    operands = [Operand(centred.value, x.shape, "f32"), Operand(deviation.value, kept, "f32")]
    n.emit_map(operands, f"{{0}} / (sqrt({{1}} / {count}.0) + 1e-9)", out)


@lowering("LRN")
def lrn(n: Lowering) -> None:
    x, out = n.input(0), n.output(0, "float32")
    size = n.attribute("size")
    alpha, beta = literal(n.attribute("alpha", 1e-4) / size, "f32"), literal(n.attribute("beta", 0.75), "f32")
    channels, inner = x.shape[1], prod(x.shape[2:])
    before, after = (size - 1) // 2, size - 1 - (size - 1) // 2
    statements = f"""
let channel = i32(i / {inner}u % {channels}u);
let image = i / {channels * inner}u * {channels * inner}u + i % {inner}u;
var total = 0.0;
for (var c = max(channel - {before}, 0); c <= min(channel + {after}, {channels - 1}); c++) {{
    let value = x[image + u32(c) * {inner}u];
    total += value * value;
}}
store(i, x[i] / power({literal(n.attribute("bias", 1.0), "f32")} + {alpha} * total, {beta}));
"""
    n.emit_flat(n.title(x, note=f"size {size}"), [x.binding("x")], statements, out)


@lowering("BatchNormalization")
def batch_normalization(n: Lowering) -> None:
    """With constant statistics one factor and one shift per channel; in training with those of the batch itself."""
    x, out = n.input(0), n.output(0, "float32")
    spatial = n.version >= 9 or bool(n.attribute("spatial", 1))
    epsilon, momentum = n.attribute("epsilon", 1e-5), n.attribute("momentum", 0.9)
    if n.version >= 14:
        training = bool(n.attribute("training_mode", 0))
    else:
        training = len([name for name in n.step.node.outputs if name]) > 1 and not n.attribute("is_test", 0)
    if not spatial and training:
        n.refuse("BatchNormalization per element (spatial=0) has no GPU kernel in training")
    shape = (x.shape[1],) + (1,) * (len(x.shape) - 2) if spatial and len(x.shape) > 1 else x.shape[1:]
    operand = Operand(x.value, x.shape, "f32")
    if not training and all(n.is_constant(i) for i in (1, 2, 3, 4)):
        factor, offset = _scale_and_shift(n, epsilon)
        n.emit_map([operand, Operand(factor, shape, "f32"), Operand(offset, shape, "f32")], "{0} * {1} + {2}", out)
        return
    scale, bias, mean, variance = (n.input(i) for i in (1, 2, 3, 4))
    if training:
        own_mean, own_variance = _batch_statistics(n, x)
        # Outputs: what the statistics become, and before opset 14 those of the batch.
        blend = f"{{0}} * {literal(momentum, 'f32')} + {{1}} * {literal(1 - momentum, 'f32')}"
        for index, old, new in ((1, mean, own_mean), (2, variance, own_variance)):
            if n.has_output(index):
                flat = [Operand(t.value, old.shape, "f32") for t in (old, new)]
                n.emit_map(flat, blend, n.output(index, "float32"))
            if n.has_output(index + 2):
                n.emit_map([Operand(new.value, old.shape, "f32")], "{0}", n.output(index + 2, "float32"))
        mean, variance = own_mean, own_variance
    operands = [operand, *(Operand(t.value, shape, "f32") for t in (scale, bias, mean, variance))]
    root = f"sqrt({{4}} + {literal(epsilon, 'f32')})"
    n.emit_map(operands, f"({{0}} - {{3}}) * ({{1}} / {root}) + {{2}}", out)


def _batch_statistics(n: Lowering, x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and population variance of each channel."""
    axes = [0, *range(2, len(x.shape))]
    channels = (x.shape[1],)
    mean, variance, centred = (
        n.temporary("mean", channels),
        n.temporary("variance", channels),
        n.temporary("c", x.shape),
    )
    emit_reduction(n, "ReduceMean", x, mean, axes)
    shape = (x.shape[1],) + (1,) * (len(x.shape) - 2)
    n.emit_map([Operand(x.value, x.shape, "f32"), Operand(mean.value, shape, "f32")], "{0} - {1}", centred)
    emit_reduction(n, "ReduceSumSquare", centred, variance, axes)
    n.extend([n.chain()], f"{{0}} / {x.size // x.shape[1]}.0")
    return mean, variance


def _scale_and_shift(n: Lowering, epsilon: float) -> tuple[str, str]:
    """The names of the constants by which every element is multiplied and which is added."""

    def scale(s: np.ndarray, variance: np.ndarray) -> np.ndarray:
        return (s.astype(np.float64) / np.sqrt(variance.astype(np.float64) + epsilon)).astype(np.float32)

    def shift(s: np.ndarray, b: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        s64 = s.astype(np.float64) / np.sqrt(variance.astype(np.float64) + epsilon)
        return (b - mean * s64).astype(np.float32)

    return n.derive((1, 4), f"scale {epsilon}", scale), n.derive((1, 2, 3, 4), f"shift {epsilon}", shift)
