"""Products with weights in blocks that onnxruntime's CPU has (MatMulFpQ4) or has not: those worked out in float64."""

import ml_dtypes
import numpy as np
import pytest

from tests.core.ops.calling import call, f32, i64
from tests.core.ops.oracle import Numbers, agrees

MICROSOFT = "com.microsoft"


@pytest.mark.parametrize(("kind", "block", "offset"), [(0, 32, 0), (1, 32, 1), (2, 64, 0)])
def test_mat_mul_fp_q4(kind, block, offset):
    numbers = Numbers()
    rows, columns = 70, 5
    count = -(-rows // block)
    blob = numbers.u8(columns, count, 4 + offset + block // 2)
    scale = numbers.f32(columns, count, 1)
    blob[..., :4] = scale.view(np.uint8)
    if offset:
        blob[..., 4] &= 15
    a, shape = numbers.f32(2, 3, rows), i64(rows, columns)
    if kind < 2:  # onnxruntime reads kind 2 as kind 1
        agrees("MatMulFpQ4", 1, a, blob.reshape(-1), shape, domain=MICROSOFT, blk_quant_type=kind)
        return
    weights = np.zeros((count * block, columns))
    for n in range(columns):
        for k in range(count * block):
            at, in_block = divmod(k, block)
            byte = blob[n, at, 4 + in_block // 32 * 16 + in_block % 16]
            value = byte & 15 if in_block % 32 < 16 else byte >> 4
            weights[k, n] = (float(value) - 8) * scale[n, at, 0]
    y = call("MatMulFpQ4", 1, a, blob.reshape(-1), shape, domain=MICROSOFT, blk_quant_type=kind)
    np.testing.assert_allclose(y, a @ weights[:rows], rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match="359 bytes are not the 360 of weights"):
        call("MatMulFpQ4", 1, a, blob.reshape(-1)[1:], shape, domain=MICROSOFT, blk_quant_type=kind)


def test_fp4_weights():
    numbers = Numbers()
    codes = numbers.ints(0, 16, 6, 40, dtype="uint8")
    packed = codes[:, ::2] | codes[:, 1::2] << 4
    scale = np.abs(numbers.f32(6, 3)).astype(ml_dtypes.float8_e4m3fn)
    a, bias = numbers.f32(2, 3, 40).astype(np.float16), numbers.f32(6).astype(np.float16)
    y = call(
        "MatMulBlockQuantizedFp4Weight", 1, a, packed, scale.view(np.uint8), f32(0.7), None, bias, domain=MICROSOFT
    )
    values = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])[codes & 7] * np.where(codes & 8, -1, 1)
    weights = values * np.repeat(scale.astype(np.float64), 16, axis=1)[:, :40] * 0.7
    expected = a.astype(np.float64) @ weights.astype(np.float16).astype(np.float64).T + bias
    assert y.dtype == np.float16
    np.testing.assert_allclose(y, expected, rtol=2e-3, atol=5e-3)


@pytest.mark.parametrize("quantized", [False, True])
def test_fp8_weights(quantized):
    numbers = Numbers()
    b = numbers.f32(6, 40).astype(ml_dtypes.float8_e4m3fn)
    scale, a, bias = numbers.f32(6, 3), numbers.f32(2, 3, 40).astype(np.float16), numbers.f32(6).astype(np.float16)
    a_scale = f32(0.02) if quantized else None
    y = call("MatMulBlockQuantizedFp8Weight", 1, a, b, scale, a_scale, bias, domain=MICROSOFT, block_size=16)
    x = a.astype(np.float64)
    if quantized:
        x = (a.astype(np.float32) / np.float32(0.02)).astype(ml_dtypes.float8_e4m3fn).astype(np.float64) * 0.02
    expected = x @ (b.astype(np.float64) * np.repeat(scale, 16, axis=1)[:, :40]).T + bias
    assert y.dtype == np.float16
    np.testing.assert_allclose(y, expected, rtol=2e-3, atol=1e-2)


@pytest.mark.parametrize("rank", [8, 40])
def test_qlora(rank):
    numbers = Numbers()
    x, w, scales = numbers.f32(2, 3, 70), numbers.u8(5, 3, 16), numbers.f32(5, 3)
    blocks = -(-rank // 32)
    lora_a, a_scales = numbers.u8(rank, 3, 32), numbers.f32(rank, 3) / 32
    lora_b, b_scales = numbers.u8(5, blocks, 32), numbers.f32(5, blocks) / 32
    options = {"domain": MICROSOFT, "K": 70, "N": 5}

    def weights(packed, scale, bits, count):
        low_first = packed if bits == 8 else np.stack([packed & 15, packed >> 4], axis=-1)
        values = low_first.reshape(len(packed), -1, 32).astype(np.float64) - (1 << (bits - 1))
        return (values * scale[..., None]).reshape(len(packed), -1)[:, :count]

    base = x @ weights(w, scales, 4, 70).T
    down = x @ weights(lora_a, a_scales, 8, 70).T
    y = call("MatMulNBitsQLoRA", 1, x, w, scales, lora_a, a_scales, lora_b, b_scales, **options)
    np.testing.assert_allclose(y, base + down @ weights(lora_b, b_scales, 8, rank).T, rtol=1e-4, atol=1e-2)
    none = lora_b[:, :0]
    np.testing.assert_allclose(
        call("MatMulNBitsQLoRA", 1, x, w, scales, lora_a, a_scales, none, b_scales, **options),
        base,
        rtol=1e-4,
        atol=1e-3,
    )
    nothing = lora_a[:0]
    np.testing.assert_allclose(
        call("MatMulNBitsQLoRA", 1, x, w, scales, nothing, a_scales, lora_b, b_scales, **options),
        base, rtol=1e-4, atol=1e-3,
    )  # fmt: skip


def test_gemm_float8():
    numbers = Numbers()
    a, b, c = numbers.f32(3, 8), numbers.f32(5, 8), numbers.f32(3, 5)
    x, w = a.astype(ml_dtypes.float8_e4m3fn), b.astype(ml_dtypes.float8_e5m2)
    product = x.astype(np.float64) @ w.astype(np.float64).T * 0.5 * 0.25 * 2
    scales = f32(0.5), f32(0.25)
    options = {"domain": MICROSOFT, "transB": 1, "alpha": 2.0}
    np.testing.assert_allclose(call("GemmFloat8", 1, x, w, None, *scales, **options), product, rtol=1e-5, atol=1e-6)
    y = call("GemmFloat8", 1, x, w, c, *scales, f32(3), beta=0.5, activation="RELU", **options)
    np.testing.assert_allclose(y, 3 * np.maximum(product + 0.5 * c, 0), rtol=1e-5, atol=1e-5)
    y = call("GemmFloat8", 1, x, w, None, *scales, dtype=17, **options)
    assert y.dtype == ml_dtypes.float8_e4m3fn
    np.testing.assert_array_equal(y, product.astype(np.float32).astype(ml_dtypes.float8_e4m3fn))
    transposed = call("GemmFloat8", 1, a.T.copy(), b, domain=MICROSOFT, transA=1, transB=1, dtype=10)
    assert transposed.dtype == np.float16
    np.testing.assert_allclose(transposed, a @ b.T, rtol=2e-3, atol=2e-3)
    with pytest.raises(ValueError, match="activation is 'TANH'"):
        call("GemmFloat8", 1, a, b, activation="TANH", **options)
