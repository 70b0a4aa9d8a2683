"""Which nodes can be computed ahead of a run, and what they give.

Used twice: once for the graph as loaded, where only initializers are known, and once per plan, where every shape is
known too and whole Shape→Gather→Concat→Reshape sub-graphs vanish.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, MutableMapping

import numpy as np

from ..errors import LimitError, NodeError
from ..graph.ir import Node, TensorType, Type
from ..model.tensors import Tensor
from .numpy_steps import fold

NEVER_FOLDED = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli", "Dropout"}
)
"""Operators whose result is not a function of their inputs alone."""

GROWTH_LIMIT = 1 << 20
"""Bytes that a folded tensor may have beyond those of its inputs: `ConstantOfShape` of a gigabyte stays a node."""


def shape_result(node: Node, inputs: list[Type | None]) -> np.ndarray | None:
    """The result of `Shape` or `Size` where the input's shape is known, else `None`."""
    if node.domain or node.op_type not in ("Shape", "Size"):
        return None
    type_ = inputs[0]
    if not isinstance(type_, TensorType) or type_.shape is None:
        return None
    if not all(isinstance(d, int) for d in type_.shape):
        return None
    if node.op_type == "Size":
        return np.array(math.prod(type_.shape), np.int64)  # type: ignore[arg-type]
    start, end = node.attributes.get("start", 0), node.attributes.get("end")
    return np.array(type_.shape[start:end], np.int64)


def foldable(node: Node, constants: Mapping[str, Tensor]) -> bool:
    """Whether all inputs of the node are known and it has no side door (randomness, sub-graphs)."""
    if node.op_type in NEVER_FOLDED or next(node.subgraphs(), None) is not None:
        return False
    return all(not name or name in constants for name in node.inputs) and any(node.inputs)


SMALL_WEIGHTS = 1 << 16
"""From so many elements on bytes are not made float32 ahead: providers may compute with the bytes."""


def too_large(node: Node, types: list[Type | None], constants: Mapping[str, Tensor]) -> bool:
    """Whether folding would hold much more memory than the node's inputs do."""
    known = [t for t in types if isinstance(t, TensorType) and t.concrete]
    if len(known) < len(types):
        return False
    if not node.domain and node.op_type in ("Cast", "DequantizeLinear"):
        source = constants[node.inputs[0]]
        if source.dtype in (np.int8, np.uint8) and source.size >= SMALL_WEIGHTS:
            return True
    inputs = sum(constants[name].nbytes for name in node.inputs if name)
    return sum(t.nbytes for t in known) > inputs + GROWTH_LIMIT


def fold_into(node: Node, constants: MutableMapping[str, Tensor]) -> list[Type | None] | None:
    """Compute a foldable node, add its tensors to `constants`, and return the outputs' types.

    `None` if the node gives something other than tensors, or fails: then it is left to the run, so that an error in
    a branch that is never taken stays silent.
    """
    try:
        outputs = fold(node, {name: constants[name].numpy() for name in node.inputs if name})
    except (LimitError, NodeError):
        return None
    if not all(v is None or isinstance(v, np.ndarray) for v in outputs):
        return None
    types: list[Type | None] = []
    for name, value in zip(node.outputs, outputs, strict=True):
        types.append(None if value is None else TensorType(value.dtype, value.shape))
        if name and value is not None:
            constants[name] = Tensor.of(value)
    return types
