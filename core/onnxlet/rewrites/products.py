"""Einsum as matrix products, and the factors and transposes that products can take into themselves."""

from __future__ import annotations

import numpy as np

from ..graph.ir import Node
from .editor import Editor


def expand_einsum(editor: Editor) -> int:
    """An Einsum of two operands that is a stack of matrix products becomes Transpose, MatMul and Transpose."""
    return sum(_expand(editor, node) for node in editor.nodes("Einsum"))


def _expand(editor: Editor, node: Node) -> bool:
    equation = node.attributes["equation"].replace(" ", "")
    terms, arrow, result = equation.partition("->")
    operands = terms.split(",")
    if len(operands) != 2 or len(node.inputs) != 2 or not arrow or "." in equation:
        return False
    a, b = operands
    if any(len(set(term)) < len(term) for term in (a, b, result)) or not set(result) <= set(a) | set(b):
        return False
    batch = [letter for letter in result if letter in a and letter in b]
    summed = [letter for letter in a if letter in b and letter not in result]
    rows = [letter for letter in result if letter not in b]
    columns = [letter for letter in result if letter not in a]
    if len(summed) != 1 or not rows or not columns or len(batch) + len(rows) + len(columns) < len(result):
        return False
    if not {*a} | {*b} <= {*result, *summed}:
        return False
    # Further axes of one operand are a stack, for which the other is repeated.
    stack = [*rows[:-1], *columns[:-1]]
    if rows[:-1] and columns[:-1]:
        return False
    shapes = [editor.shape(name) for name in node.inputs]
    lengths = [
        None if s is None or len(s) != len(t) else s[t.index(summed[0])] for s, t in zip(shapes, (a, b), strict=True)
    ]
    # An axis of one element would be repeated by Einsum.
    if None in lengths or lengths[0] != lengths[1]:
        return False
    new: list[Node] = []
    left = _ordered(editor, node, node.inputs[0], a, [*rows[:-1], *batch, rows[-1], *summed], new)
    right = _ordered(editor, node, node.inputs[1], b, [*columns[:-1], *batch, *summed, columns[-1]], new)
    made = [*stack, *batch, rows[-1], columns[-1]]
    straight = made == list(result)
    product = node.outputs[0] if straight else editor.new_name(f"{node.outputs[0]}_product")
    new.append(Node("MatMul", [left, right], [product], {}, "", node.version, node.label))
    if not straight:
        perm = [made.index(letter) for letter in result]
        new.append(Node("Transpose", [product], node.outputs, {"perm": perm}, "", node.version, node.label))
    editor.replace([node], new)
    return True


def _ordered(editor: Editor, node: Node, name: str, letters: str, wanted: list[str], new: list[Node]) -> str:
    """The operand with its axes in the wanted order."""
    if list(letters) == wanted:
        return name
    perm = [letters.index(letter) for letter in wanted]
    turned = editor.new_name(f"{name}_turned")
    # The name is taken from now on.
    editor.types[turned] = None
    new.append(Node("Transpose", [name], [turned], {"perm": perm}, "", node.version, f"{node.label}/{turned}"))
    return turned


def fuse_transposed_product(editor: Editor) -> int:
    """A MatMul whose second operand is transposed for it reads that as it lies: com.microsoft's FusedMatMul."""
    changes = 0
    for node in editor.nodes("MatMul"):
        turn, shape = editor.made_by(node.inputs[1], "Transpose"), editor.shape(node.inputs[1])
        if turn is None or shape is None or len(shape) < 2 or editor.dtype(node.inputs[0]) != np.float32:
            continue
        rank = len(shape)
        swapped = [*range(rank - 2), rank - 1, rank - 2]
        first = editor.shape(node.inputs[0])
        if list(turn.attributes.get("perm") or range(rank)[::-1]) != swapped or first is None or len(first) < 2:
            continue
        inputs = [node.inputs[0], turn.inputs[0]]
        new = Node("FusedMatMul", inputs, node.outputs, {"transB": 1}, "com.microsoft", 1, node.label)
        editor.replace([node], [new])
        changes += 1
    return changes


def multiply_instead(editor: Editor) -> int:
    """A division by powers of two becomes a multiplication, which is as exact."""
    changes = 0
    for node in editor.nodes("Div"):
        divisor = editor.constant(node.inputs[1])
        if divisor is None or divisor.dtype.kind != "f" or divisor.size > 1 << 16 or node.version < 7:
            continue
        values = divisor.numpy()
        fractions, exponents = np.frexp(values)
        limit = 100 if values.dtype.itemsize >= 4 else 10
        if not (np.abs(fractions) == 0.5).all() or not (np.abs(exponents) < limit).all():
            continue
        factor = editor.add_constant(f"{node.inputs[1]}_inverse", (1 / values).astype(values.dtype))
        inputs = [node.inputs[0], factor]
        editor.replace([node], [Node("Mul", inputs, node.outputs, {}, "", node.version, node.name)])
        changes += 1
    return changes
