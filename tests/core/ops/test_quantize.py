import ml_dtypes
import numpy as np
import pytest

from tests.core.ops.calling import call, f32, of, same
from tests.core.ops.oracle import Numbers, agrees


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16"])
def test_quantize_rounds_halves_to_even_and_saturates(dtype):
    info = np.iinfo(dtype)
    x = f32(0, 0.5, 1.5, 2.5, -0.5, -1.5, np.inf, -np.inf, np.nan, 1e9)
    zero = of(dtype, 10)
    expected = [10, 10, 12, 12, 10, 8, info.max, info.min, 10, info.max]
    same(call("QuantizeLinear", 21, x, f32(1), zero), of(dtype, expected))


def test_quantize_granularity():
    x = f32([[0, 2, 4], [6, 8, 10]])
    scale, zero = f32(1, 2, 4), of("uint8", [0, 1, 2])
    same(call("QuantizeLinear", 13, x, scale, zero), of("uint8", [[0, 2, 3], [6, 5, 4]]))
    same(call("QuantizeLinear", 13, x.T, scale, zero, axis=0), of("uint8", [[0, 2, 3], [6, 5, 4]]).T)
    same(call("QuantizeLinear", 13, x[0], scale, zero), of("uint8", [0, 2, 3]))
    blocks = call("QuantizeLinear", 21, x, f32([[1, 2], [2, 4]]), axis=1, block_size=2)
    same(blocks, of("uint8", [[0, 2, 2], [3, 4, 2]]))
    with pytest.raises(ValueError, match="axis 1 of 3 elements"):
        call("QuantizeLinear", 13, x, f32(1, 2))
    with pytest.raises(ValueError, match="differs from the zero point's type"):
        call("QuantizeLinear", 21, x, f32(1), of("int8", 0), output_dtype=2)


def test_quantize_to_narrow_types():
    x = f32(-20, -8.5, 0.5, 7.4, 99)
    same(call("QuantizeLinear", 21, x, f32(1), output_dtype=22), of(ml_dtypes.int4, [-8, -8, 0, 7, 7]))
    same(call("QuantizeLinear", 21, x, f32(1), output_dtype=21), of(ml_dtypes.uint4, [0, 0, 0, 7, 15]))
    same(call("QuantizeLinear", 25, x, f32(1), output_dtype=26), of(ml_dtypes.int2, [-2, -2, 0, 1, 1]))
    y = call("QuantizeLinear", 19, f32(1, 500), f32(1), np.zeros((), ml_dtypes.float8_e4m3fn))
    assert y.astype(np.float32).tolist() == [1, 448]
    y = call("QuantizeLinear", 19, f32(500), f32(1), np.zeros((), ml_dtypes.float8_e4m3fn), saturate=0)
    assert np.isnan(y.astype(np.float32))


def test_quantize_divides_in_the_type_of_the_scale():
    x, scale = f32(1), f32(1 / 3).astype(np.float16)
    same(call("QuantizeLinear", 21, x * 1000, scale), of("uint8", 255))
    half = call("QuantizeLinear", 21, f32(1000.4), np.float16(1).reshape(()), of("int16", 0))
    same(half, of("int16", 1000))  # 1000.4 is 1000.5 in float16, and rounds to even
    same(
        call("QuantizeLinear", 23, f32(1000.6), np.float16(1).reshape(()), of("int16", 0), precision=1),
        of("int16", 1001),
    )


def test_dequantize():
    x, scale = of("uint8", [0, 128, 255]), f32(0.5)
    same(call("DequantizeLinear", 10, x, scale, of("uint8", 128)), f32(-64, 0, 63.5))
    same(call("DequantizeLinear", 13, of("int32", [2**30, -3]), f32(2)), f32(2.0**31, -6))
    narrow = call("DequantizeLinear", 21, of(ml_dtypes.int4, [-8, 7]), scale.astype(np.float16), of(ml_dtypes.int4, -1))
    same(narrow, of("float16", [-3.5, 4]))
    blocks = call("DequantizeLinear", 21, of("int8", [[1, 2, 3]]), f32([[1, 10]]), of("int8", [[0, 1]]), block_size=2)
    same(blocks, f32([[1, 2, 20]]))
    wide = call("DequantizeLinear", 23, x, scale.astype(np.float16), output_dtype=1)
    same(wide, f32(0, 64, 127.5))


def test_dynamic_quantize():
    agrees("DynamicQuantizeLinear", 11, Numbers().f32(50), outputs=3)
    for x in (np.zeros(3, np.float32), np.zeros(0, np.float32)):
        y, scale, zero = call("DynamicQuantizeLinear", 11, x, outputs=3)
        same(y, np.zeros(len(x), np.uint8))
        same(scale, f32(1))
        same(zero, of("uint8", 0))
    y, scale, zero = call("DynamicQuantizeLinear", 11, f32(np.nan, -51, 204), outputs=3)  # NaN is no extreme
    same(scale, f32(1))
    same(zero, of("uint8", 51))
    same(y, of("uint8", [51, 0, 255]))
    y, scale, zero = call("DynamicQuantizeLinear", 11, f32(-np.inf, 1, np.inf), outputs=3)
    same(scale, f32(np.inf))
    same(zero, of("uint8", 0))
    y, scale, zero = call("DynamicQuantizeLinear", 11, f32(6, 10), outputs=3)  # the range always includes 0
    same(zero, of("uint8", 0))
    same(y, of("uint8", [153, 255]))


@pytest.mark.parametrize("kind", ["u8", "s8"])
def test_integer_products_and_convolutions(kind):
    numbers = Numbers()
    random = getattr(numbers, kind)
    zero = of("uint8" if kind == "u8" else "int8", 7)
    agrees("QLinearMatMul", 10, random(2, 3, 6), f32(0.1), zero, random(6, 4), f32(0.05), zero, f32(5), zero, flips=1)
    per_channel = np.abs(numbers.f32(6)), np.zeros(6, np.int8)
    agrees(
        "QLinearConv", 10, random(2, 4, 6, 6), f32(0.1), zero, numbers.s8(6, 2, 3, 3), *per_channel, f32(30), zero,
        numbers.ints(-100, 100, 6, dtype="int32"), group=2, pads=[1, 1, 1, 1], strides=[2, 2], flips=2,
    )  # fmt: skip


def test_products_do_not_saturate_in_between():
    # Pairs of products of 255 and -128 exceed 16 bits, where some processors' instructions stop.
    a, b = np.full((1, 64), 255, np.uint8), np.full((64, 1), -128, np.int8)
    zero = of("uint8", 0), of("int8", 0)
    y = call("QLinearMatMul", 10, a, f32(1), zero[0], b, f32(1), zero[1], f32(255 * 128 * 64 / 100), zero[1])
    same(y, of("int8", [[-100]]))


def test_qlinear_mat_mul_by_rows_and_columns():
    a, b = of("uint8", [[1, 2], [3, 4]]), of("uint8", [[1, 0], [0, 1]])
    y = call(
        "QLinearMatMul",
        21,
        a,
        f32(1, 2),
        of("uint8", [0, 1]),
        b,
        f32(1, 3),
        of("uint8", [0, 0]),
        f32(1),
        of("uint8", 0),
    )
    same(y, of("uint8", [[1, 6], [4, 18]]))
