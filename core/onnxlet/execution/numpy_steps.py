"""Running one node through its NumPy definition: the kernel of last resort, and the definition of right.

Everything that can be decided before running (which operator version, which attributes) is decided in `Call`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from types import GeneratorType
from typing import Any

import numpy as np

from ..errors import LimitError, ModelError, NodeError, OnnxletError, ProviderError
from ..graph.infer.registry import find_inference
from ..graph.ir import STRING, Graph, Node, TensorType
from ..limits import DEFAULT, Limits
from ..ops import registry

Body = Callable[..., Generator[Any, Any, list[Any]]]
"""A sub-graph as an operator sees it: called with the body's inputs, it is a generator that returns the outputs."""

IGNORED_ATTRIBUTES = frozenset({"consumed_inputs"})
"""In-place hints of opsets before 6: they never change a result."""


GROWING = frozenset(
    {
        "AffineGrid", "BlackmanWindow", "CenterCropPad", "Col2Im", "ConstantOfShape", "Expand", "HammingWindow",
        "HannWindow", "MaxUnpool", "MelWeightMatrix", "OneHot", "Pad", "Range", "Resize", "Tile", "Upsample",
    }
)  # fmt: skip
"""Operators whose result can be far larger than their inputs, as values of the inputs tell."""

SMALL = 4096
"""Elements of an input whose values may tell the shape of a result."""


def describe(value: Any) -> str:
    """Type and shape of a run-time value, for messages."""
    if value is None:
        return "nothing"
    if isinstance(value, np.ndarray):
        return str(TensorType(value.dtype, value.shape))
    if isinstance(value, (list, dict)):
        return f"{type(value).__name__} of {len(value)}"
    return type(value).__name__


_KIND_TYPES: dict[str, tuple[type, ...]] = {
    "int": (int,), "float": (float, int), "str": (str,), "np.ndarray": (np.ndarray,), "Body": (Graph,),
}  # fmt: skip


def _is_kind(value: Any, kind: str) -> bool:
    if kind.startswith("list["):
        # The elements of a list are all of one type.
        return isinstance(value, list) and (not value or isinstance(value[0], _KIND_TYPES[kind[5:-1]]))
    return isinstance(value, _KIND_TYPES[kind])


def describe_attribute(value: Any) -> str:
    """An attribute's value for messages: short ones whole."""
    if isinstance(value, (int, float, str, bytes)) and len(str(value)) <= 40:
        return repr(value)
    if isinstance(value, list):
        return f"a list of {len(value)}" + (f" {type(value[0]).__name__}" if value else "")
    return describe(value)


def check_signature(node: Node, operator: registry.Operator) -> None:
    """Raise `ModelError` if the node has inputs or attributes that its operator does not have, or lacks some."""
    where = f"node {node.label!r}: {node.operator} (opset {node.version})"
    present = {name for name in node.attributes if name not in IGNORED_ATTRIBUTES}
    if unknown := sorted(present - operator.attributes):
        has = ", ".join(sorted(operator.attributes)) or "none"
        raise ModelError(f"{where} has no attribute {', '.join(unknown)}; its attributes are: {has}")
    if lacking := sorted(operator.required_attributes - present):
        raise ModelError(f"{where} needs the attribute {', '.join(lacking)}")
    for name, kind in operator.kinds.items():
        if name in present and not _is_kind(node.attributes[name], kind):
            came = describe_attribute(node.attributes[name])
            raise ModelError(f"{where}: attribute {name} must be {registry.ATTRIBUTE_KINDS[kind]}, but is {came}")
    given = len(node.inputs)
    if operator.max_inputs is not None and given > operator.max_inputs:
        raise ModelError(f"{where} takes at most {operator.max_inputs} inputs, this node has {given}")
    if given < operator.required_inputs:
        raise ModelError(f"{where} needs {operator.required_inputs} inputs, this node has {given}")


class Call:
    """A node bound to its operator's function and attributes, ready to be called with values."""

    def __init__(
        self,
        node: Node,
        output_types: Sequence[np.dtype | None],
        body: Callable[[Graph], Body],
        limits: Limits = DEFAULT,
    ):
        operator = registry.find(node.op_type, node.domain, node.version)
        if operator is None:
            raise ModelError(f"node {node.label!r}: no operator {node.operator} at opset {node.version}")
        check_signature(node, operator)
        self.node = node
        self.limits = limits
        self.function = operator.function
        self.n_outputs = len(node.outputs)
        while self.n_outputs and not node.outputs[self.n_outputs - 1]:
            self.n_outputs -= 1
        self.grows = node.domain == "" and node.op_type in GROWING
        self.keywords: dict[str, Any] = {}
        for name, value in node.attributes.items():
            if name in IGNORED_ATTRIBUTES:
                continue
            if isinstance(value, Graph):
                value = body(value)
            elif isinstance(value, list) and value and isinstance(value[0], Graph):
                value = [body(graph) for graph in value]
            self.keywords[name] = value
        injected = {
            "n_outputs": self.n_outputs,
            "output_types": list(output_types),
            "body_types": [graph.types.get(name) for graph in node.subgraphs() for name in graph.outputs],
            "graphs": {name: value for name, value in node.attributes.items() if isinstance(value, Graph)},
            "limits": limits,
        }
        self.keywords.update((name, injected[name]) for name in operator.injected)

    def __call__(self, values: Sequence[Any]) -> Generator[Any, Any, list[Any]]:
        """Compute the node's outputs, as a list as long as the node's outputs. A generator, because bodies may wait."""
        try:
            if self.grows:
                self.check_growth(values)
            with np.errstate(all="ignore"):
                result = self.function(*values, **self.keywords)
            if isinstance(result, GeneratorType):
                result = yield from result
        except OnnxletError as error:
            if isinstance(error, (NodeError, ProviderError)):  # of a node of its body, or of a device
                raise
            if isinstance(error, LimitError):
                raise LimitError(str(self.error(values, error))) from error
            raise self.error(values, error) from error
        except MemoryError as error:
            raise LimitError(str(self.error(values, error))) from error
        except Exception as error:
            raise self.error(values, error) from error
        # Single results come bare; a list is a value (a sequence) unless the node has several outputs.
        outputs = list(result) if isinstance(result, tuple) else [result]
        if len(outputs) < self.n_outputs and isinstance(result, list) and len(result) >= self.n_outputs:
            outputs = result
        if len(outputs) < self.n_outputs:
            raise self.error(values, ValueError(f"it gave {len(outputs)} outputs where {self.n_outputs} are used"))
        outputs = [np.asarray(v) if isinstance(v, np.generic) else v for v in outputs]
        return outputs[: len(self.node.outputs)] + [None] * (len(self.node.outputs) - len(outputs))

    def check_growth(self, values: Sequence[Any]) -> None:
        """Raise `LimitError` where the inputs' values tell that an output would be beyond the limit."""
        inference = find_inference(self.node)
        if inference is None:
            return
        types = [TensorType(v.dtype, v.shape) if isinstance(v, np.ndarray) else None for v in values]
        known = [v if isinstance(v, np.ndarray) and v.size <= SMALL and v.dtype != STRING else None for v in values]
        for name, type_ in zip(self.node.outputs, inference(self.node, types, known), strict=False):
            if isinstance(type_, TensorType) and type_.concrete and type_.dtype is not None:
                self.limits.check_tensor(type_.dims, type_.dtype, f"output {name!r}")

    def error(self, values: Sequence[Any], cause: BaseException) -> NodeError:
        node = self.node
        inputs = ", ".join(f"{name}: {describe(v)}" for name, v in zip(node.inputs, values, strict=False) if name)
        reason = str(cause) or type(cause).__name__
        return NodeError(
            f"node {node.label!r} failed: {node.operator} (opset {node.version}, NumPy): {reason}. Inputs: {inputs}"
        )


def fold(node: Node, values: Mapping[str, Any]) -> list[Any]:
    """The outputs of a node without sub-graphs whose inputs are all known."""

    def no_body(_: Graph) -> Body:
        raise AssertionError("nodes with sub-graphs are not folded")

    call = Call(node, [None] * len(node.outputs), no_body)
    generator = call([values[name] if name else None for name in node.inputs])
    try:
        next(generator)
    except StopIteration as stop:
        return stop.value
    raise AssertionError(f"{node.operator} waited")
