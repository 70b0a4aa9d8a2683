"""Values of small integer tensors, known in full or in part, carried through the graph.

Exporters compute shapes inside the graph: Shape, Gather, Concat, Reshape. A partly known value is an array of objects,
each an `int`, a `str` (a symbolic dimension) or `None`; one that is known in full is an ordinary array, and then the
operator's own NumPy definition computes it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..ir import Node, TensorType, Type

MAX_SIZE = 256
"""Elements of the largest tensor whose value is followed."""

Value = np.ndarray

# Operators that are computed when all their inputs are known: deterministic ones that shape arithmetic is made of.
_COMPUTED = frozenset(
    {
        "Abs", "Add", "And", "Cast", "CastLike", "Ceil", "Concat", "ConstantOfShape", "CumSum", "Div", "Equal",
        "Expand", "Flatten", "Floor", "Gather", "GatherElements", "GatherND", "Greater", "GreaterOrEqual",
        "Identity", "Less", "LessOrEqual", "Max", "Min", "Mod", "Mul", "Neg", "Not", "Or", "Pow", "Range",
        "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSum", "Reshape", "Round", "ScatterElements", "ScatterND",
        "Shape", "Size", "Slice", "Split", "Sqrt", "Squeeze", "Sub", "Tile", "Transpose", "Unsqueeze", "Where",
        "Xor",
    }
)  # fmt: skip


def evaluate(
    node: Node, types: Sequence[Type | None], values: Sequence[Value | None], outputs: Sequence[Type | None]
) -> list[Value | None]:
    """The values of a node's outputs, each `None` where it can't be told or is not worth it.

    `types` and `values` are those of the inputs, `outputs` the types that were inferred.
    """
    unknown: list[Value | None] = [None] * len(node.outputs)
    if node.domain:
        return unknown
    if node.op_type in ("Shape", "Size"):
        return [_shape(node, types[0])]
    if any(v is None for v, name in zip(values, node.inputs, strict=True) if name):
        return unknown
    if all(v is None or v.dtype != object for v in values):
        # A short shape may ask for a large tensor: only what is known to stay small is computed.
        small = all(isinstance(t, TensorType) and t.concrete and t.size <= MAX_SIZE for t in outputs)
        return _compute(node, values) if small and node.op_type in _COMPUTED else unknown
    partial = _PARTIAL.get(node.op_type)
    if partial is None:
        return unknown
    try:
        result = partial(node, values)
    except (IndexError, ValueError, TypeError):
        return unknown
    return [settle(result)] if result is not None and result.size <= MAX_SIZE else unknown


def settle(value: Value) -> Value:
    """An ordinary array where all elements of a partly known one are known."""
    if value.dtype == object and all(isinstance(v, int) for v in value.reshape(-1)):
        return value.astype(np.int64)
    return value


def objects(items: Any, shape: tuple[int, ...]) -> Value:
    """An array of objects from a flat sequence."""
    array = np.empty(len(items), object)
    array[:] = items
    return array.reshape(shape)


def _shape(node: Node, type_: Type | None) -> Value | None:
    if not isinstance(type_, TensorType) or type_.shape is None:
        return None
    if node.op_type == "Size":
        return np.array(math.prod(type_.dims), np.int64) if type_.concrete else None
    dims = list(type_.shape)[node.attributes.get("start", 0) : node.attributes.get("end")]
    return settle(objects(dims, (len(dims),)))


def _compute(node: Node, values: Sequence[Value | None]) -> list[Value | None]:
    from ...ops.registry import find

    unknown: list[Value | None] = [None] * len(node.outputs)
    operator = find(node.op_type, node.domain, node.version)
    if operator is None or sum(v.size for v in values if v is not None) > MAX_SIZE:
        return unknown
    keywords = {k: v for k, v in node.attributes.items() if k in operator.attributes}
    given = {"n_outputs": len(node.outputs), "output_types": [None] * len(node.outputs), "body_types": []}
    keywords.update((k, given[k]) for k in operator.injected if k in given)
    try:
        with np.errstate(all="ignore"):
            result = operator.function(*values, **keywords)
    except Exception:
        return unknown  # the run will say what is wrong
    results = list(result) if isinstance(result, (tuple, list)) else [result]
    arrays = [np.asarray(r) for r in results]
    return [a if a.size <= MAX_SIZE and a.dtype != object else None for a in arrays] + unknown[len(arrays) :]


def _elementwise(rule: Callable[[Any, Any], Any]) -> Callable[[Node, Sequence[Any]], Value]:
    def apply(node: Node, values: Sequence[Any]) -> Value:
        a, b = np.broadcast_arrays(*(v.astype(object) for v in values))
        pairs = zip(a.reshape(-1).tolist(), b.reshape(-1).tolist(), strict=True)
        return objects([rule(x, y) for x, y in pairs], a.shape)

    return apply


def _add(x: Any, y: Any) -> Any:
    if isinstance(x, int) and isinstance(y, int):
        return x + y
    return x if y == 0 else y if x == 0 else None


def _sub(x: Any, y: Any) -> Any:
    if isinstance(x, int) and isinstance(y, int):
        return x - y
    return x if y == 0 else 0 if x is not None and x == y else None


def _mul(x: Any, y: Any) -> Any:
    if isinstance(x, int) and isinstance(y, int):
        return x * y
    return 0 if x == 0 or y == 0 else x if y == 1 else y if x == 1 else None


def _div(x: Any, y: Any) -> Any:
    if isinstance(x, int) and isinstance(y, int):
        return int(x / y) if y and abs(x) < 1 << 52 else None
    return x if y == 1 else None


def _cast(node: Node, values: Sequence[Any]) -> Value | None:
    return values[0] if node.attributes.get("to") in (6, 7) else None


def _gather(node: Node, values: Sequence[Any]) -> Value:
    data, indices = values
    return np.asarray(data.take(indices.astype(np.int64), axis=node.attributes.get("axis", 0)), object)


def _concat(node: Node, values: Sequence[Any]) -> Value:
    return np.concatenate([v.astype(object) for v in values], axis=node.attributes["axis"])


def _slice(node: Node, values: Sequence[Any]) -> Value | None:
    data, bounds = values[0], values[1:]
    if node.version < 10 or data.ndim != 1:
        return None
    if any(v is not None and (v.dtype == object or v.size != 1) for v in bounds):
        return None
    step = int(bounds[3].item()) if len(bounds) > 3 and bounds[3] is not None else 1
    return data[int(bounds[0].item()) : int(bounds[1].item()) : step] if step > 0 else None


def _squeeze(node: Node, values: Sequence[Any]) -> Value | None:
    return values[0].reshape(()) if values[0].size == 1 and values[0].ndim == 1 else None


def _unsqueeze(node: Node, values: Sequence[Any]) -> Value | None:
    axes = node.attributes.get("axes") if len(values) < 2 else values[1].tolist()
    return values[0].reshape(1) if values[0].ndim == 0 and axes in ([0], [-1]) else None


def _reshape(node: Node, values: Sequence[Any]) -> Value | None:
    shape = values[1]
    return None if shape.dtype == object else values[0].reshape([int(d) for d in shape])


def _where(node: Node, values: Sequence[Any]) -> Value | None:
    if values[0].dtype == object:
        return None
    condition, a, b = np.broadcast_arrays(values[0], values[1].astype(object), values[2].astype(object))
    rows = zip(condition.reshape(-1), a.reshape(-1).tolist(), b.reshape(-1).tolist(), strict=True)
    return objects([x if c else y for c, x, y in rows], condition.shape)


_PARTIAL: dict[str, Callable[[Node, Sequence[Any]], Value | None]] = {
    "Add": _elementwise(_add),
    "Sub": _elementwise(_sub),
    "Mul": _elementwise(_mul),
    "Div": _elementwise(_div),
    "Cast": _cast,
    "Identity": lambda node, values: values[0],
    "Gather": _gather,
    "Concat": _concat,
    "Slice": _slice,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Reshape": _reshape,
    "Where": _where,
}
