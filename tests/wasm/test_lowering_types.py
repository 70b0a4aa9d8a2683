"""Element types beyond float32, through compiled programs, against their NumPy definitions."""

from __future__ import annotations

import numpy as np
import pytest

import onnxlet.ops  # noqa: F401
from onnxlet.ops.registry import find

from .helpers import check, node, refusal

RNG = np.random.default_rng(23)
INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]


def definition(operator: str, version: int = 21, domain: str = ""):
    found = find(operator, domain, version)
    assert found is not None, operator
    return {operator: found.function}


def whole(dtype: str, *shape: int) -> np.ndarray:
    """Numbers of all sizes, the extremes among them."""
    limits = np.iinfo(dtype)
    values = RNG.integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)
    values.flat[:2] = limits.min, limits.max
    return values


def agree(provider, operator: str, *arrays: np.ndarray, version: int = 21, rtol=1e-13, constant=(), **attributes):
    names = "abcd"[: len(arrays)]
    fed = {n: a for i, (n, a) in enumerate(zip(names, arrays, strict=True)) if i not in constant}
    held = {n: a for i, (n, a) in enumerate(zip(names, arrays, strict=True)) if i in constant}
    with np.errstate(all="ignore"):
        one = node(operator, " ".join(names), version=version, **attributes)
        check(provider, one, fed, held, rtol=rtol, atol=1e-300, references=definition(operator, version))


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("operator", ["Add", "Sub", "Mul", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Equal"])
def test_integers_as_they_are(provider, operator, dtype):
    agree(provider, operator, whole(dtype, 3, 4, 5), whole(dtype, 4, 1))
    agree(provider, operator, whole(dtype, 3, 4, 5), np.array(7, dtype))


@pytest.mark.parametrize("dtype", [t for t in INTEGERS if t != "uint64"])
@pytest.mark.parametrize("operator", ["Div", "Mod", "Less", "GreaterOrEqual", "Max", "Min"])
def test_integers_with_an_order(provider, operator, dtype):
    a, b = whole(dtype, 40), RNG.choice(np.array([1, 2, 7, 100], dtype), 40)
    agree(provider, operator, a, b)
    if np.dtype(dtype).kind == "i":
        agree(provider, operator, a[1:], -b[1:])
        if operator == "Mod":
            agree(provider, operator, a[1:], -b[1:], fmod=1)


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("operator", ["BitwiseNot", "Neg", "Abs", "Sign"])
def test_functions_of_integers(provider, operator, dtype):
    if operator != "BitwiseNot" and (dtype == "uint64" or (dtype[0] == "u" and operator == "Neg")):
        return
    agree(provider, operator, whole(dtype, 3, 5))


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
def test_shifts(provider, dtype, direction):
    agree(provider, "BitShift", whole(dtype, 80), np.arange(80).astype(dtype), version=28, direction=direction)


def test_bounds_of_small_integers(provider):
    agree(provider, "Clip", whole("int8", 50), np.array(-3, np.int8), np.array(90, np.int8))


@pytest.mark.parametrize("operator", ["ReduceSum", "ReduceMax", "ReduceProd"])
def test_reductions_of_unsigned_numbers(provider, operator):
    agree(provider, operator, whole("uint32", 3, 4), np.array([1]), constant=[1])


def test_float_to_the_power_of_computed_integers(provider):
    x = RNG.uniform(0.5, 2, (3, 4)).astype(np.float32)
    agree(provider, "Pow", x, RNG.integers(-3, 4, (4,)), rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_remainders(provider, dtype):
    a, b = (RNG.standard_normal(s).astype(dtype) * 9 for s in ((5, 6), (6,)))
    agree(provider, "Mod", a, b, fmod=1)


SPECIALS = np.array([0, -0.0, 1, -1, 0.3, np.nan, np.inf, -np.inf, 1e-300, 50, -50])


@pytest.mark.parametrize(
    "operator",
    [
        *("Abs", "Neg", "Exp", "Log", "Sqrt", "Reciprocal", "Tanh", "Sigmoid", "Softplus", "Erf", "Floor", "Ceil"),
        *("Round", "Sign", "Sinh", "Cosh", "Asin", "Acos", "Atan", "Asinh", "Acosh", "Atanh", "Relu", "LeakyRelu"),
        *("HardSigmoid", "Elu", "Gelu", "Softsign", "IsNaN", "IsInf"),
    ],
)
def test_functions_of_doubles(provider, operator):
    x = np.concatenate([SPECIALS, RNG.standard_normal(90)])
    agree(provider, operator, x, rtol=1e-13 if operator != "Gelu" else 1e-10)


@pytest.mark.parametrize("operator", ["Sinh", "Cosh", "Asin", "Acos", "Atan", "Asinh", "Acosh", "Atanh", "Tan"])
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3, 5)], ids=str)
def test_rare_functions(provider, operator, shape):
    agree(provider, operator, RNG.uniform(-2, 2, shape).astype(np.float32), rtol=1e-6)


@pytest.mark.parametrize("operator", ["Add", "Sub", "Mul", "Div", "Max", "Min", "Less", "Equal", "PRelu"])
def test_arithmetic_of_doubles(provider, operator):
    agree(provider, operator, RNG.standard_normal((3, 4, 5)), RNG.standard_normal((4, 1)))


def test_small_things_of_doubles(provider):
    x = RNG.standard_normal((3, 4))
    agree(provider, "Clip", x, np.array(-0.5), np.array(0.7))
    agree(provider, "Clip", x, version=6, min=-0.2)
    agree(provider, "Gelu", x, approximate="tanh")
    agree(provider, "IsInf", SPECIALS, detect_negative=0)
    for exponent in (2.0, 3.0, -1.0, 1.0):
        agree(provider, "Pow", np.concatenate([x.ravel(), SPECIALS]), np.array(exponent), constant=[1])
    # As C has it; NumPy takes the square root where there is but one exponent.
    references = {"Pow": lambda a, b: np.power(a, np.full(a.shape, b))}
    with np.errstate(invalid="ignore"):
        check(provider, node("Pow", "a b"), {"a": SPECIALS}, {"b": np.array(0.5)}, references=references)
    agree(provider, "Sum", x, x[0], x[:, :1])
    agree(provider, "Mean", x, x[0], x[:, :1])


@pytest.mark.parametrize("operator", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("version", [11, 13])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_softmax_of_doubles(provider, operator, version, axis):
    agree(provider, operator, RNG.standard_normal((3, 4, 5)), version=version, axis=axis, rtol=1e-12)


@pytest.mark.parametrize(("first", "second"), [
    ((4, 5), (5, 3)), ((3, 4, 5), (5, 7)), ((5,), (5,)), ((2, 1, 4, 5), (3, 5, 6)), ((4, 5), (5,)), ((0, 5), (5, 3)),
    ((4, 0), (0, 3)),
])  # fmt: skip
@pytest.mark.parametrize("dtype", ["float64", "int32", "int64"])
def test_products(provider, first, second, dtype):
    a, b = ((RNG.standard_normal(s) * 9).astype(dtype) for s in (first, second))
    agree(provider, "MatMul", a, b, rtol=1e-12)


@pytest.mark.parametrize(
    "attributes", [{}, {"transA": 1, "transB": 1}, {"alpha": 0.5, "beta": 2.0}, {"beta": 0.0}], ids=str
)
def test_gemm_of_doubles(provider, attributes):
    shapes = ((5, 4), (3, 5)) if attributes.get("transA") else ((4, 5), (5, 3))
    a, b = (RNG.standard_normal(s) for s in shapes)
    agree(provider, "Gemm", a, b, RNG.standard_normal(3), **attributes)
    agree(provider, "Gemm", a, b, RNG.standard_normal((4, 1)), **attributes)


def test_what_stays(provider):
    a = whole("uint64", 3)
    reason = refusal(provider, node("Less", "a a"), {"a": a}, references=definition("Less"))
    assert reason == "uint64 has no kernel here"
    half = node("Pow", "a b")
    reason = refusal(provider, half, {"a": np.ones(3)}, {"b": np.array(0.7)}, references=definition("Pow"))
    assert "0.7" in (reason or "")
