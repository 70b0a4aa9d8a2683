"""Matrix products and what belongs to them."""

from __future__ import annotations

import numpy as np

from .common import align, in_float32
from .registry import op


@op("MatMul")
@in_float32
def mat_mul(a: np.ndarray, b: np.ndarray):
    return np.matmul(a, b)


def _product_shape(a: np.ndarray, b: np.ndarray, trans_a: int, trans_b: int) -> tuple[int, int]:
    if a.ndim != 2 or b.ndim != 2:
        raise ValueError(f"A and B must be matrices, but have shapes {list(a.shape)} and {list(b.shape)}")
    return a.shape[1 if trans_a else 0], b.shape[0 if trans_b else 1]


def _gemm(a: np.ndarray, b: np.ndarray, c: np.ndarray | None, alpha: float, beta: float, trans_a: int, trans_b: int):
    y = np.matmul(a.T if trans_a else a, b.T if trans_b else b)
    if alpha != 1:
        y = alpha * y
    if c is not None and beta != 0:
        y = y + (c if beta == 1 else beta * c)
    return y.astype(a.dtype, copy=False)


@op("Gemm")
@in_float32
def gemm_1(
    a: np.ndarray,
    b: np.ndarray,
    c: np.ndarray,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    broadcast: int = 0,
    transA: int = 0,
    transB: int = 0,
):
    shaped = align(np.empty(_product_shape(a, b, transA, transB), np.bool_), c, None, broadcast)
    return _gemm(a, b, shaped, alpha, beta, transA, transB)


@op("Gemm", since=7)
@in_float32
def gemm(
    a: np.ndarray,
    b: np.ndarray,
    c: np.ndarray | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
):
    """alpha * A @ B + beta * C; C, if any (from opset 11 it may be absent), is broadcast to the product's shape."""
    expected = _product_shape(a, b, transA, transB)
    if c is not None and np.broadcast_shapes(c.shape, expected) != expected:
        raise ValueError(f"C of shape {list(c.shape)} can't be broadcast to the product's shape {list(expected)}")
    return _gemm(a, b, c, alpha, beta, transA, transB)


@op("MatMulInteger", since=10)
def mat_mul_integer(
    a: np.ndarray, b: np.ndarray, a_zero_point: np.ndarray | None = None, b_zero_point: np.ndarray | None = None
):
    """The product of 8-bit integers less their zero points, as int32 that may wrap around.

    A zero point is one number, or one per row of A and per column of B: a vector, or with the batch's dimensions as
    (..., M, 1) and (..., 1, N).
    """
    x, y = a.astype(np.float64), b.astype(np.float64)
    if a_zero_point is not None:
        x = x - (a_zero_point.reshape(-1, 1) if a_zero_point.ndim == 1 and a.ndim > 1 else a_zero_point)
    if b_zero_point is not None:
        y = y - b_zero_point
    # float64 holds each sum of products of 9-bit numbers exactly, and its matrix product is the fastest that is exact.
    return np.matmul(x, y).astype(np.int64).astype(np.int32)


@op("Einsum", since=12)
@in_float32
def einsum(*xs: np.ndarray, equation: str):
    return np.einsum(equation.replace(" ", ""), *xs, optimize=len(xs) > 2)


@op("Det", since=11)
@in_float32
def det(x: np.ndarray):
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ValueError(f"the last two dimensions must be equal, but the shape is {list(x.shape)}")
    return np.linalg.det(x)
