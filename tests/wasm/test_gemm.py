"""Matrix products against NumPy in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest

from onnxlet_wasm import pieces

from .workbench import Workbench, close

SIZES = [
    (1, 1, 1), (1, 8, 3), (1, 64, 7), (1, 100, 33), (1, 131, 600), (2, 3, 4), (3, 16, 5), (4, 15, 9), (5, 17, 300),
    (6, 24, 12), (7, 7, 7), (13, 33, 513), (50, 40, 31), (95, 9, 20), (96, 25, 65), (97, 16, 8), (100, 1, 257),
    (193, 48, 3), (3, 5, 0), (100, 24, 0), (0, 8, 8), (8, 0, 8),
]  # fmt: skip


def random(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def erf(x: np.ndarray) -> np.ndarray:
    return np.vectorize(math.erf, otypes=[np.float64])(x)


ACTIVATIONS = {
    0: lambda x: x,
    1: lambda x: np.clip(x, -0.5, 1.5),
    2: lambda x: x / (1 + np.exp(-x)),
    3: lambda x: 0.5 * x * (1 + erf(x / np.sqrt(2))),
    4: lambda x: 1 / (1 + np.exp(-x)),
    5: np.tanh,
    6: lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    7: lambda x: np.where(x < 0, -0.5 * x, x),
    8: lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
}


def pack(bench: Workbench, b: np.ndarray, transposed: bool = False) -> np.ndarray:
    """B (k x n) in panels, packed from B or from its transpose."""
    k, n = b.shape
    address = bench.out((pieces.panels(n), k, 8))
    raw = bench.put(b.T if transposed else b)
    steps = {"step_k": 1, "step_n": k} if transposed else {"step_k": n, "step_n": 1}
    bench.call("pack_b", units=pieces.panels(n), b=raw, panels=address, k=k, n=n, **steps)
    return bench.get(address)


def gemm(bench: Workbench, a, b, bias=None, residual=None, activation=0, low=-0.5, high=1.5, spare=0) -> np.ndarray:
    """The product by the kernel; rows of A and C are `spare` elements apart from each other."""
    (m, k), n = a.shape, b.shape[1]
    wide = np.full((m, k + spare), np.nan, np.float32)
    wide[:, :k] = a
    c = bench.out((m, n + spare))
    before = bench.get(c).copy()
    bench.call(
        "gemm", units=pieces.gemm(m, n), a=bench.put(wide), lda=k + spare, b=bench.put(pack(bench, b)), c=c,
        ldc=n + spare, m=m, n=n, k=k, bias=0 if bias is None else bench.put(bias),
        residual=0 if residual is None else bench.put(residual), ldr=n, activation=activation, low=low, high=high,
    )  # fmt: skip
    result = bench.get(c)
    np.testing.assert_array_equal(result[:, n:], before[:, n:], "elements between rows were written")
    return result[:, :n]


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("k", "n"), [(1, 1), (4, 8), (5, 8), (7, 17), (33, 24), (0, 8)])
def test_packing(bench, k, n, transposed):
    b = random(np.random.default_rng(0), k, n)
    padded = np.zeros((k, pieces.panels(n) * 8), np.float32)
    padded[:, :n] = b
    expected = padded.reshape(k, pieces.panels(n), 8).transpose(1, 0, 2)
    np.testing.assert_array_equal(pack(bench, b, transposed), expected)


@pytest.mark.parametrize(("m", "n", "k"), SIZES)
@pytest.mark.parametrize("epilogue", [False, True])
def test_product(bench, m, n, k, epilogue):
    rng = np.random.default_rng(m * 10007 + n * 101 + k)
    a, b = random(rng, m, k), random(rng, k, n)
    expected = a.astype(np.float64) @ b
    if epilogue:
        bias, residual = random(rng, n), random(rng, m, n)
        result = gemm(bench, a, b, bias, residual, activation=1, low=-0.5, high=math.inf, spare=3)
        close(result, np.maximum(expected + bias + residual, -0.5), k)
    else:
        close(gemm(bench, a, b), expected, k)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize(("m", "n", "k"), [(1, 70, 5), (7, 13, 300), (100, 9, 4)])
def test_activations(bench, activation, m, n, k):
    rng = np.random.default_rng(activation)
    a, b, bias = random(rng, m, k) / np.float32(k**0.5), random(rng, k, n) * 2, random(rng, n)
    expected = ACTIVATIONS[activation](a.astype(np.float64) @ b + bias)
    close(gemm(bench, a, b, bias, activation=activation), expected, 4)


def test_not_a_number_goes_through_the_clamp(bench):
    a = np.array([[np.nan], [np.inf], [-np.inf], [1]], np.float32)
    b = np.ones((1, 9), np.float32)
    result = gemm(bench, a, b, activation=1, low=0.0, high=6.0)
    np.testing.assert_array_equal(result, np.clip(np.repeat(a, 9, 1), 0, 6))


def test_not_a_number_stays_in_its_row_and_column(bench):
    rng = np.random.default_rng(3)
    a, b = random(rng, 20, 30), random(rng, 30, 20)
    a[3, 4] = np.nan
    b[5, 7] = np.inf
    with np.errstate(invalid="ignore"):
        expected = a @ b
    result = gemm(bench, a, b)
    np.testing.assert_array_equal(np.isnan(result), np.isnan(expected))
    np.testing.assert_array_equal(np.isinf(result), np.isinf(expected))


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (5, 9, 7), (12, 32, 20), (3, 40, 16), (4, 4, 0)])
def test_stack(bench, m, n, k, transposed):
    rng = np.random.default_rng(k)
    outer, inner = 3, 2
    a, b = random(rng, outer, inner, m, k), random(rng, inner, k, n)  # B is the same for all of the outer dimension
    c = bench.out((outer, inner, m, n))
    steps = {"step_k": 1, "step_n": k} if transposed else {"step_k": n, "step_n": 1}
    bench.call(
        "gemm_batched", units=outer * inner * pieces.gemm_batched(n), scratch=pieces.packed_size(k, n), a=bench.put(a),
        lda=k, a_outer=inner * m * k, a_inner=m * k, b=bench.put(b.swapaxes(1, 2) if transposed else b), **steps,
        b_outer=0, b_inner=k * n, c=c, ldc=n, c_outer=inner * m * n, c_inner=m * n, inner=inner, m=m, n=n, k=k,
        bias=0, activation=0, low=0.0, high=0.0,
    )  # fmt: skip
    close(bench.get(c), a.astype(np.float64) @ b, k)


def test_large_product(bench):
    rng = np.random.default_rng(5)
    a, b = random(rng, 257, 300), random(rng, 300, 129)
    close(gemm(bench, a, b), a.astype(np.float64) @ b, 300)
