"""What a model is made of, before it runs: `inspect`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ..errors import ShapeError
from ..execution.plan import node_reads
from ..graph.infer import infer_graph
from ..graph.ir import Graph, Model, Node, TensorType, Type, all_tensors
from ..model.dtypes import spec_name
from ..session import NodeArg
from .costs import multiply_adds
from .tables import amount, table

FREE = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Constant", "Shape", "Size"})
"""Operators that move no data."""


@dataclass(slots=True)
class Layer:
    """The cost of one node: multiply-adds, bytes of weights it reads and of activations it reads and writes.

    `times` is how often it runs in one run of the model: above 1 in the body of a loop. A cost that depends on shapes
    that only a run tells is `None`.
    """

    node: str
    operator: str
    outputs: str
    multiply_adds: int | None
    weight_bytes: int
    activation_bytes: int | None
    times: int = 1


@dataclass(slots=True)
class Inspection:
    """What `inspect` found. `types` are those of the inputs for which costs were counted."""

    name: str
    producer: str
    ir_version: int
    opsets: dict[str, int]
    inputs: list[NodeArg]
    outputs: list[NodeArg]
    operators: dict[str, int]
    nodes: int
    parameters: int
    parameter_bytes: dict[str, int]
    """Bytes of weights by element type."""
    types: dict[str, str]
    multiply_adds: int
    peak_activation_bytes: int
    unknown: int
    """Nodes whose cost only a run could tell; they are left out of the sums."""
    layers: list[Layer]
    metadata: dict[str, str] = field(default_factory=dict)
    estimates: dict[str, float] = field(default_factory=dict)
    """Seconds that one run should take, by provider; empty unless asked for."""

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data, ready for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        def described(values: Sequence[NodeArg]) -> str:
            shown = [f"{v.name}: {v.type}[{', '.join('?' if d is None else str(d) for d in v.shape)}]" for v in values]
            return "\n           ".join(shown)

        total = sum(self.parameter_bytes.values())
        kinds = ", ".join(f"{amount(n, 'B')} {kind}" for kind, n in self.parameter_bytes.items())
        opsets = ", ".join(f"{domain or 'ai.onnx'} {version}" for domain, version in self.opsets.items())
        lines = [
            f"graph      {self.name or '(unnamed)'}, made by {self.producer or '(not said)'}",
            f"opsets     {opsets}; IR {self.ir_version}",
            f"inputs     {described(self.inputs)}",
            f"outputs    {described(self.outputs)}",
            f"weights    {self.parameters:,} in {amount(total, 'B')}" + (f" ({kinds})" if kinds else ""),
            f"work       {amount(self.multiply_adds, '')} multiply-adds for "
            + (", ".join(f"{n} {t}" for n, t in self.types.items()) or "no inputs"),
            f"memory     {amount(self.peak_activation_bytes, 'B')} of activations at most, beside the weights",
        ]
        if self.unknown:
            lines.append(f"unknown    {self.unknown} nodes whose shapes only a run can tell are not counted")
        lines += [f"estimate   {s * 1e3:.3g} ms on {p}" for p, s in self.estimates.items()]
        lines += [f"metadata   {k}: {v[:200]}" for k, v in self.metadata.items()]
        lines += ["", *table(("operator", "nodes"), [(o, str(n)) for o, n in self.operators.items()], right=(1,))]
        return "\n".join(lines)

    def layer_table(self) -> str:
        """A line per node, in the order in which they run."""
        rows = [
            (
                layer.node,
                layer.operator + (f" × {layer.times}" if layer.times != 1 else ""),
                layer.outputs,
                "?" if layer.multiply_adds is None else amount(layer.multiply_adds, ""),
                amount(layer.weight_bytes, "B"),
                "?" if layer.activation_bytes is None else amount(layer.activation_bytes, "B"),
            )
            for layer in self.layers
        ]
        head = ("node", "operator", "outputs", "multiply-adds", "weights", "moved")
        return "\n".join(table(head, rows, right=(3, 4, 5)))


def inspect(model: Model, types: Mapping[str, TensorType]) -> Inspection:
    """Describe a model, and count what a run on inputs of these concrete `types` costs.

    Activations are counted at their full size, without what fusing and in-place computing save: an upper bound of
    what a run holds at a time. Nodes in the bodies of loops count as often as the loop runs, where the model says how
    often, else once; of the branches of an If all count. Raises `ShapeError` where the graph is against the
    specification.
    """
    graph = model.graph
    known = infer_graph(graph, types)
    layers = list(_layers(graph, known, 1))
    counts = Counter(layer.operator for layer in layers)
    tensors = list({id(t): t for t in all_tensors(graph)}.values())
    by_type: Counter[str] = Counter()
    for tensor in tensors:
        by_type[spec_name(tensor.dtype)] += tensor.nbytes
    producer = " ".join(part for part in (model.producer_name, model.producer_version) if part)
    return Inspection(
        name=graph.name,
        producer=producer,
        ir_version=model.ir_version,
        opsets=dict(model.opsets),
        inputs=[NodeArg.of(n, graph.types.get(n)) for n in graph.inputs],
        outputs=[NodeArg.of(n, graph.types.get(n) or known.get(n)) for n in graph.outputs],
        operators=dict(counts.most_common()),
        nodes=len(layers),
        parameters=sum(t.size for t in tensors),
        parameter_bytes=dict(by_type.most_common()),
        types={n: str(t) for n, t in types.items()},
        multiply_adds=sum((layer.multiply_adds or 0) * layer.times for layer in layers),
        peak_activation_bytes=_peak(graph, known),
        unknown=sum(layer.multiply_adds is None or layer.activation_bytes is None for layer in layers),
        layers=layers,
        metadata=dict(model.metadata),
    )


def _concrete(known: Mapping[str, Type | None], names: Sequence[str]) -> list[TensorType] | None:
    types = [known.get(name) for name in names if name]
    found = [t for t in types if isinstance(t, TensorType) and t.concrete]
    return found if len(found) == len(types) else None


def _nbytes(types: Sequence[TensorType]) -> int:
    return sum(t.nbytes for t in types)


def _layers(graph: Graph, known: Mapping[str, Type | None], times: int) -> Iterator[Layer]:
    for node in graph.nodes:
        yield _layer(graph, node, known, times)
        for body in node.subgraphs():
            try:
                inner = infer_graph(body, known)
            except ShapeError:
                inner = {}
            yield from _layers(body, {**known, **inner}, times * _trips(graph, node, known))


def _trips(graph: Graph, node: Node, known: Mapping[str, Type | None]) -> int:
    """How often a node runs its body, as far as the model says."""
    if node.op_type == "Loop" and node.inputs[0] in graph.initializers:
        return max(0, int(graph.initializers[node.inputs[0]].numpy().reshape(-1)[0]))
    if node.op_type == "Scan" and isinstance(count := node.attributes.get("num_scan_inputs"), int) and count:
        type_ = known.get(node.inputs[-1])
        if isinstance(type_, TensorType) and type_.concrete and type_.dims:
            return type_.dims[(node.attributes.get("scan_input_axes") or [0])[-1]]
    return 1


def _layer(graph: Graph, node: Node, known: Mapping[str, Type | None], times: int) -> Layer:
    inputs, outputs = _concrete(known, node.inputs), _concrete(known, node.outputs)
    weights = sum(graph.initializers[n].nbytes for n in node.inputs if n in graph.initializers)
    shown = ", ".join(str(known.get(name)) for name in node.outputs if name)
    if inputs is None or outputs is None:
        free = node.op_type in FREE
        return Layer(node.label, node.operator, shown, 0 if free else None, weights, 0 if free else None, times)
    moved = 0 if node.op_type in FREE else _nbytes(inputs) + _nbytes(outputs) - weights
    return Layer(node.label, node.operator, shown, multiply_adds(node, inputs, outputs), weights, moved, times)


def _peak(graph: Graph, known: Mapping[str, Type | None]) -> int:
    """The most bytes of values that are there at the same time, each from when it is made to when it is last read."""
    last: dict[str, int] = dict.fromkeys(graph.outputs, len(graph.nodes))
    for position, node in enumerate(graph.nodes):
        for name in node_reads(node):
            last[name] = max(last.get(name, 0), position)
    sizes = {name: _nbytes(_concrete(known, [name]) or []) for name in known if name not in graph.initializers}
    now = peak = sum(sizes.get(name, 0) for name in graph.inputs)
    dying: dict[int, list[str]] = {}
    for name, position in last.items():
        dying.setdefault(position, []).append(name)
    for position, node in enumerate(graph.nodes):
        now += sum(sizes.get(name, 0) for name in node.outputs)
        peak = max(peak, now)
        now -= sum(sizes.get(name, 0) for name in dying.get(position, ()))
        now -= sum(sizes.get(name, 0) for name in node.outputs if name and name not in last)
    return peak
