"""Cases that need more of a device than it allows: bindings, bytes to a binding, workgroups in a row."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from tests.webgpu.cases import Case, integers, random

NARROW = {"max_binding_bytes": 4096, "max_bindings": 4, "max_groups": 3}
"""Limits far below those that WebGPU guarantees."""


def limit_cases() -> Iterator[Case]:
    for op in ("Max", "Min", "Sum", "Mean"):
        yield Case(op, [random(3, 4, seed=s) for s in range(30)], rtol=1e-4, note="thirty")
    yield Case("Max", [integers(3, 4, dtype=np.int64) + s for s in range(9)], note="int64")
    yield Case("Concat", [random(3, i % 5 + 1, seed=i) for i in range(30)], {"axis": -1}, note="thirty")
    w, bias = random(60, 100), random(100)
    for constants in ((1,), (1, 2)):
        yield Case("Gemm", [random(7, 60), w, bias], {"alpha": 0.5}, constants, rtol=1e-4, atol=1e-4, note="columns")
        transposed = np.ascontiguousarray(w.T)
        yield Case(
            "Gemm", [random(7, 60), transposed, bias], {"transB": 1}, constants, rtol=1e-4, atol=1e-4, note="rows"
        )
    yield Case("MatMul", [random(2, 3, 60), w], constants=(1,), rtol=1e-4, atol=1e-4)
    index = np.array([[0, 299, -300], [17, -1, 150]], np.int64)
    yield Case("Gather", [random(300, 5), index], constants=(0,))
    yield Case("Relu", [random(1000)], note="more groups than there are")


FAMILIES: dict[str, Callable[[], Iterator[Case]]] = {"limits": limit_cases}
