import math

import numpy as np
import pytest

from tests.core.ops.calling import call, f32, i64, of, same

NAN, INF = np.nan, np.inf


@pytest.mark.parametrize(
    ("shape", "attributes", "expected"),
    [
        ((), {}, [[11, 12, 13], [14, 15, 16]]),
        ((1, 1), {}, [[11, 12, 13], [14, 15, 16]]),
        ((3,), {}, [[11, 22, 33], [14, 25, 36]]),
        ((3,), {"axis": 1}, [[11, 22, 33], [14, 25, 36]]),
        ((2,), {"axis": 0}, [[11, 12, 13], [24, 25, 26]]),
        ((2, 1), {"axis": 0}, [[11, 12, 13], [24, 25, 26]]),
    ],
)
def test_limited_broadcasting_before_opset_7(shape, attributes, expected):
    a = f32([[1, 2, 3], [4, 5, 6]])
    b = (10 * np.arange(1, 1 + math.prod(shape), dtype=np.float32)).reshape(shape)
    same(call("Add", 6, a, b, broadcast=1, **attributes), f32(expected))


def test_limited_broadcasting_needs_its_attribute_and_a_fitting_part():
    a = np.zeros((2, 3), np.float32)
    with pytest.raises(ValueError, match="broadcast is not set"):
        call("Mul", 1, a, f32(1, 2, 3))
    with pytest.raises(ValueError, match="not a part of shape"):
        call("Mul", 1, a, f32(1, 2), broadcast=1)


def test_integer_division_truncates():
    a, b = np.array([7, -7, 7, -7, -8], np.int32), np.array([2, 2, -2, -2, 4], np.int32)
    same(call("Div", 14, a, b), np.array([3, -3, -3, 3, -2], np.int32))
    big = i64(2**62 + 1)
    same(call("Div", 14, big, i64(1)), big)
    same(call("Div", 14, of("uint8", [200, 7]), of("uint8", [3, 8])), of("uint8", [66, 0]))


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64"])
def test_mod_signs(dtype):
    a, b = np.array([-4, 7, 5, 4, -7, 8], dtype), np.array([2, -3, 8, -2, 3, 5], dtype)
    same(call("Mod", 13, a, b), np.array([0, -2, 5, 0, 2, 3], dtype))
    same(call("Mod", 13, a, b, fmod=1), np.array([0, 1, 5, 0, -1, 3], dtype))


def test_power_keeps_the_base_type():
    same(call("Pow", 15, f32(1, 2, 3), i64(4, 5, 6)), f32(1, 32, 729))
    same(call("Pow", 15, i64(1, 2, 3), f32(4, 5, 0.5)), i64(1, 32, 1))
    same(call("Pow", 15, of("int32", [2, -2]), of("int64", [3, 3])), of("int32", [8, -8]))
    same(call("Pow", 13, f32(2000), f32(2)), f32(4e6))
    assert call("Pow", 12, f32(2), np.float64(0.1)).dtype == np.float32


def test_integers_to_negative_powers_are_truncated():
    base = of("int32", [1, -1, -1, 2, -3])
    same(call("Pow", 15, base, of("int32", [-5, -3, -4, -1, -2])), of("int32", [1, -1, 1, 0, 0]))


def test_clip():
    x = f32(NAN, -2, 0, 5, INF)
    same(call("Clip", 13, x, f32(-1), f32(3)), f32(NAN, -1, 0, 3, 3))
    same(call("Clip", 13, x, f32(4), f32(3)), f32(NAN, 3, 3, 3, 3))
    same(call("Clip", 13, x, f32(0)), f32(NAN, 0, 0, 5, INF))
    same(call("Clip", 11, x, None, f32(1)), f32(NAN, -2, 0, 1, 1))
    same(call("Clip", 6, x, min=-1.0, max=3.0), f32(NAN, -1, 0, 3, 3))
    same(call("Clip", 6, of("float16", [1, 70]), max=65504.0), of("float16", [1, 70]))
    same(call("Clip", 12, of("uint8", [1, 200]), np.uint8(5), np.uint8(100)), of("uint8", [5, 100]))


def test_variadic():
    same(call("Max", 13, f32(1, NAN, 3), f32(2, 2, 2), f32(0)), f32(2, NAN, 3))
    same(call("Min", 8, f32(1, 5), f32([[2], [0]])), f32([[1, 2], [0, 0]]))
    same(call("Sum", 1, f32(1, 2)), f32(1, 2))
    same(call("Mean", 8, f32(1, 2), f32(3, 4), f32(5, 9)), f32(3, 5))


def test_float16_rounds_once():
    # In float16 the partial sum 2048 + 1 is 2048 again.
    x = of("float16", [2048, 1, 1])
    same(call("Mean", 13, *[v.reshape(1) for v in x]), of("float16", [683.5]))
    same(call("Sum", 13, *[v.reshape(1) for v in x]), of("float16", [2050]))


def test_zero_dimensional_results_are_arrays():
    for name in ("Abs", "Neg", "Exp", "Sqrt", "Floor", "Sign", "Erf", "IsNaN", "Reciprocal", "Round"):
        result = call(name, 13, np.array(0.25, np.float32))
        assert isinstance(result, np.ndarray)
        assert result.shape == ()


def test_rounding():
    same(call("Round", 11, f32(0.5, 1.5, 2.5, -0.5, -4.5, 2.3)), f32(0, 2, 2, -0.0, -4, 2))
    same(call("Sign", 13, f32(-3, 0, 2, NAN)), f32(-1, 0, 1, NAN))
    same(call("Sign", 13, of("uint8", [0, 9])), of("uint8", [0, 1]))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_erf_against_the_standard_library(dtype):
    x = np.concatenate([np.linspace(-7, 7, 4001), [1e-30, -1e-300, 0, INF, -INF, 0.46875, 4]]).astype(dtype)
    expected = np.array([math.erf(v) for v in x])
    np.testing.assert_allclose(call("Erf", 13, x), expected, rtol=2 * np.finfo(dtype).eps, atol=0)
    assert np.isnan(call("Erf", 13, np.array([NAN], dtype))).all()


def test_infinities():
    x = f32(NAN, INF, -INF, 1)
    same(call("IsInf", 20, x), [False, True, True, False])
    same(call("IsInf", 10, x, detect_negative=0), [False, True, False, False])
    same(call("IsInf", 10, x, detect_positive=0), [False, False, True, False])
    same(call("IsNaN", 9, x), [True, False, False, False])
    same(call("Neg", 13, of("int8", [-128, 5])), of("int8", [-128, -5]))
