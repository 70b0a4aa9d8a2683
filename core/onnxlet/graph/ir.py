"""The intermediate representation: a graph of nodes that name their values.

Values are names, as in the ONNX file: a graph keeps a table from a name to its type, and constants (initializers)
in a table from a name to a `Tensor`. That makes rewriting a matter of editing lists of names.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from ..model.tensors import Tensor

Dim = int | str | None
"""A dimension: known, symbolic (named by the model), or unknown."""

STRING = np.dtype(object)
"""Element type of string tensors: NumPy object arrays of `str`."""


@dataclass(frozen=True, slots=True)
class TensorType:
    """Element type and shape of a tensor; either may be unknown (`None`)."""

    dtype: np.dtype | None
    shape: tuple[Dim, ...] | None

    @property
    def concrete(self) -> bool:
        """Whether the element type and every dimension are known."""
        return self.dtype is not None and self.shape is not None and all(type(d) is int for d in self.shape)

    @property
    def dims(self) -> tuple[int, ...]:
        """The shape of a concrete type."""
        assert self.concrete, self
        return self.shape  # type: ignore[return-value]

    @property
    def size(self) -> int:
        """Number of elements of a concrete type."""
        n = 1
        for d in self.dims:
            n *= d
        return n

    @property
    def nbytes(self) -> int:
        """Bytes of a concrete type."""
        assert self.dtype is not None
        return self.size * self.dtype.itemsize

    def __str__(self) -> str:
        dtype = "?" if self.dtype is None else "string" if self.dtype == STRING else str(self.dtype)
        shape = "..." if self.shape is None else ",".join("?" if d is None else str(d) for d in self.shape)
        return f"{dtype}[{shape}]"


@dataclass(frozen=True, slots=True)
class SequenceType:
    element: Type | None

    def __str__(self) -> str:
        return f"seq({self.element})"


@dataclass(frozen=True, slots=True)
class OptionalType:
    element: Type | None

    def __str__(self) -> str:
        return f"optional({self.element})"


@dataclass(frozen=True, slots=True)
class MapType:
    key: np.dtype
    value: Type | None

    def __str__(self) -> str:
        return f"map({self.key},{self.value})"


Type = TensorType | SequenceType | OptionalType | MapType
"""The type of a value. An unknown type is `None` wherever a type is expected."""


@dataclass(slots=True, eq=False)
class Node:
    """One operator call. An absent optional input or unused output is the empty name.

    `version` is the opset version that the model imports for `domain` (``""`` is ``ai.onnx``). Attribute values are
    `int`, `float`, `str`, `bytes`, `np.ndarray` (tensors), `Graph` (sub-graphs), a `Type`, or lists of these;
    attributes that are absent from the file are absent here: operators' signatures hold the defaults.
    """

    op_type: str
    inputs: list[str]
    outputs: list[str]
    attributes: dict[str, Any] = field(default_factory=dict)
    domain: str = ""
    version: int = 1
    name: str = ""

    @property
    def operator(self) -> str:
        """The operator's name, with its domain unless that is ai.onnx."""
        return f"{self.domain}::{self.op_type}" if self.domain else self.op_type

    @property
    def label(self) -> str:
        """How messages and tables call this node: its name, else its first output's."""
        return self.name or next((o for o in self.outputs if o), self.op_type)

    def subgraphs(self) -> Iterator[Graph]:
        """The graphs among the attributes (bodies of If, Loop, Scan, SequenceMap)."""
        for value in self.attributes.values():
            if isinstance(value, Graph):
                yield value
            elif isinstance(value, list):
                yield from (v for v in value if isinstance(v, Graph))

    def __str__(self) -> str:
        return f"{', '.join(self.outputs)} = {self.operator}({', '.join(self.inputs)})"


@dataclass(slots=True, eq=False)
class Graph:
    """A graph, or a sub-graph that may use values of the graphs around it.

    `inputs` and `outputs` are names in the order of the file; `inputs` leaves out those that an initializer
    gives a default (`defaults` lists them: they may still be fed). `types` holds what is known about values.
    `nodes` are in topological order.
    """

    name: str
    inputs: list[str]
    outputs: list[str]
    nodes: list[Node]
    initializers: dict[str, Tensor] = field(default_factory=dict)
    types: dict[str, Type | None] = field(default_factory=dict)
    defaults: list[str] = field(default_factory=list)

    def captures(self) -> list[str]:
        """Names that this graph's nodes use and that it does not define: taken from the graphs around it."""
        known = {*self.inputs, *self.defaults, *self.initializers}
        found: dict[str, None] = {}
        for node in self.nodes:
            used = [*node.inputs]
            for body in node.subgraphs():
                used += body.captures()
            found.update((name, None) for name in used if name and name not in known)
            known.update(node.outputs)
        found.update((name, None) for name in self.outputs if name and name not in known)
        return list(found)

    def tensor_type(self, name: str) -> TensorType:
        """The tensor type of a value; unknown parts are `None`."""
        type_ = self.types.get(name)
        return type_ if isinstance(type_, TensorType) else TensorType(None, None)


def all_nodes(graph: Graph) -> Iterator[Node]:
    """The nodes of a graph and of the bodies in it."""
    for node in graph.nodes:
        yield node
        for body in node.subgraphs():
            yield from all_nodes(body)


def all_tensors(graph: Graph) -> Iterator[Tensor]:
    """The initializers of a graph and of the bodies in it."""
    yield from graph.initializers.values()
    for node in graph.nodes:
        for body in node.subgraphs():
            yield from all_tensors(body)


@dataclass(slots=True, eq=False)
class Function:
    """An operator of the model's own: nodes that lead from `inputs` to `outputs`, in operators of `opsets`."""

    name: str
    domain: str
    inputs: list[str]
    outputs: list[str]
    nodes: list[Node]
    opsets: dict[str, int]


@dataclass(slots=True, eq=False)
class Model:
    """A model as read from a file: its main graph (functions inlined) and what it says about itself.

    `functions` are those that the graph still calls: none, but in a model that is made to be written.
    """

    graph: Graph
    opsets: dict[str, int]
    ir_version: int = 0
    producer_name: str = ""
    producer_version: str = ""
    domain: str = ""
    model_version: int = 0
    doc_string: str = ""
    metadata: dict[str, str] = field(default_factory=dict)
    functions: list[Function] = field(default_factory=list)
    graph_doc_string: str = ""
