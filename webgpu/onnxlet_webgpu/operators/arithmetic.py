"""Arithmetic on elements of every kind, as WGSL text: what kernels with loops combine values by."""

from __future__ import annotations

from ..lowering import Lowering, Tensor
from ..storage import PAIR
from ..wgsl import literal

NUMBERS = ("float32", "int32", "uint32", "int64", "uint64")

COMBINED = {
    "add": ("{a} + {b}", "pair_add({a}, {b})"),
    "mul": ("{a} * {b}", "pair_multiply({a}, {b})"),
}
EXTREMES = {
    "float32": ("max_nan({a}, {b})", "min_nan({a}, {b})"),
    "int32": ("max({a}, {b})", "min({a}, {b})"),
    "uint32": ("max({a}, {b})", "min({a}, {b})"),
    "int64": ("pair_max({a}, {b})", "pair_min({a}, {b})"),
    "uint64": ("pair_highest({a}, {b})", "pair_lowest({a}, {b})"),
}
LESS = {"int64": "pair_less({a}, {b})", "uint64": "pair_below({a}, {b})"}
LOWEST = {
    "float32": "-infinity()",
    "int32": "i32(-2147483648)",
    "uint32": "0u",
    "int64": "vec2<u32>(0u, 0x80000000u)",
    "uint64": "vec2<u32>(0u)",
    "bool": "0u",
}
HIGHEST = {
    "float32": "infinity()",
    "int32": "2147483647",
    "uint32": "0xffffffffu",
    "int64": "vec2<u32>(0xffffffffu, 0x7fffffffu)",
    "uint64": "vec2<u32>(0xffffffffu)",
    "bool": "1u",
}


def combined(how: str, kind: str, a: str, b: str) -> str:
    """The sum ("add"), product ("mul"), or the greater ("max") or smaller ("min") of two elements."""
    if how in COMBINED:
        return COMBINED[how][kind in ("int64", "uint64")].format(a=a, b=b)
    return EXTREMES["uint32" if kind == "bool" else kind][how == "min"].format(a=a, b=b)


def less(kind: str, a: str, b: str) -> str:
    """Whether `a` is less than `b`; NaN is neither less nor greater."""
    return LESS.get(kind, "{a} < {b}").format(a=a, b=b)


def before(kind: str, a: str, b: str, largest: bool) -> str:
    """Whether `a` comes before `b` in falling (or else rising) order, in which NaN counts as the greatest."""
    first, second = (b, a) if largest else (a, b)
    text = less(kind, first, second)
    if kind == "float32":
        nan = f"(is_nan({second}) && !is_nan({first}))"
        text = f"({text} || {nan})"
    return text


def same(kind: str, a: str, b: str) -> str:
    """Whether two elements are equal, two NaNs too."""
    if kind in ("int64", "uint64"):
        return f"pair_equal({a}, {b})"
    return f"({a} == {b} || (is_nan({a}) && is_nan({b})))" if kind == "float32" else f"{a} == {b}"


def at(shape: tuple[int, ...], axis: int, i: str = "i") -> str:
    """Text of the coordinate along `axis` of the row-major index `i` over `shape`."""
    inner = 1
    for size in shape[axis + 1 :]:
        inner *= size
    text = i if inner == 1 else f"({i} / {inner}u)"
    return text if axis == 0 else f"({text} % {shape[axis]}u)"


def line(shape: tuple[int, ...], axis: int, i: str = "i") -> tuple[str, int, int, int]:
    """For lines along `axis`: text of the start of line number `i`, the step, the length, and how many there are."""
    length, step, total = shape[axis], 1, 1
    for size in shape[axis + 1 :]:
        step *= size
    for size in shape:
        total *= size
    start = f"{i} * {length}u" if step == 1 else f"{i} / {step}u * {step * length}u + {i} % {step}u"
    return start, step, length, total // max(length, 1)


def zero(t: Tensor) -> str:
    return literal(0, t.element)


def whole(n: Lowering, name: str, t: Tensor, place: str) -> str:
    """Text of an integer, or of a float's whole part, at `place` of a binding, as i32; far outside where it is not one
    that i32 has."""
    text = f"{name}[{place}]"
    if t.element == PAIR:
        return f"select(0x7fffffff, bitcast<i32>({text}.x), {text}.y == bitcast<u32>(bitcast<i32>({text}.x) >> 31u))"
    return text if t.element == "i32" else f"i32({text})"
