"""Elementwise operators through compiled programs, against ONNX's reference evaluator and NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from .helpers import check, node, refusal

RNG = np.random.default_rng(7)
SHAPES = [(), (1,), (5,), (0, 3), (3, 1, 7), (2, 3, 5, 7), (1, 2, 3, 2, 3, 2)]


def floats(*shape: int, low: float = -3.0, high: float = 3.0) -> np.ndarray:
    return RNG.uniform(low, high, shape).astype(np.float32)


UNARY = [
    ("Abs", {}), ("Neg", {}), ("Exp", {}), ("Sin", {}), ("Cos", {}), ("Tanh", {}), ("Sigmoid", {}), ("Erf", {}),
    ("Relu", {}), ("LeakyRelu", {}), ("LeakyRelu", {"alpha": 0.3}), ("Elu", {}), ("Elu", {"alpha": 2.0}), ("Selu", {}),
    ("Celu", {"alpha": 0.7}), ("Softplus", {}), ("Softsign", {}), ("HardSigmoid", {}),
    ("HardSigmoid", {"alpha": 0.3, "beta": 0.4}), ("HardSwish", {}), ("Mish", {}), ("Floor", {}), ("Ceil", {}),
    ("Round", {}), ("Sign", {}), ("ThresholdedRelu", {"alpha": 0.5}), ("Reciprocal", {}), ("Log", {}), ("Sqrt", {}),
    ("Gelu", {}), ("Gelu", {"approximate": "tanh"}),
]  # fmt: skip


@pytest.mark.parametrize(("operator", "attributes"), UNARY, ids=str)
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3, 5, 7)], ids=str)
def test_unary(provider, operator, attributes, shape):
    x = floats(*shape)
    if operator in ("Log", "Sqrt", "Reciprocal"):
        x = np.abs(x) + np.float32(0.1)
    check(provider, node(operator, "x", **attributes), {"x": x})


def test_unary_on_specials(provider):
    x = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0], np.float32)
    for operator in ("Relu", "Tanh", "Sigmoid", "Abs", "Sign", "Exp"):
        check(provider, node(operator, "x"), {"x": x})


@pytest.mark.parametrize(
    ("operator", "attributes"),
    [
        ("Celu", {"alpha": np.inf}),
        ("Celu", {"alpha": -np.inf}),
        ("Celu", {"alpha": 0.0}),
        ("Celu", {"alpha": -1.0}),
        ("Selu", {"gamma": np.inf}),
        ("Elu", {"alpha": np.nan}),
        ("HardSigmoid", {"beta": -np.inf}),
    ],
    ids=str,
)
def test_no_kernel_for_parameters_without_a_limit(provider, operator, attributes):
    """A kernel takes the branch of a number; its formula on the other branch, such as 0 times infinity, is NaN."""
    x = np.array([0.0, -1.0, 2.0], np.float32)
    assert "parameters" in (refusal(provider, node(operator, "x", **attributes), {"x": x}) or "")


PAIRS = [
    ((), ()), ((3,), ()), ((2, 3, 4), (4,)), ((2, 3, 4), (3, 1)), ((2, 1, 4), (3, 1)), ((0, 3), (1, 3)),
    ((2, 3, 4, 5), (1, 3, 1, 1)), ((1, 3, 1, 1), (2, 3, 4, 5)), ((2, 3, 2, 3, 2, 2, 2), (2, 3, 1, 1, 2)),
]  # fmt: skip


@pytest.mark.parametrize("shapes", PAIRS, ids=str)
@pytest.mark.parametrize(
    "operator", ["Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Less", "GreaterOrEqual", "Equal"]
)
@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.int32], ids=lambda t: t.__name__)
def test_binary(provider, shapes, operator, dtype):
    a, b = (np.asarray(RNG.integers(1, 5, s), dtype) for s in shapes)
    if dtype == np.float32:
        a, b = a + RNG.random(a.shape, np.float32), b + RNG.random(b.shape, np.float32) - np.float32(0.5)
        a, b = (np.asarray(v, np.float32) for v in (a, b))
    check(provider, node(operator, "a b"), {"a": a, "b": b})


@pytest.mark.parametrize("operator", ["And", "Or", "Xor"])
def test_logical(provider, operator):
    a, b = RNG.random((3, 1, 5)) > 0.5, RNG.random((4, 1)) > 0.5
    check(provider, node(operator, "a b"), {"a": a, "b": b})
    check(provider, node("Not", "a"), {"a": a})


@pytest.mark.parametrize(("operator", "attributes"), [("IsNaN", {}), ("IsInf", {}), ("IsInf", {"detect_negative": 0})])
def test_classify(provider, operator, attributes):
    x = np.array([[1, np.nan, np.inf], [-np.inf, 0, -1]], np.float32)
    check(provider, node(operator, "x", **attributes), {"x": x})


@pytest.mark.parametrize("operator", ["Max", "Min", "Sum", "Mean"])
@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_variadic(provider, operator, count):
    shapes = [(2, 3, 4), (4,), (3, 1), (1, 1, 1), (2, 3, 4)][:count]
    feeds = {f"x{i}": floats(*s) for i, s in enumerate(shapes)}
    check(provider, node(operator, " ".join(feeds)), feeds)


@pytest.mark.parametrize("fmod", [0, 1])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_modulo(provider, fmod, dtype):
    a = np.arange(-7, 8, dtype=dtype).reshape(15, 1)
    b = np.array([-3, 2, 5, -1], dtype)
    check(provider, node("Mod", "a b", fmod=fmod), {"a": a, "b": b})


def test_prelu(provider):
    check(provider, node("PRelu", "x s"), {"x": floats(2, 3, 4, 4)}, {"s": floats(3, 1, 1)})


@pytest.mark.parametrize(
    "exponent",
    [np.float32(2), np.array([2], np.int64), np.array([3, 0.5, -1], np.float32), np.array([0, 2, 3])],
    ids=str,
)
def test_power_of_constant(provider, exponent):
    check(provider, node("Pow", "x e"), {"x": floats(2, 3, low=0.5)}, {"e": np.asarray(exponent)})


def test_clip_forms(provider):
    x = floats(3, 4)
    low, high = np.array(-0.5, np.float32), np.array(0.75, np.float32)
    check(provider, node("Clip", "x low high"), {"x": x}, {"low": low, "high": high})
    check(provider, node("Clip", "x low high"), {"x": x, "low": low, "high": high})
    check(provider, node("Clip", "x - high"), {"x": x, "high": high})
    check(provider, node("Clip", "x"), {"x": x})
    check(provider, node("Clip", "x", version=6, min=-0.5, max=0.5), {"x": x})
    integers = np.arange(-5, 5)
    check(provider, node("Clip", "x low -"), {"x": integers}, {"low": np.array(-2)})


def test_clip_lets_nan_through(provider):
    x = np.array([np.nan, 2.0, -2.0], np.float32)
    bounds = {"low": np.array(-1, np.float32), "high": np.array(1, np.float32)}
    check(provider, node("Clip", "x low high"), {"x": x}, bounds)


def test_negate_integers(provider):
    check(provider, node("Neg", "x"), {"x": np.array([[1, -2], [0, 7]])})


def test_bias_gelu(provider):
    from math import erf

    def reference(x, b=0.0):
        return np.vectorize(lambda v: 0.5 * v * (1 + erf(v / 2**0.5)))(x + b).astype(np.float32)

    one = node("BiasGelu", "x b", domain="com.microsoft", version=1)
    check(provider, one, {"x": floats(2, 3, 5)}, {"b": floats(5)}, references={"BiasGelu": reference})


def test_refusals_name_the_reason(provider):
    assert "float64" in (refusal(provider, node("Selu", "x"), {"x": np.ones(3)}) or "")
    assert "NonZero" in (refusal(provider, node("NonZero", "x"), {"x": np.ones(3, np.float32)}) or "")
    nine = np.ones((1,) * 9, np.float32)
    assert "8 dimensions" in (refusal(provider, node("Add", "x x"), {"x": nine}) or "")
