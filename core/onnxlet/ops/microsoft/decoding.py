"""Attention of decoders, one token at a time over caches: DecoderMaskedMultiHeadAttention and its relatives.

Caches hold keys and values as (batch, heads, length, size). The order in which some GPU's kernels keep keys is theirs
alone.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..attention import join_heads, split_heads
from ..common import scalar, to_float32
from ..precision import narrow
from ..registry import op
from .attention import attend, masked_step, padding_bias, refuse_rotary, with_past
from .layers import MICROSOFT


@op("DecoderMaskedMultiHeadAttention", domain=MICROSOFT)
def decoder_masked_multi_head_attention(
    query: np.ndarray,
    key: np.ndarray | None = None,
    value: np.ndarray | None = None,
    mask_index: np.ndarray | None = None,
    attention_bias: np.ndarray | None = None,
    past_key: np.ndarray | None = None,
    past_value: np.ndarray | None = None,
    past_sequence_length: np.ndarray | None = None,
    beam_width: np.ndarray | None = None,
    cache_indirection: np.ndarray | None = None,
    bias: np.ndarray | None = None,
    *,
    mask_filter_value: float = -10000.0,
    num_heads: int,
    output_qk: int = 0,
    past_present_share_buffer: int = 0,
    scale: float | None = None,
) -> tuple[Any, ...]:
    """Attention of one token to itself and those before, or, where key and value have four axes, to an encoder's."""
    parts: list[np.ndarray | None] = [query, key, value]
    if key is None or value is None:
        width = query.shape[2] // 3
        parts = list(np.split(query, [width, 2 * width], axis=2))
    shifts: list[np.ndarray | float] = [0.0] * 3
    if bias is not None:
        hidden = parts[0].shape[2] if parts[0] is not None else 0
        shifts = list(np.split(to_float32(bias), [hidden, 2 * hidden]))
    q, k, v = (
        split_heads(to_float32(p) + (s if p is not None and p.ndim == 3 else 0), num_heads, "query, key or value")
        for p, s in zip(parts, shifts, strict=True)
    )
    if past_key is None or past_value is None:  # across
        padding = padding_bias(mask_index, len(q), q.shape[2], k.shape[2], mask_filter_value)
        y, scores = attend(q, k, v, scale, [padding, attention_bias], 0)
        return narrow(join_heads(y), query.dtype), None, None, narrow(scores, query.dtype)
    if past_present_share_buffer:
        if past_sequence_length is None:
            raise ValueError("a shared buffer needs past_sequence_length")
        past, caches = int(scalar(past_sequence_length, "past_sequence_length")), (past_key, past_value)
    else:
        past = past_key.shape[2]
        room = [(0, 0), (0, 0), (0, k.shape[2]), (0, 0)]
        caches = (np.pad(to_float32(past_key), room), np.pad(to_float32(past_value), room))
    y, keys, values, scores = masked_step(
        q, k, v, caches, past, cache_indirection, mask_index, attention_bias, mask_filter_value, scale
    )
    return tuple(narrow(t, query.dtype) for t in (join_heads(y), keys, values, scores))


@op("DecoderMaskedSelfAttention", domain=MICROSOFT)
def decoder_masked_self_attention(
    x: np.ndarray,
    weights: np.ndarray,
    bias: np.ndarray,
    mask_index: np.ndarray | None,
    past: np.ndarray,
    attention_bias: np.ndarray | None,
    past_sequence_length: np.ndarray,
    beam_width: np.ndarray | None = None,
    cache_indirection: np.ndarray | None = None,
    *,
    do_rotary: int = 0,
    mask_filter_value: float = -10000.0,
    num_heads: int,
    past_present_share_buffer: int = 0,
    scale: float | None = None,
):
    """DecoderMaskedMultiHeadAttention of a projection; the past is (2, batch, heads, length, size)."""
    refuse_rotary(do_rotary)
    projected = narrow(np.matmul(to_float32(x), to_float32(weights)) + to_float32(bias), x.dtype)
    y, keys, values, _ = decoder_masked_multi_head_attention(
        projected, None, None, mask_index, attention_bias, past[0], past[1], past_sequence_length, beam_width,
        cache_indirection, mask_filter_value=mask_filter_value, num_heads=num_heads,
        past_present_share_buffer=past_present_share_buffer, scale=scale,
    )  # fmt: skip
    return y, np.stack([keys, values])


@op("DecoderAttention", domain=MICROSOFT)
def decoder_attention(
    query: np.ndarray,
    key: np.ndarray,
    q_weight: np.ndarray,
    kv_weight: np.ndarray,
    bias: np.ndarray,
    key_padding_mask: np.ndarray | None,
    key_cache: np.ndarray | None,
    value_cache: np.ndarray | None,
    static_kv: np.ndarray,
    use_past: np.ndarray,
    has_layer_state: np.ndarray,
    has_key_padding_mask: np.ndarray,
    *,
    mask_filter_value: float = -10000.0,
    num_heads: int,
):
    """Attention of (length, batch, hidden) to itself or, with `static_kv`, to `key`; a cache holds the keys and values
    before, or those of `key`. The mask is true for padding. Also the keys and values for the next call."""
    across, cached = bool(static_kv.reshape(())), bool(use_past.reshape(())) and bool(has_layer_state.reshape(()))
    hidden = query.shape[2]
    shift = to_float32(bias)

    def heads(x: np.ndarray) -> np.ndarray:
        return split_heads(x.swapaxes(0, 1), num_heads, "query or key")

    q = heads(np.matmul(to_float32(query), to_float32(q_weight)) + shift[:hidden])
    if cached and (key_cache is None or value_cache is None):
        raise ValueError("use_past needs key_cache and value_cache")
    if cached and across:
        k, v = to_float32(key_cache), to_float32(value_cache)
    else:
        both = np.matmul(to_float32(key if across else query), to_float32(kv_weight)) + shift[hidden:]
        k, v = (heads(part) for part in np.split(both, 2, axis=2))
        if cached:
            k, v = with_past(key_cache, k), with_past(value_cache, v)
    padding = None
    if key_padding_mask is not None and bool(has_key_padding_mask.reshape(())):
        padding = np.where(key_padding_mask, np.float32(mask_filter_value), 0)[:, None, None]
    y, _ = attend(q, k, v, 1 / math.sqrt(q.shape[-1]), [padding], 0)
    joined = np.ascontiguousarray(join_heads(y).swapaxes(0, 1))
    return tuple(narrow(t, query.dtype) for t in (joined, k, v))


@op("LongformerAttention", domain=MICROSOFT)
def longformer_attention(
    x: np.ndarray,
    weight: np.ndarray,
    bias: np.ndarray,
    mask: np.ndarray,
    global_weight: np.ndarray,
    global_bias: np.ndarray,
    global_: np.ndarray,
    *,
    num_heads: int,
    window: int,
):
    """Attention to the tokens at most `window` away and to the global ones; global tokens have a projection of their
    own, and attend to all (Beltagy et al. 2020). The mask is added to the scores of its keys."""
    length = x.shape[1]
    at = np.arange(length)
    far = np.abs(at[:, None] - at) > window
    hidden = far & (global_ == 0)[:, None]  # (batch, queries, keys)
    padding = to_float32(mask)[:, None, None]
    results = []
    for weights, shift, unseen in ((weight, bias, hidden), (global_weight, global_bias, None)):
        projected = np.matmul(to_float32(x), to_float32(weights)) + to_float32(shift)
        q, k, v = (split_heads(p, num_heads, "input") for p in np.split(projected, 3, axis=2))
        local = None if unseen is None else np.where(unseen[:, None], np.float32(-np.inf), 0)
        y, _ = attend(q, k, v, None, [padding, local], 0)
        results.append(join_heads(y))
    return narrow(np.where((global_ != 0)[..., None], results[1], results[0]), x.dtype)
