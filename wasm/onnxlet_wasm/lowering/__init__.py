"""How each operator becomes kernel calls, by family."""

from . import (
    attention,
    conv,
    conv_transpose,
    elementwise,
    features,
    gemm,
    index,
    movement,
    normalize,
    pool,
    quantize,
    quantized,
    reduce,
    resize,
    rnn,
    trees,
)
from .expansion import expanded, expanded_segment
from .registry import Refused, find, lower, lowered_operators

FAMILIES = (
    attention, conv, conv_transpose, elementwise, features, gemm, index, movement, normalize, pool, quantize, quantized,
    reduce, resize, rnn, trees,
)  # fmt: skip
"""The modules whose import registers the operators."""

__all__ = ["FAMILIES", "Refused", "expanded", "expanded_segment", "find", "lower", "lowered_operators"]
