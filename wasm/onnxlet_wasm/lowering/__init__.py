"""How each operator becomes kernel calls, by family."""

from . import elementwise, gemm, movement
from .registry import Refused, find, lower, lowered_operators

FAMILIES = (elementwise, gemm, movement)
"""The modules whose import registers the operators."""

__all__ = ["FAMILIES", "Refused", "find", "lower", "lowered_operators"]
