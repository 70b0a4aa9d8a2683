"""Cases for operators that go along lines and that write to places: few long lines, and many short ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from tests.webgpu.cases import Case, integers, random


def i64(*values: object) -> np.ndarray:
    return np.array(values[0] if len(values) == 1 else values, np.int64)


def repeated(*shape: int) -> np.ndarray:
    """Floats of which many are equal, with zeros of both signs."""
    return np.round(random(*shape) * 3) / 2 * np.float32(1)


def scan_cases() -> Iterator[Case]:
    for op, version in (("CumSum", 14), ("CumProd", 26)):
        for x in (random(2, 601), integers(2, 601), integers(2, 601, dtype=np.int64)):
            if op == "CumProd" and x.dtype == np.float32:
                x = 1 + x / 100
            for exclusive in (0, 1):
                for reverse in (0, 1):
                    more = {"exclusive": exclusive, "reverse": reverse}
                    yield Case(op, [x, i64(1)], more, (1,), version, rtol=1e-3, atol=1e-4, note=f"{x.dtype} {more}")
    for shape, axis in (((257, 3), 0), ((2, 1000, 2), 1), ((5000,), 0), ((300, 300), 1)):
        yield Case("CumSum", [random(*shape), i64(axis)], {}, (1,), rtol=1e-3, atol=1e-3, note=f"along {axis}")
    bad = random(700)
    bad[100], bad[400] = np.inf, -np.inf
    yield Case("CumSum", [bad, i64(0)], {}, (1,), rtol=1e-3, atol=1e-3, note="not finite")


def extreme_cases() -> Iterator[Case]:
    spoilt = repeated(2, 900)
    spoilt[0, 500] = spoilt[0, 700] = spoilt[1, 899] = np.nan
    for op in ("ArgMax", "ArgMin"):
        for last in (0, 1):
            for x, axis in (
                (repeated(2, 900), 1), (spoilt, 1), (repeated(401, 3), 0), (repeated(3, 256, 2), 1),
                (integers(2, 900, dtype=np.int64), 1), (integers(2, 261, dtype=np.int8), -1), (repeated(5003), 0),
            ):  # fmt: skip
                more = {"axis": axis, "select_last_index": last}
                yield Case(op, [x], more, note=f"{x.dtype} {last} {np.isnan(x).any()}")


def sorted_cases() -> Iterator[Case]:
    spoilt = repeated(2, 3001)
    spoilt[0, 5] = spoilt[0, 2900] = np.nan
    spoilt[1, 7], spoilt[1, 2999] = np.inf, -np.inf
    for x, axis, k in (
        (repeated(2, 1025), 1, 1), (repeated(2, 1025), 1, 1025), (spoilt, -1, 40), (spoilt, -1, 3001),
        (repeated(1700, 3), 0, 700), (repeated(2, 1300, 2), 1, 513), (integers(2, 2000, dtype=np.int64), 1, 600),
        (integers(2, 1100, dtype=np.uint8, low=0, high=9), 1, 1100), (repeated(20000), 0, 9000),
    ):  # fmt: skip
        for largest in (0, 1):
            note = f"{x.dtype} {k} {largest} {np.isnan(x).any()}"
            yield Case("TopK", [x, i64([k])], {"axis": axis, "largest": largest}, (1,), outputs=2, note=note)


def update_cases() -> Iterator[Case]:
    """Long lines of updates, more than elements; parts of the data that no update reaches."""
    for reduction in ("add", "mul", "max", "min"):
        more = {"reduction": reduction, "axis": 1}
        for data in (
            random(2, 300, 3), integers(2, 300, 3), integers(2, 300, 3, dtype=np.int8), random(2, 300, 3) * np.nan,
            integers(2, 300, 3, dtype=np.uint8, low=0), integers(2, 300, 3, dtype=np.int64),
        ):  # fmt: skip
            data = np.where(np.isnan(data) & (np.arange(300)[:, None] % 2 == 0), 1, data).astype(data.dtype)
            for count in (40, 400):
                updates = (random(1, count, 2) if data.dtype == np.float32 else integers(1, count, 2)).astype(
                    data.dtype
                )
                index = integers(1, count, 2, low=-7, high=7, dtype=np.int64)
                note = f"{data.dtype} {count} {reduction} {np.isnan(data).any()}"
                yield Case("ScatterElements", [data, index, updates], more, version=18, rtol=1e-4, note=note)
        for data in (random(40, 30, 7), integers(40, 30, 7), integers(40, 30, 7, dtype=np.int64)):
            for count in (7, 90):
                places = integers(count, 2, low=-9, high=9, dtype=np.int64)
                updates = (random(count, 7) if data.dtype == np.float32 else integers(count, 7)).astype(data.dtype)
                note = f"{data.dtype} {count} {reduction}"
                more = {"reduction": reduction}
                yield Case("ScatterND", [data, places, updates], more, version=18, rtol=1e-4, note=note)
        tuples = integers(60, 1, low=0, high=3, dtype=np.int64)
        yield Case("ScatterND", [random(5), tuples, random(60)], more, version=18, rtol=1e-4, note=f"few {reduction}")


def long_cases() -> Iterator[Case]:
    """More elements to a result than one workgroup takes, more turns of loops than some devices make."""
    spoilt = random(2, 70000)
    spoilt[0, 5], spoilt[1, 60000] = np.inf, np.nan
    for op in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceLogSumExp"):
        for x, axes in (
            (random(2, 70000), [1]), (random(66000, 2), [0]), (random(300, 3, 250), [0, 2]), (spoilt, [1]),
        ):  # fmt: skip
            yield Case(op, [x], {"axes": axes}, version=11, rtol=1e-3, atol=1e-2, note=f"{axes}")
    for op in ("ReduceSum", "ReduceMax", "ReduceProd"):
        for dtype in (np.int32, np.int64):
            yield Case(op, [integers(70000, dtype=dtype)], {"axes": [0]}, version=11, note=f"{np.dtype(dtype)}")
    yield Case("ReduceMax", [integers(70000, low=0, high=2, dtype=np.bool_)], {}, version=20, note="bool")
    yield Case("ReduceSum", [random(4_400_000)], {}, (), 11, rtol=1e-3, atol=1e-1)
    yield Case("Softmax", [random(65, 22000)], rtol=1e-4, atol=1e-7)
    yield Case("MatMul", [random(2, 140000), random(140000, 3)], rtol=1e-3, atol=1e-1)
    yield Case("ArgMax", [random(300, 70000)], {"axis": 1})


FAMILIES: dict[str, Callable[[], Iterator[Case]]] = {
    "scans": scan_cases,
    "extremes": extreme_cases,
    "sorted": sorted_cases,
    "updates": update_cases,
    "long": long_cases,
}
