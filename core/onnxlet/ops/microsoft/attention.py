"""Attention with its input projection, masks and caches as com.microsoft's operators define them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...errors import UnsupportedError
from ..attention import grouped_matmul, join_heads, masked_softmax, rotate, split_heads
from ..common import scalar, to_float32
from ..matrix import mat_mul_integer
from ..precision import narrow
from ..registry import op

MICROSOFT = "com.microsoft"


def padding_bias(mask: np.ndarray | None, batch: int, queries: int, total: int, value: float) -> np.ndarray | None:
    """What a mask adds to scores (batch, heads, queries, total): `value` where it hides a key.

    Masks are lengths (batch), ends and starts (2 * batch), or 1 for what is seen and 0 for what is not: (batch, total),
    (batch, queries, total) or (batch, 1, longest, longest).
    """
    if mask is None:
        return None
    key = np.arange(total)
    if mask.ndim == 1 and len(mask) == batch:
        seen = (key < mask[:, None])[:, None, None]
    elif mask.ndim == 1 and len(mask) == 2 * batch:
        seen = ((key < mask[:batch, None]) & (key >= mask[batch:, None]))[:, None, None]
    elif mask.ndim == 2 and mask.shape[0] == batch:
        seen = mask[:, None, None] > 0
    elif mask.ndim == 3:
        seen = mask[:, None] > 0
    elif mask.ndim == 4:
        seen = mask[:, :, total - queries : total, :total] > 0
    else:
        raise ValueError(f"a mask of shape {list(mask.shape)} does not fit a batch of {batch} over {total} keys")
    return np.where(seen, 0, np.float32(value))


def attend(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    scale: float | None,
    biases: Sequence[np.ndarray | None],
    causal: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Attention over (batch, heads, length, size); the queries are the last of the keys. Also the scores."""
    factor = scale or 1 / math.sqrt(q.shape[-1])
    scores = grouped_matmul(q, k.swapaxes(-1, -2)) * factor
    for bias in biases:
        if bias is not None:
            scores = scores + to_float32(bias)
    if causal:
        position = np.arange(q.shape[2])[:, None] + k.shape[2] - q.shape[2]
        scores = np.where(np.arange(k.shape[2]) <= position, scores, scores.dtype.type(-np.inf))
    return grouped_matmul(masked_softmax(scores), v), scores


def with_past(past: np.ndarray | None, new: np.ndarray) -> np.ndarray:
    return new if past is None else np.concatenate([to_float32(past), new], axis=2)


def into_buffer(buffer: np.ndarray, new: np.ndarray, past: int) -> np.ndarray:
    """A cache (batch, heads, longest, size) with what is new written from `past` on."""
    length = new.shape[2]
    if past < 0 or past + length > buffer.shape[2]:
        raise ValueError(f"a cache of {buffer.shape[2]} has no room for {length} more after {past}")
    result = to_float32(buffer).copy()
    result[:, :, past : past + length] = new
    return result


def of_beams(cache: np.ndarray, indirection: np.ndarray | None, past: int) -> np.ndarray:
    """A cache (batch * beams, heads, length, size) in which each of the first `past` tokens comes from the beam that
    `indirection` (batch, beams, longest) names."""
    if indirection is None:
        return cache
    batch, beams, _ = indirection.shape
    if len(cache) != batch * beams:
        raise ValueError(f"a cache for {len(cache)} does not go with {batch} times {beams} beams")
    rows = (np.arange(batch)[:, None, None] * beams + indirection[:, :, :past]).reshape(batch * beams, past)
    result = cache.copy()
    result[:, :, :past] = cache[rows, :, np.arange(past)].swapaxes(1, 2)
    return result


def masked_step(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    caches: tuple[np.ndarray, np.ndarray],
    past: int,
    indirection: np.ndarray | None,
    mask: np.ndarray | None,
    bias: np.ndarray | None,
    mask_filter_value: float,
    scale: float | None,
    causal: int = 0,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Attention of new tokens over buffers, and these with the new keys and values; also the scores."""
    keys, values = into_buffer(caches[0], k, past), into_buffer(caches[1], v, past)
    total = past + k.shape[2]
    seen = [of_beams(c[:, :, :total], indirection, past) for c in (keys, values)]
    padding = padding_bias(mask, q.shape[0], q.shape[2], total, mask_filter_value)
    y, scores = attend(q, seen[0], seen[1], scale, [padding, bias], causal)
    return y, keys, values, scores


def refuse_rotary(do_rotary: int) -> None:
    if do_rotary:
        raise UnsupportedError(
            "attention with do_rotary and without angles is not defined; use RotaryEmbedding before it"
        )


def projected_attention(
    projected: np.ndarray,
    sizes: Sequence[int],
    num_heads: int,
    mask_index: np.ndarray | None,
    past: np.ndarray | None,
    attention_bias: np.ndarray | None,
    mask_filter_value: float,
    scale: float | None,
    unidirectional: int,
    past_length: int | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Attention of queries, keys and values that stand side by side in (batch, length, sum of sizes); also keys and
    values with the past, as (2, batch, heads, total, size). If `past_length` says how much of it is filled, the past is
    a buffer."""
    q, k, v = (
        split_heads(part, num_heads, "input") for part in np.split(projected, np.cumsum(sizes)[:2].tolist(), axis=2)
    )
    if past is not None and past_length is not None:
        y, k, v, _ = masked_step(
            q, k, v, (past[0], past[1]), past_length, None, mask_index, attention_bias, mask_filter_value, scale,
            unidirectional,
        )  # fmt: skip
        return join_heads(y), np.stack([k, v])
    k, v = with_past(None if past is None else past[0], k), with_past(None if past is None else past[1], v)
    bias = padding_bias(mask_index, q.shape[0], q.shape[2], k.shape[2], mask_filter_value)
    y, _ = attend(q, k, v, scale, [bias, attention_bias], unidirectional)
    present = np.stack([k, v]) if k.shape == v.shape else np.zeros(0, k.dtype)
    return join_heads(y), present


@op("Attention", domain=MICROSOFT)
def attention(
    x: np.ndarray,
    weights: np.ndarray,
    bias: np.ndarray | None = None,
    mask_index: np.ndarray | None = None,
    past: np.ndarray | None = None,
    attention_bias: np.ndarray | None = None,
    past_sequence_length: np.ndarray | None = None,
    *,
    do_rotary: int = 0,
    mask_filter_value: float = -10000.0,
    num_heads: int,
    past_present_share_buffer: int = 0,
    qkv_hidden_sizes: Sequence[int] | None = None,
    rotary_embedding_dim: int = 0,
    scale: float | None = None,
    unidirectional: int = 0,
):
    refuse_rotary(do_rotary)
    filled = None
    if past_present_share_buffer:
        if past is None or past_sequence_length is None:
            raise ValueError("a shared buffer needs past and past_sequence_length")
        filled = int(scalar(past_sequence_length, "past_sequence_length"))
    projected = np.matmul(to_float32(x), to_float32(weights))
    if bias is not None:
        projected = projected + to_float32(bias)
    sizes = qkv_hidden_sizes or [weights.shape[1] // 3] * 3
    y, present = projected_attention(
        projected, sizes, num_heads, mask_index, past, attention_bias, mask_filter_value, scale, unidirectional, filled
    )
    return narrow(y, x.dtype), narrow(present, x.dtype)


@op("QAttention", domain=MICROSOFT)
def q_attention(
    x: np.ndarray,
    weight: np.ndarray,
    bias: np.ndarray,
    input_scale: np.ndarray,
    weight_scale: np.ndarray,
    mask_index: np.ndarray | None = None,
    input_zero_point: np.ndarray | None = None,
    weight_zero_point: np.ndarray | None = None,
    past: np.ndarray | None = None,
    *,
    do_rotary: int = 0,
    mask_filter_value: float = -10000.0,
    num_heads: int,
    past_present_share_buffer: int = 0,
    scale: float | None = None,
    unidirectional: int = 0,
):
    """Attention whose input projection is a product of integers."""
    refuse_rotary(do_rotary)
    if past_present_share_buffer:
        raise UnsupportedError("QAttention with past_present_share_buffer has no input for the length of the past")
    total = mat_mul_integer(x, weight, input_zero_point, weight_zero_point).astype(np.float32)
    projected = total * (to_float32(input_scale) * to_float32(weight_scale)) + to_float32(bias)
    sizes = [weight.shape[1] // 3] * 3
    y, present = projected_attention(
        projected, sizes, num_heads, mask_index, past, None, mask_filter_value, scale, unidirectional
    )
    return narrow(y, bias.dtype), narrow(present, bias.dtype)


@op("MultiHeadAttention", domain=MICROSOFT)
def multi_head_attention(
    query: np.ndarray,
    key: np.ndarray | None = None,
    value: np.ndarray | None = None,
    bias: np.ndarray | None = None,
    key_padding_mask: np.ndarray | None = None,
    attention_bias: np.ndarray | None = None,
    past_key: np.ndarray | None = None,
    past_value: np.ndarray | None = None,
    past_sequence_length: np.ndarray | None = None,
    cache_indirection: np.ndarray | None = None,
    *,
    mask_filter_value: float = -10000.0,
    num_heads: int,
    scale: float | None = None,
    unidirectional: int = 0,
):
    """Queries, keys and values may be packed: (batch, length, heads, 3 or 2, size). Keys and values of four axes are
    a cache already split into heads."""
    parts: list[np.ndarray | None] = [query, key, value]
    if query.ndim == 5:
        parts = [query[:, :, :, i].reshape(*query.shape[:2], -1) for i in range(3)]
    elif key is not None and key.ndim == 5:
        parts[1:] = [key[:, :, :, i].reshape(*key.shape[:2], -1) for i in range(2)]
    if parts[1] is None or parts[2] is None:
        raise ValueError("key and value are missing")
    q, k, v = (to_float32(p) for p in parts)
    if bias is not None:
        sizes = [q.shape[-1], q.shape[-1] if k.ndim == 4 else k.shape[-1]]
        shifts = np.split(to_float32(bias), np.cumsum(sizes).tolist())
        q = q + shifts[0]
        k, v = (t if t.ndim == 4 else t + s for t, s in zip((k, v), shifts[1:], strict=True))
    q, k, v = (split_heads(t, num_heads, "query, key or value") for t in (q, k, v))
    if past_sequence_length is not None and past_key is not None and past_value is not None:
        past = int(scalar(past_sequence_length, "past_sequence_length"))
        y, k, v, scores = masked_step(
            q, k, v, (past_key, past_value), past, cache_indirection, key_padding_mask, attention_bias,
            mask_filter_value, scale, unidirectional,
        )  # fmt: skip
        return tuple(narrow(t, query.dtype) for t in (join_heads(y), k, v, scores))
    k, v = with_past(past_key, k), with_past(past_value, v)
    mask = padding_bias(key_padding_mask, q.shape[0], q.shape[2], k.shape[2], mask_filter_value)
    y, scores = attend(q, k, v, scale, [mask, attention_bias], unidirectional)
    return tuple(narrow(t, query.dtype) for t in (join_heads(y), k, v, scores))


@op("RotaryEmbedding", domain=MICROSOFT)
def rotary_embedding(
    x: np.ndarray,
    position_ids: np.ndarray,
    cos_cache: np.ndarray,
    sin_cache: np.ndarray,
    *,
    interleaved: int = 0,
    is_packed_batching: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
    scale: float = 1.0,
):
    """Positions are one per token, or a single number that counts on from it."""
    size = 2 * cos_cache.shape[1]
    if rotary_embedding_dim and num_heads:
        size = x.shape[2] // num_heads if x.ndim == 3 else x.shape[3]
    heads = to_float32(split_heads(x, num_heads or x.shape[2] // size, "input"))
    length = heads.shape[2]
    positions = position_ids.reshape(1, 1) + np.arange(length) if position_ids.size == 1 else position_ids
    if positions.size and not 0 <= positions.min() <= positions.max() < len(cos_cache):
        raise ValueError(f"positions reach {positions.min()} to {positions.max()}, the caches have {len(cos_cache)}")
    cos, sin = to_float32(cos_cache)[positions][:, None], to_float32(sin_cache)[positions][:, None]
    y = rotate(heads, cos, sin, interleaved)
    return narrow(join_heads(y) if x.ndim == 3 else y, x.dtype)


@op("MRotaryEmbedding", domain=MICROSOFT)
def m_rotary_embedding(
    x: np.ndarray,
    position_ids: np.ndarray,
    cos_cache: np.ndarray,
    sin_cache: np.ndarray,
    *,
    interleaved: int = 0,
    is_packed_batching: int = 0,
    mrope_layout: int = 0,
    mrope_section: Sequence[int],
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
    scale: float = 1.0,
):
    """Rotation by three positions per token, `position_ids` (3, batch, length): time, height and width.

    Each pair of elements turns by one of them: the sections follow each other or, with `mrope_layout` 1, height and
    width take every third pair from the second and third on, as far as their sections go.
    """
    half = cos_cache.shape[1]
    if len(mrope_section) != 3 or sum(mrope_section) != half:
        raise ValueError(f"mrope_section {list(mrope_section)} must be three lengths that add up to {half}")
    if mrope_layout:
        stream = np.zeros(half, np.int64)
        for which in (1, 2):
            stream[which : 3 * mrope_section[which] : 3] = which
    else:
        stream = np.repeat(np.arange(3), mrope_section)
    positions = np.moveaxis(position_ids, 0, -1)[..., stream]  # (batch, length, half)
    size = 2 * half
    if rotary_embedding_dim and num_heads:
        size = x.shape[2] // num_heads if x.ndim == 3 else x.shape[3]
    heads = to_float32(split_heads(x, num_heads or x.shape[2] // size, "input"))
    pair = np.arange(half)
    cos, sin = to_float32(cos_cache)[positions, pair][:, None], to_float32(sin_cache)[positions, pair][:, None]
    y = rotate(heads, cos, sin, interleaved)
    return narrow(join_heads(y) if x.ndim == 3 else y, x.dtype)
