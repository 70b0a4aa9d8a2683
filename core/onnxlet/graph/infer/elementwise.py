"""Operators that work element by element, with broadcasting."""

from __future__ import annotations

import numpy as np

from ...model.dtypes import dtype_of as element_dtype
from ...model.dtypes import named
from ..ir import Node, TensorType, Type
from .common import BOOL, Constants, Inputs, axis_of, broadcast, dtype_of, merge_shapes, same, shape_of, tensor
from .registry import infer

infer(
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BitwiseNot", "Ceil", "Celu", "Clip", "Cos", "Cosh",
    "CumProd", "CumSum", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu",
    "Log", "LRN", "MeanVarianceNormalization", "Mish", "Neg",
    "ParametricSoftplus", "PRelu", "Reciprocal", "Relu", "ReverseSequence", "Round", "Scale", "ScaledTanh", "Selu",
    "Shrink", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Swish", "Tan", "Tanh",
    "ThresholdedRelu", "Trilu", "Affine", "ImageScaler",
)(same)  # fmt: skip


@infer("Identity")
def identity(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    return [inputs[0]]  # any type, sequences too


@infer("Not", "IsInf", "IsNaN")
def to_bool(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    return [TensorType(BOOL, shape_of(node, inputs, 0))]


@infer("RegexFullMatch")
def regex_full_match(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    return [TensorType(BOOL, shape_of(node, inputs, 0))]


def _broadcast(node: Node, inputs: Inputs) -> tuple[int | str | None, ...] | None:
    # Before opset 7 only the second input was broadcast, and only where the node asked for it.
    return shape_of(node, inputs, 0) if node.domain == "" and node.version < 7 else broadcast(node, inputs)


@infer("Add", "Sub", "Mul", "Div", "Mod", "Pow", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitShift")
def arithmetic(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    dtype = dtype_of(node, inputs, 0)
    if dtype is None and node.op_type != "Pow":
        dtype = dtype_of(node, inputs, 1)
    return [TensorType(dtype, _broadcast(node, inputs))]


@infer("And", "Or", "Xor", "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")
def comparison(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    return [TensorType(BOOL, _broadcast(node, inputs))]


@infer("Sum", "Mean", "Max", "Min", "StringConcat")
def variadic(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    dtype = next((t.dtype for t in inputs if isinstance(t, TensorType) and t.dtype is not None), None)
    if node.version < 8 and node.op_type != "StringConcat":
        shape = merge_shapes(node, (shape_of(node, inputs, i) for i in range(len(inputs))), "inputs")
        return [TensorType(dtype, shape)]
    return [TensorType(dtype, broadcast(node, inputs))]


@infer("SwiGLU")
def swiglu(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    shape = merge_shapes(node, (shape_of(node, inputs, 0), shape_of(node, inputs, 1)), "both inputs")
    return [TensorType(dtype_of(node, inputs, 0), shape)]


@infer("Where")
def where(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    dtype = dtype_of(node, inputs, 1) or dtype_of(node, inputs, 2)
    return [TensorType(dtype, broadcast(node, inputs))]


@infer("Cast", "BitCast")
def cast(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    to = node.attributes.get("to")
    dtype: np.dtype | None = None
    if isinstance(to, int):
        dtype = element_dtype(to)
    elif isinstance(to, str):  # version 1
        dtype = named(to.lower())
    return [TensorType(dtype, shape_of(node, inputs, 0))]


@infer("CastLike")
def cast_like(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    return [TensorType(dtype_of(node, inputs, 1), shape_of(node, inputs, 0))]


@infer("Dropout")
def dropout(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    data = tensor(node, inputs, 0)
    # Before opset 10 the mask had the data's type.
    return [data, data if node.version < 10 else TensorType(BOOL, data.shape)]


@infer("LpNormalization", "Softmax", "LogSoftmax", "Hardmax")
def along_axis(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    x = tensor(node, inputs, 0)
    if x.shape is not None and "axis" in node.attributes and x.shape:
        axis = node.attributes["axis"]
        if node.op_type == "LpNormalization" or axis != len(x.shape):  # before opset 13, axis may be the rank
            axis_of(node, axis, len(x.shape))
    return [x]
