"""Editing a graph: who makes a value, who reads it, and replacing nodes while outputs keep their names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..graph.ir import Graph, Node, TensorType, Type
from ..model.tensors import Tensor


class Editor:
    """A graph under rewriting. `types` may be symbolic; what is not known is `None`. `values` holds what is known of
    small tensors: see `onnxlet.graph.infer.values`."""

    def __init__(self, graph: Graph, types: Mapping[str, Type | None], values: Mapping[str, np.ndarray] | None = None):
        self.graph = graph
        self.types = dict(types)
        self.values = values or {}
        self.producer: dict[str, Node] = {}
        self.users: dict[str, list[Node]] = {}
        self._captured: set[str] = set()
        self._replaced: dict[Node, list[Node]] = {}
        self._position = {node: i for i, node in enumerate(graph.nodes)}
        for node in graph.nodes:
            self._link(node)

    def _link(self, node: Node) -> None:
        for name in node.outputs:
            if name:
                self.producer[name] = node
        for name in node.inputs:
            if name:
                self.users.setdefault(name, []).append(node)
        for body in node.subgraphs():
            self._captured.update(body.captures())

    def _unlink(self, node: Node) -> None:
        for name in node.outputs:
            self.producer.pop(name, None)
        for name in node.inputs:
            if name:
                self.users[name].remove(node)

    # Asking

    def nodes(self, *operators: str) -> Iterator[Node]:
        """The nodes of these ai.onnx operators (all, if none is named) that are still there and give something, in
        order."""
        for node in self.graph.nodes:
            if node in self._replaced or not node.outputs:
                continue
            if not operators or (not node.domain and node.op_type in operators):
                yield node

    def constant(self, name: str) -> Tensor | None:
        return self.graph.initializers.get(name)

    def fixed(self, name: str) -> bool:
        """Whether a value is a constant, or is made of constants by what makes numbers of bytes."""
        if name in self.graph.initializers:
            return True
        maker = self.made_by(name, "Cast", "DequantizeLinear", "Mul", "Sub", "Transpose")
        return maker is not None and all(self.fixed(i) for i in maker.inputs if i)

    def scalar(self, name: str) -> float | None:
        """The value of a constant that holds one number, else `None`."""
        tensor = self.graph.initializers.get(name)
        if tensor is None or tensor.size != 1 or tensor.dtype.kind not in "fiu":
            return None
        return float(tensor.numpy().reshape(-1)[0])

    def shape(self, name: str) -> tuple[int | str | None, ...] | None:
        tensor = self.graph.initializers.get(name)
        if tensor is not None:
            return tensor.shape
        type_ = self.types.get(name)
        return type_.shape if isinstance(type_, TensorType) else None

    def dtype(self, name: str) -> np.dtype | None:
        tensor = self.graph.initializers.get(name)
        if tensor is not None:
            return tensor.dtype
        type_ = self.types.get(name)
        return type_.dtype if isinstance(type_, TensorType) else None

    def same_shape(self, a: str, b: str) -> bool:
        """Whether two values surely have one shape: equal numbers, or the same symbol, in every dimension."""
        x, y = self.shape(a), self.shape(b)
        return x is not None and x == y and None not in x

    def private(self, name: str) -> bool:
        """Whether a value is read inside of this graph alone, so that it may vanish."""
        return name not in self._captured and name not in self.graph.outputs

    def sole_user(self, name: str) -> Node | None:
        """The one node that reads a private value once, else `None`."""
        users = self.users.get(name, [])
        return users[0] if len(users) == 1 and self.private(name) else None

    def made_by(self, name: str, *operators: str) -> Node | None:
        """The node that makes a value, if it is one of these ai.onnx operators."""
        node = self.producer.get(name)
        return node if node is not None and not node.domain and node.op_type in operators else None

    # Changing

    def __contains__(self, name: str) -> bool:
        """Whether something in the graph has this name."""
        return name in self.graph.initializers or name in self.producer or name in self.users or name in self.types

    def new_name(self, hint: str) -> str:
        """A name that nothing in the graph has, starting with `hint`."""
        name, n = hint, 0
        while name in self:
            n += 1
            name = f"{hint}_{n}"
        return name

    def add_constant(self, hint: str, array: Any) -> str:
        """Add an initializer under a fresh name that starts with `hint`."""
        name = self.new_name(hint)
        self.graph.initializers[name] = Tensor.of(np.asarray(array, order="C"))
        return name

    def replace(self, old: Sequence[Node], new: Sequence[Node], *, first: bool = False) -> None:
        """Put `new` where the last of `old` was, or the first. The caller sees to it that what is read is still made,
        and made before."""
        for node in old:
            self._unlink(node)
            self._replaced[node] = []
        place = (min if first else max)(old, key=self._position.__getitem__)
        self._replaced[place] = list(new)
        for node in new:
            self._link(node)
            self._position[node] = self._position[place]

    def rename_reads(self, old: str, new: str) -> None:
        """Let every reader of `old` read `new` instead."""
        for node in self.users.pop(old, []):
            node.inputs = [new if name == old else name for name in node.inputs]
            self.users.setdefault(new, []).append(node)

    def finish(self) -> None:
        """Write the replacements into the graph's list of nodes."""
        if self._replaced:
            self.graph.nodes = [kept for node in self.graph.nodes for kept in self._settled(node)]
            self._replaced = {}
            self._position = {node: i for i, node in enumerate(self.graph.nodes)}

    def _settled(self, node: Node) -> Iterator[Node]:
        if node in self._replaced:
            for new in self._replaced[node]:
                yield from self._settled(new)
        else:
            yield node
