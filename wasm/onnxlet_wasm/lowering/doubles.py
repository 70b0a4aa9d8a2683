"""float64, and functions that models seldom ask for: simple loops, so that no large tensor has to leave the program."""

from __future__ import annotations

from math import prod

import numpy as np

from onnxlet.providers.base import Step

from ..compiler import Compiler
from ..layouts import broadcast_strides, size_of
from .common import (
    BOOL,
    F32,
    F64,
    I32,
    I64,
    TYPE_CODES,
    dtype_of,
    grain,
    need_types,
    normal_axis,
    output_shape,
    present,
    shape_of,
    text,
)
from .elementwise import GRAIN, kept_layout
from .expansion import Expansion, expand
from .registry import Emit, Refused, lower

OWN = "ai.onnxlet"

_ORDER = (
    *("Abs", "Neg", "Exp", "Log", "Sqrt", "Reciprocal", "Tanh", "Sigmoid", "Softplus", "Erf", "Floor", "Ceil", "Round"),
    *("Sign", "Sinh", "Cosh", "Asin", "Acos", "Atan", "Asinh", "Acosh", "Atanh", "Tan"),
)
_FUNCTIONS = {name: code for code, name in enumerate(_ORDER)}
"""Function codes of the kernel `unary_double` (rare.c)."""

_RARE = ("Sinh", "Cosh", "Asin", "Acos", "Atan", "Asinh", "Acosh", "Atanh", "Tan")


@lower(*_RARE)
@lower("Double", domain=OWN)
def unary_double(step: Step) -> Emit:
    """`Double` has the operator's name as its attribute `function`."""
    function = step.attribute("function", step.node.op_type)
    need_types(step, (F32,) if function == "Tan" else (F32, F64))
    dtype, count = dtype_of(step, 0), size_of(shape_of(step, 0))

    def emit(c: Compiler) -> None:
        layout = kept_layout(c, 0)
        x, y = c.input(0, layout), c.output(0, layout, over=[0])
        c.emit("unary_double", units=count, grain=GRAIN // 4, op=_FUNCTIONS[function], type=TYPE_CODES[dtype], x=x, y=y)

    return emit


def _is_double(step: Step) -> bool:
    return dtype_of(step, 0) == F64


def _double(e: Expansion, function: str, x: str, output: str = "") -> str:
    return e.add("Double", [x], dtype=F64, output=output, domain=OWN, version=1, function=function)


def _binary(e: Expansion, operator: str, a: str, b: str | float, output: str = "") -> str:
    return e.binary(operator, a, b if isinstance(b, str) else e.literal(b, F64), output, F64)


@expand(*(name for name in _FUNCTIONS if name not in _RARE), when=_is_double)
def function_of_doubles(e: Expansion) -> None:
    _double(e, e.step.node.op_type, e.input(0), e.output())


@expand("Relu", "LeakyRelu", "Clip", "HardSigmoid", "Elu", "Gelu", "Swish", "Softsign", when=_is_double)
def activation_of_doubles(e: Expansion) -> None:
    x, step, y = e.input(0), e.step, e.output()
    match step.node.op_type:
        case "Relu":
            _binary(e, "Max", x, 0.0, y)
        case "LeakyRelu":
            _binary(e, "PRelu", x, float(step.attribute("alpha", 0.01)), y)
        case "Clip":
            bounds = [
                e.input(i) if present(step, i) else float(step.attribute(name, value))
                for i, name, value in ((1, "min", -np.inf), (2, "max", np.inf))
            ]
            _binary(e, "Min", _binary(e, "Max", x, bounds[0]), bounds[1], y)
        case "HardSigmoid":
            line = _binary(e, "Mul", x, float(step.attribute("alpha", 0.2)))
            line = _binary(e, "Add", line, float(step.attribute("beta", 0.5)))
            _binary(e, "Min", _binary(e, "Max", line, 0.0), 1.0, y)
        case "Elu":
            below = _binary(e, "Sub", _double(e, "Exp", _binary(e, "Min", x, 0.0)), 1.0)
            below = _binary(e, "Mul", below, float(step.attribute("alpha", 1.0)))
            negative = e.binary("Less", x, e.literal(0, F64), dtype=BOOL)
            e.add("Where", [negative, below, x], e.shape(x), dtype=F64, output=y)
        case "Swish":
            gate = _double(e, "Sigmoid", _binary(e, "Mul", x, float(step.attribute("alpha", 1.0))))
            _binary(e, "Mul", x, gate, y)
        case "Softsign":
            _binary(e, "Div", x, _binary(e, "Add", _double(e, "Abs", x), 1.0), y)
        case _:
            half = _binary(e, "Mul", x, 0.5)
            if text(step.attribute("approximate", "none")) == "tanh":
                cube = _binary(e, "Mul", _binary(e, "Mul", x, x), x)
                inner = _binary(e, "Add", x, _binary(e, "Mul", cube, 0.044715))
                curve = _double(e, "Tanh", _binary(e, "Mul", inner, (2 / np.pi) ** 0.5))
            else:
                curve = _double(e, "Erf", _binary(e, "Mul", x, 0.5**0.5))
            _binary(e, "Mul", half, _binary(e, "Add", curve, 1.0), y)


@expand("Pow", when=_is_double)
def power_of_doubles(e: Expansion) -> None:
    """The exponents that models use."""
    x, y, exponent = e.input(0), e.output(), e.step.constant(1)
    if exponent is None or exponent.size != 1 or np.broadcast_shapes(e.shape(x), exponent.shape) != e.shape(x):
        raise Refused("powers of float64 have no kernel")
    value = float(exponent.reshape(()))
    if value == 2:
        _binary(e, "Mul", x, x, y)
    elif value == 3:
        _binary(e, "Mul", _binary(e, "Mul", x, x), x, y)
    elif value == 1:
        e.add("Identity", [x], dtype=F64, output=y)
    elif value == -1:
        _double(e, "Reciprocal", x, y)
    elif value == 0.5:  # of -0 it is 0, of -inf inf
        lowest = e.binary("Equal", x, e.literal(-np.inf, F64), dtype=BOOL)
        root = _double(e, "Sqrt", _binary(e, "Add", x, 0.0))
        e.add("Where", [lowest, e.literal(np.inf, F64), root], e.shape(x), dtype=F64, output=y)
    else:
        raise Refused(f"float64 to the power of {value} has no kernel")


@expand("Sum", "Mean", when=_is_double)
def sum_of_doubles(e: Expansion) -> None:
    names, mean = e.step.node.inputs, e.step.node.op_type == "Mean"
    total = names[0]
    for name in names[1:]:
        total = _binary(e, "Add", total, name)
    _binary(e, "Div" if mean else "Add", total, float(len(names)) if mean else -0.0, e.output())


@expand("IsNaN", "IsInf", when=_is_double)
def classify_doubles(e: Expansion) -> None:
    x, step = e.input(0), e.step
    if step.node.op_type == "IsNaN":
        same = e.binary("Equal", x, x, dtype=BOOL)
        e.add("Not", [same], dtype=BOOL, output=e.output())
        return
    signs = [s for s, name in ((1, "detect_positive"), (-1, "detect_negative")) if step.attribute(name, 1)]
    if not signs:
        raise Refused("IsInf of no sign has no kernel")
    size = _double(e, "Abs", x) if len(signs) == 2 else x
    e.binary("Equal", size, e.literal(signs[0] * np.inf, F64), e.output(), BOOL)


@expand("Softmax", "LogSoftmax", when=_is_double)
def softmax_of_doubles(e: Expansion) -> None:
    step, x = e.step, e.input(0)
    shape, flattens = e.shape(x), step.node.version < 13
    if not prod(shape):
        raise Refused("Softmax of an empty tensor has no kernel")
    axis = normal_axis(step.attribute("axis", 1 if flattens else -1), len(shape))
    if flattens:
        x, axis = e.reshape(x, (prod(shape[:axis]), prod(shape[axis:]))), 1
    axes = e.literal([axis], I64)
    lines = [1 if i == axis else d for i, d in enumerate(e.shape(x))]

    def reduce(operator: str, values: str) -> str:
        return e.add(operator, [values, axes], lines, dtype=F64, keepdims=1)

    shifted = _binary(e, "Sub", x, reduce("ReduceMax", x))
    powers = _double(e, "Exp", shifted)
    total = reduce("ReduceSum", powers)
    last = "" if flattens else e.output()
    if step.node.op_type == "Softmax":
        y = _binary(e, "Div", powers, total, last)
    else:
        y = _binary(e, "Sub", shifted, _double(e, "Log", total), last)
    if flattens:
        e.reshape(y, shape, e.output())


# Matrix products


def _not_single(step: Step) -> bool:
    return dtype_of(step, 0) in (F64, I32, I64)


@expand("MatMul", when=_not_single)
def matmul(e: Expansion) -> None:
    _product(e, e.input(0), e.input(1), False, False, e.output())


def _product(e: Expansion, a: str, b: str, transpose_a: bool, transpose_b: bool, output: str) -> str:
    dtype, first, second = e.dtype(a), list(e.shape(a)), list(e.shape(b))
    if not first or not second:
        raise Refused("a product of these ranks has no kernel")
    m = [first[-1 if transpose_a else -2]] if len(first) > 1 else []
    n = [second[-2 if transpose_b else -1]] if len(second) > 1 else []
    shape = [*np.broadcast_shapes(tuple(first[:-2]), tuple(second[:-2])), *m, *n]
    return e.add("Product", [a, b], shape, dtype=dtype, output=output, domain=OWN, version=1,
                 transA=int(transpose_a), transB=int(transpose_b))  # fmt: skip


@lower("Product", domain=OWN)
def product(step: Step) -> Emit:
    """A' B', stacked, of a type other than float32."""
    a, b, dtype = shape_of(step, 0), shape_of(step, 1), dtype_of(step, 0)
    a = (1, *a) if len(a) == 1 else a
    b = (*b, 1) if len(b) == 1 else b
    transpose_a, transpose_b = step.attribute("transA"), step.attribute("transB")
    m, k = (a[-1], a[-2]) if transpose_a else a[-2:]
    n = b[-2] if transpose_b else b[-1]
    batch = np.broadcast_shapes(a[:-2], b[:-2])
    strides = [
        broadcast_strides((*s[:-2], s[-2] * s[-1]), (*batch, 1))[:-1] if len(s) > 2 else [0] * len(batch)
        for s in (a, b)
    ]
    if len(batch) > 8:
        raise Refused("tensors of more than 8 dimensions have no kernel")

    def emit(c: Compiler) -> None:
        units = prod(batch) * m
        c.emit(
            "matmul_any", units=units if n else 0, grain=grain(units, 4 * units * n * k), type=TYPE_CODES[dtype],
            a=c.input(0), b=c.input(1), y=c.output(), m=m, n=n, k=k, a_row=1 if transpose_a else k,
            a_step=m if transpose_a else 1, b_step=1 if transpose_b else n, b_column=k if transpose_b else 1,
            rank=len(batch), shape=c.words(batch), a_strides=c.words(strides[0]), b_strides=c.words(strides[1]),
        )  # fmt: skip

    return emit


@expand("Gemm", when=_not_single)
@expand("FusedMatMul", domain=OWN, when=_is_double)
@expand("FusedMatMul", domain="com.microsoft", when=_is_double)
def gemm(e: Expansion) -> None:
    """Also the products that rewrites make: A, B, bias, residual."""
    step, dtype = e.step, e.dtype(e.input(0))
    alpha, beta = (float(step.attribute(name, 1.0)) for name in ("alpha", "beta"))
    activation = text(step.attribute("activation", "") or "")
    stacked = step.attribute("transBatchA", 0) or step.attribute("transBatchB", 0)
    if activation not in ("", "Relu", "Tanh", "Sigmoid") or step.attribute("broadcast", 0) or stacked:
        raise Refused("a product of this kind has no kernel")
    if dtype != F64 and (alpha != 1 or beta not in (0, 1)):
        raise Refused("integers times a factor have no kernel")
    y = _product(e, e.input(0), e.input(1), bool(step.attribute("transA", 0)), bool(step.attribute("transB", 0)), "")
    if alpha != 1:
        y = e.binary("Mul", y, e.literal(alpha, dtype), dtype=dtype)
    for i in range(2, len(step.node.inputs)):
        if present(step, i) and beta != 0:
            added = e.input(i) if beta == 1 else e.binary("Mul", e.input(i), e.literal(beta, dtype), dtype=dtype)
            y = e.binary("Add", y, added, dtype=dtype)
    if activation:
        y = e.add(activation, [y], dtype=dtype)
    e.reshape(y, output_shape(step), e.output())
