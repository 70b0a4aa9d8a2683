"""Removing what need not be computed: constants, no-ops, equal nodes, nodes that nobody reads."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..execution.folding import NEVER_FOLDED, fold_into, foldable, shape_result, too_large
from ..execution.inlining import branch_taken, inlined
from ..graph.ir import Graph, Node, TensorType
from ..model.tensors import Tensor
from .editor import Editor


def fold_constants(editor: Editor) -> int:
    """Compute nodes whose inputs are all known, and shapes that the declared types tell."""
    graph, changes = editor.graph, 0
    for node in editor.nodes():
        shape = shape_result(node, [editor.types.get(name) for name in node.inputs])
        if shape is not None:
            graph.initializers[node.outputs[0]] = Tensor.of(shape)
        elif foldable(node, graph.initializers):
            types = [editor.types.get(name) for name in node.outputs if name]
            if too_large(node, types, graph.initializers) or fold_into(node, graph.initializers) is None:
                continue
        else:
            continue
        editor.replace([node], [])
        for name in node.outputs:
            if name in graph.initializers:
                tensor = graph.initializers[name]
                editor.types[name] = TensorType(tensor.dtype, tensor.shape)
        changes += 1
    return changes


def inline_branches(editor: Editor) -> int:
    """Replace an If whose condition is known by the nodes of the branch that it takes."""
    changes = 0
    for node in editor.nodes("If"):
        branch = branch_taken(node, editor.graph.initializers)
        if branch is None:
            continue
        nodes, constants = inlined(node, branch, editor)
        editor.graph.initializers.update(constants)
        editor.replace([node], nodes)
        changes += 1
    return changes


def remove_no_ops(editor: Editor) -> int:
    """Take out nodes whose result is their first input: Identity, Dropout, Cast to the same type, and so on."""
    graph, changes = editor.graph, 0
    for node in editor.nodes():
        if not _is_no_op(editor, node):
            continue
        source, result = node.inputs[0], node.outputs[0]
        if editor.private(result):
            editor.replace([node], [])
            editor.rename_reads(result, source)
        elif source in editor.producer and editor.private(source):
            # The result's name is kept, so its maker takes over the name.
            maker = editor.producer[source]
            others = [user for user in editor.users[source] if user is not node]
            editor.replace([node], [])
            maker.outputs = [result if name == source else name for name in maker.outputs]
            editor.producer[result] = editor.producer.pop(source)
            if others:
                editor.rename_reads(source, result)
            graph.types.setdefault(result, graph.types.get(source))
        else:
            continue
        changes += 1
    return changes


def _is_no_op(editor: Editor, node: Node) -> bool:
    if node.domain or not node.inputs or not node.inputs[0]:
        return False
    source = node.inputs[0]
    if any(node.outputs[1:]):
        return False
    if node.op_type == "Identity":
        return True
    if node.op_type == "Dropout":
        training = node.inputs[2] if len(node.inputs) > 2 else ""
        if node.version < 7:
            return bool(node.attributes.get("is_test", 0))
        return not training or _is_false(editor, training)
    if node.op_type == "Cast":
        from ..model.dtypes import dtype_of

        to = node.attributes.get("to")
        return isinstance(to, int) and editor.dtype(source) == dtype_of(to)
    if node.op_type == "Transpose":
        perm = node.attributes.get("perm")
        return perm is not None and list(perm) == list(range(len(perm)))
    if node.op_type in ("Concat", "Sum", "Max", "Min", "Mean"):
        return len(node.inputs) == 1
    return False


def _is_false(editor: Editor, name: str) -> bool:
    tensor = editor.constant(name)
    return tensor is not None and not tensor.numpy().any()


def share_equal_nodes(editor: Editor) -> int:
    """Let equal nodes with equal inputs be computed once (common sub-expressions)."""
    seen: dict[Any, Node] = {}
    changes = 0
    for node in editor.nodes():
        if node.op_type in NEVER_FOLDED or next(node.subgraphs(), None) is not None:
            continue
        key = (node.domain, node.op_type, node.version, tuple(node.inputs), len(node.outputs), _key(node.attributes))
        first = seen.setdefault(key, node)
        # Graph outputs keep their own nodes: two outputs are two values, even if they are equal.
        if first is node or not all(editor.private(name) for name in node.outputs if name):
            continue
        if any(b and not a for a, b in zip(first.outputs, node.outputs, strict=True)):
            continue
        editor.replace([node], [])
        for mine, theirs in zip(node.outputs, first.outputs, strict=True):
            if mine:
                editor.rename_reads(mine, theirs)
        changes += 1
    return changes


def _key(value: Any) -> Any:
    """A hashable form of attribute values."""
    if isinstance(value, dict):
        return tuple((name, _key(v)) for name, v in sorted(value.items()))
    if isinstance(value, (list, tuple)):
        return tuple(map(_key, value))
    if isinstance(value, (Tensor, Graph)):
        return id(value)
    if isinstance(value, np.ndarray):
        return id(value)
    # 1 and 1.0 are equal in Python but not as attributes; NaN is itself.
    return type(value).__name__, repr(value)


def remove_dead(editor: Editor) -> int:
    """Take out nodes whose outputs nobody reads, and initializers that nobody reads."""
    graph, changes = editor.graph, 0
    live = set(graph.outputs)
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if not any(name in live for name in node.outputs if name):
            changes += 1
            continue
        kept.append(node)
        live.update(node.inputs)
        for body in node.subgraphs():
            live.update(body.captures())
    graph.nodes = kept[::-1]
    graph.initializers = {name: t for name, t in graph.initializers.items() if name in live}
    return changes
