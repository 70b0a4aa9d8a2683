"""An If whose condition is known: the branch that it takes, as nodes of the graph around it."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import replace
from typing import Any

from ..graph.ir import Graph, Node
from ..model.tensors import Tensor


def branch_taken(node: Node, constants: Mapping[str, Tensor]) -> Graph | None:
    """The branch of an If whose condition is among the constants, else `None`."""
    if node.domain or node.op_type != "If" or node.inputs[0] not in constants:
        return None
    condition = constants[node.inputs[0]]
    if condition.size != 1:
        return None
    return node.attributes["then_branch" if condition.numpy().reshape(-1)[0] else "else_branch"]


def inlined(node: Node, branch: Graph, used: Container[str]) -> tuple[list[Node], dict[str, Tensor]]:
    """The nodes of a branch with the outputs of its If, and its constants, under names that are not in `used`."""
    own = [*branch.initializers, *(name for inner in branch.nodes for name in inner.outputs if name)]
    prefix, n = f"{node.label}/", 0
    while any(prefix + name in used for name in own):
        n += 1
        prefix = f"{node.label}/{n}/"
    names = {name: prefix + name for name in own}
    made = {name for inner in branch.nodes for name in inner.outputs if name}
    copies: list[Node] = []
    for name, output in zip(branch.outputs, node.outputs, strict=True):
        if not output:
            continue
        if name in made and names[name] == prefix + name:
            names[name] = output
        else:
            copies.append(Node("Identity", [names.get(name, name)], [output], {}, "", node.version))
    nodes = [_renamed_node(inner, names) for inner in branch.nodes]
    return nodes + copies, {names[name]: tensor for name, tensor in branch.initializers.items()}


def _renamed_node(node: Node, names: Mapping[str, str]) -> Node:
    return replace(
        node,
        inputs=[names.get(name, name) for name in node.inputs],
        outputs=[names.get(name, name) for name in node.outputs],
        attributes={name: _renamed_value(value, names) for name, value in node.attributes.items()},
    )


def _renamed_value(value: Any, names: Mapping[str, str]) -> Any:
    """An attribute with the values that sub-graphs capture renamed."""
    if isinstance(value, list):
        return [_renamed_value(v, names) for v in value]
    if not isinstance(value, Graph):
        return value
    own = {*value.inputs, *value.defaults, *value.initializers, *(name for n in value.nodes for name in n.outputs)}
    outer = {name: new for name, new in names.items() if name not in own}
    return replace(
        value,
        nodes=[_renamed_node(node, outer) for node in value.nodes],
        outputs=[outer.get(name, name) for name in value.outputs],
    )
