"""Cases for the variants of matrix products: one row in every layout, long sums for few results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tests.webgpu.cases import Case, random

NEAR: dict[str, Any] = {"rtol": 1e-4, "atol": 1e-4}
FUSED: dict[str, Any] = {"domain": "com.microsoft", "version": 1, **NEAR}


def row_cases() -> Iterator[Case]:
    """One row, or one row of each matrix of a batch; sizes that are and that are not multiples of four."""
    for k, columns in ((64, 8), (68, 37), (128, 100), (300, 3), (67, 20), (256, 1)):
        x, w = random(1, k), random(k, columns, seed=1)
        bias = random(columns, seed=2)
        for constants in ((), (1,), (1, 2)):
            yield Case("Gemm", [x, w, bias], {"alpha": 0.5}, constants, note=f"row {constants}", **NEAR)
            transposed = np.ascontiguousarray(w.T)
            yield Case("Gemm", [x, transposed, bias], {"transB": 1}, constants, note=f"column {constants}", **NEAR)
        many, matrices = random(2, 3, 1, k), random(3, columns, k, seed=1)
        yield Case("FusedMatMul", [many, matrices], {"transB": 1, "alpha": 2.0}, note="batch", **FUSED)
        yield Case("MatMul", [many, random(2, 1, k, columns)], note="batch", **NEAR)
        yield Case("FusedMatMul", [random(k, 1), w], {"transA": 1}, note="from a column", **FUSED)
    bad = random(1, 64)
    bad[0, 5], bad[0, 9] = np.inf, np.nan
    yield Case("MatMul", [bad, random(64, 12)], note="not finite", **NEAR)


def long_cases() -> Iterator[Case]:
    """Sums that are cut into pieces, and one whose length can't be cut."""
    for a, b in (
        ((3, 4096), (4096, 5)), ((1, 8192), (8192, 4)), ((2, 2050), (2050, 3)), ((9, 2048), (2048, 9)),
        ((2, 2, 3072), (2, 3072, 3)), ((3, 2, 1, 2048), (2, 2048, 4)), ((64, 2048), (2048, 64)), ((4, 2053), (2053, 2)),
    ):  # fmt: skip
        x, w = random(*a), random(*b, seed=1)
        for constants in ((), (1,)):
            yield Case("MatMul", [x, w], constants=constants, note=f"long {constants}", **NEAR)
    x, w, bias = random(4096, 2), random(6, 4096, seed=1), random(6)
    yield Case("Gemm", [x, w, bias], {"transA": 1, "transB": 1, "alpha": 0.5, "beta": 2.0}, (1, 2), **NEAR)
    yield Case("MatMul", [random(2048).astype(np.float16), random(2048, 3).astype(np.float16)], rtol=2e-3, atol=5e-2)


def random_bytes(*shape: int, signed: bool, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-128, 128, shape).astype(np.int8 if signed else np.uint8)


def byte_window_cases() -> Iterator[Case]:
    """Convolutions of bytes whose sums are beyond what floats hold exactly, or whose weights are fed."""
    for channels, filters, group, kernel in ((8, 9, 1, (3, 3)), (7, 5, 1, (2, 1)), (12, 6, 2, (3, 3)), (4, 3, 1, (3,)),
                                             (5, 3, 1, (2, 2, 2))):  # fmt: skip
        size = (2, channels, *(7, 6, 4)[: len(kernel)])
        for signs in ((False, False), (False, True), (True, True)):
            x = random_bytes(*size, signed=signs[0])
            w = random_bytes(filters, channels // group, *kernel, signed=signs[1], seed=1)
            x_zero, w_zero = random_bytes(signed=signs[0], seed=2), random_bytes(filters, signed=signs[1], seed=3)
            more = {
                "pads": [1] * len(kernel) + [0] * len(kernel),
                "group": group,
                "strides": [2] + [1] * (len(kernel) - 1),
            }
            for zeros in ((), (x_zero,), (None, w_zero), (x_zero, w_zero), (x_zero, w_zero[0])):
                note = f"{x.dtype} {w.dtype} {[z is not None for z in zeros]}"
                yield Case("ConvInteger", [x, w, *zeros], more, version=10, note=note)
    x, w = random_bytes(1, 64, 6, 6, signed=False), random_bytes(5, 64, 5, 5, signed=True, seed=1)
    zeros = np.array(7, np.uint8), random_bytes(5, signed=True, seed=3)
    more = {"pads": [2] * 4, "dilations": [1, 2]}
    yield Case("ConvInteger", [x, w * 0 + 127, *zeros], more, (1, 3), version=10, note="large")
    one = np.array(0.01, np.float32)
    given = [
        x,
        one,
        zeros[0],
        w,
        np.full(5, 0.02, np.float32),
        zeros[1],
        np.array(9, np.float32),
        np.array(3, np.uint8),
    ]
    for constants in ((), (3, 5, 8)):
        yield Case("QLinearConv", [*given, np.arange(5, dtype=np.int32) * 9999], more, constants, version=10, rtol=0,
                   atol=1, note=f"{constants}")  # fmt: skip


def byte_cases() -> Iterator[Case]:
    """Products of bytes of both kinds, with and without zero points of both kinds, known and fed."""
    for a, b in (((9, 7), (7, 5)), ((1, 32), (32, 9)), ((3, 1, 2, 10), (2, 10, 4))):
        for signs in ((False, False), (False, True), (True, False), (True, True)):
            x, w = random_bytes(*a, signed=signs[0]), random_bytes(*b, signed=signs[1], seed=1)
            x_zero, w_zero = random_bytes(signed=signs[0], seed=2), random_bytes(signed=signs[1], seed=3)
            columns = random_bytes(b[-1], signed=signs[1], seed=4)
            for zeros in ((), (x_zero,), (None, w_zero), (x_zero, columns)):
                if len(zeros) > 1 and len(b) > 2:
                    zeros = (x_zero, w_zero)
                for constants in ((), (1,)):
                    note = f"{x.dtype} {w.dtype} {len(zeros)} {constants}"
                    yield Case("MatMulInteger", [x, w, *zeros], constants=constants, version=10, note=note)
            scales = [np.array(s, np.float32) for s in (0.02, 0.05, 0.4)]
            y_zero = np.array(3, x.dtype)
            given = [x, scales[0], x_zero, w, scales[1], w_zero, scales[2], y_zero]
            yield Case(
                "QLinearMatMul", given, constants=(4, 7), version=21, rtol=0, atol=1, note=f"{x.dtype} {w.dtype}"
            )
    x, w = random_bytes(7, 30, signed=False), random_bytes(11, 30, signed=True, seed=1)
    one = np.array(0.03, np.float32)
    zeros = np.array(100, np.uint8), random_bytes(11, signed=True, seed=3)
    for constants in ((), (3, 5)):
        given = [x, one, zeros[0], w, np.full(11, 0.02, np.float32), zeros[1]]
        yield Case("QGemm", given, {"transB": 1}, constants, note=f"columns {constants}", **FUSED)


def half_cases() -> Iterator[Case]:
    """float16, whose weights stay in 16 bits where shaders have them."""
    for rows, k, columns in ((1, 128, 40), (1, 70, 9), (3, 33, 10), (70, 64, 68), (33, 20, 100), (2, 2048, 6)):
        x, w = random(rows, k) / 8, random(k, columns, seed=1) / 8
        bias = random(columns)
        for transposed in (0, 1):
            given = [x, np.ascontiguousarray(w.T) if transposed else w, bias]
            yield Case("Gemm", [a.astype(np.float16) for a in given], {"transB": transposed}, (1, 2), rtol=2e-3,
                       atol=2e-3, note=f"half {transposed}")  # fmt: skip


FAMILIES: dict[str, Callable[[], Iterator[Case]]] = {
    "one row": row_cases,
    "long sums": long_cases,
    "bytes": byte_cases,
    "byte windows": byte_window_cases,
    "half weights": half_cases,
}
