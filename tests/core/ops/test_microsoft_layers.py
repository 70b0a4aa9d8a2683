import numpy as np
import pytest

from onnxlet.ops.activations import gelu
from tests.core.ops.calling import call, f32, of, same
from tests.core.ops.oracle import Numbers, agrees

MICROSOFT = "com.microsoft"


def test_activations():
    numbers = Numbers()
    x, bias = numbers.f32(2, 5, 8), numbers.f32(8)
    agrees("Gelu", 1, x, domain=MICROSOFT)
    agrees("FastGelu", 1, x, bias, domain=MICROSOFT)
    agrees("QuickGelu", 1, x, domain=MICROSOFT, alpha=1.2)
    agrees("BiasGelu", 1, x, bias, domain=MICROSOFT)
    both = x + bias
    split = call("BiasSplitGelu", 1, x, bias, domain=MICROSOFT)
    np.testing.assert_allclose(split, both[..., :4] * gelu(both[..., 4:]), rtol=1e-6)
    np.testing.assert_allclose(call("BiasAdd", 1, x, bias, x, domain=MICROSOFT), 2 * x + bias, rtol=1e-6)


def test_bias_softmax():
    numbers = Numbers()
    x = numbers.f32(2, 3, 4, 5)
    for bias, inner, shaped in (
        (numbers.f32(2, 1, 4, 5), 1, None),
        (numbers.f32(3, 4, 5), 0, None),
        (numbers.f32(2, 5), 1, (2, 1, 1, 5)),
    ):
        y = call("BiasSoftmax", 1, x, bias, domain=MICROSOFT, axis=3, is_inner_broadcast=inner)
        total = x + (bias.reshape(shaped) if shaped else bias)
        e = np.exp(total - total.max(axis=-1, keepdims=True))
        np.testing.assert_allclose(y, e / e.sum(axis=-1, keepdims=True), rtol=1e-5)


def test_normalisation_of_sums():
    numbers = Numbers()
    x, gamma, beta, bias = numbers.f32(2, 5, 8), numbers.f32(8), numbers.f32(8), numbers.f32(8)
    for skip in (numbers.f32(2, 5, 8), numbers.f32(5, 8), numbers.f32(1, 5, 8)):
        agrees("SkipLayerNormalization", 1, x, skip, gamma, beta, bias, domain=MICROSOFT, epsilon=1e-3)
    skip = numbers.f32(2, 5, 8)
    total = call("SkipLayerNormalization", 1, x, skip, gamma, None, bias, domain=MICROSOFT, outputs=4)[3]
    np.testing.assert_allclose(total, x + skip + bias, rtol=1e-6, atol=1e-6)
    agrees("SkipSimplifiedLayerNormalization", 1, x, skip, gamma, bias, domain=MICROSOFT)
    agrees("SimplifiedLayerNormalization", 17, x, gamma)
    agrees("LayerNormalization", 13, x, gamma, beta, outputs=3)


def test_embeddings():
    numbers = Numbers()
    ids, segments = numbers.ints(0, 9, 2, 5, dtype="int32"), numbers.ints(0, 2, 2, 5, dtype="int32")
    mask = of("int32", [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
    tables = numbers.f32(9, 8), numbers.f32(6, 8), numbers.f32(2, 8), numbers.f32(8), numbers.f32(8)
    agrees("EmbedLayerNormalization", 1, ids, segments, *tables, mask, domain=MICROSOFT, outputs=2)
    positions = numbers.ints(0, 6, 2, 5, dtype="int32")
    agrees("EmbedLayerNormalization", 1, ids, segments, *tables, None, positions, domain=MICROSOFT, outputs=3)
    with pytest.raises(ValueError, match="input_ids reach"):
        call("EmbedLayerNormalization", 1, ids + 5, segments, *tables, domain=MICROSOFT)


def test_group_norm_of_both_layouts():
    numbers = Numbers()
    x, gamma, beta = numbers.f32(2, 6, 3, 4), numbers.f32(6), numbers.f32(6)
    expected = call("GroupNormalization", 21, x, gamma, beta, num_groups=3)
    options = {"domain": MICROSOFT, "groups": 3}
    same(call("GroupNorm", 1, x, gamma, beta, activation=0, channels_last=0, **options), expected)
    last = call("GroupNorm", 1, x.transpose(0, 2, 3, 1), gamma, beta, activation=1, **options)
    np.testing.assert_allclose(last.transpose(0, 3, 1, 2), expected / (1 + np.exp(-expected)), rtol=1e-5, atol=1e-6)
    skip, bias = numbers.f32(2, 6), numbers.f32(6)
    y, total = call("SkipGroupNorm", 1, x, gamma, beta, skip, bias, outputs=2, activation=0, channels_last=0, **options)
    np.testing.assert_allclose(total, x + skip[:, :, None, None] + bias[:, None, None], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(
        y, call("GroupNormalization", 21, total, gamma, beta, num_groups=3), rtol=1e-5, atol=1e-6
    )


def test_float16_is_rounded_once():
    x = f32(1, 2, 4).astype(np.float16)
    for operator in ("Gelu", "FastGelu", "QuickGelu"):
        exact = call(operator, 1, x.astype(np.float32), domain=MICROSOFT)
        same(call(operator, 1, x, domain=MICROSOFT), exact.astype(np.float16))


def test_gates():
    numbers = Numbers()
    x, y, up, scale = numbers.f32(2, 3, 8), numbers.f32(2, 3, 8), numbers.f32(2, 3, 8), numbers.f32(4)
    for activation in ("silu", "sigmoid"):
        agrees("GatedRMSNorm", 1, x, scale, y, domain=MICROSOFT, activation=activation)
    gate = numbers.f32(2, 3, 1)
    agrees("GatedAdd", 1, x, y, gate, domain=MICROSOFT)
    projected = call("GatedAdd", 1, x, y, up, numbers.f32(8, 1), domain=MICROSOFT)
    assert projected.shape == x.shape
    glu = call("SwiGLU", 1, x, up, domain=MICROSOFT, activation_alpha=1.7, activation_beta=1.0, limit=0.5)
    g, linear = np.minimum(x, 0.5), np.clip(up, -0.5, 0.5)
    np.testing.assert_allclose(glu, g / (1 + np.exp(-1.7 * g)) * (linear + 1), rtol=1e-5, atol=1e-6)
    both = np.concatenate([x, up], axis=-1)
    same(call("SwiGLU", 1, both, domain=MICROSOFT), call("SwiGLU", 28, x, up))


def test_bias_dropout_at_rest():
    x, bias = f32([[1, 2]]), f32(1, 1)
    y, mask = call("BiasDropout", 1, x, bias, x, domain=MICROSOFT, outputs=2)
    same(y, f32([[3, 5]]))
    assert mask.all()


def test_dropout_with_a_mask_of_bits():
    """Bit i of word j is the mask of element 32 j + i."""
    numbers = Numbers()
    x, bias, residual = numbers.f32(5, 13), numbers.f32(13), numbers.f32(5, 13)
    options = {"domain": MICROSOFT, "outputs": 2, "seed": 3}
    y, words = call("BitmaskDropout", 1, x, f32(0.25), of("bool", True), **options)
    assert words.dtype == np.uint32
    assert words.shape == (3,)
    kept = np.array([words[i // 32] >> (i % 32) & 1 for i in range(65)], bool).reshape(5, 13)
    np.testing.assert_allclose(y, np.where(kept, x / 0.75, 0), rtol=1e-6)
    assert 0.5 < kept.mean() < 0.95
    y, words = call("BitmaskBiasDropout", 1, x, bias, residual, f32(0.25), of("bool", True), **options)
    kept = np.array([words[i // 32] >> (i % 32) & 1 for i in range(65)], bool).reshape(5, 13)
    np.testing.assert_allclose(y, np.where(kept, (x + bias) / 0.75, 0) + residual, rtol=1e-6, atol=1e-7)
    same(call("BitmaskDropout", 1, x, **options)[0], x)
    same(call("BitmaskDropout", 1, x, **options)[1], np.array([2**32 - 1, 2**32 - 1, 1], np.uint32))
