"""Attention of sequences that follow each other, over caches in blocks or of a selection of keys: PagedAttention,
SparsePagedAttention, DynamicSparseAttention."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ...errors import UnsupportedError
from ...model.dtypes import dtype_of
from ..attention import grouped_matmul, masked_softmax, rotate, soft_cap
from ..common import to_float32
from ..precision import narrow
from ..registry import op
from .grouped import Store, normalized_heads, separate
from .hashing import sequence_edges
from .layers import MICROSOFT

PACKINGS = {"int4": "int4", "float4e2m1": "float4e2m1"}
"""Types of fewer than eight bits, which a cache of uint8 may hold."""


def turned(x: np.ndarray, cos: np.ndarray, sin: np.ndarray, interleaved: int, offset: int) -> np.ndarray:
    """Heads (..., heads, size) rotated from an element on, by angles (..., half)."""
    y = x.copy()
    y[..., offset:] = rotate(x[..., offset:], cos[..., None, :], sin[..., None, :], interleaved)
    return y


@dataclass(frozen=True)
class Weighing:
    """How scores become weights."""

    scale: float
    softcap: float
    sink: np.ndarray | None
    """One more score for each head, without a value."""

    def attend(self, q: np.ndarray, k: np.ndarray, v: np.ndarray, seen: np.ndarray) -> np.ndarray:
        """(queries, heads, size) of queries and of keys and values (keys, heads, size); `seen` is (queries, keys)."""
        q, k, v = (x.swapaxes(0, 1)[None] for x in (q, k, v))
        scores = soft_cap(grouped_matmul(q, k.swapaxes(-1, -2)) * self.scale, self.softcap)
        scores = np.where(seen, scores, scores.dtype.type(-np.inf))
        sink = None if self.sink is None else to_float32(self.sink).reshape(1, -1, 1, 1)
        return grouped_matmul(masked_softmax(scores, sink), v)[0].swapaxes(0, 1)


@dataclass(frozen=True)
class Pages:
    """A cache in blocks (blocks, block size, heads, size), and which blocks each sequence has."""

    keys: np.ndarray
    values: np.ndarray | None
    table: np.ndarray
    key_store: Store
    value_store: Store

    @property
    def block(self) -> int:
        return self.keys.shape[1]

    def slots(self, sequence: int, positions: np.ndarray) -> np.ndarray:
        """Where positions of a sequence are among all rows of the cache; -1 where it has no block for them."""
        page = positions // self.block
        there = page < self.table.shape[1]
        blocks = self.table[sequence, np.where(there, page, 0)].astype(np.int64)
        there &= (blocks >= 0) & (blocks < len(self.keys))
        return np.where(there, blocks * self.block + positions % self.block, -1)

    def write(self, k: np.ndarray, v: np.ndarray | None, slots: np.ndarray) -> None:
        """Write keys and values (tokens, heads, size) at slots, but for those at -1."""
        kept = slots >= 0
        self.keys.reshape(-1, *self.keys.shape[2:])[slots[kept]] = self.key_store.write(k[kept])
        if self.values is not None and v is not None:
            self.values.reshape(-1, *self.values.shape[2:])[slots[kept]] = self.value_store.write(v[kept])

    def read(self, slots: np.ndarray, size: int, value_size: int) -> tuple[np.ndarray, np.ndarray]:
        """Keys and values at slots; without a cache of their own, values are the first elements of keys."""
        k = self.key_store.read(self.keys.reshape(-1, *self.keys.shape[2:])[slots], size)
        if self.values is None:
            return k, k[..., :value_size]
        return k, self.value_store.read(self.values.reshape(-1, *self.values.shape[2:])[slots], value_size)


def scales_of(scale: np.ndarray | None) -> np.ndarray | None:
    """Scales (1) or (heads, 1, size) so that they broadcast to (tokens, heads, size)."""
    return None if scale is None else scale if scale.size == 1 else scale.reshape(scale.shape[0], -1)


def paged(
    query: np.ndarray,
    key: np.ndarray | None,
    value: np.ndarray | None,
    key_cache: np.ndarray,
    value_cache: np.ndarray | None,
    cumulative_sequence_length: np.ndarray,
    past_seqlens: np.ndarray,
    block_table: np.ndarray,
    cos_cache: np.ndarray | None,
    sin_cache: np.ndarray | None,
    slot_mapping: np.ndarray | None,
    weights: tuple[np.ndarray | None, np.ndarray | None],
    stores: tuple[Store, Store],
    num_heads: int,
    kv_num_heads: int,
    value_size: int,
    epsilon: float,
    rotary: tuple[int, int, int],
    weighing: Callable[[int], Weighing],
    shown: Callable[[int, slice, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray | None, np.ndarray | None]],
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Attention of tokens over a paged cache, with the new keys and values written to it; also the caches.

    `rotary` are whether to rotate, whether pairs are interleaved, and from which element on. `shown` tells, for a
    sequence, its tokens, positions of its queries and of its keys, what is seen (queries, keys), and may add keys and
    values from elsewhere.
    """
    latent = value_cache is None
    if latent and key is not None:
        q, k = (to_float32(x).reshape(len(x), n, -1) for x, n in ((query, num_heads), (key, kv_num_heads)))
        v = None
    else:
        q, k, v = separate(query, key, value, num_heads, kv_num_heads)
    size = q.shape[2]
    if weights[0] is not None and weights[1] is not None:
        q, k = normalized_heads(q, weights[0], epsilon), normalized_heads(k, weights[1], epsilon)
    edges = sequence_edges(cumulative_sequence_length, len(query))
    pages = Pages(
        key_cache.copy(), None if value_cache is None else value_cache.copy(), block_table, stores[0], stores[1]
    )
    positions = np.concatenate(
        [past + np.arange(b - a) for past, (a, b) in zip(past_seqlens.tolist(), itertools.pairwise(edges), strict=True)]
    ).astype(np.int64)
    if rotary[0]:
        if cos_cache is None or sin_cache is None:
            raise ValueError("do_rotary needs cos_cache and sin_cache")
        cos, sin = to_float32(cos_cache)[positions], to_float32(sin_cache)[positions]
        q, k = turned(q, cos, sin, *rotary[1:]), turned(k, cos, sin, *rotary[1:])
    slots = slot_mapping
    if slots is None:
        parts = [pages.slots(s, positions[a:b]) for s, (a, b) in enumerate(itertools.pairwise(edges))]
        slots = np.concatenate(parts) if parts else np.zeros(0, np.int64)
    pages.write(k, v, slots)
    result = np.zeros((len(query), num_heads, value_size or size), np.float32)
    for s, (begin, end) in enumerate(itertools.pairwise(edges)):
        own = slice(begin, end)
        at = np.arange(int(past_seqlens[s]) + end - begin)
        where = pages.slots(s, at)
        keys, values = pages.read(np.where(where >= 0, where, 0), size, value_size or size)
        seen, more_keys, more_values = shown(s, own, positions[own], at)
        seen = seen & np.concatenate([where >= 0, np.ones(seen.shape[1] - len(where), bool)])
        if more_keys is not None and more_values is not None:
            keys, values = np.concatenate([keys, more_keys]), np.concatenate([values, more_values])
        result[own] = weighing(size).attend(q[own], keys, values, seen)
    return narrow(result.reshape(len(query), -1), query.dtype), pages.keys, pages.values


def weigher(scale: float | None, softcap: float, sink: np.ndarray | None) -> Callable[[int], Weighing]:
    return lambda size: Weighing(scale or 1 / math.sqrt(size), softcap, sink)


def causal_window(positions: np.ndarray, at: np.ndarray, causal: int, window: int) -> np.ndarray:
    """What queries at positions see of keys at others: none after them if `causal`, none before a window."""
    seen = np.ones((len(positions), len(at)), bool)
    if causal:
        seen &= at <= positions[:, None]
    if window > 0:
        seen &= at > positions[:, None] - window
    return seen


@op("PagedAttention", domain=MICROSOFT)
def paged_attention(
    query: np.ndarray,
    key: np.ndarray | None,
    value: np.ndarray | None,
    key_cache: np.ndarray,
    value_cache: np.ndarray | None,
    cumulative_sequence_length: np.ndarray,
    past_seqlens: np.ndarray,
    block_table: np.ndarray,
    cos_cache: np.ndarray | None = None,
    sin_cache: np.ndarray | None = None,
    slot_mapping: np.ndarray | None = None,
    head_sink: np.ndarray | None = None,
    q_norm_weight: np.ndarray | None = None,
    k_norm_weight: np.ndarray | None = None,
    k_scale: np.ndarray | None = None,
    v_scale: np.ndarray | None = None,
    attention_metadata: np.ndarray | None = None,
    *,
    do_rotary: int = 0,
    is_causal: int = 1,
    k_cache_dtype: str = "",
    k_quant_type: str = "NONE",
    kv_cache_layout: str = "SEPARATE",
    kv_num_heads: int,
    local_window_size: int = -1,
    num_heads: int,
    qk_norm_epsilon: float = 1e-6,
    rotary_interleaved: int = 0,
    rotary_offset: int = 0,
    scale: float | None = None,
    softcap: float = 0.0,
    v_cache_dtype: str = "",
    v_head_size: int = 0,
    v_quant_type: str = "NONE",
):
    """Attention of sequences whose tokens (tokens, size) follow each other, each over its blocks of a cache (Kwon et
    al. 2023); also the caches with the new keys and values."""
    if (kv_cache_layout == "LATENT") != (value_cache is None):
        raise ValueError(
            f"kv_cache_layout is {kv_cache_layout!r}; LATENT is for a cache of keys alone, SEPARATE for two"
        )
    key_store = Store.of(key_cache, scales_of(k_scale), k_quant_type, PACKINGS.get(k_cache_dtype, ""))
    value_store = key_store
    if value_cache is not None:
        value_store = Store.of(value_cache, scales_of(v_scale), v_quant_type, PACKINGS.get(v_cache_dtype, ""))

    def shown(_: int, __: slice, positions: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, None, None]:
        return causal_window(positions, at, is_causal, local_window_size), None, None

    return paged(
        query, key, value, key_cache, value_cache, cumulative_sequence_length, past_seqlens, block_table, cos_cache,
        sin_cache, slot_mapping, (q_norm_weight, k_norm_weight), (key_store, value_store), num_heads, kv_num_heads,
        v_head_size, qk_norm_epsilon, (do_rotary, rotary_interleaved, rotary_offset),
        weigher(scale, softcap, head_sink), shown,
    )  # fmt: skip


def check_selection(mode: str, source: str) -> None:
    if mode not in ("selected_only", "local_plus_selected") or source not in ("main", "auxiliary"):
        raise ValueError(f"attention_mode {mode!r} or selected_kv_source {source!r} is not known")
    if mode == "local_plus_selected" and source == "main":
        raise UnsupportedError("keys that are both local and selected from the same cache are not defined")


def selected_mask(indices: np.ndarray, counts: np.ndarray, length: int) -> np.ndarray:
    """(queries, length): where the first `counts` of each row of indices are."""
    valid = (np.arange(indices.shape[1]) < counts[:, None]) & (indices >= 0) & (indices < length)
    mask = np.zeros((len(indices), length), bool)
    mask[np.nonzero(valid)[0], indices[valid]] = True
    return mask


@op("SparsePagedAttention", domain=MICROSOFT)
def sparse_paged_attention(
    query: np.ndarray,
    key: np.ndarray | None,
    value: np.ndarray | None,
    key_cache: np.ndarray,
    value_cache: np.ndarray,
    cumulative_sequence_length: np.ndarray,
    past_seqlens: np.ndarray,
    block_table: np.ndarray,
    slot_mapping: np.ndarray | None,
    selected_indices: np.ndarray,
    selected_counts: np.ndarray,
    auxiliary_key: np.ndarray | None = None,
    auxiliary_value: np.ndarray | None = None,
    auxiliary_lengths: np.ndarray | None = None,
    cos_cache: np.ndarray | None = None,
    sin_cache: np.ndarray | None = None,
    head_sink: np.ndarray | None = None,
    q_norm_weight: np.ndarray | None = None,
    k_norm_weight: np.ndarray | None = None,
    k_scale: np.ndarray | None = None,
    v_scale: np.ndarray | None = None,
    attention_metadata: np.ndarray | None = None,
    *,
    attention_mode: str = "selected_only",
    auxiliary_cache_layout: str = "contiguous",
    auxiliary_kv_shared: int = 0,
    do_rotary: int = 0,
    is_causal: int = 1,
    k_quant_type: str = "NONE",
    kv_num_heads: int,
    local_window_size: int = -1,
    num_heads: int,
    qk_norm_epsilon: float = 1e-6,
    rotary_interleaved: int = 0,
    rotary_offset: int = 0,
    scale: float | None = None,
    selected_kv_source: str = "main",
    softcap: float = 0.0,
    v_quant_type: str = "NONE",
):
    """PagedAttention to selected keys alone, or to those of a window and to others selected from an auxiliary cache
    (batch, capacity, heads, size)."""
    check_selection(attention_mode, selected_kv_source)
    others: tuple[np.ndarray | None, np.ndarray | None] = (None, None)
    if selected_kv_source == "auxiliary":
        others = auxiliary(auxiliary_key, auxiliary_value, auxiliary_kv_shared)

    def shown(
        s: int, own: slice, positions: np.ndarray, at: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
        indices, counts = selected_indices[own], selected_counts[own]
        seen = causal_window(positions, at, is_causal, local_window_size)
        if others[0] is None or others[1] is None:
            return seen & selected_mask(indices, counts, len(at)), None, None
        keys, values = (np.repeat(x[s], kv_num_heads // x.shape[2], axis=1) for x in others if x is not None)
        length = len(keys) if auxiliary_lengths is None else int(auxiliary_lengths[s])
        chosen = selected_mask(indices, counts, len(keys)) & (np.arange(len(keys)) < length)
        if attention_mode == "selected_only":
            seen = np.zeros_like(seen)
        return np.concatenate([seen, chosen], axis=1), keys, values

    stores = (
        Store.of(key_cache, scales_of(k_scale), k_quant_type),
        Store.of(value_cache, scales_of(v_scale), v_quant_type),
    )
    return paged(
        query, key, value, key_cache, value_cache, cumulative_sequence_length, past_seqlens, block_table, cos_cache,
        sin_cache, slot_mapping, (q_norm_weight, k_norm_weight), stores, num_heads, kv_num_heads, 0, qk_norm_epsilon,
        (do_rotary, rotary_interleaved, rotary_offset), weigher(scale, softcap, head_sink), shown,
    )  # fmt: skip


def auxiliary(key: np.ndarray | None, value: np.ndarray | None, shared: int) -> tuple[np.ndarray, np.ndarray]:
    """An auxiliary cache's keys and values, which may be the same."""
    other = key if shared and value is None else value
    if key is None or other is None:
        raise ValueError("keys selected from an auxiliary cache need auxiliary_key and auxiliary_value")
    return to_float32(key), to_float32(other)


@op("DynamicSparseAttention", domain=MICROSOFT)
def dynamic_sparse_attention(
    query: np.ndarray,
    key: np.ndarray | None,
    value: np.ndarray | None,
    past_key: np.ndarray | None,
    past_value: np.ndarray | None,
    auxiliary_key: np.ndarray | None,
    auxiliary_value: np.ndarray | None,
    selected_indices: np.ndarray,
    selected_counts: np.ndarray,
    seqlens_k: np.ndarray,
    total_sequence_length: np.ndarray,
    cos_cache: np.ndarray | None = None,
    sin_cache: np.ndarray | None = None,
    position_ids: np.ndarray | None = None,
    q_norm_weight: np.ndarray | None = None,
    k_norm_weight: np.ndarray | None = None,
    head_sink: np.ndarray | None = None,
    committed_length: np.ndarray | None = None,
    key_scale: np.ndarray | None = None,
    value_scale: np.ndarray | None = None,
    *,
    attention_mode: str = "selected_only",
    auxiliary_kv_shared: int = 0,
    do_rotary: int = 0,
    is_causal: int = 1,
    kv_num_heads: int,
    local_window_size: int = -1,
    num_heads: int,
    output_bf16: int = 0,
    qk_norm_epsilon: float = 1e-6,
    rotary_interleaved: int = 0,
    rotary_offset: int = 0,
    scale: float | None = None,
    selected_kv_source: str = "main",
    smooth_softmax: int = 0,
):
    """Causal attention over a cache to selected keys alone, or to those of a window and to others selected from an
    auxiliary cache (batch, heads, length, size). Also the cache with what is new, and 0: that nothing was wrong."""
    check_selection(attention_mode, selected_kv_source)
    q, k, v = separate(query, key, value, num_heads, kv_num_heads)  # (batch, length, heads, size)
    if q_norm_weight is not None and k_norm_weight is not None:
        q = normalized_heads(q, q_norm_weight, qk_norm_epsilon)
        k = normalized_heads(k, k_norm_weight, qk_norm_epsilon)
    batch, length, _, size = q.shape
    total = int(np.asarray(total_sequence_length).reshape(-1)[0])
    before = seqlens_k.reshape(-1).astype(np.int64) + 1 - length
    if before.min(initial=0) < 0:
        raise ValueError(f"seqlens_k {seqlens_k.tolist()} leave no room for {length} new keys")
    positions = before[:, None] + np.arange(length)
    if do_rotary:
        if cos_cache is None or sin_cache is None:
            raise ValueError("do_rotary needs cos_cache and sin_cache")
        angles = positions if position_ids is None else position_ids
        cos, sin = to_float32(cos_cache)[angles], to_float32(sin_cache)[angles]
        q, k = (turned(x, cos, sin, rotary_interleaved, rotary_offset) for x in (q, k))
    row = np.arange(batch)[:, None]
    caches, read = [], []
    for past, new, cache_scale in ((past_key, k, key_scale), (past_value, v, value_scale)):
        store = Store(query.dtype)
        if past is not None:
            per_channel = None if cache_scale is None else cache_scale.reshape(kv_num_heads, size)
            store = Store(past.dtype, per_channel)
        room = 0 if past is None else past.shape[2]
        cache = np.zeros((batch, max(total, room), kv_num_heads, size), store.dtype)
        if past is not None:
            cache[:, :room] = past.swapaxes(1, 2)
        cache[row, positions] = store.write(new)
        caches.append(np.ascontiguousarray(cache.swapaxes(1, 2)))
        read.append(store.read(cache, size))
    sink = head_sink
    if sink is None and smooth_softmax:
        sink = np.zeros(num_heads, np.float32)
    weighing = weigher(scale, 0.0, sink)(size)
    indices, counts = selected_indices.reshape(batch, length, -1), selected_counts.reshape(batch, length)
    others: tuple[np.ndarray | None, np.ndarray | None] = (None, None)
    if selected_kv_source == "auxiliary":
        others = auxiliary(auxiliary_key, auxiliary_value, auxiliary_kv_shared)
    y = np.zeros(q.shape, np.float32)
    for b in range(batch):
        keys, values = read[0][b], read[1][b]
        at = np.arange(len(keys))
        seen = causal_window(positions[b], at, is_causal, local_window_size)
        if others[0] is None or others[1] is None:
            seen = seen & selected_mask(indices[b], counts[b], len(at))
        else:
            more = [x[b].swapaxes(0, 1) for x in others if x is not None]
            chosen = selected_mask(indices[b], counts[b], len(more[0]))
            if attention_mode == "selected_only":
                seen = np.zeros_like(seen)
            seen = np.concatenate([seen, chosen], axis=1)
            keys, values = np.concatenate([keys, more[0]]), np.concatenate([values, more[1]])
        y[b] = weighing.attend(q[b], keys, values, seen)
    dtype = dtype_of(16) if output_bf16 else query.dtype
    status = np.zeros(1, np.int32)
    return narrow(y.reshape(batch, length, -1), dtype), *caches, status
