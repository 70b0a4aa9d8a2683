from typing import Any

import numpy as np
import pytest

from tests.core.ops.calling import call, f32, i64, same
from tests.core.ops.oracle import Numbers, agrees


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def test_attention_by_its_definition():
    numbers = Numbers()
    q, k, v = numbers.f32(2, 3, 5, 4), numbers.f32(2, 3, 6, 4), numbers.f32(2, 3, 6, 7)
    expected = softmax(q @ k.swapaxes(2, 3) / 2) @ v
    for opset in (23, 24, 25):
        np.testing.assert_allclose(call("Attention", opset, q, k, v), expected, rtol=1e-5, atol=1e-6)
    agrees("Attention", 23, q, k, v)


def test_heads_that_share_keys_and_a_cache():
    numbers = Numbers()
    q, k, v = numbers.f32(2, 5, 16), numbers.f32(2, 5, 8), numbers.f32(2, 5, 8)
    past = numbers.f32(2, 2, 3, 4), numbers.f32(2, 2, 3, 4)
    heads: dict[str, Any] = {"q_num_heads": 4, "kv_num_heads": 2}
    agrees("Attention", 23, q, k, v, None, *past, outputs=3, **heads)
    y, key, value = call("Attention", 23, q, k, v, None, *past, outputs=3, is_causal=1, **heads)
    assert y.shape == (2, 5, 16)
    assert key.shape == value.shape == (2, 2, 8, 4)
    # The first query sees the past and itself alone.
    first = call("Attention", 23, q[:, :1], k[:, :1], v[:, :1], None, *past, **heads)
    np.testing.assert_allclose(y[:, :1], first, rtol=1e-5, atol=1e-6)


def test_masks_windows_and_rows_without_any_key():
    numbers = Numbers()
    q, k, v = numbers.f32(1, 1, 4, 2), numbers.f32(1, 1, 4, 2), numbers.f32(1, 1, 4, 2)
    banded = np.abs(np.arange(4)[:, None] - np.arange(4)) <= 1
    by_mask = call("Attention", 25, q, k, v, banded)
    np.testing.assert_allclose(
        call("Attention", 25, q, k, v, left_window_size=1, right_window_size=1), by_mask, rtol=1e-6
    )
    bias = np.where(banded, 0, -np.inf).astype(np.float32)
    np.testing.assert_allclose(call("Attention", 23, q, k, v, bias), by_mask, rtol=1e-6)
    banded[2] = False
    y, _, _, weights = call("Attention", 23, q, k, v, banded, outputs=4, qk_matmul_output_mode=3)
    assert not y[0, 0, 2].any()
    assert not weights[0, 0, 2].any()
    # A mask that is too short hides the keys it says nothing about.
    short = call("Attention", 23, q, k, v, np.ones((4, 2), bool))
    np.testing.assert_allclose(short, call("Attention", 23, q, k[:, :, :2], v[:, :, :2]), rtol=1e-6)


def test_valid_lengths_of_an_external_cache():
    numbers = Numbers()
    q, k, v = numbers.f32(2, 1, 2, 4), numbers.f32(2, 1, 6, 4), numbers.f32(2, 1, 6, 4)
    y = call("Attention", 24, q, k, v, None, None, None, i64(4, 6), is_causal=1)
    np.testing.assert_allclose(
        y[0, :, 1], call("Attention", 23, q[:1, :, 1:], k[:1, :, :4], v[:1, :, :4])[0, :, 0], rtol=1e-5, atol=1e-6
    )
    np.testing.assert_allclose(
        y[1, :, 0], call("Attention", 23, q[1:, :, :1], k[1:, :, :5], v[1:, :, :5])[0, :, 0], rtol=1e-5, atol=1e-6
    )


def test_stages_of_the_scores():
    numbers = Numbers()
    q, k = numbers.f32(1, 1, 2, 4), numbers.f32(1, 1, 3, 4)
    bias = numbers.f32(2, 3)
    raw = q @ k.swapaxes(2, 3) * 0.3
    stages = [raw, 0.5 * np.tanh(raw / 0.5), 0.5 * np.tanh(raw / 0.5) + bias]
    stages.append(softmax(stages[2]))
    for mode, expected in enumerate(stages):
        shown = call("Attention", 23, q, k, k, bias, outputs=4, scale=0.3, softcap=0.5, qk_matmul_output_mode=mode)[3]
        np.testing.assert_allclose(shown, expected, rtol=1e-5, atol=1e-6)


def test_attention_says_what_is_wrong():
    q = np.zeros((1, 3, 2, 4), np.float32)
    with pytest.raises(ValueError, match="3 query heads are not a multiple of 2"):
        call("Attention", 23, q, q[:, :2], q[:, :2])
    with pytest.raises(ValueError, match="can't be split into None heads"):
        call("Attention", 23, q[0], q[0], q[0])
    with pytest.raises(ValueError, match="go together"):
        call("Attention", 23, q, q, q, None, q)


def test_rotary_embedding_turns_pairs():
    x = f32([[[[1, 0, 0, 2, 9]]]])  # one head, one token; the last element is not turned
    cos, sin = f32([[[0, 0]]]), f32([[[1, 1]]])
    halves = call("RotaryEmbedding", 23, x, cos, sin, rotary_embedding_dim=4)
    same(halves, f32([[[[0, -2, 1, 0, 9]]]]))
    pairs = call("RotaryEmbedding", 23, x, cos, sin, rotary_embedding_dim=4, interleaved=1)
    same(pairs, f32([[[[0, 1, -2, 0, 9]]]]))
    with pytest.raises(ValueError, match="caches hold 2 angles, 1 are needed"):
        call("RotaryEmbedding", 23, x, cos, sin, rotary_embedding_dim=2)


@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
def test_linear_attention_by_its_recurrence(rule):
    numbers = Numbers()
    q, k, v = numbers.f32(1, 4, 6), numbers.f32(1, 4, 3), numbers.f32(1, 4, 2)
    decay, beta = -np.abs(numbers.f32(1, 4, 3)), np.abs(numbers.f32(1, 4, 1))
    state = numbers.f32(1, 1, 3, 2)
    y, last = call(
        "LinearAttention", 27, q, k, v, state, decay, beta, outputs=2, q_num_heads=2, kv_num_heads=1,
        update_rule=rule, scale=0.5,
    )  # fmt: skip
    s, rows = state[0, 0], []
    for t in range(4):
        if rule.startswith("gated"):
            s = np.exp(decay[0, t])[:, None] * s
        new = v[0, t] - s.T @ k[0, t] if rule.endswith("delta") else v[0, t]
        s = s + np.outer(k[0, t], beta[0, t] * new if rule.endswith("delta") else new)
        rows.append((0.5 * q[0, t].reshape(2, 3) @ s).reshape(-1))
    np.testing.assert_allclose(y[0], rows, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(last[0, 0], s, rtol=1e-5, atol=1e-5)
