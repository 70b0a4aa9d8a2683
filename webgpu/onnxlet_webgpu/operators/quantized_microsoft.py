"""Operators of com.microsoft on quantised tensors: dequantised, computed with, and quantised again where it is stored.

Their twins are in `onnxlet.ops.microsoft.quantized`. One scale and one zero point hold for a whole tensor.
"""

from __future__ import annotations

from math import prod

import numpy as np

from ..kernel import Kernel, Operand, flat_body, flat_groups
from ..lowering import MICROSOFT, Lowering, Tensor, lowering
from ..wgsl import literal
from .arithmetic import line
from .pooling import emit_pool
from .quantization import emit_dynamic, emit_integer_product, optional, saturated
from .reduction import emit_reduction
from .selection import emit_lines

BYTES = ("int32", "uint32")


class Numbers:
    """Operands of a map, and texts that refer to them."""

    def __init__(self, n: Lowering):
        self.n = n
        self.operands: list[Operand] = []

    def add(self, operand: Operand) -> str:
        """The text of one more operand, as a float."""
        self.operands.append(operand)
        text = f"{{{len(self.operands) - 1}}}"
        return text if operand.element == "f32" else f"f32({text})"

    def scalar(self, index: int, default: str = "0.0") -> str:
        """Input `index`, a scale or zero point, as a float."""
        if not self.n.has_input(index):
            return default
        t = self.n.input(index, "float32", *BYTES)
        if t.size != 1:
            self.n.refuse("scales and zero points for each channel have no GPU kernel here")
        return self.add(Operand(t.value, (), t.element))

    def value(self, index: int, scale: int, zero: int) -> str:
        """The number that an element of input `index` stands for."""
        t = self.n.input(index, *BYTES)
        x = self.add(Operand(t.value, t.shape, t.element))
        return f"(({x} - {self.scalar(zero)}) * {self.scalar(scale)})"


def real(n: Lowering, index: int, scale: int, zero: int, tag: str) -> Tensor:
    """Input `index` as floats, in a value of its own."""
    numbers = Numbers(n)
    expression = numbers.value(index, scale, zero)
    made = n.temporary(tag, n.input(index, *BYTES).shape)
    n.emit_map(numbers.operands, expression, made)
    return made


def quantise(numbers: Numbers, expression: str, scale: int, zero: int) -> None:
    """Add the map that stores what `expression` gives, quantised with these inputs."""
    n = numbers.n
    out = n.output(0, *BYTES)
    ratio = f"({expression} / {numbers.scalar(scale)})"
    n.emit_map(numbers.operands, saturated(ratio, numbers.scalar(zero), out), out)


@lowering("QLinearAdd", domain=MICROSOFT)
def qlinear_add(n: Lowering) -> None:
    """Rounds once, after the zero point of the result is added."""
    numbers, out = Numbers(n), n.output(0, *BYTES)
    a, b = n.input(0, *BYTES), n.input(3, *BYTES)
    x, y = numbers.add(Operand(a.value, a.shape, a.element)), numbers.add(Operand(b.value, b.shape, b.element))
    scale = numbers.scalar(6)
    ratio_a, ratio_b = f"({numbers.scalar(1)} / {scale})", f"({numbers.scalar(4)} / {scale})"
    shift = f"({numbers.scalar(7)} - ({ratio_a} * {numbers.scalar(2)} + {ratio_b} * {numbers.scalar(5)}))"
    n.emit_map(numbers.operands, saturated(f"({shift} + ({x} * {ratio_a} + {y} * {ratio_b}))", "0.0", out), out)


@lowering("QLinearMul", domain=MICROSOFT)
def qlinear_mul(n: Lowering) -> None:
    numbers = Numbers(n)
    quantise(numbers, f"({numbers.value(0, 1, 2)} * {numbers.value(3, 4, 5)})", 6, 7)


@lowering("QLinearSigmoid", "QLinearLeakyRelu", domain=MICROSOFT)
def qlinear_activation(n: Lowering) -> None:
    numbers = Numbers(n)
    x = numbers.value(0, 1, 2)
    if n.step.node.op_type == "QLinearSigmoid":
        quantise(numbers, f"sigmoid({x})", 3, 4)
    else:
        alpha = literal(n.attribute("alpha", 0.01), "f32")
        quantise(numbers, f"select({x}, {alpha} * {x}, {x} < 0.0)", 3, 4)


@lowering("QLinearWhere", domain=MICROSOFT)
def qlinear_where(n: Lowering) -> None:
    numbers, flag = Numbers(n), n.input(0, "bool")
    x, y = numbers.value(1, 2, 3), numbers.value(4, 5, 6)
    chosen = numbers.add(Operand(flag.value, flag.shape, flag.element))
    quantise(numbers, f"select({y}, {x}, {chosen} != 0.0)", 7, 8)


@lowering("QLinearSoftmax", domain=MICROSOFT)
def qlinear_softmax(n: Lowering) -> None:
    x = real(n, 0, 1, 2, "real")
    axis = n.attribute("axis", -1) % len(x.shape)
    shape = x.shape
    if n.attribute("opset") < 13:  # the tensor is seen as a matrix, cut before the axis
        shape, axis = (prod(x.shape[:axis]), prod(x.shape[axis:])), 1
    weights = n.temporary("weights", x.shape)
    start, step, length, lines = line(shape, axis)
    statements = f"""
let start = {start};
var highest = -infinity();
for (var k = 0u; k < {length}u; k++) {{ highest = max_nan(highest, x[start + k * {step}u]); }}
var total = 0.0;
for (var k = 0u; k < {length}u; k++) {{ total += exponential(x[start + k * {step}u] - highest); }}
for (var k = 0u; k < {length}u; k++) {{
    let at = start + k * {step}u;
    store(at, exponential(x[at] - highest) / total);
}}
"""
    emit_lines(n, n.title(x, note=f"axis {axis}"), [x.binding("x")], weights, lines, statements)
    numbers = Numbers(n)
    quantise(numbers, numbers.add(Operand(weights.value, weights.shape, "f32")), 3, 4)


@lowering("QLinearGlobalAveragePool", domain=MICROSOFT)
def qlinear_global_average_pool(n: Lowering) -> None:
    """The sum of the integers, exact, and then the scales."""
    x, out = n.input(0, *BYTES), n.output(0, *BYTES)
    rank = len(x.shape)
    axes = list(range(1, rank - 1)) if n.attribute("channels_last", 0) else list(range(2, rank))
    count = prod(x.shape[d] for d in axes)
    wide = n.temporary("total", out.shape, np.int32 if x.element == "i32" else np.uint32)
    emit_reduction(n, "ReduceSum", x, wide, axes)
    numbers = Numbers(n)
    sum_text = numbers.add(Operand(wide.value, out.shape, wide.element))
    ratio = f"(({sum_text} - {literal(count, 'f32')} * {numbers.scalar(2)}) * ({numbers.scalar(1)} / "
    ratio += f"({numbers.scalar(3)} * {literal(count, 'f32')})))"
    n.emit_map(numbers.operands, saturated(ratio, numbers.scalar(4), out), out)


@lowering("QLinearAveragePool", domain=MICROSOFT)
def qlinear_average_pool(n: Lowering) -> None:
    """Rounds once, after the zero point of the result is added."""
    if n.attribute("channels_last", 0):
        n.refuse("a quantised pool with its channels last has no GPU kernel")
    out = n.output(0, *BYTES)
    pooled = n.temporary("pooled", out.shape)
    emit_pool(n, "AveragePool", real(n, 0, 1, 2, "real"), pooled)
    numbers = Numbers(n)
    ratio = f"({numbers.add(Operand(pooled.value, out.shape, 'f32'))} / {numbers.scalar(3)} + {numbers.scalar(4)})"
    n.emit_map(numbers.operands, saturated(ratio, "0.0", out), out)


@lowering("QLinearReduceMean", domain=MICROSOFT)
def qlinear_reduce_mean(n: Lowering) -> None:
    x, out = real(n, 0, 1, 2, "real"), n.output(0, *BYTES)
    mean = n.temporary("mean", out.shape)
    n.ignore("keepdims")
    emit_reduction(n, "ReduceMean", x, mean, sorted(a % len(x.shape) for a in n.attribute("axes")))
    numbers = Numbers(n)
    quantise(numbers, numbers.add(Operand(mean.value, out.shape, "f32")), 3, 4)


@lowering("QLinearConcat", domain=MICROSOFT)
def qlinear_concat(n: Lowering) -> None:
    """Each part is quantised anew where its scale or zero point differs from the result's, as known ones tell."""
    out = n.output(0, *BYTES)
    axis = n.attribute("axis") % len(out.shape)
    inner = prod(out.shape[axis + 1 :])
    whole, start = out.shape[axis] * inner, 0
    known = [n.known(i, "a scale or zero point") for i in range(2)]
    for index in range(2, len(n.step.node.inputs), 3):
        x = n.input(index, *BYTES)
        own = [n.known(index + k, "a scale or zero point") for k in (1, 2)]
        value = "x[i]"
        if not all((a == b).all() for a, b in zip(own, known, strict=True)):
            scale, zero, y_scale, y_zero = (literal(float(v.reshape(())), "f32") for v in (*own, *known))
            value = saturated(f"((f32(x[i]) - {zero}) * {scale} / {y_scale})", y_zero, out)
        part = x.shape[axis] * inner
        body = flat_body(f"store(i / {part}u * {whole}u + i % {part}u + {start}u, {value});", "arrayLength(&x)")
        title = n.title(x, out, note=f"to {start}")
        n.emit(
            Kernel(title, [x.binding("x")], out.value, out.shape, out.element, body,
                   flat_groups(x.size, n.target.flat_groups), fusable=False)
        )  # fmt: skip
        start += part


@lowering("QGemm", domain=MICROSOFT)
def q_gemm(n: Lowering) -> None:
    a, b = n.input(0, *BYTES), n.input(3, *BYTES)
    transposed = bool(n.attribute("transA", 0)), bool(n.attribute("transB", 0))
    out = n.output(0)
    total = n.temporary("total", out.shape, np.int32)
    emit_integer_product(n, a, b, optional(n, 2), optional(n, 5), total, transposed)
    if n.has_input(6):
        c = n.input(6, "int32")
        n.extend([n.chain(), Operand(c.value, c.shape, "i32")], "{0} + {1}", "i32")
    numbers = Numbers(n)
    product = numbers.add(Operand(total.value, total.shape, "i32"))
    scale = n.input(4)
    columns = numbers.add(Operand(scale.value, scale.shape if scale.size > 1 else (), "f32"))
    factor = f"({literal(n.attribute('alpha', 1.0), 'f32')} * {numbers.scalar(1)} * {columns})"
    if n.has_input(7):
        ratio = f"({product} * ({factor} / {numbers.scalar(7)}))"
        n.emit_map(numbers.operands, saturated(ratio, numbers.scalar(8), out), out)
    else:
        n.emit_map(numbers.operands, f"{product} * {factor}", out)


@lowering("MatMulIntegerToFloat", domain=MICROSOFT)
def matmul_integer_to_float(n: Lowering) -> None:
    a, b, out = n.input(0, *BYTES), n.input(1, *BYTES), n.output(0, "float32")
    total = n.temporary("total", out.shape, np.int32)
    emit_integer_product(n, a, b, optional(n, 4), optional(n, 5), total)
    scales = [n.input(i) for i in (2, 3)]
    operands = [Operand(t.value, () if t.size == 1 else t.shape, "f32") for t in scales]
    _scaled(n, total, operands, 6, out)


@lowering("DynamicQuantizeMatMul", domain=MICROSOFT)
def dynamic_quantize_matmul(n: Lowering) -> None:
    """The first operand is quantised over its own range."""
    x, b, out = n.input(0), n.input(1, *BYTES), n.output(0, "float32")
    quantised, scale = n.temporary("quantized", x.shape, np.uint32), n.temporary("scale", ())
    zero = n.temporary("zero point", (), np.uint32)
    emit_dynamic(n, x, Tensor(quantised.value, x.shape, np.dtype(np.uint8)), scale, zero)
    total = n.temporary("total", out.shape, np.int32)
    emit_integer_product(n, quantised, b, zero, optional(n, 3), total)
    b_scale = n.input(2)
    operands = [
        Operand(scale.value, (), "f32"), Operand(b_scale.value, () if b_scale.size == 1 else b_scale.shape, "f32")
    ]  # fmt: skip
    _scaled(n, total, operands, 4, out)


def _scaled(n: Lowering, total: Tensor, scales: list[Operand], bias: int, out: Tensor) -> None:
    """Integers times two scales, plus a bias."""
    operands = [Operand(total.value, total.shape, "i32"), *scales]
    expression = "f32({0}) * ({1} * {2})"
    if n.has_input(bias):
        operands.append(n.operand(bias))
        expression += " + {3}"
    n.emit_map(operands, expression, out)
