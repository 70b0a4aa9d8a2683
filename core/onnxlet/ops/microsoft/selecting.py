"""Which keys a query of sparse attention may read: SparseAttentionIndexer and its relatives.

Of the two policies, "qsa" is defined here and "csa" in compressing.py.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

from ...errors import UnsupportedError
from ..common import scalar, to_float32
from ..precision import narrow
from ..registry import op
from .compressing import Compression, angles_of, compressed_indexer, packed_compressed_indexer
from .grouped import normalized_heads
from .hashing import sequence_edges
from .layers import MICROSOFT
from .streams import best, rounded


def check_policy(policy_mode: str, token_budget: int | None, index_topk: int | None, compress_ratio: int) -> int:
    """How many blocks, or entries of the policy csa, are kept."""
    if policy_mode not in ("qsa", "csa"):
        raise ValueError(f"policy_mode is {policy_mode!r}; qsa and csa are known")
    if compress_ratio < 1:
        raise ValueError(f"compress_ratio is {compress_ratio}, but must be positive")
    if policy_mode == "csa":
        if not index_topk or index_topk < 1:
            raise ValueError(f"index_topk is {index_topk}; the policy csa needs a positive one")
        return index_topk
    if not token_budget or token_budget < 1 or token_budget % compress_ratio:
        raise ValueError(f"token_budget {token_budget} must be a positive multiple of compress_ratio {compress_ratio}")
    return token_budget // compress_ratio


def all_given(**tensors: np.ndarray | None) -> list[np.ndarray]:
    """The inputs that only the policy csa has, all of which it needs."""
    missing = [name for name, tensor in tensors.items() if tensor is None]
    if missing:
        raise ValueError(f"the policy csa needs {', '.join(missing)}")
    return [tensor for tensor in tensors.values() if tensor is not None]


def turned(x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    """(..., size) with its first elements rotated by halves; the angles (..., width) are there for both halves."""
    width = cos.shape[-1]
    part = x[..., :width]
    swapped = np.concatenate([-part[..., width // 2 :], part[..., : width // 2]], axis=-1)
    return np.concatenate([part * cos + swapped * sin, x[..., width:]], axis=-1)


def block_keys(
    blocks: np.ndarray, first: np.ndarray, weight: np.ndarray, angles: tuple[np.ndarray, np.ndarray], epsilon: float
) -> np.ndarray:
    """One key for each block (blocks, tokens, size): the mean, normalised and turned at its first token's position."""
    return turned(normalized_heads(blocks.mean(axis=1), weight, epsilon), angles[0][first], angles[1][first])


def block_scores(q: np.ndarray, keys: np.ndarray, scale: float) -> np.ndarray:
    """(queries, blocks): how well queries (queries, heads, size) and keys agree, over all heads where they do."""
    return np.maximum(np.matmul(q, keys.T), 0).sum(axis=1) * np.float32(scale)


def listed(
    scores: np.ndarray, blocks: np.ndarray, rest: np.ndarray, count: int, capacity: int
) -> tuple[np.ndarray, int]:
    """The tokens of the best `count` blocks (blocks, tokens), the best first, and the rest; and how many they are."""
    chosen = np.concatenate([blocks[best(scores, count)].reshape(-1), rest])
    row = np.full(capacity, -1, np.int32)
    row[: len(chosen)] = chosen
    return row, len(chosen)


@op("SparseAttentionIndexer", domain=MICROSOFT)
def sparse_attention_indexer(
    query: np.ndarray,
    key: np.ndarray | None,
    query_norm_weight: np.ndarray,
    key_norm_weight: np.ndarray,
    cos_cache: np.ndarray,
    sin_cache: np.ndarray,
    mask: np.ndarray | None,
    past_key: np.ndarray,
    gate: np.ndarray | None = None,
    position_bias: np.ndarray | None = None,
    head_weights: np.ndarray | None = None,
    position_ids: np.ndarray | None = None,
    past_sequence_length: np.ndarray | None = None,
    past_proj_buffer: np.ndarray | None = None,
    *,
    compress_ratio: int,
    epsilon: float = 1e-6,
    head_weight_scale: float | None = None,
    index_topk: int | None = None,
    policy_mode: str,
    scale: float | None = None,
    token_budget: int | None = None,
):
    """For each query the tokens (batch, length, capacity) of the blocks of visible tokens that agree best with it, and
    those of the last block, which is not full; and the keys with the new ones. By the policy csa the entries that agree
    best with it; the entries with the new ones; and the tokens that the next ones need."""
    count = check_policy(policy_mode, token_budget, index_topk, compress_ratio)
    if policy_mode == "csa":
        key, gate, bias, head_weights, position_ids, buffer = all_given(
            key=key, gate=gate, position_bias=position_bias, head_weights=head_weights, position_ids=position_ids,
            past_proj_buffer=past_proj_buffer,
        )  # fmt: skip
        how = Compression(
            compress_ratio, count, epsilon, scale, head_weight_scale, query_norm_weight, key_norm_weight, cos_cache,
            sin_cache, bias,
        )  # fmt: skip
        return compressed_indexer(
            how, query, key, gate, past_key, past_sequence_length, buffer, head_weights, position_ids
        )
    batch, length, width = query.shape
    size = past_key.shape[2]
    if key is None:
        query, key = query[..., : width - size], query[..., width - size :]
    past = past_key.shape[1]
    if past_sequence_length is not None:
        past = int(scalar(past_sequence_length, "past_sequence_length"))
        if not 0 <= past <= past_key.shape[1] - length:
            raise ValueError(f"a cache of {past_key.shape[1]} keys has no room for {length} after {past}")
        present = past_key.copy()
        present[:, past : past + length] = key
    else:
        present = np.concatenate([past_key, key], axis=1)
    total = past + length
    q = normalized_heads(
        to_float32(query).reshape(batch, length, query.shape[2] // size, size), query_norm_weight, epsilon
    )
    keys = to_float32(present)[:, :total]
    capacity = count * compress_ratio + compress_ratio - 1
    selected = np.full((batch, length, capacity), -1, np.int32)
    for b in range(batch):
        angles = angles_of(cos_cache, b), angles_of(sin_cache, b)
        at = past + np.arange(length)
        turned_q = turned(q[b], angles[0][at][:, None], angles[1][at][:, None])
        visible = np.arange(total) if mask is None else np.flatnonzero(mask[b, :total])
        whole = len(visible) // compress_ratio * compress_ratio
        blocks = visible[:whole].reshape(-1, compress_ratio)
        pooled = block_keys(keys[b][blocks], blocks[:, 0], key_norm_weight, angles, epsilon)
        scores = block_scores(turned_q, rounded(pooled, query.dtype), scale or 1 / math.sqrt(size))
        for i in range(length):
            seen = int(np.searchsorted(visible, at[i], side="right"))
            full = seen // compress_ratio
            rest = visible[full * compress_ratio : seen]
            selected[b, i], _ = listed(scores[i, :full], blocks[:full], rest, count, capacity)
    return selected, present, None


def packed_blocks(
    query: np.ndarray,
    key: np.ndarray | None,
    weights: tuple[np.ndarray, np.ndarray],
    caches: tuple[np.ndarray, np.ndarray],
    cumulative_sequence_lengths: np.ndarray,
    past_sequence_lengths: np.ndarray,
    past_key_state: np.ndarray,
    past_kv_buffer: np.ndarray,
    past_state_lengths: np.ndarray,
    capture_count: np.ndarray | None,
    capture_capacity: int,
    compress_ratio: int,
    count: int,
    epsilon: float,
    scale: float | None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """PackedSparseAttentionIndexer by the policy qsa: selected tokens, how many, the states, the captured ones, and of
    each sequence what is wrong."""
    size, tokens = past_key_state.shape[2], len(query)
    if key is None:
        query, key = query[:, :-size], query[:, -size:]
    edges = sequence_edges(cumulative_sequence_lengths, tokens)
    q = normalized_heads(to_float32(query).reshape(tokens, query.shape[1] // size, size), weights[0], epsilon)
    capacity = count * compress_ratio + compress_ratio - 1
    selected, counts = np.full((tokens, capacity), -1, np.int32), np.zeros(tokens, np.int32)
    state, buffer, room = past_key_state.copy(), past_kv_buffer.copy(), past_key_state.shape[1]
    lengths = np.clip(past_state_lengths, 0, [room, compress_ratio - 1]).astype(past_state_lengths.dtype)
    captured = np.zeros((len(edges) - 1, capture_capacity, size), query.dtype)
    status = np.zeros(len(edges) - 1, np.int32)
    for s, (begin, end) in enumerate(itertools.pairwise(edges)):
        done, pending = lengths[s].tolist()
        past = int(past_sequence_lengths[s])
        if [done, pending] != past_state_lengths[s].tolist() or past != done * compress_ratio + pending:
            status[s] = 1
            continue
        line = np.concatenate([past_kv_buffer[s, :pending], key[begin:end]])
        new = len(line) // compress_ratio
        if done + new > room:
            status[s] = 2
            continue
        angles = angles_of(caches[0], s), angles_of(caches[1], s)
        blocks = to_float32(line[: new * compress_ratio]).reshape(new, compress_ratio, size)
        first = (done + np.arange(new)) * compress_ratio
        state[s, done : done + new] = narrow(block_keys(blocks, first, weights[1], angles, epsilon), state.dtype)
        left = line[new * compress_ratio :]
        buffer[s, : len(left)] = left
        lengths[s] = done + new, len(left)
        at = past + np.arange(end - begin)
        turned_q = turned(q[begin:end], angles[0][at][:, None], angles[1][at][:, None])
        scores = block_scores(turned_q, to_float32(state[s, : done + new]), scale or 1 / math.sqrt(size))
        table = np.arange((done + new) * compress_ratio).reshape(-1, compress_ratio)
        for i, position in enumerate(at):
            full = int(position + 1) // compress_ratio
            rest = np.arange(full * compress_ratio, position + 1)
            row = listed(scores[i, :full], table[:full], rest, count, capacity)
            selected[begin + i], counts[begin + i] = row
        if capture_count is not None:
            kept = min(max(int(capture_count[s]), 0), end - begin, capture_capacity)
            closes = (at[:kept] + 1) % compress_ratio == 0
            full = at[:kept] // compress_ratio
            captured[s, :kept] = np.where(
                closes[:, None], narrow(state[s, full], query.dtype), key[begin : begin + kept]
            )
    return selected, counts, state, buffer, lengths, captured, status


def reused(
    indices: np.ndarray | None, counts: np.ndarray | None, status: np.ndarray | None, tokens: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A selection that was made before, which must be one of each token."""
    if indices is None or counts is None or status is None:
        raise ValueError("a selection to reuse needs merged_indices, merged_counts and merged_status")
    if len(indices) != tokens:
        raise UnsupportedError(f"to reuse {len(indices)} selections for {tokens} tokens is not defined")
    return indices, counts, status


@op("PackedSparseAttentionIndexer", domain=MICROSOFT)
def packed_sparse_attention_indexer(
    query: np.ndarray,
    key: np.ndarray | None,
    query_norm_weight: np.ndarray,
    key_norm_weight: np.ndarray,
    cos_cache: np.ndarray,
    sin_cache: np.ndarray,
    cumulative_sequence_lengths: np.ndarray,
    past_sequence_lengths: np.ndarray,
    gate: np.ndarray | None,
    position_bias: np.ndarray | None,
    head_weights: np.ndarray | None,
    position_ids: np.ndarray | None,
    past_key_state: np.ndarray,
    past_kv_buffer: np.ndarray,
    past_gate_buffer: np.ndarray | None,
    past_state_lengths: np.ndarray,
    state_update_capture_count: np.ndarray | None = None,
    state_update_active: np.ndarray | None = None,
    indexshare_mode: np.ndarray | None = None,
    merged_indices: np.ndarray | None = None,
    merged_counts: np.ndarray | None = None,
    merged_status: np.ndarray | None = None,
    *,
    compress_ratio: int,
    epsilon: float = 1e-6,
    head_weight_scale: float | None = None,
    index_topk: int | None = None,
    indexshare_state_policy: str = "default",
    max_output_entries: int = 0,
    policy_mode: str,
    scale: float | None = None,
    state_capacity: int,
    state_update_capacity: int = 0,
    token_budget: int | None = None,
):
    """SparseAttentionIndexer of sequences that follow each other, with the keys of full blocks and the tokens of
    the last one as states of fixed sizes."""
    if past_key_state.shape[1] != state_capacity:
        raise ValueError(f"past_key_state has room for {past_key_state.shape[1]} keys, not for {state_capacity}")
    count = check_policy(policy_mode, token_budget, index_topk, compress_ratio)
    gates = past_gate_buffer
    if policy_mode == "csa":
        key, gate, bias, head_weights, position_ids, gates = all_given(
            key=key, gate=gate, position_bias=position_bias, head_weights=head_weights, position_ids=position_ids,
            past_gate_buffer=past_gate_buffer,
        )  # fmt: skip
        how = Compression(
            compress_ratio, count, epsilon, scale, head_weight_scale, query_norm_weight, key_norm_weight, cos_cache,
            sin_cache, bias,
        )  # fmt: skip
        selected, counts, state, buffer, gates, lengths, status = packed_compressed_indexer(
            how, query, key, gate, cumulative_sequence_lengths, past_sequence_lengths, past_key_state, past_kv_buffer,
            gates, past_state_lengths, head_weights, position_ids,
        )  # fmt: skip
        captured = np.zeros((len(status), state_update_capacity, past_key_state.shape[2]), query.dtype)
    else:
        active = state_update_active is None or bool(scalar(state_update_active, "state_update_active"))
        selected, counts, state, buffer, lengths, captured, status = packed_blocks(
            query, key, (query_norm_weight, key_norm_weight), (cos_cache, sin_cache), cumulative_sequence_lengths,
            past_sequence_lengths, past_key_state, past_kv_buffer, past_state_lengths,
            state_update_capture_count if active else None, state_update_capacity, compress_ratio, count, epsilon,
            scale,
        )  # fmt: skip
    forwarded = np.zeros(len(query), np.int32)
    if indexshare_mode is not None:
        short = max_output_entries - selected.shape[1]
        if short < 0:
            raise ValueError(f"max_output_entries {max_output_entries} has no room for {selected.shape[1]} entries")
        selected = np.pad(selected, ((0, 0), (0, short)), constant_values=-1)
        if int(scalar(indexshare_mode, "indexshare_mode")):
            selected, counts, forwarded = reused(merged_indices, merged_counts, merged_status, len(query))
            if indexshare_state_policy == "hold" or (indexshare_state_policy == "default" and policy_mode == "qsa"):
                state, buffer, gates, lengths = past_key_state, past_kv_buffer, past_gate_buffer, past_state_lengths
                status = np.zeros_like(status)
    return selected, counts, state, buffer, gates, lengths, captured, forwarded, status


@op("PackedSparseAttentionIndexerMerge", domain=MICROSOFT)
def packed_sparse_attention_indexer_merge(
    base_indices: np.ndarray,
    base_counts: np.ndarray,
    base_row_indices: np.ndarray,
    range_starts: np.ndarray | None = None,
    range_ends: np.ndarray | None = None,
    additional_indices: np.ndarray | None = None,
    additional_counts: np.ndarray | None = None,
    *,
    max_output_entries: int,
    policy_mode: str,
):
    """Selections joined with ranges or with other selections: each index once, where it comes first. Also how many they
    are, and 0, or 1 where an input is wrong, or 2 where there is no room."""
    if policy_mode not in ("append_range", "append_indices"):
        raise ValueError(f"policy_mode is {policy_mode!r}; append_range and append_indices are known")
    count = len(base_row_indices)
    selected = np.full((count, max_output_entries), -1, np.int32)
    counts, status = np.zeros(count, np.int32), np.zeros(count, np.int32)
    for n, row in enumerate(base_row_indices.tolist()):
        if not 0 <= row < len(base_indices) or not 0 <= base_counts[row] <= base_indices.shape[1]:
            status[n] = 1
            continue
        base = base_indices[row, : base_counts[row]]
        if policy_mode == "append_range":
            if range_starts is None or range_ends is None:
                raise ValueError("append_range needs range_starts and range_ends")
            valid = 0 <= range_starts[n] <= range_ends[n]
            more = np.arange(range_starts[n], range_ends[n]) if valid else base[:0]
        else:
            if additional_indices is None or additional_counts is None:
                raise ValueError("append_indices needs additional_indices and additional_counts")
            valid = 0 <= additional_counts[n] <= additional_indices.shape[1]
            more = additional_indices[n, : max(additional_counts[n], 0)]
        joined = np.concatenate([base, more])
        if not valid or joined.min(initial=0) < 0:
            status[n] = 1
            continue
        _, places = np.unique(joined, return_index=True)
        if len(places) > max_output_entries:
            status[n] = 2
            continue
        selected[n, : len(places)] = joined[np.sort(places)]
        counts[n] = len(places)
    return selected, counts, status
