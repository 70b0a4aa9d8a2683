"""The allocator of the browser's memory."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from onnxlet_wasm.heap import Heap, block_size


def test_blocks_are_aligned_and_followed_by_padding():
    heap = Heap(100, 1 << 20, lambda _: False)
    blocks = [(heap.alloc(n), n) for n in (0, 1, 64, 1000)]
    assert all(address % 64 == 0 and address >= 100 for address, _ in blocks)
    for (x, n), (y, _) in itertools.pairwise(blocks):
        assert y - x >= n + 64


def test_the_memory_grows_by_what_is_missing():
    sizes = []

    def grow(nbytes: int) -> bool:
        sizes.append(nbytes)
        return nbytes <= 4096

    heap = Heap(0, 1024, grow)
    block = heap.alloc(1024 - 64)
    assert sizes == []
    heap.free(block, 1024 - 64)
    heap.alloc(2048 - 64)
    assert sizes == [2048]
    with pytest.raises(MemoryError, match="2,048 are in use"):
        heap.alloc(4096)
    heap.alloc(2048 - 64)
    assert sizes[-1] == 4096


def test_free_neighbours_become_one_block():
    heap = Heap(0, 64 * 100, lambda _: False)
    blocks = [heap.alloc(64) for _ in range(50)]
    with pytest.raises(MemoryError):
        heap.alloc(64)
    for block in blocks[::2] + blocks[1::2]:
        heap.free(block, 64)
    assert heap.alloc(64 * 99) == 0


def test_random_use_never_overlaps():
    rng = np.random.default_rng(0)
    heap = Heap(64, 4096, lambda n: n < 1 << 20)
    held: dict[int, int] = {}
    for _ in range(2000):
        if held and rng.random() < 0.5:
            address = list(held)[rng.integers(len(held))]
            heap.free(address, held.pop(address))
            continue
        size = int(rng.integers(0, 5000))
        try:
            held[heap.alloc(size)] = size
        except MemoryError:
            continue
        ordered = sorted(held.items())
        assert all(a + block_size(n) <= b for (a, n), (b, _) in itertools.pairwise(ordered))
