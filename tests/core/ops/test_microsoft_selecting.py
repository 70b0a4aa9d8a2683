"""Selectors of sparse attention, worked out query by query from the operators' text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxlet.errors import UnsupportedError
from tests.core.ops.calling import call, f32, of, same
from tests.core.ops.oracle import Numbers

MICROSOFT = "com.microsoft"
HEADS, SIZE, RATIO = 3, 8, 4
OPTIONS: dict[str, Any] = {
    "domain": MICROSOFT, "policy_mode": "qsa", "compress_ratio": RATIO, "token_budget": 8, "epsilon": 0.1, "scale": 0.3,
}  # fmt: skip


def norm(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 0.1) * weight


def turn(x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    y = x.copy()
    width = len(cos)
    for i in range(width):
        other = -x[..., i + width // 2] if i < width // 2 else x[..., i - width // 2]
        y[..., i] = x[..., i] * cos[i] + other * sin[i]
    return y


def chosen(q: np.ndarray, position: int, visible: list[int], keys: np.ndarray, weights: Any, angles: Any) -> list[int]:
    """The tokens that one query (heads, size) reads."""
    seen = [t for t in visible if t <= position]
    full = len(seen) // RATIO
    q = turn(norm(q, weights[0]), angles[0][position], angles[1][position])
    scores = []
    for b in range(full):
        block = seen[b * RATIO : (b + 1) * RATIO]
        key = turn(norm(keys[block].mean(axis=0), weights[1]), angles[0][block[0]], angles[1][block[0]])
        scores.append(sum(max(q[h] @ key, 0) for h in range(HEADS)))
    order = sorted(range(full), key=lambda b: -scores[b])[:2]
    return [t for b in order for t in seen[b * RATIO : (b + 1) * RATIO]] + seen[full * RATIO :]


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("packed", [False, True])
def test_indexer(masked, shared, packed):
    numbers = Numbers()
    batch, past, length = 2, 13, 6
    q, k = numbers.f32(batch, length, HEADS * SIZE), numbers.f32(batch, length, SIZE)
    weights, angles = (numbers.f32(SIZE), numbers.f32(SIZE)), (numbers.f32(20, 6), numbers.f32(20, 6))
    cache = numbers.f32(batch, 20 if shared else past, SIZE)
    mask = numbers.ints(0, 4, batch, past + length) if masked else None
    inputs = [np.concatenate([q, k], axis=2), None] if packed else [q, k]
    rest = [None] * 4 + [of("int32", [past])] if shared else []
    selected, present = call(
        "SparseAttentionIndexer", 1, *inputs, *weights, *angles, mask, cache, *rest, outputs=2, **OPTIONS
    )
    wanted = cache.copy() if shared else np.concatenate([cache, k], axis=1)
    wanted[:, past : past + length] = k
    same(present, wanted)
    for b in range(batch):
        visible = [t for t in range(past + length) if mask is None or mask[b, t]]
        for i in range(length):
            tokens = chosen(q[b, i].reshape(HEADS, SIZE), past + i, visible, wanted[b], weights, angles)
            assert selected[b, i].tolist() == tokens + [-1] * (11 - len(tokens))


def test_packed_indexer():
    """In two calls, the second from the states that the first gave, what one sequence gives as a whole."""
    numbers = Numbers()
    lengths = [17, 6]
    q = [numbers.f32(n, HEADS * SIZE) for n in lengths]
    k = [numbers.f32(n, SIZE) for n in lengths]
    weights, angles = (numbers.f32(SIZE), numbers.f32(SIZE)), (numbers.f32(20, 6), numbers.f32(20, 6))
    states = [np.zeros((2, 5, SIZE), np.float32), np.zeros((2, 7, SIZE), np.float32), np.zeros((2, 2), np.int32)]
    done = np.zeros(2, np.int32)
    options = {**OPTIONS, "state_capacity": 5, "state_update_capacity": 3, "outputs": 9}
    for parts in ((9, 2), (8, 0), (0, 4)):
        own = [np.concatenate([x[s][done[s] : done[s] + parts[s]] for s in range(2)]) for x in (q, k)]
        edges = of("int32", [0, parts[0], sum(parts)])
        results = call(
            "PackedSparseAttentionIndexer", 1, *own, *weights, *angles, edges, done, None, None, None, None, states[0],
            states[1], None, states[2], of("int32", [2, 9]), **options,
        )  # fmt: skip
        selected, counts, states[0], states[1], _, states[2], captured, _, status = results
        same(status, np.zeros(2, np.int32))
        row = 0
        for s in range(2):
            for i in range(parts[s]):
                position = int(done[s]) + i
                tokens = chosen(
                    q[s][position].reshape(HEADS, SIZE), position, list(range(lengths[s])), k[s], weights, angles
                )
                assert counts[row] == len(tokens)
                assert selected[row].tolist() == tokens + [-1] * (11 - len(tokens))
                if i < min((2, 3)[s], parts[s]):
                    kept = states[0][s, position // RATIO] if position % RATIO == RATIO - 1 else k[s][position]
                    same(captured[s, i], kept)
                row += 1
        done = done + np.array(parts, np.int32)
        assert states[2].tolist() == [[n // RATIO, n % RATIO] for n in done]
    *_, status = call(
        "PackedSparseAttentionIndexer", 1, *own, *weights, *angles, edges, done + 1, None, None, None, None, states[0],
        states[1], None, states[2], of("int32", [2, 9]), **options,
    )  # fmt: skip
    same(status, of("int32", [1, 1]))


def test_merging():
    base, counts, rows = of("int32", [[3, 1, -1], [5, 7, 2]]), of("int32", [2, 3]), of("int32", [1, 0, 0, 2])
    name = "PackedSparseAttentionIndexerMerge", 1
    options = {"domain": MICROSOFT, "outputs": 3, "max_output_entries": 5}
    starts, ends = of("int32", [2, 0, 0, 0]), of("int32", [4, 5, 2, 1])
    selected, found, status = call(*name, base, counts, rows, starts, ends, policy_mode="append_range", **options)
    expected = [[5, 7, 2, 3, -1], [3, 1, 0, 2, 4], [3, 1, 0, -1, -1], [-1] * 5]
    same(selected, of("int32", expected))
    same(found, of("int32", [4, 5, 3, 0]))
    same(status, of("int32", [0, 0, 0, 1]))
    more, sizes = of("int32", [[7, 9], [4, -1], [8, 9], [1, 1]]), of("int32", [2, 1, 2, 1])
    selected, found, status = call(
        *name, base, counts, rows, None, None, more, sizes, policy_mode="append_indices",
        **{**options, "max_output_entries": 3},
    )  # fmt: skip
    same(selected, of("int32", [[-1] * 3, [3, 1, 4], [-1] * 3, [-1] * 3]))
    same(status, of("int32", [2, 0, 2, 1]))


def test_what_is_not_defined_is_said():
    x, w, a = np.zeros((1, 1, 4), np.float32), np.ones(4, np.float32), f32([[1, 1]])
    options = {"domain": MICROSOFT, "compress_ratio": 2}
    with pytest.raises(UnsupportedError, match="csa"):
        call("SparseAttentionIndexer", 1, x, x, w, w, a, a, None, x[:, :0], policy_mode="csa", **options)
    with pytest.raises(ValueError, match="token_budget 3 must be a positive multiple of compress_ratio 2"):
        call(
            "SparseAttentionIndexer", 1, x, x, w, w, a, a, None, x[:, :0], policy_mode="qsa", token_budget=3, **options
        )
