"""Small integers: quantising, and exact products of 8-bit matrices."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from onnxlet.providers.base import Step

from .. import pieces
from ..compiler import Compiler, Place
from ..layouts import PLAIN, axis_order, broadcast_strides, size_of, strides_of
from .common import (
    F32,
    I8,
    I32,
    MOVED,
    NO_ACTIVATION,
    TYPE_CODES,
    U8,
    Activation,
    dtype_of,
    grain,
    need_constant,
    need_float32,
    need_types,
    normal_axis,
    output_dtype,
    present,
    shape_of,
)
from .elementwise import GRAIN, kept_layout
from .gemm import activation_fields
from .registry import Emit, Refused, lower

SMALL = tuple(np.dtype(t) for t in (np.int8, np.uint8, np.int16, np.uint16))


@lower("QuantizeLinear", "DequantizeLinear")
@lower("QuantizeLinear", "DequantizeLinear", domain="com.microsoft")
def quantize_linear(step: Step) -> Emit:
    """One scale for all, or one per element of an axis."""
    quantizes = step.node.op_type == "QuantizeLinear"
    source, target = dtype_of(step, 0), output_dtype(step)
    small = target if quantizes else source
    if (target if not quantizes else source) != F32 or dtype_of(step, 1) != F32:
        raise Refused(f"{step.node.op_type} from {source} to {target} has no kernel")
    if small not in SMALL and (quantizes or small != I32):
        raise Refused(f"{small} has no kernel here")
    if present(step, 2):
        need_types(step, (small,), 2)
    if step.attribute("block_size", 0) or (quantizes and step.attribute("precision", 0) not in (0, 1)):
        raise Refused(f"{step.node.op_type} by blocks or with a precision has no kernel")
    shape, scales = shape_of(step, 0), shape_of(step, 1)
    if len(scales) > 1:
        raise Refused("scales of more than one dimension have no kernel")
    one = prod(scales) == 1
    axis = 0 if one or len(shape) < 2 else normal_axis(step.attribute("axis", 1), len(shape))
    if not one and prod(scales) != shape[axis]:
        raise Refused("scales that do not fit the axis have no kernel")

    def emit(c: Compiler) -> None:
        layout = kept_layout(c, 0)
        order = axis_order(len(shape), layout)
        inner = size_of(shape) if one else prod(shape[a] for a in order[order.index(axis) + 1 :])
        x, y = c.input(0, layout), c.output(0, layout)
        c.emit(
            "quantize" if quantizes else "dequantize", units=size_of(shape), grain=GRAIN, type=TYPE_CODES[small], x=x,
            scale=c.input(1), zero=c.input(2), y=y, axis=1 if one else shape[axis], inner=inner,
        )  # fmt: skip

    return emit


def quantize_call(c: Compiler, x: Place, count: int, y: Place, scale: Place, zero: Place) -> None:
    """y = x as uint8 over its own range, with that range's scale and zero point."""
    c.emit("quantize_range", units=1, x=x, count=count, scale=scale, zero=zero)
    c.emit("quantize", units=count, grain=GRAIN, type=TYPE_CODES[U8], x=x, scale=scale, zero=zero, y=y, axis=1,
           inner=count)  # fmt: skip


@lower("DynamicQuantizeLinear")
def dynamic_quantize_linear(step: Step) -> Emit:
    need_float32(step)
    count = size_of(shape_of(step, 0))

    def emit(c: Compiler) -> None:
        layout = kept_layout(c, 0)
        x, y = c.input(0, layout), c.output(0, layout)
        scale, zero = (c.output(i) if c.wanted(i) else c.temporary(4) for i in (1, 2))
        quantize_call(c, x, count, y, scale, zero)

    return emit


@dataclass(frozen=True, slots=True)
class Product:
    """A stack of matrices times one, or a stack of matrices; `b` and `b_zero` are indices of inputs.

    `stack` holds, for each product, where its A, B and C begin, in elements.
    """

    m: int
    n: int
    k: int
    b: int
    b_zero: int
    transposed: bool
    stack: list[tuple[int, int, int]]


LARGEST_STACK = 256
"""Products of two stacks are recorded one by one."""


def _product(step: Step, b: int, b_zero: int) -> Product:
    """The sizes of input 0 times input `b`."""
    need_types(step, (I8, U8), b)
    left, right = shape_of(step, 0), shape_of(step, b)
    if len(left) < 2 or len(right) < 2:
        raise Refused("integer products of vectors have no kernel")
    transposed = bool(step.attribute("transB", 0))
    n = right[-2 if transposed else -1]
    if present(step, b_zero):
        need_types(step, (dtype_of(step, b),), b_zero)
        if shape_of(step, b_zero) not in ((), (1,), (n,)):
            raise Refused("zero points that do not fit the columns have no kernel")
    k = left[-1]
    if prod(right[:-2]) == 1:
        return Product(prod(left[:-1]), n, k, b, b_zero, transposed, [(0, 0, 0)])
    m = left[-2]
    batch = np.broadcast_shapes(left[:-2], right[:-2])
    if prod(batch) > LARGEST_STACK:
        raise Refused(f"{prod(batch)} integer products in one have no kernel")
    steps = [
        broadcast_strides((*left[:-2], m * k), (*batch, 1))[:-1],
        broadcast_strides((*right[:-2], k * n), (*batch, 1))[:-1],
        strides_of((*batch, m * n))[:-1],
    ]
    stack = [tuple(sum(i * s for i, s in zip(at, t, strict=True)) for t in steps) for at in np.ndindex(*batch)]
    return Product(m, n, k, b, b_zero, transposed, stack)  # type: ignore[arg-type]


COLUMNS = 128
"""Bytes that belong to a panel's columns: offsets, sums, format."""
BEST_FORMAT = 2
"""Panels may be packed in any format that the machine has."""


def packed_int8(
    c: Compiler,
    b: int,
    b_zero: int,
    k: int,
    n: int,
    steps: tuple[int, int, int, int],
    start: int = 0,
    groups: int = 1,
    part: tuple[int, int] | None = None,
) -> tuple[Place, Place]:
    """The places of the int8 matrix in input `b`, from element `start` on, in panels, and of what belongs to their
    columns. `steps` are the length of a run of rows, and the steps from run to run, row to row, column to column.
    There may be several matrices, of n columns each. `part` says how many zero points of those in input `b_zero` are
    the matrix's, and which is the first."""
    count = groups * pieces.panels(n)
    panels = count * pieces.PANEL * (k + 3 & -4)
    split = panels + 63 & -64
    zeros, first = part or (prod(shape_of(c.step, b_zero)) if present(c.step, b_zero) else 0, 0)
    inner, step_outer, step_inner, step_n = steps
    fields = {
        "type": TYPE_CODES[dtype_of(c.step, b)], "inner": inner, "step_outer": step_outer, "step_inner": step_inner,
        "step_n": step_n, "zeros": zeros, "k": k, "n": n, "best": BEST_FORMAT,
    }  # fmt: skip
    tensor, zero = c.tensor(b), c.tensor(b_zero)
    if tensor is None or (zeros and zero is None):
        place = c.temporary(split + COLUMNS * count)
        c.emit("pack_b_int8", units=count, grain=grain(count, groups * n * k * MOVED), b=c.input(b) + start,
               zero=c.input(b_zero) + first, panels=place, columns=place + split, **fields)  # fmt: skip
        return place, place + split
    at = 0 if zero is None else c.memory.constant(zero) + first

    def pack(raw: int, address: int) -> None:
        c.memory.engine.call("pack_b_int8", units=count, b=raw + start, zero=at, panels=address,
                             columns=address + split, **fields)  # fmt: skip

    kind = ("int8 panels", steps, start, groups, part, None if zero is None else zero.numpy().tobytes())
    address = c.memory.packed(tensor, kind, split + COLUMNS * count, pack)
    return address, address + split


@dataclass(frozen=True, slots=True)
class Epilogue:
    """What is done with the sums of a product of integers: see `gemm_int8` in C. The fields are places."""

    dtype: np.dtype = I32
    a_scale: Place = 0
    scale: Place = 0
    scales: int = 0
    bias: Place = 0
    addend: Place = 0
    zero: Place = 0
    activation: Activation = NO_ACTIVATION

    def fields(self) -> dict[str, Place]:
        return {
            "c_type": TYPE_CODES[self.dtype], "a_scale": self.a_scale, "b_scale": self.scale, "b_scales": self.scales,
            "bias": self.bias, "addend": self.addend, "c_zero": self.zero, **activation_fields(self.activation),
        }  # fmt: skip


def _gemm_int8(c: Compiler, p: Product, a: Place, a_type: np.dtype, a_zero: Place, epilogue: Epilogue) -> None:
    """Output 0 = A B, as the epilogue says."""
    y = c.output()
    units = pieces.gemm(p.m, p.n)
    step_k, step_n = (1, p.k) if p.transposed else (p.n, 1)
    for a_start, b_start, y_start in p.stack:
        panels, columns = packed_int8(c, p.b, p.b_zero, p.k, p.n, (max(p.k, 1), 0, step_k, step_n), b_start)
        c.emit(
            "gemm_int8", units=units, grain=grain(units, p.m * p.n * p.k), scratch=pieces.int8_scratch(p.k),
            a=a + a_start, type=TYPE_CODES[a_type], lda=p.k, a_zero=a_zero, b=panels, columns=columns,
            c=y + epilogue.dtype.itemsize * y_start, ldc=p.n, m=p.m, n=p.n, k=p.k, **epilogue.fields(),
        )  # fmt: skip


@lower("MatMulInteger")
def matmul_integer(step: Step) -> Emit:
    """A, B, A's zero point (one), B's zero point (one, or one per column)."""
    need_types(step, (I8, U8), 0)
    p = _product(step, 1, 3)
    _need_one_zero(step, 2)
    return lambda c: _gemm_int8(c, p, c.input(0, PLAIN), dtype_of(step, 0), c.input(2), Epilogue())


def _need_one_zero(step: Step, index: int) -> None:
    if present(step, index):
        need_types(step, (dtype_of(step, 0),), index)
        if prod(shape_of(step, index)) != 1:
            raise Refused("a zero point per row has no kernel")


def _need_scales(step: Step, p: Product, a_scale: int | None, b_scale: int, bias: int) -> None:
    need_types(step, (F32,), *([] if a_scale is None else [a_scale]), b_scale, bias)
    if a_scale is not None and prod(shape_of(step, a_scale)) != 1:
        raise Refused("a scale per row has no kernel")
    if prod(shape_of(step, b_scale)) not in (1, p.n) or (present(step, bias) and prod(shape_of(step, bias)) != p.n):
        raise Refused("scales or biases that do not fit the columns have no kernel")


@lower("MatMulIntegerToFloat", domain="com.microsoft")
def matmul_integer_to_float(step: Step) -> Emit:
    """A, B, scales of both, zero points of both, bias."""
    need_types(step, (I8, U8), 0)
    p = _product(step, 1, 5)
    _need_one_zero(step, 4)
    _need_scales(step, p, 2, 3, 6)
    scales = prod(shape_of(step, 3))
    return lambda c: _gemm_int8(
        c,
        p,
        c.input(0),
        dtype_of(step, 0),
        c.input(4),
        Epilogue(F32, c.input(2), c.input(3), scales, c.input(6)),
    )


@lower("QLinearMatMul")
def qlinear_matmul(step: Step) -> Emit:
    return _product_of_quantized(step, 6, 7, None)


@lower("QGemm", domain="com.microsoft")
def q_gemm(step: Step) -> Emit:
    """A, its scale and zero point, B, its scale and zero point, C in units of the product, y's scale and zero point."""
    if step.attribute("transA", 0):
        raise Refused("a transposed A has no kernel")
    return _product_of_quantized(step, 7, 8, 6)


def _product_of_quantized(step: Step, y_scale: int, y_zero: int, addend: int | None) -> Emit:
    """The product of inputs 0 and 3, quantised again unless there is no input `y_scale`."""
    need_types(step, (I8, U8), 0, 3)
    p = _product(step, 3, 5)
    _need_one_zero(step, 2)
    need_types(step, (F32,), 1, 4, y_scale)
    quantizes, dtype = present(step, y_scale), output_dtype(step)
    scales = [need_constant(step, i, "scale") for i in (1, 4, *((y_scale,) if quantizes else ()))]
    if any(s.size != 1 for s in (scales[0], *scales[2:])):
        raise Refused("a scale per row has no kernel")
    if scales[1].size not in (1, p.n) or (len(p.stack) > 1 and scales[1].ndim > 1):
        raise Refused("scales that do not fit the columns have no kernel")
    if dtype not in (F32, I8, U8) or (present(step, y_zero) and prod(shape_of(step, y_zero)) != 1):
        raise Refused("a zero point per row has no kernel")
    if addend is not None and present(step, addend):
        need_types(step, (I32,), addend)
        if prod(shape_of(step, addend)) != p.n:
            raise Refused("a bias that is not a vector has no kernel")
    alpha = np.float32(step.attribute("alpha", 1.0))

    with np.errstate(all="ignore"):
        factor = (alpha * scales[0].reshape(-1) * scales[1].reshape(-1)).astype(F32)
        if quantizes:
            factor = factor / scales[2].reshape(-1)
    if quantizes and not np.isfinite(factor).all():
        raise Refused("scales that are not finite numbers have no kernel")

    def emit(c: Compiler) -> None:
        names = [c.step.node.inputs[i] for i in (1, 4, *((y_scale,) if quantizes else ()))]
        place = c.computed(("factor", float(alpha)), lambda: factor, *names)
        bias = c.input(addend) if addend is not None else 0
        epilogue = Epilogue(dtype, 0, place, scales[1].size, addend=bias, zero=c.input(y_zero))
        _gemm_int8(c, p, c.input(0), dtype_of(step, 0), c.input(2), epilogue)

    return emit


@lower("DynamicQuantizeMatMul", domain="com.microsoft")
def dynamic_quantize_matmul(step: Step) -> Emit:
    """A (float32, quantised over its own range), B, B's scale, B's zero point, bias."""
    need_float32(step, 0)
    p = _product(step, 1, 3)
    _need_scales(step, p, None, 2, 4)
    scales, count = prod(shape_of(step, 2)), size_of(shape_of(step, 0))

    def emit(c: Compiler) -> None:
        scale, zero, a = c.temporary(4), c.temporary(1), c.temporary(count)
        quantize_call(c, c.input(0), count, a, scale, zero)
        _gemm_int8(c, p, a, U8, zero, Epilogue(F32, scale, c.input(2), scales, c.input(4)))

    return emit
