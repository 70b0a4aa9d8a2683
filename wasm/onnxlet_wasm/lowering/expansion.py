"""Operators that are made of other operators: a function writes them out as steps, and those are lowered.

@expand("BiasSoftmax", domain="com.microsoft")
def bias_softmax(e):
    total = e.binary("Add", e.input(0), e.input(1))
    e.add("Softmax", [total], output=e.output(), axis=-1)
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from onnxlet.errors import ShapeError
from onnxlet.graph.infer import infer_node, requirements
from onnxlet.graph.ir import Node, TensorType
from onnxlet.model.tensors import Tensor
from onnxlet.providers.base import Segment, Step

from ..derived import Derivations
from .common import F32, I64, present
from .registry import FAMILIES, Refused

VERSION = 21
"""The opset that the written-out steps are in."""


class Expansion:
    """A step being written out. Values are names, as in a graph."""

    def __init__(self, step: Step, derivations: Derivations, depth: int = 0):
        """`depth` says in how many expansions the step was written."""
        self.step = step
        self.steps: list[Step] = []
        self.constants: dict[str, Tensor] = {}
        self._derivations = derivations
        self._types: dict[str, TensorType] = {}
        names = step.node.outputs
        self._prefix = next(n for n in names if n) + "#" * depth  # its last step's output is ours too
        self._numbers = 0
        for name, type_ in zip(step.node.inputs, step.inputs, strict=True):
            if name and type_ is not None:
                self._types[name] = type_
        self.constants.update(step.constants)

    def input(self, index: int) -> str:
        """The name of an input of the step; empty where it is absent."""
        return self.step.node.inputs[index] if present(self.step, index) else ""

    def output(self, index: int = 0) -> str:
        """The name of an output of the step; empty where nobody wants it."""
        names = self.step.node.outputs
        return names[index] if index < len(names) else ""

    def shape(self, name: str) -> tuple[int, ...]:
        return self._types[name].dims

    def literal(self, value: Any, dtype: np.dtype = F32) -> str:
        """A small constant."""
        array = np.asarray(value, dtype)
        key = ("literal", array.tobytes(), array.dtype.str, array.shape)
        return self._constant(self._derivations.get(key, (), dtype, array.shape, lambda: array))

    def derived(self, key: Hashable, indices: Sequence[int], shape: tuple[int, ...], compute: Any) -> str:
        """A float32 constant computed from the inputs at `indices`, which are constants: `compute(*values)`."""
        sources = []
        for i in indices:
            tensor = self.step.constants.get(self.input(i))
            if tensor is None:
                raise Refused(f"input {i} must be constant")
            sources.append(tensor)
        return self._constant(
            self._derivations.get(key, tuple(sources), F32, shape, lambda: compute(*(t.numpy() for t in sources)))
        )

    def _constant(self, tensor: Tensor) -> str:
        name = self._new_name()
        self.constants[name] = tensor
        self._types[name] = TensorType(tensor.dtype, tensor.shape)
        return name

    def _new_name(self) -> str:
        self._numbers += 1
        return f"{self._prefix}#{self._numbers}"

    def add(
        self,
        operator: str,
        inputs: Sequence[str],
        shape: Sequence[int] | None = None,
        *,
        dtype: np.dtype = F32,
        output: str = "",
        domain: str = "",
        version: int = VERSION,
        **attributes: Any,
    ) -> str:
        """Write a step with one output, of the shape of the first input unless given. Returns the output's name:
        `output`, or a new one."""
        name = output or self._new_name()
        type_ = TensorType(dtype, tuple(self.shape(inputs[0]) if shape is None else shape))
        self._types[name] = type_
        node = Node(operator, list(inputs), [name], attributes, domain, version, self.step.node.label)
        known = {n: self.constants[n] for n in inputs if n in self.constants}
        types = [self._types[n] if n else None for n in inputs]
        self.steps.append(Step(node, types, [type_], known))
        return name

    # What several operators are made of

    def reshape(self, x: str, shape: Sequence[int], output: str = "") -> str:
        inputs = [x, self.literal(shape, I64)]
        return self.add("Reshape", inputs, shape, dtype=self.dtype(x), output=output, allowzero=1)

    def transpose(self, x: str, order: Sequence[int], output: str = "") -> str:
        shape = [self.shape(x)[a] for a in order]
        return self.add("Transpose", [x], shape, dtype=self.dtype(x), output=output, perm=list(order))

    def dtype(self, name: str) -> np.dtype:
        dtype = self._types[name].dtype
        assert dtype is not None
        return dtype

    def binary(self, operator: str, a: str, b: str, output: str = "", dtype: np.dtype = F32) -> str:
        shape = np.broadcast_shapes(self.shape(a), self.shape(b))
        return self.add(operator, [a, b], shape, output=output, dtype=dtype)


Expand = Callable[[Expansion], None]
When = Callable[[Step], bool]
_EXPANSIONS: dict[tuple[str, str], list[tuple[Expand, When | None]]] = {}


def expand(*names: str, domain: str = "", when: When | None = None) -> Callable[[Expand], Expand]:
    """Register the decorated function for the operators `names` of `domain`, whatever their version: for all steps, or
    for those of which `when` says so. Of several functions the first takes a step."""

    def register(function: Expand) -> Expand:
        for name in names:
            _EXPANSIONS.setdefault((domain, name), []).append((function, when))
        return function

    return register


def expanded(step: Step, derivations: Derivations, depth: int = 0) -> list[Step]:
    """The steps that a step is made of; itself alone if it is not written out. Raises `Refused`."""
    FAMILIES.load(step.node.domain, step.node.op_type)
    known = _EXPANSIONS.get((step.node.domain, step.node.op_type), ())
    function = next((function for function, when in known if when is None or when(step)), None)
    if function is None:
        return [step]
    expansion = Expansion(step, derivations, depth)
    function(expansion)
    if expansion.steps == [step]:
        return [step]
    return [s for inner in expansion.steps for s in expanded(inner, derivations, depth + 1)]


FEW = 64
"""Elements that a shape, or a list of axes, may have."""


def check_part(step: Step) -> None:
    """Refuse a step whose operands do not go together: then those of the operator that it is a part of do not, and its
    definition says how."""
    constants = [
        step.constant(i) if t is not None and t.concrete and t.dtype == I64 and prod(t.dims) <= FEW else None
        for i, t in enumerate(step.inputs)
    ]
    try:
        requirements.check(step.node, step.inputs)
        found = infer_node(step.node, step.inputs, constants)
    except ShapeError as error:
        raise Refused(str(error)) from error
    for type_, wanted in zip(found, step.outputs, strict=True):
        if isinstance(type_, TensorType) and type_.concrete and wanted is not None and type_.dims != wanted.dims:
            raise Refused(f"{step.node.op_type} gives {type_}, not {wanted}")


def expanded_operators() -> list[tuple[str, str]]:
    """Domain and name of every operator that is written out, always or for some types."""
    FAMILIES.load_all()
    return sorted(_EXPANSIONS)


def expanded_segment(segment: Segment, derivations: Derivations) -> Segment:
    """The segment with all its steps written out."""
    steps = [s for step in segment.steps for s in expanded(step, derivations)]
    return replace(segment, steps=steps)
