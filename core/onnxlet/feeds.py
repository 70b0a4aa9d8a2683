"""Checking what a caller feeds against what the model declares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .errors import FeedError
from .graph.ir import STRING, Graph, TensorType, Type
from .model.dtypes import is_extended, narrow, widen
from .providers.base import DeviceValue


def check_feeds(graph: Graph, feeds: Mapping[str, Any]) -> dict[str, Any]:
    """The feeds as contiguous arrays of the declared types, in the graph's order.

    Raises `FeedError` for a name that the model does not have, an input that is missing, or one whose element type,
    rank or fixed dimension differs from the declaration.
    """
    if type(feeds) is not dict and not isinstance(feeds, Mapping):
        raise FeedError(f"feeds must be a dict from input names to arrays, not {type(feeds).__name__}")
    given = [name for name in (*graph.inputs, *graph.defaults) if name in feeds]
    if len(given) < max(len(feeds), len(graph.inputs)):
        _check_names(graph, feeds)
    return {name: _check(name, feeds[name], graph.types.get(name)) for name in given}


def _check_names(graph: Graph, feeds: Mapping[str, Any]) -> None:
    wanted = ", ".join(f"{name}: {graph.types.get(name)}" for name in graph.inputs) or "none"
    if unknown := [name for name in feeds if name not in graph.inputs and name not in graph.defaults]:
        raise FeedError(f"the model has no input {', '.join(map(repr, unknown))}; its inputs are {wanted}")
    if missing := [name for name in graph.inputs if name not in feeds and not _optional(graph.types.get(name))]:
        raise FeedError(f"input {', '.join(map(repr, missing))} is missing; the model's inputs are {wanted}")


def _optional(type_: Type | None) -> bool:
    return type_ is not None and not isinstance(type_, TensorType) and type(type_).__name__ == "OptionalType"


def _check(name: str, value: Any, type_: Type | None) -> Any:
    if not isinstance(type_, TensorType) or type_.dtype is None:
        return value
    ready = (
        type(value) is np.ndarray and value.dtype is type_.dtype and value.flags.c_contiguous and value.dtype != STRING
    )
    array = value if ready or isinstance(value, DeviceValue) else _as_array(name, value, type_)
    if array.dtype != type_.dtype:
        came = TensorType(array.dtype, array.shape)
        raise FeedError(
            f"input {name!r} must be {type_}, but {came} came; convert it with .astype(np.{type_.dtype.name})"
            if type_.dtype != STRING
            else f"input {name!r} must be {type_}, but {came} came"
        )
    if type_.shape is not None and type_.shape != array.shape:
        fits = len(type_.shape) == array.ndim and all(
            not isinstance(d, int) or d == n for d, n in zip(type_.shape, array.shape, strict=True)
        )
        if not fits:
            raise FeedError(f"input {name!r} must be {type_}, but its shape is {_shape(array.shape)}")
    return array


def _as_array(name: str, value: Any, type_: TensorType) -> np.ndarray:
    assert type_.dtype is not None
    if value is None:
        raise FeedError(f"input {name!r} must be {type_}, but None came")
    if type_.dtype == STRING:
        array = np.asarray(value)
        return array.astype(object) if array.dtype.kind in "UO" else array
    # A plain Python number or list takes the declared type; an array has a type of its own and must fit.
    array = np.asarray(value) if hasattr(value, "dtype") else np.asarray(value, type_.dtype)
    if is_extended(type_.dtype) and array.dtype == widen(np.zeros(1, type_.dtype)).dtype:
        # NumPy lacks the type: numbers of the type that holds its values exactly are rounded to it.
        array = narrow(array, type_.dtype)
    if array.dtype.byteorder not in "=|" and array.dtype.newbyteorder("=") == type_.dtype:
        array = array.astype(type_.dtype)
    # ascontiguousarray would turn a scalar into a vector.
    return array if array.flags.c_contiguous else np.ascontiguousarray(array)


def _shape(shape: Sequence[int]) -> str:
    return "[" + ",".join(map(str, shape)) + "]"
