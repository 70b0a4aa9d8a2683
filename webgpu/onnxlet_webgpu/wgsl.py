"""Pieces of WGSL text: literals, element types, index expressions, and helper functions with NumPy's semantics.

GPU compilers may treat NaN and infinity as they like in WGSL's own `min`, `max` and `clamp`, and `pow` and `tanh` are
only as good as `exp2(y * log2(x))`. The helpers here pass NaN through as NumPy does and stay accurate at the edges.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from math import isinf, isnan, prod

import numpy as np

from .pairs import PAIR_HELPERS
from .storage import PAIR


def literal(value: object, element: str) -> str:
    """A number as WGSL text of the given element type. An integer of 64 bits is a pair of words."""
    if element == PAIR:
        bits = int(value) & 0xFFFFFFFFFFFFFFFF  # type: ignore[call-overload]
        return f"vec2<u32>({bits & 0xFFFFFFFF}u, {bits >> 32}u)"
    if element == "u32":
        return f"{int(value)}u"  # type: ignore[call-overload]
    if element == "i32":
        return f"i32({int(value)})"  # type: ignore[call-overload]
    number = float(np.float32(value))  # type: ignore[arg-type]
    if isnan(number):
        return "quiet_nan()"
    if isinf(number):
        return "infinity()" if number > 0 else "-infinity()"
    return f"f32({number!r})"


def u(number: int) -> str:
    """An index or size as a u32 literal."""
    return f"{number}u"


def signed(size: int) -> str:
    """A size among numbers with signs. Written with a u it can become data, as `sizes` makes it."""
    return f"i32({size}u)"


def contiguous_strides(shape: Sequence[int]) -> list[int]:
    """Strides, in elements, of a row-major tensor."""
    strides = [1] * len(shape)
    for d in range(len(shape) - 2, -1, -1):
        strides[d] = strides[d + 1] * shape[d + 1]
    return strides


def index_expression(dims: Sequence[int], strides: Sequence[int], offset: int = 0, i: str = "i") -> str:
    """WGSL text that turns the row-major index `i` over `dims` into an index with other `strides` (in elements).

    Strides may be 0 (broadcasting) or negative (reversed slices; `offset` then points at the first element used).
    Dimensions that lie together in memory are merged, so that the text has as few divisions as possible.
    """
    merged: list[tuple[int, int]] = []
    for dim, stride in zip(dims, strides, strict=True):
        if dim == 1:
            continue
        if merged and merged[-1][1] == stride * dim:
            merged[-1] = (merged[-1][0] * dim, stride)
        else:
            merged.append((dim, stride))
    plus, minus = [], []
    inner = prod(dim for dim, _ in merged)
    for position, (dim, stride) in enumerate(merged):
        inner //= dim
        if stride == 0:
            continue
        term = i if inner == 1 else f"{i} / {inner}u"
        if position > 0:
            term = f"{term} % {dim}u"
        if abs(stride) != 1:
            term = f"{term} * {abs(stride)}u" if term == i or position > 0 else f"({term}) * {abs(stride)}u"
        (plus if stride > 0 else minus).append(term)
    if offset or not plus:
        plus.append(u(offset))
    return " - ".join([" + ".join(plus), *minus])


def broadcast_strides(shape: Sequence[int], out_shape: Sequence[int]) -> list[int]:
    """Strides of a row-major tensor of `shape` when it is read over `out_shape` (0 where it is repeated)."""
    padded = [1] * (len(out_shape) - len(shape)) + list(shape)
    return [0 if dim == 1 else stride for dim, stride in zip(padded, contiguous_strides(padded), strict=True)]


def broadcast_index(shape: Sequence[int], out_shape: Sequence[int], i: str = "i") -> str:
    """Where the element of a broadcast operand lies that belongs to element `i` of the result."""
    return index_expression(out_shape, broadcast_strides(shape, out_shape), 0, i)


CALL = re.compile(r"\b([a-z_]+)\(")

HELPERS: dict[str, tuple[str, tuple[str, ...]]] = {
    # A module variable keeps the compiler from evaluating these ahead, which WGSL forbids for non-finite values.
    "infinity": ("var<private> infinity_bits: u32 = 0x7f800000u;\n"
                 "fn infinity() -> f32 { return bitcast<f32>(infinity_bits); }", ()),
    "quiet_nan": ("var<private> nan_bits: u32 = 0x7fc00000u;\n"
                  "fn quiet_nan() -> f32 { return bitcast<f32>(nan_bits); }", ()),
    "is_nan": ("fn is_nan(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }", ()),
    "is_inf": ("fn is_inf(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) == 0x7f800000u; }", ()),
    "max_nan": ("fn max_nan(a: f32, b: f32) -> f32 { return select(select(b, a, a > b), a, is_nan(a)); }",
                ("is_nan",)),
    "min_nan": ("fn min_nan(a: f32, b: f32) -> f32 { return select(select(b, a, a < b), a, is_nan(a)); }",
                ("is_nan",)),
    "power": ("""// exp2(e * log2(x)) loses digits and is undefined for negative x: whole exponents are multiplied out.
fn power(x: f32, e: f32) -> f32 {
    if (e == 0.0 || x == 1.0) { return 1.0; }
    if (is_nan(x) || is_nan(e)) { return x + e; }
    if (is_inf(e)) {
        if (abs(x) == 1.0) { return 1.0; }
        return select(0.0, infinity(), (abs(x) > 1.0) == (e > 0.0));
    }
    if (e == 0.5 && x >= 0.0) { return sqrt(x); }
    if (e == floor(e) && abs(e) <= 1024.0) {
        var n = u32(abs(e));
        var base = x;
        var result = 1.0;
        while (n > 0u) {
            if ((n & 1u) == 1u) { result *= base; }
            base *= base;
            n = n >> 1u;
        }
        return select(result, 1.0 / result, e < 0.0);
    }
    if (x == 0.0) { return select(0.0, infinity(), e < 0.0); }
    let magnitude = exp2(e * log2(abs(x)));
    if (x > 0.0) { return magnitude; }
    if (e != floor(e)) { return select(quiet_nan(), magnitude, is_inf(x)); }
    let odd = abs(e) < 16777216.0 && (u32(abs(e)) & 1u) == 1u;
    return select(magnitude, -magnitude, odd);
}""", ("is_nan", "is_inf", "infinity", "quiet_nan")),
    "integer_power": ("""fn integer_power(x: i32, e: i32) -> i32 {
    if (e < 0) { return select(select(0, select(1, -1, (e & 1) == 1), x == -1), 1, x == 1); }
    var n = u32(e);
    var base = x;
    var result = 1;
    while (n > 0u) {
        if ((n & 1u) == 1u) { result *= base; }
        base *= base;
        n = n >> 1u;
    }
    return result;
}""", ()),
    "hyperbolic_tangent": ("""fn hyperbolic_tangent(x: f32) -> f32 {
    let a = abs(x);
    if (a < 0.3) {
        let s = x * x;
        return x + x * s * (-0.33333333 + s * (0.13333333 + s * (-0.053968254 + s * 0.021869489)));
    }
    let t = 1.0 - 2.0 / (exp(2.0 * min(a, 20.0)) + 1.0);
    return select(select(t, -t, x < 0.0), x, is_nan(x));
}""", ("is_nan",)),
    "error_function": ("""// Maclaurin's series near zero, elsewhere Abramowitz and Stegun's formula 7.1.26.
fn error_function(x: f32) -> f32 {
    let a = abs(x);
    if (a < 0.5) {
        let s = x * x;
        return 1.1283791671 * x * (1.0 + s * (-0.33333333 + s * (0.1 + s * (-0.023809524
            + s * (0.0046296296 + s * (-0.00075757576 + s * 0.00010683761))))));
    }
    let t = 1.0 / (1.0 + 0.3275911 * a);
    let p = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))));
    let r = 1.0 - p * exp(-min(a, 10.0) * min(a, 10.0));
    return select(select(r, -r, x < 0.0), x, is_nan(x));
}""", ("is_nan",)),
    "sigmoid": ("""fn sigmoid(x: f32) -> f32 {
    let e = exponential(-abs(x));
    return select(1.0, e, x < 0.0) / (1.0 + e);
}""", ("exponential",)),
    "gelu": ("fn gelu(x: f32) -> f32 { return 0.5 * x * (1.0 + error_function(x * 0.70710678118)); }",
             ("error_function",)),
    "gelu_tanh": ("""fn gelu_tanh(x: f32) -> f32 {
    let c = clamp(x, -14.0, 14.0);
    return 0.5 * x * (1.0 + hyperbolic_tangent(0.7978845608 * (c + 0.044715 * c * c * c)));
}""", ("hyperbolic_tangent",)),
    "log_one_plus": ("""// log(1 + x) without losing the digits of a small x.
fn log_one_plus(x: f32) -> f32 {
    let y = 1.0 + x;
    if (abs(x) < 0.001) { return x * (1.0 - x * (0.5 - x * 0.33333333)); }
    return log(y);
}""", ()),
    "exp_minus_one": ("""// exp(x) - 1 without losing the digits of a small x.
fn exp_minus_one(x: f32) -> f32 {
    if (abs(x) < 0.3) {
        return x * (1.0 + x * (0.5 + x * (0.16666667 + x * (0.041666667 + x * (0.0083333333 + x * 0.0013888889)))));
    }
    return exponential(x) - 1.0;
}""", ("exponential",)),
    "softplus": ("""fn softplus(x: f32) -> f32 {
    return select(max(x, 0.0) + log_one_plus(exponential(-abs(x))), x, is_nan(x));
}""", ("log_one_plus", "exponential", "is_nan")),
    "floor_mod": ("""// The remainder with the sign of the divisor.
fn floor_mod(a: i32, b: i32) -> i32 {
    let r = a % b;
    return select(r, r + b, r != 0 && (r < 0) != (b < 0));
}""", ()),
    "sine_hyperbolic": ("""fn sine_hyperbolic(x: f32) -> f32 {
    let e = exp_minus_one(abs(x));
    let s = select(0.5 * (e + e / (e + 1.0)), 0.5 * e, e > 1e10);
    return select(s, -s, x < 0.0);
}""", ("exp_minus_one",)),
    "inverse_sinh": ("""fn inverse_sinh(x: f32) -> f32 {
    let a = abs(x);
    let near = log_one_plus(a + a * a / (1.0 + sqrt(1.0 + a * a)));
    let s = select(near, log(a) + 0.69314718, a > 1e8);
    return select(select(s, -s, x < 0.0), x, is_nan(x) || is_inf(x));
}""", ("log_one_plus", "is_nan", "is_inf")),
    "inverse_cosh": ("""fn inverse_cosh(x: f32) -> f32 {
    if (!(x >= 1.0)) { return quiet_nan(); }
    if (x > 1e8) { return select(log(x) + 0.69314718, x, is_inf(x)); }
    return log_one_plus(x - 1.0 + sqrt((x - 1.0) * (x + 1.0)));
}""", ("log_one_plus", "quiet_nan", "is_inf")),
    "inverse_tanh": ("""fn inverse_tanh(x: f32) -> f32 {
    if (!(abs(x) <= 1.0)) { return quiet_nan(); }
    if (abs(x) == 1.0) { return select(infinity(), -infinity(), x < 0.0); }
    return 0.5 * log_one_plus(2.0 * x / (1.0 - x));
}""", ("log_one_plus", "quiet_nan", "infinity")),
    "square_root": ("fn square_root(x: f32) -> f32 { if (x < 0.0) { return quiet_nan(); } return sqrt(x); }",
                    ("quiet_nan",)),
    "logarithm": ("fn logarithm(x: f32) -> f32 { if (x < 0.0) { return quiet_nan(); } "
                  "if (x == 0.0) { return -infinity(); } return select(log(x), x, is_nan(x) || is_inf(x)); }",
                  ("quiet_nan", "infinity", "is_nan", "is_inf")),
    "quarter_turns": ("""// x - k * pi / 2 for the nearest whole k, with pi / 2 in three parts that multiply exactly.
fn quarter_turns(x: f32) -> vec2<f32> {
    let k = round(x * 0.63661977);
    let r = fma(k, -7.5497901e-8, fma(k, -0.0004837513, fma(k, -1.5703125, x)));
    return vec2<f32>(k - 4.0 * floor(k * 0.25), r);
}
fn turned_sine(quarter: f32, r: f32) -> f32 {
    let s = r * r;
    let sine = r + r * s * (-0.16666665 + s * (0.00833275 - s * 0.00019588));
    let cosine = 1.0 + s * (-0.5 + s * (0.041666667 + s * (-0.0013888889 + s * 2.4801587e-5)));
    let odd = quarter == 1.0 || quarter == 3.0;
    let value = select(sine, cosine, odd);
    return select(value, -value, quarter >= 2.0);
}""", ()),
    "sine": ("""fn sine(x: f32) -> f32 {
    if (is_nan(x) || is_inf(x)) { return quiet_nan(); }
    let t = quarter_turns(x);
    return turned_sine(t.x, t.y);
}""", ("quarter_turns", "is_nan", "is_inf", "quiet_nan")),
    "cosine": ("""fn cosine(x: f32) -> f32 {
    if (is_nan(x) || is_inf(x)) { return quiet_nan(); }
    let t = quarter_turns(x);
    return turned_sine(select(t.x + 1.0, 0.0, t.x == 3.0), t.y);
}""", ("quarter_turns", "is_nan", "is_inf", "quiet_nan")),
    "arc_tangent": ("""fn arc_tangent(x: f32) -> f32 {
    if (is_nan(x)) { return x; }
    let a = abs(x);
    var t = a;
    var base = 0.0;
    if (a > 2.4142136) { t = -1.0 / a; base = 1.5707964; }
    else if (a > 0.41421357) { t = (a - 1.0) / (a + 1.0); base = 0.78539816; }
    let s = t * t;
    let r = base + t + t * s * (-0.33333332 + s * (0.1999955 + s * (-0.14264229 + s * (0.10746266 - s * 0.06459281))));
    return select(r, -r, x < 0.0);
}""", ("is_nan",)),
    "arc_sine": ("""fn arc_sine(x: f32) -> f32 {
    if (!(abs(x) <= 1.0)) { return quiet_nan(); }
    if (abs(x) == 1.0) { return 1.5707964 * x; }
    return arc_tangent(x / sqrt((1.0 - x) * (1.0 + x)));
}""", ("arc_tangent", "quiet_nan")),
    "arc_cosine": ("""fn arc_cosine(x: f32) -> f32 {
    if (!(abs(x) <= 1.0)) { return quiet_nan(); }
    if (x == -1.0) { return 3.1415927; }
    return 2.0 * arc_tangent(sqrt((1.0 - x) / (1.0 + x)));
}""", ("arc_tangent", "quiet_nan")),
    "clip": ("fn clip(x: f32, low: f32, high: f32) -> f32 { let a = select(x, low, x < low); "
             "return select(a, high, a > high); }", ()),
    "rounded_to_half": ("""// The nearest float16, ties to even, overflow to infinity, with float16's subnormal numbers.
fn rounded_to_half(x: f32) -> f32 {
    let bits = bitcast<u32>(x) & 0x7fffffffu;
    if (bits >= 0x7f800000u) { return x; }
    var a = round(bitcast<f32>(bits) * 16777216.0) / 16777216.0;
    if (bits >= 0x38800000u) { a = bitcast<f32>((bits + 0xfffu + ((bits >> 13u) & 1u)) & 0xffffe000u); }
    if (bits >= 0x477ff000u) { a = infinity(); }
    return select(a, -a, (bitcast<u32>(x) >> 31u) == 1u);
}""", ("infinity",)),
    "exponential": ("""// Some devices make a NaN of exp(-infinity), and infinity of results near the largest number.
fn exponential(x: f32) -> f32 {
    if (x < -104.0) { return 0.0; }
    return select(exp(x), x, is_nan(x));
}""", ("is_nan",)),
    "rounded_to_bfloat": ("""// The nearest bfloat16, ties to even.
fn rounded_to_bfloat(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    return select(bitcast<f32>((bits + 0x7fffu + ((bits >> 16u) & 1u)) & 0xffff0000u), x, is_nan(x));
}""", ("is_nan",)),
    "rounded_to_bits": ("""
// The nearest number with `bits` bits behind the leading one and no exponent below `lowest`,
// ties to even.
fn rounded_to_bits(x: f32, bits: i32, lowest: i32) -> f32 {
    if (is_nan(x) || is_inf(x)) { return x; }
    let exponent = max(i32(bitcast<u32>(abs(x)) >> 23u) - 127, lowest) - bits;
    let step = bitcast<f32>(u32(exponent + 127) << 23u);
    let y = round(abs(x) / step) * step;
    return select(y, -y, (bitcast<u32>(x) >> 31u) == 1u);
}""", ("is_nan", "is_inf")),
    "float_remainder": ("""
// The remainder with the sign of the dividend, exact: multiples by powers of two are taken
// away one by one.
fn float_remainder(a: f32, b: f32) -> f32 {
    if (is_nan(a) || is_nan(b) || is_inf(a) || b == 0.0) { return quiet_nan(); }
    var rest = abs(a);
    let divisor = abs(b);
    if (!is_inf(b)) {
        var part = divisor;
        while (part <= rest * 0.5) { part = part * 2.0; }
        while (part >= divisor) {
            if (rest >= part) { rest = rest - part; }
            part = part * 0.5;
        }
    }
    return select(rest, -rest, (bitcast<u32>(a) >> 31u) == 1u);
}""", ("is_nan", "is_inf", "quiet_nan")),
    "float_floor_mod": ("""// The remainder with the sign of the divisor; a zero has it too.
fn float_floor_mod(a: f32, b: f32) -> f32 {
    let rest = float_remainder(a, b);
    if (rest == 0.0) { return bitcast<f32>(bitcast<u32>(b) & 0x80000000u); }
    return select(rest, rest + b, (rest < 0.0) != (b < 0.0));
}""", ("float_remainder",)),
    **PAIR_HELPERS,
}  # fmt: skip
"""Helper functions by name: their text and the helpers that it uses. Each one's twin is NumPy's function."""


def helpers_used(text: str) -> list[str]:
    """Definitions of the helpers that a text calls, each after those that it needs itself."""
    found: dict[str, None] = {}

    def visit(names: Iterable[str]) -> None:
        for name in names:
            if name not in found:
                visit(HELPERS[name][1])
                found[name] = None

    visit(name for name in CALL.findall(text) if name in HELPERS)
    return [HELPERS[name][0] for name in found]
