"""Valid graphs at random: nodes are added one by one, and each is computed at once by the operators' definitions, so
that shapes, ranges and indices of the next fit.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TypeProto, defs, helper

import onnxlet.ops
from onnxlet.execution.executor import GraphExecutor, drive
from onnxlet.graph.ir import STRING
from onnxlet.model.dtypes import bits_of, dtype_of, element_type_of, is_extended, narrow, widen
from onnxlet.model.loader import load_model
from onnxlet.ops import registry

LARGEST = 1 << 14
"""Elements that a value may have."""

FLOATS = (np.dtype(np.float32), np.dtype(np.float16), np.dtype(np.float64), dtype_of(16))
INTEGERS = tuple(np.dtype(t) for t in ("int8", "uint8", "int16", "uint16", "int32", "int64", "uint32", "uint64"))
BOOL, F32, I64 = np.dtype(bool), np.dtype(np.float32), np.dtype(np.int64)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


STEPS = _words("""
    Round Floor Ceil Sign ArgMax ArgMin TopK QuantizeLinear DynamicQuantizeLinear Hardmax NonZero Unique Mod
    Shrink ThresholdedRelu Equal Less LessOrEqual Greater GreaterOrEqual NonMaxSuppression MaxPool Compress Not
    QLinearConv QLinearMatMul IsInf IsNaN LpNormalization
""")
"""Operators whose results jump, so that a difference in the last bits of an operand may change them altogether."""

MOVES = _words("""
    Identity Transpose Reshape Flatten Squeeze Unsqueeze Concat Split Slice Pad Tile Expand Gather
    GatherElements GatherND ScatterElements ScatterND Relu Neg Abs Max Min DepthToSpace SpaceToDepth
    ReverseSequence Trilu Shape Size Where Constant ConstantOfShape EyeLike OneHot Range And Or Xor Not
    BitwiseAnd BitwiseOr BitwiseXor BitwiseNot SequenceConstruct SequenceAt SequenceInsert SequenceErase
    SequenceLength SplitToSequence ConcatFromSequence Optional OptionalGetElement OptionalHasElement Equal Less
    Greater LessOrEqual GreaterOrEqual Sign Compress
""")
"""Operators that give exact results for exact operands."""


class Unfit(Exception):
    """What was to be added has no place in this graph."""


class Builder:
    """A graph in the making. `values` are those that a node may take, with the values they have for the first inputs;
    those of the graphs around a body among them."""

    def __init__(self, rng: random.Random, opset: int, outer: Builder | None = None):
        self.rng, self.opset, self.outer = rng, opset, outer
        self.numbers: np.random.Generator = outer.numbers if outer else np.random.default_rng(rng.randrange(1 << 30))
        self.names: list[int] = outer.names if outer else [0]
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: dict[str, Any] = {}
        self.constants: dict[str, np.ndarray] = {}
        self.values: dict[str, Any] = dict(outer.values) if outer else {}
        self.near: set[str] = set(outer.near) if outer else set()
        self.rough: set[str] = set(outer.rough) if outer else set()
        self.used: set[str] = set()

    # Values ------------------------------------------------------------------------------------------------------

    def name(self) -> str:
        self.names[0] += 1
        return f"v{self.names[0]}"

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def shape(self, rank: int | None = None) -> tuple[int, ...]:
        if rank is None:
            rank = self.rng.choice((0, 1, 2, 2, 3, 3, 4, 4, 5))
        sizes = (1, 2, 3, 4, 5, 7, 8) if rank > 2 else (1, 2, 3, 5, 8, 16, 17, 33)
        return tuple(0 if self.chance(0.01) else self.rng.choice(sizes) for _ in range(rank))

    def array(self, dtype: np.dtype, shape: Sequence[int], low: float = -2, high: float = 2) -> np.ndarray:
        if dtype == STRING:
            return self.numbers.choice(np.array(["a", "b", "", "ab c", "Ä"], object), tuple(shape)).astype(STRING)
        if dtype == BOOL:
            return self.numbers.random(tuple(shape)) < 0.5
        if dtype in INTEGERS:
            information = np.iinfo(dtype)
            low, high = max(int(low * 4), information.min), min(int(high * 4), information.max)
            return self.numbers.integers(low, high, tuple(shape), endpoint=True).astype(dtype)
        made = self.numbers.uniform(low, high, tuple(shape))
        if self.chance(0.02) and made.size and dtype in FLOATS:
            made.flat[self.rng.randrange(made.size)] = self.rng.choice((np.inf, -np.inf, np.nan, 0.0, -0.0, 1e-30))
        return narrow(made.astype(F32), dtype) if is_extended(dtype) else made.astype(dtype)

    def constant(self, value: Any, dtype: Any = None) -> str:
        """A value that nodes need as it is: an initializer, or a Constant node."""
        name, array = self.name(), np.asarray(value, dtype)
        self.values[name] = array
        if self.chance(0.2) and not self.outer and array.dtype != STRING:
            self.nodes.append(helper.make_node("Constant", [], [name], value=tensor(array)))
        else:
            self.constants[name] = array
        return name

    def setting(self, value: Any, dtype: Any = np.int64) -> str:
        """Axes, sizes and the like: a constant, or now and then an input."""
        array = np.asarray(value, dtype)
        return self.feed(array) if self.chance(0.15) and not self.outer else self.constant(array)

    def feed(self, value: Any) -> str:
        """A new input of the graph."""
        root = self
        while root.outer:
            root = root.outer
        name = self.name()
        root.inputs[name] = value
        here: Builder | None = self
        while here:
            here.values[name] = value
            here = here.outer
        return name

    def fresh(self, dtype: Any, shape: Sequence[int], low: float = -2, high: float = 2) -> str:
        array = self.array(np.dtype(dtype), shape, low, high)
        return self.feed(array) if self.chance(0.5) else self.constant(array)

    def pick(self, fits: Callable[[np.ndarray], bool], make: Callable[[], str] | None = None) -> str:
        """A tensor for which `fits`, the latest most often; else what `make` makes."""
        found = [n for n, v in self.values.items() if isinstance(v, np.ndarray) and fits(v)]
        if not found or (make and self.chance(0.15)):
            if make is None:
                raise Unfit
            return make()
        return self.rng.choice(found[-3:] if self.chance(0.6) else found)

    def floats(self, least: int = 0, most: int = 6, dtypes: Sequence[Any] = (F32,)) -> str:
        """A float tensor of a rank in these bounds, with elements."""
        chosen = FLOATS if dtypes == (F32,) and self.chance(0.25) else tuple(dtypes)
        return self.pick(
            lambda v: v.dtype in chosen and least <= v.ndim <= most,
            lambda: self.fresh(self.rng.choice(chosen), self.shape(self.rng.randint(least, min(most, max(least, 4))))),
        )

    def partner(self, name: str, low: float = -2, high: float = 2) -> str:
        """An operand that broadcasts with another and has its type."""
        value = self.values[name]

        def fits(other: np.ndarray) -> bool:
            return other.dtype == value.dtype and broadcast(value.shape, other.shape) is not None

        def make() -> str:
            shape = tuple(1 if self.chance(0.2) else d for d in value.shape)
            kind = self.rng.randrange(4)
            shape = shape[self.rng.randrange(len(shape) + 1) :] if kind == 0 else () if kind == 1 else shape
            return self.fresh(value.dtype, shape, low, high)

        return self.pick(fits, make) if self.chance(0.5) else make()

    # Nodes -------------------------------------------------------------------------------------------------------

    def add(
        self, operator: str, inputs: Sequence[str], /, *, outputs: int = 1, domain: str = "", **attributes: Any
    ) -> str:
        """Add a node and return the name of its first output."""
        return self.add_all(operator, inputs, outputs, domain, attributes)[0]

    def add_all(
        self, operator: str, inputs: Sequence[str], outputs: int, domain: str = "", attributes: Mapping[str, Any] = {}
    ) -> list[str]:
        """Add a node whose operands are computed. Raises `Unfit` where the standard does not allow it."""
        allowed(operator, domain, self.opset if not domain else 1, [self.values[n] if n else None for n in inputs])
        made = {k: tensor(v) if isinstance(v, np.ndarray) else v for k, v in attributes.items() if v is not None}
        names = [self.name() for _ in range(outputs)]
        self.keep(helper.make_node(operator, inputs, names, domain=domain, **made))
        return names

    def keep(self, node: onnx.NodeProto) -> None:
        """Add a node as it is."""
        inputs = {n for n in node.input if n} | captured(node)
        results = evaluate(node, self.opset, {n: self.values[n] for n in inputs})
        for value in results:
            if not reasonable(value):
                raise Unfit
        self.nodes.append(node)
        near, rough = bool(inputs & self.near), bool(inputs & self.rough)
        floating = any(isinstance(v, np.ndarray) and is_float(v) for v in (self.values[n] for n in inputs))
        whole = node.op_type == "Cast" and not all(isinstance(v, np.ndarray) and is_float(v) for v in results)
        for name, value in zip(node.output, results, strict=True):
            if not name:
                continue
            self.values[name] = value
            if rough or (near and (node.op_type in STEPS or whole)) or (floating and node.op_type in STEPS - MOVES):
                self.rough.add(name)
            if near or (floating and node.op_type not in MOVES):
                self.near.add(name)
        self.used |= inputs

    # The model ---------------------------------------------------------------------------------------------------

    def leaves(self) -> list[str]:
        """Results that no node takes."""
        return [n for node in self.nodes for n in node.output if n and n not in self.used]

    def body(self, name: str, outputs: Sequence[str], inputs: Sequence[onnx.ValueInfoProto] = ()) -> onnx.GraphProto:
        """What was built, as the body of a node."""
        made = [helper.make_value_info(n, loose_type(self.values[n])) for n in outputs]
        return helper.make_graph(self.nodes, name, list(inputs), made, self.initializers())

    def initializers(self) -> list[onnx.TensorProto]:
        return [tensor(v, n) for n, v in self.constants.items()]

    def model(self, dims: Callable[[Sequence[int]], Sequence[int | str] | None]) -> onnx.ModelProto:
        """The model; `dims` writes the shape of an input."""
        leaves = self.leaves()
        others = [n for n in self.used if n in self.values and n not in self.inputs and n not in self.constants]
        extra = self.rng.sample(sorted(others), min(len(others), self.rng.choice((0, 0, 1, 2))))
        outputs = list(dict.fromkeys([*leaves, *extra]))
        inputs = [helper.make_value_info(n, type_of(v, dims)) for n, v in self.inputs.items()]
        made = [helper.make_value_info(n, loose_type(self.values[n])) for n in outputs]
        graph = helper.make_graph(self.nodes, "random", inputs, made, self.initializers())
        domains = sorted({n.domain for n in self.nodes if n.domain})
        imports = [helper.make_opsetid("", self.opset), *(helper.make_opsetid(d, VERSIONS.get(d, 1)) for d in domains)]
        return helper.make_model(graph, opset_imports=imports, ir_version=10)


VERSIONS = {"ai.onnx.ml": 5}
"""Versions of the domains beside the standard's own, where it is not 1."""


def tensor(array: np.ndarray, name: str = "") -> onnx.TensorProto:
    """An array as a tensor of the wire format."""
    if array.dtype == STRING:
        return helper.make_tensor(name, onnx.TensorProto.STRING, array.shape, [s.encode() for s in array.ravel()])
    if not is_extended(array.dtype):
        return onnx.numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)
    element = element_type_of(array.dtype)
    bits = np.ascontiguousarray(bits_of(array))
    if str(array.dtype) in PACKED:
        return helper.make_tensor(name, element, array.shape, widen(array).ravel())
    return onnx.TensorProto(name=name, data_type=element, dims=array.shape, raw_data=bits.tobytes())


def type_of(value: Any, dims: Callable[[Sequence[int]], Sequence[int | str] | None]) -> TypeProto:
    """The type of a value."""
    if value is None or isinstance(value, dict):
        raise Unfit
    if isinstance(value, list):
        if not value or not isinstance(value[0], np.ndarray):
            raise Unfit
        return helper.make_sequence_type_proto(loose_type(value[0]))
    return helper.make_tensor_type_proto(element_type_of(value.dtype), dims(value.shape))


def loose_type(value: Any) -> TypeProto:
    """The type of a value, without its shape."""
    return type_of(value, lambda shape: None)


def is_float(value: np.ndarray) -> bool:
    return value.dtype in FLOATS or "float" in str(value.dtype)


def broadcast(a: Sequence[int], b: Sequence[int]) -> tuple[int, ...] | None:
    """The common shape, or `None`."""
    try:
        shape = np.broadcast_shapes(tuple(a), tuple(b))
    except ValueError:
        return None
    return shape if np.prod(shape, dtype=float) <= LARGEST else None


def reasonable(value: Any) -> bool:
    """Whether a value is small enough to go on with, and its numbers are where rounding says little."""
    if isinstance(value, list):
        return len(value) < 20 and all(reasonable(v) for v in value)
    if not isinstance(value, np.ndarray):
        return value is None
    if value.size > LARGEST or value.ndim > 7:
        return False
    if not is_float(value) or not value.size:
        return True
    with np.errstate(all="ignore"):
        size = np.abs(widen(value).astype(np.float64))
    return bool(np.nanmax(np.where(np.isinf(size), 0, size), initial=0) < 1e4)


def captured(node: onnx.NodeProto) -> set[str]:
    """Values of the graphs around that a node's bodies take."""
    found: set[str] = set()
    for attribute in node.attribute:
        if attribute.type != onnx.AttributeProto.GRAPH:
            continue
        graph = attribute.g
        own = {i.name for i in graph.input} | {t.name for t in graph.initializer}
        own |= {name for inner in graph.node for name in inner.output}
        for inner in graph.node:
            found |= ({n for n in inner.input if n} | captured(inner)) - own
        found |= {o.name for o in graph.output} - own
    return found


def allowed(operator: str, domain: str, opset: int, inputs: Sequence[Any]) -> None:
    """Raise `Unfit` where the standard has no such operator at this opset, or not for these types."""
    if domain:
        return
    try:
        schema = defs.get_schema(operator, opset, domain)
    except defs.SchemaError:
        raise Unfit from None
    if schema.deprecated:
        raise Unfit
    for i, value in enumerate(inputs):
        if isinstance(value, np.ndarray):
            if i >= len(schema.inputs) and schema.inputs[-1].option != defs.OpSchema.FormalParameterOption.Variadic:
                raise Unfit
            text = f"tensor({NAMES.get(str(value.dtype), str(value.dtype).replace('_', ''))})"
            if text not in schema.inputs[min(i, len(schema.inputs) - 1)].types:
                raise Unfit


PACKED = ("int4", "uint4", "int2", "uint2", "float4_e2m1fn")
NAMES = {
    "float4_e2m1fn": "float4e2m1",
    "float8_e8m0fnu": "float8e8m0",
    "float32": "float",
    "float64": "double",
    "object": "string",
    str(STRING): "string",
}


def evaluate(node: onnx.NodeProto, opset: int, values: Mapping[str, Any]) -> list[Any]:
    """The outputs of a node, by the definitions. Raises `Unfit` where they refuse."""
    bodies = any(a.type == onnx.AttributeProto.GRAPH for a in node.attribute)
    outputs = [helper.make_value_info(n, TypeProto()) for n in node.output if n]
    inputs = [helper.make_value_info(n, loose_type(v)) for n, v in values.items()]
    imports = [helper.make_opsetid("", opset)]
    if node.domain:
        imports.append(helper.make_opsetid(node.domain, VERSIONS.get(node.domain, 1)))
    if not bodies and registry.find(node.op_type, node.domain, imports[-1].version) is None:
        raise Unfit
    made = helper.make_model(
        helper.make_graph([node], "one", inputs, outputs), opset_imports=imports, ir_version=10
    ).SerializeToString()
    try:
        results = iter(drive(GraphExecutor(load_model(made).graph, []).run(dict(values))))
    except onnxlet.OnnxletError as error:
        raise Unfit(str(error)) from error
    return [next(results) if n else None for n in node.output]
