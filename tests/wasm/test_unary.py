"""Elementwise functions of one operand against NumPy in float64, and vectors' functions at their corners."""

from __future__ import annotations

import math
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from onnxlet_wasm.engine import Engine, f32

from .workbench import Workbench

COUNTS = [0, 1, 3, 4, 7, 8, 9, 31, 1000]
CORNERS = np.array(
    [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1e-38, 3e38, -3e38, 88.7, 88.8, -87.4, -103.9, -105,
     0.5, -0.5, 1.5, 2.5, -2.5, 8388607.5, 16777216.0, 1e10, -1e10],
    np.float32,
)  # fmt: skip
ALPHA, BETA = 0.75, 1.25

erf = np.vectorize(math.erf, otypes=[np.float64])


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def softplus(x: np.ndarray) -> np.ndarray:
    return np.log1p(np.exp(-np.abs(x))) + np.maximum(x, 0)


FUNCTIONS: list[tuple[str, Callable[[np.ndarray], np.ndarray]]] = [
    ("abs", np.abs),
    ("neg", np.negative),
    ("exp", np.exp),
    ("log", np.log),
    ("sqrt", np.sqrt),
    ("rsqrt", lambda x: 1 / np.sqrt(x)),
    ("reciprocal", lambda x: 1 / x),
    ("sin", np.sin),
    ("cos", np.cos),
    ("tanh", np.tanh),
    ("sigmoid", sigmoid),
    ("erf", erf),
    ("gelu", lambda x: 0.5 * x * (1 + erf(x / math.sqrt(2)))),
    ("gelu_tanh", lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))),
    ("silu", lambda x: x * sigmoid(x)),
    ("relu", lambda x: np.maximum(x, 0)),
    ("leaky_relu", lambda x: np.where(x < 0, ALPHA * x, x)),
    ("elu", lambda x: np.where(x < 0, ALPHA * np.expm1(x), x)),
    ("selu", lambda x: BETA * np.where(x < 0, ALPHA * np.expm1(x), x)),
    ("celu", lambda x: np.where(x < 0, ALPHA * np.expm1(x / ALPHA), x)),
    ("softplus", softplus),
    ("softsign", lambda x: x / (1 + np.abs(x))),
    ("hard_sigmoid", lambda x: np.clip(ALPHA * x + BETA, 0, 1)),
    ("hard_swish", lambda x: x * np.clip(x / 6 + 0.5, 0, 1)),
    ("mish", lambda x: x * np.tanh(softplus(x))),
    ("floor", np.floor),
    ("ceil", np.ceil),
    ("round", np.rint),
    ("sign", np.sign),
    ("clip", lambda x: np.clip(x, ALPHA, BETA)),
    ("thresholded_relu", lambda x: np.where(x > ALPHA, x, 0)),
    ("swish", lambda x: x * sigmoid(ALPHA * x)),
    ("affine", lambda x: ALPHA * x + BETA),
    ("square", np.square),
    ("expm1", np.expm1),
    ("bfloat16", lambda x: x.astype(np.float32).astype(ml_dtypes.bfloat16)),
]
CODES = {name: code for code, (name, _) in enumerate(FUNCTIONS)}


def unary(bench: Workbench, name: str, x: np.ndarray) -> np.ndarray:
    y = bench.out(x.shape)
    bench.call("unary", units=x.size, op=CODES[name], x=bench.put(x), y=y, alpha=f32(ALPHA), beta=f32(BETA))
    return bench.get(y)


def exact(function: Callable[[np.ndarray], np.ndarray], x: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return function(x.astype(np.float64)).astype(np.float32)


@pytest.mark.parametrize(("name", "function"), FUNCTIONS)
def test_functions_agree_with_numpy(bench: Workbench, name: str, function: Callable[[np.ndarray], np.ndarray]) -> None:
    rng = np.random.default_rng(CODES[name])
    for count in COUNTS:
        x = (rng.standard_normal(count) * 3).astype(np.float32)
        np.testing.assert_allclose(unary(bench, name, x), exact(function, x), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("name", "function"), FUNCTIONS)
def test_corners_agree_with_numpy(bench: Workbench, name: str, function: Callable[[np.ndarray], np.ndarray]) -> None:
    x = CORNERS
    if name == "mish":  # -inf * 0 in one formula, its limit in another
        x = x[x != -np.inf]
    np.testing.assert_allclose(unary(bench, name, x), exact(function, x), rtol=1e-5, atol=1e-37)


@pytest.mark.parametrize(
    ("name", "function", "ulps", "low", "high"),
    [
        ("exp", np.exp, 1.1, -87, 88.7),
        ("expm1", np.expm1, 1.4, -20, 10),
        ("tanh", np.tanh, 7, -12, 12),
        ("sigmoid", sigmoid, 4, -87, 87),
        ("softplus", softplus, 3, -80, 80),
        ("erf", erf, 8, -5, 5),
        ("log", lambda x: np.log(np.abs(x)), 1.1, 1e-30, 1e30),
    ],
)
def test_errors_are_as_small_as_the_header_says(bench: Workbench, name, function, ulps, low, high) -> None:
    rng = np.random.default_rng(1)
    x = np.concatenate([rng.uniform(low, high, 20000), np.exp(rng.uniform(-50, 3, 20000))]).astype(np.float32)
    x = x[(x >= low) & (x <= high)]
    wanted = function(x.astype(np.float64))
    error = np.abs(unary(bench, name, x) - wanted) / np.spacing(np.abs(wanted).astype(np.float32))
    assert error.max() <= ulps


@pytest.mark.parametrize(("name", "function"), [("sin", np.sin), ("cos", np.cos)])
def test_sine_and_cosine_of_every_size(bench: Workbench, name: str, function) -> None:
    bits = np.random.default_rng(2).integers(0, 1 << 32, 20000, dtype=np.uint32)
    x = bits.view(np.float32)
    x = x[np.isfinite(x)]
    np.testing.assert_allclose(unary(bench, name, x), function(x.astype(np.float64)), rtol=0, atol=2e-7)


def test_y_may_be_x(bench: Workbench, engine: Engine) -> None:
    x = np.linspace(-3, 3, 37, dtype=np.float32)
    address = bench.put(x)
    engine.call("unary", units=x.size, op=CODES["exp"], x=address, y=address, alpha=0, beta=0)
    np.testing.assert_allclose(engine.read(address, np.float32, x.shape), np.exp(x), rtol=1e-6)


def test_logical_not(bench: Workbench) -> None:
    x = np.array([0, 1, 2, 255, 0, 0, 1], np.uint8)
    y = bench.out(x.shape, np.uint8)
    bench.call("logical_not", units=x.size, x=bench.put(x), y=y)
    np.testing.assert_array_equal(bench.get(y), x == 0)


@pytest.mark.parametrize(
    ("op", "function"), [(0, np.isnan), (1, np.isinf), (2, lambda x: x == np.inf), (3, lambda x: x == -np.inf)]
)
def test_classification(bench: Workbench, op: int, function) -> None:
    y = bench.out(CORNERS.shape, np.uint8)
    bench.call("classify", units=CORNERS.size, op=op, x=bench.put(CORNERS), y=y)
    np.testing.assert_array_equal(bench.get(y), function(CORNERS))
