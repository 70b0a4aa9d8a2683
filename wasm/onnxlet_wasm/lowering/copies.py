"""Strided copies and fills, of which every operator that moves elements is made."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxlet.providers.base import Step

from ..compiler import COPY_GRAIN, Compiler, Place
from ..layouts import collapse, size_of
from .common import dtype_of, present
from .registry import Refused

MAX_RANK = 8


def need_copyable(step: Step, *indices: int) -> None:
    """Refuse strings, and elements of odd sizes."""
    for i in indices or range(len(step.node.inputs)):
        if present(step, i) and (dtype_of(step, i).hasobject or dtype_of(step, i).itemsize > 8):
            raise Refused(f"{'string' if dtype_of(step, i).hasobject else dtype_of(step, i)} has no kernel here")


def copy_block(
    c: Compiler,
    x: Place,
    x_strides: Sequence[int],
    y: Place,
    y_strides: Sequence[int],
    lengths: Sequence[int],
    itemsize: int,
) -> None:
    """Copy a block of `lengths` elements from `x` to `y`, with steps in elements along each axis.

    The axes may come in any order: they are walked as `y` lies in memory.
    """
    order = sorted(range(len(lengths)), key=lambda axis: -abs(y_strides[axis]))
    shape = [lengths[a] for a in order]
    source, target = [x_strides[a] for a in order], [y_strides[a] for a in order]
    if len(shape) > MAX_RANK:
        shape, (source, target) = collapse(shape, source, target)
        assert len(shape) <= MAX_RANK, shape
    c.emit(
        "copy", units=size_of(shape), grain=COPY_GRAIN, size=itemsize, x=x, y=y, rank=len(shape), shape=c.words(shape),
        x_strides=c.words(source), y_strides=c.words(target),
    )  # fmt: skip


def copy_flat(c: Compiler, x: Place, y: Place, count: int, itemsize: int) -> None:
    """Copy `count` elements that follow each other."""
    copy_block(c, x, [1], y, [1], [count], itemsize)


def fill(c: Compiler, y: Place, count: int, value: np.ndarray) -> None:
    """Set `count` elements to a value (0-d)."""
    bits = int.from_bytes(value.tobytes(), "little", signed=False)
    if value.dtype.itemsize == 8:
        bits = int.from_bytes(value.tobytes(), "little", signed=True)
    c.emit("fill", units=count, grain=COPY_GRAIN, size=value.dtype.itemsize, y=y, value=bits)
