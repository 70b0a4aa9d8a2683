from typing import Any

import numpy as np
import pytest

from tests.core.ops.calling import call, f32, of, same
from tests.core.ops.oracle import Numbers, agrees

MICROSOFT = "com.microsoft"
HALF: dict[str, Any] = {"rtol": 2e-3, "atol": 2e-3}


def half(x):
    return x.astype(np.float16)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_scaled_silu(dtype):
    x = Numbers().f32(3, 50).astype(dtype)
    agrees("ScaledSiLU", 1, x, domain=MICROSOFT, alpha=1.7, rtol=1e-3 if dtype == np.float16 else 1e-5)
    agrees("ScaledSiLU", 1, x, f32(0.3), domain=MICROSOFT, rtol=1e-3 if dtype == np.float16 else 1e-5)


@pytest.mark.parametrize("shape", [(24,), (3, 8), (8,), None])
def test_branchwise_rms_norm(shape):
    numbers = Numbers()
    scale = None if shape is None else numbers.f32(*shape)
    options = {"domain": MICROSOFT, "epsilon": 1e-3}
    agrees("BranchwiseRMSNorm", 1, numbers.f32(2, 5, 3, 8), scale, **options)
    agrees("BranchwiseRMSNorm", 1, numbers.f32(2, 5, 24), scale, num_branches=3, **options)
    agrees("BranchwiseRMSNorm", 1, half(numbers.f32(2, 5, 24)), scale, num_branches=3, **options, **HALF)


@pytest.mark.parametrize("gate", [(2, 5, 3), (2, 5, 3, 1), (2, 5, 3, 8)])
def test_hyper_connections(gate):
    numbers = Numbers()
    mix, output, streams = numbers.f32(*gate), numbers.f32(2, 5, 8), numbers.f32(2, 5, 3, 8)
    flat = streams.reshape(2, 5, 24)
    pre, post = ("HyperConnectionPreMix", 1), ("HyperConnectionPostMix", 1)
    agrees(*pre, streams, mix, domain=MICROSOFT, reduction_scale=0.4)
    agrees(*pre, flat, mix, domain=MICROSOFT, num_branches=3)
    agrees(*pre, flat, mix if mix.ndim < 4 or gate[3] == 1 else mix.reshape(2, 5, 24), domain=MICROSOFT, num_branches=3)
    agrees(*post, streams, output, mix, domain=MICROSOFT)
    agrees(*post, streams, output, mix, numbers.f32(2, 5, 3, 3), domain=MICROSOFT)
    agrees(*post, half(flat), half(output), mix, numbers.f32(2, 5, 3, 3), domain=MICROSOFT, num_branches=3, **HALF)


def test_engram_gate():
    numbers = Numbers()
    inputs = numbers.f32(2, 5, 3, 8), numbers.f32(2, 5, 3, 8), numbers.f32(2, 5, 8)
    scales = numbers.f32(3, 8), numbers.f32(3, 8), numbers.f32(3, 8)
    agrees("EngramGate", 1, *inputs, *scales, outputs=2, domain=MICROSOFT)
    agrees("EngramGate", 1, *inputs, *scales[:2], domain=MICROSOFT, epsilon=0.1)
    agrees("EngramGate", 1, *map(half, inputs + scales), outputs=2, domain=MICROSOFT, **HALF)


def test_linear_attention_gate():
    numbers = Numbers()
    a, b, bias, scale = numbers.f32(2, 5, 4), numbers.f32(2, 5, 4), numbers.f32(4), -np.abs(numbers.f32(4))
    agrees("LinearAttentionGate", 1, a, bias, scale, b, outputs=2, domain=MICROSOFT)
    agrees("LinearAttentionGate", 1, a, bias, scale, domain=MICROSOFT)
    agrees("LinearAttentionGate", 1, half(a), bias, scale, half(b), outputs=2, domain=MICROSOFT, **HALF)


def test_moe_group_router():
    numbers = Numbers()
    logits, bias = numbers.f32(2, 7, 12), numbers.f32(12)
    options = {"domain": MICROSOFT, "top_k": 3}
    agrees("MoEGroupRouter", 1, logits, bias, **options)
    agrees("MoEGroupRouter", 1, logits, bias, n_group=4, topk_group=2, **options)
    agrees("MoEGroupRouter", 1, logits, bias, n_group=3, topk_group=1, group_topk=9, router_sentinel=-5.0, **options)
    ties = np.zeros((1, 12), np.float32), np.zeros(12, np.float32)
    agrees("MoEGroupRouter", 1, *ties, n_group=3, topk_group=2, **options)
    _, biased, scores = call("MoEGroupRouter", 1, logits, bias, outputs=3, **options)
    expected = 1 / (1 + np.exp(-logits.reshape(14, 12).astype(np.float64)))
    np.testing.assert_allclose(scores, expected, rtol=1e-6)
    np.testing.assert_allclose(biased, expected + bias, rtol=1e-5)
    x, w = numbers.f32(4, 256), numbers.f32(12, 256) / 16
    _, _, projected = call("MoEGroupRouter", 1, x, bias, w, outputs=3, **options)
    np.testing.assert_allclose(projected, 1 / (1 + np.exp(-(x @ w.T))), rtol=1e-4)
    with pytest.raises(ValueError, match="5 of 4 groups can't be chosen among 12 experts"):
        call("MoEGroupRouter", 1, logits, bias, n_group=4, topk_group=5, **options)


def test_low_rank_mix():
    """The formulas of the operator's text, in float64."""
    numbers = Numbers()
    c, h, rank = 3, 8, 4
    streams, scale = numbers.f32(2, 5, c * h), numbers.f32(c * h)
    down, up, inject = numbers.f32(c * h, rank), numbers.f32(rank, c * h), numbers.f32(c * h, c)
    block, gate = numbers.f32(2, 5, h), numbers.f32(2, 5, c)
    options = {"num_branches": c, "epsilon": 1e-3, "gate_div": 2.0, "gate_mul": 3.0, "silu_alpha": 0.7}

    def sigmoid(x):
        return 1 / (1 + np.exp(-x))

    for joined in (False, True):
        s = streams.reshape(2, 5, c, h).astype(np.float64)
        extra = []
        if joined:
            s = s + gate[..., None] * block[:, :, None].astype(np.float64)
            extra = [block, gate]
        hn = s / np.sqrt((s**2).mean(-1, keepdims=True) + 1e-3) * scale.reshape(c, h)
        z = 0.7 * (hn.reshape(2, 5, -1) @ down)
        g = sigmoid((z * sigmoid(z)) @ up).reshape(2, 5, c, h)
        expected = [0.5 * (hn * g).sum(axis=2), 3 * sigmoid(hn.reshape(2, 5, -1) @ inject / 2), s.reshape(2, 5, -1)]
        got = call(
            "HyperConnectionLowRankMix", 1, streams, scale, down, up, inject, *extra,
            domain=MICROSOFT, outputs=3, reduction_scale=0.5, **options,
        )  # fmt: skip
        for y, e in zip(got, expected, strict=True):
            np.testing.assert_allclose(y, e, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="go together"):
        call("HyperConnectionLowRankMix", 1, streams, scale, down, up, inject, block, domain=MICROSOFT, **options)


def test_router_gate_up():
    """The same as a product, split, and SwiGLU."""
    numbers = Numbers()
    x, w = half(numbers.f32(2, 3, 8)), half(numbers.f32(8, 4 + 2 * 6))
    options = {"activation_alpha": 1.3, "activation_beta": 0.5, "limit": 2.0}
    router, y = call("RouterGateUpProj", 1, x, w, domain=MICROSOFT, outputs=2, router_size=4, **options)
    product = (x.astype(np.float32) @ w.astype(np.float32)).astype(np.float16)
    same(router, product[..., :4])
    gate, up = product[..., 4:10].astype(np.float32), product[..., 10:].astype(np.float32)
    gate, up = np.minimum(gate, 2), np.clip(up, -2, 2)
    np.testing.assert_allclose(y, gate / (1 + np.exp(-1.3 * gate)) * (up + 0.5), **HALF)


def test_gemma_rotary_embedding():
    numbers = Numbers()
    emb, q, q_rot = numbers.f32(2, 5, 8), half(numbers.f32(2, 3, 5, 8)), half(numbers.f32(2, 3, 5, 8))
    turned, other = call("GemmaRotaryEmbedding", 1, emb, q, q_rot, q_rot, q, domain=MICROSOFT, outputs=2)
    sin, cos = np.sin(emb)[:, None], np.cos(emb)[:, None]
    np.testing.assert_allclose(turned, q * cos + q_rot * sin, **HALF)
    np.testing.assert_allclose(other, q_rot * cos + q * sin, **HALF)
    assert turned.dtype == np.float16


@pytest.mark.parametrize("flatten", [0, 1])
def test_rms_norm_rotary(flatten):
    """In float16 and with float32 angles nothing is rounded on the way."""
    numbers = Numbers()
    x, scale = half(numbers.f32(2, 3, 4, 16)), numbers.f32(10)
    cos, sin = numbers.f32(20, 3), numbers.f32(20, 3)
    options = {"input_start": 2, "input_width": 10, "rotary_embedding_dim": 6, "output_fp16": 1, "epsilon": 1e-3}
    part = x[..., 2:12].astype(np.float64)
    normalized = part / np.sqrt((part**2).mean(-1, keepdims=True) + 1e-3) * scale
    for given, positions in (([7], 7 + np.arange(6).reshape(2, 3)), ([[1, 2, 3], [9, 8, 7]], [[1, 2, 3], [9, 8, 7]])):
        at = np.array(positions)
        if len(given) == 1 and not flatten:
            at = np.array([[7, 8, 9]] * 2)
        c, s = cos[at][:, :, None], sin[at][:, :, None]
        a, b = normalized[..., :3], normalized[..., 3:6]
        expected = np.concatenate([a * c - b * s, b * c + a * s, normalized[..., 6:]], axis=-1)
        y, exact = call(
            "RMSNormRotary", 1, x, scale, of("int64", given), cos, sin,
            domain=MICROSOFT, outputs=2, flatten_batch=flatten, **options,
        )  # fmt: skip
        assert y.shape == ((1, 6, 40) if flatten else (2, 3, 40))
        np.testing.assert_allclose(y.reshape(expected.shape), expected, **HALF)
        np.testing.assert_allclose(exact, normalized, rtol=1e-5)
