"""Transposes: two that follow each other become one, also where elementwise operators stand between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..graph.ir import Node
from .editor import Editor
from .patterns import axes_of, other_input

UNARY = frozenset(
    {
        "Abs", "Acos", "Asin", "Atan", "Cast", "Ceil", "Celu", "Clip", "Cos", "Elu", "Erf", "Exp", "Floor", "Gelu",
        "HardSigmoid", "HardSwish", "LeakyRelu", "Log", "Mish", "Neg", "Not", "Reciprocal", "Relu", "Round", "Selu",
        "Sigmoid", "Sign", "Sin", "Softplus", "Softsign", "Sqrt", "Tanh", "ThresholdedRelu",
    }
)  # fmt: skip
"""Operators that do the same to every element of their first input; further inputs are scalars."""

BINARY = frozenset({"Add", "And", "Div", "Max", "Min", "Mul", "Or", "Pow", "Sub"})
REDUCTIONS = frozenset(
    {"ReduceL1", "ReduceL2", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare"}
)


def _perm(node: Node, rank: int) -> tuple[int, ...]:
    return tuple(node.attributes.get("perm") or range(rank)[::-1])


def _rank(editor: Editor, name: str) -> int | None:
    shape = editor.shape(name)
    return None if shape is None else len(shape)


def _transpose(like: Node, source: str, perm: Sequence[int], outputs: list[str]) -> Node:
    return Node("Transpose", [source], outputs, {"perm": list(perm)}, "", like.version, like.name)


def merge_transposes(editor: Editor) -> int:
    """A Transpose of a Transpose becomes one; so does a Transpose of matrices that were stacked for it by a Reshape."""
    changes = 0
    for node in editor.nodes("Transpose"):
        first = editor.made_by(node.inputs[0], "Transpose")
        rank = _rank(editor, node.inputs[0])
        if first is None or rank is None:
            continue
        inner = _perm(first, rank)
        perm = [inner[axis] for axis in _perm(node, rank)]
        editor.replace([node], [_transpose(node, first.inputs[0], perm, node.outputs)])
        changes += 1
    return changes + sum(_unstack(editor, node) for node in editor.nodes("Reshape"))


def _unstack(editor: Editor, back: Node) -> bool:
    """(a, b, m, n) as (a * b, m, n), transposed to (a * b, n, m), as (a, b, n, m)."""
    turn = editor.made_by(back.inputs[0], "Transpose")
    stack = editor.made_by(turn.inputs[0], "Reshape") if turn is not None else None
    if turn is None or stack is None or tuple(turn.attributes.get("perm", ())) != (0, 2, 1):
        return False
    source, stacked, result = (editor.shape(n) for n in (stack.inputs[0], stack.outputs[0], back.outputs[0]))
    if source is None or stacked is None or result is None or len(source) < 3 or None in source:
        return False
    if stacked[1:] != source[-2:] or result != (*source[:-2], source[-1], source[-2]):
        return False
    rank = len(source)
    perm = [*range(rank - 2), rank - 1, rank - 2]
    editor.replace([back], [_transpose(turn, stack.inputs[0], perm, back.outputs)])
    return True


def sink_transposes(editor: Editor) -> int:
    """Transposes move behind elementwise operators where they meet another there, or where two of one order join."""
    changes = 0
    for node in editor.nodes("Transpose"):
        changes += _sink(editor, node)
    for node in editor.nodes(*BINARY):
        changes += _join(editor, node)
    return changes


def _sink(editor: Editor, node: Node) -> bool:
    rank = _rank(editor, node.inputs[0])
    if rank is None:
        return False
    perm = _perm(node, rank)
    moved: list[Node] = []
    passed: list[Node] = []
    value, source = node.outputs[0], node.inputs[0]
    while (user := editor.sole_user(value)) is not None:
        if user.op_type == "Transpose" and not user.domain:
            if not passed:
                return False
            outer = [perm[axis] for axis in _perm(user, rank)]
            editor.replace([*passed, user], [*moved, _transpose(user, source, outer, user.outputs)])
            return True
        copy = _moved(editor, user, value, source, perm)
        if copy is None:
            return False
        passed.append(user)
        moved.append(copy)
        value, source = user.outputs[0], copy.outputs[0]
    return False


def _moved(editor: Editor, node: Node, value: str, source: str, perm: tuple[int, ...]) -> Node | None:
    """The node, which reads `value`, as it would do to `source`, of which `value` is the transpose; `None` where it
    can't."""
    if node.domain or len(node.outputs) != 1 or node.inputs.count(value) != 1:
        return None
    attributes: dict[str, Any] = dict(node.attributes)
    inputs = [source if name == value else name for name in node.inputs]
    if node.op_type in UNARY:
        if node.inputs[0] != value:
            return None
    elif node.op_type in BINARY and node.version >= 7 and len(node.inputs) == 2:
        other = other_input(node, value)
        turned = _constant_before(editor, other, perm) if other else None
        if turned is None:
            return None
        inputs = [source if name == value else turned for name in node.inputs]
    elif node.op_type in ("Softmax", "LogSoftmax") and node.version >= 13 and node.inputs[0] == value:
        axis = attributes.get("axis", -1)
        if not -len(perm) <= axis < len(perm):
            return None
        attributes["axis"] = perm[axis % len(perm)]
    elif node.op_type in REDUCTIONS and attributes.get("keepdims", 1) == 1 and node.inputs[0] == value:
        axes = axes_of(editor, node, len(perm))
        if not axes:
            return None
        axes = sorted(perm[axis] for axis in axes)
        if "axes" in attributes:
            attributes["axes"] = axes
        else:
            inputs[1] = editor.add_constant(f"{node.inputs[1]}_turned", np.array(axes, np.int64))
    else:
        return None
    name = editor.new_name(f"{node.outputs[0]}_before")
    return Node(node.op_type, inputs, [name], attributes, "", node.version, node.name)


def _constant_before(editor: Editor, name: str, perm: tuple[int, ...]) -> str | None:
    """A constant that broadcasts with a transposed value, as it broadcasts with the value before that."""
    tensor = editor.constant(name)
    if tensor is None or len(tensor.shape) > len(perm) or tensor.size > 1 << 16:
        return None
    if tensor.size == 1:
        return name
    array = tensor.numpy().reshape((1,) * (len(perm) - len(tensor.shape)) + tensor.shape)
    return editor.add_constant(f"{name}_turned", array.transpose(np.argsort(perm)))


def _join(editor: Editor, node: Node) -> bool:
    if len(node.inputs) != 2 or node.inputs[0] == node.inputs[1] or node.version < 7:
        return False
    first, second = (editor.made_by(name, "Transpose") for name in node.inputs)
    ranks = [_rank(editor, name) for name in node.inputs]
    if first is None or second is None or ranks[0] is None or ranks[0] != ranks[1]:
        return False
    perm = _perm(first, ranks[0])
    if _perm(second, ranks[0]) != perm or any(editor.sole_user(name) is not node for name in node.inputs):
        return False
    name = editor.new_name(f"{node.outputs[0]}_before")
    inputs = [first.inputs[0], second.inputs[0]]
    joined = Node(node.op_type, inputs, [name], dict(node.attributes), "", node.version, node.name)
    editor.replace([first, second, node], [joined, _transpose(first, name, perm, node.outputs)])
    return True
