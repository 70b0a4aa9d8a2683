"""What operators of several families share: precision, axes, and arguments that arrive as tensors."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from ..graph.ir import STRING
from ..model.dtypes import narrow, widen

F = TypeVar("F", bound=Callable[..., Any])

_VOID, _HALF = 20, 23
"""NumPy's type numbers. What NumPy itself lacks is void (a structured type) or above float16, the last of its own."""


def is_narrow(x: Any) -> bool:
    """Whether `x` is an array of float16 or of a type that NumPy lacks."""
    return isinstance(x, np.ndarray) and (x.dtype.char == "e" or x.dtype.kind == "V")


def to_float32(x: Any) -> Any:
    """float16 and the narrow floats as float32, the narrow integers as int8 or uint8; anything else as it is."""
    if not is_narrow(x):
        return x
    return x.astype(np.float32) if x.dtype.num == _HALF else widen(x)


def rounded(x: Any, dtype: np.dtype) -> Any:
    """A float32 result as the float type `dtype`; results of other types (booleans, indices) as they are."""
    if not isinstance(x, (np.ndarray, np.generic)) or x.dtype != np.float32:
        return x
    return narrow(np.asarray(x), dtype) if dtype.num == _VOID or dtype.num > _HALF else x.astype(dtype, copy=False)


def in_float32(function: F) -> F:
    """Let an operator compute in float32 where its inputs are float16 or narrower, and round once at the end.

    Results of type float32 take the type of the first input, if that is a narrow one.
    """

    @functools.wraps(function)
    def computed(*inputs: Any, **attributes: Any) -> Any:
        if not any(is_narrow(x) for x in inputs):
            return function(*inputs, **attributes)
        result = function(*[to_float32(x) for x in inputs], **attributes)
        if not is_narrow(inputs[0]):
            return result
        dtype = inputs[0].dtype
        if isinstance(result, tuple):
            return tuple(rounded(r, dtype) for r in result)
        return rounded(result, dtype)

    return computed  # type: ignore[return-value]


def check_axis(axis: int, rank: int) -> int:
    """An axis counted from the front. Raises ValueError where it is outside [-rank, rank - 1]."""
    if not -rank <= axis < rank:
        raise ValueError(f"axis {axis} is out of range for a tensor of rank {rank}")
    return int(axis) + rank if axis < 0 else int(axis)


def check_axes(axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """Axes counted from the front. Raises ValueError where one is out of range or given twice."""
    checked = tuple(check_axis(a, rank) for a in axes)
    if len(set(checked)) < len(checked):
        raise ValueError(f"axes {list(axes)} name an axis twice")
    return checked


def ints(x: Any) -> list[int]:
    """The values of an integer tensor (0-d or 1-d) or attribute as a list of Python integers."""
    return np.asarray(x).reshape(-1).tolist()


def scalar(x: np.ndarray, what: str) -> Any:
    """The only element of a tensor, as a Python number. Raises ValueError where it has none or several."""
    if x.size != 1:
        raise ValueError(f"{what} must have one element, but has shape {list(x.shape)}")
    return x.reshape(-1)[0].item()


def zeros(shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """Zeros, or empty strings."""
    return np.full(shape, "", STRING) if dtype == STRING else np.zeros(shape, dtype)


def align(a: np.ndarray, b: np.ndarray, axis: int | None, broadcast: int) -> np.ndarray:
    """`b` reshaped so that NumPy broadcasts it to `a` as operators before opset 7 do.

    Without `broadcast` the shapes must be equal. With it, `b` has one element, or its shape is a contiguous part of
    `a`'s that starts at `axis` (by default it is the last part). Source: Add-1. Dimensions of 1, which that leaves out,
    are stretched as well: the standard's own cases have some.
    """
    if not broadcast:
        if a.shape != b.shape:
            raise ValueError(f"shapes {list(a.shape)} and {list(b.shape)} differ, and broadcast is not set")
        return b
    if b.size == 1:
        return b.reshape(())
    start = a.ndim - b.ndim if axis is None else check_axis(axis, a.ndim)
    part = a.shape[start : start + b.ndim] if start >= 0 else ()
    if len(part) != b.ndim or any(have not in (1, want) for have, want in zip(b.shape, part, strict=True)):
        where = "at the end" if axis is None else f"at axis {axis}"
        raise ValueError(f"shape {list(b.shape)} is not a part of shape {list(a.shape)} {where}")
    return b.reshape(b.shape + (1,) * (a.ndim - start - b.ndim))


def limited_broadcast(function: Callable[[np.ndarray, np.ndarray], Any]) -> Callable[..., Any]:
    """The form that a binary operator has before opset 7, with attributes `axis` and `broadcast`."""

    def operator(a: np.ndarray, b: np.ndarray, *, axis: int | None = None, broadcast: int = 0) -> Any:
        return function(a, align(a, b, axis, broadcast))

    return operator
