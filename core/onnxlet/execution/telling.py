"""Inputs that tell shapes: what a model is fed as the target of a Reshape, the axes of a sum, the bounds of a Slice;
and those that decide which branch an If takes.

Such a value is small, lies on the host, and seldom changes from run to run. A plan that takes it for a constant knows
every shape that follows from it, where it would otherwise have to stop there and go on when the value is known; and it
has the nodes of the one branch among its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..graph.ir import STRING, Graph, Node, TensorType

MOST_ELEMENTS = 64
"""Elements of a value that a plan may take for a constant."""

MOST_VALUES = 8
"""Different values of one graph's telling inputs for which plans are made: after that they are taken to change always
(a position that grows with every run), and plans go by types alone."""

REDUCTIONS = (
    "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare",
    "ReduceLogSum", "ReduceLogSumExp",
)  # fmt: skip

HOST_INPUTS: dict[str, tuple[int, ...]] = {
    "Reshape": (1,), "Expand": (1,), "Slice": (1, 2, 3, 4), "Pad": (1, 2, 3), "Tile": (1,), "ConstantOfShape": (0,),
    "Squeeze": (1,), "Unsqueeze": (1,), "Split": (1,), "TopK": (1,), "Resize": (1, 2, 3), "Upsample": (1,),
    "Range": (0, 1, 2), "OneHot": (1,), "Trilu": (1,), "CumSum": (1,), "CumProd": (1,), "CenterCropPad": (1,),
    "Col2Im": (1, 2), "AffineGrid": (1,), "DFT": (1, 2), "STFT": (1, 3), "Dropout": (1, 2), "MaxUnpool": (2,),
    "HannWindow": (0,), "HammingWindow": (0,), "BlackmanWindow": (0,), "MelWeightMatrix": (0, 1, 2, 3, 4),
    **dict.fromkeys(REDUCTIONS, (1,)),
}  # fmt: skip
"""Inputs of ai.onnx's operators that say what is to be done, and to which shape it leads."""


def telling_inputs(graph: Graph) -> list[str]:
    """The inputs of a graph that reach a host input of one of its nodes, straight or through other nodes; and single
    integers and booleans that alone decide an If.

    The way back ends where only a shape is asked for.
    """
    makers: dict[str, Node] = {name: node for node in graph.nodes for name in node.outputs if name}
    hosted = [
        node.inputs[i]
        for node in graph.nodes
        if not node.domain
        for i in HOST_INPUTS.get(node.op_type, ())
        if i < len(node.inputs) and node.inputs[i]
    ]
    found = _sources(hosted, makers)
    inputs = {*graph.inputs}
    for node in graph.nodes:
        if not node.domain and node.op_type == "If":
            reached = _sources([node.inputs[0]], makers)
            if all(_is_single(graph.tensor_type(name)) for name in reached & inputs):
                found |= reached
    return [name for name in graph.inputs if name in found]


def _is_single(type_: TensorType) -> bool:
    """Whether a type is that of one integer or boolean."""
    return type_.dtype is not None and type_.dtype.kind in "iub" and type_.shape is not None and set(type_.shape) <= {1}


def _sources(names: list[str], makers: Mapping[str, Node]) -> set[str]:
    """Values from which the values `names` are computed, and these."""
    waiting, found = [*names], set[str]()
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        node = makers.get(name)
        if node is not None and node.op_type not in ("Shape", "Size") and next(node.subgraphs(), None) is None:
            waiting += [other for other in node.inputs if other]
    return found


def told(names: list[str], values: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Those of the values `names` that a plan may take for constants."""
    return {
        name: value
        for name in names
        if isinstance(value := values.get(name), np.ndarray) and value.size <= MOST_ELEMENTS and value.dtype != STRING
    }
