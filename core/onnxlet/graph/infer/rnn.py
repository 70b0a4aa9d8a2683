"""Recurrent networks."""

from __future__ import annotations

from ..ir import Dim, Node, TensorType, Type
from .common import Constants, Inputs, dtype_of, shape_of
from .registry import infer


@infer("LSTM", "GRU", "RNN")
@infer("AttnLSTM", "DynamicQuantizeLSTM", domain="com.microsoft")
def rnn(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    """Y and the last states, with the sequence first, or the batch where layout is 1."""
    dtype = dtype_of(node, inputs, 0)
    x, r = shape_of(node, inputs, 0, rank=3), shape_of(node, inputs, 2, rank=3)
    directions = 2 if node.attributes.get("direction", "forward") == "bidirectional" else 1
    hidden: Dim = node.attributes.get("hidden_size")
    if hidden is None and r is not None and node.op_type != "DynamicQuantizeLSTM":  # its weights are transposed
        hidden = r[2]
    batch_first = node.attributes.get("layout", 0)
    length, batch = (None, None) if x is None else (x[1], x[0]) if batch_first else (x[0], x[1])
    if batch_first:
        y, state = (batch, length, directions, hidden), (batch, directions, hidden)
    else:
        y, state = (length, directions, batch, hidden), (directions, batch, hidden)
    return [TensorType(dtype, y), TensorType(dtype, state), TensorType(dtype, state)]
