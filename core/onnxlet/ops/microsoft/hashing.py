"""Hashes of n-grams of tokens, which say where an n-gram's embedding lies (Engram)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..registry import op
from .layers import MICROSOFT


def n_gram_hashes(
    windows: np.ndarray, multipliers: np.ndarray, vocab_sizes: np.ndarray, offsets: np.ndarray | None, heads: int
) -> np.ndarray:
    """(tokens, (orders - 1) * heads) of windows (tokens, orders), each token first and then those before it.

    Of n tokens the products with the multipliers are combined by exclusive or, for n = 2 to the number of orders.
    """
    orders = windows.shape[1]
    count = (orders - 1) * heads
    if len(multipliers) < orders or len(vocab_sizes) != count:
        raise ValueError(
            f"n-grams of up to {orders} tokens and {heads} heads need {orders} multipliers and {count} vocabulary "
            f"sizes, not {len(multipliers)} and {len(vocab_sizes)}"
        )
    if vocab_sizes.min(initial=1) < 1:
        raise ValueError(f"vocabulary sizes must be positive, but are {vocab_sizes.tolist()}")
    mixed = np.bitwise_xor.accumulate(windows * multipliers[:orders], axis=1)[:, 1:]
    hashes = np.repeat(mixed, heads, axis=1) % vocab_sizes
    return hashes if offsets is None else hashes + offsets


def last_marks(marks: np.ndarray) -> np.ndarray:
    """For each place of the last axis the index of the last mark there or before, or -1."""
    return np.maximum.accumulate(np.where(marks, np.arange(marks.shape[-1]), -1), axis=-1)


def history_windows(
    line: np.ndarray, past: int, orders: int, filler: Any, end: Any, segments: np.ndarray | None
) -> np.ndarray:
    """(tokens, orders) of a sequence of which `past` tokens came before: each token and those before it.

    What lies at or before the last `end`, or before the last change of segment, is replaced by `filler`.
    """
    count = len(line) - past
    at = past + np.arange(count)[:, None] - np.arange(orders)
    windows = line[np.maximum(at, 0)]
    seen = at >= 0
    if end is not None:
        ends = np.concatenate([[-1], last_marks(line == end)])[past:-1]  # the last one before each token
        seen &= (at > ends[:, None]) | (np.arange(orders) == 0)
    if segments is not None:
        changes = np.concatenate([[False], segments[1:] != segments[:-1]])
        seen &= at >= last_marks(changes)[past:, None]
    return np.where(seen, windows, filler)


@op("NGramHashMapping", domain=MICROSOFT)
def n_gram_hash_mapping(
    input_ids: np.ndarray,
    multipliers: np.ndarray,
    vocab_sizes: np.ndarray,
    past_ids: np.ndarray | None = None,
    head_offsets: np.ndarray | None = None,
    eos_token_id: np.ndarray | None = None,
    segment_ids: np.ndarray | None = None,
    *,
    max_ngram_size: int,
    n_head_per_ngram: int,
    pad_id: int,
    reset_on_eos: int = 0,
):
    """Hashes (batch, length, (n - 1) * heads), and the last ids, which the next call takes as `past_ids`."""
    batch, length = input_ids.shape
    starts = np.arange(batch + 1) * length
    segments = None if segment_ids is None else segment_ids.reshape(-1)
    hashes, present, _, _ = varlen_n_gram_hash_mapping(
        input_ids.reshape(-1), multipliers, vocab_sizes, starts, past_ids, head_offsets, eos_token_id, segments,
        max_ngram_size=max_ngram_size, n_head_per_ngram=n_head_per_ngram, pad_id=pad_id, reset_on_eos=reset_on_eos,
    )  # fmt: skip
    return hashes.reshape(batch, length, -1), present


@op("VarlenNGramHashMapping", domain=MICROSOFT)
def varlen_n_gram_hash_mapping(
    input_ids: np.ndarray,
    multipliers: np.ndarray,
    vocab_sizes: np.ndarray,
    cumulative_sequence_length: np.ndarray,
    past_ids: np.ndarray | None = None,
    head_offsets: np.ndarray | None = None,
    eos_token_id: np.ndarray | None = None,
    segment_ids: np.ndarray | None = None,
    past_segment_ids: np.ndarray | None = None,
    capture_count: np.ndarray | None = None,
    *,
    max_ngram_size: int,
    n_head_per_ngram: int,
    pad_id: int,
    reset_on_eos: int = 0,
    state_update_capacity: int = 0,
):
    """NGramHashMapping of sequences whose tokens follow each other; also the segments of the last ids, and the last ids
    as they were after each of the first tokens."""
    if max_ngram_size < 2:
        raise ValueError(f"max_ngram_size is {max_ngram_size}, must be 2 or more")
    edges = sequence_edges(cumulative_sequence_length, len(input_ids))
    before, dtype = max_ngram_size - 1, input_ids.dtype
    end = None if eos_token_id is None else eos_token_id.reshape(())[()]
    filler = dtype.type(pad_id) if end is None else end
    batch = len(edges) - 1
    present = np.empty((batch, before), dtype)
    present_segments = np.zeros((batch, before), np.int32)
    captured = np.full((batch, state_update_capacity, before), pad_id, dtype)
    windows = [np.empty((0, max_ngram_size), dtype)]
    for b, (begin, stop) in enumerate(itertools.pairwise(edges)):
        history = np.full(before, filler) if past_ids is None else past_ids[b]
        line = np.concatenate([history, input_ids[begin:stop]])
        segments = None
        if segment_ids is not None:
            own = segment_ids[begin:stop]
            earlier = own[:1].repeat(before) if past_segment_ids is None else past_segment_ids[b]
            segments = np.concatenate([earlier, own])
            present_segments[b] = segments[len(segments) - before :]
        reset = end if reset_on_eos else None
        windows.append(history_windows(line, before, max_ngram_size, filler, reset, segments))
        present[b] = line[len(line) - before :]
        if capture_count is not None:
            count = min(max(int(capture_count[b]), 0), state_update_capacity, stop - begin)
            states = np.lib.stride_tricks.sliding_window_view(line[1:], before)
            captured[b, :count] = states[:count]
    hashes = n_gram_hashes(np.concatenate(windows), multipliers, vocab_sizes, head_offsets, n_head_per_ngram)
    return hashes, present, present_segments, captured


def sequence_edges(cumulative_lengths: np.ndarray, tokens: int) -> Sequence[int]:
    """Where sequences begin and the last one ends. Raises ValueError where they do not cover `tokens`."""
    edges = cumulative_lengths.reshape(-1).tolist()
    if not edges or edges[0] != 0 or edges[-1] != tokens or sorted(edges) != edges:
        raise ValueError(f"sequences that begin and end at {edges} are not those of {tokens} tokens")
    return edges
