"""Operators of the domain com.microsoft, which optimisers and quantisers of ONNX models emit."""

from __future__ import annotations

from . import attention, blockwise, experts, layers, others, packing, quantized

__all__ = ["attention", "blockwise", "experts", "layers", "others", "packing", "quantized"]
