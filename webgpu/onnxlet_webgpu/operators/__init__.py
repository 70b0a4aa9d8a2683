"""The operators of the GPU provider, by family. Importing this package fills the table of lowerings."""

from . import (  # noqa: F401
    attention,
    casts,
    convolution,
    direct,
    einsum,
    elementwise,
    losses,
    matmul,
    movement,
    normalization,
    pooling,
    quantization,
    recurrent,
    reduction,
    resize,
    sampling,
    scattering,
    selection,
    spectral,
)
