"""Arithmetic with shapes that is known ahead, though some dimensions are not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..execution.folding import NEVER_FOLDED
from ..graph.ir import Node, TensorType
from ..model.tensors import Tensor
from .editor import Editor
from .transposes import UNARY

KEEPS_SHAPE = UNARY | {"DequantizeLinear", "QuantizeLinear"}
"""Operators whose result has the shape of their first input."""


def fold_shapes(editor: Editor) -> int:
    """Values that follow from known dimensions become constants, and so do targets of Reshape that repeat dimensions of
    what is reshaped. A shape is that of what elementwise operators read, which then are free for other rewrites."""
    changes = sum(_read_before(editor, node) for node in editor.nodes("Shape"))
    for node in editor.nodes():
        if node.op_type in NEVER_FOLDED or next(node.subgraphs(), None) is not None:
            continue
        values = [editor.values.get(name) for name in node.outputs if name]
        if values and all(value is not None and value.dtype != object for value in values):
            changes += _fold(editor, node)
        elif not node.domain and node.op_type == "Reshape":
            changes += _fold_target(editor, node)
    return changes


def _read_before(editor: Editor, node: Node) -> bool:
    source = node.inputs[0]
    while (maker := editor.made_by(source, *KEEPS_SHAPE)) is not None:
        source = maker.inputs[0]
    if source == node.inputs[0]:
        return False
    editor.replace([node], [replace(node, inputs=[source])])
    return True


def _fold(editor: Editor, node: Node) -> bool:
    names = [name for name in node.outputs if name]
    for name in names:
        value, type_ = editor.values[name], editor.types.get(name)
        if not isinstance(type_, TensorType) or (type_.dtype, type_.shape) != (value.dtype, value.shape):
            return False
    editor.replace([node], [])
    for name in names:
        editor.graph.initializers[name] = Tensor.of(np.asarray(editor.values[name], order="C"))
    return True


def _fold_target(editor: Editor, reshape: Node) -> bool:
    """A target such as (batch, length, 4, 8) for a value of shape (batch, length, 32): the first two are copied."""
    target, shape = (
        editor.values.get(reshape.inputs[1]) if len(reshape.inputs) > 1 else None,
        editor.shape(reshape.inputs[0]),
    )
    if target is None or shape is None or target.ndim != 1 or editor.constant(reshape.inputs[1]) is not None:
        return False
    folded: list[int] = []
    for i, dimension in enumerate(target.tolist()):
        if isinstance(dimension, int) and dimension > 0:
            folded.append(dimension)
        elif isinstance(dimension, str) and i < len(shape) and shape[i] == dimension:
            folded.append(0)
        else:
            return False
    name = editor.add_constant(f"{reshape.inputs[1]}_known", np.array(folded, np.int64))
    attributes = {k: v for k, v in reshape.attributes.items() if k != "allowzero"}
    new = Node("Reshape", [reshape.inputs[0], name], reshape.outputs, attributes, "", reshape.version, reshape.name)
    editor.replace([reshape], [new])
    return True
