import numpy as np
import pytest

from tests.core.ops.calling import call, f32, i64, of, same


def test_old_broadcasting():
    a = np.array([[True, False], [True, True]])
    same(call("And", 1, a, np.array([True, False]), broadcast=1, axis=0), [[True, False], [False, False]])
    same(call("Greater", 1, f32([[1, 5], [3, 2]]), f32(2), broadcast=1), [[False, True], [True, False]])


def test_equal_on_every_kind():
    same(call("Equal", 19, np.array(["a", "b"], object), np.array(["a", "c"], object)), [True, False])
    same(call("Equal", 19, np.array("a", object), np.array("a", object)), np.array(True))
    same(call("Equal", 11, f32(1, np.nan), f32(1, np.nan)), [True, False])
    same(call("Equal", 7, i64(2**62), i64(2**62 + 1)), np.array(False))


def test_comparisons_with_nan_are_false():
    x, nan = f32(1), f32(np.nan)
    for name in ("Greater", "Less", "GreaterOrEqual", "LessOrEqual"):
        same(call(name, 16, x, nan), np.array(False))


def test_bits():
    a, b = of("uint8", [12, 5]), of("uint8", [10, 3])
    same(call("BitwiseAnd", 18, a, b), of("uint8", [8, 1]))
    same(call("BitwiseOr", 18, a, b), of("uint8", [14, 7]))
    same(call("BitwiseXor", 18, a, b), of("uint8", [6, 6]))
    same(call("BitwiseNot", 18, of("int8", [0, -5])), of("int8", [-1, 4]))


def test_bit_shift():
    x, amount = of("uint8", [16, 4, 1, 255]), of("uint8", [1, 2, 8, 9])
    same(call("BitShift", 11, x, amount, direction="RIGHT"), of("uint8", [8, 1, 0, 0]))
    same(call("BitShift", 11, x, amount, direction="LEFT"), of("uint8", [32, 16, 0, 0]))
    x, amount = of("int8", [-7, -7, 64, 5, -1]), of("int8", [1, 100, 1, -1, -1])
    same(call("BitShift", 28, x, amount, direction="RIGHT"), of("int8", [-4, -1, 32, 0, -1]))
    same(call("BitShift", 28, x, amount, direction="LEFT"), of("int8", [-14, 0, -128, 0, 0]))
    with pytest.raises(ValueError, match="LEFT or RIGHT"):
        call("BitShift", 11, x, amount, direction="UP")
