"""Activation functions that exporters write out in elementary operators: GELU, SiLU, hard swish."""

from __future__ import annotations

import math

from ..graph.ir import Node
from .editor import Editor


def _other(node: Node, name: str) -> str | None:
    """The other input of a binary node that reads `name` once, else `None`."""
    a, b = node.inputs
    if (a == name) == (b == name):
        return None
    return b if a == name else a


def _close(value: float | None, wanted: float) -> bool:
    return value is not None and math.isclose(value, wanted, rel_tol=1e-4)


def fuse_gelu(editor: Editor) -> int:
    """``0.5 * x * (1 + erf(x / sqrt 2))``, in any order of its factors, becomes Gelu."""
    return sum(_fuse_gelu(editor, erf) for erf in editor.nodes("Erf"))


def _fuse_gelu(editor: Editor, erf: Node) -> bool:
    scaled = editor.made_by(erf.inputs[0], "Div", "Mul")
    if scaled is None or editor.sole_user(erf.inputs[0]) is not erf:
        return False
    x = scaled.inputs[0]
    factor = editor.scalar(scaled.inputs[1])
    if scaled.op_type == "Mul" and factor is None:
        x, factor = scaled.inputs[1], editor.scalar(scaled.inputs[0])
    if not _close(factor, math.sqrt(2) if scaled.op_type == "Div" else math.sqrt(0.5)):
        return False
    plus_one = editor.sole_user(erf.outputs[0])
    if plus_one is None or plus_one.op_type != "Add":
        return False
    one = _other(plus_one, erf.outputs[0])
    if one is None or editor.scalar(one) != 1.0:
        return False
    # Two multiplications are left, by x and by a half, in one of three orders.
    used, current, need_x, need_half = [scaled, erf, plus_one], plus_one.outputs[0], True, True
    for _ in range(2):
        product = editor.sole_user(current)
        if product is None or product.op_type not in ("Mul", "Div"):
            return False
        factor_name = _other(product, current)
        if factor_name is None:
            return False
        value = editor.scalar(factor_name)
        if product.op_type == "Div":
            if product.inputs[0] != current or value != 2.0 or not need_half:
                return False
            need_half = False
        elif factor_name == x and need_x:
            need_x = False
        elif value == 0.5 and need_half:
            need_half = False
        elif need_x and need_half and (halved := _halved(editor, factor_name, x)) is not None:
            used.append(halved)
            need_x = need_half = False
        else:
            return False
        used.append(product)
        current = product.outputs[0]
        if not (need_x or need_half):
            break
    if need_x or need_half or editor.dtype(x) is None:
        return False
    gelu = Node("Gelu", [x], [current], {}, "com.microsoft", 1, used[-1].label)
    editor.replace(used, [gelu])
    return True


def _halved(editor: Editor, name: str, x: str) -> Node | None:
    """The node that makes ``x * 0.5`` or ``x / 2`` for a single reader, if `name` is that."""
    node = editor.made_by(name, "Mul", "Div")
    if node is None or editor.sole_user(name) is None:
        return None
    other = _other(node, x)
    if other is None or (node.op_type == "Div" and node.inputs[0] != x):
        return None
    return node if editor.scalar(other) == (0.5 if node.op_type == "Mul" else 2.0) else None


def fuse_gates(editor: Editor) -> int:
    """``x * sigmoid(x)`` becomes QuickGelu with alpha 1 (SiLU); ``x * hardsigmoid(x)`` becomes HardSwish."""
    changes = 0
    for product in editor.nodes("Mul"):
        for x, gate_name in (product.inputs, product.inputs[::-1]):
            gate = editor.made_by(gate_name, "Sigmoid", "HardSigmoid")
            if gate is None or gate.inputs[0] != x or editor.sole_user(gate_name) is not product:
                continue
            if gate.op_type == "Sigmoid":
                new = Node("QuickGelu", [x], product.outputs, {"alpha": 1.0}, "com.microsoft", 1, product.label)
            elif _close(gate.attributes.get("alpha", 0.2), 1 / 6) and gate.attributes.get("beta", 0.5) == 0.5:
                new = Node("HardSwish", [x], product.outputs, {}, "", max(14, product.version), product.label)
            else:
                continue
            editor.replace([gate, product], [new])
            changes += 1
            break
    return changes
