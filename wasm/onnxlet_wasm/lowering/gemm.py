"""Matrix products: MatMul, Gemm, and their fused forms with bias, residual and activation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from onnxlet.model.tensors import Tensor
from onnxlet.providers.base import Step

from .. import pieces
from ..compiler import Compiler, Place
from ..engine import f32
from ..layouts import broadcast_strides, collapse, strides_of
from .common import (
    MOVED,
    NO_ACTIVATION,
    Activation,
    activation_of,
    grain,
    need_float32,
    output_shape,
    present,
    shape_of,
)
from .copies import copy_block
from .elementwise import scale
from .registry import Emit, Refused, lower
from .weights import small_weights, weights_call


@dataclass(frozen=True, slots=True)
class Product:
    """What a node computes: activation(alpha A' B' + bias + residual), stacked over `batch`.

    `bias` and `residual` are indices of inputs, or `None`. Sizes are those of A' (m × k) and B' (k × n), after
    transposition.
    """

    batch: tuple[int, ...]
    m: int
    n: int
    k: int
    a_batch: tuple[int, ...]
    b_batch: tuple[int, ...]
    transpose_a: bool = False
    transpose_b: bool = False
    alpha: float = 1.0
    activation: Activation = NO_ACTIVATION


def product_of(step: Step, transpose_a: bool, transpose_b: bool, alpha: float, activation: Activation) -> Product:
    """The sizes of a product of inputs 0 and 1, by NumPy's rules for vectors and stacks."""
    need_float32(step)
    a, b = shape_of(step, 0), shape_of(step, 1)
    if not a or not b or (len(a) == 1 and transpose_a) or (len(b) == 1 and transpose_b):
        raise Refused("a product of these ranks has no kernel")
    a = (1, *a) if len(a) == 1 else a
    b = (*b, 1) if len(b) == 1 else b
    (m, k), n = a[-2:], b[-1]
    if transpose_a:
        m, k = k, m
    if transpose_b:
        n = b[-2]
    batch = np.broadcast_shapes(a[:-2], b[:-2])
    return Product(batch, m, n, k, a[:-2], b[:-2], transpose_a, transpose_b, alpha, activation)


@lower("MatMul")
def matmul(step: Step) -> Emit:
    p = product_of(step, False, False, 1.0, NO_ACTIVATION)
    return lambda c: emit_product(c, p)


@lower("FusedMatMul", domain="com.microsoft")
def fused_matmul_microsoft(step: Step) -> Emit:
    p = product_of(step, *_transposes(step), float(step.attribute("alpha", 1.0)), NO_ACTIVATION)
    return lambda c: emit_product(c, p)


@lower("FusedMatMul", domain="ai.onnxlet")
def fused_matmul(step: Step) -> Emit:
    """A, B, bias (n), residual (the shape of the output)."""
    p = product_of(step, *_transposes(step), float(step.attribute("alpha", 1.0)), activation_of(step))
    bias, residual = present(step, 2), present(step, 3)
    if bias and prod(shape_of(step, 2)) != p.n:
        raise Refused("a bias that is not a vector has no kernel")
    if residual and shape_of(step, 3) != output_shape(step):
        raise Refused("a broadcast residual has no kernel")
    if residual and not _one_product(step, p):
        raise Refused("a residual of a stack of products has no kernel")

    def emit(c: Compiler) -> None:
        emit_product(c, p, c.input(2) if bias else 0, c.input(3) if residual else 0)

    return emit


@lower("Gemm")
def gemm(step: Step) -> Emit:
    return _gemm(step, NO_ACTIVATION)


@lower("FusedGemm", domain="com.microsoft")
def fused_gemm(step: Step) -> Emit:
    return _gemm(step, activation_of(step))


def _transposes(step: Step) -> tuple[bool, bool]:
    return bool(step.attribute("transA", 0)), bool(step.attribute("transB", 0))


def _gemm(step: Step, activation: Activation) -> Emit:
    p = product_of(step, *_transposes(step), float(step.attribute("alpha", 1.0)), activation)
    if p.batch:
        raise Refused("Gemm of stacked matrices has no kernel")
    beta = float(step.attribute("beta", 1.0))
    added = present(step, 2) and beta != 0.0
    shape = shape_of(step, 2) if added else ()
    vector = prod(shape) in (1, p.n) and (len(shape) < 2 or shape[0] == 1)

    def emit(c: Compiler) -> None:
        if not added:
            emit_product(c, p)
            return
        target = (p.n,) if vector else (p.m, p.n)
        addend = _addend(c, 2, shape, target, beta)
        emit_product(c, p, addend if vector else 0, 0 if vector else addend)

    return emit


def _addend(c: Compiler, index: int, shape: Sequence[int], target: tuple[int, ...], beta: float) -> Place:
    """Input `index` times `beta`, broadcast to `target`."""
    tensor = c.tensor(index)
    whole = prod(shape) == prod(target)
    if tensor is not None and not (whole and beta == 1.0):
        name = c.step.node.inputs[index]

        def broadcast() -> np.ndarray:
            values = tensor.numpy()
            return np.broadcast_to(values.reshape(-1) if len(target) == 1 else values, target) * np.float32(beta)

        return c.computed(("addend", target, beta), broadcast, name)
    place = c.input(index)
    if not whole:
        broadcasted = c.temporary(4 * prod(target))
        strides = [0] if prod(shape) == 1 and len(target) == 1 else broadcast_strides(shape, target)
        copy_block(c, place, strides, broadcasted, strides_of(target), target, 4)
        place = broadcasted
    return place if beta == 1.0 else scale(c, place, prod(target), beta)


def _one_product(step: Step, p: Product) -> bool:
    """Whether the stack is one product of an A of more rows."""
    return prod(p.b_batch) == 1 and (not p.transpose_a or prod(p.a_batch) == 1)


def emit_product(c: Compiler, p: Product, bias: Place = 0, residual: Place = 0) -> None:
    """The product of inputs 0 and 1 into output 0."""
    y = c.output()
    a = _left(c, p)
    lda = p.k
    if _one_product(c.step, p):
        m = p.m * prod(p.a_batch)
        weights = small_weights(c, 1, p.k, p.n, p.transpose_b)
        if weights is not None:
            weights_call(c, weights, a, y, m, p.n, p.k, bias, residual, p.activation)
            return
        b = packed_constant(c, 1, p.k, p.n, p.transpose_b)
        if b is None:
            b = c.temporary(pieces.packed_size(p.k, p.n))
            step_k, step_n = (1, p.k) if p.transpose_b else (p.n, 1)
            units = pieces.panels(p.n)
            c.emit("pack_b", units=units, grain=grain(units, p.n * p.k * MOVED), b=c.input(1), step_k=step_k,
                   step_n=step_n, panels=b, k=p.k, n=p.n)  # fmt: skip
        gemm_call(c, a, lda, b, y, p.n, m, p.n, p.k, bias, residual, p.n, p.activation)
        return
    steps = [
        broadcast_strides((*p.a_batch, p.m * p.k), (*p.batch, 1))[:-1],
        broadcast_strides((*p.b_batch, p.k * p.n), (*p.batch, 1))[:-1],
        strides_of((*p.batch, p.m * p.n))[:-1],
    ]
    lengths, (a_steps, b_steps, c_steps) = collapse(p.batch, *steps)
    while len(lengths) < 2:
        lengths.insert(0, 1)
        for s in (a_steps, b_steps, c_steps):
            s.insert(0, 0)
    b = c.input(1)
    step_k, step_n = (1, p.k) if p.transpose_b else (p.n, 1)
    stack = lengths[-2] * lengths[-1]
    units = stack * pieces.gemm_batched(p.n)
    for index in np.ndindex(*lengths[:-2]):
        at = [4 * sum(i * s for i, s in zip(index, t, strict=False)) for t in (a_steps, b_steps, c_steps)]
        c.emit(
            "gemm_batched", units=units, grain=grain(units, stack * max(p.m, MOVED) * p.n * p.k),
            scratch=pieces.packed_size(p.k, p.n),
            a=a + at[0], lda=lda, a_outer=a_steps[-2], a_inner=a_steps[-1],
            b=b + at[1], step_k=step_k, step_n=step_n, b_outer=b_steps[-2], b_inner=b_steps[-1],
            c=y + at[2], ldc=p.n, c_outer=c_steps[-2], c_inner=c_steps[-1], inner=lengths[-1],
            m=p.m, n=p.n, k=p.k, bias=bias, **activation_fields(p.activation),
        )  # fmt: skip


def _left(c: Compiler, p: Product) -> Place:
    """A' row-major, times alpha."""
    if not p.transpose_a and p.alpha == 1.0:
        return c.input(0)
    shape = (*p.a_batch, p.m, p.k)
    tensor = c.tensor(0)
    if tensor is not None:

        def transform() -> np.ndarray:
            values = tensor.numpy()
            return (np.swapaxes(values, -1, -2) if p.transpose_a else values) * np.float32(p.alpha)

        return c.computed(("left", p.transpose_a, p.alpha), transform, c.step.node.inputs[0])
    a = c.input(0)
    if p.transpose_a:
        transposed = c.temporary(4 * prod(shape))
        *batch, rows, columns = strides_of((*p.a_batch, p.k, p.m))
        copy_block(c, a, [*batch, columns, rows], transposed, strides_of(shape), shape, 4)
        a = transposed
    return a if p.alpha == 1.0 else scale(c, a, prod(shape), p.alpha)


def packed_constant(c: Compiler, index: int, k: int, n: int, transposed: bool) -> int | None:
    """The address of a constant matrix in panels, or `None` where input `index` is computed.

    The matrix is k × n, or n × k where `transposed`.
    """
    tensor = c.tensor(index)
    return None if tensor is None else packed_matrix(c, tensor, k, n, transposed)


def packed_matrix(c: Compiler, tensor: Tensor, k: int, n: int, transposed: bool) -> int:
    """The address of a matrix, k × n or n × k where `transposed`, in panels."""
    step_k, step_n = (1, k) if transposed else (n, 1)

    def pack(raw: int, address: int) -> None:
        c.memory.engine.call(
            "pack_b", units=pieces.panels(n), b=raw, step_k=step_k, step_n=step_n, panels=address, k=k, n=n
        )

    return c.memory.packed(tensor, ("panels", k, n, transposed), pieces.packed_size(k, n), pack)


def activation_fields(activation: Activation) -> dict[str, int]:
    return {"activation": activation.code, "low": f32(activation.low), "high": f32(activation.high)}


def gemm_call(
    c: Compiler,
    a: Place,
    lda: int,
    b: Place,
    y: Place,
    ldc: int,
    m: int,
    n: int,
    k: int,
    bias: Place,
    residual: Place,
    ldr: int,
    activation: Activation,
) -> None:
    """Y = activation(A B + bias + residual), with B in panels. The `ld`s are elements from row to row."""
    units = pieces.gemm(m, n)
    c.emit(
        "gemm", units=units, grain=grain(units, max(m, MOVED) * n * k), a=a, lda=lda, b=b, c=y, ldc=ldc, m=m, n=n, k=k,
        bias=bias, residual=residual, ldr=ldr, **activation_fields(activation),
    )  # fmt: skip
