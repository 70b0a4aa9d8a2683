"""How each operator becomes kernel calls, by family."""

from __future__ import annotations

from .bytewise import on_bytes
from .expansion import expanded, expanded_segment
from .quantized_conv import joined_convolutions
from .registry import Refused, find, lower, lowered_operators
from .rounding import joined_rounding

__all__ = [
    "Refused",
    "expanded",
    "expanded_segment",
    "find",
    "joined_convolutions",
    "joined_rounding",
    "lower",
    "lowered_operators",
    "on_bytes",
]
