"""Selectors of sparse attention, worked out query by query from the operators' text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

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
    for parts in ((9, 2), (8, 0), (0, 0), (0, 4)):
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


COUNT = 3
COMPRESSED: dict[str, Any] = {
    "domain": MICROSOFT, "policy_mode": "csa", "compress_ratio": RATIO, "index_topk": COUNT, "epsilon": 0.1,
    "head_weight_scale": 0.7,
}  # fmt: skip


def turn_pairs(x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    y = x.copy()
    for i in range(len(cos)):
        first = x.shape[-1] - 2 * len(cos) + 2 * i
        y[..., first] = x[..., first] * cos[i] - x[..., first + 1] * sin[i]
        y[..., first + 1] = x[..., first + 1] * cos[i] + x[..., first] * sin[i]
    return y


class Line:
    """One sequence, entry by entry."""

    def __init__(self, numbers: Numbers, length: int, weights: Any, angles: Any, bias: np.ndarray):
        self.q, self.head_weights = numbers.f32(length, HEADS * SIZE), numbers.f32(length, HEADS)
        self.k, self.gate = numbers.f32(length, 2 * SIZE), numbers.f32(length, 2 * SIZE)
        self.weights, self.angles, self.bias = weights, angles, bias

    def entry(self, n: int) -> np.ndarray:
        pooled = np.zeros(SIZE, np.float32)
        for c in range(SIZE):
            values, logits = [], []
            for window, channel in ((n - 1, c), (n, SIZE + c)):
                for slot in range(RATIO if window >= 0 else 0):
                    token = window * RATIO + slot
                    values.append(self.k[token, channel])
                    logits.append(self.gate[token, channel] + self.bias[slot, channel])
            parts = np.exp(np.array(logits))
            pooled[c] = (parts / parts.sum() * values).sum()
        return turn_pairs(norm(pooled, self.weights[1]), *(table[n * RATIO] for table in self.angles))

    def chosen(self, position: int) -> list[int]:
        q = norm(self.q[position].reshape(HEADS, SIZE), self.weights[0])
        q = turn_pairs(q, *(table[position] for table in self.angles))
        scores = []
        for n in range((position + 1) // RATIO):
            entry = self.entry(n)
            scores.append(sum(max(q[h] @ entry, 0) * self.head_weights[position, h] for h in range(HEADS)))
        return sorted(range(len(scores)), key=lambda n: -scores[n])[:COUNT]

    def kept(self, length: int) -> slice:
        """The tokens that the entries after `length` tokens need."""
        return slice(max(length // RATIO - 1, 0) * RATIO, length)


def lines(lengths: list[int]) -> tuple[list[Line], Any, Any, np.ndarray]:
    numbers = Numbers()
    weights, angles = (numbers.f32(SIZE), numbers.f32(SIZE)), (numbers.f32(30, 3), numbers.f32(30, 3))
    bias = numbers.f32(RATIO, 2 * SIZE)
    return [Line(numbers, n, weights, angles, bias) for n in lengths], weights, angles, bias


@pytest.mark.parametrize("shared", [False, True])
def test_compressing_indexer(shared):
    """A sequence in calls of several lengths, each from the states that the one before gave."""
    batch, length = 2, 27
    whole, weights, angles, bias = lines([length] * batch)
    entries = np.zeros((batch, 7 if shared else 0, SIZE), np.float32)
    buffer = np.zeros((2, batch, 0, 2 * SIZE), np.float32)
    begin = 0
    for count in (3, 2, 11, 1, 4, 6):
        end = begin + count
        q, k, gate, head_weights = (
            np.stack([getattr(line, name)[begin:end] for line in whole]) for name in ("q", "k", "gate", "head_weights")
        )
        positions = np.tile(np.arange(begin, end), (batch, 1))
        past = of("int32", [begin // RATIO]) if shared else None
        selected, entries, buffer = call(
            "SparseAttentionIndexer", 1, q, k, *weights, *angles, None, entries, gate, bias, head_weights, positions,
            past, buffer, outputs=3, **COMPRESSED,
        )  # fmt: skip
        assert entries.shape[1] == (7 if shared else end // RATIO)
        for b, line in enumerate(whole):
            for n in range(end // RATIO):
                np.testing.assert_allclose(entries[b, n], line.entry(n), rtol=1e-4, atol=1e-5)
            same(buffer[:, b], np.stack([line.k[line.kept(end)], line.gate[line.kept(end)]]))
            for i in range(count):
                chosen = line.chosen(begin + i)
                assert selected[b, i].tolist() == chosen + [-1] * (COUNT - len(chosen))
        begin = end


def test_packed_compressing_indexer():
    whole, weights, angles, bias = lines([21, 9])
    states = [
        np.zeros((2, 5, SIZE), np.float32), *(np.zeros((2, 7, 2 * SIZE), np.float32) for _ in range(2)),
        np.zeros((2, 2), np.int32),
    ]  # fmt: skip
    done = [0, 0]
    for parts in ((9, 2), (3, 0), (0, 0), (9, 6), (0, 1)):
        ends = [n + more for n, more in zip(done, parts, strict=True)]
        q, k, gate, head_weights = (
            np.concatenate([getattr(line, name)[slice(*r)] for line, *r in zip(whole, done, ends, strict=True)])
            for name in ("q", "k", "gate", "head_weights")
        )
        positions = np.concatenate([np.arange(*r) for r in zip(done, ends, strict=True)])
        given = [
            q, k, *weights, *angles, of("int32", [0, parts[0], sum(parts)]), of("int32", done), gate, bias,
            head_weights, positions,
        ]  # fmt: skip
        options = {**COMPRESSED, "state_capacity": 5, "outputs": 9}
        before = states
        selected, counts, *states, _, _, status = call("PackedSparseAttentionIndexer", 1, *given, *states, **options)
        same(status, np.zeros(2, np.int32))
        row = 0
        for s, line in enumerate(whole):
            assert states[3][s].tolist() == [ends[s] // RATIO, len(line.k[line.kept(ends[s])])]
            kept = states[3][s, 1]
            same(states[1][s, :kept], line.k[line.kept(ends[s])])
            same(states[2][s, :kept], line.gate[line.kept(ends[s])])
            for position in range(done[s], ends[s]):
                chosen = line.chosen(position)
                assert counts[row] == len(chosen)
                assert selected[row].tolist() == chosen + [-1] * (COUNT - len(chosen))
                row += 1
        done = ends
    wrong = before[3] + of("int32", [[9, 0], [0, 0]])
    *_, lengths, _, _, status = call(
        "PackedSparseAttentionIndexer", 1, *given, *before[:3], wrong, **{**options, "outputs": 9}
    )
    same(status, of("int32", [1, 0]))
    assert lengths[0].tolist() == [5, 5]
    selected, _, *states, _, _, status = call(
        "PackedSparseAttentionIndexer", 1, *given, *[x.copy() for x in before[:3]], of("int32", [[5, 5], [5, 7]]),
        **options,
    )  # fmt: skip
    same(status, of("int32", [0, 2]))
    same(selected, of("int32", [[-1] * COUNT]))


def test_weights_that_have_no_sum_give_nothing():
    """Where all the gates of a channel are -inf, or one is inf, its mean is 0."""
    [line], weights, _, bias = lines([RATIO])
    gate = line.gate[None].copy()
    gate[0, :, SIZE] = -np.inf
    gate[0, 1, SIZE + 1] = np.inf
    unturned = np.ones((30, 3), np.float32), np.zeros((30, 3), np.float32)
    _, entries, _ = call(
        "SparseAttentionIndexer", 1, line.q[None], line.k[None], *weights, *unturned, None,
        np.zeros((1, 0, SIZE), np.float32), gate, bias, line.head_weights[None], np.arange(RATIO)[None], None,
        np.zeros((2, 1, 0, 2 * SIZE), np.float32), outputs=3, **COMPRESSED,
    )  # fmt: skip
    assert entries[0, 0, :2].tolist() == [0, 0]
    assert np.isfinite(entries).all()
    assert (entries[0, 0, 2:] != 0).all()


@pytest.mark.parametrize("mode", [0, 1])
@pytest.mark.parametrize("policy", ["default", "hold", "advance"])
def test_a_selection_that_others_made(mode, policy):
    """Rows have the width that all selections share; one that is reused is handed on, with the states as they were
    or as they would be."""
    numbers = Numbers()
    weights, angles = (numbers.f32(SIZE), numbers.f32(SIZE)), (numbers.f32(20, 6), numbers.f32(20, 6))
    state, buffer = numbers.f32(2, 5, SIZE), numbers.f32(2, 7, SIZE)
    done, lengths = of("int32", [7, 10]), of("int32", [[1, 3], [2, 2]])
    inputs = [
        numbers.f32(2, HEADS * SIZE), numbers.f32(2, SIZE), *weights, *angles, of("int32", [0, 1, 2]), done, None, None,
        None, None, state, buffer, None, lengths,
    ]  # fmt: skip
    made, rows, status = numbers.ints(0, 9, 2, 14).astype(np.int32), of("int32", [3, 4]), of("int32", [0, 2])
    options = {**OPTIONS, "state_capacity": 5, "outputs": 9}
    alone = call("PackedSparseAttentionIndexer", 1, *inputs, **options)
    shared = call(
        "PackedSparseAttentionIndexer", 1, *inputs, None, None, of("int32", [mode]), made, rows, status,
        indexshare_state_policy=policy, max_output_entries=14, **options,
    )  # fmt: skip
    same(shared[0], made if mode else np.pad(alone[0], ((0, 0), (0, 3)), constant_values=-1))
    same(shared[1], rows if mode else alone[1])
    same(shared[7], status if mode else np.zeros(2, np.int32))
    held = mode and policy != "advance"
    for place, past in ((2, state), (3, buffer), (5, lengths)):
        same(shared[place], past if held else alone[place])
    with pytest.raises(ValueError, match="max_output_entries 10 has no room for 11 entries"):
        call(
            "PackedSparseAttentionIndexer", 1, *inputs, None, None, of("int32", [mode]), made, rows, status,
            max_output_entries=10, **options,
        )  # fmt: skip


def test_what_is_missing_is_said():
    x, w, a = np.zeros((1, 1, 4), np.float32), np.ones(4, np.float32), f32([[1, 1]])
    options = {"domain": MICROSOFT, "compress_ratio": 2}
    given = [x, x, w, w, a, a, None, x[:, :0]]
    with pytest.raises(ValueError, match="the policy csa needs gate, position_bias, head_weights, position_ids, past"):
        call("SparseAttentionIndexer", 1, *given, policy_mode="csa", index_topk=1, **options)
    with pytest.raises(ValueError, match="index_topk is None"):
        call("SparseAttentionIndexer", 1, *given, policy_mode="csa", **options)
    with pytest.raises(ValueError, match="token_budget 3 must be a positive multiple of compress_ratio 2"):
        call("SparseAttentionIndexer", 1, *given, policy_mode="qsa", token_budget=3, **options)
