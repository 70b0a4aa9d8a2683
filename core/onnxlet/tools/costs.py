"""How much work a node is: its multiply-adds, by the formulas that papers count models with."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ..graph.ir import Node, TensorType

Types = Sequence[TensorType]
Count = Callable[[Node, Types, Types], int]
"""From a node and the types of its inputs and outputs (concrete where they are there) to its multiply-adds."""


def _product(node: Node, inputs: Types, outputs: Types) -> int:
    """Of matrices in the usual order: every output needs the inner dimension once."""
    return outputs[0].size * inputs[0].dims[-1]


def _gemm(node: Node, inputs: Types, outputs: Types) -> int:
    return outputs[0].size * inputs[0].dims[0 if node.attributes.get("transA") else 1]


def _window(weights: int) -> Count:
    """Of a convolution with its weights (M, C/group, k...) at that place among the inputs."""
    return lambda node, inputs, outputs: outputs[0].size * math.prod(inputs[weights].dims[1:])


def _spread(node: Node, inputs: Types, outputs: Types) -> int:
    """Of a transposed convolution with weights (C, M/group, k...): every input is spread over its window."""
    return inputs[0].size * math.prod(inputs[1].dims[1:])


def _recurrent(node: Node, inputs: Types, outputs: Types) -> int:
    """Of X (steps, batch, features), W (directions, gates·hidden, features), R (directions, gates·hidden, hidden)."""
    steps, batch = inputs[0].dims[:2]
    return steps * batch * (inputs[1].size + inputs[2].size)


def _einsum(node: Node, inputs: Types, outputs: Types) -> int:
    terms = str(node.attributes.get("equation", "")).replace(" ", "").split("->")[0].split(",")
    sizes: dict[str, int] = {}
    for term, type_ in zip(terms, inputs, strict=False):
        sizes.update(zip(term, type_.dims, strict=False))
    return math.prod(sizes.values())


def _attention(node: Node, inputs: Types, outputs: Types) -> int:
    """Of queries (batch, length, width) and keys (batch, length', ...): scores and their sum over values."""
    query, key = inputs[0].dims, inputs[1].dims
    if len(query) == 4:
        batch, heads, length, head = query
        return 2 * batch * heads * length * key[2] * head
    return 2 * query[0] * query[1] * key[1] * query[2]


def _low_bits(node: Node, inputs: Types, outputs: Types) -> int:
    return outputs[0].size * int(node.attributes.get("K", 0))


COUNTS: dict[str, Count] = {
    "MatMul": _product,
    "MatMulInteger": _product,
    "Gemm": _gemm,
    "FusedMatMul": _product,
    "FusedGemm": _gemm,
    "QLinearMatMul": _product,
    "DynamicQuantizeMatMul": _product,
    "MatMulIntegerToFloat": _product,
    "MatMulNBits": _low_bits,
    "Conv": _window(1),
    "FusedConv": _window(1),
    "ConvInteger": _window(1),
    "DeformConv": _window(1),
    "QLinearConv": _window(3),
    "ConvTranspose": _spread,
    "LSTM": _recurrent,
    "GRU": _recurrent,
    "RNN": _recurrent,
    "DynamicQuantizeLSTM": _recurrent,
    "Einsum": _einsum,
    "Attention": _attention,
    "MultiHeadAttention": _attention,
}
"""Operators whose work is products. All others count nothing: they are bound by the bytes that they move."""


def multiply_adds(node: Node, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int | None:
    """The multiply-adds of one node; `None` where a type that they depend on is not concrete."""
    count = COUNTS.get(node.op_type)
    if count is None:
        return 0
    try:
        return count(node, inputs, outputs)
    except (AssertionError, IndexError):
        return None
