"""Products of 8-bit integers and quantisation against NumPy's exact integers."""

from __future__ import annotations

import numpy as np
import pytest

from onnxlet_wasm import pieces
from onnxlet_wasm.engine import f32

from .workbench import Workbench

TYPES = {"uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "float32": 1}
PAIRS, SEVEN_BITS, EIGHT_BITS = range(3)
"""The formats of panels, of which a machine has the first ones."""
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


def pack(bench: Workbench, b: np.ndarray, zero: np.ndarray | None, transposed: bool, best: int) -> tuple[int, int]:
    """The addresses of packed B and of what belongs to its columns."""
    k, n = b.shape
    count = pieces.panels(n)
    panels, columns = bench.out((count * 8 * (k + 3 & -4),), np.int8), bench.out((count * 32,), np.int32)
    bench.call(
        "pack_b_int8",
        units=count,
        b=bench.put(b.T if transposed else b),
        type=TYPES[b.dtype.name],
        inner=max(k, 1),
        step_outer=0,
        step_inner=1 if transposed else n,
        step_n=k if transposed else 1,
        zero=0 if zero is None else bench.put(zero),
        zeros=0 if zero is None else zero.size,
        panels=panels,
        columns=columns,
        k=k,
        n=n,
        best=best,
    )
    return bench.put(bench.get(panels)), bench.put(bench.get(columns))


def gemm(
    bench: Workbench, a, b, a_zero=None, b_zero=None, transposed=False, best=EIGHT_BITS, dtype=np.int32, **epilogue
) -> np.ndarray:
    (m, k), n = a.shape, b.shape[1]
    panels, columns = pack(bench, b, b_zero, transposed, best)
    c = bench.out((m, n), dtype)
    fields = {"a_scale": 0, "b_scale": 0, "b_scales": 0, "bias": 0, "addend": 0, "c_zero": 0, "activation": 0}
    bench.call(
        "gemm_int8",
        units=pieces.gemm(m, n),
        scratch=pieces.int8_scratch(k),
        a=bench.put(a),
        type=TYPES[a.dtype.name],
        lda=k,
        a_zero=0 if a_zero is None else bench.put(a_zero),
        b=panels,
        columns=columns,
        c=c,
        ldc=n,
        m=m,
        n=n,
        k=k,
        c_type=TYPES[np.dtype(dtype).name],
        low=f32(0),
        high=f32(np.inf),
        **{**fields, **epilogue},
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
    for best in (PAIRS, EIGHT_BITS):
        for transposed in (False, True):
            result = gemm(bench, a, b, a_zero, b_zero, transposed, best)
            np.testing.assert_array_equal(result, exact(a, b, a_zero, b_zero))


@pytest.mark.parametrize("a_type", ["uint8", "int8"])
@pytest.mark.parametrize("b_type", ["uint8", "int8"])
def test_products_of_numbers_of_seven_bits(bench: Workbench, a_type: str, b_type: str) -> None:
    rng = np.random.default_rng(7)
    limits = np.iinfo(b_type)
    for m, n, k in SIZES:
        # Each column spans 127 from another place on; every third panel has one that spans more.
        start = rng.integers(limits.min, limits.max - 127, n)
        b = (start + rng.integers(0, 128, (k, n))).astype(b_type)
        b[0], b[-1] = start, start + 127
        b[-1, ::24] = limits.max
        a, a_zero, b_zero = integers(rng, a_type, m, k), integers(rng, a_type, 1), integers(rng, b_type, n)
        for best in (SEVEN_BITS, EIGHT_BITS):
            result = gemm(bench, a, b, a_zero, b_zero, best=best)
            np.testing.assert_array_equal(result, exact(a, b, a_zero, b_zero))


@pytest.mark.parametrize(("a_type", "b_type"), [("uint8", "int8"), ("int8", "int8"), ("uint8", "uint8")])
def test_extremes_do_not_saturate(bench: Workbench, a_type: str, b_type: str) -> None:
    for a_value in (np.iinfo(a_type).min, np.iinfo(a_type).max):
        for b_value in (np.iinfo(b_type).min, np.iinfo(b_type).max):
            for zero in (np.iinfo(a_type).min, np.iinfo(a_type).max):
                a, b = np.full((5, 600), a_value, a_type), np.full((600, 9), b_value, b_type)
                a_zero, b_zero = np.array([zero], a_type), np.array([np.iinfo(b_type).max], b_type)
                for best in (PAIRS, SEVEN_BITS, EIGHT_BITS):
                    result = gemm(bench, a, b, a_zero, b_zero, best=best)
                    np.testing.assert_array_equal(result, exact(a, b, a_zero, b_zero))


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
        dtype=np.float32,
        a_scale=bench.put(a_scale),
        b_scale=bench.put(b_scale),
        b_scales=b_scale.size,
        bias=bench.put(bias),
        activation=activation,
    )
    wanted = exact(a, b, a_zero).astype(np.float32) * (a_scale * b_scale) + bias
    wanted = np.maximum(wanted, 0) if activation else wanted
    np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-6 * np.abs(wanted).max())


@pytest.mark.parametrize("per_column", [False, True])
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize(("m", "n", "k"), SIZES)
def test_results_in_bytes(bench: Workbench, m: int, n: int, k: int, dtype: str, per_column: bool) -> None:
    rng = np.random.default_rng(2)
    a, b, zero = integers(rng, "uint8", m, k), integers(rng, "int8", k, n), integers(rng, dtype, 1)
    addend = rng.integers(-5000, 5000, n).astype(np.int32)
    scale = (rng.uniform(0.5, 1.5, n if per_column else 1) / (40 * np.sqrt(k))).astype(np.float32)
    result = gemm(
        bench,
        a,
        b,
        np.array([100], np.uint8),
        dtype=dtype,
        b_scale=bench.put(scale),
        b_scales=scale.size,
        addend=bench.put(addend),
        c_zero=bench.put(zero),
    )
    total = exact(a, b, np.array([100])) + addend
    limits = np.iinfo(dtype)
    wanted = np.clip(np.rint(total.astype(np.float32) * scale) + zero.astype(np.float64), limits.min, limits.max)
    np.testing.assert_array_equal(result, wanted)


def test_halves_go_to_even_numbers(bench: Workbench) -> None:
    a, b = np.arange(10, dtype=np.uint8)[:, None], np.ones((1, 1), np.int8)
    scale, addend = bench.put(np.array([0.5], np.float32)), bench.put(np.array([-5], np.int32))
    result = gemm(bench, a, b, dtype=np.int8, b_scale=scale, b_scales=1, addend=addend)
    np.testing.assert_array_equal(result[:, 0], [-2, -2, -2, -1, 0, 0, 0, 1, 2, 2])


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
