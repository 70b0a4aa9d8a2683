"""How each operator becomes kernel calls, by family."""

from . import (
    attention,
    carried,
    composed,
    conv,
    conv_transpose,
    doubles,
    einsum,
    elementwise,
    features,
    gemm,
    index,
    movement,
    normalize,
    pool,
    pool_any,
    quantize,
    quantized,
    quantized_conv,
    reduce,
    resize,
    rnn,
    rotary,
    rounding,
    sampling,
    trees,
)
from .expansion import expanded, expanded_segment
from .registry import Refused, find, lower, lowered_operators
from .rounding import joined_rounding

FAMILIES = (
    attention, carried, composed, conv, conv_transpose, doubles, einsum, elementwise, features, gemm, index,
    movement, normalize, pool, pool_any, quantize, quantized, quantized_conv, reduce, resize, rnn, rotary, rounding,
    sampling, trees,
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
