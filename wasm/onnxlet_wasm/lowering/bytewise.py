"""Elementwise operators between DequantizeLinear and QuantizeLinear, computed on the bytes.

A function of one tensor of bytes is a table of 256 results, made by the NumPy definitions; sums and products of two are
a kernel of their own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

import numpy as np

from onnxlet.errors import OnnxletError
from onnxlet.execution.numpy_steps import fold
from onnxlet.graph.ir import Node, TensorType
from onnxlet.providers.base import Segment, Step

from ..compiler import Compiler
from ..engine import f32
from ..layouts import LAST, PLAIN, size_of
from .common import F32, I8, TYPE_CODES, U8, dtype_of, need_types, output_dtype, present, shape_of
from .elementwise import GRAIN, kept_layout
from .registry import Emit, lower

OWN = "ai.onnxlet"
MICROSOFT = "com.microsoft"

FUNCTIONS = frozenset(
    {
        *(("", name) for name in (
            "Abs", "Add", "Ceil", "Clip", "Div", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish",
            "LeakyRelu", "Log", "Max", "Min", "Mish", "Mul", "Neg", "Pow", "Reciprocal", "Relu", "Round", "Selu",
            "Sigmoid", "Softplus", "Softsign", "Sqrt", "Sub", "Swish", "Tanh", "ThresholdedRelu",
        )),
        *((MICROSOFT, name) for name in ("FastGelu", "Gelu", "QuickGelu")),
    }
)  # fmt: skip
"""Operators whose results depend on elements at the same place alone, where other inputs have one element."""

LONGEST = 16
"""Operators that one table may stand for."""

PIECE = 16
"""Elements in a unit of `byte_pair`."""


class Values:
    """Who makes and who reads the values of a segment."""

    def __init__(self, segment: Segment):
        self.outputs = set(segment.outputs)
        self.makers = {name: s for s in segment.steps for name in s.node.outputs if name}
        self.readers: dict[str, list[Step]] = {}
        for step in segment.steps:
            for name in set(step.node.inputs):
                self.readers.setdefault(name, []).append(step)

    def only_reader(self, name: str) -> Step | None:
        """The one step that reads a value which stays within the segment, else `None`."""
        readers = self.readers.get(name, [])
        return readers[0] if len(readers) == 1 and name not in self.outputs else None

    def only_within(self, name: str, steps: Sequence[Step]) -> bool:
        """Whether a value is read by these steps alone."""
        return name not in self.outputs and all(any(r is s for s in steps) for r in self.readers.get(name, []))


def on_bytes(segment: Segment) -> Segment:
    """The segment with functions between DequantizeLinear and QuantizeLinear replaced by steps on the bytes."""
    graph = Values(segment)
    replaced: dict[int, Step | None] = {}
    for step in segment.steps:
        if not _one_scale(step, "QuantizeLinear") or output_dtype(step) not in (U8, I8):
            continue
        found = _table(graph, step) or _pair(graph, step)
        if found is not None:
            new, inner = found
            replaced[id(step)] = new
            replaced.update((id(s), None) for s in inner)
    if not replaced:
        return segment
    steps = [new for s in segment.steps if (new := replaced.get(id(s), s)) is not None]
    read = {name for s in steps for name in s.node.inputs} | graph.outputs
    unread = [s for s in steps if s.node.op_type == "DequantizeLinear" and s.node.outputs[0] not in read]
    return replace(segment, steps=[s for s in steps if not any(s is u for u in unread)])


def _one_scale(step: Step | None, operator: str) -> bool:
    """Whether a step is QuantizeLinear or DequantizeLinear with one constant scale and zero point, float32."""
    if step is None or step.node.op_type != operator or dtype_of(step, 1) != F32:
        return False
    if step.attribute("block_size", 0) or step.attribute("precision", 0) not in (0, 1):
        return False
    parameters = [1, 2] if present(step, 2) else [1]
    return all(step.node.inputs[i] in step.constants and prod(shape_of(step, i)) == 1 for i in parameters)


def _is_number(step: Step, index: int) -> bool:
    """Whether an input is a constant of one element that broadcasts to no more axes than the result has."""
    return step.node.inputs[index] in step.constants and prod(shape_of(step, index)) == 1


def _table(graph: Values, q: Step) -> tuple[Step, list[Step]] | None:
    """The step that looks up in a table what `q` gives, and the steps that it stands for but for DequantizeLinear."""
    group: dict[int, Step] = {}
    leaves: dict[str, Step] = {}
    waiting = [q.node.inputs[0]]
    while waiting:
        name = waiting.pop()
        step = graph.makers.get(name)
        if step is None or id(step) in group:
            if step is None:
                return None
            continue
        if _one_scale(step, "DequantizeLinear"):
            leaves[name] = step
            continue
        if (step.node.domain, step.node.op_type) not in FUNCTIONS or len(group) == LONGEST:
            return None
        group[id(step)] = step
        waiting += [n for i, n in enumerate(step.node.inputs) if n and not _is_number(step, i)]
    data = {step.node.inputs[0] for step in leaves.values()}
    inner = list(group.values())
    if len(data) != 1 or not all(graph.only_within(s.node.outputs[0], [*inner, q]) for s in inner):
        return None
    first = next(iter(leaves.values()))
    shape, dtype = shape_of(first, 0), dtype_of(first, 0)
    if dtype not in (U8, I8) or any(_shape(s) != shape for s in inner):
        return None
    table = _tabulate([*leaves.values(), *sorted(inner, key=lambda s: _depth(graph, s)), q], data.pop(), dtype)
    if table is None:
        return None
    node = Node("ByteTable", [first.node.inputs[0]], q.node.outputs, {"table": table}, OWN, 1, q.node.label)
    return Step(node, [first.inputs[0]], q.outputs, {}), inner


def _shape(step: Step) -> tuple[int, ...] | None:
    type_ = step.outputs[0]
    return type_.dims if isinstance(type_, TensorType) and type_.concrete else None


def _depth(graph: Values, step: Step) -> int:
    """How many steps lead to a step within a segment: makers have less."""
    inputs = [graph.makers[n] for n in step.node.inputs if n in graph.makers]
    return 1 + max((0 if s.node.op_type == "DequantizeLinear" else _depth(graph, s) for s in inputs), default=0)


def _tabulate(steps: Sequence[Step], data: str, dtype: np.dtype) -> np.ndarray | None:
    """What the steps make of each byte, in the order of their bits."""
    values: dict[str, np.ndarray] = {data: np.arange(256, dtype=np.uint8).view(dtype)}
    for step in steps:
        known = {name: tensor.numpy().reshape(()) for name, tensor in step.constants.items()}
        try:
            given: Mapping[str, np.ndarray] = {n: values[n] if n in values else known[n] for n in step.node.inputs if n}
            (result,) = fold(step.node, given)
        except (OnnxletError, KeyError):
            return None
        if not isinstance(result, np.ndarray) or result.shape != (256,):
            return None
        values[step.node.outputs[0]] = result
    return values[steps[-1].node.outputs[0]].view(np.uint8)


@lower("ByteTable", domain=OWN)
def byte_table(step: Step) -> Emit:
    """A step that `on_bytes` made."""

    def emit(c: Compiler) -> None:
        layout = kept_layout(c, 0)
        x, y = c.input(0, layout), c.output(0, layout, over=[0])
        c.emit("byte_table", units=size_of(shape_of(step, 0)), grain=GRAIN, x=x, y=y,
               table=c.data(step.attribute("table")))  # fmt: skip

    return emit


def _parameters(step: Step) -> tuple[float, float]:
    """Zero point and scale."""
    zero, scale = step.constant(2), step.constant(1)
    assert scale is not None
    return 0.0 if zero is None else float(zero.reshape(())), float(scale.reshape(()))


def _pair(graph: Values, q: Step) -> tuple[Step, list[Step]] | None:
    """The step that adds or multiplies two tensors of bytes, and the steps that it stands for."""
    step = graph.makers.get(q.node.inputs[0])
    inner: list[Step] = []
    low, high = -math.inf, math.inf
    if step is not None and not step.node.domain and step.node.op_type in ("Relu", "Clip"):
        bounds = bounds_of(step)
        if bounds is None:
            return None
        low, high = bounds
        inner.append(step)
        step = graph.makers.get(step.node.inputs[0])
    shift = 0.0
    if step is not None and not step.node.domain and step.node.op_type == "Add" and _is_number(step, 1):
        shift = float(step.constants[step.node.inputs[1]].numpy().reshape(()))
        inner.append(step)
        step = graph.makers.get(step.node.inputs[0])
        if step is not None and step.node.op_type == "Mul":
            return None
    if step is None or step.node.domain or step.node.op_type not in ("Add", "Mul"):
        return None
    inner.append(step)
    leaves = [graph.makers.get(name) for name in step.node.inputs]
    if not all(_one_scale(leaf, "DequantizeLinear") and dtype_of(leaf, 0) in (U8, I8) for leaf in leaves if leaf):
        return None
    found = [leaf for leaf in leaves if leaf is not None]
    if len(found) < 2 or shape_of(found[0], 0) != shape_of(found[1], 0):
        return None
    if not all(graph.only_within(s.node.outputs[0], [*inner, q]) for s in inner):
        return None
    attributes = {"operation": ("Add", "Mul").index(step.node.op_type), "shift": shift, "low": low, "high": high}
    for letter, s in zip("pqy", [*found, q], strict=True):
        attributes |= dict(zip((f"{letter}_zero", f"{letter}_scale"), _parameters(s), strict=True))
    if not all(math.isfinite(attributes[f"{letter}_scale"]) for letter in "pqy") or attributes["y_scale"] == 0:
        return None
    node = Node("BytePair", [leaf.node.inputs[0] for leaf in found], q.node.outputs, attributes, OWN, 1, q.node.label)
    return Step(node, [leaf.inputs[0] for leaf in found], q.outputs, {}), inner


def bounds_of(step: Step) -> tuple[float, float] | None:
    """The bounds of a Relu or Clip; `None` where they are computed, or are no bounds."""
    if step.node.op_type == "Relu":
        return 0.0, math.inf
    bounds = [float(step.attribute("min", -math.inf)), float(step.attribute("max", math.inf))]
    for i in (1, 2):
        if present(step, i):
            value = step.constant(i)
            if value is None or value.size != 1:
                return None
            bounds[i - 1] = float(value.reshape(()))
    return None if not bounds[0] <= bounds[1] else (bounds[0], bounds[1])


@lower("BytePair", domain=OWN)
def byte_pair(step: Step) -> Emit:
    """Two tensors of bytes of one shape; what is done is in the attributes."""
    need_types(step, (U8, I8))
    count = size_of(shape_of(step, 0))
    numbers = {k: v if k == "operation" else f32(v) for k, v in step.node.attributes.items()}

    def emit(c: Compiler) -> None:
        layouts = [c.layouts(i)[0] for i in (0, 1) if c.tensor(i) is None]
        layout = LAST if LAST in layouts else PLAIN
        p, q = c.input(0, layout), c.input(1, layout)
        y = c.output(0, layout, over=[0, 1])
        types = {f"{letter}_type": TYPE_CODES[dtype_of(step, i)] for i, letter in enumerate("pq")}
        c.emit("byte_pair", units=-(-count // PIECE), grain=GRAIN // PIECE, count=count, p=p, q=q, y=y,
               y_type=TYPE_CODES[output_dtype(step)], **types, **numbers)  # fmt: skip

    return emit
