"""Type and shape inference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ...errors import OnnxletError, ShapeError
from ..ir import Graph, Node, OptionalType, SequenceType, TensorType, Type
from . import control
from .common import UNKNOWN, axis_of, merge_dim
from .registry import find_inference
from .values import MAX_SIZE, Value, evaluate

DEEP = 4
"""Nesting from which on a Loop's body is looked at once: each level multiplies the rounds of those within."""


def infer_node(
    node: Node, inputs: Sequence[Type | None], constants: Sequence[np.ndarray | None] | None = None
) -> list[Type | None]:
    """The types of a node's outputs, one for each name in `node.outputs`; `None` where nothing is known.

    `inputs` and `constants` go with `node.inputs`: types, and the values that are known. Raises `ShapeError` where the
    inputs are against the specification.
    """
    inference = find_inference(node)
    if inference is None:
        return [None] * len(node.outputs)
    try:
        found = list(inference(node, inputs, constants or [None] * len(inputs)))
    except Exception as error:
        raise _against_specification(node, error) from error
    return (found + [None] * len(node.outputs))[: len(node.outputs)]


def infer_graph(graph: Graph, input_types: Mapping[str, Type | None] | None = None) -> dict[str, Type | None]:
    """The types of all values of a graph, over symbolic dimensions.

    `input_types` says more about inputs than the model does (concrete shapes, say); for a sub-graph it also holds the
    types of values that it captures. What the model declares about a value fills in what can't be inferred. Raises
    `ShapeError` where a node's inputs are against the specification.
    """
    return _infer(graph, input_types or {}, {}, {})


NAMELESS = "?"
"""How dimensions begin that `infer_values` has named."""


def infer_values(
    graph: Graph, input_types: Mapping[str, Type | None] | None = None
) -> tuple[dict[str, Type | None], dict[str, Value]]:
    """Like `infer_graph`; and what is known of the values of small tensors, as `values` describes them.

    Dimensions of which nothing is known get names of their own, so that one can see where they come back.
    """
    return _infer_values(graph, input_types or {}, {}, {}, naming=True)


def _named(name: str, type_: Type | None) -> Type | None:
    """The type of a value with a name for each dimension."""
    if not isinstance(type_, TensorType) or type_.shape is None or None not in type_.shape:
        return type_
    dims = [f"{NAMELESS}{name}:{axis}" if d is None else d for axis, d in enumerate(type_.shape)]
    return TensorType(type_.dtype, tuple(dims))


def _infer(
    graph: Graph,
    input_types: Mapping[str, Type | None],
    outer_types: Mapping[str, Type | None],
    outer_values: Mapping[str, Value],
    depth: int = 0,
) -> dict[str, Type | None]:
    return _infer_values(graph, input_types, outer_types, outer_values, depth)[0]


def _infer_values(
    graph: Graph,
    input_types: Mapping[str, Type | None],
    outer_types: Mapping[str, Type | None],
    outer_values: Mapping[str, Value],
    depth: int = 0,
    naming: bool = False,
) -> tuple[dict[str, Type | None], dict[str, Value]]:
    types: dict[str, Type | None] = {**outer_types, **input_types}
    own = {*graph.inputs, *graph.defaults, *graph.initializers}
    for name in (*graph.inputs, *graph.defaults):
        filled = _filled(input_types.get(name), graph.types.get(name), symbols=True)
        types[name] = _named(name, filled) if naming else filled
    values = dict(outer_values)
    for name, constant in graph.initializers.items():
        types[name] = TensorType(constant.dtype, constant.shape)
        if name not in graph.defaults and constant.size <= MAX_SIZE and constant.dtype != object:
            values[name] = constant.numpy()
    for node in graph.nodes:
        inputs = [types.get(name) if name else None for name in node.inputs]
        known = [values.get(name) if name else None for name in node.inputs]
        try:
            found = _with_bodies(node, inputs, types, values, depth) or infer_node(node, inputs, known)
            computed = evaluate(node, inputs, known, found)
        except Exception as error:
            raise _against_specification(node, error) from error
        for name, type_, value in zip(node.outputs, found, computed + [None] * len(found), strict=False):
            if not name:
                continue
            filled = _filled(type_, graph.types.get(name))
            types[name] = _named(name, filled) if naming else filled
            own.add(name)
            if value is not None:
                values[name] = value
    return {name: types[name] for name in own}, values


def _against_specification(node: Node, error: Exception) -> Exception:
    """Inference stumbles over attributes and inputs that no exporter writes: too few of them, zeros to divide by."""
    if isinstance(error, OnnxletError):
        return error
    return ShapeError(f"node {node.label!r} ({node.operator}): its inputs can't be right: {error}")


def _with_bodies(
    node: Node, inputs: list[Type | None], types: Mapping[str, Type | None], values: Mapping[str, Value], depth: int
) -> list[Type | None] | None:
    """The types that the bodies of an If or a Loop give."""
    if node.domain == "" and node.op_type == "If":
        bodies = [node.attributes.get("then_branch"), node.attributes.get("else_branch")]
        found = []
        for body in bodies:
            if not isinstance(body, Graph):
                return None
            inner = _infer(body, {}, types, values, depth + 1)
            found.append([inner.get(o, types.get(o)) for o in body.outputs])
        if len(found[0]) == len(found[1]):
            return [control.meet(a, b) for a, b in zip(*found, strict=True)]
    if node.domain == "" and node.op_type == "Loop":
        return _loop(node, inputs, types, values, depth)
    if node.domain == "" and node.op_type == "Scan" and node.version >= 9:
        return _scan(node, inputs, types, values, depth)
    return None


def _loop(
    node: Node, inputs: list[Type | None], types: Mapping[str, Type | None], values: Mapping[str, Value], depth: int
) -> list[Type | None] | None:
    body = node.attributes.get("body")
    carried = inputs[2:]
    if not isinstance(body, Graph) or len(body.inputs) != 2 + len(carried):
        return None
    scalars: list[Type | None] = [TensorType(np.dtype(np.int64), ()), TensorType(np.dtype(bool), ())]
    # What is carried must keep its type from one iteration to the next: weaken it until it does. Each round drops
    # a shape or a dimension, so this ends; usually after one round, or two.
    for _ in range(4 if depth < DEEP else 0):
        inner = _infer(body, dict(zip(body.inputs, [*scalars, *carried], strict=True)), types, values, depth + 1)
        outputs = [inner.get(o, types.get(o)) for o in body.outputs]
        kept = [control.meet(a, b) for a, b in zip(carried, outputs[1:], strict=False)]
        if kept == carried:
            break
        carried = kept
    else:
        carried = [control.loose(t) for t in carried]
        inner = _infer(body, dict(zip(body.inputs, [*scalars, *carried], strict=True)), types, values, depth + 1)
        outputs = [inner.get(o, types.get(o)) for o in body.outputs]
    scanned: list[Type | None] = []
    for type_ in outputs[1 + len(carried) :]:
        if isinstance(type_, TensorType) and type_.shape is not None:
            scanned.append(TensorType(type_.dtype, (None, *type_.shape)))
        else:
            scanned.append(control.loose(type_))
    return [*carried, *scanned]


def _scan(
    node: Node, inputs: list[Type | None], types: Mapping[str, Type | None], values: Mapping[str, Value], depth: int
) -> list[Type | None] | None:
    body, scanned = node.attributes.get("body"), node.attributes.get("num_scan_inputs", 0)
    if not isinstance(body, Graph) or len(body.inputs) != len(inputs) or not 0 < scanned <= len(inputs):
        return None
    states, sequences = inputs[: len(inputs) - scanned], inputs[len(inputs) - scanned :]
    axes = node.attributes.get("scan_input_axes") or [0] * scanned
    length, slices = None, []
    for type_, axis in zip(sequences, axes, strict=True):
        if isinstance(type_, TensorType) and type_.shape is not None:
            axis = axis_of(node, axis, len(type_.shape))
            length = merge_dim(length, type_.shape[axis])
            slices.append(TensorType(type_.dtype, (*type_.shape[:axis], *type_.shape[axis + 1 :])))
        else:
            slices.append(control.loose(type_))
    given = dict(zip(body.inputs, [*states, *slices], strict=True))
    inner = _infer(body, given, types, values, depth + 1)
    outputs = [inner.get(o, types.get(o)) for o in body.outputs]
    stacked: list[Type | None] = []
    out_axes = node.attributes.get("scan_output_axes") or [0] * (len(outputs) - len(states))
    for type_, axis in zip(outputs[len(states) :], out_axes, strict=True):
        if isinstance(type_, TensorType) and type_.shape is not None:
            axis = axis_of(node, axis, len(type_.shape) + 1)
            stacked.append(TensorType(type_.dtype, (*type_.shape[:axis], length, *type_.shape[axis:])))
        else:
            stacked.append(control.loose(type_))
    # A state keeps its type from one step to the next.
    return [*(control.meet(a, b) for a, b in zip(states, outputs, strict=False)), *stacked]


def _filled(type_: Type | None, declared: Type | None, *, symbols: bool = False) -> Type | None:
    """A type with its unknown parts taken from what the model declares, where the two do not contradict.

    Declared symbolic dimensions are believed only of inputs: elsewhere exporters often write any name.
    """
    if type_ is None or type_ == UNKNOWN:
        return declared if symbols else _without_symbols(declared)
    if not isinstance(type_, TensorType) or not isinstance(declared, TensorType):
        return type_
    other = declared if symbols else _without_symbols(declared)
    assert isinstance(other, TensorType)
    dtype = type_.dtype if type_.dtype is not None else other.dtype
    if type_.shape is None:
        return TensorType(dtype, other.shape)
    if other.shape is None or len(other.shape) != len(type_.shape):
        return TensorType(dtype, type_.shape)
    return TensorType(dtype, tuple(a if a is not None else b for a, b in zip(type_.shape, other.shape, strict=True)))


def _without_symbols(type_: Type | None) -> Type | None:
    if isinstance(type_, TensorType) and type_.shape is not None:
        return TensorType(type_.dtype, tuple(d if isinstance(d, int) else None for d in type_.shape))
    if isinstance(type_, SequenceType):
        return SequenceType(_without_symbols(type_.element))
    if isinstance(type_, OptionalType):
        return OptionalType(_without_symbols(type_.element))
    return type_


__all__ = ["infer_graph", "infer_node", "infer_values"]
