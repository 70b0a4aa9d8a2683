"""Removing what need not be computed: constants, no-ops, equal nodes, nodes that nobody reads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..execution.folding import NEVER_FOLDED, fold_into, foldable, shape_result, too_large
from ..execution.inlining import branch_taken, inlined
from ..graph.ir import STRING, Graph, Node, TensorType
from ..model.tensors import Tensor
from .editor import Editor

VIEWS = ("Reshape", "Squeeze", "Unsqueeze", "Flatten")
"""Operators that give the same elements another shape."""


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
    if node.op_type in VIEWS or node.op_type in ("Expand", "Tile"):
        return editor.same_shape(source, node.outputs[0])
    if node.op_type == "Pad":
        amounts = editor.constant(node.inputs[1]) if len(node.inputs) > 1 else None
        given = node.attributes.get("pads", node.attributes.get("paddings"))
        return not any(given) if given is not None else amounts is not None and not amounts.numpy().any()
    if node.op_type == "Slice":
        steps = editor.constant(node.inputs[4]) if len(node.inputs) > 4 and node.inputs[4] else None
        forward = len(node.inputs) < 5 or (steps is not None and bool((steps.numpy() == 1).all()))
        return forward and editor.same_shape(source, node.outputs[0])
    return False


def _is_false(editor: Editor, name: str) -> bool:
    tensor = editor.constant(name)
    return tensor is not None and not tensor.numpy().any()


def merge_views(editor: Editor) -> int:
    """A Reshape (Squeeze, Unsqueeze, Flatten) to known lengths of what one of these makes is one Reshape; a Cast of a
    Cast that loses nothing is one Cast; a Concat of a Concat along the same axis is one Concat."""
    changes = 0
    for node in editor.nodes(*VIEWS):
        before = editor.made_by(node.inputs[0], *VIEWS)
        shape = editor.shape(node.outputs[0])
        if before is None or shape is None or not all(isinstance(d, int) and d > 0 for d in shape):
            continue
        target = editor.add_constant(f"{node.outputs[0]}_shape", np.array(shape, np.int64))
        new = Node("Reshape", [before.inputs[0], target], node.outputs, {}, "", max(node.version, 5), node.name)
        editor.replace([node], [new])
        changes += 1
    for node in editor.nodes("Cast"):
        before = editor.made_by(node.inputs[0], "Cast")
        dtypes = [editor.dtype(before.inputs[0]), editor.dtype(node.inputs[0])] if before is not None else []
        if before is None or not all(d is not None and d.kind in "biuf" for d in dtypes):
            continue
        if not np.can_cast(*dtypes, casting="safe"):  # type: ignore[arg-type]
            continue
        attributes = dict(node.attributes)
        editor.replace([node], [replace(node, inputs=[before.inputs[0]], attributes=attributes)])
        changes += 1
    for node in editor.nodes("Concat"):
        changes += _merge_concat(editor, node)
    return changes


def _merge_concat(editor: Editor, node: Node) -> bool:
    shape = editor.shape(node.outputs[0])
    if not shape:
        return False
    axis = node.attributes.get("axis", 1) % len(shape)
    inputs: list[str] = []
    merged: list[Node] = []
    for name in node.inputs:
        inner = editor.made_by(name, "Concat")
        if (
            inner is not None
            and editor.sole_user(name) is node
            and inner.attributes.get("axis", 1) % len(shape) == axis
        ):
            inputs += inner.inputs
            merged.append(inner)
        else:
            inputs.append(name)
    if not merged:
        return False
    editor.replace([*merged, node], [replace(node, inputs=inputs, attributes=dict(node.attributes))])
    return True


def share_constants(editor: Editor) -> int:
    """Let equal initializers be one."""
    alike: dict[Any, list[str]] = {}
    for name, tensor in editor.graph.initializers.items():
        if tensor.dtype != STRING and editor.private(name) and editor.users.get(name):
            alike.setdefault((tensor.dtype, tensor.shape), []).append(name)
    changes = 0
    for names in alike.values():
        seen: dict[bytes, list[str]] = {}
        for name in names if len(names) > 1 else ():
            same = seen.setdefault(_ends(editor.graph.initializers[name]), [])
            first = next((other for other in same if _equal(editor, name, other)), None)
            if first is None:
                same.append(name)
                continue
            editor.rename_reads(name, first)
            changes += 1
    return changes


def _ends(tensor: Tensor) -> bytes:
    """The first and the last bytes of a tensor: looking at all of every large one would take long."""
    if tensor.location is None:
        return b""
    source, offset = tensor.location
    length = min(64, tensor.nbytes)
    return bytes(source.read(offset, length)) + bytes(source.read(offset + tensor.nbytes - length, length))


def _equal(editor: Editor, a: str, b: str) -> bool:
    """Whether two constants of one type have the same bytes."""
    x, y = (editor.graph.initializers[name] for name in (a, b))
    if x is y:
        return True
    if x.location is None or y.location is None:
        return False
    return x.location[0].read(x.location[1], x.nbytes) == y.location[0].read(y.location[1], y.nbytes)


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
