"""Operators of the domain com.microsoft, which optimisers and quantisers of ONNX models emit."""

from __future__ import annotations

from . import (
    attention,
    blockwise,
    experts,
    generation,
    hashing,
    layers,
    others,
    packed_weights,
    packing,
    quantized,
    recurrent,
    streams,
    whisper,
)

__all__ = [
    "attention", "blockwise", "experts", "generation", "hashing", "layers", "others", "packed_weights", "packing",
    "quantized", "recurrent", "streams", "whisper",
]  # fmt: skip
