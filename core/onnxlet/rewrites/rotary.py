"""Rotary positions as exporters write them: ``x * cos + rotated(x) * sin``, where halves of x, or neighbours in it, are
exchanged, with angles that are written twice."""

from __future__ import annotations

import numpy as np

from ..graph.ir import Node
from .editor import Editor
from .patterns import axes_of, is_op

KEEPS_HALVES = frozenset({"Cos", "Sin", "Cast", "Neg", "Identity"})
LARGEST = 1 << 21
"""Numbers in the largest table of cosines that is looked through."""


def fuse_rotary(editor: Editor) -> int:
    """``x * cos + concat(-x[half:], x[:half]) * sin`` becomes RotaryEmbedding, if cos and sin have two equal halves; so
    does that of ``stack(-x[1::2], x[::2])``, if they have pairs of equal numbers."""
    return sum(_fuse(editor, node) for node in editor.nodes("Add"))


def _fuse(editor: Editor, add: Node) -> bool:
    for first, second in (add.inputs, add.inputs[::-1]):
        straight, turned = editor.made_by(first, "Mul"), editor.made_by(second, "Mul")
        if straight is None or turned is None or straight is turned or add.version < 7:
            continue
        if editor.sole_user(first) is not add or editor.sole_user(second) is not add:
            continue
        for rotated, sine in (turned.inputs, turned.inputs[::-1]):
            paired = editor.made_by(rotated, "Reshape") is not None
            found = (_exchanged if paired else _rotated)(editor, rotated, turned)
            if found is None or found[0] not in straight.inputs:
                continue
            x, nodes = found
            cosine = straight.inputs[1 - straight.inputs.index(x)]
            angles = _angles(editor, x, cosine, paired), _angles(editor, x, sine, paired)
            if (
                angles[0] is None
                or angles[1] is None
                or any(editor.shape(x) != editor.shape(m) for m in (first, second))
            ):
                continue
            halves: list[Node] = []
            names = [_half(editor, name, angles[0], add, halves, paired) for name in (cosine, sine)]
            attributes = {"interleaved": 1} if paired else {}
            new = Node("RotaryEmbedding", [x, *names], add.outputs, attributes, "", max(23, add.version), add.label)
            editor.replace([*nodes, straight, turned, add], [*halves, new])
            return True
    return False


def _rotated(editor: Editor, name: str, user: Node) -> tuple[str, list[Node]] | None:
    """The value whose halves were exchanged, the second with its sign changed; and the nodes that do it for `user`."""
    joined = editor.made_by(name, "Concat")
    if joined is None or len(joined.inputs) != 2 or editor.sole_user(name) is not user:
        return None
    negative = editor.made_by(joined.inputs[0], "Neg")
    if negative is None or editor.sole_user(joined.inputs[0]) is not joined:
        return None
    shape = editor.shape(name)
    if shape is None or len(shape) != 4 or not isinstance(shape[3], int) or shape[3] % 2:
        return None
    if joined.attributes.get("axis") not in (-1, 3):
        return None
    upper, lower = negative.inputs[0], joined.inputs[1]
    split = editor.made_by(upper, "Split")
    if split is not None:
        halves = split.outputs == [lower, upper] and split.attributes.get("axis", 0) in (-1, 3)
        private = editor.sole_user(lower) is joined and editor.sole_user(upper) is negative
        same = editor.shape(lower) == editor.shape(upper)
        return (split.inputs[0], [split, negative, joined]) if halves and private and same else None
    parts = editor.made_by(upper, "Slice"), editor.made_by(lower, "Slice")
    if parts[0] is None or parts[1] is None or parts[0].inputs[0] != parts[1].inputs[0]:
        return None
    if editor.sole_user(upper) is not negative or editor.sole_user(lower) is not joined:
        return None
    half = shape[3] // 2
    if _bounds(editor, parts[0], shape[3]) != (half, shape[3], 1) or _bounds(editor, parts[1], shape[3]) != (
        0,
        half,
        1,
    ):
        return None
    x = parts[0].inputs[0]
    return (x, [parts[0], parts[1], negative, joined]) if editor.shape(x) == shape else None


def _exchanged(editor: Editor, name: str, user: Node) -> tuple[str, list[Node]] | None:
    """The value whose neighbours were exchanged, the first of the new ones with its sign changed; what does it is left
    to die."""
    reshape = editor.made_by(name, "Reshape")
    joined = editor.made_by(reshape.inputs[0], "Concat") if reshape is not None else None
    shape = editor.shape(name)
    if joined is None or len(joined.inputs) != 2 or editor.sole_user(name) is not user or shape is None:
        return None
    if joined.attributes.get("axis") not in (-1, 4) or len(shape) != 4 or not isinstance(shape[3], int) or shape[3] % 2:
        return None
    singles = [editor.made_by(value, "Unsqueeze") for value in joined.inputs]
    odd, even = (None if s is None or axes_of(editor, s, 5) != [4] else s.inputs[0] for s in singles)
    negative = editor.made_by(odd, "Neg") if odd else None
    parts = editor.made_by(negative.inputs[0] if negative else "", "Slice"), editor.made_by(even or "", "Slice")
    if parts[0] is None or parts[1] is None or parts[0].inputs[0] != parts[1].inputs[0]:
        return None
    if _bounds(editor, parts[0], shape[3]) != (1, shape[3], 2) or _bounds(editor, parts[1], shape[3]) != (
        0,
        shape[3],
        2,
    ):
        return None
    x = parts[0].inputs[0]
    return (x, []) if editor.shape(x) == shape and None not in shape else None


def _bounds(editor: Editor, node: Node, length: int) -> tuple[int, int, int] | None:
    """From where to where, and in which steps, a Slice of the last of four axes goes; `None` for another one."""
    tensors = [editor.constant(name) for name in node.inputs[1:]]
    if node.version < 10 or len(tensors) < 3 or any(t is None or t.size != 1 for t in tensors):
        return None
    start, end, axis, *step = (int(t.numpy().item()) for t in tensors if t is not None)
    if axis not in (-1, 3) or step[:1] == [0]:
        return None
    return slice(start, end, *step).indices(length)


def _angles(editor: Editor, x: str, name: str, paired: bool) -> int | None:
    """Half of how many cosines or sines there are for each row of `x`, if they are the same for all heads and their
    second half repeats the first; where `paired`, if each one is there twice."""
    shape, own = editor.shape(x), editor.shape(name)
    if shape is None or own is None or len(own) != 4 or None in own or own[1:] != (1, *shape[2:]):
        return None
    if own[0] not in (1, shape[0]):
        return None
    half = own[3] // 2 if isinstance(own[3], int) else None
    while True:
        node, rank = editor.producer.get(name), len(editor.shape(name) or ())
        if node is None and (table := editor.constant(name)) is not None and 0 < table.size <= LARGEST and half:
            first, second = np.moveaxis(
                table.numpy().reshape((-1, half, 2) if paired else (-1, 2, half)), 1 + paired, 0
            )
            return half if np.array_equal(first, second) else None
        if node is None or node.domain:
            return None
        if paired and node.op_type == "Reshape":
            return half if _twice(editor, node) else None
        if not paired and node.op_type == "Concat" and node.inputs == [node.inputs[0]] * 2:
            return half if rank and node.attributes.get("axis") in (-1, rank - 1) else None
        if is_op(node, "Mul") and any(editor.scalar(other) is not None for other in node.inputs):
            name = next(other for other in node.inputs if editor.scalar(other) is None)
        elif node.op_type in KEEPS_HALVES or _keeps_last(editor, node, rank):
            name = node.inputs[0]
        else:
            return None


def _keeps_last(editor: Editor, node: Node, rank: int) -> bool:
    """Whether a node whose result has `rank` axes picks or reshapes along other axes than the last."""
    if node.op_type == "Unsqueeze":
        axes = axes_of(editor, node, rank) if rank else None
        return bool(axes) and rank - 1 not in axes
    shape = editor.shape(node.inputs[0])
    if node.op_type in ("Squeeze", "Slice"):
        at = 3 if node.op_type == "Slice" and node.version >= 10 else 1
        tensor = editor.constant(node.inputs[at]) if len(node.inputs) > at else None
        axes = node.attributes.get("axes") if tensor is None else tensor.numpy().reshape(-1).tolist()
        return bool(axes) and shape is not None and not {-1, len(shape) - 1} & {*axes}
    if node.op_type == "Gather":
        return shape is not None and node.attributes.get("axis", 0) in range(len(shape) - 1)
    if node.op_type == "GatherND":
        depth = (editor.shape(node.inputs[1]) or (None,))[-1]
        return shape is not None and isinstance(depth, int) and depth < len(shape)
    return False


def _twice(editor: Editor, reshape: Node) -> bool:
    """Whether a Reshape has each number twice: behind an Unsqueeze of the last axis, and an Expand or Tile of it."""
    spread = editor.made_by(reshape.inputs[0], "Expand", "Tile")
    single = editor.made_by(spread.inputs[0], "Unsqueeze") if spread is not None else None
    if spread is None or single is None:
        return False
    whole, both, one = (editor.shape(n) for n in (reshape.outputs[0], spread.outputs[0], single.outputs[0]))
    if whole is None or both is None or one is None or None in (*whole, *both, *one) or not whole:
        return False
    length = whole[-1]
    return isinstance(length, int) and both == (*whole[:-1], length // 2, 2) and one[-2:] == (length // 2, 1)


def _half(editor: Editor, name: str, half: int, add: Node, new: list[Node], paired: bool) -> str:
    """(batch, length, half) out of the cosines or sines (batch, 1, length, 2 * half)."""
    places = (
        (("from", 0), ("to", 2 * half), ("last", 3), ("step", 2))
        if paired
        else (("from", 0), ("to", half), ("last", 3))
    )
    bounds = [editor.add_constant(f"{name}_{hint}", np.array([n], np.int64)) for hint, n in places]
    part, result = editor.new_name(f"{name}_part"), editor.new_name(f"{name}_half")
    new.append(Node("Slice", [name, *bounds], [part], {}, "", max(10, add.version), f"{add.label}/{part}"))
    one = editor.add_constant(f"{name}_one", np.array([1], np.int64)) if add.version >= 13 else ""
    attributes = {} if one else {"axes": [1]}
    new.append(
        Node("Squeeze", [part, one] if one else [part], [result], attributes, "", add.version, f"{add.label}/{result}")
    )
    return result
