"""Reductions, extremes' places, running sums and the k largest along an axis, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from .workbench import Workbench

SHAPES = [
    (1, 1, 1),
    (3, 7, 1),
    (1, 1, 9),
    (5, 33, 1),
    (2, 3, 4),
    (2, 65, 17),
    (4, 1025, 1),
    (3, 200, 8),
    (0, 4, 1),
    (2, 5, 0),
]
"""outer, axis, inner"""
TYPES = {"float32": 1, "uint8": 2, "int8": 3, "int32": 6, "int64": 7, "float64": 11}


def logarithm_of_sum_of_exponentials(x: np.ndarray, axis: int) -> np.ndarray:
    return np.log(np.exp(x).sum(axis))


OPERATIONS = {
    "sum": np.sum,
    "mean": np.mean,
    "max": np.max,
    "min": np.min,
    "prod": np.prod,
    "l1": lambda x, axis: np.abs(x).sum(axis),
    "l2": lambda x, axis: np.sqrt(np.square(x).sum(axis)),
    "sum_square": lambda x, axis: np.square(x).sum(axis),
    "log_sum": lambda x, axis: np.log(x.sum(axis)),
    "log_sum_exp": logarithm_of_sum_of_exponentials,
}
NEUTRAL = {
    "sum": 0,
    "mean": np.nan,
    "max": -np.inf,
    "min": np.inf,
    "prod": 1,
    "l1": 0,
    "l2": 0,
    "sum_square": 0,
    "log_sum": -np.inf,
    "log_sum_exp": -np.inf,
}
"""What an empty axis gives."""
CODES = {name: code for code, name in enumerate(OPERATIONS)}


def reduce(bench: Workbench, name: str, x: np.ndarray) -> np.ndarray:
    outer, axis, inner = x.shape
    y = bench.out((outer, inner), x.dtype)
    bench.call(
        "reduce",
        units=outer * inner,
        op=CODES[name],
        type=TYPES[x.dtype.name],
        x=bench.put(x),
        y=y,
        axis=axis,
        inner=inner,
    )
    return bench.get(y)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", OPERATIONS)
def test_float32(bench: Workbench, name: str, shape: tuple[int, int, int]) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    if name in ("prod", "log_sum"):
        x = np.abs(x) ** 0.125
    np.testing.assert_allclose(reduce(bench, name, x), OPERATIONS[name](x.astype(np.float64), 1), rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("inner", [1, 3])
def test_nan_and_infinity(bench: Workbench, name: str, inner: int) -> None:
    rows = np.array(
        [[1, np.nan, 2, 5, 1, 1, 1, 1, 0], [1, np.inf] + [3] * 7, [-np.inf] * 9, [np.inf, -np.inf] + [0] * 7]
    )
    x = np.repeat(rows[:, :, None], inner, 2).astype(np.float32)
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(reduce(bench, name, x), OPERATIONS[name](x.astype(np.float64), 1), rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "wanted"),
    list(NEUTRAL.items()),
)
def test_empty_axis(bench: Workbench, name: str, wanted: float) -> None:
    for inner in (1, 5):
        np.testing.assert_array_equal(
            reduce(bench, name, np.empty((3, 0, inner), np.float32)), np.full((3, inner), wanted)
        )


def test_log_sum_exp_of_large_values(bench: Workbench) -> None:
    x = np.array([[[1000.0], [1001.0], [999.0]], [[-1000.0], [-1001.0], [-1002.0]]], np.float32)
    wanted = logarithm_of_sum_of_exponentials(x - x.max(1, keepdims=True), 1) + x.max(1)
    np.testing.assert_allclose(reduce(bench, "log_sum_exp", x), wanted, rtol=1e-6)


@pytest.mark.parametrize("shape", [(1, 1_000_003, 1), (1, 300_001, 3)])
def test_long_sums_stay_accurate(bench: Workbench, shape: tuple[int, int, int]) -> None:
    x = np.random.default_rng(1).random(shape, np.float32)
    np.testing.assert_allclose(reduce(bench, "sum", x), x.astype(np.float64).sum(1), rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float64", "int32", "int64"])
@pytest.mark.parametrize("name", ["sum", "max", "min", "prod"])
def test_other_types(bench: Workbench, name: str, dtype: str) -> None:
    for shape in SHAPES[:7]:
        x = np.random.default_rng(2).integers(-5, 6, shape).astype(dtype)
        with np.errstate(over="ignore"):
            wanted = OPERATIONS[name](x, 1).astype(dtype) if name in ("max", "min") else getattr(x, name)(1, dtype)
        np.testing.assert_array_equal(reduce(bench, name, x), wanted)
    limits = np.array([[[np.iinfo("int32").min], [np.iinfo("int32").max], [-1]]]).astype(dtype)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(reduce(bench, name, limits), getattr(limits, name)(1).astype(dtype))


def arg_reduce(bench: Workbench, x: np.ndarray, minimum: int, last: int) -> np.ndarray:
    outer, axis, inner = x.shape
    y = bench.out((outer, inner), np.int64)
    bench.call(
        "arg_reduce",
        units=outer * inner,
        type=TYPES[x.dtype.name],
        minimum=minimum,
        last=last,
        x=bench.put(x),
        y=y,
        axis=axis,
        inner=inner,
    )
    return bench.get(y)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "int8", "uint8"])
@pytest.mark.parametrize("shape", [*SHAPES, (2, 4, 300)])
def test_places_of_extremes(bench: Workbench, shape: tuple[int, int, int], dtype: str) -> None:
    x = np.random.default_rng(3).integers(0, 9, shape).astype(dtype)
    for minimum, function in enumerate((np.argmax, np.argmin)):
        np.testing.assert_array_equal(arg_reduce(bench, x, minimum, 0), function(x, 1))
        np.testing.assert_array_equal(arg_reduce(bench, x, minimum, 1), x.shape[1] - 1 - function(x[:, ::-1], 1))


def test_the_first_nan_is_the_extreme(bench: Workbench) -> None:
    x = np.array(
        [[[1], [np.nan], [3], [np.nan]], [[np.nan], [1], [2], [3]], [[np.inf], [-np.inf], [0], [0]]], np.float32
    )
    np.testing.assert_array_equal(arg_reduce(bench, x, 0, 0), np.argmax(x, 1))
    np.testing.assert_array_equal(arg_reduce(bench, x, 1, 0), np.argmin(x, 1))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("shape", SHAPES)
def test_running_sums(bench: Workbench, shape: tuple[int, int, int], dtype: str) -> None:
    x = np.random.default_rng(4).integers(-9, 9, shape).astype(dtype)
    outer, axis, inner = shape
    for exclusive in (0, 1):
        for reverse in (0, 1):
            y = bench.out(shape, dtype)
            bench.call(
                "cumsum",
                units=outer * inner,
                type=TYPES[dtype],
                x=bench.put(x),
                y=y,
                axis=axis,
                inner=inner,
                exclusive=exclusive,
                reverse=reverse,
            )
            forward = x[:, ::-1] if reverse else x
            wanted = np.cumsum(forward, 1, dtype) - (forward if exclusive else 0)
            np.testing.assert_array_equal(bench.get(y), wanted[:, ::-1] if reverse else wanted)


def topk(bench: Workbench, x: np.ndarray, k: int, largest: int) -> tuple[np.ndarray, np.ndarray]:
    outer, axis, inner = x.shape
    values, indices = bench.out((outer, k, inner), x.dtype), bench.out((outer, k, inner), np.int64)
    bench.call(
        "topk",
        units=outer * inner,
        scratch=16 * k,
        type=TYPES[x.dtype.name],
        x=bench.put(x),
        values=values,
        indices=indices,
        axis=axis,
        inner=inner,
        k=k,
        largest=largest,
    )
    return bench.get(values), bench.get(indices)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 50, 1), (2, 9, 5), (1, 1000, 1)])
def test_topk(bench: Workbench, shape: tuple[int, int, int], dtype: str) -> None:
    rng = np.random.default_rng(5)
    x = (rng.integers(-20, 20, shape) if dtype != "uint8" else rng.integers(0, 40, shape)).astype(dtype)
    if dtype.startswith("float"):
        x /= 4
    for k in {0, 1, min(5, shape[1]), shape[1]}:
        for largest in (0, 1):
            order = np.argsort(-x.astype(np.float64) if largest else x, 1, kind="stable")[:, :k]
            values, indices = topk(bench, x, k, largest)
            np.testing.assert_array_equal(indices, order)
            np.testing.assert_array_equal(values, np.take_along_axis(x, order, 1))


def test_topk_at_the_limits(bench: Workbench) -> None:
    x = np.array([[[0.0], [-0.0], [np.inf], [-np.inf], [np.nan], [1e-45], [-1e-45]]], np.float32)
    np.testing.assert_array_equal(topk(bench, x, 7, 1)[1].ravel(), [4, 2, 5, 0, 1, 6, 3])
    np.testing.assert_array_equal(topk(bench, x, 7, 0)[1].ravel(), [3, 6, 0, 1, 5, 2, 4])
    limits = np.array([[[2**63 - 1], [-(2**63)], [0], [-(2**63)]]], np.int64)
    np.testing.assert_array_equal(topk(bench, limits, 4, 1)[1].ravel(), [0, 2, 1, 3])
    np.testing.assert_array_equal(topk(bench, limits, 4, 0)[1].ravel(), [1, 3, 2, 0])
