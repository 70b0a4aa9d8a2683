"""How far one engine's output is from the other's. Pages load this module too: NumPy only."""

from __future__ import annotations

import math

import numpy as np


def difference(value: np.ndarray, wanted: np.ndarray) -> float:
    """The largest difference over the largest wanted value.

    Infinity where shapes differ, or where one is not a number and the other is.
    """
    if value.shape != wanted.shape:
        return math.inf
    if not value.size:
        return 0.0
    a, b = value.astype(np.float64), wanted.astype(np.float64)
    unequal = ~((a == b) | (np.isnan(a) & np.isnan(b)))
    if not unequal.any():
        return 0.0
    error = np.abs(a[unequal] - b[unequal])
    scale = np.abs(b[np.isfinite(b)]).max(initial=1e-6)
    return math.inf if np.isnan(error).any() else float(error.max() / scale)
