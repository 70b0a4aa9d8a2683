"""The policy "csa" of SparseAttentionIndexer and its relatives: keys that stand for several tokens each.

A window of `ratio` tokens closes into one entry, in which the tokens of the window before it have a part too. Each
token's projections (2 * size) hold what it gives to the next window's entry, and then what it gives to its own.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np

from ..common import scalar, to_float32
from ..precision import narrow
from .grouped import normalized_heads
from .hashing import sequence_edges
from .streams import best


@dataclass(frozen=True)
class Compression:
    """What is the same for all sequences."""

    ratio: int
    count: int
    epsilon: float
    scale: float | None
    head_weight_scale: float | None
    query_weight: np.ndarray
    key_weight: np.ndarray
    cos_cache: np.ndarray
    sin_cache: np.ndarray
    position_bias: np.ndarray

    def angles(self, sequence: int, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Cosines and sines (positions, pairs); positions outside the tables have those at their ends."""
        tables = angles_of(self.cos_cache, sequence), angles_of(self.sin_cache, sequence)
        at = np.clip(positions, 0, len(tables[0]) - 1)
        return tables[0][at], tables[1][at]


def angles_of(cache: np.ndarray, sequence: int) -> np.ndarray:
    """A table (positions, width), which each sequence may have for itself."""
    return to_float32(cache[sequence] if cache.ndim == 3 else cache)


def turned_pairs(x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    """(..., size) with the pairs of its last elements rotated by angles (..., pairs)."""
    start = x.shape[-1] - 2 * cos.shape[-1]
    first, second = x[..., start::2], x[..., start + 1 :: 2]
    pairs = np.stack([first * cos - second * sin, second * cos + first * sin], axis=-1)
    return np.concatenate([x[..., :start], pairs.reshape(*x.shape[:-1], 2 * cos.shape[-1])], axis=-1)


def pooled_windows(keys: np.ndarray, logits: np.ndarray, continued: bool) -> np.ndarray:
    """(windows, size) of keys and logits (windows, ratio, 2 * size): their mean weighted by softmax, for every channel
    over a window and the one before it. If `continued` then the first window is only there for the second.

    Where no sum of weights is positive and finite the mean is 0.
    """
    size = keys.shape[2] // 2
    values = np.concatenate([before(keys, 0), keys[..., size:]], axis=1)[int(continued) :]
    weights = np.concatenate([before(logits, -np.inf), logits[..., size:]], axis=1)[int(continued) :]
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        weights = np.exp(weights - weights.max(axis=1, keepdims=True, initial=np.finfo(np.float32).min))
        total = weights.sum(axis=1)
        mean = (weights * values).sum(axis=1) / total
    return np.where((total > 0) & np.isfinite(total), mean, np.float32(0))


def before(x: np.ndarray, filler: float) -> np.ndarray:
    """What each window (windows, ratio, 2 * size) gets from the one before it; the first has none."""
    size = x.shape[2] // 2
    return np.concatenate([np.full_like(x[:1, :, :size], filler), x[:-1, :, :size]])


def closed_windows(buffered: int, tokens: int, ratio: int) -> int:
    """How many windows new tokens close, after a buffer of so many tokens."""
    return (buffered % ratio + tokens) // ratio


def kept_tokens(buffered: int, tokens: int, ratio: int) -> int:
    """How many tokens the buffer has then: the last closed window, and those of the open one."""
    kept = (buffered + tokens) % ratio
    return kept + ratio if buffered >= ratio or closed_windows(buffered, tokens, ratio) else kept


def entries_of(how: Compression, sequence: int, lines: np.ndarray, buffered: int, done: int) -> np.ndarray:
    """The new entries (windows, size) of one sequence, of which `done` are there: of its buffered tokens and the new
    ones, keys and gates (2, tokens, 2 * size); normalised and turned at the position of the window's first token."""
    continued = buffered >= how.ratio
    count = closed_windows(buffered, lines.shape[1] - buffered, how.ratio)
    if count == 0:
        return np.zeros((0, lines.shape[2] // 2), np.float32)
    keys, gates = to_float32(lines[:, : (count + continued) * how.ratio]).reshape(2, -1, how.ratio, lines.shape[2])
    pooled = pooled_windows(keys, gates + to_float32(how.position_bias), continued)
    first = (done + np.arange(count)) * how.ratio
    return turned_pairs(normalized_heads(pooled, how.key_weight, how.epsilon), *how.angles(sequence, first))


def chosen_entries(
    how: Compression,
    sequence: int,
    query: np.ndarray,
    entries: np.ndarray,
    head_weights: np.ndarray,
    positions: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """For each query (queries, heads * size) the entries that agree best with it, the best first, among those whose
    windows close at its position or before it: (queries, count) filled up with -1, and how many they are."""
    size = entries.shape[1]
    q = normalized_heads(
        to_float32(query).reshape(len(query), query.shape[1] // size, size), how.query_weight, how.epsilon
    )
    cos, sin = how.angles(sequence, positions)
    q = turned_pairs(q, cos[:, None], sin[:, None])
    agreement = np.maximum(np.matmul(q, to_float32(entries).T), 0) * to_float32(head_weights)[..., None]
    factor = (how.scale or 1 / math.sqrt(size)) * (how.head_weight_scale or 1 / math.sqrt(q.shape[1]))
    scores = agreement.sum(axis=1) * np.float32(factor)
    seen = np.clip((positions + 1) // how.ratio, 0, len(entries))
    scores[np.arange(len(entries)) >= seen[:, None]] = -np.inf
    chosen = best(scores, how.count)
    counts = np.minimum(seen, how.count)
    selected = np.full((len(q), how.count), -1, np.int32)
    selected[:, : chosen.shape[1]] = np.where(np.arange(chosen.shape[1]) < counts[:, None], chosen, -1)
    return selected, counts


def compressed_indexer(
    how: Compression,
    query: np.ndarray,
    key: np.ndarray,
    gate: np.ndarray,
    past_key: np.ndarray,
    past_sequence_length: np.ndarray | None,
    past_proj_buffer: np.ndarray,
    head_weights: np.ndarray,
    position_ids: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """SparseAttentionIndexer: selected entries, the entries with the new ones and the tokens that are buffered."""
    batch, length = query.shape[:2]
    size, buffered = past_key.shape[2], past_proj_buffer.shape[2]
    if buffered >= 2 * how.ratio:
        raise ValueError(f"a buffer of {buffered} tokens is too long for windows of {how.ratio}")
    lines = np.concatenate([past_proj_buffer, np.stack([key, gate])], axis=2)
    done, new = past_key.shape[1], closed_windows(buffered, length, how.ratio)
    if past_sequence_length is None:
        present = np.concatenate([past_key, np.zeros((batch, new, size), past_key.dtype)], axis=1)
    else:
        done = int(scalar(past_sequence_length, "past_sequence_length"))
        if not 0 <= done <= past_key.shape[1] - new:
            raise ValueError(f"a cache of {past_key.shape[1]} entries has no room for {new} after {done}")
        present = past_key.copy()
    selected = np.full((batch, length, how.count), -1, np.int32)
    for b in range(batch):
        present[b, done : done + new] = narrow(entries_of(how, b, lines[:, b], buffered, done), present.dtype)
        entries = present[b, : done + new]
        selected[b], _ = chosen_entries(how, b, query[b], entries, head_weights[b], position_ids[b])
    return selected, present, lines[:, :, lines.shape[2] - kept_tokens(buffered, length, how.ratio) :].copy()


def packed_compressed_indexer(
    how: Compression,
    query: np.ndarray,
    key: np.ndarray,
    gate: np.ndarray,
    cumulative_sequence_lengths: np.ndarray,
    past_sequence_lengths: np.ndarray,
    past_key_state: np.ndarray,
    past_kv_buffer: np.ndarray,
    past_gate_buffer: np.ndarray,
    past_state_lengths: np.ndarray,
    head_weights: np.ndarray,
    position_ids: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """PackedSparseAttentionIndexer: selected entries, how many, the states, and of each sequence what is wrong."""
    edges = sequence_edges(cumulative_sequence_lengths, len(query))
    selected, counts = np.full((len(query), how.count), -1, np.int32), np.zeros(len(query), np.int32)
    state, buffers = past_key_state.copy(), np.stack([past_kv_buffer, past_gate_buffer])
    capacity, room = state.shape[1], 2 * how.ratio - 1
    lengths = np.clip(past_state_lengths, 0, [capacity, room]).astype(past_state_lengths.dtype)
    status = np.zeros(len(edges) - 1, np.int32)
    for s, (begin, end) in enumerate(itertools.pairwise(edges)):
        done, buffered = lengths[s].tolist()
        if past_sequence_lengths[s] < 0 or [done, buffered] != past_state_lengths[s].tolist():
            status[s] = 1
            continue
        new = closed_windows(buffered, end - begin, how.ratio)
        if done + new > capacity:
            status[s] = 2
            continue
        lines = np.concatenate([buffers[:, s, :buffered], np.stack([key[begin:end], gate[begin:end]])], axis=1)
        state[s, done : done + new] = narrow(entries_of(how, s, lines, buffered, done), state.dtype)
        kept = kept_tokens(buffered, end - begin, how.ratio)
        buffers[:, s, :kept] = lines[:, lines.shape[1] - kept :]
        lengths[s] = done + new, kept
        rows = slice(begin, end)
        selected[rows], counts[rows] = chosen_entries(
            how, s, query[rows], state[s, : done + new], head_weights[rows], position_ids[rows]
        )
    return selected, counts, state, buffers[0], buffers[1], lengths, status
