"""Offsets in the arena: buffers that live together never overlap, and memory is used again."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from onnxlet_wasm.arena import ALIGNMENT, aligned, assign_offsets, separate_offsets


@dataclass
class Life:
    nbytes: int
    first: int
    last: int
    offset: int = -1


def overlap(a: Life, b: Life) -> bool:
    in_time = a.first <= b.last and b.first <= a.last
    in_space = a.offset < b.offset + aligned(b.nbytes) and b.offset < a.offset + aligned(a.nbytes)
    return in_time and in_space


@pytest.mark.parametrize("seed", range(20))
def test_buffers_that_live_together_lie_apart(seed):
    rng = random.Random(seed)
    lives = []
    for _ in range(rng.randrange(1, 60)):
        first = rng.randrange(40)
        lives.append(Life(rng.choice([0, 1, 63, 64, 65, 1000, 4096, 100_000]), first, first + rng.randrange(8)))
    total = assign_offsets(lives)
    for i, a in enumerate(lives):
        assert a.offset >= 0
        assert a.offset % ALIGNMENT == 0
        assert a.offset + aligned(a.nbytes) <= total
        assert not any(overlap(a, b) for b in lives[:i])
    peak = max(sum(aligned(b.nbytes) for b in lives if b.first <= t <= b.last) for t in range(50))
    assert peak <= total <= separate_offsets(lives)


def test_a_chain_needs_two_places():
    chain = [Life(1000, i, i + 1) for i in range(10)]
    assert assign_offsets(chain) == 2 * aligned(1000)


def test_nothing_needs_nothing():
    assert assign_offsets([]) == 0
