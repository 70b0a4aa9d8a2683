"""Attention as the rewrites make it of its elementary operators: `ai.onnxlet::FusedAttention`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..graph.unseen import NAN_ZERO, UNSEEN_NAN
from .attention import grouped_matmul
from .common import to_float32
from .precision import narrow
from .registry import op


def heads_first(x: np.ndarray, last: int) -> np.ndarray:
    """(..., rows, heads, size), if `last`, as (..., heads, rows, size)."""
    return x.swapaxes(-2, -3) if last else x


def weights_of(scores: np.ndarray, unseen: int) -> np.ndarray:
    """Softmax over the last axis."""
    top = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    if unseen != UNSEEN_NAN:
        top = np.where(np.isneginf(top), 0, top)
    weights = np.exp(scores - top)
    total = weights.sum(axis=-1, keepdims=True)
    if unseen != UNSEEN_NAN:
        total = np.where(total == 0, 1, total)
    weights = weights / total
    return np.where(np.isnan(weights), 0, weights) if unseen == NAN_ZERO else weights


@op("FusedAttention", domain="ai.onnxlet")
def fused_attention(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    bias: np.ndarray | None = None,
    keep: np.ndarray | None = None,
    *,
    scale: float = 1.0,
    fill: float = float("-inf"),
    heads_last: Sequence[int] = (0, 0, 0, 0),
    causal_offset: int | None = None,
    unseen: int = UNSEEN_NAN,
):
    """softmax(scale * q @ kᵀ + bias, `fill` where not `keep`) @ v, per head.

    q, k, v and the result are (batch, heads, rows, size), or without the batch; each one whose flag in `heads_last` is
    set has its rows before the heads. k and v may have fewer heads than q, each for a run of q's. `bias` and `keep` are
    broadcast with the scores, (batch, heads, queries, keys). With `causal_offset`, query i sees the keys up to
    i + causal_offset. `unseen` is one of the constants above.
    """
    queries, keys, values = (heads_first(to_float32(x), last) for x, last in zip((q, k, v), heads_last, strict=False))
    lead = () if queries.ndim > 3 else (None,)
    scores = grouped_matmul(queries[lead], keys[lead].swapaxes(-1, -2)) * queries.dtype.type(scale)
    if bias is not None:
        scores = scores + to_float32(bias)
    if keep is not None:
        scores = np.where(keep, scores, scores.dtype.type(fill))
    if causal_offset is not None:
        seen = np.arange(scores.shape[-1]) <= np.arange(scores.shape[-2])[:, None] + causal_offset
        scores = np.where(seen, scores, scores.dtype.type(-np.inf))
    y = grouped_matmul(weights_of(scores, unseen), values[lead])
    return narrow(heads_first(y if queries.ndim > 3 else y[0], heads_last[3]), q.dtype)
