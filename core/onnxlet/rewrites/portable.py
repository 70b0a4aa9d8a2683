"""A rewritten graph as a model that other runtimes run: what they do not know is called as a function of the model,
whose body is in operators of the model's opset."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ..errors import UnsupportedError
from ..graph.infer import infer_graph
from ..graph.ir import Dim, Function, Graph, Model, Node, TensorType, Type
from .epilogues import DOMAIN

MICROSOFT = "com.microsoft"
KNOWN_ACTIVATIONS = frozenset({"", "Relu", "Tanh", "Sigmoid", "LeakyRelu", "HardSigmoid"})
"""Those that FusedConv has elsewhere."""


class Body:
    """The body of a function in the making. Values are names; `inputs` and `outputs` have one for each of the node's,
    empty where that is absent."""

    def __init__(self, node: Node, types: list[TensorType], version: int):
        self.node = node
        self.types = types
        self.version = version
        self.inputs = [f"i{k}" if name else "" for k, name in enumerate(node.inputs)]
        self.outputs = [f"o{k}" if name else "" for k, name in enumerate(node.outputs)]
        self.nodes: list[Node] = []

    def input(self, index: int) -> str:
        return self.inputs[index] if index < len(self.inputs) else ""

    def attribute(self, name: str, default: Any = None) -> Any:
        return self.node.attributes.get(name, default)

    def rank(self, index: int) -> int:
        shape = self.types[index].shape
        if shape is None:
            raise UnsupportedError(f"node {self.node.label!r} can't be written: the rank of an input is not known")
        return len(shape)

    def op(self, op_type: str, *inputs: str, output: str = "", domain: str = "", **attributes: Any) -> str:
        """Add a node with one output; the output's name."""
        name = output or f"v{len(self.nodes)}"
        version = 1 if domain else self.version
        self.nodes.append(Node(op_type, list(inputs), [name], attributes, domain, version, f"n{len(self.nodes)}"))
        return name

    def number(self, value: Any) -> str:
        """A constant of the type of the first input."""
        return self.op("Constant", value=np.asarray(value, self.types[0].dtype))

    def integers(self, *values: int) -> str:
        return self.op("Constant", value=np.array(values, np.int64))

    def over(self, op_type: str, x: str, axes: list[int]) -> str:
        """A reduction that keeps its axes."""
        since = 13 if op_type == "ReduceSum" else 18
        if self.version < since:
            return self.op(op_type, x, axes=axes, keepdims=1)
        return self.op(op_type, x, self.integers(*axes), keepdims=1)

    def turn(self, x: str, *perm: int) -> str:
        return self.op("Transpose", x, perm=list(perm))

    def end(self, value: str) -> None:
        self.op("Identity", value, output=self.outputs[0])


def _activated(b: Body, x: str) -> str:
    name, parameters = b.attribute("activation", ""), list(b.attribute("activation_params", []))
    if name in ("", "Relu", "Sigmoid", "Tanh"):
        return b.op(name, x) if name else x
    if name == "LeakyRelu":
        return b.op("LeakyRelu", x, alpha=parameters[0])
    if name == "Clip":
        if b.version < 11:
            return b.op("Clip", x, min=parameters[0], max=parameters[1])
        return b.op("Clip", x, b.number(parameters[0]), b.number(parameters[1]))
    return {"HardSwish": _hard_swish, "Silu": _silu, "Gelu": _gelu, "GeluTanh": _gelu_tanh}[name](b, x)


def _hard_swish(b: Body, x: str) -> str:
    return b.op("Mul", x, b.op("HardSigmoid", x, alpha=1 / 6, beta=0.5))


def _silu(b: Body, x: str, alpha: float = 1.0) -> str:
    scaled = x if alpha == 1.0 else b.op("Mul", x, b.number(alpha))
    return b.op("Mul", x, b.op("Sigmoid", scaled))


def _gelu(b: Body, x: str) -> str:
    erf = b.op("Erf", b.op("Mul", x, b.number(0.5**0.5)))
    return b.op("Mul", b.op("Mul", x, b.number(0.5)), b.op("Add", erf, b.number(1)))


def _gelu_tanh(b: Body, x: str) -> str:
    cube = b.op("Mul", b.op("Mul", b.op("Mul", x, x), x), b.number(0.044715))
    tanh = b.op("Tanh", b.op("Mul", b.op("Add", x, cube), b.number((2 / np.pi) ** 0.5)))
    return b.op("Mul", b.op("Mul", x, b.number(0.5)), b.op("Add", tanh, b.number(1)))


def _mish(b: Body, x: str) -> str:
    return b.op("Mul", x, b.op("Tanh", b.op("Softplus", x)))


def _unary(function: Callable[..., str]) -> Callable[[Body], None]:
    return lambda b: b.end(function(b, b.input(0)))


def _fused_matmul(b: Body) -> None:
    sides = []
    for index, name in ((0, "transA"), (1, "transB")):
        sides.append(_swapped(b, index) if b.attribute(name, 0) else b.input(index))
    y = b.op("MatMul", *sides)
    if b.attribute("alpha", 1.0) != 1.0:
        y = b.op("Mul", y, b.number(b.attribute("alpha")))
    for index in (2, 3):
        y = b.op("Add", y, b.input(index)) if b.input(index) else y
    b.end(_activated(b, y))


def _swapped(b: Body, index: int) -> str:
    """An input with its last two axes exchanged."""
    rank = b.rank(index)
    return b.turn(b.input(index), *range(rank - 2), rank - 1, rank - 2)


def _fused_conv(b: Body) -> None:
    attributes = {k: v for k, v in b.node.attributes.items() if not k.startswith("activation")}
    y = b.op("Conv", *[name for name in b.inputs[:3] if name], **attributes)
    y = b.op("Add", y, b.input(3)) if b.input(3) else y
    b.end(_activated(b, y))


def _standardized(b: Body, x: str, axis: int, epsilon: float, centred: bool) -> str:
    axes = list(range(axis, 0))
    if centred:
        x = b.op("Sub", x, b.over("ReduceMean", x, axes))
    variance = b.op("Add", b.over("ReduceMean", b.op("Mul", x, x), axes), b.number(epsilon))
    return b.op("Div", x, b.op("Sqrt", variance))


def _layer_norm(b: Body) -> None:
    axis, epsilon = b.attribute("axis", -1), b.attribute("epsilon", 1e-5)
    axis = axis - b.rank(0) if axis >= 0 else axis
    y = _standardized(b, b.input(0), axis, epsilon, b.node.op_type == "LayerNormalization")
    y = b.op("Mul", y, b.input(1))
    b.end(b.op("Add", y, b.input(2)) if b.input(2) else y)


def _skip_norm(b: Body) -> None:
    total = b.op("Add", b.input(0), b.input(1))
    centred = b.node.op_type == "SkipLayerNormalization"
    y = b.op("Mul", _standardized(b, total, -1, b.attribute("epsilon", 1e-12), centred), b.input(2))
    b.end(b.op("Add", y, b.input(3)) if centred and b.input(3) else y)
    if len(b.outputs) > 3:
        b.op("Identity", total, output=b.outputs[3])


def _group_norm(b: Body) -> None:
    groups = b.attribute("num_groups")
    grouped = b.op("Reshape", b.input(0), b.integers(0, groups, -1))
    ones, zeros = b.number(np.ones(groups)), b.number(np.zeros(groups))
    y = b.op("InstanceNormalization", grouped, ones, zeros, epsilon=b.attribute("epsilon", 1e-5))
    y = b.op("Reshape", y, b.op("Shape", b.input(0)))
    per_channel = b.integers(-1, *[1] * (b.rank(0) - 2))
    y = b.op("Mul", y, b.op("Reshape", b.input(1), per_channel))
    b.end(b.op("Add", y, b.op("Reshape", b.input(2), per_channel)))


def _rotary(b: Body) -> None:
    """Of four axes, with angles (batch, length, half)."""
    x, axes = b.input(0), b.integers(3)
    shape = b.types[1].shape
    half = shape[-1] if shape else None
    if not isinstance(half, int):
        raise UnsupportedError(f"node {b.node.label!r} can't be written: the number of its angles is not known")
    paired = b.attribute("interleaved", 0)
    starts, step = ((0, 1), 2) if paired else ((0, half), 1)
    ends = [2 * half] * 2 if paired else [half, 2 * half]
    lower, upper = (
        b.op("Slice", x, b.integers(start), b.integers(end), axes, b.integers(step))
        for start, end in zip(starts, ends, strict=True)
    )
    place = b.integers(0, 1, -1, half)
    cos, sin = (b.op("Reshape", b.input(i), place) for i in (1, 2))
    first = b.op("Sub", b.op("Mul", lower, cos), b.op("Mul", upper, sin))
    second = b.op("Add", b.op("Mul", upper, cos), b.op("Mul", lower, sin))
    if paired:
        single = b.op("Concat", b.op("Shape", first), b.integers(1), axis=0)
        pairs = b.op("Concat", *(b.op("Reshape", part, single) for part in (first, second)), axis=4)
        b.end(b.op("Reshape", pairs, b.op("Shape", x)))
        return
    b.end(b.op("Concat", first, second, axis=3))


def _fused_attention(b: Body) -> None:
    rank = b.rank(0)
    lead = range(rank - 3)
    last = b.attribute("heads_last", [0] * 4)
    first, swapped = (rank - 3, rank - 2, rank - 1), (rank - 2, rank - 3, rank - 1)
    orders = [swapped if flag else first for flag in last]
    q, k, v = (b.turn(b.input(i), *lead, *orders[i]) if last[i] else b.input(i) for i in range(3))
    heads = [(b.types[i].shape or ())[orders[i][0]] for i in range(3)]
    if heads[0] != heads[1]:
        k, v = (_repeated(b, x, i, heads[0], heads[i]) for i, x in ((1, k), (2, v)))
    scores = b.op("MatMul", q, b.turn(k, *lead, rank - 3, rank - 1, rank - 2))
    scores = b.op("Mul", scores, b.number(b.attribute("scale", 1.0)))
    if b.input(3):
        scores = b.op("Add", scores, b.input(3))
    if b.input(4):
        scores = b.op("Where", b.input(4), scores, b.number(b.attribute("fill", -np.inf)))
    offset = b.attribute("causal_offset")
    if offset is not None:
        hidden = b.op("Expand", b.number(-np.inf), b.op("Shape", scores))
        scores = b.op("Add", scores, b.op("Trilu", hidden, b.op("Constant", value=np.array(offset + 1)), upper=1))
    weights = b.op("Softmax", scores, axis=rank - 1)
    zero, unseen = b.number(0), b.attribute("unseen", 0)
    if unseen == 1:
        largest = b.over("ReduceMax", scores, [-1])
        weights = b.op("Where", b.op("Equal", largest, b.number(-np.inf)), zero, weights)
    if unseen == 2:
        weights = b.op("Where", b.op("IsNaN", weights), zero, weights)
    y = b.op("MatMul", weights, v)
    b.end(b.turn(y, *lead, *swapped) if last[3] else y)


def _repeated(b: Body, x: str, index: int, heads: Dim, own: Dim) -> str:
    """Keys or values, each head as often as queries share it."""
    shape = b.types[index].shape
    size = shape[-1] if shape else None
    if not isinstance(heads, int) or not isinstance(own, int) or not isinstance(size, int) or b.rank(0) != 4:
        raise UnsupportedError(f"node {b.node.label!r} can't be written: its heads are not known")
    spread = b.op("Reshape", x, b.integers(0, own, 1, -1, size))
    spread = b.op("Expand", spread, b.integers(1, 1, heads // own, 1, 1))
    return b.op("Reshape", spread, b.integers(0, heads, -1, size))


BODIES: dict[tuple[str, str], Callable[[Body], None]] = {
    (DOMAIN, "FusedMatMul"): _fused_matmul,
    (DOMAIN, "FusedAttention"): _fused_attention,
    (MICROSOFT, "FusedConv"): _fused_conv,
    (MICROSOFT, "Gelu"): _unary(_gelu),
    (MICROSOFT, "FastGelu"): _unary(_gelu_tanh),
    (MICROSOFT, "QuickGelu"): lambda b: b.end(_silu(b, b.input(0), b.attribute("alpha", 1.702))),
    (MICROSOFT, "SkipLayerNormalization"): _skip_norm,
    (MICROSOFT, "SkipSimplifiedLayerNormalization"): _skip_norm,
    ("", "LayerNormalization"): _layer_norm,
    ("", "RMSNormalization"): _layer_norm,
    ("", "GroupNormalization"): _group_norm,
    ("", "RotaryEmbedding"): _rotary,
    ("", "HardSwish"): _unary(_hard_swish),
    ("", "Mish"): _unary(_mish),
}
"""By domain and name, what writes the body of an operator that a rewrite made."""


def portable(model: Model, graph: Graph) -> Model:
    """`model` with its rewritten `graph`, which runs wherever its own operators and com.microsoft's do."""
    opset = model.opsets.get("", 1)
    own = {(node.domain, node.op_type) for node in _all_nodes(model.graph)}
    functions: dict[Any, Function] = {}
    rewritten = _portable(graph, opset, own, functions, {})
    opsets = {**model.opsets, **({DOMAIN: 1} if functions else {})}
    return replace(model, graph=rewritten, opsets=opsets, functions=list(functions.values()))


def _all_nodes(graph: Graph) -> list[Node]:
    return [n for node in graph.nodes for n in (node, *(m for body in node.subgraphs() for m in _all_nodes(body)))]


def _portable(
    graph: Graph,
    opset: int,
    own: set[tuple[str, str]],
    functions: dict[Any, Function],
    outer: Mapping[str, Type | None],
) -> Graph:
    captured = {name: outer.get(name) for name in graph.captures()}
    types = {**outer, **captured, **infer_graph(graph, captured)}
    nodes = []
    for node in graph.nodes:
        attributes = {
            name: _portable(value, opset, own, functions, types) if isinstance(value, Graph) else value
            for name, value in node.attributes.items()
        }
        node = replace(node, attributes=attributes)
        inputs = [t if isinstance(t := types.get(name), TensorType) else TensorType(None, None) for name in node.inputs]
        nodes.append(_called(node, inputs, opset, functions) if _is_foreign(node, inputs, opset, own) else node)
    ends = {*graph.inputs, *graph.outputs, *graph.defaults}
    defaults = [name for name in graph.defaults if name in graph.initializers]
    kept = {name: type_ for name, type_ in graph.types.items() if name in ends}
    return replace(graph, nodes=nodes, types=kept, defaults=defaults)


def _is_foreign(node: Node, inputs: list[TensorType], opset: int, own: set[tuple[str, str]]) -> bool:
    """Whether other runtimes may not know the operator, or not for these inputs."""
    key = (node.domain, node.op_type)
    if key not in BODIES:
        return False
    if node.domain == DOMAIN:
        return True
    if key in own and node.op_type != "FusedConv":
        return node.domain == "" and node.version != opset
    if node.domain == "":
        return node.version != opset or node.op_type == "RMSNormalization"
    activation = node.attributes.get("activation", "") if node.op_type == "FusedConv" else ""
    return inputs[0].dtype != np.float32 or activation not in KNOWN_ACTIVATIONS


def _called(node: Node, inputs: list[TensorType], opset: int, functions: dict[Any, Function]) -> Node:
    """A call of the function that does what the node does."""
    shapes = tuple(None if t.shape is None else tuple(t.shape) for t in inputs)
    shapes = shapes if node.op_type == "FusedAttention" else tuple(s if s is None else len(s) for s in shapes)
    attributes = repr(sorted(node.attributes.items()))
    present = tuple(map(bool, node.inputs)), tuple(map(bool, node.outputs))
    key = (node.domain, node.op_type, attributes, present, inputs[0].dtype, shapes)
    if key not in functions:
        body = Body(node, inputs, opset)
        BODIES[node.domain, node.op_type](body)
        functions[key] = Function(
            f"{node.op_type}_{len(functions) + 1}", DOMAIN, [n for n in body.inputs if n],
            [n for n in body.outputs if n], body.nodes, {"": opset},
        )  # fmt: skip
    called, outputs = functions[key].name, [name for name in node.outputs if name]
    return Node(called, [name for name in node.inputs if name], outputs, {}, DOMAIN, 1, node.name)
