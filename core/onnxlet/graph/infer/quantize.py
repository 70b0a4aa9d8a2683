"""Quantisation, and operators on quantised tensors."""

from __future__ import annotations

import numpy as np

from ...model.dtypes import dtype_of as element_dtype
from ..ir import Node, TensorType, Type
from .common import FLOAT, Constants, Inputs, dtype_of, present, shape_of, tensor
from .matrix import product_shape
from .registry import infer
from .windows import convolution

UINT8, INT32 = np.dtype(np.uint8), np.dtype(np.int32)


@infer("QuantizeLinear")
@infer("QuantizeLinear", domain="com.microsoft")
def quantize_linear(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    asked = node.attributes.get("output_dtype", 0)
    dtype = dtype_of(node, inputs, 2) if present(node, 2) else element_dtype(asked) if asked else UINT8
    return [TensorType(dtype, shape_of(node, inputs, 0))]


@infer("DequantizeLinear")
@infer("DequantizeLinear", domain="com.microsoft")
def dequantize_linear(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    asked = node.attributes.get("output_dtype", 0)
    dtype = element_dtype(asked) if asked else dtype_of(node, inputs, 1)
    return [TensorType(dtype, shape_of(node, inputs, 0))]


@infer("DynamicQuantizeLinear")
def dynamic_quantize_linear(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    return [TensorType(UINT8, shape_of(node, inputs, 0)), TensorType(FLOAT, ()), TensorType(UINT8, ())]


@infer("MatMulInteger")
@infer("MatMulInteger16", domain="com.microsoft")
def matmul_integer(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    return [TensorType(INT32, product_shape(node, shape_of(node, inputs, 0), shape_of(node, inputs, 1)))]


@infer("QLinearMatMul")
def qlinear_matmul(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    shape = product_shape(node, shape_of(node, inputs, 0), shape_of(node, inputs, 3))
    return [TensorType(dtype_of(node, inputs, 7), shape)]


@infer("ConvInteger")
def conv_integer(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    return [TensorType(INT32, convolution(node, shape_of(node, inputs, 0), shape_of(node, inputs, 1)))]


@infer("QLinearConv")
def qlinear_conv(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    shape = convolution(node, shape_of(node, inputs, 0), shape_of(node, inputs, 3))
    return [TensorType(dtype_of(node, inputs, 7), shape)]


@infer("QLinearConv", domain="com.microsoft")
def qlinear_conv_any_layout(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    x, w = shape_of(node, inputs, 0), shape_of(node, inputs, 3)
    if not node.attributes.get("channels_last", 0):
        return [TensorType(dtype_of(node, inputs, 7), convolution(node, x, w))]
    first = convolution(node, None if x is None else (x[0], x[-1], *x[1:-1]), w)
    return [TensorType(dtype_of(node, inputs, 7), None if first is None else (first[0], *first[2:], first[1]))]


@infer("QLinearLeakyRelu", "QLinearSigmoid", "QLinearSoftmax", domain="com.microsoft")
def qlinear_unary(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    return [tensor(node, inputs, 0)]
