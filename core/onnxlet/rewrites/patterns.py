"""Questions that several rewrites ask of nodes: factors, axes, the other operand."""

from __future__ import annotations

import math

from ..graph.ir import Node
from .editor import Editor


def is_op(node: Node | None, *operators: str) -> bool:
    """Whether a node is one of these ai.onnx operators."""
    return node is not None and not node.domain and node.op_type in operators


def other_input(node: Node, name: str) -> str | None:
    """The other input of a binary node that reads `name` once, else `None`."""
    a, b = node.inputs
    if (a == name) == (b == name):
        return None
    return b if a == name else a


def close(value: float | None, wanted: float) -> bool:
    return value is not None and math.isclose(value, wanted, rel_tol=1e-6)


def factor_of(editor: Editor, node: Node, value: str) -> float | None:
    """The finite number by which a Mul or Div with a constant scales `value`, else `None`."""
    other = other_input(node, value)
    number = None if other is None else editor.scalar(other)
    if node.op_type == "Div":
        number = 1 / number if number and node.inputs[0] == value else None
    return number if number is not None and math.isfinite(number) else None


def axes_of(editor: Editor, node: Node, rank: int) -> list[int] | None:
    """The axes that a node has as attribute or as a constant second input, counted from the front."""
    axes = node.attributes.get("axes")
    if axes is None and len(node.inputs) > 1 and node.inputs[1]:
        tensor = editor.constant(node.inputs[1])
        axes = None if tensor is None else tensor.numpy().reshape(-1).tolist()
    return None if axes is None or not rank else [axis % rank for axis in axes]
