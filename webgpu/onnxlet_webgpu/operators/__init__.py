"""The operators of the GPU provider, by family. Importing this package fills the table of lowerings."""

from . import (
    attention,
    convolution,
    elementwise,
    matmul,
    movement,
    normalization,
    pooling,
    reduction,
    resize,
)

__all__ = [
    "attention", "convolution", "elementwise", "matmul", "movement", "normalization", "pooling", "reduction", "resize",
]  # fmt: skip
