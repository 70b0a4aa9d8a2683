"""Batches of sequences without their padding: RemovePadding, RestorePadding, PackedAttention and its relatives."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from ..activations import sigmoid
from ..attention import split_heads
from ..common import to_float32
from ..precision import narrow
from ..registry import op
from .attention import attend
from .layers import MICROSOFT


@op("RemovePadding", domain=MICROSOFT)
def remove_padding(x: np.ndarray, sequence_token_count: np.ndarray):
    """The tokens of all sequences, one after the other (tokens, size); the places of tokens and then of padding in the
    batch; where each sequence begins; and the length of the longest."""
    batch, length = x.shape[:2]
    counts = sequence_token_count.reshape(-1)
    if len(counts) != batch or counts.min(initial=0) < 0 or counts.max(initial=0) > length:
        raise ValueError(f"sequence_token_count {counts.tolist()} must be {batch} lengths from 0 to {length}")
    real = (np.arange(length) < counts[:, None]).reshape(-1)
    offsets = np.concatenate([np.flatnonzero(real), np.flatnonzero(~real)]).astype(np.int32)
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    tokens = x.reshape(batch * length, -1)[real]
    return tokens, offsets.reshape(batch, length), starts, np.array([counts.max(initial=0)], np.int32)


@op("RestorePadding", domain=MICROSOFT)
def restore_padding(x: np.ndarray, token_offset: np.ndarray):
    """Tokens back at their places, and zeros where the padding was."""
    result = np.zeros((token_offset.size, x.shape[1]), x.dtype)
    result[token_offset.reshape(-1)[: len(x)]] = x
    return result.reshape(*token_offset.shape, x.shape[1])


def within_sequences(
    parts: Sequence[np.ndarray],
    num_heads: int,
    cumulative_sequence_length: np.ndarray,
    attention_bias: np.ndarray | None,
    scale: float | None,
) -> np.ndarray:
    """Attention of queries, keys and values (tokens, size) within each of the sequences that follow each other."""
    q, k, v = (p.reshape(len(p), num_heads, -1).swapaxes(0, 1)[None] for p in parts)
    result = np.zeros(parts[2].shape, parts[2].dtype)
    for b, (begin, end) in enumerate(itertools.pairwise(cumulative_sequence_length.tolist())):
        added = None
        if attention_bias is not None:
            added = attention_bias[min(b, len(attention_bias) - 1)][None, :, : end - begin, : end - begin]
        own = slice(begin, end)
        y, _ = attend(q[:, :, own], k[:, :, own], v[:, :, own], scale, [added], 0)
        result[own] = y[0].swapaxes(0, 1).reshape(end - begin, -1)
    return result


@op("PackedAttention", domain=MICROSOFT)
def packed_attention(
    x: np.ndarray,
    weights: np.ndarray,
    bias: np.ndarray,
    token_offset: np.ndarray,
    cumulative_sequence_length: np.ndarray,
    attention_bias: np.ndarray | None = None,
    *,
    num_heads: int,
    qkv_hidden_sizes: Sequence[int] | None = None,
    scale: float | None = None,
):
    """Attention within each of the sequences whose tokens follow each other in (tokens, size)."""
    projected = np.matmul(to_float32(x), to_float32(weights)) + to_float32(bias)
    sizes = qkv_hidden_sizes or [weights.shape[1] // 3] * 3
    parts = np.split(projected, np.cumsum(sizes)[:2].tolist(), axis=1)
    return narrow(within_sequences(parts, num_heads, cumulative_sequence_length, attention_bias, scale), x.dtype)


@op("PackedMultiHeadAttention", domain=MICROSOFT)
def packed_multi_head_attention(
    query: np.ndarray,
    key: np.ndarray | None,
    value: np.ndarray | None,
    bias: np.ndarray | None,
    token_offset: np.ndarray,
    cumulative_sequence_length: np.ndarray,
    attention_bias: np.ndarray | None = None,
    *,
    mask_filter_value: float = -10000.0,
    num_heads: int,
    scale: float | None = None,
):
    """PackedAttention of projections (tokens, size), which may be packed: (tokens, heads, 3, size)."""
    if query.ndim == 4:
        parts = [to_float32(query)[:, :, i].reshape(len(query), -1) for i in range(3)]
    elif key is None or value is None:
        raise ValueError("key and value are missing")
    else:
        parts = [to_float32(p) for p in (query, key, value)]
    if bias is not None:
        shifts = np.split(to_float32(bias), np.cumsum([p.shape[1] for p in parts])[:2].tolist())
        parts = [p + s for p, s in zip(parts, shifts, strict=True)]
    return narrow(within_sequences(parts, num_heads, cumulative_sequence_length, attention_bias, scale), query.dtype)


@op("GatedRelativePositionBias", domain=MICROSOFT)
def gated_relative_position_bias(
    query_layer: np.ndarray,
    query_bias: np.ndarray,
    rel_pos: np.ndarray,
    weight: np.ndarray,
    bias: np.ndarray,
    eco_a: np.ndarray,
    token_offset: np.ndarray | None = None,
    *,
    num_heads: int,
):
    """The position bias of WavLM (Chen et al. 2021), scaled for each query by what gates make of it."""
    if token_offset is not None:  # tokens without padding: back to their places
        query_layer = restore_padding(query_layer, token_offset)
    queries = split_heads(to_float32(query_layer) + to_float32(query_bias), num_heads, "query_layer")
    gates = np.matmul(queries, to_float32(weight)) + to_float32(bias)
    gates = sigmoid(gates.reshape(*gates.shape[:3], 2, -1).sum(axis=-1))
    update, reset = gates[..., :1], gates[..., 1:]
    factor = update * (reset * to_float32(eco_a) - 1) + 2
    return narrow(factor * to_float32(rel_pos), query_layer.dtype)
