"""Elementwise arithmetic."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from .common import in_float32, limited_broadcast
from .registry import op


@op("Add", since=7)
@in_float32
def add(a: np.ndarray, b: np.ndarray):
    return np.add(a, b)


@op("Sub", since=7)
@in_float32
def sub(a: np.ndarray, b: np.ndarray):
    return np.subtract(a, b)


@op("Mul", since=7)
@in_float32
def mul(a: np.ndarray, b: np.ndarray):
    return np.multiply(a, b)


@op("Div", since=7)
@in_float32
def div(a: np.ndarray, b: np.ndarray):
    """Integer division truncates toward zero."""
    if a.dtype.kind == "f":
        return np.divide(a, b)
    # The remainder of fmod has the dividend's sign, so what is left divides without one.
    return np.floor_divide(a - np.fmod(a, b), b)


@op("Pow", since=7)
def pow_(x: np.ndarray, y: np.ndarray):
    """The result has the base's type, whatever the exponent's (Pow-12)."""
    return _power_of_integers(x, y) if x.dtype.kind in "iu" else _power_of_floats(x, y)


@in_float32
def _power_of_floats(x: np.ndarray, y: np.ndarray):
    if y.dtype.kind in "iu" or y.dtype.itemsize < x.dtype.itemsize:
        y = y.astype(x.dtype)
    return np.power(x, y).astype(x.dtype, copy=False)


@in_float32
def _power_of_integers(x: np.ndarray, y: np.ndarray):
    if y.dtype.kind == "f":
        return np.power(x.astype(np.float64), y).astype(x.dtype)
    base, exponent = np.broadcast_arrays(x, y)
    powers = np.power(base, np.maximum(exponent, 0).astype(x.dtype))
    if y.dtype.kind == "u":
        return powers
    # 1 / base ** n, truncated: 0 but for a base of 1 or -1.
    odd = (exponent & 1).astype(x.dtype)
    inverse = np.where(base == 1, 1, np.where(base == -1, 1 - 2 * odd, 0)).astype(x.dtype)
    return np.where(exponent < 0, inverse, powers)


for _name, _function in {"Add": add, "Sub": sub, "Mul": mul, "Div": div, "Pow": pow_}.items():
    op(_name)(limited_broadcast(_function))


@op("Mod", since=10)
@in_float32
def mod(a: np.ndarray, b: np.ndarray, *, fmod: int = 0):
    """The remainder has the divisor's sign, or with `fmod` the dividend's."""
    return np.fmod(a, b) if fmod else np.mod(a, b)


@op("Max")
@in_float32
def max_(*xs: np.ndarray):
    """NaN if any is."""
    return functools.reduce(np.maximum, xs)


@op("Min")
@in_float32
def min_(*xs: np.ndarray):
    """NaN if any is."""
    return functools.reduce(np.minimum, xs)


@op("Sum")
@in_float32
def sum_(*xs: np.ndarray):
    return functools.reduce(np.add, xs)


@op("Mean")
@in_float32
def mean(*xs: np.ndarray):
    return functools.reduce(np.add, xs) / len(xs)


@op("Clip")
@in_float32
def clip_1(x: np.ndarray, *, min: float | None = None, max: float | None = None):
    return _clip(x, min, max)


@op("Clip", since=11)
@in_float32
def clip(x: np.ndarray, min: np.ndarray | None = None, max: np.ndarray | None = None):
    """A bound that is absent does not bound (infinities pass). NaN passes. `max` wins over a `min` above it."""
    return _clip(x, min, max)


def _clip(x: np.ndarray, low: Any, high: Any):
    if low is not None:
        x = np.maximum(x, np.asarray(low).reshape(()).astype(x.dtype))
    if high is not None:
        x = np.minimum(x, np.asarray(high).reshape(()).astype(x.dtype))
    return x


@op("Abs")
@in_float32
def abs_(x: np.ndarray):
    return np.abs(x)


@op("Neg")
@in_float32
def neg(x: np.ndarray):
    return np.negative(x)


@op("Sign", since=9)
@in_float32
def sign(x: np.ndarray):
    """NaN stays NaN."""
    return np.sign(x)


@op("Reciprocal")
@in_float32
def reciprocal(x: np.ndarray):
    return 1 / x


@op("Floor")
@in_float32
def floor(x: np.ndarray):
    return np.floor(x)


@op("Ceil")
@in_float32
def ceil(x: np.ndarray):
    return np.ceil(x)


@op("Round", since=11)
@in_float32
def round_(x: np.ndarray):
    """Halves go to the even integer."""
    return np.rint(x)


@op("Sqrt")
@in_float32
def sqrt(x: np.ndarray):
    return np.sqrt(x)


@op("Exp")
@in_float32
def exp(x: np.ndarray):
    return np.exp(x)


@op("Log")
@in_float32
def log(x: np.ndarray):
    return np.log(x)


@op("Sin", since=7)
@in_float32
def sin(x: np.ndarray):
    return np.sin(x)


@op("Cos", since=7)
@in_float32
def cos(x: np.ndarray):
    return np.cos(x)


@op("Tan", since=7)
@in_float32
def tan(x: np.ndarray):
    return np.tan(x)


@op("Asin", since=7)
@in_float32
def asin(x: np.ndarray):
    return np.arcsin(x)


@op("Acos", since=7)
@in_float32
def acos(x: np.ndarray):
    return np.arccos(x)


@op("Atan", since=7)
@in_float32
def atan(x: np.ndarray):
    return np.arctan(x)


@op("Sinh", since=9)
@in_float32
def sinh(x: np.ndarray):
    return np.sinh(x)


@op("Cosh", since=9)
@in_float32
def cosh(x: np.ndarray):
    return np.cosh(x)


@op("Asinh", since=9)
@in_float32
def asinh(x: np.ndarray):
    return np.arcsinh(x)


@op("Acosh", since=9)
@in_float32
def acosh(x: np.ndarray):
    return np.arccosh(x)


@op("Atanh", since=9)
@in_float32
def atanh(x: np.ndarray):
    return np.arctanh(x)


@op("Erf", since=9)
@in_float32
def erf(x: np.ndarray):
    """The error function, accurate to the last bits of float64.

    Rational approximations of W. J. Cody, "Rational Chebyshev approximations for the error function", Mathematics of
    Computation 23 (1969): of erf up to 0.46875, of erfc beyond, one up to 4 and another above.
    """
    wide = np.ravel(x).astype(np.float64)
    size = np.abs(wide)
    result = np.sign(wide)  # of NaN and beyond 6, where erf is 1 to the last bit
    near = size <= 0.46875
    middle = (size > 0.46875) & (size <= 4)
    far = (size > 4) & (size < 6)
    z = wide[near]
    square = z * z
    result[near] = z * np.polyval(_NEAR[0], square) / np.polyval(_NEAR[1], square)
    z = size[middle]
    result[middle] *= 1 - np.exp(-z * z) * np.polyval(_MIDDLE[0], z) / np.polyval(_MIDDLE[1], z)
    z = size[far]
    square = 1 / (z * z)
    tail = (_INVERSE_SQRT_PI - square * np.polyval(_FAR[0], square) / np.polyval(_FAR[1], square)) / z
    result[far] *= 1 - np.exp(-z * z) * tail
    return result.astype(x.dtype).reshape(x.shape)


_INVERSE_SQRT_PI = 0.5641895835477562869
# Numerator and denominator, the highest power first.
_NEAR = (
    (1.85777706184603153e-1, 3.16112374387056560, 1.13864154151050156e2, 3.77485237685302021e2, 3.20937758913846947e3),
    (1.0, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3, 2.84423683343917062e3),
)
_MIDDLE = (
    (
        *(2.15311535474403846e-8, 5.64188496988670089e-1, 8.88314979438837594, 6.61191906371416295e1),
        *(2.98635138197400131e2, 8.81952221241769090e2, 1.71204761263407058e3, 2.05107837782607147e3),
        1.23033935479799725e3,
    ),
    (
        *(1.0, 1.57449261107098347e1, 1.17693950891312499e2, 5.37181101862009858e2, 1.62138957456669019e3),
        *(3.29079923573345963e3, 4.36261909014324716e3, 3.43936767414372164e3, 1.23033935480374942e3),
    ),
)
_FAR = (
    (
        *(1.63153871373020978e-2, 3.05326634961232344e-1, 3.60344899949804439e-1, 1.25781726111229246e-1),
        *(1.60837851487422766e-2, 6.58749161529837803e-4),
    ),
    (
        *(1.0, 2.56852019228982242, 1.87295284992346725, 5.27905102951428412e-1, 6.05183413124413191e-2),
        2.33520497626869185e-3,
    ),
)


@op("IsNaN", since=9)
@in_float32
def is_nan(x: np.ndarray):
    return np.isnan(x)


@op("IsInf", since=10)
@in_float32
def is_inf(x: np.ndarray, *, detect_negative: int = 1, detect_positive: int = 1):
    return ((x == np.inf) & bool(detect_positive)) | ((x == -np.inf) & bool(detect_negative))
