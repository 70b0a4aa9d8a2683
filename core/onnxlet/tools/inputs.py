"""Inputs for a model: from files, or made up for its declared types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import FeedError
from ..graph.ir import STRING, Dim, Graph, TensorType

FILLS = ("random", "ramp", "zeros", "ones")
"""How `make_feeds` fills inputs: ``random`` numbers, or a ``ramp`` from 0 to 1, or all the same."""

BATCH, IMAGE, OTHER = 1, 224, 16
"""Sizes of dimensions that a model leaves open: of first ones, of an image's height and width, and of others."""

WORDS = ("red", "green", "blue")


def choose_dimensions(graph: Graph, chosen: Mapping[str, int] | None = None) -> dict[str, int]:
    """A size for every named dimension of the inputs: those `chosen`, else 1 for one that comes first, 224 for the
    height and width of images, 16 for others.

    Raises `FeedError` for a name that no input has.
    """
    chosen = chosen or {}
    found: dict[str, int] = {}
    for name in graph.inputs:
        shape = graph.tensor_type(name).shape or ()
        for axis, dim in enumerate(shape):
            if isinstance(dim, str):
                found.setdefault(dim, _size(shape, axis))
    if unknown := [name for name in chosen if name not in found]:
        names = ", ".join(map(repr, found)) or "none"
        raise FeedError(f"no input has a dimension called {unknown[0]!r}; the named ones are: {names}")
    return {**found, **chosen}


def _size(shape: Sequence[Dim], axis: int) -> int:
    """A size for an open dimension. Images have four dimensions, one of which is one to four channels."""
    channels = len(shape) == 4 and [a for a in (1, 3) if shape[a] in (1, 3, 4)]
    return BATCH if axis == 0 else IMAGE if channels else OTHER


def input_types(
    graph: Graph, dims: Mapping[str, int], shapes: Mapping[str, Sequence[int]] | None = None
) -> dict[str, TensorType]:
    """The types of the inputs with all dimensions fixed: by `shapes`, by name in `dims`, else as
    `choose_dimensions` does.

    Raises `FeedError` for an input that isn't there or isn't a tensor, and for a shape that contradicts the model's.
    """
    shapes = shapes or {}
    if unknown := [name for name in shapes if name not in graph.inputs]:
        raise FeedError(f"the model has no input {unknown[0]!r}; its inputs are: {', '.join(graph.inputs)}")
    types: dict[str, TensorType] = {}
    for name in graph.inputs:
        declared = graph.types.get(name)
        if not isinstance(declared, TensorType) or declared.dtype is None:
            raise FeedError(f"input {name!r} is {declared}: only tensors can be made up; give it as a file")
        shape = shapes.get(name)
        if shape is None:
            if declared.shape is None:
                raise FeedError(f"the model doesn't declare the shape of input {name!r}: give it one")
            shape = [
                dims[d] if isinstance(d, str) else d if d is not None else _size(declared.shape, axis)
                for axis, d in enumerate(declared.shape)
            ]
        elif declared.shape is not None and (
            len(shape) != len(declared.shape)
            or any(isinstance(d, int) and d != s for d, s in zip(declared.shape, shape, strict=True))
        ):
            raise FeedError(f"input {name!r} is {declared}, which the shape {list(shape)} does not fit")
        types[name] = TensorType(declared.dtype, tuple(shape))
    return types


def make_feeds(types: Mapping[str, TensorType], fill: str = "random", seed: int = 0) -> dict[str, np.ndarray]:
    """An array for every input type: normal numbers, small whole numbers, coin tosses or words for ``random``.

    Whole numbers are 0 and 1 (but in a ramp), since they often are indices, which must exist.
    """
    rng = np.random.default_rng(seed)
    return {name: _filled(type_, fill, rng) for name, type_ in types.items()}


def _filled(type_: TensorType, fill: str, rng: np.random.Generator) -> np.ndarray:
    shape, dtype = type_.dims, type_.dtype
    assert dtype is not None
    if dtype == STRING:
        return np.array(rng.choice(WORDS, shape) if fill == "random" else np.full(shape, WORDS[0]), STRING)
    if dtype.names:
        raise FeedError(f"no values can be made of {dtype.names[0]} without the package ml_dtypes")
    if fill == "zeros" or fill == "ones":
        return np.full(shape, fill == "ones").astype(dtype)
    if fill == "ramp":
        size = type_.size
        values = np.arange(size) if dtype.kind in "iu" else np.linspace(0, 1, size)
        return values.reshape(shape).astype(dtype)
    if dtype.kind in "biu":
        return rng.integers(0, 2, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def read_arrays(arguments: Iterable[str]) -> dict[str, np.ndarray]:
    """Arrays from `NAME=FILE.npy` arguments, and all those of `FILE.npz` ones.

    Raises `FeedError` for an argument of another form, and for a file that holds no arrays (pickled objects neither:
    they can run code).
    """
    found: dict[str, np.ndarray] = {}
    for argument in arguments:
        name, _, path = argument.rpartition("=")
        try:
            loaded = np.load(Path(path), allow_pickle=False)
        except (ValueError, OSError) as error:
            raise FeedError(f"{path}: {error}") from error
        if isinstance(loaded, np.ndarray):
            if not name:
                raise FeedError(f"{path} holds one array: say of which input, as NAME={path}")
            found[name] = loaded
        else:
            with loaded:
                found.update({key: loaded[key] for key in loaded.files})
    return found


def complete(
    graph: Graph,
    given: Mapping[str, Any],
    types: Mapping[str, TensorType],
    fill: str = "random",
    seed: int = 0,
) -> dict[str, Any]:
    """The arrays that are `given`, and made-up ones for the other inputs. Raises `FeedError` for unknown names."""
    known = [*graph.inputs, *graph.defaults]
    if unknown := [name for name in given if name not in known]:
        raise FeedError(f"the model has no input {unknown[0]!r}; its inputs are: {', '.join(known)}")
    missing = {name: type_ for name, type_ in types.items() if name not in given}
    return {**make_feeds(missing, fill, seed), **given}
