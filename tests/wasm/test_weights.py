"""Products by weights of 4 and 8 bits against NumPy in float64."""

from __future__ import annotations

import numpy as np
import pytest

from onnxlet_wasm.engine import f32
from onnxlet_wasm.lowering.weights import SCRATCH, panels, per_panel

from .workbench import Workbench, close

SIZES = [
    (1, 1, 1, 2),
    (1, 24, 64, 32),
    (1, 17, 33, 16),
    (4, 8, 16, 16),
    (9, 40, 300, 32),
    (33, 9, 515, 1000),
    (1, 20, 131, 26),
    (1, 7, 130, 130),
    (2, 3, 0, 2),
]
"""m, n, k, rows of a block."""


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("activation", [0, 1, 3])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_products(bench: Workbench, size: tuple[int, int, int, int], bits: int, zeros: bool, activation: int):
    m, n, k, block = size
    rng = np.random.default_rng(m + n + k)
    blocks = -(-k // block)
    a = rng.standard_normal((m, k)).astype(np.float32)
    raw = rng.integers(-1 << (bits - 1), 1 << (bits - 1), (k, n), dtype=np.int8)
    scale = (rng.uniform(0.5, 1.5, (blocks, n)) / (1 << bits)).astype(np.float32)
    zero = rng.integers(-8, 8, (blocks, n)).astype(np.float32) if zeros else np.zeros((blocks, n), np.float32)
    bias, residual = rng.standard_normal(n).astype(np.float32), rng.standard_normal((m, n)).astype(np.float32)
    rows = np.pad(raw, ((0, k % 2), (0, 0))).view(np.uint8)
    rows = rows if bits == 8 else rows[::2] & 15 | rows[1::2] << 4
    unit = np.float32(1 if bits == 8 else 16)
    c = bench.out((m, n))
    bench.call(
        "gemm_weights", units=-(-n // 16), scratch=SCRATCH, a=bench.put(a), lda=k, b=bench.put(panels(rows, len(rows))),
        bits=bits, block=block, scales=bench.put(per_panel(scale / unit)),
        zeros=bench.put(per_panel(zero * unit)) if zeros else 0, c=c, ldc=n, m=m, n=n, k=k, bias=bench.put(bias),
        residual=bench.put(residual), ldr=n, activation=activation, low=f32(0.0), high=f32(np.inf),
    )  # fmt: skip
    spread = [np.repeat(t.astype(np.float64), block, axis=0)[:k] for t in (scale, zero)]
    wanted = a.astype(np.float64) @ ((raw - spread[1]) * spread[0]) + bias + residual
    if activation == 1:
        wanted = np.maximum(wanted, 0)
    elif activation == 3:
        wanted = wanted / 2 * (1 + np.vectorize(math_erf)(wanted / np.sqrt(2)))
    close(bench.get(c), wanted, max(k, 1))


def math_erf(x: float) -> float:
    from math import erf

    return erf(x)
