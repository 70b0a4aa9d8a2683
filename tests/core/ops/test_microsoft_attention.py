import numpy as np
import pytest

from onnxlet.errors import UnsupportedError
from tests.core.ops.calling import call, f32, i64, of, same
from tests.core.ops.oracle import Numbers, agrees

MICROSOFT = "com.microsoft"
MASKS = [
    None,
    of("int32", [3, 5]),
    of("int32", [5, 4, 1, 0]),
    of("int32", [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]),
    of("int32", np.tril(np.ones((2, 5, 5)))),
]
VARIANTS = [{}, {"unidirectional": 1}, {"scale": 0.3}]


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("attributes", VARIANTS)
def test_attention(mask, attributes):
    numbers = Numbers()
    x, w, b = numbers.f32(2, 5, 8), numbers.f32(8, 24), numbers.f32(24)
    options = {"domain": MICROSOFT, "num_heads": 2, **attributes}
    agrees("Attention", 1, x, w, b, mask, **options)
    if mask is None:
        agrees("Attention", 1, x, w, b, None, numbers.f32(2, 2, 2, 3, 4), outputs=2, **options)
        agrees("Attention", 1, x, w, b, None, None, numbers.f32(2, 2, 5, 5), **options)
        agrees("Attention", 1, x, numbers.f32(8, 28), numbers.f32(28), qkv_hidden_sizes=[8, 8, 12], **options)
    quantized = numbers.u8(2, 5, 8), numbers.s8(8, 24), b, f32(0.02), f32(0.01)
    agrees("QAttention", 1, *quantized, mask, of("uint8", 120), of("int8", 3), **options)


@pytest.mark.parametrize("attributes", VARIANTS)
def test_multi_head_attention(attributes):
    numbers = Numbers()
    x = numbers.f32(2, 5, 8)
    options = {"domain": MICROSOFT, "num_heads": 2, **attributes}
    agrees("MultiHeadAttention", 1, x, x, numbers.f32(2, 5, 12), **options)
    agrees("MultiHeadAttention", 1, x, x, x, numbers.f32(24), **options)
    agrees("MultiHeadAttention", 1, x, x, x, None, MASKS[3], **options)
    cache = numbers.f32(2, 2, 3, 4), numbers.f32(2, 2, 3, 4)
    agrees("MultiHeadAttention", 1, x, x, x, None, None, numbers.f32(1, 2, 5, 8), *cache, outputs=3, **options)
    agrees("MultiHeadAttention", 1, x, numbers.f32(2, 2, 5, 4), numbers.f32(2, 2, 5, 4), **options)


def test_packed_queries_keys_and_values():
    numbers = Numbers()
    q, k, v = numbers.f32(2, 5, 2, 4), numbers.f32(2, 5, 2, 4), numbers.f32(2, 5, 2, 4)
    options = {"domain": MICROSOFT, "num_heads": 2}
    plain = call("MultiHeadAttention", 1, *(t.reshape(2, 5, 8) for t in (q, k, v)), **options)
    same(call("MultiHeadAttention", 1, np.stack([q, k, v], axis=3), **options), plain)
    same(call("MultiHeadAttention", 1, q.reshape(2, 5, 8), np.stack([k, v], axis=3), **options), plain)


@pytest.mark.parametrize("rotary", [0, 1])
@pytest.mark.parametrize("window", [-1, 2, 3])
@pytest.mark.parametrize("attributes", [{}, {"softcap": 1.5}, {"smooth_softmax": 1}, {"scale": 0.2}])
def test_group_query_attention(rotary, window, attributes):
    numbers = Numbers()
    options = {"domain": MICROSOFT, "outputs": 3, "num_heads": 4, "kv_num_heads": 2, "do_rotary": rotary}
    options |= {"local_window_size": window, **attributes}
    angles = [numbers.f32(16, 8), numbers.f32(16, 8)] if rotary else [None, None]
    prompt = of("int32", [4, 4]), of("int32", 5)
    fresh = [numbers.f32(2, 5, 64), numbers.f32(2, 5, 32), numbers.f32(2, 5, 32)]
    agrees("GroupQueryAttention", 1, *fresh, None, None, *prompt, *angles, **options)
    packed = np.concatenate(fresh, axis=2)
    agrees("GroupQueryAttention", 1, packed, None, None, None, None, *prompt, *angles, **options)
    token = [numbers.f32(2, 1, 64), numbers.f32(2, 1, 32), numbers.f32(2, 1, 32)]
    cache = numbers.f32(2, 2, 6, 16), numbers.f32(2, 2, 6, 16)
    lengths = of("int32", [6, 4]), of("int32", 7)
    agrees("GroupQueryAttention", 1, *token, *cache, *lengths, *angles, **options)


@pytest.mark.parametrize("interleaved", [0, 1])
def test_rotary_embedding(interleaved):
    numbers = Numbers()
    cos, sin = numbers.f32(16, 2), numbers.f32(16, 2)
    options = {"domain": MICROSOFT, "interleaved": interleaved}
    agrees("RotaryEmbedding", 1, numbers.f32(2, 5, 8), i64([3]), cos, sin, **options)
    agrees("RotaryEmbedding", 1, numbers.f32(2, 5, 8), numbers.ints(0, 16, 2, 5), cos, sin, **options)
    agrees("RotaryEmbedding", 1, numbers.f32(2, 2, 5, 4), i64([0]), cos, sin, **options)
    partial = {"num_heads": 2, "rotary_embedding_dim": 4}
    agrees("RotaryEmbedding", 1, numbers.f32(2, 5, 16), i64([0]), cos, sin, **partial, **options)
    with pytest.raises(ValueError, match="positions reach 14 to 18"):
        call("RotaryEmbedding", 1, numbers.f32(2, 5, 8), i64([14]), cos, sin, **options)


def test_what_is_not_there_is_said():
    x = np.zeros((1, 1, 4), np.float32)
    with pytest.raises(UnsupportedError, match="do_rotary"):
        call("Attention", 1, x, np.zeros((4, 12), np.float32), domain=MICROSOFT, num_heads=1, do_rotary=1)
