"""How each operator becomes kernel calls, by family."""

from __future__ import annotations

from importlib import import_module

from onnxlet.providers.base import Segment

from .expansion import expanded, expanded_segment
from .registry import Refused, find, lower, lowered_operators

__all__ = ["Refused", "expanded", "expanded_segment", "find", "joined", "lower", "lowered_operators"]

JOINS = (
    ("QuantizeLinear", "bytewise", "on_bytes"),
    ("QuantizeLinear", "rounding", "joined_rounding"),
    ("ConvInteger", "quantized_conv", "joined_convolutions"),
)
"""What puts neighbouring steps into one: the operator of one of them, and a module, imported for such alone, with a
function from segment to segment."""


def joined(segment: Segment) -> Segment:
    """The segment with neighbouring steps that have one kernel together put into one."""
    for operator, module, function in JOINS:
        if any(step.node.op_type == operator for step in segment.steps):
            segment = getattr(import_module(f"{__name__}.{module}"), function)(segment)
    return segment
