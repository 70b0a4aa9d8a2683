"""GroupQueryAttention beyond the plain one: quantised caches, caches of a window, padded queries, sinks, scores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.core.ops.calling import call, of
from tests.core.ops.oracle import Numbers, agrees, onnxruntime_results

MICROSOFT = "com.microsoft"
NAME = "GroupQueryAttention", 1
HEADS = {"num_heads": 4, "kv_num_heads": 2, "domain": MICROSOFT}
SIZE = 16


def given(numbers: Numbers, batch: int, length: int, past: int, kind: str = "f32") -> list[Any]:
    """Query, key, value, and caches (batch, 2, past, size)."""
    make = {"f32": numbers.f32, "s8": numbers.s8, "u8": numbers.u8}[kind]
    size = SIZE // 2 if kind == "u8" else SIZE
    new = [
        numbers.f32(batch, length, 4 * SIZE),
        numbers.f32(batch, length, 2 * SIZE),
        numbers.f32(batch, length, 2 * SIZE),
    ]
    return [*new, make(batch, 2, past, size), make(batch, 2, past, size)]


@pytest.mark.parametrize(("kind", "bits"), [("s8", 8), ("u8", 4)])
@pytest.mark.parametrize("quant_type", ["PER_TENSOR", "PER_CHANNEL"])
def test_quantised_caches(kind, bits, quant_type):
    numbers = Numbers()
    shape = (1,) if quant_type == "PER_TENSOR" else (1, 2, 1, SIZE)
    factor = 1 if bits == 8 else 8
    scales = [(factor * (0.02 + numbers.generator.random(shape) / 50)).astype(np.float32) for _ in range(2)]
    options = {**HEADS, "k_quant_type": quant_type, "v_quant_type": quant_type, "kv_cache_bit_width": bits}
    empty = [None] * 5
    for length, past, lengths in ((1, 6, [6, 4]), (5, 5, [4, 4])):
        inputs = given(numbers, 2, length, past, kind)
        total = of("int32", max(lengths) + 1)
        agrees(*NAME, *inputs, of("int32", lengths), total, *empty, *scales, outputs=3, rtol=1e-3, atol=1e-3, **options)


@pytest.mark.parametrize("attributes", [{}, {"softcap": 2.0}, {"smooth_softmax": 1}])
@pytest.mark.parametrize("shown", [1, 2])
def test_scores_and_sinks(attributes, shown):
    """Scores of positions that a query does not see are not compared: onnxruntime leaves them as they are in memory."""
    numbers = Numbers()
    inputs = given(numbers, 2, 5, 0)[:3]
    lengths = of("int32", [4, 4]), of("int32", 5)
    bias, sink = numbers.f32(1, 4, 5, 5), numbers.f32(4)
    angles = numbers.f32(16, 8), numbers.f32(16, 8)
    positions = np.tile(np.arange(5), (2, 1))
    for rest in ([], [None, None, None, bias], [*angles, positions], [None, None, None, None, sink]):
        options = {**HEADS, "qk_output": shown, "do_rotary": int(len(rest) == 3), **attributes}
        if len(rest) == 5 and attributes.get("smooth_softmax"):
            continue
        full = [*inputs, None, None, *lengths, *rest]
        expected = onnxruntime_results(*NAME, full, 4, MICROSOFT, {k: v for k, v in options.items() if k != "domain"})
        got = call(*NAME, *full, outputs=4, **options)
        np.testing.assert_allclose(got[0], expected[0], rtol=1e-4, atol=1e-5)
        seen = np.tril(np.ones((5, 5), bool))
        np.testing.assert_allclose(got[3][:, :, seen], np.asarray(expected[3])[:, :, seen], rtol=1e-4, atol=1e-4)


def test_positions_and_bias_of_a_token():
    numbers = Numbers()
    inputs = given(numbers, 2, 1, 6)
    lengths = of("int32", [6, 4]), of("int32", 7)
    angles = numbers.f32(16, 8), numbers.f32(16, 8)
    agrees(*NAME, *inputs, *lengths, *angles, of("int64", [[9], [3]]), outputs=3, do_rotary=1, **HEADS)
    agrees(*NAME, *inputs, *lengths, None, None, None, numbers.f32(2, 1, 1, 7), outputs=3, **HEADS)
    agrees(*NAME, *inputs, *lengths, None, None, None, None, numbers.f32(4), outputs=3, **HEADS)
    agrees(*NAME, *inputs, *lengths, outputs=3, causal=0, **HEADS)


def test_norms_of_heads():
    """Queries and keys that are normalised before, with an epsilon of their own."""
    numbers = Numbers()
    q, k, v = given(numbers, 2, 5, 0)[:3]
    weights = numbers.f32(SIZE), numbers.f32(SIZE)

    def normalized(x, weight, epsilon):
        heads = x.reshape(2, 5, -1, SIZE)
        return (heads / np.sqrt((heads**2).mean(-1, keepdims=True) + epsilon) * weight).reshape(x.shape)

    lengths = of("int32", [4, 4]), of("int32", 5)
    plain = call(
        *NAME, normalized(q, weights[0], 0.1), normalized(k, weights[1], 0.3), v, None, None, *lengths, **HEADS
    )
    got = call(
        *NAME, q, k, v, None, None, *lengths, *[None] * 7, *weights, q_norm_epsilon=0.1, k_norm_epsilon=0.3, **HEADS
    )
    np.testing.assert_allclose(got, plain, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rotary", [0, 1])
@pytest.mark.parametrize("window", [-1, 3])
def test_padded_queries(rotary, window):
    """The rows that are not padding, and the caches as far as they are filled."""
    numbers = Numbers()
    inputs = given(numbers, 3, 4, 12)
    chunk, lengths = of("int32", [4, 2, 0]), np.array([9, 2, 5])
    angles = [numbers.f32(16, 8), numbers.f32(16, 8)] if rotary else [None, None]
    options = {**HEADS, "do_rotary": rotary, "local_window_size": window}
    full = [*inputs, (lengths - 1).astype(np.int32), of("int32", 12), *angles, *[None] * 7, chunk]
    expected = onnxruntime_results(*NAME, full, 3, MICROSOFT, {k: v for k, v in options.items() if k != "domain"})
    got = call(*NAME, *full, outputs=3, **options)
    for b in range(3):
        for g, e in zip(got, expected, strict=True):
            real = np.s_[b, : chunk[b]] if g.ndim == 3 else np.s_[b, :, : lengths[b]]
            np.testing.assert_allclose(g[real], np.asarray(e)[real], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("capacity", [4, 6, 9])
@pytest.mark.parametrize("steps", [[1] * 12, [5, 1, 1, 3, 2], [12]])
def test_caches_of_a_window(capacity, steps):
    """Step by step, each from the cache that onnxruntime gave."""
    numbers = Numbers()
    caches = [np.zeros((1, 2, capacity, SIZE), np.float32)] * 2
    options = {**HEADS, "sliding_window_cache": 1, "local_window_size": 4}
    done = 0
    for length in steps:
        done += length
        inputs = given(numbers, 1, length, 0)[:3]
        full = [*inputs, *caches, of("int32", [done - 1]), of("int32", done)]
        expected = onnxruntime_results(*NAME, full, 3, MICROSOFT, {k: v for k, v in options.items() if k != "domain"})
        got = call(*NAME, *full, outputs=3, **options)
        slack = capacity - 4 + 1
        kept = done if done <= capacity else done - slack * -(-(done - capacity) // slack)
        np.testing.assert_allclose(got[0], expected[0], rtol=1e-4, atol=1e-5)
        for g, e in zip(got[1:], expected[1:], strict=True):
            np.testing.assert_allclose(g[:, :, :kept], np.asarray(e)[:, :, :kept], rtol=1e-6)
        caches = [np.asarray(e) for e in expected[1:]]
    with pytest.raises(ValueError, match="a window of 4 does not fit into a cache of 3"):
        call(*NAME, *inputs, *(c[:, :, :3] for c in caches), of("int32", [done - 1]), of("int32", done), **options)


def test_what_does_not_fit_is_said():
    inputs = given(Numbers(), 1, 1, 2, "s8")
    lengths = of("int32", [2]), of("int32", 3)
    with pytest.raises(ValueError, match="a cache quantised PER_TENSOR needs scales"):
        call(*NAME, *inputs, *lengths, k_quant_type="PER_TENSOR", v_quant_type="PER_TENSOR", **HEADS)
    with pytest.raises(ValueError, match="a cache quantised 'ALL'"):
        call(*NAME, *inputs, *lengths, k_quant_type="ALL", **HEADS)
