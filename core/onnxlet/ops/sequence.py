"""Sequences (Python lists) and optionals (the value itself, or `None`)."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from .common import check_axis, ints, scalar
from .registry import op


@op("SequenceEmpty", since=11)
def sequence_empty(*, dtype: int = 1):
    return ([],)


@op("SequenceConstruct", since=11)
def sequence_construct(*inputs: np.ndarray):
    return (list(inputs),)


def _position(sequence: list[np.ndarray], position: np.ndarray, *, end: int):
    """A position from the front. Raises IndexError where it is outside [-n, end - 1], n being the length."""
    at, n = int(scalar(position, "position")), len(sequence)
    if not -n <= at < end:
        raise IndexError(f"position {at} is out of range for a sequence of {n}")
    return at + n if at < 0 else at


@op("SequenceAt", since=11)
def sequence_at(input_sequence: list[np.ndarray], position: np.ndarray):
    return input_sequence[_position(input_sequence, position, end=len(input_sequence))]


@op("SequenceInsert", since=11)
def sequence_insert(input_sequence: list[np.ndarray], tensor: np.ndarray, position: np.ndarray | None = None):
    """Before the entry at `position`, or at the end."""
    n = len(input_sequence)
    at = n if position is None else _position(input_sequence, position, end=n + 1)
    return ([*input_sequence[:at], tensor, *input_sequence[at:]],)


@op("SequenceErase", since=11)
def sequence_erase(input_sequence: list[np.ndarray], position: np.ndarray | None = None):
    """The entry at `position`, or the last, is left out."""
    n = len(input_sequence)
    if n == 0:
        raise IndexError("the sequence is empty: it has nothing to erase")
    at = n - 1 if position is None else _position(input_sequence, position, end=n)
    return ([*input_sequence[:at], *input_sequence[at + 1 :]],)


@op("SequenceLength", since=11)
def sequence_length(input_sequence: list[np.ndarray]):
    return np.array(len(input_sequence), np.int64)


@op("SplitToSequence", since=11)
def split_to_sequence(x: np.ndarray, split: np.ndarray | None = None, *, axis: int = 0, keepdims: int = 1):
    """`split` is the length of every part but a shorter last one (0-d), or the length of each (1-d). Without it the
    parts have length 1, and lose the axis unless `keepdims`."""
    axis = check_axis(axis, x.ndim)
    length = x.shape[axis]
    before = (slice(None),) * axis
    if split is None:
        return ([x[(*before, slice(i, i + 1) if keepdims else i, ...)] for i in range(length)],)
    sizes = ints(split)
    if split.ndim == 0:
        if sizes[0] < 1:
            raise ValueError(f"parts of length {sizes[0]}")
        sizes = [min(sizes[0], length - first) for first in range(0, length, sizes[0])]
    if sum(sizes) != length or min(sizes, default=0) < 0:
        raise ValueError(f"parts of {sizes} do not make up axis {axis} of shape {list(x.shape)}")
    edges = np.cumsum([0, *sizes]).tolist()
    return ([x[(*before, slice(a, b))] for a, b in pairwise(edges)],)


@op("ConcatFromSequence", since=11)
def concat_from_sequence(input_sequence: list[np.ndarray], *, axis: int, new_axis: int = 0):
    if not input_sequence:
        raise ValueError("the sequence is empty: it has nothing to join")
    axis = check_axis(axis, input_sequence[0].ndim + (1 if new_axis else 0))
    return np.stack(input_sequence, axis) if new_axis else np.concatenate(input_sequence, axis)


@op("Optional", since=15)
def optional(x: Any = None, *, type: Any = None):
    """With an input, an optional that holds it; without, an empty one of `type`."""
    return (x,)


@op("OptionalHasElement", since=15)
def optional_has_element(x: Any = None):
    return np.array(x is not None)


@op("OptionalGetElement", since=15)
def optional_get_element(x: Any):
    if x is None:
        raise ValueError("the optional is empty: it has no element")
    return (x,)
