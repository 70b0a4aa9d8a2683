"""com.microsoft: operators that join or quantise others."""

import numpy as np
import pytest

from tests.core.ops.calling import call, f32, of, same
from tests.core.ops.oracle import Numbers, agrees

MICROSOFT = "com.microsoft"


def test_quantize_and_dequantize_have_16_bits():
    x, scale = f32([[0, 2.5, -7], [1, 1, 300]]), f32(0.5)
    agrees("QuantizeLinear", 1, x, scale, of("uint8", 10), domain=MICROSOFT)
    agrees("QuantizeLinear", 1, x, scale, of("int16", -3), domain=MICROSOFT)
    agrees("QuantizeLinear", 1, x, f32(0.5, 2), of("int8", [0, 1]), domain=MICROSOFT, axis=0)
    agrees("DequantizeLinear", 1, of("uint16", [0, 40000]), scale, of("uint16", 7), domain=MICROSOFT)
    agrees(
        "DequantizeLinear", 1, of("int8", [[1, -8], [3, 4]]), f32(0.5, 2), of("int8", [0, 1]), domain=MICROSOFT, axis=1
    )


@pytest.mark.parametrize("opset", [12, 13])
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_qlinear_softmax(opset, dtype):
    x = Numbers().ints(0, 100, 2, 3, 4, dtype=dtype)
    zero = of(dtype, 0 if dtype == "uint8" else -128)
    agrees(
        "QLinearSoftmax", 1, x, f32(0.1), of(dtype, 3), f32(1 / 256), zero,
        domain=MICROSOFT, axis=1, opset=opset, flips=3,
    )  # fmt: skip


def test_gemm_fast_gelu():
    numbers = Numbers()
    x, w, bias = numbers.f32(2, 3, 4), numbers.f32(4, 5), numbers.f32(5)
    y = x @ w + bias
    expected = y / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (y + 0.044715 * y**3)))
    np.testing.assert_allclose(call("GemmFastGelu", 1, x, w, bias, domain=MICROSOFT), expected, rtol=1e-4, atol=1e-6)
    same(call("GemmFastGelu", 1, x, w, domain=MICROSOFT), call("FastGelu", 1, x @ w, domain=MICROSOFT))


@pytest.mark.parametrize(
    ("activation", "attributes", "function"),
    [
        ("Relu", {}, lambda y: np.maximum(y, 0)),
        ("LeakyRelu", {"activation_alpha": 0.2}, lambda y: np.where(y < 0, 0.2 * y, y)),
        ("HardSigmoid", {"activation_alpha": 0.3, "activation_beta": 0.1}, lambda y: np.clip(0.3 * y + 0.1, 0, 1)),
        ("Softmax", {"activation_axis": 1}, lambda y: np.exp(y) / np.exp(y).sum(1, keepdims=True)),
    ],
)
def test_fused_mat_mul_activation(activation, attributes, function):
    numbers = Numbers()
    a, b = numbers.f32(2, 4, 3), numbers.f32(2, 4, 5)
    given = call(
        "FusedMatMulActivation", 1, a, b,
        domain=MICROSOFT, activation=activation, alpha=0.5, transA=1, **attributes,
    )  # fmt: skip
    np.testing.assert_allclose(given, function(0.5 * a.swapaxes(1, 2) @ b), rtol=1e-5, atol=1e-6)


def test_q_embed_layer_normalization():
    numbers = Numbers()
    ids, segments = numbers.ints(0, 7, 2, 5, dtype="int32"), numbers.ints(0, 2, 2, 5, dtype="int32")
    mask = of("int32", [[1, 1, 1, 0, 0], [1, 1, 1, 1, 0]])
    tables = [numbers.u8(7, 8), numbers.u8(5, 8), numbers.u8(2, 8), numbers.u8(8), numbers.u8(8)]
    scales, zeros = [f32(s) for s in (0.02, 0.03, 0.01, 0.05, 0.02)], [of("uint8", z) for z in (128, 100, 130, 0, 90)]
    agrees("QEmbedLayerNormalization", 1, ids, segments, *tables, mask, *scales, *zeros, domain=MICROSOFT, outputs=2)


def test_simplified_layer_normalization():
    x, scale = Numbers().f32(2, 3, 4), f32(1, 2, 3, 4)
    y = call("SimplifiedLayerNormalization", 1, x, scale, domain=MICROSOFT, epsilon=1e-3)
    expected = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-3) * scale
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)
