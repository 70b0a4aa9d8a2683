"""Questions that many lowerings ask of a step: element types, axes, windows, activations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from onnxlet.providers.base import Step

from .registry import Refused

F32 = np.dtype(np.float32)
F64 = np.dtype(np.float64)
I32 = np.dtype(np.int32)
I64 = np.dtype(np.int64)
U8 = np.dtype(np.uint8)
I8 = np.dtype(np.int8)
BOOL = np.dtype(np.bool_)

TYPE_CODES = {
    np.dtype(name): code
    for name, code in {
        "float32": 1, "uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7, "bool": 9, "float16": 10,
        "float64": 11, "uint32": 12, "uint64": 13,
    }.items()
}  # fmt: skip
"""The kernels' numbers of element types: those of onnx.TensorProto.DataType."""


def present(step: Step, index: int) -> bool:
    """Whether the node has input `index`."""
    return index < len(step.node.inputs) and bool(step.node.inputs[index])


def dtype_of(step: Step, index: int) -> np.dtype:
    type_ = step.inputs[index]
    if type_ is None or type_.dtype is None:
        raise Refused(f"the type of input {index} is not known")
    return type_.dtype


def shape_of(step: Step, index: int) -> tuple[int, ...]:
    type_ = step.inputs[index]
    if type_ is None or not type_.concrete:
        raise Refused(f"the shape of input {index} is not known")
    return type_.dims


def output_dtype(step: Step, index: int = 0) -> np.dtype:
    type_ = step.outputs[index]
    if type_ is None or type_.dtype is None:
        raise Refused(f"the type of output {index} is not known")
    return type_.dtype


def output_shape(step: Step, index: int = 0) -> tuple[int, ...]:
    type_ = step.outputs[index]
    if type_ is None or not type_.concrete:
        raise Refused(f"the shape of output {index} is not known")
    return type_.dims


def need_types(step: Step, allowed: Sequence[np.dtype], *indices: int) -> None:
    """Refuse unless all present inputs among `indices` (all inputs, if none are given) have one of the types."""
    for i in indices or range(len(step.node.inputs)):
        if present(step, i) and dtype_of(step, i) not in allowed:
            name = "string" if dtype_of(step, i) == np.dtype(object) else str(dtype_of(step, i))
            raise Refused(f"{name} has no kernel here")


def need_float32(step: Step, *indices: int) -> None:
    """Refuse unless all present inputs among `indices` (all inputs, if none are given) are float32."""
    need_types(step, (F32,), *indices)


def need_constant(step: Step, index: int, what: str) -> np.ndarray:
    """The value of an input that must be known at plan time. Raises `Refused`."""
    value = step.constant(index)
    if value is None:
        raise Refused(f"its {what} must be constant")
    return value


def need_single_output(step: Step) -> None:
    if any(step.node.outputs[1:]):
        raise Refused("its further outputs have no kernel")


def integers(step: Step, name: str, index: int) -> list[int] | None:
    """Integers that an operator takes as attribute `name` in some versions and as input `index` in others.

    `None` where they are given in neither way. Raises `Refused` where they depend on data.
    """
    value = step.attribute(name)
    if value is None and present(step, index):
        value = need_constant(step, index, name)
    if value is None:
        return None
    return [int(v) for v in np.asarray(value).reshape(-1)]


def normal_axis(axis: int, rank: int) -> int:
    """The axis counted from the front. Raises `Refused` where it is out of range (NumPy names the error)."""
    if not -rank <= axis < rank:
        raise Refused(f"axis {axis} is out of range")
    return axis % rank if rank else 0


def axes_of(step: Step, rank: int, index: int = 1, name: str = "axes") -> list[int] | None:
    """The sorted axes that an operator takes as attribute or input; `None` where it names none."""
    axes = integers(step, name, index)
    return None if axes is None else sorted({normal_axis(a, rank) for a in axes})


WORTH_A_THREAD = 100_000
"""Multiply-adds, about 4 µs."""
MOVED = 3
"""Multiply-adds that an element's way from memory is worth."""


def grain(units: int, work: int) -> float:
    """How many units are worth a thread, where all units together are `work` multiply-adds; less than one where units
    are large."""
    return WORTH_A_THREAD * units / max(work, 1)


@dataclass(frozen=True, slots=True)
class Window:
    """How a convolution or a pooling slides over its spatial axes."""

    input: tuple[int, ...]
    output: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begin: tuple[int, ...]
    end: tuple[int, ...]

    def in_two_dimensions(self) -> Window:
        """A one-dimensional window as a two-dimensional one of height 1; others as they are."""
        if len(self.input) > 1:
            return self
        return Window((1, *self.input), (1, *self.output), (1, *self.kernel), (1, *self.strides), (1, *self.dilations),
                      (0, *self.begin), (0, *self.end))  # fmt: skip

    def layers(self) -> dict[str, int]:
        """The fields of a kernel that speak of the depth of a two- or three-dimensional window."""
        if len(self.input) == 2:
            return {"d": 1, "od": 1, "kd": 1, "stride_d": 1, "pad_front": 0, "dilation_d": 1}
        return {
            "d": self.input[0], "od": self.output[0], "kd": self.kernel[0], "stride_d": self.strides[0],
            "pad_front": self.begin[0], "dilation_d": self.dilations[0],
        }  # fmt: skip


def window_of(step: Step, spatial: Sequence[int], kernel: Sequence[int]) -> Window:
    """The window of a Conv or pooling node on `spatial`, read from its attributes, with `auto_pad` resolved.

    The spatial sizes of the output are those that type inference found.
    """
    n = len(spatial)
    strides = tuple(step.attribute("strides") or [1] * n)
    dilations = tuple(step.attribute("dilations") or [1] * n)
    output = output_shape(step)[2:]
    auto = text(step.attribute("auto_pad", "NOTSET"))
    if auto in ("NOTSET", ""):
        pads = list(step.attribute("pads") or [0] * (2 * n))
        begin, end = pads[:n], pads[n:]
    elif auto == "VALID":
        begin, end = [0] * n, [0] * n
    else:
        begin, end = [], []
        for size, k, s, d in zip(spatial, kernel, strides, dilations, strict=True):
            total = max(0, (-(-size // s) - 1) * s + (k - 1) * d + 1 - size)
            small, large = total // 2, total - total // 2
            begin.append(small if auto == "SAME_UPPER" else large)
            end.append(large if auto == "SAME_UPPER" else small)
    if min([*begin, *end], default=0) < 0:
        raise Refused("negative padding has no kernel")
    return Window(tuple(spatial), tuple(output), tuple(kernel), strides, dilations, tuple(begin), tuple(end))


def text(value: str | bytes) -> str:
    """A string attribute as `str`."""
    return value.decode() if isinstance(value, bytes) else value


@dataclass(frozen=True, slots=True)
class Activation:
    """What a kernel applies to its results: a code of the kernels' epilogue, and its two parameters."""

    code: int = 0
    low: float = -math.inf
    high: float = math.inf


NO_ACTIVATION = Activation()

_SIMPLE = {"": 0, "Silu": 2, "Swish": 2, "Gelu": 3, "FastGelu": 8, "Sigmoid": 4, "Tanh": 5, "HardSwish": 6}


def activation_of(step: Step) -> Activation:
    """The `activation` attribute of a fused node, with its `activation_params`; FusedGemm has an attribute for each."""
    name = text(step.attribute("activation", "") or "")
    params = [float(p) for p in step.attribute("activation_params") or []]
    single = [step.attribute(f"activation_{letter}") for letter in ("alpha", "beta")]
    if single != [None, None] and name in ("LeakyRelu", "Clip"):
        from onnxlet.ops.activation_table import parameter_defaults

        defaults = parameter_defaults(name)
        params = [d if v is None else float(v) for v, d in zip(single, defaults, strict=False)]
    if name == "Relu":
        return Activation(1, 0.0, math.inf)
    if name == "Clip":
        low, high = [*params, *(-math.inf, math.inf)[len(params) :]][:2]
        if low != low or high != high:
            raise Refused("a bound that is NaN has no kernel")
        return Activation(1, low, high)
    if name == "LeakyRelu":
        return Activation(7, params[0] if params else 0.01)
    if name in ("Gelu", "GeluTanh") and (name == "GeluTanh" or params == [1.0]):
        return Activation(8)
    if name not in _SIMPLE or params:
        raise Refused(f"activation {name} {params or ''} is not fused")
    return Activation(_SIMPLE[name])
