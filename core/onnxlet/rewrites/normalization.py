"""Normalisations that exporters write out in elementary operators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod

import numpy as np

from ..graph.ir import Node
from .editor import Editor
from .patterns import axes_of, is_op, other_input


@dataclass(slots=True)
class Normal:
    """``x / sqrt(mean(x²) + epsilon)`` over the axes from `axis` on, of `x` or, if `centred`, of ``x - mean(x)``; then
    times `scale`, if that is not empty. `used` are the nodes that compute it, the last one last."""

    x: str
    axis: int
    shape: tuple[int | str | None, ...]
    epsilon: float
    centred: bool
    scale: str = ""
    bias: str = ""
    used: list[Node] = field(default_factory=list)

    @property
    def result(self) -> str:
        return self.used[-1].outputs[0]

    def closed(self, editor: Editor) -> bool:
        """Whether nobody else reads what is computed on the way."""
        inner = {name for node in self.used[:-1] for name in node.outputs if name}
        return all(editor.private(name) and all(user in self.used for user in editor.users[name]) for name in inner)


def fuse_layer_norm(editor: Editor) -> int:
    """``d / sqrt(mean(d²) + epsilon)`` with ``d = x - mean(x)``, over the last axes, perhaps with scale and bias,
    becomes LayerNormalization; over the spatial axes, InstanceNormalization; without the mean, RMSNormalization."""
    return sum(_fuse(editor, node) for node in editor.nodes("Div", "Mul"))


def _fuse(editor: Editor, node: Node) -> bool:
    found = _normal(editor, node) if node.version >= 7 else None
    if found is None or not found.closed(editor) or len(editor.shape(found.result) or ()) != len(found.shape):
        return False
    if not found.scale:
        found = _scaled(editor, found)
    inner = found.shape[found.axis :]
    if not found.centred:
        scale = found.scale or _filled(editor, found, inner, 1)
        if not scale:
            return False
        return _put(editor, found, "RMSNormalization", [found.x, scale], 23, {"axis": found.axis - len(found.shape)})
    if not found.scale and found.axis == 2 and _is_spatial(editor, found):
        ones, zeros = (_filled(editor, found, found.shape[1:2], value) for value in (1, 0))
        return _put(editor, found, "InstanceNormalization", [found.x, ones, zeros], 6, {})
    scale = found.scale or _filled(editor, found, inner, 1)
    if not scale:
        return False
    inputs = [found.x, scale, *([found.bias] if found.bias else [])]
    return _put(editor, found, "LayerNormalization", inputs, 17, {"axis": found.axis - len(found.shape)})


def _put(
    editor: Editor, found: Normal, op_type: str, inputs: list[str], version: int, attributes: dict[str, int]
) -> bool:
    dtype = editor.dtype(found.x)
    if dtype is None or dtype.kind in "biu" or any(editor.dtype(name) != dtype for name in inputs):
        return False  # not what the operators of the pattern allow
    last = found.used[-1]
    more = {**attributes, "epsilon": found.epsilon}
    new = Node(op_type, inputs, last.outputs, more, "", max(version, last.version), last.label)
    editor.replace(found.used, [new])
    return True


def _is_spatial(editor: Editor, found: Normal) -> bool:
    """Whether what is normalised are the pixels of a channel, not the elements of a token."""
    if not isinstance(found.shape[1], int):
        return False
    if len(found.shape) > 3:
        return True
    user = editor.sole_user(found.result)
    return editor.made_by(found.x, "Reshape") is not None and user is not None and user.op_type == "Reshape"


def _filled(editor: Editor, found: Normal, shape: Sequence[int | str | None], value: float) -> str:
    """A constant of one value; empty where its shape or type is not known."""
    dtype = editor.dtype(found.x)
    if dtype is None or not all(isinstance(d, int) for d in shape) or prod(shape) > 1 << 20:  # type: ignore[arg-type]
        return ""
    return editor.add_constant(f"{found.x}_filled", np.full(shape, value, dtype))  # type: ignore[arg-type]


def _normal(editor: Editor, node: Node) -> Normal | None:
    """What a Div or Mul normalises, if that is what it does."""
    for numerator, inverse in _quotients(editor, node):
        for eps_name, mean_square in (inverse[0].inputs, inverse[0].inputs[::-1]):
            epsilon, mean = editor.scalar(eps_name), editor.made_by(mean_square, "ReduceMean")
            square = editor.made_by(mean.inputs[0], "Pow", "Mul") if mean is not None else None
            if epsilon is None or mean is None or square is None or not epsilon > 0:
                continue
            x = square.inputs[0]
            squared = editor.scalar(square.inputs[1]) == 2.0 if square.op_type == "Pow" else square.inputs[1] == x
            axis = _first_axis(editor, mean, x)
            shape = editor.shape(x)
            if not squared or axis is None or shape is None:
                continue
            used = [square, mean, *inverse, node]
            scale = ""
            if numerator != x:  # scaled before it is normalised
                scaled = editor.made_by(numerator, "Mul")
                scale = other_input(scaled, x) if scaled is not None else None
                if scaled is None or not scale or not _fits(editor, scale, shape[axis:]):
                    continue
                used.insert(0, scaled)
            found = Normal(x, axis, shape, epsilon, False, scale, used=used)
            return _from_mean(editor, found)
    return None


def _quotients(editor: Editor, node: Node) -> list[tuple[str, list[Node]]]:
    """The ways to read a node as a value divided by the root of a sum: that value, and the sum (an Add) and the nodes
    that make its inverse root."""
    found = []
    if node.op_type == "Div":
        for root, power in (
            (editor.made_by(node.inputs[1], "Sqrt"), None),
            (editor.made_by(node.inputs[1], "Pow"), 0.5),
        ):
            if root is not None and (power is None or editor.scalar(root.inputs[1]) == power):
                found.append((node.inputs[0], [root]))
    else:
        for value, factor in (node.inputs, node.inputs[::-1]):
            inverse = editor.made_by(factor, "Reciprocal", "Div", "Pow")
            if inverse is None:
                continue
            if inverse.op_type == "Pow":
                if editor.scalar(inverse.inputs[1]) == -0.5:
                    found.append((value, [inverse]))
                continue
            if inverse.op_type == "Div" and editor.scalar(inverse.inputs[0]) != 1.0:
                continue
            root = editor.made_by(inverse.inputs[-1], "Sqrt")
            if root is not None:
                found.append((value, [root, inverse]))
    sums = [(value, editor.made_by(nodes[0].inputs[0], "Add"), nodes) for value, nodes in found]
    return [(value, [total, *nodes]) for value, total, nodes in sums if total is not None]


def _first_axis(editor: Editor, mean: Node, x: str) -> int | None:
    """The axis from which on a ReduceMean goes over all axes, keeping them, if it does."""
    shape = editor.shape(x)
    if not shape or mean.attributes.get("keepdims", 1) != 1:
        return None
    axes = axes_of(editor, mean, len(shape))
    first = len(shape) - len(axes or ())
    return first if axes and sorted(axes) == list(range(first, len(shape))) else None


def _from_mean(editor: Editor, found: Normal) -> Normal:
    """The same, with the subtraction of the mean, if what is normalised is one."""
    centred = editor.made_by(found.x, "Sub")
    mean = editor.made_by(centred.inputs[1], "ReduceMean") if centred is not None else None
    if centred is None or mean is None or mean.inputs[0] != centred.inputs[0] or found.scale:
        return found
    if _first_axis(editor, mean, centred.inputs[0]) != found.axis:
        return found
    return replace(found, x=centred.inputs[0], centred=True, used=[mean, centred, *found.used])


def _fits(editor: Editor, parameter: str, inner: Sequence[int | str | None]) -> bool:
    """Whether a parameter has one number for each element that is normalised together: it broadcasts nothing."""
    shape = editor.shape(parameter)
    return shape is not None and None not in shape and tuple(shape) == tuple(inner)


def _scaled(editor: Editor, found: Normal) -> Normal:
    """With the multiplication by a scale and the addition of a bias that follow."""
    inner = found.shape[found.axis :]
    scaled = editor.sole_user(found.result)
    scale = other_input(scaled, found.result) if scaled is not None and is_op(scaled, "Mul") else None
    if scaled is None or not scale or not _fits(editor, scale, inner):
        return found
    found = replace(found, scale=scale, used=[*found.used, scaled])
    shifted = editor.sole_user(found.result)
    if shifted is None or not found.centred or not is_op(shifted, "Add"):
        return found
    bias = other_input(shifted, found.result)
    if not bias or not _fits(editor, bias, inner):
        return found
    return replace(found, bias=bias, used=[*found.used, shifted])


def fuse_group_norm(editor: Editor) -> int:
    """InstanceNormalization of channels that are reshaped into groups and back becomes GroupNormalization; scales and
    biases of channels that follow it, or an InstanceNormalization, become its own."""
    changes = 0
    for node in editor.nodes("InstanceNormalization"):
        scale, bias = (editor.constant(name) for name in node.inputs[1:3])
        if scale is None or bias is None or editor.dtype(node.inputs[0]) != scale.dtype:
            continue
        if len(scale.shape) != 1 or not scale.shape[0] or bias.shape != scale.shape:
            continue
        into = editor.made_by(node.inputs[0], "Reshape")
        back = editor.sole_user(node.outputs[0])
        grouped = into is not None and back is not None and is_op(back, "Reshape") and back.inputs[0] == node.outputs[0]
        if into is not None and back is not None and grouped and _regroups(editor, into, back, scale.shape[0]):
            x, last = into.inputs[0], back
        else:
            x, last, grouped = node.inputs[0], node, False
        shape = editor.shape(x)
        channels = shape[1] if shape is not None and len(shape) > 1 else None
        if shape is None or not isinstance(channels, int) or channels % scale.shape[0]:
            continue
        repeats = channels // scale.shape[0]
        factors, offsets = (np.repeat(t.numpy().astype(np.float64), repeats) for t in (scale, bias))
        used = [node, last] if grouped else [node]
        while (user := editor.sole_user(used[-1].outputs[0])) is not None and is_op(user, "Mul", "Add"):
            values = _per_channel(editor, user, used[-1].outputs[0], channels, len(shape), scale.dtype)
            if values is None:
                break
            factors, offsets = (
                (factors * values, offsets * values) if user.op_type == "Mul" else (factors, offsets + values)
            )
            used.append(user)
        if len(used) == 1:
            continue
        inputs = [
            x,
            *(
                editor.add_constant(f"{x}_{hint}", a.astype(scale.dtype))
                for hint, a in (("scale", factors), ("bias", offsets))
            ),
        ]
        attributes = {"epsilon": node.attributes.get("epsilon", 1e-5)}
        outputs = used[-1].outputs
        if grouped:
            new = Node(
                "GroupNormalization", inputs, outputs, {**attributes, "num_groups": scale.shape[0]}, "", 21, node.label
            )
        else:
            new = Node("InstanceNormalization", inputs, outputs, attributes, "", node.version, node.label)
        editor.replace(used, [new])
        changes += 1
    return changes


def _regroups(editor: Editor, into: Node, back: Node, groups: int) -> bool:
    """Whether two Reshapes make (batch, groups, ...) of (batch, channels, ...), and that again."""
    shape, inner = editor.shape(into.inputs[0]), editor.shape(into.outputs[0])
    if shape is None or inner is None or len(shape) < 3 or len(inner) < 3 or None in (shape[0], inner[0]):
        return False
    if shape[0] != inner[0] or inner[1] != groups:
        return False
    return editor.same_shape(into.inputs[0], back.outputs[0])


def _per_channel(
    editor: Editor, node: Node, value: str, channels: int, rank: int, dtype: np.dtype
) -> np.ndarray | None:
    """The constant that a Mul or Add applies to each channel of `value`, else `None`."""
    other = other_input(node, value)
    tensor = editor.constant(other) if other else None
    if tensor is None or tensor.dtype != dtype or node.version < 7 or len(tensor.shape) > rank:
        return None
    shape = (1,) * (rank - len(tensor.shape)) + tensor.shape
    if shape[1] not in (1, channels) or prod(shape) != shape[1]:
        return None
    return np.broadcast_to(tensor.numpy().astype(np.float64).reshape(-1), (channels,))


def fuse_skip_norm(editor: Editor) -> int:
    """The sum of two values of one shape and its LayerNormalization become SkipLayerNormalization; its
    RMSNormalization, SkipSimplifiedLayerNormalization."""
    changes = 0
    for norm in editor.nodes("LayerNormalization", "RMSNormalization"):
        total = norm.inputs[0]
        add, shape = editor.made_by(total, "Add"), editor.shape(total)
        if add is None or add.version < 7 or shape is None or any(norm.outputs[1:]) or editor.dtype(total) is None:
            continue
        if norm.attributes.get("axis", -1) not in (-1, len(shape) - 1) or len(shape) not in (2, 3):
            continue
        if not (editor.same_shape(add.inputs[0], total) and editor.same_shape(add.inputs[1], total)):
            continue
        if not all(editor.constant(name) is not None and _fits(editor, name, shape[-1:]) for name in norm.inputs[1:]):
            continue
        if norm.attributes.get("stash_type", 1) != 1 or any(editor.constant(name) is not None for name in add.inputs):
            continue
        kind = "SkipLayerNormalization" if norm.op_type == "LayerNormalization" else "SkipSimplifiedLayerNormalization"
        outputs = [norm.outputs[0]] if editor.sole_user(total) is norm else [norm.outputs[0], "", "", total]
        attributes = {"epsilon": norm.attributes.get("epsilon", 1e-5)}
        inputs = [*add.inputs, *norm.inputs[1:]]
        # Others that read the sum may stand before the norm.
        new = Node(kind, inputs, outputs, attributes, "com.microsoft", 1, norm.label)
        editor.replace([add, norm], [new], first=True)
        changes += 1
    return changes
