"""Attention to a part of the keys: blocks of them (SparseAttention), or those that a selector named."""

from __future__ import annotations

import math

import numpy as np

from ..attention import grouped_matmul, join_heads, masked_softmax, rotate
from ..common import to_float32
from ..precision import narrow
from ..registry import op
from .grouped import separate
from .layers import MICROSOFT


def block_mask(rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Masks (layouts, blocks, blocks) from compressed rows (layouts, blocks + 1) and their columns."""
    layouts, blocks = rows.shape[0], rows.shape[1] - 1
    entry = np.arange(columns.shape[1])
    # In which row an entry is: how many rows begin at it or before.
    row = (entry >= rows[:, 1:, None]).sum(axis=1)
    real = entry < rows[:, -1:]
    mask = np.zeros((layouts, blocks, blocks), bool)
    layout = np.broadcast_to(np.arange(layouts)[:, None], real.shape)
    mask[layout[real], row[real], columns[real]] = True
    return mask


@op("SparseAttention", domain=MICROSOFT)
def sparse_attention(
    query: np.ndarray,
    key: np.ndarray | None,
    value: np.ndarray | None,
    past_key: np.ndarray,
    past_value: np.ndarray,
    block_row_indices: np.ndarray,
    block_col_indices: np.ndarray,
    total_sequence_length: np.ndarray,
    key_total_sequence_lengths: np.ndarray,
    cos_cache: np.ndarray | None = None,
    sin_cache: np.ndarray | None = None,
    *,
    do_rotary: int = 0,
    kv_num_heads: int,
    num_heads: int,
    rotary_interleaved: int = 0,
    scale: float | None = None,
    sparse_block_size: int,
):
    """Causal attention over a cache to the blocks of keys that a mask shows to a block of queries; heads take the masks
    by turns (Abdin et al. 2024, on Phi-3-small)."""
    q, k, v = (x.swapaxes(1, 2) for x in separate(query, key, value, num_heads, kv_num_heads))
    batch, _, length, size = q.shape
    total = int(np.asarray(total_sequence_length).reshape(-1)[0])
    lengths = key_total_sequence_lengths.reshape(-1).astype(np.int64)
    before = np.zeros(batch, np.int64) if length == total else lengths - length
    positions = before[:, None] + np.arange(length)
    if positions.min(initial=0) < 0 or positions.max(initial=0) >= past_key.shape[2]:
        raise ValueError(f"positions {positions.min()} to {positions.max()} are outside a cache of {past_key.shape[2]}")
    if do_rotary:
        if cos_cache is None or sin_cache is None:
            raise ValueError("do_rotary needs cos_cache and sin_cache")
        cos, sin = to_float32(cos_cache)[positions][:, None], to_float32(sin_cache)[positions][:, None]
        q, k = rotate(q, cos, sin, rotary_interleaved), rotate(k, cos, sin, rotary_interleaved)
    row = np.arange(batch)[:, None]
    caches = []
    for past, new in ((past_key, k), (past_value, v)):
        cache = to_float32(past).copy()
        cache[row, :, positions] = new.swapaxes(1, 2)
        caches.append(cache)
    scores = grouped_matmul(q, caches[0][:, :, :total].swapaxes(-1, -2)) * (scale or 1 / math.sqrt(size))
    masks = block_mask(block_row_indices, block_col_indices)
    slots = np.arange(total)
    shown = masks[:, positions // sparse_block_size][..., slots // sparse_block_size]  # (layouts, batch, queries, keys)
    seen = shown[np.arange(num_heads) % len(masks)].swapaxes(0, 1) & (slots <= positions[:, None, :, None])
    y = grouped_matmul(masked_softmax(np.where(seen, scores, scores.dtype.type(-np.inf))), caches[1][:, :, :total])
    return tuple(narrow(t, query.dtype) for t in (join_heads(y), *caches))
