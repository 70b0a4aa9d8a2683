"""Products of 8-bit integers and quantisation against NumPy's exact integers."""

from __future__ import annotations

import numpy as np
import pytest

from onnxlet_wasm import pieces
from onnxlet_wasm.engine import f32

from .workbench import Workbench

TYPES = {"uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6}
SIZES = [
    (1, 1, 1),
    (1, 8, 2),
    (3, 5, 7),
    (4, 8, 16),
    (5, 24, 33),
    (25, 17, 64),
    (1, 100, 301),
    (97, 40, 50),
    (130, 9, 3),
]
"""m, n, k"""


def integers(rng: np.random.Generator, dtype: str, *shape: int) -> np.ndarray:
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max + 1, shape).astype(dtype)


def pack(bench: Workbench, b: np.ndarray, zero: np.ndarray | None, transposed: bool) -> tuple[int, int]:
    """The addresses of packed B and its offsets."""
    k, n = b.shape
    width = pieces.panels(n) * 8
    panels, offsets = bench.out((width * (k + k % 2),), np.int8), bench.out((width,), np.int32)
    bench.call(
        "pack_b_int8",
        units=pieces.panels(n),
        b=bench.put(b.T if transposed else b),
        type=TYPES[b.dtype.name],
        step_k=1 if transposed else n,
        step_n=k if transposed else 1,
        zero=0 if zero is None else bench.put(zero),
        zeros=0 if zero is None else zero.size,
        panels=panels,
        offsets=offsets,
        k=k,
        n=n,
    )
    return bench.put(bench.get(panels)), bench.put(bench.get(offsets))


def gemm(bench: Workbench, a, b, a_zero=None, b_zero=None, transposed=False, **scales) -> np.ndarray:
    (m, k), n = a.shape, b.shape[1]
    panels, offsets = pack(bench, b, b_zero, transposed)
    c = bench.out((m, n), np.float32 if scales else np.int32)
    fields = {"a_scale": 0, "b_scale": 0, "b_scales": 0, "bias": 0, "activation": 0, **scales}
    bench.call(
        "gemm_int8",
        units=pieces.gemm(m, n),
        scratch=24 * (2 * (k + k % 2) + 4),
        a=bench.put(a),
        type=TYPES[a.dtype.name],
        lda=k,
        a_zero=0 if a_zero is None else bench.put(a_zero),
        b=panels,
        offsets=offsets,
        c=c,
        ldc=n,
        m=m,
        n=n,
        k=k,
        low=f32(0),
        high=f32(np.inf),
        **fields,
    )
    return bench.get(c)


def exact(a, b, a_zero=None, b_zero=None) -> np.ndarray:
    a = a.astype(np.int64) - (0 if a_zero is None else a_zero.astype(np.int64))
    b = b.astype(np.int64) - (0 if b_zero is None else b_zero.astype(np.int64))
    return a @ b


@pytest.mark.parametrize("zeros", ["none", "one", "per column"])
@pytest.mark.parametrize("b_type", ["uint8", "int8"])
@pytest.mark.parametrize("a_type", ["uint8", "int8"])
@pytest.mark.parametrize(("m", "n", "k"), SIZES)
def test_products_are_exact(bench: Workbench, m: int, n: int, k: int, a_type: str, b_type: str, zeros: str) -> None:
    rng = np.random.default_rng(m * n * k)
    a, b = integers(rng, a_type, m, k), integers(rng, b_type, k, n)
    a_zero = None if zeros == "none" else integers(rng, a_type, 1)
    b_zero = {"none": None, "one": integers(rng, b_type, 1), "per column": integers(rng, b_type, n)}[zeros]
    for transposed in (False, True):
        np.testing.assert_array_equal(gemm(bench, a, b, a_zero, b_zero, transposed), exact(a, b, a_zero, b_zero))


@pytest.mark.parametrize(("a_type", "b_type"), [("uint8", "int8"), ("int8", "int8"), ("uint8", "uint8")])
def test_extremes_do_not_saturate(bench: Workbench, a_type: str, b_type: str) -> None:
    for a_value in (np.iinfo(a_type).min, np.iinfo(a_type).max):
        for b_value in (np.iinfo(b_type).min, np.iinfo(b_type).max):
            for zero in (np.iinfo(a_type).min, np.iinfo(a_type).max):
                a, b = np.full((5, 600), a_value, a_type), np.full((600, 9), b_value, b_type)
                a_zero, b_zero = np.array([zero], a_type), np.array([np.iinfo(b_type).max], b_type)
                np.testing.assert_array_equal(gemm(bench, a, b, a_zero, b_zero), exact(a, b, a_zero, b_zero))


@pytest.mark.parametrize("per_column", [False, True])
@pytest.mark.parametrize("activation", [0, 1])
@pytest.mark.parametrize(("m", "n", "k"), SIZES)
def test_scaled_results(bench: Workbench, m: int, n: int, k: int, activation: int, per_column: bool) -> None:
    rng = np.random.default_rng(0)
    a, b, a_zero = integers(rng, "uint8", m, k), integers(rng, "int8", k, n), np.array([131], np.uint8)
    a_scale, bias = np.array([0.017], np.float32), rng.standard_normal(n).astype(np.float32)
    b_scale = rng.random(n if per_column else 1).astype(np.float32)
    result = gemm(
        bench,
        a,
        b,
        a_zero,
        a_scale=bench.put(a_scale),
        b_scale=bench.put(b_scale),
        b_scales=b_scale.size,
        bias=bench.put(bias),
        activation=activation,
    )
    wanted = exact(a, b, a_zero).astype(np.float32) * (a_scale * b_scale) + bias
    wanted = np.maximum(wanted, 0) if activation else wanted
    np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-6 * np.abs(wanted).max())


def quantized(x: np.ndarray, scale: np.ndarray, zero: np.ndarray) -> np.ndarray:
    limits = np.iinfo(zero.dtype)
    return np.clip(np.rint(x / scale) + zero.astype(np.float32), limits.min, limits.max).astype(zero.dtype)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16"])
@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 1, 1000), (3, 4, 5), (2, 3, 17), (1, 7, 1), (0, 1, 1)])
def test_quantize_and_back(bench: Workbench, shape: tuple[int, int, int], dtype: str) -> None:
    rng = np.random.default_rng(1)
    x = (rng.standard_normal(shape) * 300).astype(np.float32)
    scale = rng.uniform(0.5, 2, shape[1]).astype(np.float32)
    zero = integers(rng, dtype, shape[1])
    y, back = bench.out(shape, dtype), bench.out(shape)
    common = {"type": TYPES[dtype], "axis": shape[1], "inner": shape[2]}
    where = {"scale": bench.put(scale), "zero": bench.put(zero)}
    bench.call("quantize", units=x.size, x=bench.put(x), y=y, **where, **common)
    wanted = quantized(x, scale[:, None], zero[:, None])
    np.testing.assert_array_equal(bench.get(y), wanted)
    bench.call("dequantize", units=x.size, x=bench.put(wanted), y=back, **where, **common)
    values = (wanted.astype(np.int32) - zero[:, None]).astype(np.float32) * scale[:, None]
    np.testing.assert_array_equal(bench.get(back), values)


def test_quantize_rounds_ties_to_even_and_saturates(bench: Workbench) -> None:
    x = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 127.5, 1e30, -1e30, np.inf, -np.inf], np.float32)
    y = bench.out(x.shape, np.int8)
    bench.call(
        "quantize",
        units=x.size,
        type=3,
        x=bench.put(x),
        scale=bench.put(np.float32(1)),
        zero=0,
        y=y,
        axis=1,
        inner=x.size,
    )
    np.testing.assert_array_equal(bench.get(y), [0, 2, 2, 0, -2, 127, 127, -128, 127, -128])


def test_dequantize_int32(bench: Workbench) -> None:
    x = np.array([0, 1, -1, 2**31 - 1, -(2**31)], np.int32)
    y = bench.out(x.shape)
    bench.call(
        "dequantize",
        units=x.size,
        type=6,
        x=bench.put(x),
        scale=bench.put(np.float32(0.25)),
        zero=0,
        y=y,
        axis=1,
        inner=5,
    )
    np.testing.assert_array_equal(bench.get(y), x.astype(np.float32) * np.float32(0.25))


@pytest.mark.parametrize(
    "x", [[0.0], [1.0, 2.0, 3.5], [-1.0, -7.0], [-3.0, 0.5, 9.0] * 40, np.linspace(-1, 1, 1001), np.zeros(9)]
)
def test_range_for_dynamic_quantization(bench: Workbench, x) -> None:
    x = np.array(x, np.float32)
    scale, zero = bench.out((1,)), bench.out((1,), np.uint8)
    bench.call("quantize_range", units=1, x=bench.put(x), count=x.size, scale=scale, zero=zero)
    low, high = min(x.min(), 0), max(x.max(), 0)
    wanted = np.float32((high - low) / np.float32(255)) if high > low else np.float32(1)
    np.testing.assert_array_equal(bench.get(scale), [wanted])
    np.testing.assert_array_equal(bench.get(zero), [np.rint(-low / wanted)])
