"""Normalisations that exporters write out in elementary operators."""

from __future__ import annotations

from ..graph.ir import Node
from .editor import Editor


def fuse_layer_norm(editor: Editor) -> int:
    """``d / sqrt(mean(d²) + epsilon) * scale + bias`` with ``d = x - mean(x)``, all over the last axis, becomes
    LayerNormalization."""
    return sum(_fuse(editor, node) for node in editor.nodes("Div"))


def _fuse(editor: Editor, div: Node) -> bool:
    centred = editor.made_by(div.inputs[0], "Sub")
    root = editor.made_by(div.inputs[1], "Sqrt")
    if centred is None or root is None:
        return False
    plus = editor.made_by(root.inputs[0], "Add")
    if plus is None:
        return False
    epsilon, variance = editor.scalar(plus.inputs[1]), editor.made_by(plus.inputs[0], "ReduceMean")
    if epsilon is None:
        epsilon, variance = editor.scalar(plus.inputs[0]), editor.made_by(plus.inputs[1], "ReduceMean")
    mean = editor.made_by(centred.inputs[1], "ReduceMean")
    if epsilon is None or variance is None or mean is None:
        return False
    x = centred.inputs[0]
    square = editor.made_by(variance.inputs[0], "Pow", "Mul")
    if square is None or mean.inputs[0] != x or square.inputs[0] != centred.outputs[0]:
        return False
    if square.op_type == "Mul" and square.inputs[1] != centred.outputs[0]:
        return False
    if square.op_type == "Pow" and editor.scalar(square.inputs[1]) != 2.0:
        return False
    shape = editor.shape(x)
    if shape is None or not all(_over_last(editor, node, len(shape)) for node in (mean, variance)):
        return False
    scaled = editor.sole_user(div.outputs[0])
    if scaled is None or scaled.op_type != "Mul":
        return False
    scale = scaled.inputs[1] if scaled.inputs[0] == div.outputs[0] else scaled.inputs[0]
    shifted = editor.sole_user(scaled.outputs[0])
    if shifted is None or shifted.op_type != "Add":
        return False
    bias = shifted.inputs[1] if shifted.inputs[0] == scaled.outputs[0] else shifted.inputs[0]
    # Only one scale and one bias per element of the last axis: others would broadcast the result.
    if editor.shape(scale) != (shape[-1],) or editor.shape(bias) != (shape[-1],):
        return False
    used = [mean, centred, square, variance, plus, root, div, scaled, shifted]
    inner = {node.outputs[0] for node in used[:-1]}
    if not all(editor.private(name) and all(user in used for user in editor.users[name]) for name in inner):
        return False
    attributes = {"axis": -1, "epsilon": epsilon}
    new = Node("LayerNormalization", [x, scale, bias], shifted.outputs, attributes, "", 17, shifted.label)
    editor.replace(used, [new])
    return True


def _over_last(editor: Editor, node: Node, rank: int) -> bool:
    """Whether a reduction is over the last axis alone and keeps it."""
    axes = node.attributes.get("axes")
    if axes is None and len(node.inputs) > 1:
        tensor = editor.constant(node.inputs[1])
        axes = None if tensor is None else tensor.numpy().tolist()
    return axes is not None and [a % rank for a in axes] == [rank - 1] and node.attributes.get("keepdims", 1) == 1
