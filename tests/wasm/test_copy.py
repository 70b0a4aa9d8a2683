"""Strided copies and fills against NumPy's views."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from onnxlet_wasm.engine import Engine

from .workbench import Workbench

DTYPES = ["uint8", "int16", "float32", "float64"]


def copy(bench: Workbench, x: np.ndarray, view: np.ndarray) -> np.ndarray:
    """A contiguous copy of `view`, a view of the contiguous array `x`."""
    size = x.itemsize
    start = view.__array_interface__["data"][0] - x.__array_interface__["data"][0] if view.size else 0
    y = bench.out(view.shape, x.dtype)
    bench.call(
        "copy",
        units=view.size,
        size=size,
        x=bench.put(x) + start,
        y=y,
        rank=view.ndim,
        shape=bench.put(np.array(view.shape, np.int64)),
        x_strides=bench.put(np.array(view.strides, np.int64) // size),
        y_strides=bench.put(np.array(np.empty(view.shape, np.uint8).strides, np.int64)),
    )
    return bench.get(y)


def numbers(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    return (np.arange(np.prod(shape, dtype=int)) % 251).reshape(shape).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "shape", [(), (0,), (3,), (3, 5), (17, 16), (37, 41), (530, 9), (2, 3, 4), (5, 1, 7, 3), (2, 33, 3, 18)]
)
def test_every_transpose(bench: Workbench, shape: tuple[int, ...], dtype: str) -> None:
    x = numbers(shape, dtype)
    for order in itertools.permutations(range(len(shape))):
        view = x.transpose(order)
        np.testing.assert_array_equal(copy(bench, x, view), view)


@pytest.mark.parametrize("shape", [(37, 512), (512, 18), (1024, 19), (2, 21, 1024)])
def test_transposes_of_rows_that_are_pages_apart(bench: Workbench, shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).standard_normal(shape, np.float32)
    view = np.swapaxes(x, -1, -2)
    np.testing.assert_array_equal(copy(bench, x, view), view)


def test_transposes_of_high_rank(bench: Workbench) -> None:
    x = numbers((2, 3, 2, 17, 2, 3, 2, 2), "float32")
    for order in (
        [7, 6, 5, 4, 3, 2, 1, 0],
        [0, 2, 1, 3, 5, 4, 7, 6],
        [3, 0, 1, 2, 4, 5, 6, 7],
        [1, 0, 7, 2, 3, 4, 5, 6],
    ):
        np.testing.assert_array_equal(copy(bench, x, x.transpose(order)), x.transpose(order))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "view",
    [
        lambda x: x[1:3],
        lambda x: x[:, ::2, 1:-1],
        lambda x: x[::-1, ::-2, ::-3],
        lambda x: x[:, :, 5:5],
        lambda x: x[2],
        lambda x: np.broadcast_to(x[:, None, :1], (4, 6, 9, 11)),
        lambda x: np.broadcast_to(x, (3, *x.shape)),
        lambda x: np.broadcast_to(x[0, 0, :1], (2, 500)),
    ],
)
def test_slices_and_repeats(bench: Workbench, view: Callable[[np.ndarray], np.ndarray], dtype: str) -> None:
    x = numbers((4, 9, 11), dtype)
    np.testing.assert_array_equal(copy(bench, x, view(x)), view(x))


@pytest.mark.parametrize("dtype", DTYPES)
def test_writing_into_a_part_of_the_output(bench: Workbench, engine: Engine, dtype: str) -> None:
    """Concat and Pad: the elements around the block stay."""
    x, wanted = numbers((3, 4), dtype), numbers((6, 10), dtype)
    y = bench.put(wanted)
    engine.call(
        "copy",
        units=12,
        size=x.itemsize,
        x=bench.put(x),
        y=y + (2 * 10 + 5) * x.itemsize,
        rank=2,
        shape=bench.put(np.array([3, 4], np.int64)),
        x_strides=bench.put(np.array([4, 1], np.int64)),
        y_strides=bench.put(np.array([10, 1], np.int64)),
    )
    wanted[2:5, 5:9] = x
    np.testing.assert_array_equal(engine.read(y, dtype, wanted.shape), wanted)


@pytest.mark.parametrize(("dtype", "value"), [("uint8", 200), ("int16", -3), ("float32", 1.5), ("int64", -(2**40))])
def test_fill(bench: Workbench, dtype: str, value: float) -> None:
    for count in (0, 1, 7, 300):
        bits = np.zeros(8, np.uint8)
        bits[: np.dtype(dtype).itemsize] = np.array([value], dtype).view(np.uint8)
        y = bench.out((count,), dtype)
        bench.call("fill", units=count, size=np.dtype(dtype).itemsize, y=y, value=int(bits.view(np.int64)[0]))
        np.testing.assert_array_equal(bench.get(y), np.full(count, value, dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("k", [-9, -2, 0, 1, 3, 20])
def test_trilu(bench: Workbench, k: int, dtype: str) -> None:
    x = numbers((3, 7, 9), dtype)
    for upper, function in ((1, np.triu), (0, np.tril)):
        y = bench.out(x.shape, dtype)
        bench.call("trilu", units=21, size=x.itemsize, x=bench.put(x), y=y, rows=7, columns=9, k=k, upper=upper)
        np.testing.assert_array_equal(bench.get(y), function(x, k))
