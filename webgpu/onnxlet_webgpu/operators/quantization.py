"""Quantisation: to and from small integers and floats, integer products, and weights of a few bits.

The twins are in `onnxlet.ops.quantize` and `onnxlet.ops.microsoft`. Sums of products of integers are kept in i32.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from onnxlet.model.dtypes import dtype_of
from onnxlet.ops.quantize import integer_range

from ..kernel import Binding, Operand
from ..lowering import MICROSOFT, Lowering, Tensor, lowering
from ..storage import SMALL_FLOATS, SMALL_INTEGERS, type_name
from ..wgsl import broadcast_index, broadcast_strides, index_expression, literal
from .arithmetic import at
from .casts import small_float
from .matmul import Matrix, Product, emit_product, padded_columns
from .packed_product import emit_packed, packable
from .reduction import emit_reduction

QUANTIZED = ("int32", "uint32", *SMALL_INTEGERS, *SMALL_FLOATS)


def as_float(t: Tensor, text: str) -> str:
    return text if t.element == "f32" else f"f32({text})"


def granular_index(t: Tensor, shape: tuple[int, ...], axis: int, block_size: int) -> str:
    """Text of where the scale or zero point of element `i` of a tensor of `shape` lies: one for all, one for each
    element of an axis, or one for each block along it."""
    if t.size == 1:
        return "0u"
    axis = 0 if len(shape) == 1 else axis % len(shape)
    if len(t.shape) == 1 and not block_size:
        return at(shape, axis)
    block = block_size or -(-shape[axis] // t.shape[axis])
    strides = broadcast_strides(t.shape, t.shape)
    others = [0 if d == axis else s for d, s in enumerate(strides)]
    return f"{index_expression(shape, others)} + {at(shape, axis)} / {block}u * {strides[axis]}u"


def saturated(ratio: str, zero: str, out: Tensor, saturate: bool = True) -> str:
    """Text that rounds `ratio`, adds the zero point (a float) and clips to the range of the output's type."""
    limits = integer_range(out.dtype)
    if limits is None:
        return small_float(f"({ratio} + {zero})", type_name(out.dtype), saturate)
    low, high = (literal(v, "f32") for v in limits)
    value = f"clip(round(select({ratio}, 0.0, is_nan({ratio}))) + {zero}, {low}, {high})"
    return f"{'u32' if out.element == 'u32' else 'i32'}({value})"


def rounding(dtype: np.dtype) -> str:
    return {"float16": "rounded_to_half({0})", "bfloat16": "rounded_to_bfloat({0})"}.get(type_name(dtype), "{0}")


@lowering("QuantizeLinear")
@lowering("QuantizeLinear", domain=MICROSOFT)
def quantize_linear(n: Lowering) -> None:
    """The quotient is rounded to the type of the scale, or of `precision`, before it is rounded to an integer."""
    x, scale, out = n.input(0, "float32", "int32"), n.input(1), n.output(0, *QUANTIZED)
    n.attribute("output_dtype")
    axis, block = n.attribute("axis", 1), n.attribute("block_size", 0)
    precision = n.attribute("precision", 0)
    if type_name(out.dtype) == "float8_e8m0fnu" or integer_range(out.dtype) not in (None, *RANGES):
        n.refuse(f"QuantizeLinear to {type_name(out.dtype)} has no GPU kernel")
    narrow = rounding(dtype_of(precision) if precision else scale.dtype)
    reads = [x.binding("x"), scale.binding("scale")]
    zero = "0.0"
    if n.has_input(2):
        z = n.input(2, *QUANTIZED)
        reads.append(z.binding("zero_point"))
        zero = as_float(z, f"zero_point[{granular_index(z, x.shape, axis, block)}]")
    lines = [
        f"let divisor = {narrow.format(f'scale[{granular_index(scale, x.shape, axis, block)}]')};",
        f"let ratio = {narrow.format(narrow.format(as_float(x, 'x[i]')) + ' / divisor')};",
        f"let zero = {zero};",
        f"store(i, {saturated('ratio', 'zero', out, bool(n.attribute('saturate', 1)))});",
    ]
    n.emit_flat(n.title(x, scale, out, note=f"axis {axis} block {block}"), reads, "\n".join(lines), out)


RANGES = (
    *(integer_range(np.dtype(t)) for t in (np.int8, np.uint8, np.int16, np.uint16)),
    (0, 15), (-8, 7), (0, 3), (-2, 1),
)  # fmt: skip
"""Integers that f32 holds exactly together with what is rounded to them."""


@lowering("DequantizeLinear")
@lowering("DequantizeLinear", domain=MICROSOFT)
def dequantize_linear(n: Lowering) -> None:
    x, scale, out = n.input(0, *QUANTIZED), n.input(1), n.output(0, "float32")
    n.attribute("output_dtype")
    axis, block = n.attribute("axis", 1), n.attribute("block_size", 0)
    reads = [x.binding("x"), scale.binding("scale")]
    value = "x[i]"
    if n.has_input(2):
        z = n.input(2, *QUANTIZED)
        reads.append(z.binding("zero_point"))
        zero = f"zero_point[{granular_index(z, x.shape, axis, block)}]"
        if x.element == "u32":
            value, zero = f"i32({value})", f"i32({zero})"
        value = f"({value} - {zero})"
    value = value if x.element == "f32" else f"f32({value})"
    statements = f"store(i, {value} * scale[{granular_index(scale, x.shape, axis, block)}]);"
    n.emit_flat(n.title(x, scale, note=f"axis {axis} block {block}"), reads, statements, out)


@lowering("DynamicQuantizeLinear")
def dynamic_quantize_linear(n: Lowering) -> None:
    emit_dynamic(n, n.input(0), n.output(0), n.output(1), n.output(2))


def emit_dynamic(n: Lowering, x: Tensor, y: Tensor, scale: Tensor, zero: Tensor) -> None:
    """Add the quantisation of `x` to uint8 over its own range, made to include 0."""
    low, high = n.temporary("low", ()), n.temporary("high", ())
    axes = list(range(len(x.shape)))
    emit_reduction(n, "ReduceMin", x, low, axes)
    emit_reduction(n, "ReduceMax", x, high, axes)
    reads = [low.binding("low"), high.binding("high")]
    statements = """
let range = max(high[0], 0.0) - min(low[0], 0.0);
store(i, select(1.0, range / 255.0, range > 0.0));
"""
    n.emit_flat(n.title(x, note="scale"), reads, statements, scale)
    reads = [low.binding("low"), scale.binding("scale")]
    statements = "store(i, u32(round(clip(-min(low[0], 0.0) / scale[0], 0.0, 255.0))));"
    n.emit_flat(n.title(x, note="zero point"), reads, statements, zero)
    reads = [x.binding("x"), scale.binding("scale"), zero.binding("zero_point")]
    statements = (
        f"let ratio = x[i] / scale[0];\nlet zero = f32(zero_point[0]);\nstore(i, {saturated('ratio', 'zero', y)});"
    )
    n.emit_flat(n.title(x, note="quantized"), reads, statements, y)


def _integer(t: Tensor, text: str) -> str:
    return text if t.element == "i32" else f"i32({text})"


def _zero_shape(t: Tensor, rank: int, rows: bool) -> tuple[int, ...]:
    """The shape in which a zero point or scale is broadcast over a matrix: one, or a vector, of a row each."""
    if rows and len(t.shape) == 1 and t.size > 1 and rank > 1:
        return (t.size, 1)
    return () if t.size == 1 else t.shape


def optional(n: Lowering, index: int, *kinds: str) -> Tensor | None:
    return n.input(index, *(kinds or ("int32", "uint32"))) if n.has_input(index) else None


def emit_integer_product(
    n: Lowering, a: Tensor, b: Tensor, a_zero: Tensor | None, b_zero: Tensor | None, out: Tensor,
    transposed: tuple[bool, bool] = (False, False),
) -> None:  # fmt: skip
    """Add the product of two integer tensors less their zero points as i32: by the kernels for floats where the second
    is known and no sum can be beyond what floats hold exactly."""
    if not transposed[0]:
        small = all(t.dtype.itemsize == 1 or t.value.endswith(QUANTISED) for t in (a, b))
        packed = small and packable(n, a, b)
        if not (packed and not n.target.software) and _emit_in_floats(n, a, b, a_zero, b_zero, out, transposed[1]):
            return
        if packed:
            zeros = [zero and (zero, _zero_shape(zero, len(t.shape), t is a)) for t, zero in ((a, a_zero), (b, b_zero))]
            emit_packed(n, a, b, zeros, out, transposed[1])
            return
    left, right = a.shape if len(a.shape) > 1 else (1, *a.shape), b.shape if len(b.shape) > 1 else (*b.shape, 1)
    (m, k), (k2, columns) = left[-2:], right[-2:]
    a_row, a_step, b_step, b_column = k, 1, columns, 1
    if transposed[0]:
        m, k, a_row, a_step = k, m, a_step, a_row
    if transposed[1]:
        k2, columns, b_step, b_column = columns, k2, b_column, b_step
    if k != k2:
        n.refuse("its inner dimensions differ")
    batch = np.broadcast_shapes(left[:-2], right[:-2])
    shape = (*batch, m, columns)
    a_start = index_expression(shape, [*_batched(left, batch), a_row, 0])
    b_start = index_expression(shape, [*_batched(right, batch), 0, b_column])
    reads = [a.binding("a"), b.binding("b")]
    lines = [f"let row = {a_start};", f"let column = {b_start};"]
    values = []
    places = (("a", a, f"row + k * {a_step}u", a_zero), ("b", b, f"column + k * {b_step}u", b_zero))
    for name, t, place, zero in places:
        value = _integer(t, f"{name}[{place}]")
        if zero is not None:
            reads.append(zero.binding(f"{name}_zero"))
            own = _zero_shape(zero, len(t.shape), name == "a")
            lines.append(f"let {name}0 = {_integer(zero, f'{name}_zero[{broadcast_index(own, shape)}]')};")
            value = f"({value} - {name}0)"
        values.append(value)
    lines += ["var total = 0;", f"for (var k = 0u; k < {k}u; k++) {{ total += {values[0]} * {values[1]}; }}"]
    lines.append("store(i, total);")
    n.emit_flat(n.title(a, b, note="of integers"), reads, "\n".join(lines), out)


def _emit_in_floats(
    n: Lowering, a: Tensor, b: Tensor, a_zero: Tensor | None, b_zero: Tensor | None, out: Tensor, transposed: bool
) -> bool:
    """The same as a product of floats, if that is exact. Says whether it is."""
    sources = tuple(_constant_index(n, t) for t in (b, b_zero) if t is not None)
    if len(b.shape) != 2 or (a.dtype.itemsize > 1 and not a.value.endswith(QUANTISED)) or None in sources:
        return False

    def floats(w: np.ndarray, zero: np.ndarray | None = None) -> np.ndarray:
        values = (w.T if transposed else w).astype(np.float32)
        return values if zero is None else values - zero.astype(np.float32)

    indices = tuple(i for i in sources if i is not None)
    matrix = floats(*(n.known(i, "") for i in indices))
    depth, columns = matrix.shape
    if np.abs(matrix).sum(axis=0).max(initial=0) * 255 >= EXACT or a.shape[-1] != depth:
        return False
    numbers = n.temporary("floats", a.shape)
    operands, expression = [Operand(a.value, a.shape, a.element)], "f32({0})"
    if a_zero is not None:
        operands.append(Operand(a_zero.value, _zero_shape(a_zero, len(a.shape), True), a_zero.element))
        expression += " - f32({1})"
    n.emit_map(operands, expression, numbers)
    width = columns + -columns % 4
    weights = n.derive(indices, f"real columns {transposed}", lambda *given: padded_columns(floats(*given)))
    rows = a.size // depth
    product = Product(
        Matrix(numbers.value, a.size, depth, 1), Matrix(weights, depth * width, width, 1), rows, columns, depth
    )
    emit_product(n, product, out, n.title(a, b, note="of integers"))
    n.extend([n.chain()], "i32({0})", "i32")
    return True


EXACT = 1 << 24
"""Whole numbers up to this one are exact as float32."""

QUANTISED = "\0quantized"
"""The tag of what a lowering has quantised to bytes itself."""


def _constant_index(n: Lowering, t: Tensor) -> int | None:
    """The number of the input that a tensor is, if its value is known."""
    inputs = n.step.node.inputs
    return inputs.index(t.value) if t.value in inputs and t.value in n.step.constants else None


def _batched(shape: tuple[int, ...], batch: tuple[int, ...]) -> list[int]:
    size = prod(shape[-2:])
    return [s * size for s in broadcast_strides(shape[:-2], batch)]


@lowering("MatMulInteger")
def matmul_integer(n: Lowering) -> None:
    a, b = n.input(0, "int32", "uint32"), n.input(1, "int32", "uint32")
    emit_integer_product(n, a, b, optional(n, 2), optional(n, 3), n.output(0))


@lowering("QLinearMatMul")
def qlinear_matmul(n: Lowering) -> None:
    a, b, out = n.input(0, "int32", "uint32"), n.input(3, "int32", "uint32"), n.output(0, "int32", "uint32")
    total = n.temporary("total", out.shape, np.int32)
    emit_integer_product(n, a, b, optional(n, 2), optional(n, 5), total)
    rows = (a.shape[-2], 1) if len(a.shape) > 1 else None
    emit_requantized(n, total, out, (1, 4, 6, 7), (rows, None, rows, rows))


def emit_requantized(
    n: Lowering,
    total: Tensor,
    out: Tensor,
    inputs: tuple[int, int, int, int],
    upright: Sequence[tuple[int, ...] | None],
) -> None:
    """Add the scaling of sums: by the scales of both operands, by that of the output, and its zero point. Those are
    the inputs with these numbers; a vector among them has the shape in `upright`, if there is one."""
    operands = [Operand(total.value, total.shape, "i32")]
    for index, shape in zip(inputs, upright, strict=True):
        t = n.input(index, "float32", "int32", "uint32")
        vector = len(t.shape) == 1 and t.size > 1
        operands.append(Operand(t.value, () if t.size == 1 else shape if vector and shape else t.shape, t.element))
    zero = "{4}" if operands[4].element == "f32" else "f32({4})"
    ratio = "(f32({0}) * ({1} * {2} / {3}))"
    n.emit_map(operands, saturated(ratio, zero, out), out)


@lowering("MatMulNBits", domain=MICROSOFT)
def matmul_nbits(n: Lowering) -> None:
    """A product with weights (columns, blocks, bytes) of 2, 4 or 8 bits, packed from the low bits on."""
    x, out = n.input(0), n.output(0, "float32")
    depth, columns = n.attribute("K"), n.attribute("N")
    bits, block = n.attribute("bits", 4), n.attribute("block_size")
    n.ignore("accuracy_level")
    if n.attribute("weight_prepacked", 0):
        n.refuse("weights packed for another runtime have no GPU kernel")
    if bits not in (2, 4, 8) or not n.is_constant(1):
        n.refuse("weights of other than 2, 4 or 8 bits, or fed ones, have no GPU kernel")
    if n.has_input(4):
        n.refuse("MatMulNBits with an index of groups has no GPU kernel")
    blocks = -(-depth // block)
    words = n.derive((1,), "words", as_words)
    reads = [x.binding("x"), Binding("w", words, "u32", -(-n.input(1, "uint32").size // 4))]
    scale = n.input(2)
    reads.append(scale.binding("scale"))
    per_byte = 8 // bits
    row_bytes = blocks * block // per_byte
    zero = literal(1 << (bits - 1), "f32")
    if n.has_input(3):
        z = n.input(3, "float32", "uint32")
        if z.element == "f32":
            reads.append(z.binding("zero_point"))
            zero = f"zero_point[column * {blocks}u + b]"
        else:
            if not n.is_constant(3):
                n.refuse("fed zero points have no GPU kernel")
            reads.append(Binding("zero_point", n.derive((3,), "words", as_words), "u32", -(-z.size // 4)))
            place = f"(column * {-(-blocks // per_byte)}u + b / {per_byte}u)"
            shift = f"({place} % 4u * 8u + b % {per_byte}u * {bits}u)"
            zero = f"f32(extractBits(zero_point[{place} / 4u], {shift}, {bits}u))"
    bias = ""
    if n.has_input(5):
        reads.append(n.input(5).binding("bias"))
        bias = " + bias[column]"
    statements = f"""
let column = i % {columns}u;
let row = i / {columns}u * {depth}u;
var total = 0.0;
for (var b = 0u; b < {blocks}u; b++) {{
    let zero = {zero};
    let start = b * {block}u;
    var part = 0.0;
    for (var k = start; k < min(start + {block}u, {depth}u); k++) {{
        let byte = column * {row_bytes}u + k / {per_byte}u;
        let q = extractBits(w[byte / 4u], byte % 4u * 8u + k % {per_byte}u * {bits}u, {bits}u);
        part += x[row + k] * (f32(q) - zero);
    }}
    total += part * scale[column * {blocks}u + b];
}}
store(i, total{bias});
"""
    n.emit_flat(n.title(x, out, note=f"{bits} bits in blocks of {block}"), reads, statements, out)


def as_words(packed: np.ndarray) -> np.ndarray:
    """Bytes as words of four, zero-filled."""
    raw = np.ascontiguousarray(packed).reshape(-1).view(np.uint8)
    return np.concatenate([raw, np.zeros(-raw.size % 4, np.uint8)]).view(np.uint32)


@lowering("GatherBlockQuantized", domain=MICROSOFT)
def gather_block_quantized(n: Lowering) -> None:
    """Rows gathered from weights of 4 or 8 bits and dequantized by blocks along one axis."""
    from .movement import index_at, indices, wrapped

    w, scale, out = n.input(0, "int32", "uint32", "int4", "uint4"), n.input(2), n.output(0, "float32")
    axis, block = n.attribute("gather_axis", 0) % len(w.shape), n.attribute("block_size", 128)
    quantized = n.attribute("quantize_axis", 1) % len(w.shape)
    bits = n.attribute("bits", 4)
    name = type_name(w.dtype)
    packed = name == "uint8" and bits == 4
    if name not in ("int4", "uint4", "uint8") or bits not in (4, 8):
        n.refuse(f"GatherBlockQuantized of {name} with {bits} bits has no GPU kernel")
    shape = (*w.shape[:-1], w.shape[-1] * 2) if packed else w.shape
    index = indices(n, 1, shape[axis])
    reads = [w.binding("w"), index.binding("index"), scale.binding("scale")]
    inner = prod(shape[axis + 1 :])
    lines = [
        f"let k = {index_at('index', index, f'i / {inner}u % {index.size}u')};",
        f"let at = i / {index.size * inner}u * {shape[axis] * inner}u + {wrapped('k', shape[axis])} * {inner}u + "
        f"i % {inner}u;",
        f"let place = {_granular_at(scale, shape, quantized, block)};",
        "let q = f32(extractBits(w[at / 2u], at % 2u * 4u, 4u));" if packed else "let q = f32(w[at]);",
    ]
    zero = literal(8 if packed else 128 if name == "uint8" else 0, "f32")
    if n.has_input(3):
        z = n.input(3, "int32", "uint32", "int4", "uint4")
        reads.append(z.binding("zero_point"))
        if packed:
            half = f"(place / {scale.shape[-1]}u * {-(-scale.shape[-1] // 2)}u + place % {scale.shape[-1]}u / 2u)"
            zero = f"f32(extractBits(zero_point[{half}], place % {scale.shape[-1]}u % 2u * 4u, 4u))"
        else:
            zero = "f32(zero_point[place])"
    lines.append(f"store(i, (q - {zero}) * scale[place]);")
    n.emit_flat(n.title(w, index, note=f"axis {axis} blocks of {block}"), reads, "\n".join(lines), out)


def _granular_at(t: Tensor, shape: tuple[int, ...], axis: int, block: int) -> str:
    strides = broadcast_strides(t.shape, t.shape)
    terms = [
        f"{at(shape, d, 'at')} / {block}u * {s}u" if d == axis else f"{at(shape, d, 'at')} * {s}u"
        for d, s in enumerate(strides)
    ]
    return " + ".join(terms)
