"""An allocator for a memory that only grows: which blocks are free is kept outside of it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

ALIGNMENT = 64
PADDING = 64


def block_size(nbytes: int) -> int:
    """Bytes taken for `nbytes`: padding that may be read after them, and whole cache lines."""
    return nbytes + PADDING + ALIGNMENT - 1 & -ALIGNMENT


class Heap:
    """Hands out 64-byte aligned addresses from `start` on.

    `grow(nbytes)` is asked to make the memory at least `nbytes` long, and says whether it could.
    """

    def __init__(self, start: int, size: int, grow: Callable[[int], bool]):
        start = start + ALIGNMENT - 1 & -ALIGNMENT
        self._end = size & -ALIGNMENT
        self._grow = grow
        self._free: list[tuple[int, int]] = [(start, self._end - start)]
        """Free blocks, as (address, size), in order and never adjacent."""

    def alloc(self, nbytes: int) -> int:
        """The address of a block of `nbytes`. Raises `MemoryError` where the memory can't grow."""
        size = block_size(nbytes)
        best = -1
        for i, (_, free) in enumerate(self._free):
            if size <= free and (best < 0 or free < self._free[best][1]):
                best = i
        if best < 0:
            best = self._extend(size)
        address, free = self._free[best]
        if free == size:
            del self._free[best]
        else:
            self._free[best] = address + size, free - size
        return address

    def free(self, address: int, nbytes: int) -> None:
        """Take a block back, of the size it was asked for with."""
        self._insert(address, block_size(nbytes))

    def _insert(self, address: int, size: int) -> int:
        i = bisect_left(self._free, (address, 0))
        if i < len(self._free) and self._free[i][0] == address + size:
            size += self._free.pop(i)[1]
        if i and sum(self._free[i - 1]) == address:
            i -= 1
            address, before = self._free.pop(i)
            size += before
        self._free.insert(i, (address, size))
        return i

    def _extend(self, size: int) -> int:
        """Grow the memory so that its last free block has `size` bytes; returns that block's index."""
        at_end = self._free[-1][1] if self._free and sum(self._free[-1]) == self._end else 0
        end = self._end + size - at_end
        if not self._grow(end):
            raise MemoryError(f"{size:,} more bytes could not be had; {self._end:,} are in use")
        start, self._end = self._end, end
        return self._insert(start, end - start)
