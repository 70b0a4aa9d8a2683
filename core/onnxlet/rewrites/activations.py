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
    return value is not None and math.isclose(value, wanted, rel_tol=1e-6)


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
    product = _times(editor, plus_one.outputs[0], x, 0.5)
    if product is None or editor.dtype(x) is None:
        return False
    used = [scaled, erf, plus_one, *product]
    gelu = Node("Gelu", [x], used[-1].outputs, {}, "com.microsoft", 1, used[-1].label)
    editor.replace(used, [gelu])
    return True


def _times(editor: Editor, value: str, x: str, factor: float) -> list[Node] | None:
    """The nodes that multiply a private value by `x` and by a number, in any order; `None` if that is not what is done.

    A division by the number's inverse will do, and the number may be multiplied to `x` first.
    """
    used: list[Node] = []
    need_x = need_factor = True
    while need_x or need_factor:
        product = editor.sole_user(value)
        if product is None or product.domain or product.op_type not in ("Mul", "Div"):
            return None
        other = _other(product, value)
        if other is None:
            return None
        number = _multiplier(editor, product, value)
        if need_factor and _close(number, factor):
            need_factor = False
        elif product.op_type == "Div":
            return None
        elif need_x and other == x:
            need_x = False
        elif need_x and need_factor and (scaled := editor.made_by(other, "Mul", "Div")) is not None:
            if _other(scaled, x) is None or editor.sole_user(other) is not product:
                return None
            if not _close(_multiplier(editor, scaled, x), factor):
                return None
            used.append(scaled)
            need_x = need_factor = False
        else:
            return None
        used.append(product)
        value = product.outputs[0]
    return used


def _multiplier(editor: Editor, node: Node, value: str) -> float | None:
    """The number by which a Mul or Div with a constant scales `value`, else `None`."""
    other = _other(node, value)
    number = None if other is None else editor.scalar(other)
    if node.op_type == "Mul" or not number:
        return number
    return 1 / number if node.inputs[0] == value else None


def fuse_hard_swish(editor: Editor) -> int:
    """``x * clip(x + 3, 0, 6) / 6``, in any order of its factors, becomes HardSwish."""
    changes = 0
    for clip in editor.nodes("Clip"):
        shifted = editor.made_by(clip.inputs[0], "Add")
        if shifted is None or editor.sole_user(clip.inputs[0]) is not clip or clip_bounds(editor, clip) != (0.0, 6.0):
            continue
        x, three = shifted.inputs
        if editor.scalar(three) is None:
            x, three = three, x
        product = _times(editor, clip.outputs[0], x, 1 / 6) if editor.scalar(three) == 3.0 else None
        if product is None or shifted.version < 7:
            continue
        used = [shifted, clip, *product]
        new = Node("HardSwish", [x], used[-1].outputs, {}, "", max(14, clip.version), used[-1].label)
        editor.replace(used, [new])
        changes += 1
    return changes


def clip_bounds(editor: Editor, clip: Node) -> tuple[float, float] | None:
    """The bounds of a Clip, given as attributes or as constants; `None` where they are computed."""
    bounds = [clip.attributes.get("min", -math.inf), clip.attributes.get("max", math.inf)]
    for i, name in enumerate(clip.inputs[1:3]):
        if name:
            bound = editor.scalar(name)
            if bound is None:
                return None
            bounds[i] = bound
    return bounds[0], bounds[1]


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
