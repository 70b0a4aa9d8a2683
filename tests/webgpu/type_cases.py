"""Cases for element types other than float32: integers of 8 to 64 bits, casts, floats of 16 and 8 bits, float64."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from onnxlet.model.dtypes import dtype_of, element_type_of, narrow
from tests.webgpu.cases import SPECIAL, Case, random

INTEGERS = (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64)


def numbers(dtype: Any, count: int = 48, seed: int = 0) -> np.ndarray:
    """Integers of every size that the type has, its extremes among them."""
    info, rng = np.iinfo(dtype), np.random.default_rng(seed)
    bits = rng.integers(0, 1 << 63, count, dtype=np.uint64) * np.uint64(2) + rng.integers(0, 2, count, dtype=np.uint64)
    shifts = rng.integers(0, 64, count, dtype=np.uint64)
    values = (bits >> shifts).astype(dtype)
    extremes = np.array([info.min, info.max, 0, 1, info.max - 1, info.min + 1, info.max // 2, 7], dtype)
    values[: len(extremes)] = extremes
    return rng.permutation(values)


def integer_cases() -> Iterator[Case]:
    for dtype in INTEGERS:
        a, b = numbers(dtype, seed=1), numbers(dtype, seed=2)
        name = np.dtype(dtype).name
        divisor = np.where(b == 0, 3, b).astype(dtype)
        if np.dtype(dtype).kind == "i":
            divisor = np.where(divisor == -1, 5, divisor).astype(dtype)
            for op in ("Abs", "Neg", "Sign", "Relu"):
                yield Case(op, [a], note=name)
            yield Case("Mod", [a, divisor], {"fmod": 1}, note=f"{name} fmod")
        for op in ("Add", "Sub", "Mul", "Max", "Min", "Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"):
            yield Case(op, [a.reshape(6, 8), b[:8]], note=name)
        for op in ("Div", "Mod"):
            yield Case(op, [a, divisor], note=name)
            yield Case(op, [a, np.full(1, 7, dtype)], constants=(1,), note=f"{name} by 7")
        for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor"):
            yield Case(op, [a, b], note=name)
        yield Case("BitwiseNot", [a], note=name)
        low, high = (np.array(v, dtype) for v in (3, 90))
        yield Case("Clip", [a, low, high], note=name)
        yield Case("Clip", [a, low, high], constants=(1, 2), note=f"{name} constant")
        yield Case("Where", [a > b, a, b], note=name)
        amounts = np.arange(48).astype(dtype) % np.array(70, dtype)
        if np.dtype(dtype).kind == "i":
            amounts[5:9] = -amounts[5:9]
        for direction in ("LEFT", "RIGHT"):
            yield Case("BitShift", [a, amounts], {"direction": direction}, version=28, note=f"{name} {direction}")
    base = np.array([0, 1, -1, 2, -3, 7], np.int64)
    for first, second in ((np.int32, np.int32), (np.int64, np.int64), (np.int32, np.int64), (np.int64, np.int32)):
        exponent = np.array([0, 1, 5, 30, 40, 3], np.int64)
        yield Case("Pow", [base.astype(first)[:, None], exponent.astype(second)], note=f"{first} {second}")
    for dtype in (np.int32, np.uint32, np.int64, np.uint64):
        exponents = np.array([0, 2, 5], dtype)
        yield Case("Pow", [np.array([1.5, -2, 3], np.float32), exponents], note=f"float {exponents.dtype}")
    values = np.array([5.5, -5.5, 1e30, -1e30, 3, 0, -0.0, 7, np.inf, np.nan, 1e-40], np.float32)
    divisors = np.array([2, -0.7, 3, 1e-3, np.inf, 0, -4], np.float32)
    yield Case("Mod", [np.repeat(values, 7), np.tile(divisors, 11)], {"fmod": 1}, rtol=0, atol=0, note="float")


def as_type(values: np.ndarray, number: int) -> np.ndarray:
    dtype = dtype_of(number)
    with np.errstate(all="ignore"):
        return narrow(values, dtype) if number in SMALL else values.astype(dtype)


SMALL = (16, 17, 18, 19, 20, 21, 22, 23, 25, 26)
NATIVE = (1, 2, 3, 4, 5, 6, 7, 9, 10, 12, 13)


def cast_cases() -> Iterator[Case]:
    floats = np.concatenate(
        [SPECIAL, random(40, scale=100), [255, 256, -129, 65504, 65520, 3e9, -3e9, 1e19, 2e19, -1e19, 464, 448]]
    )
    for to in (*NATIVE, 11):
        yield Case("Cast", [floats.astype(np.float32)], {"to": to}, rtol=0, note=f"float to {to}")
        yield Case("Cast", [as_type(floats, 10)], {"to": to}, rtol=0, note=f"float16 to {to}")
        for dtype in INTEGERS if to != 11 else ():
            yield Case("Cast", [numbers(dtype)], {"to": to}, rtol=0, note=f"{np.dtype(dtype)} to {to}")
    doubles = np.concatenate([floats, np.float64(1) + np.ldexp(1.0, -np.arange(20.0, 30).astype(int)), [1e-42, 1e300]])
    yield Case("Cast", [doubles.astype(np.float64)], {"to": 1}, rtol=0, atol=0, note="double")
    yield Case("Cast", [doubles.astype(np.float64)], {"to": 9}, note="double to bool")
    for to in SMALL:
        for saturate in (0, 1):
            yield Case("Cast", [floats.astype(np.float32)], {"to": to, "saturate": saturate}, version=25, rtol=0,
                       note=f"to {to} {saturate}")  # fmt: skip
        for back in (1, 10):
            yield Case("Cast", [as_type(floats.astype(np.float32), to)], {"to": back}, version=25, note=f"from {to}")
    ones = np.arange(-20, 20, dtype=np.int32)
    for to in (1, 12):
        yield Case("BitCast", [ones], {"to": to}, version=26, note=str(to))
    yield Case("BitCast", [ones % 3 == 0], {"to": 2}, version=26, note="bool")


def moved_cases() -> Iterator[Case]:
    """Every type is moved without change."""
    for number in (*NATIVE, *SMALL, 11):
        x = as_type(np.arange(24) % 2 if number == 9 else np.arange(24) - 5.0, number).reshape(2, 3, 4)
        note = str(element_type_of(x.dtype))
        yield Case("Transpose", [x], {"perm": [2, 0, 1]}, version=25, note=note)
        yield Case("Concat", [x, x], {"axis": 1}, version=25, note=note)
        if number not in SMALL:
            yield Case("Gather", [x, np.array([[2, -3]], np.int64)], {"axis": 1}, note=note)


FAMILIES: dict[str, Callable[[], Iterator[Case]]] = {
    "integers": integer_cases,
    "casts": cast_cases,
    "moved": moved_cases,
}
