"""Optimisers of ai.onnx.preview.training."""

from __future__ import annotations

from ..ir import Node, Type
from .common import Constants, Inputs, fail
from .registry import infer

KEPT = {"Adagrad": (0, 2), "Momentum": (0, 2), "Adam": (0, 2, 3)}
"""Of the groups of inputs after rate and step, one tensor per parameter each, those whose new values are outputs.

Adagrad and Momentum take parameters, gradients and one state, Adam two states.
"""


@infer(*KEPT, domain="ai.onnx.preview.training")
def optimiser(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    """Each output has the type of what it is the new value of."""
    groups = 4 if node.op_type == "Adam" else 3
    count, rest = divmod(len(inputs) - 2, groups)
    if rest or count < 1:
        fail(node, f"{len(inputs)} inputs; expected rate, step, and {groups} for each parameter")
    return [inputs[2 + group * count + i] for group in KEPT[node.op_type] for i in range(count)]
