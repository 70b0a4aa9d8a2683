"""The operators of the GPU provider, by family. Importing this package fills the table of lowerings."""

from . import (  # noqa: F401
    attention,
    casts,
    convolution,
    elementwise,
    matmul,
    movement,
    normalization,
    pooling,
    reduction,
    resize,
)
