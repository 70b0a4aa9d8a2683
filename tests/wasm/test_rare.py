"""Functions in float64 against NumPy, and the kernel's products of other types."""

from __future__ import annotations

import numpy as np
import pytest

from .workbench import Workbench

FUNCTIONS = {
    "abs": np.abs, "neg": np.negative, "exp": np.exp, "log": np.log, "sqrt": np.sqrt, "reciprocal": lambda x: 1 / x,
    "tanh": np.tanh, "sigmoid": lambda x: np.where(x < 0, np.exp(-abs(x)), 1) / (1 + np.exp(-abs(x))),
    "softplus": lambda x: np.maximum(x, 0) + np.log1p(np.exp(-abs(x))), "erf": None, "floor": np.floor, "ceil": np.ceil,
    "round": np.rint, "sign": np.sign, "sinh": np.sinh, "cosh": np.cosh, "asin": np.arcsin, "acos": np.arccos,
    "atan": np.arctan, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh, "tan": np.tan,
}  # fmt: skip
CODES = {name: code for code, name in enumerate(FUNCTIONS)}
CORNERS = np.array([
    0, -0.0, 1, -1, 0.5, np.nan, np.inf, -np.inf, 1e-10, 1e-40, 1e-310, 5e-324, 0.46875, 2.5, 3.5, 4, 5.9, 6.1, 20, 36,
    37, 88, 709.7, 709.8, -745, -746, 1e5, 8192.5, 12345.678, 1e8, 1e30, -1e30, 1 - 1e-16, 1 + 1e-15, 1e300,
])  # fmt: skip


def values(rng: np.random.Generator) -> np.ndarray:
    spread = np.exp(rng.uniform(-30, 8, 2000)) * rng.choice([-1, 1], 2000)
    return np.concatenate([CORNERS, rng.standard_normal(500), rng.uniform(-1, 1, 500), 1 + rng.random(200), spread])


def unary(bench: Workbench, name: str, x: np.ndarray) -> np.ndarray:
    y = bench.out(x.shape, x.dtype)
    bench.call("unary_double", units=x.size, op=CODES[name], type={"float32": 1, "float64": 11}[x.dtype.name],
               x=bench.put(x), y=y)  # fmt: skip
    return bench.get(y)


@pytest.mark.parametrize("name", [n for n in FUNCTIONS if n not in ("erf", "tan")])
def test_doubles(bench: Workbench, name: str) -> None:
    x = values(np.random.default_rng(CODES[name]))
    with np.errstate(all="ignore"):
        expected = FUNCTIONS[name](x)
        np.testing.assert_allclose(unary(bench, name, x), expected, rtol=3e-15, atol=1e-320)


def test_error_function(bench: Workbench) -> None:
    import math

    x = values(np.random.default_rng(0))
    np.testing.assert_allclose(unary(bench, "erf", x), [math.erf(v) for v in x], rtol=1e-15)


@pytest.mark.parametrize("name", ["sinh", "cosh", "asin", "acos", "atan", "asinh", "acosh", "atanh", "tan"])
def test_singles_are_rounded_once(bench: Workbench, name: str) -> None:
    rng = np.random.default_rng(3)
    with np.errstate(all="ignore"):
        x = np.concatenate([values(rng), np.exp(rng.uniform(0, 88, 500))]).astype(np.float32)
        expected = FUNCTIONS[name](x.astype(np.float64)).astype(np.float32)
    np.testing.assert_allclose(unary(bench, name, x), expected, rtol=1.3e-7)


@pytest.mark.parametrize("name", ["tanh", "atan", "asinh", "sinh", "atanh", "asin"])
def test_odd_functions_keep_zeros(bench: Workbench, name: str) -> None:
    x = np.array([0.0, -0.0])
    np.testing.assert_array_equal(np.signbit(unary(bench, name, x)), [False, True])


def test_empty(bench: Workbench) -> None:
    assert unary(bench, "exp", np.empty((0, 3))).shape == (0, 3)


TYPES = {"int32": 6, "int64": 7, "float64": 11}


def matmul(bench: Workbench, a: np.ndarray, b: np.ndarray, transpose_a: bool = False, transpose_b: bool = False):
    """Stacks of matrices of equal rank, or with 1 for a stack's size."""
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    (m, k), n = a.shape[-2:], b.shape[-1]
    y = bench.out((*batch, m, n), a.dtype)
    # A transposed operand is the same product of memory that lies otherwise.
    first, second = (x.swapaxes(-1, -2) if t else x for x, t in ((a, transpose_a), (b, transpose_b)))
    strides = [
        np.array(np.broadcast_to(np.empty(x.shape[:-2], np.uint8), batch).strides, np.int64) * x.shape[-1] * x.shape[-2]
        for x in (a, b)
    ]
    bench.call(
        "matmul_any", units=int(np.prod(batch, dtype=int)) * m, type=TYPES[a.dtype.name], a=bench.put(first),
        b=bench.put(second), y=y, m=m, n=n, k=k, a_row=1 if transpose_a else k, a_step=m if transpose_a else 1,
        b_step=1 if transpose_b else n, b_column=k if transpose_b else 1, rank=len(batch),
        shape=bench.put(np.array(batch, np.int64)), a_strides=bench.put(strides[0]), b_strides=bench.put(strides[1]),
    )  # fmt: skip
    return bench.get(y)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("transposed", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize(("first", "second"), [
    ((3, 4), (4, 5)), ((1, 1), (1, 1)), ((2, 3, 7), (2, 7, 1)), ((3, 1, 2, 6), (1, 4, 6, 5)), ((2, 0), (0, 3)),
    ((0, 2), (2, 3)),
])  # fmt: skip
def test_matmul(bench: Workbench, dtype: str, transposed, first, second) -> None:
    rng = np.random.default_rng(1)
    a, b = ((rng.standard_normal(s) * 9).astype(dtype) for s in (first, second))
    np.testing.assert_allclose(matmul(bench, a, b, *transposed), np.matmul(a, b), rtol=1e-13, atol=1e-13)


def test_integers_wrap(bench: Workbench) -> None:
    for dtype in (np.int32, np.int64):
        limits = np.iinfo(dtype)
        a = np.array([[limits.max, limits.min], [3, -1]], dtype)
        np.testing.assert_array_equal(matmul(bench, a, a), np.matmul(a, a))
