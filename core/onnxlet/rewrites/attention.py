"""Attention that exporters write out: a product of queries and keys, scaled and masked, a softmax, a product with the
values, and the transposes of heads around them, become ai.onnxlet's FusedAttention."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from ..graph.ir import Node, TensorType
from ..graph.unseen import NAN_ZERO, UNSEEN_NAN, UNSEEN_ZERO
from .editor import Editor
from .epilogues import DOMAIN
from .patterns import axes_of, factor_of

HEADS_FIRST = {3: (0, 1, 2), 4: (0, 1, 2, 3)}
HEADS_LAST = {3: (1, 0, 2), 4: (0, 2, 1, 3)}
"""Orders of axes, by rank, that lead from what FusedAttention takes to (batch, heads, rows, size)."""


@dataclass(frozen=True, slots=True)
class Operand:
    """Queries, keys or values: `scale` times the value `name`, its axes in the order `perm`."""

    name: str
    perm: tuple[int, ...]
    scale: float = 1.0

    def layout(self, keys_transposed: bool = False) -> int | None:
        """0 if the heads come first, 1 if the rows do, `None` for another order."""
        perm = _swapped(self.perm) if keys_transposed else self.perm
        orders = (HEADS_FIRST[len(perm)], HEADS_LAST[len(perm)])
        return orders.index(perm) if perm in orders else None


@dataclass(slots=True)
class Scores:
    """What is done between the product of queries and keys and the softmax; `used` are the nodes that do it."""

    product: Node
    scale: float = 1.0
    bias: str = ""
    keep: str = ""
    hide: str = ""
    fill: float = -math.inf
    used: list[Node] = field(default_factory=list)


def fuse_attention(editor: Editor) -> int:
    """Attention in elementary operators becomes FusedAttention; so does ai.onnx's Attention where transposes surround
    it."""
    changes = sum(_fuse(editor, softmax) for softmax in editor.nodes("Softmax"))
    return changes + sum(_fuse_standard(editor, node) for node in editor.nodes("Attention"))


def _fuse(editor: Editor, softmax: Node) -> bool:
    after = _second_product(editor, softmax)
    if after is None:
        return False
    product = after.nodes[-1]
    readings = ((scores, _operands(editor, scores.product, after)) for scores in _scores(editor, softmax))
    scores, found = next(((s, o) for s, o in readings if o is not None), (None, None))
    if scores is None or found is None:
        return False
    operands, new = found
    layouts = [operand.layout(i == 1) for i, operand in enumerate(operands)]
    rank = len(operands[0].perm)
    if any(mask and _rank(editor, mask) not in range(rank + 1) for mask in (scores.bias, scores.keep, scores.hide)):
        return False
    used = [scores.product, *scores.used, softmax, *after.nodes]
    if not after.turned:
        used += _turned(editor, product.outputs[0], rank)
    last = int(used[-1] is not product)
    if scores.hide:
        scores.keep = editor.new_name(f"{scores.hide}_kept")
        new.append(Node("Not", [scores.hide], [scores.keep], {}, "", softmax.version))
    scale = math.prod([scores.scale, *(operand.scale for operand in operands)])
    attributes = {"scale": scale, "heads_last": [*layouts, last]}
    if scores.keep:
        attributes["fill"] = scores.fill
    if after.unseen != UNSEEN_NAN:
        attributes["unseen"] = after.unseen
    inputs = [*(operand.name for operand in operands), scores.bias, scores.keep]
    while not inputs[-1]:
        inputs.pop()
    outputs = [editor.new_name(f"{used[-1].outputs[0]}_rows")] if after.turned else used[-1].outputs
    new.append(Node("FusedAttention", inputs, outputs, attributes, DOMAIN, 1, softmax.label))
    if after.turned:
        new.append(_exchange(outputs[0], used[-1].outputs[0], rank, softmax))
    editor.replace(used, new)
    return True


def _exchange(name: str, result: str, rank: int, like: Node) -> Node:
    """Exchanges the last two axes of a value."""
    return Node(
        "Transpose", [name], [result], {"perm": _swapped(HEADS_FIRST[rank])}, "", like.version, f"{like.label}/{result}"
    )


def _swapped(perm: tuple[int, ...]) -> tuple[int, ...]:
    return (*perm[:-2], perm[-1], perm[-2])


def _turned(editor: Editor, result: str, rank: int) -> list[Node]:
    """The transpose that alone reads a result and puts its rows before its heads, if there is one."""
    user = editor.sole_user(result)
    if user is None or (user.domain, user.op_type) != ("", "Transpose"):
        return []
    return [user] if tuple(user.attributes.get("perm", ())) == HEADS_LAST[rank] else []


def _fuse_standard(editor: Editor, node: Node) -> bool:
    """ai.onnx's Attention of four axes, without a cache."""
    attributes = node.attributes
    plain = {"is_causal", "q_num_heads", "kv_num_heads", "scale", "qk_matmul_output_mode"}
    if any(value for name, value in attributes.items() if name not in plain) or any(node.outputs[1:]):
        return False
    mask = node.inputs[3] if len(node.inputs) > 3 else ""
    shapes = [editor.shape(name) for name in node.inputs[:3]]
    if any(node.inputs[4:]) or any(shape is None or len(shape) != 4 for shape in shapes):
        return False
    straight = HEADS_FIRST[4]
    found = [_followed(editor, Operand(name, straight), scalable=False) for name in node.inputs[:3]]
    operands = _shared(editor, [o for o in found if o is not None])
    if operands is None:
        return False
    turned = _turned(editor, node.outputs[0], 4)
    if [o.name for o in operands] == node.inputs[:3] and not turned:
        return False
    size = shapes[0][3] if shapes[0] is not None else None
    if mask and not _covers_keys(editor, mask, shapes[1]):
        return _read_shared_heads(editor, node)
    scale = attributes.get("scale", size**-0.5 if isinstance(size, int) and size else None)
    if scale is None:
        return False
    flags = [*(operand.layout() for operand in operands), len(turned)]
    fused = {"scale": scale, "heads_last": flags, "unseen": UNSEEN_ZERO}
    if attributes.get("is_causal", 0):
        fused["causal_offset"] = 0
    inputs = [*(operand.name for operand in operands), *(["", mask] if mask else [])]
    used = [node, *turned]
    editor.replace(used, [Node("FusedAttention", inputs, used[-1].outputs, fused, DOMAIN, 1, node.label)])
    return True


def _read_shared_heads(editor: Editor, node: Node) -> bool:
    """Let an Attention read keys and values as they are before each of their heads is repeated."""
    keys, values = (_unrepeated(editor, Operand(name, HEADS_FIRST[4]), False, far=False) for name in node.inputs[1:3])
    if keys is None or values is None or keys[1] != values[1]:
        return False
    inputs = [node.inputs[0], keys[0].name, values[0].name, *node.inputs[3:]]
    new = Node(node.op_type, inputs, node.outputs, dict(node.attributes), node.domain, node.version, node.name)
    editor.replace([node], [new])
    return True


def _covers_keys(editor: Editor, mask: str, keys: tuple[int | str | None, ...] | None) -> bool:
    """Whether a mask is boolean and as long as there are keys: Attention reads shorter ones as hiding the rest."""
    shape, dtype = editor.shape(mask), editor.dtype(mask)
    if not shape or keys is None or dtype is None or dtype.kind != "b":
        return False
    return shape[-1] is not None and shape[-1] == keys[2]


def _rank(editor: Editor, name: str) -> int:
    shape = editor.shape(name)
    return -1 if shape is None else len(shape)


@dataclass(frozen=True, slots=True)
class Second:
    """The product of weights and `values`, the last of the `nodes` after a softmax. `values_swapped`: the values' last
    two axes are exchanged for it; `turned`: so are the result's. `unseen`: what becomes of NaN on the way."""

    nodes: list[Node]
    values: str
    unseen: int
    values_swapped: bool = False
    turned: bool = False


def _second_product(editor: Editor, softmax: Node) -> Second | None:
    """What a softmax over the last axis is multiplied by, if that alone reads its weights."""
    shape = editor.shape(softmax.inputs[0])
    dtype = editor.dtype(softmax.inputs[0])
    if shape is None or len(shape) not in (3, 4) or (dtype is not None and dtype.itemsize == 8):
        return None
    if softmax.attributes.get("axis", -1 if softmax.version >= 13 else 1) not in (-1, len(shape) - 1):
        return None
    nodes, weights, unseen = [], softmax.outputs[0], UNSEEN_NAN
    users = editor.users.get(weights, [])
    if len(users) == 2 and editor.private(weights) and {u.op_type for u in users} == {"IsNaN", "Where"}:
        # Weights that are NaN are replaced by 0.
        test, where = sorted(users, key=lambda node: node.op_type)
        if where.inputs[0] != test.outputs[0] or where.inputs[2] != weights or editor.scalar(where.inputs[1]) != 0:
            return None
        if editor.sole_user(test.outputs[0]) is not where:
            return None
        nodes, weights, unseen = [test, where], where.outputs[0], NAN_ZERO
    product = editor.sole_user(weights)
    if product is None or len(product.inputs) != 2:
        return None
    first, second = product.inputs
    if (product.domain, product.op_type) == ("", "MatMul") and first == weights:
        return Second([*nodes, product], second, unseen)
    if (product.domain, product.op_type) != ("com.microsoft", "FusedMatMul"):
        return None
    how = {"transB": 0, "alpha": 1.0, **product.attributes}
    if how.pop("transB") != 1 or how.pop("alpha") != 1.0 or any(how.values()):
        return None
    # Weights by values that lie as (size, rows), or these by weights that are transposed.
    turned = second == weights
    return Second([*nodes, product], first if turned else second, unseen, True, turned)


def _scores(editor: Editor, softmax: Node) -> Iterator[Scores]:
    """The ways to read what a softmax is taken of as scaled, biased and masked products."""
    pending: list[tuple[str, Node, Scores]] = [(softmax.inputs[0], softmax, Scores(softmax))]
    while pending:
        value, reader, found = pending.pop()
        node = editor.producer.get(value)
        if node is None or editor.sole_user(value) is not reader:
            continue
        kind = (node.domain, node.op_type)
        onwards = replace(found, used=[node, *found.used])
        if kind == ("", "MatMul") or kind == ("com.microsoft", "FusedMatMul"):
            alpha = float(node.attributes.get("alpha", 1.0))
            if not any(node.attributes.get(name, 0) for name in ("transA", "transBatchA", "transBatchB")):
                yield replace(found, product=node, scale=found.scale * alpha)
        elif kind == ("", "Where") and not (found.keep or found.hide or found.bias or found.scale != 1.0):
            condition, a, b = node.inputs
            if (fill := editor.scalar(b)) is not None:
                pending.append((a, node, replace(onwards, keep=condition, fill=fill)))
            elif (fill := editor.scalar(a)) is not None:
                pending.append((b, node, replace(onwards, hide=condition, fill=fill)))
        elif kind in (("", "Mul"), ("", "Div")):
            for part in node.inputs:
                if (factor := factor_of(editor, node, part)) is not None:
                    pending.append((part, node, replace(onwards, scale=found.scale * factor)))
        elif kind == ("", "Add") and not found.bias and found.scale == 1.0 and node.inputs[0] != node.inputs[1]:
            a, b = node.inputs
            pending += [(b, node, replace(onwards, bias=a)), (a, node, replace(onwards, bias=b))]


def _operands(editor: Editor, product: Node, after: Second) -> tuple[list[Operand], list[Node]] | None:
    """Queries, keys and values as FusedAttention takes them, and the transposes that this asks for."""
    ranks = [_rank(editor, name) for name in (*product.inputs, after.values)]
    if ranks[0] not in (3, 4) or len(set(ranks)) > 1:
        return None
    straight = HEADS_FIRST[ranks[0]]
    swapped = _swapped(straight)
    new: list[Node] = []
    # The product takes the keys transposed, unless it does so itself.
    keys_perm = swapped if product.attributes.get("transB", 0) else straight
    queries = _followed(editor, Operand(product.inputs[0], straight))
    keys = _reached(editor, Operand(product.inputs[1], keys_perm), product, new, keys_transposed=True)
    values_perm = swapped if after.values_swapped else straight
    values = _reached(editor, Operand(after.values, values_perm), product, new, scalable=False)
    if queries is None or keys is None or values is None:
        return None
    operands = _shared(editor, [queries, keys, values], keys_transposed=True)
    return None if operands is None else (operands, new)


def _reached(
    editor: Editor,
    start: Operand,
    product: Node,
    new: list[Node],
    *,
    keys_transposed: bool = False,
    scalable: bool = True,
) -> Operand | None:
    """Like `_followed`; keys or values whose size lies before their rows are transposed, if this run makes them: then
    that costs little beside making them. A cache's would cost as much as the products."""
    found = _followed(editor, start, keys_transposed=keys_transposed, scalable=scalable)
    if found is not None:
        return found
    turned = replace(start, perm=_swapped(start.perm))
    found = _followed(editor, turned, keys_transposed=keys_transposed, scalable=scalable)
    maker = None if found is None else editor.producer.get(found.name)
    type_ = None if found is None else editor.types.get(found.name)
    if found is None or maker is None or found.layout(keys_transposed) != 0 or not isinstance(type_, TensorType):
        return None
    if maker.op_type == "Concat" or type_.shape is None:
        return None
    name = editor.new_name(f"{found.name}_rows")
    *lead, size, rows = type_.shape
    editor.types[name] = TensorType(type_.dtype, (*lead, rows, size))
    new.append(_exchange(found.name, name, len(start.perm), product))
    return replace(found, name=name)


def _shared(editor: Editor, operands: list[Operand], *, keys_transposed: bool = False) -> list[Operand] | None:
    """Queries, keys and values, these without the repetition of their heads; `None` where the heads are not known to
    fit."""
    if len(operands) != 3:
        return None
    queries, keys, values = operands
    shared = _unrepeated(editor, keys, keys_transposed), _unrepeated(editor, values, False)
    if shared[0] is not None and shared[1] is not None and shared[0][1] == shared[1][1]:
        keys, values, repeats = shared[0][0], shared[1][0], shared[0][1]
    else:
        repeats = 1
    heads = [_heads(editor, operand) for operand in (queries, keys, values)]
    if None in heads or heads[1] != heads[2] or (repeats == 1 and heads[0] != heads[1]):
        return None
    if repeats > 1 and (not isinstance(heads[1], int) or heads[0] != heads[1] * repeats):
        return None
    return [queries, keys, values]


def _heads(editor: Editor, operand: Operand) -> int | str | None:
    """How many heads an operand has."""
    shape = editor.shape(operand.name)
    return None if shape is None else shape[operand.perm[-3]]


def _followed(
    editor: Editor, start: Operand, *, keys_transposed: bool = False, scalable: bool = True
) -> Operand | None:
    """Back through transposes and scalings, as far as the order of the axes is one that can be taken; `None` if no
    order on the way is."""
    best, operand = None, start
    while True:
        if operand.layout(keys_transposed) is not None:
            best = operand
        node = editor.made_by(operand.name, "Transpose", "Mul", "Div")
        if node is None:
            return best
        if node.op_type == "Transpose":
            perm: Sequence[int] = node.attributes.get("perm") or range(len(start.perm))[::-1]
            operand = replace(operand, name=node.inputs[0], perm=tuple(perm[axis] for axis in operand.perm))
            continue
        if not scalable:
            return best
        scaled = next((part for part in node.inputs if factor_of(editor, node, part) is not None), None)
        if scaled is None or _rank(editor, scaled) != len(start.perm):
            return best
        factor = factor_of(editor, node, scaled)
        assert factor is not None
        operand = replace(operand, name=scaled, scale=operand.scale * factor)


def _unrepeated(
    editor: Editor, operand: Operand, keys_transposed: bool, *, far: bool = True
) -> tuple[Operand, int] | None:
    """Keys or values before each of their heads is repeated for several heads of the queries, and how often; `None`
    where nothing is repeated. `far` goes on to what they are made of.

    Exporters write that as Unsqueeze, Expand (or Tile) and Reshape of (batch, heads, rows, size).
    """
    if operand.layout(keys_transposed) != 0 or len(operand.perm) != 4:
        return None
    reshape = editor.made_by(operand.name, "Reshape")
    expand = editor.made_by(reshape.inputs[0], "Expand", "Tile") if reshape is not None else None
    unsqueeze = editor.made_by(expand.inputs[0], "Unsqueeze") if expand is not None else None
    if reshape is None or expand is None or unsqueeze is None or axes_of(editor, unsqueeze, 5) != [2]:
        return None
    joined, spread, single = (editor.shape(n) for n in (operand.name, expand.outputs[0], unsqueeze.outputs[0]))
    if joined is None or spread is None or single is None or not len(spread) == len(single) == 5:
        return None
    heads, repeats = spread[1], spread[2]
    if not isinstance(heads, int) or not isinstance(repeats, int) or joined[1] != heads * repeats:
        return None
    kept = [0, 1, 3, 4]
    if any(spread[a] is None or spread[a] != single[a] for a in kept) or joined[3] != spread[4]:
        return None
    source = replace(operand, name=unsqueeze.inputs[0])
    if not far:
        return source, repeats
    further = _followed(editor, source, keys_transposed=keys_transposed, scalable=keys_transposed)
    return None if further is None else (further, repeats)
