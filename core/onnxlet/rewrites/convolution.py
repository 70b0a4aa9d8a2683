"""Folding what surrounds a convolution into its weights."""

from __future__ import annotations

import numpy as np

from ..graph.ir import Node
from .editor import Editor


def _convolutions(editor: Editor) -> list[tuple[Node, Node]]:
    """Convolutions, transposed ones too, with constant float weights whose result goes to one other node: pairs of the
    two."""
    pairs = []
    for node in editor.nodes("Conv", "ConvTranspose"):
        weights = editor.constant(node.inputs[1])
        bias = node.inputs[2] if len(node.inputs) > 2 else ""
        user = editor.sole_user(node.outputs[0])
        if weights is None or weights.dtype.kind != "f" or not _fits_groups(node, weights.shape):
            continue
        if user is not None and not user.domain and _has_bias(editor, bias, _output_channels(node, weights.shape)):
            pairs.append((node, user))
    return pairs


def _has_bias(editor: Editor, bias: str, channels: int) -> bool:
    """Whether a bias is absent, or a constant with a number per channel."""
    tensor = editor.constant(bias) if bias else None
    return not bias or (tensor is not None and tensor.shape == (channels,))


def _fits_groups(conv: Node, weights: tuple[int, ...]) -> bool:
    """Whether weights have the rank and the channels that a Conv or ConvTranspose can have."""
    groups = conv.attributes.get("group", 1)
    return len(weights) > 2 and groups > 0 and weights[0] > 0 and weights[0] % groups == 0


def _output_channels(conv: Node, weights: tuple[int, ...]) -> int:
    return weights[1] * conv.attributes.get("group", 1) if conv.op_type == "ConvTranspose" else weights[0]


def _per_output(conv: Node, weights: tuple[int, ...], values: np.ndarray) -> np.ndarray:
    """One value per output channel, as it goes with the weights."""
    ones = [1] * (len(weights) - 2)
    if conv.op_type == "Conv":
        return values.reshape(-1, 1, *ones)
    # Of a transposed convolution the weights are (input channels, output channels of a group, ...).
    groups = conv.attributes.get("group", 1)
    return np.repeat(values.reshape(groups, weights[1]), weights[0] // groups, axis=0).reshape(*weights[:2], *ones)


def _absorb(editor: Editor, conv: Node, user: Node, scale: np.ndarray, shift: np.ndarray) -> None:
    """Replace conv and user by a convolution that computes ``scale * conv + shift`` per output channel."""
    tensor = editor.constant(conv.inputs[1])
    assert tensor is not None
    weights = tensor.numpy()
    bias_name = conv.inputs[2] if len(conv.inputs) > 2 else ""
    bias = editor.constant(bias_name)
    # In double precision, so that folding costs no accuracy.
    old = 0.0 if bias is None else bias.numpy().astype(np.float64)
    folded = weights.astype(np.float64) * _per_output(conv, weights.shape, scale)
    inputs = [
        conv.inputs[0],
        editor.add_constant(f"{conv.inputs[1]}_folded", folded.astype(weights.dtype)),
        editor.add_constant(f"{conv.outputs[0]}_bias", (old * scale + shift).astype(weights.dtype)),
    ]
    new = Node(
        conv.op_type, inputs, [user.outputs[0]], dict(conv.attributes), "", conv.version, conv.name or conv.label
    )
    editor.replace([conv, user], [new])


def fold_batch_norm(editor: Editor) -> int:
    """Conv, ConvTranspose or Gemm followed by BatchNormalization with constant statistics becomes one of them."""
    changes = 0
    for conv, norm in [*_convolutions(editor), *_linear_layers(editor)]:
        if norm.op_type != "BatchNormalization" or any(norm.outputs[1:]) or norm.attributes.get("training_mode"):
            continue
        if (norm.version < 7 and not norm.attributes.get("is_test", 0)) or norm.attributes.get("spatial", 1) != 1:
            continue
        tensors = [editor.constant(name) for name in norm.inputs[1:5]]
        if any(t is None for t in tensors) or norm.inputs[0] != conv.outputs[0]:
            continue
        scale, shift, mean, variance = (t.numpy().astype(np.float64) for t in tensors if t is not None)
        if not scale.shape == shift.shape == mean.shape == variance.shape == (_width(editor, conv),):
            continue
        factor = scale / np.sqrt(variance + norm.attributes.get("epsilon", 1e-5))
        absorb = _absorb_linear if conv.op_type == "Gemm" else _absorb
        absorb(editor, conv, norm, factor, shift - mean * factor)
        changes += 1
    return changes


def _width(editor: Editor, layer: Node) -> int:
    """How many channels a convolution or product with constant weights gives."""
    weights = editor.constant(layer.inputs[1])
    assert weights is not None
    if layer.op_type == "Gemm":
        return weights.shape[0 if layer.attributes.get("transB", 0) else 1]
    return _output_channels(layer, weights.shape)


def _linear_layers(editor: Editor) -> list[tuple[Node, Node]]:
    """Gemms with a constant matrix and vector whose result goes to one other node: pairs of the two."""
    pairs = []
    for node in editor.nodes("Gemm"):
        matrix, user = editor.constant(node.inputs[1]), editor.sole_user(node.outputs[0])
        bias = editor.constant(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] else None
        if matrix is None or matrix.dtype.kind != "f" or len(matrix.shape) != 2 or node.version < 7:
            continue
        if user is None or user.domain:
            continue
        width = _width(editor, node)
        if bias is None and len(node.inputs) > 2 and node.inputs[2]:
            continue
        if bias is None or bias.shape in ((width,), (1, width)):
            pairs.append((node, user))
    return pairs


def _absorb_linear(editor: Editor, gemm: Node, user: Node, scale: np.ndarray, shift: np.ndarray) -> None:
    """Replace gemm and user by a Gemm that computes ``scale * gemm + shift`` per column."""
    tensor = editor.constant(gemm.inputs[1])
    assert tensor is not None
    matrix = tensor.numpy()
    bias = editor.constant(gemm.inputs[2]) if len(gemm.inputs) > 2 else None
    old = 0.0 if bias is None else bias.numpy().astype(np.float64).reshape(-1) * gemm.attributes.get("beta", 1.0)
    factor = scale[:, None] if gemm.attributes.get("transB", 0) else scale
    inputs = [
        gemm.inputs[0],
        editor.add_constant(f"{gemm.inputs[1]}_folded", (matrix.astype(np.float64) * factor).astype(matrix.dtype)),
        editor.add_constant(f"{gemm.outputs[0]}_bias", (old * scale + shift).astype(matrix.dtype)),
    ]
    attributes = {**gemm.attributes, "beta": 1.0}
    editor.replace([gemm, user], [Node("Gemm", inputs, user.outputs[:1], attributes, "", gemm.version, gemm.label)])


def fold_channel_affine(editor: Editor) -> int:
    """Conv or ConvTranspose followed by Mul, Add, Sub or Div with one constant per channel becomes one of them."""
    changes = 0
    for conv, user in _convolutions(editor):
        if user.op_type not in ("Mul", "Add", "Sub", "Div") or user.version < 7:
            continue
        position = user.inputs.index(conv.outputs[0])
        other = editor.constant(user.inputs[1 - position])
        weights = editor.constant(conv.inputs[1])
        if other is None or weights is None or (position == 1 and user.op_type == "Div"):
            continue
        channels, rank = _output_channels(conv, weights.shape), len(weights.shape)
        if other.dtype != weights.dtype or other.shape not in _per_channel(channels, rank):
            continue
        value = np.broadcast_to(other.numpy().astype(np.float64).reshape(-1), (channels,))
        one, zero = np.ones(channels), np.zeros(channels)
        if user.op_type == "Div" and (value == 0).any():
            continue
        scale, shift = {
            "Mul": (value, zero),
            "Add": (one, value),
            "Sub": (one, -value) if position == 0 else (-one, value),
            "Div": (1 / value if user.op_type == "Div" else one, zero),
        }[user.op_type]
        _absorb(editor, conv, user, scale, shift)
        changes += 1
    return changes


def fold_affine_input(editor: Editor) -> int:
    """Mul and Add (or Div and Sub) with one constant per channel before a Conv go into its weights and bias.

    What is added reaches the border only where nothing is padded; else ``s * x + b`` becomes ``s * (x + b / s)``, of
    which the factor goes into the weights.
    """
    changes = 0
    for conv in editor.nodes("Conv"):
        weights = editor.constant(conv.inputs[1])
        bias_name = conv.inputs[2] if len(conv.inputs) > 2 else ""
        if weights is None or weights.dtype.kind != "f" or not _fits_groups(conv, weights.shape):
            continue
        if not _has_bias(editor, bias_name, weights.shape[0]):
            continue
        padded = any(conv.attributes.get("pads", [])) or conv.attributes.get("auto_pad", "NOTSET") not in (
            "NOTSET",
            "VALID",
        )
        used, x, factor, offset = _affine_before(editor, conv, weights.shape[1] * conv.attributes.get("group", 1))
        if not used or (padded and len(used) == 1 and used[0].op_type in ("Add", "Sub")):
            continue
        if padded and offset.any() and not (np.abs(factor) > 1e-30).all():
            continue
        changes += 1
        kept: list[Node] = []
        dtype = weights.dtype
        if padded and offset.any():
            shifted = editor.new_name(f"{x}_shifted")
            shift = (offset / factor).astype(dtype)
            same = (shift == shift[0]).all()
            shift = shift[:1] if same else shift.reshape(-1, *[1] * (len(weights.shape) - 2))
            addend = editor.add_constant(f"{x}_offset", shift)
            kept = [Node("Add", [x, addend], [shifted], {}, "", used[0].version, used[0].label)]
            x, offset = shifted, np.zeros_like(offset)
        _scale_inputs(editor, conv, [*used, conv], x, factor, offset, kept)
    return changes


def _affine_before(editor: Editor, conv: Node, channels: int) -> tuple[list[Node], str, np.ndarray, np.ndarray]:
    """The Mul, Add, Div and Sub nodes that alone lead to a Conv's input, what they start from, and what they do to each
    channel of it: ``factor * x + offset``."""
    used: list[Node] = []
    x, factor, offset = conv.inputs[0], np.ones(channels), np.zeros(channels)
    reader = conv
    weights = editor.constant(conv.inputs[1])
    while weights is not None:
        node = editor.made_by(x, "Mul", "Add", "Div", "Sub")
        if node is None or node.version < 7 or editor.sole_user(x) is not reader:
            break
        found = [(i, editor.constant(name)) for i, name in enumerate(node.inputs)]
        position, tensor = next(((i, t) for i, t in found if t is not None), (0, None))
        if tensor is None or tensor.dtype != weights.dtype or (position == 0 and node.op_type in ("Div", "Sub")):
            break
        if tensor.shape not in _per_channel(channels, len(weights.shape)) or len(used) == 4:
            break
        value = np.broadcast_to(tensor.numpy().astype(np.float64).reshape(-1), (channels,))
        if node.op_type == "Div" and (value == 0).any():
            break
        # The node is done first, so what is known of those behind it applies to its result.
        if node.op_type in ("Mul", "Div"):
            factor = factor * value if node.op_type == "Mul" else factor / value
        else:
            offset = offset + factor * (value if node.op_type == "Add" else -value)
        used.insert(0, node)
        reader, x = node, node.inputs[1 - position]
    return used, x, factor, offset


def _scale_inputs(
    editor: Editor, conv: Node, old: list[Node], x: str, factor: np.ndarray, offset: np.ndarray, kept: list[Node]
) -> None:
    """Replace `old` by a Conv of `x` that computes what the old one does of ``factor * x + offset``."""
    tensor = editor.constant(conv.inputs[1])
    assert tensor is not None
    weights = tensor.numpy().astype(np.float64)
    groups = conv.attributes.get("group", 1)
    outputs, inputs = weights.shape[:2]
    # The input channels that each output channel reads.
    channels = (np.arange(outputs) // (outputs // groups))[:, None] * inputs + np.arange(inputs)
    spread = (outputs, inputs, *[1] * (weights.ndim - 2))
    names = [
        x,
        editor.add_constant(
            f"{conv.inputs[1]}_scaled", (weights * factor[channels].reshape(spread)).astype(tensor.dtype)
        ),
    ]
    bias = editor.constant(conv.inputs[2]) if len(conv.inputs) > 2 and conv.inputs[2] else None
    if bias is not None or offset.any():
        added = (weights * offset[channels].reshape(spread)).sum(axis=tuple(range(1, weights.ndim)))
        total = added if bias is None else added + bias.numpy().astype(np.float64)
        names.append(editor.add_constant(f"{conv.outputs[0]}_shifted_bias", total.astype(tensor.dtype)))
    new = Node("Conv", names, conv.outputs, dict(conv.attributes), "", conv.version, conv.name or conv.label)
    editor.replace(old, [*kept, new])


def _per_channel(channels: int, rank: int) -> list[tuple[int, ...]]:
    """Shapes that give each channel of a rank-`rank` result one number, without making the result larger."""
    spatial = (1,) * (rank - 2)
    return [(), (1,), (channels, *spatial), (1, channels, *spatial), (1, *spatial), (1, 1, *spatial)]


def fold_pad(editor: Editor) -> int:
    """Zero padding of the spatial dimensions before a Conv, or an AveragePool that counts it, becomes its own."""
    changes = 0
    for node in editor.nodes("Conv", "AveragePool"):
        pad = editor.made_by(node.inputs[0], "Pad")
        if pad is None or editor.sole_user(node.inputs[0]) is not node:
            continue
        if pad.attributes.get("mode", "constant") != "constant":
            continue
        if node.attributes.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
            continue
        amounts = _pads(editor, pad)
        if amounts is None or len(amounts) % 2:
            continue
        rank = len(amounts) // 2
        begin, end = amounts[:rank], amounts[rank:]
        if any(begin[:2]) or any(end[:2]) or min(amounts) < 0:
            continue
        own = list(node.attributes.get("pads", [0] * (2 * (rank - 2))))
        attributes = dict(node.attributes)
        if len(own) != 2 * (rank - 2):
            continue
        if node.op_type == "AveragePool":
            if node.version < 7 or not _averages_padding(node, own, [*begin[2:], *end[2:]]):
                continue
            attributes["count_include_pad"] = 1
        attributes["pads"] = [a + b for a, b in zip(own, [*begin[2:], *end[2:]], strict=True)]
        attributes.pop("auto_pad", None)
        new = Node(
            node.op_type, [pad.inputs[0], *node.inputs[1:]], node.outputs, attributes, "", node.version,
            node.name or node.label,
        )  # fmt: skip
        editor.replace([pad, node], [new])
        changes += 1
    return changes


def _averages_padding(pool: Node, own: list[int], more: list[int]) -> bool:
    """Whether a pool would average further padding as it averages zeros that are there."""
    if any(own) and not pool.attributes.get("count_include_pad", 0):
        return False
    # At the end, what ceil_mode adds is not counted; no window may lie in the padding alone.
    kernel = pool.attributes["kernel_shape"]
    small = 2 * len(kernel) == len(own) and all(a + b < k for a, b, k in zip(own, more, [*kernel] * 2, strict=True))
    return not pool.attributes.get("ceil_mode", 0) and small


def _pads(editor: Editor, pad: Node) -> list[int] | None:
    """The amounts of a Pad that pads every axis with zeros, begins then ends; `None` if they are not known."""
    for spelling in ("pads", "paddings"):
        if spelling in pad.attributes:
            return None if pad.attributes.get("value", 0.0) != 0.0 else list(pad.attributes[spelling])
    value = pad.inputs[2] if len(pad.inputs) > 2 else ""
    if (value and editor.scalar(value) != 0.0) or (len(pad.inputs) > 3 and pad.inputs[3]):
        return None
    amounts = editor.constant(pad.inputs[1])
    return None if amounts is None or len(amounts.shape) != 1 else [int(n) for n in amounts.numpy()]
