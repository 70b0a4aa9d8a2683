"""Matrix products by constant weights of 4 or 8 bits, which stay that small: MatMulNBits and its relatives, and
products by what DequantizeLinear, or Cast and Mul, make of bytes. Rows of tables that are as small."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from math import prod

import numpy as np

from onnxlet.model.tensors import Tensor
from onnxlet.providers.base import Step

from .. import pieces
from ..compiler import MOVE_GRAIN, Compiler, Place
from ..derived import DerivedTensor
from ..engine import f32
from .common import (
    F32,
    I8,
    I32,
    I64,
    NO_ACTIVATION,
    U8,
    Activation,
    dtype_of,
    grain,
    need_constant,
    need_float32,
    need_types,
    normal_axis,
    output_shape,
    present,
    shape_of,
    text,
)
from .expansion import Expansion, expand
from .registry import Emit, Refused, lower

MICROSOFT = "com.microsoft"
ACTIVATIONS = {
    "relu": ("Relu", {}), "tanh": ("Tanh", {}), "sigmoid": ("Sigmoid", {}), "silu": ("Swish", {}),
    "gelu": ("Gelu", {}), "gelutanh": ("Gelu", {"approximate": "tanh"}), "": ("Identity", {}),
}  # fmt: skip
"""What MatMulNBitsMlp's activations are called elsewhere."""

PIECE_COLUMNS = 16
SCRATCH = 1 << 14
"""As weights.c has them."""


@dataclass(frozen=True, slots=True)
class Dequantization:
    """Bytes, and the scale and zero point that make a matrix of them; these have two axes, as the matrix. `transposed`:
    its axes are exchanged in `data`."""

    data: Tensor
    scale: np.ndarray
    zero: np.ndarray
    transposed: bool = False


def dequantization(tensor: Tensor | None) -> Dequantization | None:
    """What a matrix, computed from constants when it is packed, is computed from; `None` if it is not from bytes."""
    if not isinstance(tensor, DerivedTensor) or tensor.node is None or len(tensor.shape) != 2:
        return None
    node, first = tensor.node, tensor.sources[0]
    match node.op_type:
        case "Transpose":
            inner = dequantization(first)
            exchanged = node.attributes.get("perm", [1, 0]) == [1, 0]
            return None if inner is None or not exchanged else _exchanged(inner)
        case "Cast" if first.dtype in (U8, I8) and tensor.dtype == F32:
            return Dequantization(first, np.ones((1, 1), F32), np.zeros((1, 1)))
        case "Sub" | "Mul":
            inner, other = dequantization(first), tensor.sources[1]
            if inner is None and node.op_type == "Mul":
                inner, other = dequantization(other), first
            if inner is None or inner.transposed or (inner.scale != 1).any() or other.dtype != F32:
                return None
            if len(other.shape) > 2 or prod(other.shape) > max(tensor.shape):
                return None
            value = other.numpy().reshape((1,) * (2 - len(other.shape)) + other.shape)
            if node.op_type == "Mul":
                return Dequantization(inner.data, value, inner.zero)
            return Dequantization(inner.data, inner.scale, value) if not inner.zero.any() else None
        case "DequantizeLinear" if first.dtype in (U8, I8) and tensor.dtype == F32:
            scale = tensor.sources[1]
            if len(scale.shape) > 1 or node.attributes.get("block_size", 0) or scale.dtype != F32:
                return None
            axis = node.attributes.get("axis", 1) % 2
            shape = (1, 1) if prod(scale.shape) == 1 else (-1, 1) if axis == 0 else (1, -1)
            zero = tensor.sources[2].numpy().astype(F32) if len(tensor.sources) > 2 else np.zeros(scale.shape)
            return Dequantization(first, scale.numpy().reshape(shape), zero.reshape(shape))
    return None


def _exchanged(d: Dequantization) -> Dequantization:
    return Dequantization(d.data, d.scale.T, d.zero.T, not d.transposed)


def small_weights(c: Compiler, index: int, k: int, n: int, transposed: bool) -> dict[str, Place] | None:
    """The fields of `gemm_weights` for a constant matrix of bytes, k × n or n × k where `transposed`; `None` if input
    `index` is no such matrix, or a row of it has a scale of its own."""
    found = dequantization(c.tensor(index))
    if found is None:
        return None
    d = _exchanged(found) if transposed else found
    if len(d.scale) != 1 or len(d.zero) != 1 or not np.isfinite(d.zero).all():
        return None
    signed = d.data.dtype == I8

    def bytes_of_rows() -> np.ndarray:
        values = d.data.numpy().T if d.transposed else d.data.numpy()
        return values if signed else centred(values, 8)

    zeros = np.broadcast_to(d.zero.astype(F32) - np.float32(0 if signed else 128), (1, n))
    key = ("bytes", transposed, d.transposed)
    name = c.step.node.inputs[index]
    return {
        "bits": 8, "block": max(k, 1),
        "b": c.memory.computed(key, lambda: panels(bytes_of_rows(), k + 1 & -2), d.data),
        "scales": c.computed((*key, "scales"), lambda: per_panel(np.broadcast_to(d.scale, (1, n))), name),
        "zeros": c.computed((*key, "zeros"), lambda: per_panel(zeros), name) if zeros.any() else 0,
    }  # fmt: skip


def centred(values: np.ndarray, bits: int) -> np.ndarray:
    """Unsigned numbers of so many bits, less the middle of their range, in two's complement of that many bits."""
    return values ^ np.uint8(1 << (bits - 1))


def panels(rows: np.ndarray, count: int) -> np.ndarray:
    """Rows of bytes in panels of 8 columns; filled up to `count` rows."""
    padded = np.pad(rows, ((0, count - len(rows)), (0, -rows.shape[1] % pieces.PANEL)))
    return padded.reshape(count, pieces.panels(rows.shape[1]), pieces.PANEL).transpose(1, 0, 2)


def per_panel(table: np.ndarray) -> np.ndarray:
    """A table [blocks][columns] as [panels][blocks][8]."""
    padded = np.pad(table.astype(F32), ((0, 0), (0, -table.shape[1] % pieces.PANEL)))
    return padded.reshape(len(table), pieces.panels(table.shape[1]), pieces.PANEL).transpose(1, 0, 2)


def weights_call(
    c: Compiler, weights: dict[str, Place], a: Place, y: Place, m: int, n: int, k: int, bias: Place = 0,
    residual: Place = 0, activation: Activation = NO_ACTIVATION,
) -> None:  # fmt: skip
    """Y = activation(A B + bias + residual), all of them without gaps between rows."""
    units = -(-n // PIECE_COLUMNS) if m else 0
    c.emit(
        "gemm_weights", units=units, grain=grain(units, m * n * k), scratch=SCRATCH, a=a, lda=k, c=y, ldc=n, m=m, n=n,
        k=k, bias=bias, residual=residual, ldr=n, activation=activation.code, low=f32(activation.low),
        high=f32(activation.high), **weights,
    )  # fmt: skip


@lower("MatMulNBits", domain=MICROSOFT)
def matmul_n_bits(step: Step) -> Emit:
    """A, B, scales, zero points, (an order of the rows), bias."""
    from onnxlet.ops.microsoft.blockwise import unpack_bits

    need_float32(step, 0, 2, 5)
    need_types(step, (U8,), 1)
    if present(step, 4):
        raise Refused("rows in another order have no kernel")
    if step.attribute("weight_prepacked", 0):
        raise Refused("weights packed for another runtime have no kernel")
    k, n, bits, block = (int(step.attribute(name, 4)) for name in ("K", "N", "bits", "block_size"))
    if bits not in (2, 4, 8) or block % 2:
        raise Refused(f"{bits} bits in blocks of {block} have no kernel")
    shape = shape_of(step, 0)
    if not shape or shape[-1] != k:
        raise Refused("an A of another depth has no kernel")
    for i, what in ((1, "weights"), (2, "scales"), (3, "zero points")):
        if present(step, i):
            need_constant(step, i, what)
    if present(step, 3) and dtype_of(step, 3) not in (U8, F32):
        raise Refused(f"zero points of type {dtype_of(step, 3)} have no kernel")
    blocks, m = -(-k // block), prod(shape[:-1])

    middle = 1 << (bits - 1)
    unit = np.float32(1 if bits == 8 else 16)

    def rows(packed: np.ndarray) -> np.ndarray:
        whole = packed.reshape(n, -1)
        if bits == 2:
            wide = unpack_bits(packed.reshape(n, blocks, -1), 2, block).reshape(n, -1)
            wide = wide + np.uint8(8 - middle)
            whole = wide[:, ::2] | wide[:, 1::2] << 4
        per_byte = 1 if bits == 8 else 2
        whole = centred(whole, 8) if bits == 8 else whole ^ np.uint8(0x88)
        return whole[:, : -(-k // per_byte)].T

    def per_block(table: np.ndarray) -> np.ndarray:
        return per_panel(table.reshape(n, blocks).T)

    def zeros_per_block(table: np.ndarray) -> np.ndarray:
        if table.dtype == np.uint8:
            table = unpack_bits(table.reshape(n, -1), bits, blocks)
        return per_block((table.astype(F32) - np.float32(middle)) * unit)

    def emit(c: Compiler) -> None:
        def computed(index: int, what: str, compute: Callable[[np.ndarray], np.ndarray]) -> Place:
            tensor = c.tensor(index)
            assert tensor is not None
            key: Hashable = ("n bits", what, n, k, bits, block)
            return c.memory.computed(key, lambda: compute(tensor.numpy()), tensor)

        weights: dict[str, Place] = {
            "b": computed(1, "weights", lambda b: panels(rows(b), k + 1 & -2 if bits == 8 else k + 1 >> 1)),
            "bits": max(bits, 4), "block": block, "scales": computed(2, "scales", lambda t: per_block(t / unit)),
            "zeros": computed(3, "zeros", zeros_per_block) if present(step, 3) else 0,
        }  # fmt: skip
        weights_call(c, weights, c.input(0), c.output(), m, n, k, c.input(5))

    return emit


@expand("MatMulNBitsQkv", "MatMulNBitsMlp", domain=MICROSOFT)
def joined_n_bits(e: Expansion) -> None:
    """A, skip, scale of a normalisation; then weights, scales and bias of each product. Outputs: those of the products,
    or an activation of the first one by the second; and A + skip."""
    step = e.step
    need_float32(step, 0, 1, 2)
    gated = step.node.op_type == "MatMulNBitsMlp"
    x, total = e.input(0), e.output(1 if gated else 3)
    if present(step, 1):
        x = e.binary("Add", x, e.input(1), total)
    elif total:
        e.add("Identity", [x], output=total)
    if present(step, 2):
        epsilon = float(step.attribute("epsilon", 1e-5 if gated else 1e-6))
        x = e.add("RMSNormalization", [x, e.input(2)], version=23, axis=-1, epsilon=epsilon)
    attributes = {name: step.attribute(name, 4) for name in ("K", "bits", "block_size")}
    products = []
    for i, size in enumerate(("N", "N") if gated else ("Nq", "Nkv", "Nkv")):
        weights, scales, bias = (e.input(3 + 3 * i + j) for j in range(3))
        columns = int(step.attribute(size))
        output = "" if gated else e.output(i)
        if gated or output:
            inputs = [x, weights, scales, *(["", "", bias] if bias else [])]
            y = e.add("MatMulNBits", inputs, (*e.shape(x)[:-1], columns), output=output, domain=MICROSOFT, version=1,
                      N=columns, **attributes)  # fmt: skip
            products.append(y)
    if gated:
        name = text(step.attribute("activation")).lower()
        if name not in ACTIVATIONS:
            raise Refused(f"activation {name} has no kernel here")
        operator, options = ACTIVATIONS[name]
        gate = e.add(operator, [products[0]], **options)
        e.binary("Mul", gate, products[1], e.output())


@lower("GatherBlockQuantized", domain=MICROSOFT)
def gather_block_quantized(step: Step) -> Emit:
    """Table, indices, scales, zero points."""
    from onnxlet.ops.microsoft.blockwise import unpack_bits

    need_types(step, (U8,), 0, 3)
    need_types(step, (I32, I64), 1)
    need_float32(step, 2)
    table, bits = shape_of(step, 0), int(step.attribute("bits", 4))
    if normal_axis(step.attribute("gather_axis", 0), len(table)) or bits not in (2, 4, 8):
        raise Refused("rows picked along another axis, or of other bits, have no kernel")
    if normal_axis(step.attribute("quantize_axis", 1), len(table)) != len(table) - 1 or len(table) < 2:
        raise Refused("blocks along another axis than the last have no kernel")
    columns = output_shape(step)[-1]
    block = int(step.attribute("block_size", 128)) or columns
    scales = (*table[:-1], -(-columns // max(block, 1)))
    if shape_of(step, 2) != scales:
        raise Refused("scales of this shape have no kernel")
    if present(step, 3):
        need_constant(step, 3, "zero points")

    def emit(c: Compiler) -> None:
        zeros: Place = 0
        if present(step, 3):
            points = c.tensor(3)
            assert points is not None
            zeros = c.computed(
                ("zeros of blocks", bits, scales), lambda: unpack_bits(points.numpy(), bits, scales[-1]).astype(F32),
                step.node.inputs[3],
            )  # fmt: skip
        inner, units = prod(table[1:-1]), prod(output_shape(step)[:-1])
        if columns:
            c.emit(
                "gather_blocks", units=units, grain=MOVE_GRAIN / columns, table=c.input(0), bits=bits,
                indices=c.input(1), index_size=dtype_of(step, 1).itemsize, scales=c.input(2), zeros=zeros, y=c.output(),
                axis=table[0], inner=inner, columns=columns, block=block,
            )  # fmt: skip

    return emit
