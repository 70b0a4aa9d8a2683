from typing import Any

import ml_dtypes
import numpy as np
import pytest

from onnxlet.errors import UnsupportedError
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


FLOAT4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)


def narrow_weights(numbers, kind, shape):
    """The inputs of QMoE for weights (experts, outputs, inputs), and those weights."""
    experts, outputs, inputs = shape
    whole = (0.5 + numbers.generator.random(experts)).astype(np.float32)
    if kind.startswith("fp8"):
        weights = numbers.f32(*shape).astype(ml_dtypes.float8_e4m3fn)
        if kind == "fp8 whole":
            return weights, None, whole, weights.astype(np.float32) * whole[:, None, None]
        scales = numbers.f32(experts, -(-outputs // 24), -(-inputs // 24))
        spread = np.repeat(np.repeat(scales, 24, axis=1), 24, axis=2)[:, :outputs, :inputs]
        return weights, scales, None, weights.astype(np.float32) * spread
    codes = numbers.ints(0, 16, *shape, dtype="uint8")
    block = 32 if kind == "fp4" else 16
    dtype = ml_dtypes.float8_e8m0fnu if kind == "fp4" else ml_dtypes.float8_e4m3fn
    scales = (2.0 ** numbers.ints(-3, 2, experts, outputs, inputs // block)).astype(dtype)
    values = FLOAT4[codes] * np.repeat(scales.astype(np.float32), block, axis=2) * whole[:, None, None]
    if kind == "nvfp4":  # two outputs to a byte
        codes = codes.swapaxes(1, 2)
    return codes[..., ::2] | codes[..., 1::2] << 4, scales, whole, values


@pytest.mark.parametrize("kind", ["fp8", "fp8 whole", "fp4", "nvfp4", "nvfp4 rows"])
def test_experts_in_narrow_floats(kind):
    """As MoE of what the codes stand for."""
    numbers = Numbers()
    x, router = numbers.f32(TOKENS, HIDDEN), numbers.f32(TOKENS, EXPERTS)
    first = narrow_weights(numbers, kind, (EXPERTS, INNER, HIDDEN))
    second = narrow_weights(numbers, kind, (EXPERTS, HIDDEN, INNER))
    options: dict[str, Any] = {"k": 2, "activation_type": "silu", "domain": MICROSOFT}
    expected = call("MoE", 1, x, router, first[3], None, second[3], **options)
    packed = [first[0], second[0]]
    if kind == "nvfp4 rows":  # the bytes by rows, the shape as if by columns
        packed = [p.reshape(len(p), n, -1) for p, n in zip(packed, (HIDDEN, INNER), strict=True)]
        options["weights_prepacked"] = 1
    got = call(
        "QMoE", 1, x, router, packed[0], first[1], None, packed[1], second[1], *[None] * 8, first[2], second[2],
        quant_type=kind.split()[0], block_size=24 if kind == "fp8" else 0, **options,
    )  # fmt: skip
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-3 * np.abs(expected).max())


def test_experts_of_three_bits():
    numbers = Numbers()
    x, router = numbers.f32(TOKENS, HIDDEN), numbers.f32(TOKENS, EXPERTS)
    parts, weights = [], []
    for outputs, inputs in ((2 * INNER, HIDDEN), (HIDDEN, INNER)):
        codes = numbers.ints(0, 8, EXPERTS, outputs, inputs, dtype="uint8")
        bits = codes[..., None] >> np.arange(3, dtype=np.uint8) & 1
        packed = np.packbits(bits.reshape(EXPERTS, outputs, -1), axis=-1, bitorder="little")
        scales = np.abs(numbers.f32(EXPERTS, outputs, inputs // 32)) / 8
        parts += [packed, scales, None]
        weights += [(codes.astype(np.float32) - 4) * np.repeat(scales, 32, axis=2), None]
    options: dict[str, Any] = {"k": 2, "activation_type": "swiglu", "swiglu_fusion": 1, "domain": MICROSOFT}
    expected = call("MoE", 1, x, router, *weights[:3], **options)
    got = call("QMoE", 1, x, router, *parts[:5], expert_weight_bits=3, block_size=32, **options)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-3 * np.abs(expected).max())


def test_what_is_not_there_is_said():
    x, w = np.zeros((1, 32), np.float32), np.zeros((1, 1, 16), np.uint8)
    router = np.zeros((1, 1), np.float32)
    with pytest.raises(UnsupportedError, match="'wfp4afp8'"):
        call("QMoE", 1, x, router, w, None, None, w, quant_type="wfp4afp8", domain=MICROSOFT)
    with pytest.raises(ValueError, match="need a global scale"):
        call("QMoE", 1, x, router, w, np.ones((1, 1, 1), np.float32), None, w, quant_type="fp4", domain=MICROSOFT)


def near_one_another(logits: np.ndarray) -> tuple[list[int], list[float]]:
    """Two experts of one token and their shares, an expert at a time."""
    chosen: list[int] = []
    shares = []
    for _ in range(2):
        left = [e for e in range(len(logits)) if e not in chosen]
        first = max(left, key=lambda e: logits[e])
        near = [e for e in left if (logits[first] - logits[e]) / max(abs(logits[e]), logits[first]) <= 0.02]
        chosen.append(first)
        shares.append(1 / sum(np.exp(logits[e] - logits[first]) for e in near))
    return chosen, shares


@pytest.mark.parametrize("experts", [2, 3, 16])
def test_experts_of_the_sparse_mixer(experts):
    """Identical layers tell shares apart by their biases."""
    numbers = Numbers()
    logits = np.repeat(numbers.f32(40, 1), experts, axis=1) * (1 + 0.02 * numbers.f32(40, experts))
    x = np.zeros((40, 16), np.float32)
    inner = np.zeros((experts, 16, 16), np.float32)
    biases = np.zeros((experts, 16), np.float32), np.eye(experts, 16, dtype=np.float32)
    y = call(
        "MoE", 1, x, logits, inner, biases[0], inner, biases[1], domain=MICROSOFT, k=2, use_sparse_mixer=1,
        activation_type="identity",
    )  # fmt: skip
    several = 0
    for row, token in zip(y, logits, strict=True):
        chosen, shares = near_one_another(token)
        expected = np.zeros(16)
        expected[chosen] = shares
        several += shares[0] < 1
        np.testing.assert_allclose(row, expected, rtol=1e-4, atol=1e-5)
    assert several
    with pytest.raises(ValueError, match="chooses 2 experts"):
        call("MoE", 1, x, logits, inner, biases[0], inner, biases[1], domain=MICROSOFT, k=1, use_sparse_mixer=1)
