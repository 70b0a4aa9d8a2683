"""Reductions."""

from __future__ import annotations

from ..ir import Node, TensorType, Type
from .common import (
    INT64,
    Constants,
    Inputs,
    Shape,
    attribute_or_input,
    axes_of,
    axis_of,
    length,
    shape_of,
    tensor,
    unknown_rank,
)
from .registry import infer


@infer(
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
    "ReduceSum", "ReduceSumSquare",
)  # fmt: skip
def reduce(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    data = tensor(node, inputs, 0)
    given, axes = attribute_or_input(node, constants, "axes", 1)
    keep = bool(node.attributes.get("keepdims", 1))
    if given and axes is None and node.op_type and length(inputs, 1) != 0:
        # The axes are computed by the graph: their number may be known.
        number = length(inputs, 1)
        if data.shape is None:
            return [TensorType(data.dtype, None)]
        if keep:
            return [TensorType(data.dtype, unknown_rank(len(data.shape)))]
        return [TensorType(data.dtype, None if number is None else unknown_rank(len(data.shape) - number))]
    if not axes and node.attributes.get("noop_with_empty_axes", 0):
        return [data]
    return [TensorType(data.dtype, reduced(node, data.shape, axes or None, keep))]


def reduced(node: Node, shape: Shape, axes: list[int] | None, keep: bool) -> Shape:
    """The shape with `axes` (default: all) reduced to 1, or left out."""
    if shape is None:
        return None if axes is not None or keep else ()
    chosen = range(len(shape)) if axes is None else axes_of(node, axes, len(shape))
    if keep:
        return tuple(1 if i in chosen else d for i, d in enumerate(shape))
    return tuple(d for i, d in enumerate(shape) if i not in chosen)


@infer("ArgMax", "ArgMin")
def arg_extreme(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    shape = shape_of(node, inputs, 0)
    keep = bool(node.attributes.get("keepdims", 1))
    if shape is None:
        return [TensorType(INT64, None)]
    axis = axis_of(node, node.attributes.get("axis", 0), len(shape))
    return [TensorType(INT64, reduced(node, shape, [axis], keep))]
