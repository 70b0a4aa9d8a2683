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
    rounding,
    trees,
)
from .expansion import expanded, expanded_segment
from .registry import Refused, find, lower, lowered_operators
from .rounding import joined_rounding

FAMILIES = (
    attention, conv, conv_transpose, elementwise, features, gemm, index, movement, normalize, pool, quantize, quantized,
    reduce, resize, rnn, rounding, trees,
)  # fmt: skip
"""The modules whose import registers the operators."""

__all__ = [
    "FAMILIES",
    "Refused",
    "expanded",
    "expanded_segment",
    "find",
    "joined_rounding",
    "lower",
    "lowered_operators",
]
