from typing import Any

import numpy as np
import pytest

from onnxlet.ops.activation_table import activation
from tests.core.ops.calling import call, f32, same
from tests.core.ops.oracle import Numbers, agrees

MICROSOFT = "com.microsoft"
ACTIVATIONS = [
    ("Relu", []),
    ("Sigmoid", []),
    ("Tanh", []),
    ("LeakyRelu", [0.2]),
    ("Clip", [-0.5, 0.7]),
    ("HardSigmoid", [0.3, 0.4]),
]


@pytest.mark.parametrize(("name", "parameters"), ACTIVATIONS)
def test_fused_conv(name, parameters):
    numbers = Numbers()
    options = {"domain": MICROSOFT, "activation": name}
    if parameters:
        options["activation_params"] = parameters
    agrees("FusedConv", 1, numbers.f32(2, 4, 7, 6), numbers.f32(6, 2, 3, 3), numbers.f32(6), group=2, **options)
    whole = [numbers.f32(2, 4, 7, 6), numbers.f32(6, 4, 3, 3), numbers.f32(6), numbers.f32(2, 6, 5, 4)]
    agrees("FusedConv", 1, *whole, **options)


@pytest.mark.parametrize("name", ["Relu", "LeakyRelu", "Sigmoid", "Tanh"])
def test_fused_gemm(name):
    numbers = Numbers()
    options: dict[str, Any] = {"activation_alpha": 0.3} if name == "LeakyRelu" else {}
    agrees(
        "FusedGemm", 1, numbers.f32(3, 4), numbers.f32(5, 4), numbers.f32(5),
        domain=MICROSOFT, activation=name, transB=1, alpha=0.5, beta=2.0, **options,
    )  # fmt: skip


@pytest.mark.parametrize("trans", [0, 1])
@pytest.mark.parametrize("batch", [0, 1])
def test_fused_mat_mul_of_transposed_batches(trans, batch):
    a, b = Numbers().f32(2, 3, 4, 5), Numbers(1).f32(2, 3, 5, 6)
    stored = []
    for x in (a, b):
        x = x.swapaxes(-1, -2) if trans else x
        stored.append(np.ascontiguousarray(np.moveaxis(x, -2, 0) if batch else x))
    options = {"domain": MICROSOFT, "alpha": 0.7, "transA": trans, "transB": trans}
    agrees("FusedMatMul", 1, *stored, transBatchA=batch, transBatchB=batch, **options)
    y = call("FusedMatMul", 1, *stored, transBatchA=batch, transBatchB=batch, **options)
    np.testing.assert_allclose(y, 0.7 * (a @ b), rtol=1e-5, atol=1e-5)
    if not batch:
        same(call("TransposeMatMul", 1, *stored, **options), y)


def test_fused_mat_mul_of_the_rewrites():
    numbers = Numbers()
    a, b, bias, residual = numbers.f32(2, 3, 4), numbers.f32(5, 4), numbers.f32(5), numbers.f32(3, 5)
    y = call(
        "FusedMatMul", 1, a, b, bias, residual, domain="ai.onnxlet", transB=1, alpha=0.5, activation="Clip",
        activation_params=[-1.0, 1.0],
    )  # fmt: skip
    np.testing.assert_allclose(y, np.clip(0.5 * (a @ b.T) + bias + residual, -1, 1), rtol=1e-5, atol=1e-5)
    plain = call("FusedMatMul", 1, a.swapaxes(1, 2), b.T, domain="ai.onnxlet", transA=1)
    np.testing.assert_allclose(plain, a @ b.T, rtol=1e-5, atol=1e-5)
    half = np.ones((1, 4096), np.float16)
    same(call("FusedMatMul", 1, half, half, domain="ai.onnxlet", transB=1), np.array([[4096]], np.float16))


def test_activations_by_name():
    x = f32(-2, 0, 3)
    same(activation("leakyRELU", [0.5])(x), f32(-1, 0, 3))
    same(activation("ThresholdedRelu")(x), f32(0, 0, 3))
    same(activation("Affine", [2, 1])(x), f32(-3, 1, 7))
    same(activation("Clip")(x), x)
    same(activation("")(x), x)
    np.testing.assert_allclose(activation("HardSwish")(x), [-2 / 6, 0, 3], rtol=1e-6)
    np.testing.assert_allclose(activation("Silu")(x), x / (1 + np.exp(-x)), rtol=1e-6)
    with pytest.raises(ValueError, match="activation 'Swoosh' is unknown"):
        activation("Swoosh")
