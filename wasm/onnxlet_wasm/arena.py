"""Where buffers lie: offsets in one block of memory, so that buffers share a place when they never live together."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Sequence
from typing import Protocol

ALIGNMENT = 64
"""Bytes: a cache line, and the widest vector there is."""


LARGE = 1 << 16
PAGE = 4096
SPREAD = 1280
"""What large blocks are longer than whole pages, so that the next one begins elsewhere in its page. Where streams of
data run at the same place of different pages, processors take a load for one that waits for the store before it."""


def aligned(nbytes: int) -> int:
    """`nbytes` rounded up to whole cache lines; at least one, so that an empty tensor has an address of its own. Large
    blocks get some more, see `SPREAD`."""
    size = max(ALIGNMENT, nbytes + ALIGNMENT - 1 & -ALIGNMENT)
    return size if size < LARGE else size + (SPREAD - size) % PAGE


class Lifetime(Protocol):
    """A buffer of `nbytes` bytes that is in use from operation `first` to operation `last`, both included."""

    nbytes: int
    first: int
    last: int
    offset: int


def assign_offsets(buffers: Iterable[Lifetime]) -> int:
    """Set the `offset` of every buffer, and return how many bytes they need in all.

    Greedy by size (Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020): the largest
    buffers are placed first, each into the smallest gap between those placed before that live at the same time.
    """
    placed: list[tuple[int, int, int, int]] = []  # offset, end, first, last
    total = 0
    for buffer in sorted(buffers, key=lambda b: (-b.nbytes, b.first)):
        size, first, last = aligned(buffer.nbytes), buffer.first, buffer.last
        cursor, best, best_gap = 0, -1, 1 << 62
        for start, end, since, until in placed:
            if since > last or until < first:
                continue
            gap = start - cursor
            if size <= gap < best_gap:
                best, best_gap = cursor, gap
            if end > cursor:
                cursor = end
        buffer.offset = cursor if best < 0 else best
        end = buffer.offset + size
        insort(placed, (buffer.offset, end, first, last))
        total = max(total, end)
    return total


def separate_offsets(buffers: Sequence[Lifetime]) -> int:
    """Like `assign_offsets`, but no two buffers share a place: for finding out whether a fault is the planner's."""
    total = 0
    for buffer in buffers:
        buffer.offset = total
        total += aligned(buffer.nbytes)
    return total
