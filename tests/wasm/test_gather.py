"""Gathering and scattering by indices against NumPy, and indices outside of their axes."""

from __future__ import annotations

import numpy as np
import pytest

from onnxlet_wasm.engine import Engine

from .workbench import Workbench

DTYPES = ["uint8", "int16", "float32", "float64"]
TYPES = {"float32": 1, "uint8": 2, "int32": 6, "int64": 7, "float64": 11}


def numbers(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    return (np.arange(np.prod(shape, dtype=int)) % 251).reshape(shape).astype(dtype)


def words(bench: Workbench, values) -> int:
    return bench.put(np.array(values, np.int64))


def strides(shape: tuple[int, ...]) -> list[int]:
    """Strides in elements of a contiguous array."""
    return [s for s in np.empty(shape, np.uint8).strides]


class ErrorFlag:
    def __init__(self, bench: Workbench):
        self.engine, self.address = bench.engine, words(bench, [0])

    @property
    def value(self) -> int:
        return int(self.engine.read(self.address, np.int64, (1,))[0])


def gather(bench: Workbench, x: np.ndarray, indices: np.ndarray, axis: int, error: ErrorFlag) -> np.ndarray:
    inner = int(np.prod(x.shape[axis + 1 :], dtype=int)) * x.itemsize
    y = bench.out(x.shape[:axis] + indices.shape + x.shape[axis + 1 :], x.dtype)
    bench.call(
        "gather",
        units=int(np.prod(x.shape[:axis], dtype=int)) * indices.size,
        x=bench.put(x),
        indices=bench.put(indices),
        index_size=indices.itemsize,
        y=y,
        axis=x.shape[axis],
        count=indices.size,
        inner_bytes=inner,
        error=error.address,
    )
    return bench.get(y)


@pytest.mark.parametrize("index_type", ["int32", "int64"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_gather(bench: Workbench, dtype: str, index_type: str) -> None:
    error = ErrorFlag(bench)
    x = numbers((3, 5, 4, 7), dtype)
    for axis in range(4):
        n = x.shape[axis]
        for indices in ([0], [n - 1, -n, 1, -1], [[0, 1], [2, 1]], 1, []):
            indices = np.array(indices, index_type)
            np.testing.assert_array_equal(gather(bench, x, indices, axis, error), np.take(x, indices, axis))
    assert error.value == 0


def test_gather_of_long_rows(bench: Workbench) -> None:
    x = numbers((9, 1000), "float32")
    indices = np.array([3, 3, 8, 0])
    np.testing.assert_array_equal(gather(bench, x, indices, 0, ErrorFlag(bench)), x[indices])


@pytest.mark.parametrize("bad", [5, -6, 2**31 - 1, -(2**31)])
def test_a_bad_index_is_reported_and_not_read(bench: Workbench, bad: int) -> None:
    error = ErrorFlag(bench)
    gather(bench, numbers((5, 3), "float32"), np.array([0, 1, bad, 2]), 0, error)
    assert error.value == 3


@pytest.mark.parametrize("index_type", ["int32", "int64"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_gather_elements(bench: Workbench, axis: int, dtype: str, index_type: str) -> None:
    error = ErrorFlag(bench)
    x = numbers((4, 5, 6), dtype)
    shape = [3, 4, 5]
    shape[axis] = 9
    n = x.shape[axis]
    indices = np.random.default_rng(axis).integers(-n, n, shape).astype(index_type)
    x_strides = strides(x.shape)
    axis_stride, x_strides[axis] = x_strides[axis], 0
    y = bench.out(shape, dtype)
    bench.call(
        "gather_elements",
        units=indices.size,
        size=x.itemsize,
        x=bench.put(x),
        indices=bench.put(indices),
        index_size=indices.itemsize,
        y=y,
        rank=3,
        shape=words(bench, shape),
        x_strides=words(bench, x_strides),
        axis=n,
        axis_stride=axis_stride,
        error=error.address,
    )
    part = tuple(slice(None) if d == axis else slice(size) for d, size in enumerate(shape))
    np.testing.assert_array_equal(bench.get(y), np.take_along_axis(x[part], indices.astype(np.int64), axis))
    assert error.value == 0


@pytest.mark.parametrize(("shape", "depth"), [((5,), 1), ((4, 5), 1), ((4, 5), 2), ((2, 3, 4), 2), ((2, 3, 4), 3)])
def test_gather_nd(bench: Workbench, shape: tuple[int, ...], depth: int) -> None:
    error = ErrorFlag(bench)
    x = numbers(shape, "float32")
    rng = np.random.default_rng(0)
    indices = np.stack([rng.integers(-n, n, (2, 3)) for n in shape[:depth]], -1)
    inner = int(np.prod(shape[depth:], dtype=int))
    y = bench.out((2, 3, *shape[depth:]))
    bench.call(
        "gather_nd",
        units=6,
        x=bench.put(x),
        indices=bench.put(indices),
        index_size=8,
        y=y,
        depth=depth,
        dims=words(bench, shape[:depth]),
        strides=words(bench, strides(shape[:depth])),
        inner_bytes=inner * 4,
        batch_tuples=6,
        batch_pieces=0,
        error=error.address,
    )
    np.testing.assert_array_equal(bench.get(y), x[tuple(np.moveaxis(indices, -1, 0))])
    assert error.value == 0


def test_gather_nd_in_batches(bench: Workbench) -> None:
    x = numbers((3, 4, 5, 2), "int64")
    indices = np.random.default_rng(1).integers(0, 4, (3, 6, 2))
    y = bench.out((3, 6, 2), np.int64)
    bench.call(
        "gather_nd",
        units=18,
        x=bench.put(x),
        indices=bench.put(indices),
        index_size=8,
        y=y,
        depth=2,
        dims=words(bench, [4, 5]),
        strides=words(bench, [5, 1]),
        inner_bytes=16,
        batch_tuples=6,
        batch_pieces=20,
        error=ErrorFlag(bench).address,
    )
    wanted = np.stack([x[b][tuple(indices[b].T)] for b in range(3)])
    np.testing.assert_array_equal(bench.get(y), wanted)


SCATTERS = {0: None, 1: np.add, 2: np.multiply, 3: np.maximum, 4: np.minimum}


def scatter_nd(engine: Engine, bench: Workbench, op: int, data, indices, updates, error: ErrorFlag) -> np.ndarray:
    depth = indices.shape[-1]
    inner = int(np.prod(data.shape[depth:], dtype=int))
    y = bench.put(data)
    fields = {
        "op": op,
        "type": TYPES[data.dtype.name],
        "indices": bench.put(indices),
        "index_size": indices.itemsize,
        "updates": bench.put(updates),
        "y": y,
        "tuples": indices.size // depth if depth else 0,
        "depth": depth,
        "dims": words(bench, data.shape[:depth]),
        "strides": words(bench, strides(data.shape)[:depth]),
        "inner": inner,
        "error": error.address,
    }
    engine.call_pieces("scatter_nd", inner, [(0, inner // 2), (inner // 2, inner)], 0, fields)
    return engine.read(y, data.dtype, data.shape)


@pytest.mark.parametrize("op", SCATTERS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_scatter_nd(engine: Engine, bench: Workbench, depth: int, dtype: str, op: int) -> None:
    rng = np.random.default_rng(op)
    data = rng.integers(-5, 5, (4, 5, 6)).astype(dtype)
    indices = np.stack([rng.integers(-n, n, 9) for n in data.shape[:depth]], -1)
    updates = rng.integers(-5, 5, (9, *data.shape[depth:])).astype(dtype)
    wanted, error = data.copy(), ErrorFlag(bench)
    for place, update in zip(indices, updates, strict=True):
        where = tuple(place)
        function = SCATTERS[op]
        wanted[where] = update if function is None else function(wanted[where], update)
    np.testing.assert_array_equal(scatter_nd(engine, bench, op, data, indices, updates, error), wanted)
    assert error.value == 0


def test_scatter_nd_leaves_out_a_bad_index(engine: Engine, bench: Workbench) -> None:
    data, updates, error = numbers((4, 3), "float32"), np.full((2, 3), -1, np.float32), ErrorFlag(bench)
    result = scatter_nd(engine, bench, 0, data, np.array([[4], [1]]), updates, error)
    np.testing.assert_array_equal(result[1], updates[1])
    np.testing.assert_array_equal(result[[0, 2, 3]], data[[0, 2, 3]])
    assert error.value == 1


@pytest.mark.parametrize("op", SCATTERS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "uint8"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_scatter_elements(engine: Engine, bench: Workbench, axis: int, dtype: str, op: int) -> None:
    rng = np.random.default_rng(op)
    data = rng.integers(0, 7, (3, 4, 5)).astype(dtype)
    shape = [2, 3, 4]
    shape[axis] = 8
    n = data.shape[axis]
    indices, updates = rng.integers(-n, n, shape), rng.integers(0, 7, shape).astype(dtype)
    y_strides = strides(data.shape)
    axis_stride, y_strides[axis] = y_strides[axis], 0
    y, error = bench.put(data), ErrorFlag(bench)
    engine.call(
        "scatter_elements",
        units=1,
        op=op,
        type=TYPES[dtype],
        indices=bench.put(indices),
        index_size=8,
        updates=bench.put(updates),
        y=y,
        rank=3,
        shape=words(bench, shape),
        y_strides=words(bench, y_strides),
        count=updates.size,
        axis=n,
        axis_stride=axis_stride,
        error=error.address,
    )
    wanted, function = data.copy(), SCATTERS[op]
    for place in np.ndindex(*shape):
        where = (*place[:axis], indices[place], *place[axis + 1 :])
        wanted[where] = updates[place] if function is None else function(wanted[where], updates[place])
    np.testing.assert_array_equal(engine.read(y, dtype, data.shape), wanted)
    assert error.value == 0
