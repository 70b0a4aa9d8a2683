"""Attention over paged caches and selected keys, worked out here token by token and head by head in float64."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from onnxlet.errors import UnsupportedError
from tests.core.ops.calling import call, of, same
from tests.core.ops.oracle import Numbers

MICROSOFT = "com.microsoft"
HEADS, KV, SIZE, BLOCK = 4, 2, 8, 4
OPTIONS: dict[str, Any] = {"domain": MICROSOFT, "num_heads": HEADS, "kv_num_heads": KV}
TABLE = of("int32", [[3, 0, 5], [1, 6, 2], [4, 7, 8]])
EDGES, PAST = of("int32", [0, 1, 4, 6]), of("int32", [6, 0, 3])
POSITIONS = [[6], [0, 1, 2], [3, 4]]
CLOSE: dict[str, Any] = {"rtol": 5e-3, "atol": 5e-3}


def half(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float16)


class Setting:
    """New tokens, caches, and what the caches hold in the end by definition."""

    def __init__(self, seed: int = 0):
        numbers = Numbers(seed)
        self.numbers = numbers
        self.q, self.k, self.v = (
            half(numbers.f32(6, HEADS * SIZE)),
            half(numbers.f32(6, KV * SIZE)),
            half(numbers.f32(6, KV * SIZE)),
        )
        self.caches = half(numbers.f32(9, BLOCK, KV, SIZE)), half(numbers.f32(9, BLOCK, KV, SIZE))
        self.sink = half(numbers.f32(HEADS))

    def inputs(self) -> list[Any]:
        return [self.q, self.k, self.v, *self.caches, EDGES, PAST, TABLE]

    def lines(self, keys: Any = None, values: Any = None) -> list[tuple[np.ndarray, np.ndarray]]:
        """Keys and values (length, heads, size) of each sequence, the new ones at the end."""
        keys = self.k if keys is None else keys
        values = self.v if values is None else values
        result = []
        for s, past in enumerate(PAST):
            own = slice(EDGES[s], EDGES[s + 1])
            line = []
            for cache, new in zip(self.caches, (keys, values), strict=True):
                before = [cache[TABLE[s, p // BLOCK], p % BLOCK] for p in range(past)]
                rows = np.reshape(before, (past, KV, SIZE)).astype(np.float64)
                line.append(np.concatenate([rows, new[own].reshape(-1, KV, SIZE)]))
            result.append((line[0], line[1]))
        return result


def attended(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float, sink: float | None = None, cap: float = 0
) -> Any:
    """One query and head over keys and values (keys, size)."""
    scores = k @ q * scale
    if cap:
        scores = cap * np.tanh(scores / cap)
    weights = np.exp(scores)
    total = weights.sum() + (0 if sink is None else np.exp(sink))
    return weights @ v / total if total else np.zeros(v.shape[1])


def expected(
    q: np.ndarray, lines: Any, seen: Any, sink: Any = None, cap: float = 0, scale: float = SIZE**-0.5
) -> np.ndarray:
    """`seen(sequence, token, position, length)` are the keys that a query attends to."""
    y = np.zeros((6, HEADS, SIZE))
    token = 0
    for s, places in enumerate(POSITIONS):
        for position in places:
            for h in range(HEADS):
                k, v = (line[:, h * KV // HEADS] for line in lines[s])
                chosen = seen(s, token, position, len(k))
                one = None if sink is None else float(sink[h])
                y[token, h] = attended(
                    q.reshape(6, HEADS, SIZE)[token, h].astype(float), k[chosen], v[chosen], scale, one, cap
                )
            token += 1
    return y.reshape(6, -1)


def causal(_: int, __: int, position: int, length: int) -> list[int]:
    return list(range(position + 1))


@pytest.mark.parametrize(
    ("attributes", "seen"),
    [
        ({}, causal),
        ({"local_window_size": 2}, lambda s, t, p, n: list(range(max(0, p - 1), p + 1))),
        ({"is_causal": 0}, lambda s, t, p, n: list(range(n))),
        ({"softcap": 1.5, "scale": 0.2}, causal),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_paged_attention(attributes, seen, packed):
    setting = Setting()
    inputs = setting.inputs()
    if packed:
        inputs[:3] = [np.concatenate(inputs[:3], axis=1), None, None]
    y, keys, values = call("PagedAttention", 1, *inputs, outputs=3, **OPTIONS, **attributes)
    cap, scale = attributes.get("softcap", 0), attributes.get("scale", SIZE**-0.5)
    lines = setting.lines()
    np.testing.assert_allclose(y, expected(setting.q, lines, seen, None, cap, scale), **CLOSE)
    for cache, got, part in zip(setting.caches, (keys, values), (0, 1), strict=True):
        wanted = cache.copy()
        for s, places in enumerate(POSITIONS):
            for p in places:
                wanted[TABLE[s, p // BLOCK], p % BLOCK] = lines[s][part][p]
        same(got, wanted)


def test_sinks_slots_and_pages_that_are_not_there():
    setting = Setting()
    more = [None, None, None, setting.sink]
    y = call("PagedAttention", 1, *setting.inputs(), *more, **OPTIONS)
    np.testing.assert_allclose(y, expected(setting.q, setting.lines(), causal, setting.sink), **CLOSE)
    # The first token is not written, and so the key at its place is the one that was there.
    slots = of("int32", [-1, 4, 5, 6, 19, 28])
    y, keys, _ = call("PagedAttention", 1, *setting.inputs(), None, None, slots, outputs=3, **OPTIONS)
    same(keys[TABLE[0, 1], 2], setting.caches[0][TABLE[0, 1], 2])
    lines = setting.lines()
    for line, cache in zip(lines[0], setting.caches, strict=True):
        line[6] = cache[TABLE[0, 1], 2]
    np.testing.assert_allclose(y, expected(setting.q, lines, causal), **CLOSE)
    inputs = setting.inputs()
    inputs[7] = np.where(TABLE == 3, -1, TABLE).astype(np.int32)
    y = call("PagedAttention", 1, *inputs, **OPTIONS)
    near = lambda s, t, p, n: [i for i in range(p + 1) if s or i >= BLOCK]  # noqa: E731
    np.testing.assert_allclose(y, expected(setting.q, setting.lines(), near), **CLOSE)


def test_norms_and_rotation_of_a_part():
    setting = Setting()
    numbers = setting.numbers
    weights, angles = (
        (half(numbers.f32(SIZE)), half(numbers.f32(SIZE))),
        (half(numbers.f32(16, 2)), half(numbers.f32(16, 2))),
    )
    extra = [*angles, None, None, *weights]
    y = call(
        "PagedAttention", 1, *setting.inputs(), *extra, do_rotary=1, rotary_offset=3, qk_norm_epsilon=0.1, **OPTIONS
    )
    flat = np.concatenate(POSITIONS)

    def prepared(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
        heads = x.astype(np.float64).reshape(6, -1, SIZE)
        heads = heads / np.sqrt((heads**2).mean(-1, keepdims=True) + 0.1) * weight
        cos, sin = (a[flat][:, None].astype(np.float64) for a in angles)
        a, b = heads[..., 3:5].copy(), heads[..., 5:7].copy()
        heads[..., 3:5], heads[..., 5:7] = cos * a - sin * b, sin * a + cos * b
        return heads.reshape(6, -1)

    lines = setting.lines(prepared(setting.k, weights[1]))
    np.testing.assert_allclose(y, expected(prepared(setting.q, weights[0]), lines, causal), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("kind", ["int8", "int4", "float4e2m1", "float8"])
@pytest.mark.parametrize("quant_type", ["PER_TENSOR", "PER_CHANNEL"])
def test_quantised_pages(kind, quant_type):
    """As from a cache that holds what the codes stand for, with new keys rounded to them."""
    setting = Setting()
    numbers = setting.numbers
    scale = (0.1 + numbers.generator.random((1,) if quant_type == "PER_TENSOR" else (KV, 1, SIZE))).astype(np.float32)
    levels = {
        "int8": np.arange(-128, 128.0),
        "int4": np.append(np.arange(8.0), np.arange(-8.0, 0)),
        "float4e2m1": np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6]),
        "float8": np.arange(256).astype(np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float64),
    }[kind]
    per_channel = np.broadcast_to(scale.reshape(-1, scale.shape[-1]) if scale.size > 1 else scale, (KV, SIZE))
    caches = []
    for i, plain in enumerate(setting.caches):
        codes = np.random.default_rng(i).integers(0, 16 if len(levels) == 16 else 100, plain.shape)
        if kind == "int8":
            caches.append((codes - 50).astype(np.int8))
            numbers_of = codes - 50.0
        elif kind == "float8":
            caches.append(codes.astype(np.uint8).view(ml_dtypes.float8_e4m3fn))
            numbers_of = levels[codes]
        else:
            caches.append((codes[..., ::2] | codes[..., 1::2] << 4).astype(np.uint8))
            numbers_of = levels[codes]
        plain[...] = 0
        setting.caches = (*setting.caches[:i], numbers_of * per_channel, *setting.caches[i + 1 :])  # type: ignore[assignment]
    finite = levels[np.isfinite(levels)]

    def rounded(x: np.ndarray) -> np.ndarray:
        """To the nearest level; none of these is in the middle between two."""
        y = x.astype(np.float64).reshape(6, KV, SIZE) / per_channel
        return (finite[np.abs(y[..., None] - finite).argmin(axis=-1)] * per_channel).reshape(6, -1)

    name = kind if kind in ("int4", "float4e2m1") else ""
    inputs = [setting.q, setting.k, setting.v, *caches, EDGES, PAST, TABLE, *[None] * 6, scale, scale]
    y, keys, _ = call(
        "PagedAttention", 1, *inputs, outputs=3, k_quant_type=quant_type, v_quant_type=quant_type, k_cache_dtype=name,
        v_cache_dtype=name, **OPTIONS,
    )  # fmt: skip
    assert keys.dtype == caches[0].dtype
    assert keys.shape == caches[0].shape
    lines = setting.lines(rounded(setting.k), rounded(setting.v))
    np.testing.assert_allclose(y, expected(setting.q, lines, causal), rtol=2e-2, atol=2e-2)


def test_latent_caches():
    """Values are the first elements of the keys, of which all heads share one."""
    numbers = Numbers()
    q, k, cache = half(numbers.f32(6, HEADS * SIZE)), half(numbers.f32(6, SIZE)), half(numbers.f32(9, BLOCK, 1, SIZE))
    y, keys = call(
        "PagedAttention", 1, q, k, None, cache, None, EDGES, PAST, TABLE, outputs=2, kv_cache_layout="LATENT",
        v_head_size=5, scale=0.3, domain=MICROSOFT, num_heads=HEADS, kv_num_heads=1,
    )  # fmt: skip
    token = 0
    for s, places in enumerate(POSITIONS):
        line = np.stack([keys[TABLE[s, p // BLOCK], p % BLOCK, 0] for p in range(places[-1] + 1)]).astype(np.float64)
        for p in places:
            same(keys[TABLE[s, p // BLOCK], p % BLOCK, 0], k[token])
            for h in range(HEADS):
                own = q.reshape(6, HEADS, SIZE)[token, h].astype(np.float64)
                wanted = attended(own, line[: p + 1], line[: p + 1, :5], 0.3)
                np.testing.assert_allclose(y.reshape(6, HEADS, 5)[token, h], wanted, **CLOSE)
            token += 1
    with pytest.raises(ValueError, match="LATENT is for a cache of keys alone"):
        call("PagedAttention", 1, q, k, None, cache, cache, EDGES, PAST, TABLE, kv_cache_layout="LATENT", **OPTIONS)


INDICES = of("int32", [[0, 5, 6], [0, -1, -1], [1, 0, -1], [2, 0, -1], [3, 1, -1], [0, 4, 2]])
COUNTS = of("int32", [3, 1, 2, 2, 2, 1])


def selected(_: int, token: int, position: int, __: int) -> list[int]:
    return [i for i in INDICES[token, : COUNTS[token]] if i <= position]


def test_selected_keys():
    setting = Setting()
    y = call("SparsePagedAttention", 1, *setting.inputs(), None, INDICES, COUNTS, **OPTIONS)
    np.testing.assert_allclose(y, expected(setting.q, setting.lines(), selected), **CLOSE)


@pytest.mark.parametrize("mode", ["selected_only", "local_plus_selected"])
@pytest.mark.parametrize("shared", [False, True])
def test_selected_keys_of_another_cache(mode, shared):
    setting = Setting()
    extra = half(setting.numbers.f32(3, 7, KV, SIZE)), half(setting.numbers.f32(3, 7, KV, SIZE))
    lengths = of("int32", [7, 2, 4])
    given = [extra[0], None if shared else extra[1], lengths]
    options = {"attention_mode": mode, "selected_kv_source": "auxiliary", "auxiliary_kv_shared": int(shared)}
    y = call(
        "SparsePagedAttention", 1, *setting.inputs(), None, INDICES, COUNTS, *given, None, None, setting.sink,
        local_window_size=2, **options, **OPTIONS,
    )  # fmt: skip
    lines = []
    for s, (k, v) in enumerate(setting.lines()):
        other = extra[0] if shared else extra[1]
        lines.append((np.concatenate([k, extra[0][s]]), np.concatenate([v, other[s]])))

    def seen(s: int, token: int, position: int, length: int) -> list[int]:
        own = length - 7
        near = range(max(0, position - 1), position + 1) if mode == "local_plus_selected" else ()
        return [*near, *(own + i for i in INDICES[token, : COUNTS[token]] if i < lengths[s])]

    np.testing.assert_allclose(y, expected(setting.q, lines, seen, setting.sink), **CLOSE)
    with pytest.raises(UnsupportedError, match="both local and selected"):
        call(
            "SparsePagedAttention", 1, *setting.inputs(), None, INDICES, COUNTS, attention_mode="local_plus_selected",
            **OPTIONS,
        )  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float32, np.int8])
def test_dynamic_sparse_attention(dtype):
    """Against the same with pages, one sequence of the batch after the other."""
    numbers = Numbers()
    batch, length, total = 2, 3, 9
    q, k, v = numbers.f32(2, 3, HEADS * SIZE), numbers.f32(2, 3, KV * SIZE), numbers.f32(2, 3, KV * SIZE)
    caches = [numbers.f32(batch, KV, total, SIZE) for _ in range(2)]
    scale = (0.02 + numbers.generator.random(KV * SIZE) / 50).astype(np.float32)
    scales = [None, None]
    if dtype == np.int8:
        caches, scales = [numbers.s8(batch, KV, total, SIZE) for _ in range(2)], [scale, scale]
    lengths = of("int32", [8, 5])
    indices, counts = numbers.ints(0, 9, 6, 4, dtype="int32"), of("int32", [1, 2, 3, 4, 1, 2])
    for row in indices:
        row[:] = numbers.generator.permutation(9)[:4]
    sink = numbers.f32(HEADS)
    y, keys, _, status = call(
        "DynamicSparseAttention", 1, q, k, v, *caches, None, None, indices, counts, lengths, of("int32", total),
        *[None] * 5, sink, None, *scales, outputs=4, **OPTIONS,
    )  # fmt: skip
    same(status, np.zeros(1, np.int32))
    per_channel = scale.reshape(KV, 1, SIZE) if dtype == np.int8 else np.float32(1)
    for b in range(batch):
        before = lengths[b] + 1 - length
        line = []
        for cache, new in zip(caches, (k, v), strict=True):
            fresh = new[b].reshape(length, KV, SIZE).swapaxes(0, 1)
            if dtype == np.int8:
                fresh = np.clip(np.rint(fresh / per_channel), -128, 127)
            whole = cache[b].astype(np.float64)
            whole[:, before : before + length] = fresh
            line.append(whole * per_channel)
        same(keys[b], (np.rint(line[0] / per_channel) if dtype == np.int8 else line[0]).astype(dtype))
        for t in range(length):
            row = b * length + t
            chosen = [i for i in indices[row, : counts[row]] if i <= before + t]
            for h in range(HEADS):
                key, value = (x[h * KV // HEADS][chosen] for x in line)
                own = q[b, t].reshape(HEADS, SIZE)[h].astype(np.float64)
                wanted = attended(own, key, value, SIZE**-0.5, float(sink[h]))
                np.testing.assert_allclose(y[b, t].reshape(HEADS, SIZE)[h], wanted, rtol=1e-4, atol=1e-5)


def test_dynamic_sparse_attention_to_another_cache():
    numbers = Numbers()
    q, k, v = numbers.f32(1, 2, HEADS * SIZE), numbers.f32(1, 2, KV * SIZE), numbers.f32(1, 2, KV * SIZE)
    extra = numbers.f32(1, KV, 5, SIZE)
    indices, counts = of("int32", [[4, 1], [0, -1]]), of("int32", [2, 1])
    y = call(
        "DynamicSparseAttention", 1, q, k, v, None, None, extra, None, indices, counts, of("int32", [1]),
        of("int32", 2), attention_mode="local_plus_selected", selected_kv_source="auxiliary", auxiliary_kv_shared=1,
        local_window_size=1, smooth_softmax=1, output_bf16=1, **OPTIONS,
    )  # fmt: skip
    assert y.dtype == ml_dtypes.bfloat16
    for t in range(2):
        for h in range(HEADS):
            kv = h * KV // HEADS
            own = [x[0, t : t + 1].reshape(1, KV, SIZE)[:, kv] for x in (k, v)]
            chosen = extra[0, kv][indices[t, : counts[t]]]
            key, value = np.concatenate([own[0], chosen]), np.concatenate([own[1], chosen])
            wanted = attended(q[0, t].reshape(HEADS, SIZE)[h], key, value, SIZE**-0.5, 0.0)
            np.testing.assert_allclose(y[0, t].astype(float).reshape(HEADS, SIZE)[h], wanted, rtol=2e-2, atol=2e-2)
