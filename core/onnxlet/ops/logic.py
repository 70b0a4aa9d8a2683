"""Logical operators, comparisons, and operators on bits."""

from __future__ import annotations

import numpy as np

from .common import in_float32, limited_broadcast
from .registry import op


@op("And", since=7)
def and_(a: np.ndarray, b: np.ndarray):
    return np.logical_and(a, b)


@op("Or", since=7)
def or_(a: np.ndarray, b: np.ndarray):
    return np.logical_or(a, b)


@op("Xor", since=7)
def xor(a: np.ndarray, b: np.ndarray):
    return np.logical_xor(a, b)


@op("Not")
def not_(x: np.ndarray):
    return np.logical_not(x)


@op("Equal", since=7)
@in_float32
def equal(a: np.ndarray, b: np.ndarray):
    return np.asarray(a == b, np.bool_)


@op("Greater", since=7)
@in_float32
def greater(a: np.ndarray, b: np.ndarray):
    return np.greater(a, b)


@op("Less", since=7)
@in_float32
def less(a: np.ndarray, b: np.ndarray):
    return np.less(a, b)


for _name, _function in {
    "And": and_,
    "Or": or_,
    "Xor": xor,
    "Equal": equal,
    "Greater": greater,
    "Less": less,
}.items():
    op(_name)(limited_broadcast(_function))


@op("GreaterOrEqual", since=12)
@in_float32
def greater_or_equal(a: np.ndarray, b: np.ndarray):
    return np.greater_equal(a, b)


@op("LessOrEqual", since=12)
@in_float32
def less_or_equal(a: np.ndarray, b: np.ndarray):
    return np.less_equal(a, b)


@op("BitwiseAnd", since=18)
def bitwise_and(a: np.ndarray, b: np.ndarray):
    return np.bitwise_and(a, b)


@op("BitwiseOr", since=18)
def bitwise_or(a: np.ndarray, b: np.ndarray):
    return np.bitwise_or(a, b)


@op("BitwiseXor", since=18)
def bitwise_xor(a: np.ndarray, b: np.ndarray):
    return np.bitwise_xor(a, b)


@op("BitwiseNot", since=18)
def bitwise_not(x: np.ndarray):
    return np.bitwise_not(x)


@op("BitShift", since=11)
def bit_shift(x: np.ndarray, y: np.ndarray, *, direction: str):
    """Shifts by a negative amount or by all bits and more give what is shifted in: 0, or -1 for a negative `x` to the
    right (BitShift-28)."""
    bits = x.dtype.itemsize * 8
    outside = (y < 0) | (y >= bits)
    amount = np.where(outside, bits - 1, y).astype(x.dtype)
    if direction == "LEFT":
        return np.where(outside, 0, np.left_shift(x, amount)).astype(x.dtype)
    if direction != "RIGHT":
        raise ValueError(f"direction is LEFT or RIGHT, not {direction!r}")
    shifted = np.right_shift(x, amount)
    return shifted if x.dtype.kind == "i" else np.where(outside, 0, shifted).astype(x.dtype)
