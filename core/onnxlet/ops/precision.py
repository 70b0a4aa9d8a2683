"""In which precision operators compute: 16-bit and 8-bit floats are widened to float32, and narrowed once at the end."""

from __future__ import annotations

from typing import Any

import numpy as np


def widen(x: np.ndarray) -> np.ndarray:
    """`x` as float32 if it is a float narrower than that, else unchanged."""
    return x.astype(np.float32) if x.dtype.itemsize < 4 and x.dtype.kind in "fV" else x


def narrow(x: np.ndarray, dtype: Any) -> np.ndarray:
    """`x` in the element type `dtype`, without a copy where it has it already."""
    return x.astype(dtype, copy=False)


def full_precision(x: np.ndarray) -> np.ndarray:
    """`x` as float64 if it is that, else as float32: the types that attributes such as `stash_type` = 1 ask for."""
    return x if x.dtype == np.float64 else x.astype(np.float32, copy=False)
