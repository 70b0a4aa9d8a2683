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
        ((2, 2, 1536), (2, 1536, 3)), ((3, 2, 1, 2048), (2, 2048, 4)), ((64, 2048), (2048, 64)), ((4, 2053), (2053, 2)),
    ):  # fmt: skip
        x, w = random(*a), random(*b, seed=1)
        for constants in ((), (1,)):
            yield Case("MatMul", [x, w], constants=constants, note=f"long {constants}", **NEAR)
    x, w, bias = random(4096, 2), random(6, 4096, seed=1), random(6)
    yield Case("Gemm", [x, w, bias], {"transA": 1, "transB": 1, "alpha": 0.5, "beta": 2.0}, (1, 2), **NEAR)
    yield Case("MatMul", [random(2048).astype(np.float16), random(2048, 3).astype(np.float16)], rtol=2e-3, atol=5e-2)


FAMILIES: dict[str, Callable[[], Iterator[Case]]] = {"one row": row_cases, "long sums": long_cases}
