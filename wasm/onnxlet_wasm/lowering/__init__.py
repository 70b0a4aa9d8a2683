"""How each operator becomes kernel calls, by family."""

from . import conv, elementwise, gemm, index, movement, normalize, pool, reduce, rnn
from .registry import Refused, find, lower, lowered_operators

FAMILIES = (conv, elementwise, gemm, index, movement, normalize, pool, reduce, rnn)
"""The modules whose import registers the operators."""

__all__ = ["FAMILIES", "Refused", "find", "lower", "lowered_operators"]
