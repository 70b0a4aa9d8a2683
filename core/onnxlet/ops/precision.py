"""Rounding results to the element type that an operator's output has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..model import dtypes
from .common import to_float32

BFLOAT16 = dtypes.dtype_of(16)

SUMMED_IN_STEPS = 8
"""Elements of bfloat16 of which a sum is rounded after each. Longer sums would lose what is added late."""


def narrow(x: np.ndarray, dtype: Any) -> np.ndarray:
    """`x` in the element type `dtype`, without a copy where it has it already."""
    dtype = np.dtype(dtype)
    return dtypes.narrow(x, dtype) if dtype.kind == "V" and x.dtype != dtype else x.astype(dtype, copy=False)


def full_precision(x: np.ndarray) -> np.ndarray:
    """`x` as float64 if it is that, else as float32."""
    return x if x.dtype == np.float64 else to_float32(x).astype(np.float32, copy=False)


def rounding(dtype: np.dtype) -> Callable[[np.ndarray], np.ndarray]:
    """What rounds float32 numbers to `dtype`, and leaves them float32: what each operator of a function's body does."""
    return lambda x: to_float32(narrow(x, dtype))


def sum_in_steps(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Sums of numbers of a 16-bit type over the last axis, which stays, as numbers of that type.

    They are made in float32. Of bfloat16 each eight are added as the standard's cases add them: one by one, rounded.
    """
    rounded = rounding(dtype)
    if dtype == BFLOAT16:
        padded = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, -x.shape[-1] % SUMMED_IN_STEPS)])
        parts = padded.reshape(*x.shape[:-1], -1, SUMMED_IN_STEPS)
        x = parts[..., 0]
        for i in range(1, SUMMED_IN_STEPS):
            x = rounded(x + parts[..., i])
    return rounded(x.sum(axis=-1, keepdims=True, dtype=np.float32))


def softmax_in_steps(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Softmax over the last axis, rounded to a 16-bit type after each operator of its function's body."""
    rounded = rounding(dtype)
    weights = rounded(np.exp(rounded(x - x.max(axis=-1, keepdims=True, initial=-np.inf))))
    return rounded(weights / sum_in_steps(weights, dtype))
