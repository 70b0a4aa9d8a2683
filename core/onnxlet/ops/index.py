"""Picking elements out of tensors, and putting elements into them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .common import check_axis, in_float32, is_narrow, scalar, to_float32
from .registry import op


def in_range(indices: np.ndarray, size: int, what: str) -> np.ndarray:
    """Indices counted from the front. Raises ValueError where one is outside [-size, size - 1]."""
    wrong = (indices < -size) | (indices >= size)
    if wrong.any():
        raise ValueError(f"index {int(indices[wrong].flat[0])} is out of range for {what} of size {size}")
    return np.where(indices < 0, indices + size, indices)


@op("Gather")
def gather(data: np.ndarray, indices: np.ndarray, *, axis: int = 0):
    axis = check_axis(axis, data.ndim)
    return np.asarray(np.take(data, in_range(indices, data.shape[axis], f"axis {axis}"), axis), data.dtype)


def _element_positions(shape: Sequence[int], indices: np.ndarray, axis: int):
    """For each entry of `indices` the position in a tensor of `shape`: its own, but for `axis`."""
    if indices.ndim != len(shape):
        raise ValueError(f"indices of shape {list(indices.shape)} for data of shape {list(shape)}: ranks must agree")
    at = list(np.ogrid[tuple(slice(d) for d in indices.shape)])
    at[axis] = in_range(indices, shape[axis], f"axis {axis}")
    if any(d > n for i, (d, n) in enumerate(zip(indices.shape, shape, strict=True)) if i != axis):
        raise ValueError(f"indices of shape {list(indices.shape)} reach outside data of shape {list(shape)}")
    return tuple(at)


@op("GatherElements", since=11)
def gather_elements(data: np.ndarray, indices: np.ndarray, *, axis: int = 0):
    return data[_element_positions(data.shape, indices, check_axis(axis, data.ndim))]


def _tuple_positions(shape: Sequence[int], indices: np.ndarray, batch_dims: int):
    """The index arrays that pick the slices of a tensor of `shape` which the tuples in the last dimension name."""
    if not indices.ndim or not 1 <= indices.shape[-1] <= len(shape) - batch_dims:
        raise ValueError(f"indices of shape {list(indices.shape)} can't name slices of data of shape {list(shape)}")
    batch = indices.shape[:batch_dims]
    if batch != shape[:batch_dims]:
        raise ValueError(f"the first {batch_dims} dimensions of {list(shape)} and {list(indices.shape)} must be equal")
    at = [a.reshape(a.shape + (1,) * (indices.ndim - 1 - batch_dims)) for a in np.ogrid[tuple(map(slice, batch))]]
    for i in range(indices.shape[-1]):
        at.append(in_range(indices[..., i], shape[batch_dims + i], f"axis {batch_dims + i}"))
    return tuple(at)


@op("GatherND", since=11)
def gather_nd(data: np.ndarray, indices: np.ndarray, *, batch_dims: int = 0):
    return np.asarray(data[_tuple_positions(data.shape, indices, batch_dims)], data.dtype)


_COMBINE = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def _scatter(data: np.ndarray, at: Any, updates: np.ndarray, reduction: str):
    if reduction == "none":
        out = data.copy()
        out[at] = updates
        return out
    if reduction not in _COMBINE:
        raise ValueError(f"reduction is none, {', '.join(_COMBINE)}, not {reduction!r}")
    return _combine(data, updates, at=at, combine=_COMBINE[reduction])


@in_float32
def _combine(data: np.ndarray, updates: np.ndarray, *, at: Any, combine: Any):
    out = data.copy()
    combine.at(out, at, updates)
    return out


@op("Scatter", since=9)
@op("ScatterElements", since=11)
def scatter_elements(
    data: np.ndarray, indices: np.ndarray, updates: np.ndarray, *, axis: int = 0, reduction: str = "none"
):
    """Where indices repeat without a reduction the last update stays."""
    if indices.shape != updates.shape:
        raise ValueError(f"indices and updates have shapes {list(indices.shape)} and {list(updates.shape)}")
    return _scatter(data, _element_positions(data.shape, indices, check_axis(axis, data.ndim)), updates, reduction)


@op("ScatterND", since=11)
def scatter_nd(data: np.ndarray, indices: np.ndarray, updates: np.ndarray, *, reduction: str = "none"):
    """Where indices repeat without a reduction the last update stays."""
    at = _tuple_positions(data.shape, indices, 0)
    expected = indices.shape[:-1] + data.shape[indices.shape[-1] :]
    if updates.shape != expected:
        raise ValueError(f"updates must have shape {list(expected)}, but have {list(updates.shape)}")
    return _scatter(data, at, updates, reduction)


@op("TensorScatter", since=24)
def tensor_scatter(
    past_cache: np.ndarray,
    update: np.ndarray,
    write_indices: np.ndarray | None = None,
    *,
    axis: int = -2,
    mode: str = "linear",
):
    """Writes `update` along `axis`, for each sample from its write index on, which wraps around if `circular`."""
    axis = check_axis(axis, past_cache.ndim)
    if axis == 0:
        raise ValueError("the sequence axis can't be the batch axis 0")
    batch, length, space = update.shape[0], update.shape[axis], past_cache.shape[axis]
    first = np.zeros(batch, np.int64) if write_indices is None else write_indices
    position = first[:, None] + np.arange(length)
    if mode == "circular":
        position = position % space
    elif mode != "linear":
        raise ValueError(f"mode is linear or circular, not {mode!r}")
    elif ((position < 0) | (position >= space)).any():
        raise ValueError(f"writing {length} entries from {first.tolist()} on leaves a cache of length {space}")
    out = past_cache.copy()
    np.moveaxis(out, axis, 1)[np.arange(batch)[:, None], position] = np.moveaxis(update, axis, 1)
    return out


@op("OneHot", since=9)
def one_hot_9(indices: np.ndarray, depth: np.ndarray, values: np.ndarray, *, axis: int = -1):
    return _one_hot(indices, depth, values, axis, wrap=False)


@op("OneHot", since=11)
def one_hot(indices: np.ndarray, depth: np.ndarray, values: np.ndarray, *, axis: int = -1):
    """Indices from -depth to -1 count from the back; others outside give `off` everywhere."""
    return _one_hot(indices, depth, values, axis, wrap=True)


def _one_hot(indices: np.ndarray, depth: np.ndarray, values: np.ndarray, axis: int, wrap: bool):
    size = int(scalar(depth, "depth"))
    axis = check_axis(axis, indices.ndim + 1)
    wanted = np.expand_dims(to_float32(indices).astype(np.int64), axis)
    if wrap:
        wanted = np.where(wanted < 0, wanted + size, wanted)
    classes = np.arange(size).reshape((-1,) + (1,) * (indices.ndim - axis))
    off, on = values
    return np.where(wanted == classes, np.asarray(on, values.dtype), np.asarray(off, values.dtype))


@op("NonZero", since=9)
def non_zero(x: np.ndarray):
    """One row per dimension; (0, N) for a 0-d input (NonZero-13)."""
    if is_narrow(x):
        x = to_float32(x)
    present = x != "" if x.dtype == object else x != 0
    if x.ndim == 0:
        return np.zeros((0, int(present)), np.int64)
    return np.array(np.nonzero(present), np.int64)


@op("Where", since=9)
def where(condition: np.ndarray, x: np.ndarray, y: np.ndarray):
    return np.where(condition, x, y)


@op("Compress", since=9)
def compress(x: np.ndarray, condition: np.ndarray, *, axis: int | None = None):
    """Entries beyond the condition's length are dropped."""
    if axis is None:
        x, axis = x.reshape(-1), 0
    axis = check_axis(axis, x.ndim)
    kept = np.flatnonzero(condition)
    return np.take(x, in_range(kept, x.shape[axis], f"axis {axis}"), axis)


@op("TopK")
def top_k_1(x: np.ndarray, *, k: int, axis: int = -1):
    return _top_k(x, k, axis, True)


@op("TopK", since=10)
def top_k(x: np.ndarray, k: np.ndarray, *, axis: int = -1, largest: int = 1, sorted: int = 1):
    """Equal values come in the order of their indices; NaN counts as the greatest. The result is sorted always."""
    return _top_k(x, int(scalar(k, "k")), axis, bool(largest))


def _top_k(x: np.ndarray, k: int, axis: int, largest: bool):
    axis = check_axis(axis, x.ndim)
    n = x.shape[axis]
    if not 0 <= k <= n:
        raise ValueError(f"there are no {k} greatest of {n} elements")
    keys = to_float32(x)
    if largest:
        # Sorted from behind, so that reversing the order puts equal values back in that of their indices.
        order = n - 1 - np.flip(np.argsort(np.flip(keys, axis), axis, kind="stable"), axis)
    else:
        order = np.argsort(keys, axis, kind="stable")
    best = np.take(order, np.arange(k), axis)
    return np.take_along_axis(x, best, axis), best.astype(np.int64)


@op("Unique", since=11)
def unique(x: np.ndarray, *, axis: int | None = None, sorted: int = 1):
    """Unique elements, or unique slices along `axis`, in ascending order or in that of their first occurrence.

    Returns them, the position of each one's first occurrence, for each entry of `x` its position among them, and how
    often each occurs. NaNs count as equal.
    """
    if axis is None:
        x, axis = x.reshape(-1), 0
    axis = check_axis(axis, x.ndim)
    rows = np.moveaxis(to_float32(x), axis, 0)
    codes = _ranks(rows.reshape(len(rows), math.prod(rows.shape[1:])))
    _, first, inverse, counts = np.unique(codes, return_index=True, return_inverse=True, return_counts=True)
    if not sorted:
        order = np.argsort(first)
        position = np.empty_like(order)
        position[order] = np.arange(len(order))
        first, counts, inverse = first[order], counts[order], position[inverse]
    return np.take(x, first, axis), *(v.astype(np.int64) for v in (first, inverse, counts))


def _ranks(rows: np.ndarray):
    """The rank of each row among the rows in lexical order; equal rows have one rank."""
    columns = [np.unique(column, return_inverse=True)[1].reshape(-1) for column in rows.T]
    if not columns:
        return np.zeros(len(rows), np.int64)
    order = np.lexsort(columns[::-1])
    ordered = np.stack(columns)[:, order]
    differs = (ordered[:, 1:] != ordered[:, :-1]).any(0)
    ranks = np.empty(len(rows), np.int64)
    ranks[order] = np.concatenate([np.zeros(min(1, len(rows)), np.int64), np.cumsum(differs)])
    return ranks
