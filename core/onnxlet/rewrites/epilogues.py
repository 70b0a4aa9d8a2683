"""Bias, residual and activation computed where a matrix product or a convolution stores its result.

Convolutions become com.microsoft's FusedConv, whose result is ``activation(conv + residual)``; matrix products become
ai.onnxlet's FusedMatMul, ``activation(alpha * A @ B + bias + residual)``.
"""

from __future__ import annotations

from typing import Any

from ..graph.ir import Node
from .activations import clip_bounds
from .editor import Editor

DOMAIN = "ai.onnxlet"


def fuse_matmul_bias(editor: Editor) -> int:
    """MatMul with a constant matrix followed by Add of a constant vector becomes FusedMatMul."""
    changes = 0
    for product in editor.nodes("MatMul"):
        shape, dtype = editor.shape(product.inputs[1]), editor.dtype(product.inputs[1])
        add = editor.sole_user(product.outputs[0])
        if not editor.fixed(product.inputs[1]) or shape is None or len(shape) != 2:
            continue
        if add is None or add.domain or add.op_type != "Add":
            continue
        if add.version < 7 or add.inputs[0] == add.inputs[1]:
            continue
        bias_name = add.inputs[1] if add.inputs[0] == product.outputs[0] else add.inputs[0]
        bias = editor.constant(bias_name)
        if bias is None or bias.shape != (shape[1],) or bias.dtype != dtype:
            continue
        new = Node("FusedMatMul", [*product.inputs, bias_name], add.outputs, {}, DOMAIN, 1, product.label)
        editor.replace([product, add], [new])
        changes += 1
    return changes


def fuse_epilogues(editor: Editor) -> int:
    """Let convolutions and matrix products add a residual of the same shape and apply the activation that follows."""
    changes = 0
    for node in editor.nodes():
        fused = _fusable(editor, node)
        if fused is None:
            continue
        used = [node]
        while (user := editor.sole_user(used[-1].outputs[0])) is not None and "activation" not in fused.attributes:
            if not _absorb(editor, fused, used[-1].outputs[0], user):
                break
            used.append(user)
        if len(used) > 1:
            fused.outputs = used[-1].outputs
            editor.replace(used, [fused])
            changes += 1
    return changes


def _fusable(editor: Editor, node: Node) -> Node | None:
    """The fused form of a node, still without an epilogue; `None` if it has none or already has its activation."""
    inputs, attributes = list(node.inputs), dict(node.attributes)
    kind = (node.domain, node.op_type)
    if attributes.get("activation"):
        return None
    if kind in (("", "Conv"), ("com.microsoft", "FusedConv")):
        return Node("FusedConv", inputs, [], attributes, "com.microsoft", 1, node.name or node.label)
    if kind in (("", "MatMul"), (DOMAIN, "FusedMatMul")):
        if not editor.fixed(inputs[1]):
            return None
        return Node("FusedMatMul", inputs, [], attributes, DOMAIN, 1, node.name or node.label)
    if kind == ("", "Gemm") and node.version >= 7 and attributes.get("beta", 1.0) == 1.0:
        shape = editor.shape(inputs[1])
        bias = editor.constant(inputs[2]) if len(inputs) > 2 and inputs[2] else None
        if not editor.fixed(inputs[1]) or shape is None:
            return None
        if len(inputs) > 2 and inputs[2] and (bias is None or len(bias.shape) != 1):
            return None
        if bias is not None and bias.size == 1 != shape[0 if attributes.get("transB") else 1]:
            return None
        attributes.pop("beta", None)
        return Node("FusedMatMul", inputs, [], attributes, DOMAIN, 1, node.name or node.label)
    return None


def _absorb(editor: Editor, fused: Node, value: str, user: Node) -> bool:
    """Take `user`, which reads `value`, into the fused node, if its epilogue can do what it does."""
    if (user.domain, user.op_type) == ("", "Add") and user.version >= 7 and len(fused.inputs) < 4:
        residual = user.inputs[1] if user.inputs[0] == value else user.inputs[0]
        if residual == value or not editor.same_shape(residual, value):
            return False
        fused.inputs += [""] * (3 - len(fused.inputs)) + [residual]
        return True
    activation = _activation(editor, user)
    if activation is None or not (editor.dtype(value) is None or editor.dtype(value).kind == "f"):  # type: ignore[union-attr]
        return False
    name, parameters = activation
    fused.attributes["activation"] = name
    if parameters:
        fused.attributes["activation_params"] = parameters
    return True


def _activation(editor: Editor, node: Node) -> tuple[str, list[float]] | None:
    """Name and parameters of an activation as FusedConv has them, or `None`."""
    attributes: dict[str, Any] = node.attributes
    kind = (node.domain, node.op_type)
    if kind in (("", "Relu"), ("", "Sigmoid"), ("", "Tanh"), ("", "HardSwish")):
        return node.op_type, []
    if kind == ("", "LeakyRelu"):
        return "LeakyRelu", [attributes.get("alpha", 0.01)]
    if kind == ("com.microsoft", "QuickGelu") and attributes.get("alpha", 1.702) == 1.0:
        return "Silu", []
    if kind == ("com.microsoft", "Gelu") or (kind == ("", "Gelu") and attributes.get("approximate", "none") == "none"):
        return "Gelu", []
    if kind == ("", "Gelu") or (kind == ("com.microsoft", "FastGelu") and len(node.inputs) == 1):
        return "GeluTanh", []
    if kind == ("", "Clip"):
        bounds = clip_bounds(editor, node)
        return None if bounds is None or not bounds[0] <= bounds[1] else ("Clip", list(bounds))
    return None
