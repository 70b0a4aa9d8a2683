"""Conversion of element types against NumPy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from .workbench import Workbench

TYPES = {
    "float32": 1, "uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7, "bool": 9, "float16": 10,
    "float64": 11, "uint32": 12,
}  # fmt: skip


def cast(bench: Workbench, x: np.ndarray, to: str) -> np.ndarray:
    y = bench.out(x.shape, to)
    bench.call("cast", units=x.size, to=TYPES[to], x=bench.put(x), y=y, **{"from": TYPES[x.dtype.name]})
    return bench.get(y)


@pytest.mark.parametrize(("source", "target"), list(itertools.product(TYPES, TYPES)))
def test_all_pairs(bench: Workbench, source: str, target: str) -> None:
    values = np.random.default_rng(0).integers(0, 120, 1000) * (1 if "u" in source + target else -1)
    x = (values / 4 if source.startswith("float") else values).astype(source)
    np.testing.assert_array_equal(cast(bench, x, target), x.astype(target))


def test_integers_wrap(bench: Workbench) -> None:
    x = np.array([0, -1, 127, 128, 255, 256, 65536, 2**31, -(2**31) - 1, 2**32 + 5, 2**63 - 1, -(2**63)], np.int64)
    for target in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "bool"):
        np.testing.assert_array_equal(cast(bench, x, target), x.astype(target))


def test_floats_that_no_integer_holds(bench: Workbench) -> None:
    x = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, 2.0**63, -(2.0**63)], np.float32)
    limits = np.iinfo(np.int64)
    wanted = [0, limits.max, limits.min, limits.max, limits.min, limits.max, limits.min]
    np.testing.assert_array_equal(cast(bench, x, "int64"), wanted)


def test_floats_are_true_unless_zero(bench: Workbench) -> None:
    x = np.array([0.0, -0.0, 0.25, np.nan, np.inf, 1e-45], np.float32)
    np.testing.assert_array_equal(cast(bench, x, "bool"), [False, False, True, True, True, True])


def test_every_half(bench: Workbench) -> None:
    x = np.arange(65536, dtype=np.uint16).view(np.float16)
    for target in ("float32", "float64"):
        np.testing.assert_array_equal(cast(bench, x, target), x.astype(target))
        back = cast(bench, x.astype(target), "float16")
        np.testing.assert_array_equal(back, x)
        np.testing.assert_array_equal(np.signbit(back[~np.isnan(x)]), np.signbit(x[~np.isnan(x)]))


@pytest.mark.parametrize("source", ["float32", "float64"])
def test_rounding_to_halves(bench: Workbench, source: str) -> None:
    rng = np.random.default_rng(1)
    halves = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float64)
    between = (halves[1:] + halves[:-1]) / 2  # ties
    x = np.concatenate(
        [between, np.nextafter(between, 0), np.nextafter(between, 1e9), np.exp(rng.uniform(-25, 12, 2000))]
    )
    x = np.concatenate([x, [65519.99, 65520, 65536, 1e30, 2.0**-25, 2.0**-25 * 1.001, 2.0**-26, 1e-40]]).astype(source)
    with np.errstate(over="ignore"):
        wanted = x.astype(np.float16)
    np.testing.assert_array_equal(cast(bench, x, "float16"), wanted)


def test_empty(bench: Workbench) -> None:
    assert cast(bench, np.empty((0, 3), np.float32), "int64").shape == (0, 3)
