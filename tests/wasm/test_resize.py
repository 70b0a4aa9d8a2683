"""Separable resampling against two matrix products."""

from __future__ import annotations

import numpy as np
import pytest

SHAPES = [(1, 5, 7, 1), (2, 4, 6, 8), (1, 9, 3, 13), (1, 1, 1, 5)]


@pytest.mark.parametrize(("row_taps", "column_taps"), [(1, 1), (2, 2), (4, 4), (1, 3), (2, 1)])
@pytest.mark.parametrize(("batch", "h", "w", "c"), SHAPES)
@pytest.mark.parametrize(("oh", "ow"), [(1, 1), (6, 11)])
def test_resize(bench, batch, h, w, c, oh, ow, row_taps, column_taps):
    rng = np.random.default_rng(h)
    x = rng.standard_normal((batch, h, w, c)).astype(np.float32)

    def axis(size: int, output: int, taps: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        indices = rng.integers(0, size, (output, taps), dtype=np.int32)
        weights = rng.random((output, taps), np.float32) if taps > 1 else np.ones((output, 1), np.float32)
        matrix = np.zeros((output, size))
        for o in range(output):
            np.add.at(matrix[o], indices[o], weights[o])
        return indices, weights, matrix

    row_indices, row_weights, rows = axis(h, oh, row_taps)
    column_indices, column_weights, columns = axis(w, ow, column_taps)
    y = bench.out((batch, oh, ow, c))
    bench.call(
        "resize", units=batch * oh, scratch=4 * w * max(c, 8), x=bench.put(x), y=y, batch=batch, h=h, w=w, c=c, oh=oh,
        ow=ow, row_taps=row_taps, row_indices=bench.put(row_indices), row_weights=bench.put(row_weights),
        column_taps=column_taps, column_indices=bench.put(column_indices), column_weights=bench.put(column_weights),
        column_repeat=0,
    )  # fmt: skip
    expected = np.einsum("yh,nhwc,xw->nyxc", rows, x, columns)
    np.testing.assert_allclose(bench.get(y), expected, rtol=1e-5, atol=1e-5)


def test_nearest_moves_any_value(bench):
    x = np.array([np.nan, np.inf, -np.inf, -0.0, 1e-42, 3], np.float32).reshape(1, 2, 3, 1)
    rows, columns = np.array([0, 0, 1], np.int32), np.array([2, 1, 0, 0], np.int32)
    y = bench.out((1, 3, 4, 1))
    bench.call(
        "resize", units=3, x=bench.put(x), y=y, batch=1, h=2, w=3, c=1, oh=3, ow=4, row_taps=1,
        row_indices=bench.put(rows), row_weights=bench.put(np.ones(3, np.float32)), column_taps=1,
        column_indices=bench.put(columns), column_weights=bench.put(np.ones(4, np.float32)),
        column_repeat=0,
    )  # fmt: skip
    assert bench.get(y).tobytes() == x[:, rows][:, :, columns].tobytes()


@pytest.mark.parametrize("row_taps", [1, 2])
@pytest.mark.parametrize("repeat", [1, 2, 3])
@pytest.mark.parametrize(("batch", "h", "w", "c"), [(3, 4, 7, 1), (1, 3, 16, 1), (2, 3, 5, 6), (1, 2, 33, 1)])
def test_columns_that_are_repeated(bench, batch, h, w, c, repeat, row_taps):
    rng = np.random.default_rng(w)
    x = rng.standard_normal((batch, h, w, c)).astype(np.float32)
    rows = np.repeat(np.arange(h, dtype=np.int32), 2)[:, None].repeat(row_taps, 1)
    columns, ow = np.repeat(np.arange(w, dtype=np.int32), repeat), w * repeat
    y = bench.out((batch, 2 * h, ow, c))
    bench.call(
        "resize", units=batch * 2 * h, scratch=4 * w * max(c, 8), x=bench.put(x), y=y, batch=batch, h=h, w=w, c=c,
        oh=2 * h, ow=ow, row_taps=row_taps, row_indices=bench.put(rows),
        row_weights=bench.put(np.full(rows.shape, 1 / row_taps, np.float32)), column_taps=1,
        column_indices=bench.put(columns), column_weights=bench.put(np.ones(ow, np.float32)), column_repeat=repeat,
    )  # fmt: skip
    np.testing.assert_array_equal(bench.get(y), x.repeat(2, 1).repeat(repeat, 2))
