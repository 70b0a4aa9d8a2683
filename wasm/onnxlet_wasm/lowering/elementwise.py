"""Operators that work element by element, with broadcasting. They keep the layout in which their operands lie."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxlet.providers.base import Step

from ..compiler import Compiler, Place
from ..engine import f32
from ..layouts import LAST, PLAIN, axis_order, broadcast_strides, size_of, strides_of
from .common import (
    BOOL,
    F32,
    F64,
    I32,
    I64,
    NO_ACTIVATION,
    TYPE_CODES,
    U8,
    Activation,
    dtype_of,
    need_float32,
    need_types,
    output_dtype,
    output_shape,
    present,
    shape_of,
    text,
)
from .copies import copy_flat
from .registry import Emit, Refused, lower

GRAIN = 4096
"""Elements that are worth a thread."""

# Function codes of the kernel `unary` (unary.c), and the attributes that are its parameters, with their defaults.
_CODES = {
    name: code
    for code, name in enumerate(
        [
            "Abs",
            "Neg",
            "Exp",
            "Log",
            "Sqrt",
            "Rsqrt",
            "Reciprocal",
            "Sin",
            "Cos",
            "Tanh",
            "Sigmoid",
            "Erf",
            "Gelu",
            "GeluTanh",
            "Silu",
            "Relu",
            "LeakyRelu",
            "Elu",
            "Selu",
            "Celu",
            "Softplus",
            "Softsign",
            "HardSigmoid",
            "HardSwish",
            "Mish",
            "Floor",
            "Ceil",
            "Round",
            "Sign",
            "Clip",
            "ThresholdedRelu",
            "Swish",
            "Affine",
            "Square",
            "Expm1",
            "Bfloat16",
        ]
    )
}
_PARAMETERS: dict[str, list[tuple[str, float]]] = {
    "LeakyRelu": [("alpha", 0.01)],
    "Elu": [("alpha", 1.0)],
    "Celu": [("alpha", 1.0)],
    "Selu": [("alpha", 1.67326319217681884765625), ("gamma", 1.05070102214813232421875)],
    "HardSigmoid": [("alpha", 0.2), ("beta", 0.5)],
    "ThresholdedRelu": [("alpha", 1.0)],
    "Swish": [("alpha", 1.0)],
}

# Function codes of the kernel `binary` (binary.c).
_BINARY = {
    name: code
    for code, name in enumerate(
        [
            "Add",
            "Sub",
            "Mul",
            "Div",
            "Pow",
            "Min",
            "Max",
            "Mod",
            "Fmod",
            "PRelu",
            "Equal",
            "Less",
            "LessOrEqual",
            "Greater",
            "GreaterOrEqual",
            "And",
            "Or",
            "Xor",
            "ShiftLeft",
            "ShiftRight",
            "ShiftRightUnsigned",
        ]
    )
}
NUMBERS = (F32, F64, I32, I64)


def unary_call(
    c: Compiler, function: str, x: Place, y: Place, count: int, alpha: float = 0.0, beta: float = 0.0
) -> None:
    """y = function(x), float32; y may be x."""
    c.emit("unary", units=count, grain=GRAIN, op=_CODES[function], x=x, y=y, alpha=f32(alpha), beta=f32(beta))


@lower(
    "Abs", "Neg", "Exp", "Log", "Sqrt", "Reciprocal", "Sin", "Cos", "Tanh", "Sigmoid", "Erf", "Relu", "LeakyRelu",
    "Elu", "Selu", "Celu", "Softplus", "Softsign", "HardSigmoid", "HardSwish", "Mish", "Floor", "Ceil", "Round", "Sign",
    "ThresholdedRelu", "Swish",
)  # fmt: skip
def unary(step: Step) -> Emit:
    operator = step.node.op_type
    if operator == "Neg" and dtype_of(step, 0) in (I32, I64):
        return _negate_integers(step)
    parameters = [float(step.attribute(name, default)) for name, default in _PARAMETERS.get(operator, [])]
    if not np.isfinite(parameters).all() or (operator == "Celu" and parameters[0] <= 0):
        raise Refused(f"parameters {parameters} have no kernel")
    return _unary(step, operator, *parameters)


def _unary(step: Step, function: str, alpha: float = 0.0, beta: float = 0.0) -> Emit:
    need_float32(step, 0)
    count = size_of(shape_of(step, 0))

    def emit(c: Compiler) -> None:
        layout = kept_layout(c, 0)
        x, y = c.input(0, layout), c.output(0, layout, over=[0])
        unary_call(c, function, x, y, count, alpha, beta)

    return emit


def kept_layout(c: Compiler, index: int) -> str:
    """The layout of a value that may stay as it is."""
    return PLAIN if c.tensor(index) is not None else c.layouts(index)[0]


@lower("Bfloat16", domain="ai.onnxlet")
def bfloat16(step: Step) -> Emit:
    """A step that `halves` adds: float32 rounded to what bfloat16 can hold."""
    return _unary(step, "Bfloat16")


@lower("Gelu")
@lower("Gelu", domain="com.microsoft")
def gelu(step: Step) -> Emit:
    return _unary(step, "GeluTanh" if text(step.attribute("approximate", "none")) == "tanh" else "Gelu")


@lower("QuickGelu", domain="com.microsoft")
def quick_gelu(step: Step) -> Emit:
    return _unary(step, "Swish", float(step.attribute("alpha", 1.702)))


@lower("BiasGelu", "FastGelu", domain="com.microsoft")
def bias_gelu(step: Step) -> Emit:
    if not present(step, 1):
        return _unary(step, "GeluTanh" if step.node.op_type == "FastGelu" else "Gelu")
    need_float32(step)
    activation = Activation(8 if step.node.op_type == "FastGelu" else 3)
    return lambda c: binary_step(c, "Add", activation)


def _negate_integers(step: Step) -> Emit:
    dtype, count = dtype_of(step, 0), size_of(shape_of(step, 0))

    def emit(c: Compiler) -> None:
        layout = kept_layout(c, 0)
        x, y = c.input(0, layout), c.output(0, layout, over=[0])
        _binary_call(c, "Sub", dtype, c.words([0]), [0], x, [1], y, [count])

    return emit


@lower("Cast", "CastLike")
def cast(step: Step) -> Emit:
    source, target = dtype_of(step, 0), output_dtype(step)
    if source not in TYPE_CODES or target not in TYPE_CODES:
        raise Refused(f"Cast from {source} to {target} has no kernel")
    if "uint64" in (source.name, target.name):
        raise Refused("Cast of uint64 has no kernel")
    count = size_of(output_shape(step))

    def emit(c: Compiler) -> None:
        layout = kept_layout(c, 0)
        if source == target:
            c.share(c.input(0, layout), 0, layout)
            return
        x, y = c.input(0, layout), c.output(0, layout)
        c.emit("cast", units=count, grain=GRAIN, **{"from": TYPE_CODES[source], "to": TYPE_CODES[target]}, x=x, y=y)

    return emit


@lower("Not")
def logical_not(step: Step) -> Emit:
    need_types(step, (BOOL,))
    count = size_of(shape_of(step, 0))

    def emit(c: Compiler) -> None:
        layout = kept_layout(c, 0)
        x, y = c.input(0, layout), c.output(0, layout, over=[0])
        c.emit("logical_not", units=count, grain=GRAIN, x=x, y=y)

    return emit


@lower("IsNaN", "IsInf")
def classify(step: Step) -> Emit:
    need_float32(step)
    count = size_of(shape_of(step, 0))
    signs = (step.attribute("detect_negative", 1), step.attribute("detect_positive", 1))
    if step.node.op_type == "IsInf" and not any(signs):
        raise Refused("IsInf of no sign has no kernel")
    function = 0 if step.node.op_type == "IsNaN" else {(1, 1): 1, (0, 1): 2, (1, 0): 3}[signs]

    def emit(c: Compiler) -> None:
        layout = kept_layout(c, 0)
        c.emit("classify", units=count, grain=GRAIN, op=function, x=c.input(0, layout), y=c.output(0, layout))

    return emit


def common_layout(c: Compiler, target: Sequence[int], indices: Sequence[int]) -> str:
    """The layout for an elementwise result: channels last where an operand of the whole shape lies only so."""
    if len(target) < 3:
        return PLAIN
    kinds = [
        c.layouts(i)
        for i in indices
        if c.tensor(i) is None and (t := c.step.inputs[i]) is not None and t.shape == target
    ]
    if any(PLAIN not in kind for kind in kinds) or (kinds and all(LAST in kind for kind in kinds)):
        return LAST
    return PLAIN


def operand(c: Compiler, index: int, target: Sequence[int], layout: str) -> tuple[Place, list[int]]:
    """The place of an operand, and its steps along the axes of `target` in the order of `layout`."""
    shape = shape_of(c.step, index)
    own = layout if shape == target else PLAIN if c.tensor(index) is not None else c.layouts(index)[0]
    strides = broadcast_strides(shape, target, own)
    return c.input(index, own), [strides[axis] for axis in axis_order(len(target), layout)]


def need_rank(step: Step) -> None:
    if len(output_shape(step)) > 8:
        raise Refused("tensors of more than 8 dimensions have no kernel")


def _binary_call(
    c: Compiler,
    function: str,
    dtype: np.dtype,
    a: Place,
    a_strides: Sequence[int],
    b: Place,
    b_strides: Sequence[int],
    y: Place,
    shape: Sequence[int],
    activation: Activation = NO_ACTIVATION,
) -> None:
    c.emit(
        "binary", units=size_of(shape), grain=GRAIN, op=_BINARY[function], type=TYPE_CODES[dtype], a=a, b=b, y=y,
        rank=len(shape), shape=c.words(shape), a_strides=c.words(a_strides), b_strides=c.words(b_strides),
        activation=activation.code, low=f32(activation.low), high=f32(activation.high),
    )  # fmt: skip


def binary_step(c: Compiler, function: str, activation: Activation = NO_ACTIVATION) -> None:
    """Output 0 = activation(function(input 0, input 1)), broadcast."""
    target = output_shape(c.step)
    layout = common_layout(c, target, (0, 1))
    whole = [i for i in (0, 1) if shape_of(c.step, i) == target]
    (a, a_strides), (b, b_strides) = (operand(c, i, target, layout) for i in (0, 1))
    y = c.output(0, layout, over=whole)
    shape = [target[axis] for axis in axis_order(len(target), layout)]
    if len(whole) == 2:
        shape, a_strides, b_strides = [size_of(target)], [1], [1]
    _binary_call(c, function, dtype_of(c.step, 0), a, a_strides, b, b_strides, y, shape, activation)


def add_call(c: Compiler, a: Place, b: Place, y: Place, count: int, activation: Activation = NO_ACTIVATION) -> None:
    """y = activation(a + b), float32, all contiguous; y may be one of them."""
    _binary_call(c, "Add", F32, a, [1], b, [1], y, [count], activation)


def _binary(step: Step, function: str, allowed: Sequence[np.dtype]) -> Emit:
    if step.attribute("broadcast") or step.attribute("axis") is not None:
        raise Refused("broadcasting along an axis (opset 6) has no kernel")
    need_types(step, allowed)
    if dtype_of(step, 0) != dtype_of(step, 1):
        raise Refused("operands of different types have no kernel")
    need_rank(step)
    return lambda c: binary_step(c, function)


@lower("Add", "Sub", "Mul", "Div")
def arithmetic(step: Step) -> Emit:
    return _binary(step, step.node.op_type, (*NUMBERS, U8))


@lower("PRelu")
def prelu(step: Step) -> Emit:
    if step.node.version < 7 and size_of(shape_of(step, 1)) > 1:
        raise Refused("slopes that go with the channels (opset 6) have no kernel")
    return _binary(step, "PRelu", (F32, F64))


@lower("Mod")
def modulo(step: Step) -> Emit:
    return _binary(step, "Fmod" if step.attribute("fmod", 0) else "Mod", (I32, I64, F64))


@lower("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")
def compare(step: Step) -> Emit:
    return _binary(step, step.node.op_type, (*NUMBERS, U8, BOOL))


@lower("And", "Or", "Xor")
def logical(step: Step) -> Emit:
    return _binary(step, step.node.op_type, (BOOL,))


@lower("BitwiseAnd", "BitwiseOr", "BitwiseXor")
def bitwise(step: Step) -> Emit:
    return _binary(step, step.node.op_type.removeprefix("Bitwise"), (I32, I64))


@lower("BitShift")
def shift(step: Step) -> Emit:
    """With `unsigned`, which no model has, the operands are what they are as unsigned numbers."""
    left = text(step.attribute("direction", "")) == "LEFT"
    unsigned = step.attribute("unsigned", 0)
    return _binary(step, "ShiftLeft" if left else "ShiftRightUnsigned" if unsigned else "ShiftRight", (I32, I64))


@lower("Pow")
def power(step: Step) -> Emit:
    exponent = step.constant(1)
    if dtype_of(step, 0) == F32 and exponent is not None:
        if exponent.size == 1 and float(exponent.reshape(())) == 2.0 and shape_of(step, 0) == output_shape(step):
            return _unary(step, "Square")
        if dtype_of(step, 1) != F32:
            return _power_of_constant(step, exponent)
    return _binary(step, "Pow", (F32, I32, I64))


def _power_of_constant(step: Step, exponent: np.ndarray) -> Emit:
    """A float32 base with an exponent of another type, which is converted now."""
    need_types(step, (F32,), 0)
    need_rank(step)
    target = output_shape(step)
    if shape_of(step, 0) != target:
        raise Refused("a broadcast base with an exponent of another type has no kernel")

    def emit(c: Compiler) -> None:
        layout = common_layout(c, target, (0,))
        a, a_strides = operand(c, 0, target, layout)
        strides = broadcast_strides(exponent.shape, target)
        b = c.computed("float32", lambda: exponent.astype(F32), c.step.node.inputs[1])
        order = axis_order(len(target), layout)
        y = c.output(0, layout, over=[0])
        _binary_call(c, "Pow", F32, a, a_strides, b, [strides[i] for i in order], y, [target[i] for i in order])

    return emit


@lower("Max", "Min", "Sum", "Mean")
def variadic(step: Step) -> Emit:
    """Two operands at a time, from the left."""
    function = {"Max": "Max", "Min": "Min"}.get(step.node.op_type, "Add")
    need_types(step, (F32,) if step.node.op_type in ("Sum", "Mean") else NUMBERS)
    need_rank(step)
    target = output_shape(step)
    dtype, indices = dtype_of(step, 0), range(len(step.node.inputs))

    def emit(c: Compiler) -> None:
        layout = common_layout(c, target, indices)
        order = axis_order(len(target), layout)
        shape = [target[axis] for axis in order]
        contiguous = [strides_of(target, layout)[axis] for axis in order]
        places = [operand(c, i, target, layout) for i in indices]
        y = c.output(0, layout)
        place, strides = places[0]
        if len(places) == 1:
            if shape_of(step, 0) != target:
                raise AssertionError(target)
            copy_flat(c, place, y, size_of(target), dtype.itemsize)
        for other, other_strides in places[1:]:
            _binary_call(c, function, dtype, place, strides, other, other_strides, y, shape)
            place, strides = y, contiguous
        if step.node.op_type == "Mean":
            unary_call(c, "Affine", y, y, size_of(target), 1.0 / len(places))

    return emit


@lower("Clip")
def clip(step: Step) -> Emit:
    """Bounds are attributes in early versions, else optional inputs."""
    need_types(step, NUMBERS)
    if dtype_of(step, 0) == F32:
        bounds = [_bound(step, 1, "min", -np.inf), _bound(step, 2, "max", np.inf)]
        if any(bound != bound for bound in bounds):
            raise Refused("a bound that is NaN has no kernel")
        if None not in bounds:
            return _unary(step, "Clip", *bounds)  # type: ignore[arg-type]
    dtype, target = dtype_of(step, 0), output_shape(step)

    def emit(c: Compiler) -> None:
        layout = kept_layout(c, 0)
        place = c.input(0, layout)
        y = c.output(0, layout, over=[0])
        for index, function in ((1, "Max"), (2, "Min")):
            if present(step, index):
                _binary_call(c, function, dtype, place, [1], c.input(index), [0], y, [size_of(target)])
                place = y
        if place is not y:
            copy_flat(c, place, y, size_of(target), dtype.itemsize)

    return emit


def _bound(step: Step, index: int, name: str, default: float) -> float | None:
    """A bound of Clip; `None` where it depends on data."""
    if not present(step, index):
        return float(step.attribute(name, default))
    value = step.constant(index)
    return None if value is None else float(value.reshape(()))


def scale(c: Compiler, x: Place, count: int, factor: float) -> Place:
    """`x` times `factor`, in memory of its own."""
    y = c.temporary(4 * count)
    unary_call(c, "Affine", x, y, count, factor)
    return y
