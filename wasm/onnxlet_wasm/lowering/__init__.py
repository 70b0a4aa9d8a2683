"""How each operator becomes kernel calls, by family."""

from . import (
    conv,
    conv_transpose,
    elementwise,
    gemm,
    index,
    movement,
    normalize,
    pool,
    quantize,
    reduce,
    resize,
    rnn,
)
from .registry import Refused, find, lower, lowered_operators

FAMILIES = (
    conv, conv_transpose, elementwise, gemm, index, movement, normalize, pool, quantize, reduce, resize, rnn,
)  # fmt: skip
"""The modules whose import registers the operators."""

__all__ = ["FAMILIES", "Refused", "find", "lower", "lowered_operators"]
