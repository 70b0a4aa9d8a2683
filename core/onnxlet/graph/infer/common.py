"""What inference functions share: looking at inputs and constants, arithmetic on dimensions, broadcasting, errors.

A constant is an array of numbers where all of it is known. Inference over symbolic dimensions also hands out shapes
that are known in part: arrays of objects, each an `int`, a `str` (symbolic) or `None`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

import numpy as np

from ...errors import ShapeError
from ..ir import Dim, Node, TensorType, Type

Inputs = Sequence[Type | None]
Constants = Sequence[np.ndarray | None]
Shape = tuple[Dim, ...] | None

BOOL, INT64, FLOAT = np.dtype(bool), np.dtype(np.int64), np.dtype(np.float32)
UNKNOWN = TensorType(None, None)


def fail(node: Node, message: str) -> NoReturn:
    """Raise a `ShapeError` that begins with the node and its operator."""
    raise ShapeError(f"node {node.label!r} ({node.operator}): {message}")


def mismatch(node: Node, index: int, came: Any, expected: str) -> NoReturn:
    """Raise a `ShapeError` about one input."""
    name = node.inputs[index] if index < len(node.inputs) else ""
    fail(node, f"input {index} ({name!r}) is {came}, expected {expected}")


def tensor(node: Node, inputs: Inputs, index: int) -> TensorType:
    """The type of a tensor input; all unknown where it is absent or unknown."""
    type_ = inputs[index] if index < len(inputs) else None
    if type_ is None:
        return UNKNOWN
    if not isinstance(type_, TensorType):
        mismatch(node, index, type_, "a tensor")
    return type_


def present(node: Node, index: int) -> bool:
    """Whether the node has this (optional) input."""
    return index < len(node.inputs) and bool(node.inputs[index])


def shape_of(node: Node, inputs: Inputs, index: int, rank: int | None = None, least: int = 0) -> Shape:
    """The shape of a tensor input. Raises `ShapeError` where its rank is known and not `rank`, or below `least`."""
    type_ = tensor(node, inputs, index)
    if type_.shape is not None:
        if rank is not None and len(type_.shape) != rank:
            mismatch(node, index, type_, f"{rank} dimension(s)")
        if len(type_.shape) < least:
            mismatch(node, index, type_, f"{least} or more dimensions")
    return type_.shape


def dtype_of(node: Node, inputs: Inputs, index: int) -> np.dtype | None:
    return tensor(node, inputs, index).dtype


def constant(constants: Constants, index: int) -> np.ndarray | None:
    """The value of an input where all of it is known."""
    value = constants[index] if index < len(constants) else None
    return None if value is None or value.dtype == object else value


def ints(constants: Constants, index: int) -> list[int] | None:
    """The value of an integer input, flat, where all of it is known."""
    value = constant(constants, index)
    return None if value is None else [int(v) for v in value.reshape(-1)]


def dims(constants: Constants, index: int) -> list[Dim] | None:
    """The value of an input that holds a shape, known at least in part."""
    value = constants[index] if index < len(constants) else None
    if value is None:
        return None
    return [v if isinstance(v, str) or v is None else int(v) for v in value.reshape(-1).tolist()]


def length(inputs: Inputs, index: int) -> int | None:
    """The number of elements of a 1-d input, where known."""
    type_ = inputs[index] if index < len(inputs) else None
    if isinstance(type_, TensorType) and type_.shape is not None and len(type_.shape) == 1:
        return type_.shape[0] if isinstance(type_.shape[0], int) else None
    return None


def axis_of(node: Node, axis: int, rank: int) -> int:
    """An axis counted from the front. Raises `ShapeError` where it is outside [-rank, rank - 1]."""
    if not -rank <= axis < rank:
        fail(node, f"axis {axis} is outside [{-rank}, {rank - 1}] for a tensor of rank {rank}")
    return axis + rank if axis < 0 else axis


def axes_of(node: Node, axes: Iterable[int], rank: int) -> list[int]:
    """Axes counted from the front. Raises `ShapeError` where one is out of range or given twice."""
    found = [axis_of(node, axis, rank) for axis in axes]
    if len(set(found)) != len(found):
        fail(node, f"an axis is given twice: {found}")
    return found


def attribute_or_input(node: Node, constants: Constants, name: str, index: int) -> tuple[bool, list[int] | None]:
    """Integers that older versions take as attribute `name` and newer ones as input `index`.

    Returns whether they are given at all, and their values where known.
    """
    if name in node.attributes:
        value = node.attributes[name]
        return True, [value] if isinstance(value, int) else list(value)
    if present(node, index):
        return True, ints(constants, index)
    return False, None


def product(shape: Iterable[Dim]) -> Dim:
    """The product of dimensions: known, or a single symbolic one, or unknown."""
    number, symbols = 1, []
    for d in shape:
        if isinstance(d, int):
            number *= d
        else:
            symbols.append(d)
    if not symbols or number == 0:
        return number
    return symbols[0] if number == 1 and len(symbols) == 1 else None


def merge_dim(a: Dim, b: Dim) -> Dim:
    """What is known about a dimension from two sources that must agree. An `int` says most, then a symbol."""
    if isinstance(a, int) or b is None:
        return a
    return b if isinstance(b, int) or a is None else a


def merge_shapes(node: Node, shapes: Iterable[Shape], what: str) -> Shape:
    """What is known about a shape from several that must be equal."""
    merged: Shape = None
    for shape in shapes:
        if shape is None:
            continue
        if merged is None:
            merged = shape
            continue
        if len(merged) != len(shape) or any(_differ(a, b) for a, b in zip(merged, shape, strict=True)):
            fail(node, f"{what} must have the same shape, got {show(merged)} and {show(shape)}")
        merged = tuple(merge_dim(a, b) for a, b in zip(merged, shape, strict=True))
    return merged


def _differ(a: Dim, b: Dim) -> bool:
    return isinstance(a, int) and isinstance(b, int) and a != b


def same_dim(node: Node, a: Dim, b: Dim, what: str) -> Dim:
    """A dimension that two inputs must share. Raises `ShapeError` where they are known to differ."""
    if _differ(a, b):
        fail(node, f"{what}: {a} and {b} should be equal")
    return merge_dim(a, b)


def common(a: Shape, b: Shape) -> Shape:
    """What two possible shapes have in common (the branches of an If): `None` where they differ."""
    if a is None or b is None or len(a) != len(b):
        return None
    return tuple(x if x == y else None for x, y in zip(a, b, strict=True))


def broadcast(node: Node, inputs: Inputs, indices: Iterable[int] | None = None) -> Shape:
    """The shape of inputs broadcast together, as NumPy does. Raises `ShapeError` where they can't be."""
    indices = range(len(inputs)) if indices is None else indices
    shapes = [tensor(node, inputs, i).shape for i in indices if present(node, i)]
    return broadcast_shapes(node, shapes)


def broadcast_shapes(node: Node, shapes: Sequence[Shape]) -> Shape:
    known = [shape for shape in shapes if shape is not None]
    if not known or len(known) < len(shapes):
        return None
    rank = max(len(shape) for shape in known)
    result: list[Dim] = []
    for i in range(rank):
        column = [shape[i - rank + len(shape)] for shape in known if i - rank + len(shape) >= 0]
        numbers = {d for d in column if isinstance(d, int) and d != 1}
        if len(numbers) > 1:
            came = " and ".join(show(shape) for shape in known)
            fail(node, f"shapes {came} can't be broadcast together")
        others = {d for d in column if not isinstance(d, int)}
        if numbers:
            result.append(numbers.pop())
        elif not others:
            result.append(1)
        else:
            result.append(others.pop() if len(others) == 1 else None)
    return tuple(result)


def show(shape: Shape) -> str:
    """A shape for messages."""
    return "[...]" if shape is None else "[" + ",".join("?" if d is None else str(d) for d in shape) + "]"


def unknown_rank(rank: int | None) -> Shape:
    """A shape of which only the rank is known."""
    return None if rank is None else (None,) * rank


def same(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    """The output's type is the first input's."""
    return [tensor(node, inputs, 0)]
