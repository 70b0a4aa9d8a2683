"""Rounding results to the element type that an operator's output has."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..model import dtypes
from .common import to_float32


def narrow(x: np.ndarray, dtype: Any) -> np.ndarray:
    """`x` in the element type `dtype`, without a copy where it has it already."""
    dtype = np.dtype(dtype)
    return dtypes.narrow(x, dtype) if dtype.kind == "V" and x.dtype != dtype else x.astype(dtype, copy=False)


def full_precision(x: np.ndarray) -> np.ndarray:
    """`x` as float64 if it is that, else as float32."""
    return x if x.dtype == np.float64 else to_float32(x).astype(np.float32, copy=False)
