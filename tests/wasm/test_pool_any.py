"""Pooling in any number of dimensions against plain loops."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest

from onnxlet_wasm.engine import f32

from .workbench import Workbench

# sizes, kernel, strides, dilations, begin, end
WINDOWS = [
    ((9,), (3,), (2,), (1,), (1,), (0,)),
    ((5, 6), (2, 3), (1, 2), (2, 1), (1, 0), (0, 2)),
    ((4, 5, 3), (2, 2, 2), (1, 2, 1), (1, 1, 2), (1, 0, 1), (0, 1, 1)),
    ((3, 3, 4, 3), (2, 1, 2, 3), (1, 2, 2, 1), (1, 1, 1, 1), (0, 0, 1, 1), (1, 0, 0, 1)),
    ((1, 1), (1, 1), (1, 1), (1, 1), (0, 0), (0, 0)),
]


def pool(bench: Workbench, op: int, x: np.ndarray, window, *, include_pad=0, power=2.0, by_columns=0, indices=False):
    sizes, kernel, strides, dilations, begin, end = window
    outputs = [
        (n + a + b - (k - 1) * d - 1) // s + 1
        for n, k, s, d, a, b in zip(sizes, kernel, strides, dilations, begin, end, strict=True)
    ]
    y = bench.out((x.shape[0], *outputs))
    numbers = bench.out((x.shape[0], *outputs), np.int64) if indices else 0
    table = np.array([*sizes, *outputs, *kernel, *strides, *dilations, *begin, *end], np.int64)
    bench.call("pool_any", units=x.shape[0] * int(np.prod(outputs)), op=op, x=bench.put(x), y=y, indices=numbers,
               planes=x.shape[0], rank=len(sizes), window=bench.put(table), include_pad=include_pad, power=f32(power),
               by_columns=by_columns)  # fmt: skip
    return bench.get(y), bench.get(numbers) if indices else None, outputs


def taps(window, place: Sequence[int]):
    """For each tap of the window at `place`: its position, and whether that is inside, and inside of the padding."""
    sizes, kernel, strides, dilations, begin, end = window
    for tap in itertools.product(*map(range, kernel)):
        at = [p * s + t * d - a for p, s, t, d, a in zip(place, strides, tap, dilations, begin, strict=True)]
        inside = all(0 <= v < n for v, n in zip(at, sizes, strict=True))
        padded = all(-a <= v < n + b for v, n, a, b in zip(at, sizes, begin, end, strict=True))
        yield tuple(at), inside, padded


@pytest.mark.parametrize("window", WINDOWS, ids=lambda w: "x".join(map(str, w[0])))
@pytest.mark.parametrize("by_columns", [0, 1])
def test_maximum(bench: Workbench, window, by_columns) -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(-9, 9, (2, *window[0])).astype(np.float32)
    x[0].flat[0] = np.nan
    y, indices, outputs = pool(bench, 0, x, window, by_columns=by_columns, indices=True)
    assert indices is not None
    order = "F" if by_columns else "C"
    for plane in range(2):
        for place in np.ndindex(*outputs):
            at = [p for p, inside, _ in taps(window, place) if inside]
            found = np.array([x[plane][p] for p in at])
            best = int(np.argmax(found))  # NaN is the greatest
            np.testing.assert_array_equal(y[plane][place], found[best])
            number = np.ravel_multi_index(at[best], window[0], order=order)
            assert indices[plane][place] == number + plane * x[0].size
    np.testing.assert_array_equal(pool(bench, 0, x, window)[0], y)


@pytest.mark.parametrize("window", WINDOWS, ids=lambda w: "x".join(map(str, w[0])))
@pytest.mark.parametrize("include_pad", [0, 1])
def test_mean(bench: Workbench, window, include_pad) -> None:
    x = np.random.default_rng(0).standard_normal((3, *window[0])).astype(np.float32)
    y, _, outputs = pool(bench, 1, x, window, include_pad=include_pad)
    for plane in range(3):
        for place in np.ndindex(*outputs):
            found = list(taps(window, place))
            total = sum(float(x[plane][p]) for p, inside, _ in found if inside)
            count = sum(padded if include_pad else inside for _, inside, padded in found)
            np.testing.assert_allclose(y[plane][place], total / count, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("power", [1.0, 2.0, 3.0])
@pytest.mark.parametrize("window", WINDOWS[:3], ids=lambda w: "x".join(map(str, w[0])))
def test_powers(bench: Workbench, window, power) -> None:
    x = np.random.default_rng(0).standard_normal((2, *window[0])).astype(np.float32)
    y, _, outputs = pool(bench, 2, x, window, power=power)
    for place in np.ndindex(*outputs):
        total = sum(abs(float(x[1][p])) ** power for p, inside, _ in taps(window, place) if inside)
        np.testing.assert_allclose(y[1][place], total ** (1 / power), rtol=1e-5)
