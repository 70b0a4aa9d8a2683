import numpy as np
import pytest

from tests.core.ops.calling import call, i64, of, same
from tests.core.ops.oracle import Numbers

MICROSOFT = "com.microsoft"


def test_padding_is_removed_and_restored():
    x = np.arange(1, 13, dtype=np.float32).reshape(3, 4, 1)
    tokens, offsets, starts, longest = call("RemovePadding", 1, x, of("int32", [1, 2, 4]), domain=MICROSOFT, outputs=4)
    same(tokens[:, 0], of("float32", [1, 5, 6, 9, 10, 11, 12]))
    same(offsets, of("int32", [[0, 4, 5, 8], [9, 10, 11, 1], [2, 3, 6, 7]]))
    same(starts, of("int32", [0, 1, 3, 7]))
    same(longest, of("int32", [4]))
    back = call("RestorePadding", 1, tokens, offsets, domain=MICROSOFT)
    same(back[:, :, 0], of("float32", [[1, 0, 0, 0], [5, 6, 0, 0], [9, 10, 11, 12]]))
    with pytest.raises(ValueError, match="must be 3 lengths from 0 to 4"):
        call("RemovePadding", 1, x, of("int32", [1, 2, 5]), domain=MICROSOFT)


def test_packed_attention_is_attention_without_padding():
    numbers = Numbers()
    x, weights, bias = numbers.f32(2, 5, 8), numbers.f32(8, 24), numbers.f32(24)
    lengths = of("int32", [3, 5])
    added = numbers.f32(1, 2, 5, 5)
    tokens, offsets, starts, _ = call("RemovePadding", 1, x, lengths, domain=MICROSOFT, outputs=4)
    packed = call("PackedAttention", 1, tokens, weights, bias, offsets, starts, added, domain=MICROSOFT, num_heads=2)
    plain = call("Attention", 1, x, weights, bias, lengths, None, added, domain=MICROSOFT, num_heads=2)
    np.testing.assert_allclose(packed, np.concatenate([plain[0, :3], plain[1]]), rtol=1e-5, atol=1e-5)


def test_images_with_channels_last():
    numbers = Numbers()
    x, w, b = numbers.f32(2, 4, 6, 5), numbers.f32(6, 2, 3, 3), numbers.f32(6)
    geometry = {"group": 2, "pads": [1, 1, 1, 1], "strides": [2, 1]}
    expected = call("FusedConv", 1, x, w, b, domain=MICROSOFT, activation="Relu", **geometry)
    last = x.transpose(0, 2, 3, 1)
    fused = call("NhwcFusedConv", 1, last, w, b, domain=MICROSOFT, activation="Relu", **geometry)
    same(fused.transpose(0, 3, 1, 2), expected)
    plain = call("NhwcConv", 1, last, w.transpose(0, 2, 3, 1), b, domain=MICROSOFT, **geometry)
    same(np.maximum(plain, 0), fused)
    residual = numbers.f32(*fused.shape)
    summed = call("NhwcFusedConv", 1, last, w, b, residual, domain=MICROSOFT, **geometry)
    np.testing.assert_allclose(summed, plain + residual, rtol=1e-6, atol=1e-6)


def test_positions_in_three_directions():
    numbers = Numbers()
    x, cos, sin = numbers.f32(1, 2, 12), numbers.f32(9, 6), numbers.f32(9, 6)
    same_everywhere = np.stack([i64([[3, 4]])] * 3)
    plain = call("RotaryEmbedding", 1, x, i64([[3, 4]]), cos, sin, domain=MICROSOFT)
    for layout in (0, 1):
        turned = call(
            "MRotaryEmbedding",
            1,
            x,
            same_everywhere,
            cos,
            sin,
            domain=MICROSOFT,
            mrope_section=[2, 2, 2],
            mrope_layout=layout,
        )
        same(turned, plain)
    apart = np.stack([i64([[0, 0]]), i64([[1, 1]]), i64([[2, 2]])])
    for layout, streams in ((0, [0, 0, 0, 1, 1, 2]), (1, [0, 1, 2, 0, 1, 0])):
        rows = np.array(streams), np.arange(6)
        expected = call("RotaryEmbedding", 1, x, i64([[0, 0]]), cos[rows][None], sin[rows][None], domain=MICROSOFT)
        turned = call(
            "MRotaryEmbedding", 1, x, apart, cos, sin, domain=MICROSOFT, mrope_section=[3, 2, 1], mrope_layout=layout
        )
        same(turned, expected)
    with pytest.raises(ValueError, match="three lengths that add up to 6"):
        call("MRotaryEmbedding", 1, x, apart, cos, sin, domain=MICROSOFT, mrope_section=[3, 2, 2])


def test_gated_relative_position_bias():
    numbers = Numbers()
    query, bias, rel_pos = numbers.f32(2, 3, 8), numbers.f32(8), numbers.f32(1, 2, 3, 3)
    weight, shift, eco = numbers.f32(4, 6), numbers.f32(6), numbers.f32(1, 2, 1, 1)
    y = call("GatedRelativePositionBias", 1, query, bias, rel_pos, weight, shift, eco, domain=MICROSOFT, num_heads=2)
    for b, h, i in ((0, 0, 0), (1, 1, 2)):
        q = (query + bias)[b, i, 4 * h : 4 * h + 4]
        u, r = 1 / (1 + np.exp(-(q @ weight + shift).reshape(2, 3).sum(axis=1)))
        np.testing.assert_allclose(y[b, h, i], (u * (r * eco[0, h, 0, 0] - 1) + 2) * rel_pos[0, h, i], rtol=1e-4)
