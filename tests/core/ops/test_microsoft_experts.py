from typing import Any

import numpy as np
import pytest

from onnxlet.ops.activations import sigmoid
from tests.core.ops.calling import call
from tests.core.ops.oracle import Numbers, agrees

MICROSOFT = "com.microsoft"
EXPERTS, HIDDEN, INNER, TOKENS = 4, 32, 64, 6


def layers(numbers, fused=1):
    return [
        numbers.f32(EXPERTS, INNER * fused, HIDDEN),
        numbers.f32(EXPERTS, INNER * fused),
        numbers.f32(EXPERTS, HIDDEN, INNER),
        numbers.f32(EXPERTS, HIDDEN),
    ]


@pytest.mark.parametrize("activation", ["relu", "gelu", "silu", "identity"])
@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("normalize", [0, 1])
def test_moe(activation, k, normalize):
    numbers = Numbers()
    inputs = numbers.f32(TOKENS, HIDDEN), numbers.f32(TOKENS, EXPERTS), *layers(numbers)
    options: dict[str, Any] = {"activation_type": activation, "k": k, "normalize_routing_weights": normalize}
    agrees("MoE", 1, *inputs, domain=MICROSOFT, atol=1e-3, **options)


@pytest.mark.parametrize("limit", [{}, {"swiglu_limit": 0.5}])
def test_swiglu_experts_however_the_halves_lie(limit):
    numbers = Numbers()
    x, router = numbers.f32(2, 3, HIDDEN), numbers.f32(TOKENS, EXPERTS)
    w1, b1, w2, b2 = layers(numbers, fused=2)
    options: dict[str, Any] = {"activation_type": "swiglu", "k": 2, "activation_alpha": 1.7, "activation_beta": 1.0}
    options |= {"domain": MICROSOFT, **limit}
    agrees("MoE", 1, x, router, w1, b1, w2, b2, swiglu_fusion=1, atol=1e-2, **options)
    y = call("MoE", 1, x, router, w1, b1, w2, b2, swiglu_fusion=1, **options)
    halves = np.concatenate([w1[:, ::2], w1[:, 1::2]], axis=1), np.concatenate([b1[:, ::2], b1[:, 1::2]], axis=1)
    side_by_side = call("MoE", 1, x, router, *halves, w2, b2, swiglu_fusion=2, **options)
    np.testing.assert_allclose(side_by_side, y, rtol=1e-4, atol=1e-3)
    apart = w1[:, ::2], b1[:, ::2], w2, b2, w1[:, 1::2], b1[:, 1::2]
    np.testing.assert_allclose(call("MoE", 1, x, router, *apart, **options), y, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("block_size", [0, 32])
@pytest.mark.parametrize("weighted", [False, True])
def test_quantised_experts(bits, block_size, weighted):
    numbers = Numbers()
    blocks = (lambda n: (n // block_size,)) if block_size else (lambda _: ())
    inputs = [
        numbers.f32(TOKENS, HIDDEN),
        numbers.f32(TOKENS, EXPERTS),
        numbers.u8(EXPERTS, 2 * INNER, HIDDEN * bits // 8),
        np.abs(numbers.f32(EXPERTS, 2 * INNER, *blocks(HIDDEN))) / 1000,
        numbers.f32(EXPERTS, 2 * INNER),
        numbers.u8(EXPERTS, HIDDEN, INNER * bits // 8),
        np.abs(numbers.f32(EXPERTS, HIDDEN, *blocks(INNER))) / 1000,
        numbers.f32(EXPERTS, HIDDEN),
        *[None] * 6,
        np.abs(numbers.f32(TOKENS, EXPERTS)) if weighted else None,
    ]
    options: dict[str, Any] = {"block_size": block_size} if block_size else {}
    agrees(
        "QMoE", 1, *inputs, domain=MICROSOFT, activation_type="swiglu", swiglu_fusion=1, k=2,
        expert_weight_bits=bits, normalize_routing_weights=1, rtol=2e-2, atol=2e-2, **options,
    )  # fmt: skip


def packed(numbers, n):
    return numbers.u8(n, 2, 8), numbers.f32(n, 2), numbers.f32(n)


def test_products_that_share_an_input():
    numbers = Numbers()
    x, skip, scale = numbers.f32(3, 32), numbers.f32(3, 32), numbers.f32(32)
    gate, up = packed(numbers, 5), packed(numbers, 5)
    options: dict[str, Any] = {"domain": MICROSOFT, "K": 32, "block_size": 16}
    normalized = call("SkipSimplifiedLayerNormalization", 1, x, skip, scale, domain=MICROSOFT, epsilon=1e-5)

    def product(layer):
        weights, scales, bias = layer
        return call("MatMulNBits", 1, normalized, weights, scales, None, None, bias, N=5, **options)

    y, total = call(
        "MatMulNBitsMlp", 1, x, skip, scale, *gate, *up, outputs=2, activation="silu", N=5, epsilon=1e-5, **options
    )
    g = product(gate)
    np.testing.assert_allclose(y, g * sigmoid(g) * product(up), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(total, x + skip, rtol=1e-6)
    three = call(
        "MatMulNBitsQkv", 1, x, skip, scale, *gate, *up, *gate, outputs=3, Nq=5, Nkv=5, epsilon=1e-5, **options
    )
    for got, layer in zip(three, (gate, up, gate), strict=True):
        np.testing.assert_allclose(got, product(layer), rtol=1e-4, atol=1e-4)
