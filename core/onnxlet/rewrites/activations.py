"""Activation functions that exporters write out in elementary operators: GELU, SiLU, Mish, hard swish."""

from __future__ import annotations

import math
from collections.abc import Mapping

from ..graph.ir import Node
from .editor import Editor
from .patterns import is_op, other_input

GELUS: dict[str, tuple[dict[int, float], tuple[str, str, int, Mapping[str, str]]]] = {
    "Erf": ({1: math.sqrt(0.5)}, ("Gelu", "com.microsoft", 1, {})),
    "Tanh": ({1: math.sqrt(2 / math.pi), 3: 0.044715 * math.sqrt(2 / math.pi)}, ("FastGelu", "com.microsoft", 1, {})),
}
"""For f in ``0.5 * x * (1 + f(p(x)))``: the coefficients of the polynomial p, and the operator that this is."""

DEPTH = 6
"""Operators that a polynomial is made of at most, one upon the other."""

POLYNOMIAL = ("Add", "Sub", "Mul", "Div", "Neg", "Pow")


def _tolerance(editor: Editor, value: str) -> float:
    """How far constants may be off that are stored in the type of a value."""
    dtype = editor.dtype(value)
    return 2e-3 if dtype is not None and dtype.itemsize == 2 else 1e-6


def _close(value: float | None, wanted: float, tolerance: float = 1e-6) -> bool:
    return value is not None and math.isclose(value, wanted, rel_tol=tolerance)


def _leaves(editor: Editor, name: str, depth: int = DEPTH) -> dict[str, None]:
    """Values of which `name` may be a polynomial, itself included."""
    found = {name: None}
    node = editor.made_by(name, *POLYNOMIAL) if depth else None
    for source in node.inputs if node is not None else ():
        if editor.constant(source) is None:
            found |= _leaves(editor, source, depth - 1)
    return found


def _polynomial(
    editor: Editor, name: str, x: str, used: dict[Node, None], depth: int = DEPTH
) -> dict[int, float] | None:
    """The coefficients, by degree, of `name` as a polynomial of `x`; the nodes that compute it go to `used`."""
    if name == x:
        return {1: 1.0}
    number = editor.scalar(name)
    if number is not None:
        return {0: number}
    node = editor.made_by(name, *POLYNOMIAL) if depth else None
    if node is None or node.version < 7:
        return None
    parts = [_polynomial(editor, source, x, used, depth - 1) for source in node.inputs]
    if any(part is None for part in parts):
        return None
    used[node] = None
    a, b = [part or {} for part in (*parts, {0: -1.0})[:2]]
    if node.op_type in ("Add", "Sub"):
        sign = 1 if node.op_type == "Add" else -1
        return {d: a.get(d, 0.0) + sign * b.get(d, 0.0) for d in {*a, *b}}
    if node.op_type == "Pow":
        power = b.get(0) if set(b) == {0} else None
        return _product(*[a] * int(power)) if power in (2.0, 3.0) else None
    if node.op_type == "Div":
        b = {0: 1 / b[0]} if set(b) == {0} and b[0] else {}
    return _product(a, b) if b else None


def _product(*factors: dict[int, float]) -> dict[int, float]:
    total = {0: 1.0}
    for factor in factors:
        next_: dict[int, float] = {}
        for d, v in total.items():
            for e, w in factor.items():
                next_[d + e] = next_.get(d + e, 0.0) + v * w
        total = next_
    return total


def fuse_gelu(editor: Editor) -> int:
    """``0.5 * x * (1 + erf(x / sqrt 2))`` becomes Gelu, ``0.5 * x * (1 + tanh(...))`` FastGelu, in any order."""
    return sum(_fuse_gelu(editor, node) for node in editor.nodes(*GELUS))


def _fuse_gelu(editor: Editor, node: Node) -> bool:
    wanted, (op_type, domain, version, attributes) = GELUS[node.op_type]
    plus_one = editor.sole_user(node.outputs[0])
    if plus_one is None or not is_op(plus_one, "Add"):
        return False
    one = other_input(plus_one, node.outputs[0])
    if one is None or editor.scalar(one) != 1.0:
        return False
    for x in _leaves(editor, node.inputs[0]):
        if editor.dtype(x) is None or editor.shape(x) is None:
            continue
        tolerance = _tolerance(editor, x)
        used: dict[Node, None] = {}
        found = _polynomial(editor, node.inputs[0], x, used)
        found = {d: v for d, v in (found or {}).items() if v}
        if set(found) != set(wanted) or not all(_close(found[d], v, tolerance) for d, v in wanted.items()):
            continue
        product = _times(editor, plus_one.outputs[0], x, 0.5)
        if product is None:
            continue
        nodes = [*used, node, plus_one, *product]
        # Powers of x may be shared with nobody else.
        inner = {name for n in used for name in n.outputs}
        if not all(editor.private(name) and all(user in nodes for user in editor.users[name]) for name in inner):
            continue
        gelu = Node(op_type, [x], nodes[-1].outputs, dict(attributes), domain, version, nodes[-1].label)
        editor.replace(nodes, [gelu])
        return True
    return False


def _times(editor: Editor, value: str, x: str, factor: float) -> list[Node] | None:
    """The nodes that multiply a private value by `x` and by a number, in any order; `None` if that is not what is done.

    A division by the number's inverse will do, and the number may be multiplied to `x` first.
    """
    used: list[Node] = []
    need_x = need_factor = True
    tolerance = _tolerance(editor, x)
    while need_x or need_factor:
        product = editor.sole_user(value)
        if product is None or product.domain or product.op_type not in ("Mul", "Div"):
            return None
        other = other_input(product, value)
        if other is None:
            return None
        number = _multiplier(editor, product, value)
        if need_factor and _close(number, factor, tolerance):
            need_factor = False
        elif product.op_type == "Div":
            return None
        elif need_x and other == x:
            need_x = False
        elif need_x and need_factor and (scaled := editor.made_by(other, "Mul", "Div")) is not None:
            if other_input(scaled, x) is None or editor.sole_user(other) is not product:
                return None
            if not _close(_multiplier(editor, scaled, x), factor, tolerance):
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
    other = other_input(node, value)
    number = None if other is None else editor.scalar(other)
    if node.op_type == "Mul" or not number:
        return number
    return 1 / number if node.inputs[0] == value else None


def fuse_hard_swish(editor: Editor) -> int:
    """``x * clip(x + 3, 0, 6) / 6``, in any order of its factors, becomes HardSwish; without x, HardSigmoid."""
    changes = 0
    for clip in editor.nodes("Clip"):
        shifted = editor.made_by(clip.inputs[0], "Add")
        if shifted is None or editor.sole_user(clip.inputs[0]) is not clip or clip_bounds(editor, clip) != (0.0, 6.0):
            continue
        x, three = shifted.inputs
        if editor.scalar(three) is None:
            x, three = three, x
        if editor.scalar(three) != 3.0 or shifted.version < 7:
            continue
        product = _times(editor, clip.outputs[0], x, 1 / 6)
        user = editor.sole_user(clip.outputs[0])
        if product is not None:
            used = [shifted, clip, *product]
            new = Node("HardSwish", [x], used[-1].outputs, {}, "", max(14, clip.version), used[-1].label)
        elif user is not None and is_op(user, "Mul", "Div") and _sixth(editor, user, clip.outputs[0]):
            used = [shifted, clip, user]
            attributes = {"alpha": 1 / 6, "beta": 0.5}
            new = Node("HardSigmoid", [x], user.outputs, attributes, "", clip.version, user.label)
        else:
            continue
        editor.replace(used, [new])
        changes += 1
    return changes


def _sixth(editor: Editor, node: Node, value: str) -> bool:
    return _close(_multiplier(editor, node, value), 1 / 6, _tolerance(editor, value))


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
    """``x * sigmoid(alpha * x)`` becomes QuickGelu (SiLU, if alpha is 1), ``x * hardsigmoid(x)`` HardSwish, and
    ``x * tanh(softplus(x))`` Mish; ``x / (1 + exp(-x))`` is SiLU too, and ``1 / (1 + exp(-x))`` Sigmoid."""
    changes = sum(_fuse_logistic(editor, node) for node in editor.nodes("Div", "Reciprocal"))
    for product in editor.nodes("Mul"):
        for x, gate_name in (product.inputs, product.inputs[::-1]):
            gate = editor.made_by(gate_name, "Sigmoid", "HardSigmoid", "Tanh")
            if gate is None or editor.sole_user(gate_name) is not product:
                continue
            found = _gate(editor, gate, x)
            if found is None:
                continue
            inner, (op_type, domain, version, attributes) = found
            new = Node(
                op_type, [x], product.outputs, attributes, domain,
                version if domain else max(version, product.version), product.label,
            )  # fmt: skip
            editor.replace([*inner, gate, product], [new])
            changes += 1
            break
    return changes


def _gate(editor: Editor, gate: Node, x: str) -> tuple[list[Node], tuple[str, str, int, dict[str, float]]] | None:
    """What ``x * gate`` is, and the nodes that lead from `x` to the gate."""
    inner = gate.inputs[0]
    if gate.op_type == "Sigmoid":
        if inner == x:
            return [], ("QuickGelu", "com.microsoft", 1, {"alpha": 1.0})
        scaled = editor.made_by(inner, "Mul", "Div")
        alpha = _multiplier(editor, scaled, x) if scaled is not None else None
        if scaled is None or alpha is None or not math.isfinite(alpha) or editor.sole_user(inner) is not gate:
            return None
        return [scaled], ("QuickGelu", "com.microsoft", 1, {"alpha": alpha})
    if gate.op_type == "HardSigmoid":
        sixth = _close(gate.attributes.get("alpha", 0.2), 1 / 6) and gate.attributes.get("beta", 0.5) == 0.5
        return ([], ("HardSwish", "", 14, {})) if inner == x and sixth else None
    if editor.sole_user(inner) is not gate:
        return None
    softplus = _softplus(editor, inner, x)
    return None if softplus is None else (softplus, ("Mish", "", 18, {}))


def _softplus(editor: Editor, name: str, x: str) -> list[Node] | None:
    """The nodes that compute softplus of `x`: the operator, or ``log(1 + exp(x))``."""
    node = editor.made_by(name, "Softplus", "Log")
    if node is not None and node.op_type == "Softplus":
        return [node] if node.inputs[0] == x else None
    exp = _one_plus_exp(editor, node.inputs[0], node) if node is not None else None
    return [*exp, node] if node is not None and exp is not None and exp[0].inputs[0] == x else None


def _one_plus_exp(editor: Editor, name: str, user: Node) -> list[Node] | None:
    """The nodes, Exp and Add, that compute ``1 + exp(...)`` for `user` alone."""
    plus = editor.made_by(name, "Add")
    if plus is None or plus.version < 7 or editor.sole_user(name) is not user:
        return None
    for one, other in (plus.inputs, plus.inputs[::-1]):
        exp = editor.made_by(other, "Exp")
        if editor.scalar(one) == 1.0 and exp is not None and editor.sole_user(other) is plus:
            return [exp, plus]
    return None


def _fuse_logistic(editor: Editor, node: Node) -> bool:
    found = _one_plus_exp(editor, node.inputs[-1], node)
    neg = editor.made_by(found[0].inputs[0], "Neg") if found is not None else None
    if found is None or neg is None or editor.sole_user(neg.outputs[0]) is not found[0] or node.version < 7:
        return False
    x = neg.inputs[0]
    if node.op_type == "Reciprocal" or editor.scalar(node.inputs[0]) == 1.0:
        new = Node("Sigmoid", [x], node.outputs, {}, "", node.version, node.label)
    elif node.inputs[0] == x:
        new = Node("QuickGelu", [x], node.outputs, {"alpha": 1.0}, "com.microsoft", 1, node.label)
    else:
        return False
    editor.replace([neg, *found, node], [new])
    return True
