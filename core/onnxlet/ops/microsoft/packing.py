"""Batches of sequences without their padding: RemovePadding, RestorePadding, PackedAttention."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

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
    q, k, v = (p.reshape(len(p), num_heads, -1).swapaxes(0, 1)[None] for p in parts)
    result = np.zeros((len(x), sizes[2]), projected.dtype)
    edges = cumulative_sequence_length.tolist()
    for b, (begin, end) in enumerate(itertools.pairwise(edges)):
        added = None
        if attention_bias is not None:
            added = attention_bias[min(b, len(attention_bias) - 1)][None, :, : end - begin, : end - begin]
        own = slice(begin, end)
        y, _ = attend(q[:, :, own], k[:, :, own], v[:, :, own], scale, [added], 0)
        result[own] = y[0].swapaxes(0, 1).reshape(end - begin, -1)
    return narrow(result, x.dtype)
