"""Attention and what goes with it: RotaryEmbedding, LinearAttention, FlexAttention."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from typing import Any

import numpy as np

from ..model.dtypes import dtype_of
from .common import to_float32
from .precision import BFLOAT16, narrow, rounding, softmax_in_steps
from .registry import op


def split_heads(x: np.ndarray, heads: int | None, what: str) -> np.ndarray:
    """(batch, length, heads * size) as (batch, heads, length, size); four axes stay as they are."""
    if x.ndim == 4:
        return x
    if x.ndim != 3 or not heads or x.shape[2] % heads:
        raise ValueError(f"{what} of shape {list(x.shape)} can't be split into {heads} heads")
    return x.reshape(x.shape[0], x.shape[1], heads, x.shape[2] // heads).transpose(0, 2, 1, 3)


def join_heads(x: np.ndarray) -> np.ndarray:
    """(batch, heads, length, size) as (batch, length, heads * size)."""
    return x.transpose(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], x.shape[1] * x.shape[3])


def grouped_matmul(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Matrix products per head, where `b` may have fewer heads than `a`, each shared by a run of a's."""
    batch, heads = a.shape[:2]
    shared = b.shape[1]
    if heads == shared:
        return np.matmul(a, b)
    if not shared or heads % shared:
        raise ValueError(f"{heads} query heads are not a multiple of {shared} key and value heads")
    y = np.matmul(a.reshape(batch, shared, heads // shared, *a.shape[2:]), b[:, :, None])
    return y.reshape(batch, heads, *y.shape[3:])


def masked_softmax(scores: np.ndarray, sink: np.ndarray | None = None) -> np.ndarray:
    """Softmax over the last axis in which -inf is masked out; a row with nothing left is all zero.

    `sink`, if given, is one more score per row that takes its share of the probability.
    """
    top = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    if sink is not None:
        top = np.maximum(top, sink)
    weights = np.exp(scores - np.where(np.isneginf(top), 0, top))
    total = weights.sum(axis=-1, keepdims=True)
    if sink is not None:
        total = total + np.exp(sink - top)
    return weights / np.where(total == 0, 1, total)


def soft_cap(scores: np.ndarray, cap: float | None) -> np.ndarray:
    return cap * np.tanh(scores / cap) if cap else scores


def add_bias(scores: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    """Scores plus a bias, in which -inf masks whatever the score is."""
    if bias is None:
        return scores
    return np.where(np.isneginf(bias), bias.dtype.type(-np.inf), scores + bias)


def as_bias(mask: np.ndarray | None, total: int, dtype: np.dtype) -> np.ndarray | None:
    """A mask (boolean: what takes part; else a bias) as a bias over `total` keys, masked where it is too short."""
    if mask is None:
        return None
    bias = np.where(mask, 0, -np.inf) if mask.dtype == np.bool_ else to_float32(mask)
    bias = bias.astype(dtype)
    lacking = total - bias.shape[-1]
    if lacking > 0:
        bias = np.pad(bias, [(0, 0)] * (bias.ndim - 1) + [(0, lacking)], constant_values=-np.inf)
    return bias


def key_positions(queries: int, keys: int, offset: np.ndarray | int) -> tuple[np.ndarray, np.ndarray]:
    """Positions of the queries, which come `offset` (one, or one per batch) after the first key, and of the keys;
    both broadcast to (batch, 1, queries, keys)."""
    where = np.arange(queries)[:, None] + np.asarray(offset).reshape(-1, 1, 1, 1)
    return where, np.arange(keys)


def attention_impl(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    attn_mask: np.ndarray | None,
    past_key: np.ndarray | None,
    past_value: np.ndarray | None,
    nonpad_kv_seqlen: np.ndarray | None,
    is_causal: int,
    kv_num_heads: int | None,
    q_num_heads: int | None,
    qk_matmul_output_mode: int,
    scale: float | None,
    softcap: float,
    softmax_precision: int | None,
    left_window_size: int = -1,
    right_window_size: int = -1,
) -> tuple[np.ndarray, ...]:
    if (past_key is None) != (past_value is None):
        raise ValueError("past_key and past_value go together")
    packed = q.ndim == 3
    dtype = q.dtype
    queries = split_heads(q, q_num_heads, "Q")
    present_key, present_value = split_heads(k, kv_num_heads, "K"), split_heads(v, kv_num_heads, "V")
    past = 0
    if past_key is not None and past_value is not None:
        past = past_key.shape[2]
        present_key = np.concatenate([past_key, present_key], axis=2)
        present_value = np.concatenate([past_value, present_value], axis=2)
    queries, keys, values = (to_float32(t) for t in (queries, present_key, present_value))
    if softmax_precision == 11:
        queries = queries.astype(np.float64)

    factor = 1 / math.sqrt(queries.shape[-1]) if scale is None else scale
    # bfloat16 is rounded after each operator of the function's body, as in the standard's cases; products are sums of
    # float32. float16 is not: scores may go beyond its range.
    in_steps = dtype == BFLOAT16 and factor >= 0
    step = rounding(dtype) if in_steps else lambda x: x
    if in_steps:
        root = step(np.asarray(math.sqrt(factor), np.float32))
        raw = step(grouped_matmul(step(queries * root), step(keys * root).swapaxes(-1, -2)))
    else:
        raw = grouped_matmul(queries * factor, keys.swapaxes(-1, -2))
    capped = step(soft_cap(raw, softcap))
    bias = as_bias(attn_mask, keys.shape[2], raw.dtype)
    offset: np.ndarray | int = past
    if past_key is None and nonpad_kv_seqlen is not None:
        offset = nonpad_kv_seqlen - queries.shape[2]
    position, key = key_positions(queries.shape[2], keys.shape[2], offset)
    allowed = np.ones((), bool)
    if is_causal:
        allowed = allowed & (key <= position)
    if left_window_size >= 0:
        allowed = allowed & (key >= position - left_window_size)
    if right_window_size >= 0:
        allowed = allowed & (key <= position + right_window_size)
    if nonpad_kv_seqlen is not None:
        allowed = allowed & (key < nonpad_kv_seqlen.reshape(-1, 1, 1, 1))
    biased = step(np.where(allowed, add_bias(capped, bias), raw.dtype.type(-np.inf)))
    if in_steps and softmax_precision in (None, 16):
        masked = np.isneginf(biased).all(axis=-1, keepdims=True)
        weights = np.where(masked, 0, softmax_in_steps(biased, dtype))
    else:
        weights = step(masked_softmax(biased))
    y = grouped_matmul(weights, values)
    y = join_heads(y) if packed else y
    shown = (raw, capped, biased, weights)[qk_matmul_output_mode]
    return narrow(y, dtype), present_key, present_value, narrow(shown, dtype)


@op("Attention", since=23)
def attention_23(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    attn_mask: np.ndarray | None = None,
    past_key: np.ndarray | None = None,
    past_value: np.ndarray | None = None,
    *,
    is_causal: int = 0,
    kv_num_heads: int | None = None,
    q_num_heads: int | None = None,
    qk_matmul_output_mode: int = 0,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: int | None = None,
):
    return attention_impl(
        q, k, v, attn_mask, past_key, past_value, None, is_causal, kv_num_heads, q_num_heads,
        qk_matmul_output_mode, scale, softcap, softmax_precision,
    )  # fmt: skip


@op("Attention", since=24)
def attention_24(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    attn_mask: np.ndarray | None = None,
    past_key: np.ndarray | None = None,
    past_value: np.ndarray | None = None,
    nonpad_kv_seqlen: np.ndarray | None = None,
    *,
    is_causal: int = 0,
    kv_num_heads: int | None = None,
    q_num_heads: int | None = None,
    qk_matmul_output_mode: int = 0,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: int | None = None,
):
    return attention_impl(
        q, k, v, attn_mask, past_key, past_value, nonpad_kv_seqlen, is_causal, kv_num_heads, q_num_heads,
        qk_matmul_output_mode, scale, softcap, softmax_precision,
    )  # fmt: skip


@op("Attention", since=25)
def attention_25(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    attn_mask: np.ndarray | None = None,
    past_key: np.ndarray | None = None,
    past_value: np.ndarray | None = None,
    nonpad_kv_seqlen: np.ndarray | None = None,
    *,
    is_causal: int = 0,
    kv_num_heads: int | None = None,
    left_window_size: int = -1,
    q_num_heads: int | None = None,
    qk_matmul_output_mode: int = 0,
    right_window_size: int = -1,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: int | None = None,
):
    return attention_impl(
        q, k, v, attn_mask, past_key, past_value, nonpad_kv_seqlen, is_causal, kv_num_heads, q_num_heads,
        qk_matmul_output_mode, scale, softcap, softmax_precision, left_window_size, right_window_size,
    )  # fmt: skip


Body = Callable[..., Generator[Any, Any, Sequence[Any]]]


@op("FlexAttention", domain="ai.onnx.preview")
def flex_attention(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    *,
    prob_mod: Body | None = None,
    scale: float | None = None,
    score_mod: Body | None = None,
    softmax_precision: int | None = None,
):
    """Attention whose scores and probabilities pass through bodies, in the type of `softmax_precision`."""
    double = q.dtype == np.float64
    precision = dtype_of(softmax_precision) if softmax_precision else np.dtype(np.float64 if double else np.float32)
    factor = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    scores = narrow(grouped_matmul(to_float32(q) * factor, to_float32(k).swapaxes(-1, -2)), precision)
    if score_mod is not None:
        (scores,) = yield from score_mod(scores)
    probabilities = narrow(masked_softmax(to_float32(scores)), precision)
    if prob_mod is not None:
        (probabilities,) = yield from prob_mod(probabilities)
    return narrow(grouped_matmul(to_float32(probabilities), to_float32(v)), q.dtype)


def rotate(x: np.ndarray, cos: np.ndarray, sin: np.ndarray, interleaved: int) -> np.ndarray:
    """Rotate pairs of elements of the last axis: (even, odd) if `interleaved`, else (first half, second half).

    Only as many elements as the angles, which broadcast, have pairs for; the rest stay.
    """
    half = cos.shape[-1]
    if x.shape[-1] < 2 * half:
        raise ValueError(f"a cache of {half} angles rotates {2 * half} elements, heads have {x.shape[-1]}")
    y = x.copy()
    if interleaved:
        one, two = slice(0, 2 * half, 2), slice(1, 2 * half, 2)
    else:
        one, two = slice(0, half), slice(half, 2 * half)
    y[..., one] = cos * x[..., one] - sin * x[..., two]
    y[..., two] = sin * x[..., one] + cos * x[..., two]
    return y


@op("RotaryEmbedding", since=23)
def rotary_embedding(
    x: np.ndarray,
    cos_cache: np.ndarray,
    sin_cache: np.ndarray,
    position_ids: np.ndarray | None = None,
    *,
    interleaved: int = 0,
    num_heads: int | None = None,
    rotary_embedding_dim: int = 0,
):
    heads = to_float32(split_heads(x, num_heads, "X"))  # (batch, heads, length, size)
    cos, sin = to_float32(cos_cache), to_float32(sin_cache)
    if position_ids is not None:
        cos, sin = cos[position_ids], sin[position_ids]
    expected = (rotary_embedding_dim or heads.shape[-1]) // 2
    if cos.shape[-1] != expected or sin.shape != cos.shape:
        raise ValueError(f"the caches hold {cos.shape[-1]} angles, {expected} are needed")
    y = rotate(heads, cos[:, None], sin[:, None], interleaved)
    return narrow(join_heads(y) if x.ndim == 3 else y, x.dtype)


@op("LinearAttention", since=27)
def linear_attention(
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    past_state: np.ndarray | None = None,
    decay: np.ndarray | None = None,
    beta: np.ndarray | None = None,
    *,
    chunk_size: int = 64,
    kv_num_heads: int,
    q_num_heads: int,
    scale: float = 0.0,
    update_rule: str = "gated_delta",
    output_types: Sequence[np.dtype | None] = (),
):
    """Attention by a recurrent state (batch, heads, key size, value size), one token after the other."""
    if update_rule not in ("linear", "gated", "delta", "gated_delta"):
        raise ValueError(f"update_rule is {update_rule!r}; linear, gated, delta and gated_delta are known")
    gated, delta = update_rule.startswith("gated"), update_rule.endswith("delta")
    if (gated and decay is None) or (delta and beta is None):
        raise ValueError(f"update_rule {update_rule} needs {'decay' if gated and decay is None else 'beta'}")
    q = to_float32(split_heads(query, q_num_heads, "query"))
    k = to_float32(split_heads(key, kv_num_heads, "key"))
    v = to_float32(split_heads(value, kv_num_heads, "value"))
    batch, _, time, size = q.shape
    gates = None if decay is None else np.exp(to_float32(split_heads(decay, kv_num_heads, "decay")))
    rates = None
    if beta is not None:
        rates = to_float32(beta).swapaxes(1, 2)[..., None]  # (batch, heads or 1, time, 1)
    if past_state is None:
        state = np.zeros((batch, kv_num_heads, size, v.shape[-1]), q.dtype)
        state_type = next(iter(output_types[1:]), None) or query.dtype
    else:
        state, state_type = to_float32(past_state), past_state.dtype
    factor = scale or 1 / math.sqrt(size)
    outputs = np.zeros((batch, q_num_heads, time, v.shape[-1]), q.dtype)
    for t in range(time if outputs.size and state.size else 0):
        if gated and gates is not None:
            state = gates[:, :, t, :, None] * state
        new = v[:, :, t]
        if delta and rates is not None:
            new = rates[:, :, t] * (new - np.matmul(k[:, :, t, None], state)[:, :, 0])
        state = state + k[:, :, t, :, None] * new[:, :, None]
        outputs[:, :, t] = grouped_matmul(q[:, :, t : t + 1] * factor, state)[:, :, 0]
    return narrow(join_heads(outputs), query.dtype), narrow(state, state_type)
