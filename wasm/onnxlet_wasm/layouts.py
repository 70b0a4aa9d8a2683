"""How a tensor's elements lie in memory: row-major as ONNX has them, or with the channels last.

A value of rank 3 and more may live channels-last: axis 1 is moved to the end, so that (N, C, H, W) lies as
(N, H, W, C). Its shape is still spoken of in ONNX's order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

PLAIN = "plain"
LAST = "channels last"


def size_of(shape: Sequence[int]) -> int:
    n = 1
    for d in shape:
        n *= d
    return n


def same_in_both(shape: Sequence[int]) -> bool:
    """Whether moving the channels last moves no element: one channel, or nothing behind the channels."""
    return len(shape) < 3 or shape[1] == 1 or size_of(shape[2:]) <= 1


def axis_order(rank: int, layout: str) -> list[int]:
    """The axes from the slowest to the fastest in memory."""
    axes = list(range(rank))
    return axes if layout == PLAIN or rank < 3 else [0, *axes[2:], 1]


def strides_of(shape: Sequence[int], layout: str = PLAIN) -> list[int]:
    """Steps in elements along each axis, in ONNX's order of axes."""
    strides = [0] * len(shape)
    step = 1
    for axis in reversed(axis_order(len(shape), layout)):
        strides[axis] = step
        step *= shape[axis]
    return strides


def to_layout(array: np.ndarray, layout: str) -> np.ndarray:
    """The array with its elements in the order of the layout (contiguous)."""
    return np.ascontiguousarray(array.transpose(axis_order(array.ndim, layout)))


def broadcast_strides(shape: Sequence[int], target: Sequence[int], layout: str = PLAIN) -> list[int]:
    """Steps in elements of an operand along each axis of `target`, 0 where it is broadcast."""
    strides = [0 if d == 1 else s for d, s in zip(shape, strides_of(shape, layout), strict=True)]
    return [0] * (len(target) - len(shape)) + strides


def collapse(shape: Sequence[int], *strides: Sequence[int]) -> tuple[list[int], list[list[int]]]:
    """The same iteration with as few axes as possible: those of length 1 dropped, neighbours joined where all agree.

    Returns the lengths and, per operand, the steps. There is always at least one axis.
    """
    lengths: list[int] = []
    steps: list[list[int]] = [[] for _ in strides]
    for axis, length in enumerate(shape):
        if length == 1:
            continue
        if lengths and all(s[-1] == stride[axis] * length for s, stride in zip(steps, strides, strict=True)):
            lengths[-1] *= length
            for s, stride in zip(steps, strides, strict=True):
                s[-1] = stride[axis]
        else:
            lengths.append(length)
            for s, stride in zip(steps, strides, strict=True):
                s.append(stride[axis])
    return (lengths, steps) if lengths else ([1], [[0] for _ in strides])
