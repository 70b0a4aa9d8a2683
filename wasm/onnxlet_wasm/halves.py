"""16-bit floats: the kernels compute in float32, so float16 and bfloat16 are widened where they enter a program and
rounded where they leave it.

In between no float16 is rounded, as in other runtimes that compute half precision on a CPU: results are at least as
close to the exact ones as those of rounding after every operator, and a sum above 65504 that later shrinks stays
finite. A bfloat16, which has three digits fewer but float32's range, is rounded after every operator, as in the
standard's cases; Softmax and Attention round it inside as well, and are left to NumPy.

Operators that jump (comparisons, floor, a cast to integers) are left to NumPy too, which sees rounded values: 0.99999
is 1 as a float16, and 0 as the integer below it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache

import numpy as np

from onnxlet.graph.ir import STRING, Node, TensorType
from onnxlet.model.dtypes import dtype_of, element_type_of
from onnxlet.model.tensors import Tensor
from onnxlet.ops.common import to_float32
from onnxlet.ops.precision import narrow
from onnxlet.providers.base import Segment, Step

from .derived import Derivations

F32 = np.dtype(np.float32)
_HALF_TYPES = (10, 16)  # TensorProto.DataType: FLOAT16, BFLOAT16
BFLOAT16 = dtype_of(16)
_IN_STEPS = frozenset({"Attention", "Softmax"})
"""Operators that round bfloat16 inside."""

_EXACT = frozenset(
    {
        "Abs", "Concat", "DepthToSpace", "Dropout", "Expand", "Flatten", "Gather", "GatherElements", "GatherND",
        "Identity", "Max", "Min", "Neg", "Relu", "Reshape", "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile",
        "Transpose", "Trilu", "Unsqueeze", "Where",
    }
)  # fmt: skip
"""Operators whose results are among their operands, but for the sign."""


_JUMPS = frozenset(
    {
        "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Floor", "Ceil", "Round", "Sign", "Mod", "ArgMax",
        "ArgMin", "TopK", "Hardmax",
    }
)  # fmt: skip


@cache
def is_half(dtype: np.dtype) -> bool:
    return dtype != STRING and element_type_of(dtype) in _HALF_TYPES


def rounded(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """A float32 array as a 16-bit type; what is too large becomes infinite."""
    with np.errstate(over="ignore"):
        return narrow(array, dtype)


def widened_type(type_: TensorType | None) -> TensorType | None:
    if type_ is None or type_.dtype is None or not is_half(type_.dtype):
        return type_
    return TensorType(F32, type_.shape)


def jumps(step: Step) -> bool:
    """Whether the step's result jumps where a 16-bit input changes by less than its last place, or is a 16-bit number
    that float32 would round first."""
    if step.node.op_type in ("Cast", "CastLike") and any(map(_is_half, step.outputs)):
        source = step.inputs[0]
        return (
            source is not None and source.dtype is not None and source.dtype.kind in "iuf" and not _fits(source.dtype)
        )
    if not any(t is not None and t.dtype is not None and is_half(t.dtype) for t in step.inputs):
        return False
    if step.node.op_type in _IN_STEPS and not step.node.domain and _is_bfloat16(step.inputs[0]):
        return True
    if step.node.op_type in ("Cast", "CastLike"):
        output = step.outputs[0]
        return output is None or output.dtype is None or output.dtype.kind != "f"
    return step.node.op_type in _JUMPS


class Halves:
    """Widens steps and segments."""

    def __init__(self, derivations: Derivations) -> None:
        self._derivations = derivations

    def _tensor(self, tensor: Tensor) -> Tensor:
        if not is_half(tensor.dtype):
            return tensor
        return self._derivations.get("wide", (tensor,), F32, tensor.shape, lambda: to_float32(tensor.numpy()))

    def _constants(self, constants: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        return {name: self._tensor(tensor) for name, tensor in constants.items()}

    def step(self, step: Step) -> Step:
        """The step with 16-bit floats widened; the same object if it has none."""
        if not _any_half(step):
            return step
        inputs, outputs = ([widened_type(t) for t in types] for types in (step.inputs, step.outputs))
        return Step(step.node, inputs, outputs, self._constants(step.constants))

    def segment(self, segment: Segment) -> Segment:
        """The segment with 16-bit floats widened; the same object if it has none."""
        if not any(map(_any_half, segment.steps)):
            return segment
        widen: Callable[[TensorType], TensorType] = widened_type  # type: ignore[assignment]
        return Segment(
            [part for step in segment.steps for part in _rounded(step, self.step(step))],
            segment.inputs,
            segment.outputs,
            {name: widen(type_) for name, type_ in segment.types.items()},
            self._constants(segment.constants),
            segment.resident,
        )


def _is_half(type_: TensorType | None) -> bool:
    return type_ is not None and type_.dtype is not None and is_half(type_.dtype)


def _fits(dtype: np.dtype) -> bool:
    """Whether float32 holds all numbers of a type of NumPy's."""
    return np.can_cast(dtype, F32, casting="safe")


def _is_bfloat16(type_: TensorType | None) -> bool:
    return type_ is not None and type_.dtype == BFLOAT16


def _rounded(step: Step, wide: Step) -> list[Step]:
    """The widened step, and steps that round those of its results that are bfloat16."""
    if step.node.op_type in _EXACT or not any(map(_is_bfloat16, step.outputs)):
        return [wide]
    outputs = list(wide.node.outputs)
    rounding = []
    for i, type_ in enumerate(step.outputs):
        if outputs[i] and _is_bfloat16(type_):
            name, outputs[i] = outputs[i], f"{outputs[i]}, not rounded"
            node = Node("Bfloat16", [outputs[i]], [name], {}, "ai.onnxlet", 1, step.node.label)
            rounding.append(Step(node, [wide.outputs[i]], [wide.outputs[i]], {}))
    return [replace(wide, node=replace(wide.node, outputs=outputs)), *rounding]


def _any_half(step: Step) -> bool:
    return any(t is not None and t.dtype is not None and is_half(t.dtype) for t in (*step.inputs, *step.outputs))
