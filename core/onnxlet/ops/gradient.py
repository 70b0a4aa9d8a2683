"""Operators of onnxlet's own, which the nodes that stand for Gradient use (`graph/gradient.py`)."""

from __future__ import annotations

import numpy as np

from .common import check_axes, in_float32, ints
from .registry import op


@op("FullLike", domain="onnxlet")
@in_float32
def full_like(x: np.ndarray, *, value: float):
    return np.full_like(x, value)


@op("SumTo", domain="onnxlet")
@in_float32
def sum_to(x: np.ndarray, like: np.ndarray):
    """`x` summed over the axes along which a tensor of `like`'s shape was broadcast to `x`'s."""
    before = x.ndim - like.ndim
    axes = [a for a in range(x.ndim) if a < before or (like.shape[a - before] == 1 and x.shape[a] != 1)]
    return np.sum(x, tuple(axes), dtype=x.dtype).reshape(like.shape)


@op("Unreduce", domain="onnxlet")
@in_float32
def unreduce(
    reduced: np.ndarray,
    x: np.ndarray,
    along: np.ndarray | None = None,
    *,
    axes: list[int] | None = None,
    keepdims: int = 1,
    noop_with_empty_axes: int = 0,
    mean: int = 0,
):
    """What a sum over axes of `x` gave, repeated along them (divided by how often, for a mean)."""
    named = ints(along) if along is not None else axes or []
    chosen = check_axes(named, x.ndim) if named or noop_with_empty_axes else tuple(range(x.ndim))
    kept = reduced.reshape([1 if a in chosen else d for a, d in enumerate(x.shape)])
    spread = np.broadcast_to(kept, x.shape)
    return spread / reduced.dtype.type(max(x.size // max(reduced.size, 1), 1)) if mean else spread
