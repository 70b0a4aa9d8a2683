"""Elementwise functions of two operands, and selection, with broadcasting, against NumPy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from onnxlet_wasm.engine import Engine, f32

from .workbench import Workbench

TYPES = {"float32": 1, "uint8": 2, "int32": 6, "int64": 7, "bool": 9, "float64": 11}
FUNCTIONS = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "pow": np.power, "min": np.minimum,
    "max": np.maximum, "mod": np.mod, "fmod": np.fmod, "prelu": lambda x, s: np.where(x < 0, x * s, x),
    "equal": np.equal, "less": np.less, "less_equal": np.less_equal, "greater": np.greater,
    "greater_equal": np.greater_equal, "and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor,
    "shift_left": np.left_shift, "shift_right": np.right_shift, "shift_right_unsigned": np.right_shift,
}  # fmt: skip
CODES = {name: code for code, name in enumerate(FUNCTIONS)}
SHAPES = [
    ((), ()),
    ((0,), (1,)),
    ((5, 0), (5, 1)),
    ((1,), (9,)),
    ((1000,), (1000,)),
    ((2500,), ()),
    ((), (2500,)),
    ((17, 33), (33,)),
    ((17, 33), (17, 1)),
    ((17, 1), (1, 33)),
    ((2, 5, 4, 7), (5, 1, 1)),
    ((2, 1, 3, 1, 5), (4, 1, 2, 1)),
    ((3, 1, 5, 1, 2, 1, 3, 1), (1, 2, 1, 3, 1, 2, 1, 4)),
    ((1, 1, 1, 1), (2, 3, 4, 5)),
]


def strides(shape: Sequence[int], target: Sequence[int]) -> np.ndarray:
    """Strides, in elements, of an operand of `shape` that is broadcast to `target`."""
    view = np.broadcast_to(np.empty(shape, np.uint8), target)
    return np.array(view.strides, np.int64)


def binary(bench: Workbench, name: str, a: np.ndarray, b: np.ndarray, activation=0, low=0.0, high=0.0) -> np.ndarray:
    shape = np.broadcast_shapes(a.shape, b.shape)
    y = bench.out(shape, np.bool_ if CODES["equal"] <= CODES[name] <= CODES["greater_equal"] else a.dtype)
    bench.call(
        "binary",
        units=int(np.prod(shape)),
        op=CODES[name],
        type=TYPES[a.dtype.name],
        a=bench.put(a),
        b=bench.put(b),
        y=y,
        rank=len(shape),
        shape=bench.put(np.array(shape, np.int64)),
        a_strides=bench.put(strides(a.shape, shape)),
        b_strides=bench.put(strides(b.shape, shape)),
        activation=activation,
        low=f32(low),
        high=f32(high),
    )
    return bench.get(y)


def operand(rng: np.random.Generator, shape: Sequence[int], dtype: str) -> np.ndarray:
    if dtype.startswith("float"):
        return (rng.standard_normal(shape) * 3).astype(dtype)
    return rng.integers(0 if dtype == "uint8" else -6, 7, shape).astype(dtype)


@pytest.mark.parametrize(("first", "second"), SHAPES)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "uint8"])
def test_broadcasting(bench: Workbench, first, second, dtype: str) -> None:
    rng = np.random.default_rng(0)
    a, b = operand(rng, first, dtype), operand(rng, second, dtype)
    for name in ("sub", "less"):
        np.testing.assert_array_equal(binary(bench, name, a, b), FUNCTIONS[name](a, b))


@pytest.mark.parametrize("name", [n for n in CODES if n not in ("mod", "fmod") and CODES[n] < CODES["and"]])
def test_float32_functions_at_all_pairs_of_corners(bench: Workbench, name: str) -> None:
    corners = np.array(
        [
            0.0,
            -0.0,
            1,
            -1,
            np.inf,
            -np.inf,
            np.nan,
            1e-45,
            1e-38,
            3e38,
            -3e38,
            2,
            -2,
            0.5,
            3,
            -3,
            1.5,
            -2.5,
            16777215,
            16777216,
            33554432,
            255,
            100,
        ],
        np.float32,
    )
    a, b = corners[:, None], corners[None, :]
    with np.errstate(all="ignore"):
        wanted = FUNCTIONS[name](a.astype(np.float64), b.astype(np.float64))
        wanted = wanted.astype(np.float32) if CODES[name] < CODES["equal"] else wanted
    result = binary(bench, name, a, b)
    if name == "div":  # both operands have been rounded once more
        np.testing.assert_allclose(result, wanted, rtol=1e-7)
    else:
        np.testing.assert_allclose(result, wanted, rtol=2e-7 if name == "pow" else 0)


def test_power_is_right_to_the_last_bit_or_nearly(bench: Workbench) -> None:
    rng = np.random.default_rng(3)
    a = np.exp(rng.uniform(-20, 20, 5000)).astype(np.float32)
    b = rng.uniform(-4, 4, 5000).astype(np.float32)
    wanted = np.power(a.astype(np.float64), b.astype(np.float64))
    error = np.abs(binary(bench, "pow", a, b) - wanted) / np.spacing(np.abs(wanted).astype(np.float32))
    assert error.max() < 0.52


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("name", [n for n in CODES if n != "prelu" and CODES[n] < CODES["and"]])
def test_integer_functions(bench: Workbench, name: str, dtype: str) -> None:
    limits = np.iinfo(dtype)
    values = np.array([0, 1, -1, 2, -2, 3, -3, 7, -7, 100, limits.min, limits.min + 1, limits.max], dtype)
    a, b = [v.ravel() for v in np.meshgrid(values, values)]
    if name == "pow":
        a, b = a[(b >= 0) & (b < 101)], b[(b >= 0) & (b < 101)]
    if name in ("div", "mod", "fmod"):
        a, b = a[b != 0], b[b != 0]
    with np.errstate(all="ignore"):
        if name == "div":  # truncation, which NumPy has only through Python's integers
            wanted = np.array([_truncated(int(p), int(q), limits) for p, q in zip(a, b, strict=True)], dtype)
        else:
            wanted = FUNCTIONS[name](a, b)
    np.testing.assert_array_equal(binary(bench, name, a, b), wanted)


def _truncated(p: int, q: int, limits: np.iinfo) -> int:
    quotient = abs(p) // abs(q) * (1 if (p < 0) == (q < 0) else -1)
    return quotient if quotient <= limits.max else limits.min


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8"])
def test_integer_division_by_zero_is_zero(bench: Workbench, dtype: str) -> None:
    a, b = np.array([5, 0, 3], dtype), np.zeros(3, dtype)
    for name in ("div", "mod"):
        np.testing.assert_array_equal(binary(bench, name, a, b), [0, 0, 0])


@pytest.mark.parametrize("name", ["and", "or", "xor", "equal"])
def test_logic(bench: Workbench, name: str) -> None:
    a = np.array([False, False, True, True])
    b = np.array([False, True, False, True])
    np.testing.assert_array_equal(binary(bench, name, a, b), FUNCTIONS[name](a, b))


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_bits(bench: Workbench, dtype: str) -> None:
    limits, bits = np.iinfo(dtype), np.iinfo(dtype).bits
    values = np.array([0, 1, -1, 2, 5, -7, 100, limits.min, limits.max], dtype)
    a, b = [v.ravel() for v in np.meshgrid(values, values)]
    for name, function in (("and", np.bitwise_and), ("or", np.bitwise_or), ("xor", np.bitwise_xor)):
        np.testing.assert_array_equal(binary(bench, name, a, b), function(a, b))
    a, b = [v.ravel() for v in np.meshgrid(values, np.arange(bits, dtype=dtype))]
    for name in ("shift_left", "shift_right"):
        np.testing.assert_array_equal(binary(bench, name, a, b), FUNCTIONS[name](a, b))
    unsigned = [v.view(f"u{v.dtype.name}") for v in (a, b)]
    result = binary(bench, "shift_right_unsigned", a, b).view(unsigned[0].dtype)
    np.testing.assert_array_equal(result, np.right_shift(*unsigned))
    far = np.array([bits, -1, limits.max, limits.min], dtype)
    for name, wanted in (("shift_left", 0), ("shift_right", -1), ("shift_right_unsigned", 0)):
        np.testing.assert_array_equal(binary(bench, name, np.full(4, -5, dtype), far), np.full(4, wanted))


@pytest.mark.parametrize(("name", "function"), [("mod", np.mod), ("fmod", np.fmod)])
def test_remainders_of_doubles(bench: Workbench, name: str, function) -> None:
    corners = np.array([0.0, -0.0, 1, -1, 2.5, -3.75, np.inf, -np.inf, np.nan, 1e300, -1e300, 5e-324, 1e-310, 3, 0.1])
    rng = np.random.default_rng(6)
    spread = np.exp(rng.uniform(-40, 40, 40)) * rng.choice([-1, 1], 40)
    a, b = [v.ravel() for v in np.meshgrid(np.concatenate([corners, spread]), np.concatenate([corners, spread]))]
    with np.errstate(all="ignore"):
        wanted = function(a, b)
    result = binary(bench, name, a, b)
    np.testing.assert_array_equal(result, wanted)
    known = ~np.isnan(wanted)
    np.testing.assert_array_equal(np.signbit(result[known]), np.signbit(wanted[known]))


@pytest.mark.parametrize("activation", range(1, 9))
def test_activation_of_the_result(bench: Workbench, activation: int) -> None:
    from .test_gemm import ACTIVATIONS

    rng = np.random.default_rng(4)
    a, b = operand(rng, (7, 301), "float32"), operand(rng, (301,), "float32")
    result = binary(bench, "add", a, b, activation, -0.5, 1.5)
    np.testing.assert_allclose(result, ACTIVATIONS[activation](a.astype(np.float64) + b), rtol=1e-5, atol=2e-6)


def test_operands_with_other_strides(bench: Workbench) -> None:
    """A transposed operand needs no copy."""
    a = np.arange(35, dtype=np.float32).reshape(5, 7)
    b = np.arange(35, dtype=np.float32).reshape(7, 5)
    y = bench.out((5, 7))
    bench.call(
        "binary",
        units=35,
        op=CODES["add"],
        type=1,
        a=bench.put(a),
        b=bench.put(b),
        y=y,
        rank=2,
        shape=bench.put(np.array([5, 7], np.int64)),
        a_strides=bench.put(np.array([7, 1], np.int64)),
        b_strides=bench.put(np.array([1, 5], np.int64)),
        activation=0,
        low=0,
        high=0,
    )
    np.testing.assert_array_equal(bench.get(y), a + b.T)


def test_y_may_be_an_operand(bench: Workbench, engine: Engine) -> None:
    a, b = np.arange(20, dtype=np.float32).reshape(4, 5), np.arange(5, dtype=np.float32)
    address = bench.put(a)
    engine.call(
        "binary",
        units=20,
        op=CODES["mul"],
        type=1,
        a=address,
        b=bench.put(b),
        y=address,
        rank=2,
        shape=bench.put(np.array([4, 5], np.int64)),
        a_strides=bench.put(np.array([5, 1], np.int64)),
        b_strides=bench.put(np.array([0, 1], np.int64)),
        activation=0,
        low=0,
        high=0,
    )
    np.testing.assert_array_equal(engine.read(address, np.float32, a.shape), a * b)


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float32", "int64"])
@pytest.mark.parametrize(
    ("mask", "first", "second"),
    [
        ((), (), ()),
        ((0,), (1,), ()),
        ((1000,), (1000,), (1000,)),
        ((1, 1, 9, 9), (2, 3, 9, 9), ()),
        ((9, 9), (), (2, 3, 9, 9)),
        ((5, 1), (1, 6), (5, 6)),
        ((4, 1, 3), (2, 1, 5, 1), (1, 4, 5, 3)),
    ],
)
def test_where(bench: Workbench, mask, first, second, dtype: str) -> None:
    rng = np.random.default_rng(5)
    condition = rng.integers(0, 2, mask).astype(np.uint8)
    a, b = rng.integers(0, 100, first).astype(dtype), rng.integers(0, 100, second).astype(dtype)
    shape = np.broadcast_shapes(mask, first, second)
    y = bench.out(shape, dtype)
    bench.call(
        "where",
        units=int(np.prod(shape)),
        size=np.dtype(dtype).itemsize,
        condition=bench.put(condition),
        a=bench.put(a),
        b=bench.put(b),
        y=y,
        rank=len(shape),
        shape=bench.put(np.array(shape, np.int64)),
        condition_strides=bench.put(strides(mask, shape)),
        a_strides=bench.put(strides(first, shape)),
        b_strides=bench.put(strides(second, shape)),
    )
    np.testing.assert_array_equal(bench.get(y), np.where(condition, a, b))


@pytest.mark.parametrize("exponent", [2, 1, 3, -1, 0.5, 0, -0.5, np.nan, np.inf])
def test_powers_with_one_exponent(bench: Workbench, exponent: float) -> None:
    corners = [0.0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 1e-45, 3e38, -3e38, 2, -2]
    a = np.array(corners + list(np.linspace(-3, 3, 50)), np.float32)
    with np.errstate(all="ignore"):
        wanted = np.power(a.astype(np.float64), np.full(a.shape, exponent)).astype(np.float32)
    np.testing.assert_allclose(binary(bench, "pow", a, np.array(exponent, np.float32)), wanted, rtol=3e-7)
