"""Attention against its formula in float64."""

from __future__ import annotations

import numpy as np
import pytest

from onnxlet_wasm.engine import f32

from .workbench import Workbench


def random(*shape: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def strides(view: np.ndarray) -> list[int]:
    """Strides in elements."""
    return [s // 4 for s in view.strides]


def attention(
    bench: Workbench, q, k, v, scale: float, mask=None, causal: int | None = None, heads_last=False, *, unseen: int = 0,
    span: int | None = None,
) -> np.ndarray:  # fmt: skip
    """Operands are [batch, heads, rows, columns]; `heads_last` says that they lie in memory as [batch, rows, heads,
    columns]. A boolean mask says what is kept. `causal` is the offset."""
    batch, heads, queries, depth = q.shape
    keys, value_depth = v.shape[2:]
    fields: dict[str, int] = {}
    for name, array in (("q", q), ("k", k), ("v", v)):
        stored = np.ascontiguousarray(array.swapaxes(1, 2)).swapaxes(1, 2) if heads_last else array
        fields[name] = bench.put(stored.swapaxes(1, 2) if heads_last else stored)
        fields |= dict(zip((f"{name}_batch", f"{name}_head", f"{name}_row"), strides(stored)[:3], strict=True))
    y = bench.out((batch, queries, heads, value_depth) if heads_last else (batch, heads, queries, value_depth))
    y_view = np.empty(
        (batch, queries, heads, value_depth) if heads_last else (batch, heads, queries, value_depth), np.float32
    )
    y_view = y_view.swapaxes(1, 2) if heads_last else y_view
    fields |= dict(zip(("y_batch", "y_head", "y_row"), strides(y_view)[:3], strict=True))
    fields |= {f"{name}{part}": 0 for name in ("bias", "keep") for part in ("", "_batch", "_head", "_row")}
    if mask is not None:
        name = "keep" if mask.dtype == bool else "bias"
        steps = [s // mask.itemsize for s in np.broadcast_to(mask, (batch, heads, queries, keys)).strides[:3]]
        fields[name] = bench.put(mask)
        fields |= dict(zip((f"{name}_batch", f"{name}_head", f"{name}_row"), steps, strict=True))
    span = span or queries
    bench.call(
        "attention",
        units=batch * heads * -(-queries // span),
        scratch=4 * (-(-keys // 8) * 8 * (depth + 24) + keys * -(-value_depth // 8) * 8),
        y=y,
        heads=heads,
        group=heads // k.shape[1],
        queries=queries,
        keys=keys,
        depth=depth,
        value_depth=value_depth,
        scale=f32(scale),
        causal=int(causal is not None),
        causal_offset=causal or 0,
        fill=f32(-np.inf),
        unseen=unseen,
        span=span,
        **fields,
    )
    result = bench.get(y)
    return result.swapaxes(1, 2) if heads_last else result


def expected(q, k, v, scale: float, mask=None, causal: int | None = None) -> np.ndarray:
    group = q.shape[1] // k.shape[1]
    q, k, v = (x.astype(np.float64) for x in (q, np.repeat(k, group, 1), np.repeat(v, group, 1)))
    scores = q @ k.swapaxes(-1, -2) * scale
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    if causal is not None:
        queries, keys = scores.shape[-2:]
        scores = np.where(np.arange(keys) <= np.arange(queries)[:, None] + causal, scores, -np.inf)
    with np.errstate(invalid="ignore"):
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        return weights / weights.sum(-1, keepdims=True) @ v


SIZES = [
    (1, 1, 1, 1, 1, 1),
    (2, 3, 5, 7, 8, 8),
    (1, 2, 128, 128, 32, 32),
    (1, 2, 49, 65, 13, 21),
    (2, 2, 1, 300, 64, 64),
    (1, 1, 3, 9, 20, 33),
]
"""batch, heads, queries, keys, depth, value depth"""


def operands(batch: int, heads: int, queries: int, keys: int, depth: int, value_depth: int, group: int = 1):
    shared = heads // group
    return (
        random(batch, heads, queries, depth, seed=1),
        random(batch, shared, keys, depth, seed=2),
        random(batch, shared, keys, value_depth, seed=3),
    )


@pytest.mark.parametrize("heads_last", [False, True])
@pytest.mark.parametrize("size", SIZES)
def test_attention(bench: Workbench, size: tuple[int, ...], heads_last: bool) -> None:
    q, k, v = operands(*size)
    scale = size[4] ** -0.5
    result = attention(bench, q, k, v, scale, heads_last=heads_last)
    np.testing.assert_allclose(result, expected(q, k, v, scale), rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("shape", ["full", "keys", "heads", "rows"])
@pytest.mark.parametrize("size", SIZES)
def test_mask(bench: Workbench, size: tuple[int, ...], shape: str) -> None:
    q, k, v = operands(*size)
    batch, heads, queries, keys = size[:4]
    mask_shape = {
        "full": (batch, heads, queries, keys),
        "keys": (batch, 1, 1, keys),
        "heads": (1, heads, 1, keys),
        "rows": (queries, keys),
    }[shape]
    mask = np.where(random(*mask_shape, seed=4) > 1, np.float32(-1e4), np.float32(0)).astype(np.float32)
    np.testing.assert_allclose(attention(bench, q, k, v, 0.3, mask), expected(q, k, v, 0.3, mask), rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("shape", ["full", "keys", "rows"])
@pytest.mark.parametrize("size", SIZES)
def test_mask_of_what_is_kept(bench: Workbench, size: tuple[int, ...], shape: str) -> None:
    q, k, v = operands(*size)
    batch, heads, queries, keys = size[:4]
    mask_shape = {"full": (batch, heads, queries, keys), "keys": (batch, 1, 1, keys), "rows": (queries, keys)}[shape]
    mask = random(*mask_shape, seed=4) < 0.7
    mask[..., 0] = True
    np.testing.assert_allclose(attention(bench, q, k, v, 0.3, mask), expected(q, k, v, 0.3, mask), rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("span", [1, 3, 30, 64])
def test_queries_in_spans(bench: Workbench, span: int) -> None:
    q, k, v = operands(1, 2, 65, 40, 16, 24)
    mask = random(1, 2, 65, 40, seed=4)
    result = attention(bench, q, k, v, 0.25, mask, causal=1, span=span)
    np.testing.assert_allclose(result, expected(q, k, v, 0.25, mask, causal=1), rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("offset", [0, 2])
@pytest.mark.parametrize("size", SIZES)
def test_causal(bench: Workbench, size: tuple[int, ...], offset: int) -> None:
    q, k, v = operands(*size)
    result = attention(bench, q, k, v, 0.2, causal=offset)
    np.testing.assert_allclose(result, expected(q, k, v, 0.2, causal=offset), rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("queries", [2, 30])
def test_shared_keys_and_values(bench: Workbench, queries: int) -> None:
    q, k, v = operands(2, 6, queries, 11, 16, 24, group=3)
    np.testing.assert_allclose(attention(bench, q, k, v, 0.25), expected(q, k, v, 0.25), rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("queries", [2, 7])
def test_rows_that_see_nothing_are_nan(bench: Workbench, queries: int) -> None:
    q, k, v = operands(1, 1, queries, 9, 8, 8)
    mask = np.zeros((queries, 9), np.float32)
    mask[1] = -np.inf
    result = attention(bench, q, k, v, 1.0, mask)
    assert np.isnan(result[0, 0, 1]).all()
    np.testing.assert_allclose(result[0, 0, 0], expected(q, k, v, 1.0)[0, 0, 0], rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("queries", [2, 7])
@pytest.mark.parametrize("unseen", [1, 2])
def test_rows_that_see_nothing_are_zero_on_demand(bench: Workbench, queries: int, unseen: int) -> None:
    q, k, v = operands(1, 1, queries, 19, 8, 8)
    mask = np.zeros((queries, 19), np.float32)
    mask[1] = -np.inf
    q[0, 0, 0, 3] = np.nan  # such a row stays NaN, unless all NaN is to be zero
    result = attention(bench, q, k, v, 1.0, mask, unseen=unseen)[0, 0]
    assert not result[1].any()
    assert not result[0].any() if unseen == 2 else np.isnan(result[0]).all()
    np.testing.assert_allclose(result[2:], expected(q, k, v, 1.0)[0, 0, 2:], rtol=1e-5, atol=2e-6)


def test_large_scores(bench: Workbench) -> None:
    q, k, v = operands(1, 1, 6, 10, 8, 8)
    q *= 1000
    np.testing.assert_allclose(attention(bench, q, k, v, 1.0), expected(q, k, v, 1.0), rtol=1e-3, atol=1e-3)
