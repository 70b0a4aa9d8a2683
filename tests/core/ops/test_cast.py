import ml_dtypes
import numpy as np
import pytest

from onnxlet.model.dtypes import bits_of, dtype_of
from tests.core.ops.calling import call, f32, i64, of, same

FLOAT, UINT8, INT8, INT32, INT64, STRING, BOOL, HALF, DOUBLE, UINT32, UINT64 = 1, 2, 3, 6, 7, 8, 9, 10, 11, 12, 13
BFLOAT16, E4M3FN, E4M3FNUZ, E5M2, E5M2FNUZ, UINT4, INT4, E2M1, E8M0 = range(16, 25)
NAN, INF = np.nan, np.inf


def test_the_first_version_names_the_type():
    same(call("Cast", 1, f32(1.9, -1.9), to="INT32"), of("int32", [1, -1]))
    same(call("Cast", 6, f32(1.9, -1.9), to=INT32), of("int32", [1, -1]))


def test_floats_beyond_integers():
    # They saturate at 64 bits; narrower types take the low bits, as they do from integers.
    big = np.array([NAN, 1e30, -1e30, 2.0**63, -(2.0**63), 2.0**62], np.float64)
    same(call("Cast", 13, big, to=INT64), i64(0, 2**63 - 1, -(2**63), 2**63 - 1, -(2**63), 2**62))
    same(call("Cast", 13, big, to=UINT64), np.array([0, 2**64 - 1, 2**63, 2**63, 2**63, 2**62], np.uint64))
    same(call("Cast", 13, f32(-1, INF, 1.5 * 2**63), to=UINT64), np.array([2**64 - 1, 2**64 - 1, 3 * 2**62], np.uint64))
    x = f32(NAN, INF, -INF, 3e9, -1.5)
    same(call("Cast", 13, x, to=INT32), of("int32", [0, -1, 0, 3000000000 - 2**32, -1]))
    same(call("Cast", 13, x, to=UINT32), of("uint32", [0, 2**32 - 1, 0, 3000000000, 2**32 - 1]))
    same(call("Cast", 13, f32(300, -1, 127.9, NAN), to=UINT8), of("uint8", [44, 255, 127, 0]))
    same(call("Cast", 13, f32(200, -129), to=INT8), of("int8", [-56, 127]))


def test_integers_wrap_and_booleans():
    same(call("Cast", 13, of("int16", [200, -1]), to=INT8), of("int8", [-56, -1]))
    same(call("Cast", 13, f32(0, -0.0, 0.5, NAN), to=BOOL), [False, False, True, True])
    same(call("Cast", 13, np.array([True, False]), to=FLOAT), f32(1, 0))
    same(call("Cast", 13, np.array([1e10, 1.0]), to=HALF), of("float16", [INF, 1]))


def test_strings():
    x = np.array(["3.14", "1e-5", "+INF", "-inf", "NaN", "100"], object)
    same(call("Cast", 9, x, to=FLOAT), f32(3.14, 1e-5, INF, -INF, NAN, 100))
    same(call("Cast", 13, np.array(["100.5", "-7", "300"], object), to=UINT8), of("uint8", [100, 249, 44]))
    same(call("Cast", 13, np.array("9223372036854775807", object), to=INT64), i64(2**63 - 1))
    same(call("Cast", 13, f32(314.15926, 1, 0.1), to=STRING), np.array(["314.15927", "1.0", "0.1"], object))
    same(call("Cast", 13, i64(-5), to=STRING), np.array("-5", object))
    with pytest.raises(ValueError, match="Hello"):
        call("Cast", 13, np.array(["Hello"], object), to=FLOAT)


def patterns(x, code, **attributes):
    return bits_of(call("Cast", 24, x, to=code, **attributes)).tolist()


def test_bfloat16_rounds_to_even_once():
    # 1 + 1/256 lies halfway between two bfloat16, as does 1 + 3/256.
    same(call("Cast", 13, call("Cast", 13, f32(1 + 1 / 256, 1 + 3 / 256), to=BFLOAT16), to=FLOAT), f32(1, 1 + 4 / 256))
    # Just above halfway in float64, just halfway in float32.
    assert patterns(np.array([1 + 1 / 256 + 2.0**-40]), BFLOAT16) == [0x3F81]
    assert patterns(i64(2**62 + 2**54 + 1, -(2**62 + 2**54 + 1)), BFLOAT16) == [0x5E81, 0xDE81]
    assert patterns(f32(INF, -INF, 3.4e38, 1e-45), BFLOAT16) == [0x7F80, 0xFF80, 0x7F80, 0]


@pytest.mark.parametrize(
    ("code", "saturated", "plain"),
    [
        # of 0, -0, NaN, infinity, -infinity, 1e6, -1e6: the tables of Cast.
        (E4M3FN, [0x00, 0x80, 0x7F, 0x7E, 0xFE, 0x7E, 0xFE], [0x00, 0x80, 0x7F, 0x7F, 0xFF, 0x7F, 0xFF]),
        (E4M3FNUZ, [0x00, 0x00, 0x80, 0x7F, 0xFF, 0x7F, 0xFF], [0x00, 0x00, 0x80, 0x80, 0x80, 0x80, 0x80]),
        (E5M2FNUZ, [0x00, 0x00, 0x80, 0x7F, 0xFF, 0x7F, 0xFF], [0x00, 0x00, 0x80, 0x80, 0x80, 0x80, 0x80]),
    ],
)
def test_float8_tables(code, saturated, plain):
    x = f32(0, -0.0, NAN, INF, -INF, 1e6, -1e6)
    assert patterns(x, code) == saturated
    assert patterns(x, code, saturate=0) == plain


def test_float8_e5m2():
    x = f32(0, -0.0, INF, -INF, 1e6, -1e6)
    assert patterns(x, E5M2) == [0x00, 0x80, 0x7B, 0xFB, 0x7B, 0xFB]
    assert patterns(x, E5M2, saturate=0) == [0x00, 0x80, 0x7C, 0xFC, 0x7C, 0xFC]
    assert np.isnan(call("Cast", 24, call("Cast", 24, f32(NAN), to=E5M2), to=FLOAT))


@pytest.mark.parametrize(
    ("mode", "saturate", "expected"),
    [
        ("up", 1, [0, 254, 254, 0, 127, 128, 128, 128]),
        ("down", 1, [0, 254, 254, 0, 127, 127, 127, 127]),
        ("nearest", 1, [0, 254, 254, 0, 127, 127, 128, 128]),
        ("nearest", 0, [255, 255, 255, 255, 127, 127, 128, 128]),
    ],
)
def test_float8_e8m0(mode, saturate, expected):
    x = np.array([0, INF, 1e39, 1e-39, 1, 1.4, 1.5, 1.9])
    if mode == "nearest" and not saturate:
        x[3] = 1e-45
    assert patterns(x, E8M0, round_mode=mode, saturate=saturate) == expected


@pytest.mark.parametrize("code", [BFLOAT16, E4M3FN, E4M3FNUZ, E5M2, E5M2FNUZ, E2M1])
def test_random_floats_against_ml_dtypes(code):
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.standard_normal(500) * 10.0**e for e in range(-10, 11, 2)]).astype(np.float32)
    with np.errstate(all="ignore"):
        expected = x.astype(dtype_of(code))
    assert patterns(x, code, saturate=0) == bits_of(expected).tolist()
    assert dtype_of(code).type is expected.dtype.type
    same(call("Cast", 24, expected, to=FLOAT), expected.astype(np.float32))


def test_four_bits():
    same(call("Cast", 21, f32(-9, -8, 7, 8.9), to=INT4).astype(np.int8), of("int8", [7, -8, 7, -8]))
    same(call("Cast", 21, f32(-1, 15, 16), to=UINT4).astype(np.uint8), of("uint8", [15, 15, 0]))
    same(call("Cast", 21, np.array([-8, 7], ml_dtypes.int4), to=INT32), of("int32", [-8, 7]))


def test_cast_like_and_bit_cast():
    same(call("CastLike", 15, f32(1.5), i64([])), i64(1))
    same(call("BitCast", 26, f32(1, -2), to=INT32), of("int32", [0x3F800000, -0x40000000]))
    same(call("BitCast", 26, of("uint8", [255, 1]), to=INT8), of("int8", [-1, 1]))
    assert bits_of(call("BitCast", 26, of("uint16", [0x3F80]), to=BFLOAT16)).tolist() == [0x3F80]
    same(call("BitCast", 26, np.array([1], ml_dtypes.bfloat16), to=4), of("uint16", [0x3F80]))
    same(call("BitCast", 26, call("Cast", 21, f32(-1), to=INT4), to=UINT4).astype(np.uint8), np.uint8(15))
    with pytest.raises(ValueError, match="8 bits"):
        call("BitCast", 26, f32(1), to=INT8)
