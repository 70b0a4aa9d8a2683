"""Shapes: changing them, asking for them, and joining, cutting and rearranging tensors without computing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ..model.dtypes import dtype_of
from .common import check_axes, check_axis, ints, is_narrow, rounded, scalar, to_float32, zeros
from .registry import op


@op("Identity")
def identity(x: Any):
    return x


@op("Shape")
def shape_(data: np.ndarray, *, start: int = 0, end: int | None = None):
    """The dimensions from `start` to `end` (exclusive; both clamped, negative ones counted from the back)."""
    return np.array(data.shape[start:end], np.int64)


@op("Size")
def size_(data: np.ndarray):
    return np.array(data.size, np.int64)


@op("Reshape")
def reshape_1(data: np.ndarray, *, shape: list[int] | None = None):
    return _reshape(data, shape or [], False)


@op("Reshape", since=5)
def reshape(data: np.ndarray, shape: np.ndarray, *, allowzero: int = 0):
    return _reshape(data, ints(shape), bool(allowzero))


def _reshape(data: np.ndarray, wanted: list[int], allowzero: bool):
    """0 copies the input's dimension unless `allowzero`; one -1 takes what is left."""
    target = list(wanted)
    if not allowzero:
        for i, d in enumerate(target):
            if d == 0:
                if i >= data.ndim:
                    raise ValueError(f"shape {wanted} copies dimension {i}, but the input has shape {list(data.shape)}")
                target[i] = data.shape[i]
    if target.count(-1) > 1 or min(target, default=0) < -1:
        raise ValueError(f"shape {wanted} has several -1 or another negative dimension")
    if -1 in target:
        others = math.prod(d for d in target if d != -1)
        if allowzero and others == 0:
            raise ValueError(f"shape {wanted} has both 0 and -1, which allowzero forbids")
        target[target.index(-1)] = data.size // others if others else 0
    if math.prod(target) != data.size:
        raise ValueError(f"shape {list(data.shape)} ({data.size} elements) can't become {wanted}")
    return data.reshape(target)


@op("Flatten")
def flatten(x: np.ndarray, *, axis: int = 1):
    axis = axis if axis == x.ndim else check_axis(axis, x.ndim)
    return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))


@op("Squeeze")
def squeeze_1(data: np.ndarray, *, axes: list[int] | None = None):
    return _squeeze(data, axes)


@op("Squeeze", since=13)
def squeeze(data: np.ndarray, axes: np.ndarray | None = None):
    return _squeeze(data, None if axes is None else ints(axes))


def _squeeze(data: np.ndarray, axes: Sequence[int] | None):
    if axes is None:
        return data.reshape([d for d in data.shape if d != 1])
    axes = check_axes(axes, data.ndim)
    if any(data.shape[a] != 1 for a in axes):
        raise ValueError(f"axes {list(axes)} of shape {list(data.shape)} are not all 1")
    return data.reshape([d for i, d in enumerate(data.shape) if i not in axes])


@op("Unsqueeze")
def unsqueeze_1(data: np.ndarray, *, axes: list[int]):
    return _unsqueeze(data, axes)


@op("Unsqueeze", since=13)
def unsqueeze(data: np.ndarray, axes: np.ndarray):
    return _unsqueeze(data, ints(axes))


def _unsqueeze(data: np.ndarray, axes: Sequence[int]):
    rank = data.ndim + len(axes)
    axes = check_axes(axes, rank)
    dims = iter(data.shape)
    return data.reshape([1 if i in axes else next(dims) for i in range(rank)])


@op("Expand", since=8)
def expand(x: np.ndarray, shape: np.ndarray):
    """A read-only view in which a repeated dimension has stride 0."""
    return np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(ints(shape))))


@op("Tile")
def tile_1(x: np.ndarray, tiles: np.ndarray, axis: np.ndarray):
    """`tiles` copies along `axis`."""
    repeats = [1] * x.ndim
    repeats[check_axis(int(scalar(axis, "axis")), x.ndim)] = int(scalar(tiles, "tiles"))
    return np.tile(x, repeats)


@op("Tile", since=6)
def tile(x: np.ndarray, repeats: np.ndarray):
    if repeats.size != x.ndim:
        raise ValueError(f"{repeats.size} repeats for an input of rank {x.ndim}")
    return np.tile(x, ints(repeats))


@op("Concat")
def concat_1(*xs: np.ndarray, axis: int = 1):
    return concat(*xs, axis=axis)


@op("Concat", since=4)
def concat(*xs: np.ndarray, axis: int):
    axis = check_axis(axis, xs[0].ndim)
    return np.concatenate(xs, axis)


def _split(x: np.ndarray, sizes: list[int], axis: int):
    if sum(sizes) != x.shape[axis] or min(sizes, default=0) < 0:
        raise ValueError(f"parts of {sizes} do not make up axis {axis} of shape {list(x.shape)}")
    edges = np.cumsum([0, *sizes]).tolist()
    before = (slice(None),) * axis
    return tuple(x[(*before, slice(a, b))] for a, b in pairwise(edges))


def equal_parts(length: int, parts: int) -> list[int]:
    """Sizes of `parts` pieces of `length`, all the same but for the last, which may be smaller."""
    size = -(-length // parts)
    return [max(0, min(size, length - size * i)) for i in range(parts)]


@op("Split")
def split_1(
    x: np.ndarray, lengths: np.ndarray | None = None, *, split: list[int] | None = None, axis: int = 0, n_outputs: int
):
    """The first version takes the parts' lengths as an input or as an attribute."""
    axis = check_axis(axis, x.ndim)
    sizes = split if lengths is None else ints(lengths)
    return _split(x, sizes or equal_parts(x.shape[axis], n_outputs), axis)


@op("Split", since=2)
def split_2(x: np.ndarray, *, split: list[int] | None = None, axis: int = 0, n_outputs: int):
    axis = check_axis(axis, x.ndim)
    return _split(x, split or equal_parts(x.shape[axis], n_outputs), axis)


@op("Split", since=13)
def split_13(
    x: np.ndarray, split: np.ndarray | None = None, *, axis: int = 0, num_outputs: int | None = None, n_outputs: int
):
    """Without sizes the parts are equal, and (from opset 18 on) the last may be smaller."""
    axis = check_axis(axis, x.ndim)
    return _split(x, equal_parts(x.shape[axis], num_outputs or n_outputs) if split is None else ints(split), axis)


@op("Slice")
def slice_1(data: np.ndarray, *, starts: list[int], ends: list[int], axes: list[int] | None = None):
    return _slice(data, starts, ends, axes, None)


@op("Slice", since=10)
def slice_10(
    data: np.ndarray,
    starts: np.ndarray,
    ends: np.ndarray,
    axes: np.ndarray | None = None,
    steps: np.ndarray | None = None,
):
    return _slice(
        data, ints(starts), ints(ends), None if axes is None else ints(axes), None if steps is None else ints(steps)
    )


def _slice(data: np.ndarray, starts: list[int], ends: list[int], axes: Sequence[int] | None, steps: list[int] | None):
    """Bounds outside the dimension are clamped as Slice-13 says, which differs from Python's rule where a negative
    step starts before the first element: that element is taken."""
    axes = check_axes(range(len(starts)) if axes is None else axes, data.ndim)
    steps = [1] * len(starts) if steps is None else steps
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise ValueError(f"starts {starts}, ends {ends}, axes {list(axes)} and steps {steps} differ in length")
    index = [slice(None)] * data.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        n = data.shape[axis]
        if step == 0:
            raise ValueError("a step is 0")
        start, end = start + n * (start < 0), end + n * (end < 0)
        if step > 0:
            index[axis] = slice(min(max(start, 0), n), min(max(end, 0), n), step)
        elif n:
            start, end = min(max(start, 0), n - 1), min(max(end, -1), n - 1)
            index[axis] = slice(start, None if end < 0 else end, step)
    return data[tuple(index)]


@op("Transpose")
def transpose(data: np.ndarray, *, perm: list[int] | None = None):
    if perm is not None and sorted(perm) != list(range(data.ndim)):
        raise ValueError(f"perm {perm} is no permutation of the axes of a tensor of rank {data.ndim}")
    return np.transpose(data, perm)


@op("DepthToSpace")
def depth_to_space(x: np.ndarray, *, blocksize: int, mode: str = "DCR"):
    n, c, h, w = _image(x)
    b = blocksize
    if c % (b * b):
        raise ValueError(f"{c} channels can't be made blocks of {b} by {b}")
    if mode == "DCR":
        blocks = x.reshape(n, b, b, c // (b * b), h, w).transpose(0, 3, 4, 1, 5, 2)
    elif mode == "CRD":
        blocks = x.reshape(n, c // (b * b), b, b, h, w).transpose(0, 1, 4, 2, 5, 3)
    else:
        raise ValueError(f"mode is DCR or CRD, not {mode!r}")
    return blocks.reshape(n, c // (b * b), h * b, w * b)


@op("SpaceToDepth")
def space_to_depth(x: np.ndarray, *, blocksize: int, mode: str = "DCR"):
    n, c, h, w = _image(x)
    b = blocksize
    if h % b or w % b:
        raise ValueError(f"an image of {h} by {w} can't be cut into blocks of {b} by {b}")
    blocks = x.reshape(n, c, h // b, b, w // b, b)
    if mode == "DCR":
        blocks = blocks.transpose(0, 3, 5, 1, 2, 4)
    elif mode == "CRD":
        blocks = blocks.transpose(0, 1, 3, 5, 2, 4)
    else:
        raise ValueError(f"mode is DCR or CRD, not {mode!r}")
    return blocks.reshape(n, c * b * b, h // b, w // b)


def _image(x: np.ndarray):
    if x.ndim != 4:
        raise ValueError(f"the input must have shape [N, C, H, W], but has {list(x.shape)}")
    return x.shape


@op("ReverseSequence", since=10)
def reverse_sequence(x: np.ndarray, sequence_lens: np.ndarray, *, batch_axis: int = 1, time_axis: int = 0):
    if {batch_axis, time_axis} != {0, 1} or x.ndim < 2:
        raise ValueError(f"batch and time axes are 0 and 1, not {batch_axis} and {time_axis}")
    lengths = sequence_lens.reshape(-1)
    time, batch = x.shape[time_axis], x.shape[batch_axis]
    if lengths.shape != (batch,) or ((lengths < 0) | (lengths > time)).any():
        raise ValueError(f"sequence_lens must be {batch} lengths from 0 to {time}, but is {lengths.tolist()}")
    at = np.arange(time)[:, None]
    source = np.where(at < lengths, lengths - 1 - at, at)
    if time_axis == 0:
        return x[source, np.arange(batch)]
    return x[np.arange(batch)[:, None], source.T]


@op("Trilu", since=14)
def trilu(x: np.ndarray, k: np.ndarray | None = None, *, upper: int = 1):
    if x.ndim < 2:
        raise ValueError(f"the input must be a matrix or several, but has shape {list(x.shape)}")
    diagonal = 0 if k is None else int(scalar(k, "k"))
    distance = np.arange(x.shape[-1]) - np.arange(x.shape[-2])[:, None]
    kept = distance >= diagonal if upper else distance <= diagonal
    out = zeros(x.shape, x.dtype)
    np.copyto(out, x, where=kept)
    return out


@op("CenterCropPad", since=18)
def center_crop_pad(x: np.ndarray, shape: np.ndarray, *, axes: list[int] | None = None):
    chosen = check_axes(range(x.ndim) if axes is None else axes, x.ndim)
    target = list(x.shape)
    for axis, length in zip(chosen, ints(shape), strict=True):
        target[axis] = length
    out = zeros(target, x.dtype)
    into, source = [], []
    for have, want in zip(x.shape, target, strict=True):
        first = abs(have - want) // 2
        into.append(slice(first, first + have) if want > have else slice(None))
        source.append(slice(first, first + want) if have > want else slice(None))
    out[tuple(into)] = x[tuple(source)]
    return out


@op("Range", since=11)
def range_(start: np.ndarray, limit: np.ndarray, delta: np.ndarray, *, stash_type: int = 1):
    """start + i * delta below `limit`; as many as ceil((limit - start) / delta), counted in exact arithmetic for
    integers and in float64 for floats. float16 and bfloat16 are computed in float32 (`stash_type`) and rounded."""
    named = {"start": start, "limit": limit, "delta": delta}
    first, last, step = (scalar(to_float32(x), name) for name, x in named.items())
    if step == 0:
        raise ValueError("delta is 0")
    whole = start.dtype.kind in "iu"
    count = -((first - last) // step) if whole else math.ceil((last - first) / step)
    dtype = np.dtype(np.float32) if is_narrow(start) else start.dtype
    steps = np.arange(max(count, 0)).astype(dtype)
    return rounded(steps * dtype.type(step) + dtype.type(first), start.dtype)


@op("ConstantOfShape", since=9)
def constant_of_shape(shape: np.ndarray, *, value: np.ndarray | None = None):
    value = np.zeros((), np.float32) if value is None else value
    dims = ints(shape)
    if min(dims, default=0) < 0:
        raise ValueError(f"shape {dims} has a negative dimension")
    return np.broadcast_to(value.reshape(()), dims).copy()


@op("Constant")
def constant(
    *,
    value: np.ndarray | None = None,
    sparse_value: np.ndarray | None = None,
    value_int: int | None = None,
    value_ints: list[int] | None = None,
    value_float: float | None = None,
    value_floats: list[float] | None = None,
    value_string: str | None = None,
    value_strings: list[str] | None = None,
):
    given = [
        *(v for v in (value, sparse_value) if v is not None),
        *(np.array(v, np.int64) for v in (value_int, value_ints) if v is not None),
        *(np.array(v, np.float32) for v in (value_float, value_floats) if v is not None),
        *(np.array(v, object) for v in (value_string, value_strings) if v is not None),
    ]
    if len(given) != 1:
        raise ValueError(f"a constant has one value, not {len(given)}")
    return given[0]


@op("EyeLike", since=9)
def eye_like(x: np.ndarray, *, dtype: int | None = None, k: int = 0):
    if x.ndim != 2:
        raise ValueError(f"the input must be a matrix, but has shape {list(x.shape)}")
    diagonal = np.arange(x.shape[1]) - np.arange(x.shape[0])[:, None] == k
    return diagonal.astype(x.dtype if dtype is None else dtype_of(dtype))
