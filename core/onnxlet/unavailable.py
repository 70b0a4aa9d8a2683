"""Operators that another runtime has and onnxlet has not, and why: what they mean is not told by their inputs alone."""

from __future__ import annotations

_TILES = "its matrices lie in the order of cuBLASLt's tiles, which only CUDA defines"
_BOUNDING_BOXES = "the layout of its blocks and the numbers of its types are not published"

REASONS = {
    "com.microsoft::EPContext": "its contents were compiled for one accelerator, whose runtime alone can read them",
    "com.microsoft::Snpe": "its contents were compiled for Qualcomm's SNPE, which alone can read them",
    "com.microsoft::SpeculativePrefixCommit": "it writes to a place in a device's memory whose address is an input",
    "com.microsoft::QuantizeBFP": _BOUNDING_BOXES,
    "com.microsoft::DequantizeBFP": _BOUNDING_BOXES,
    "com.microsoft::QuantizeWithOrder": _TILES,
    "com.microsoft::DequantizeWithOrder": _TILES,
    "com.microsoft::QOrderedAttention": _TILES,
    "com.microsoft::QOrderedGelu": _TILES,
    "com.microsoft::QOrderedLayerNormalization": _TILES,
    "com.microsoft::QOrderedLongformerAttention": _TILES,
    "com.microsoft::QOrderedMatMul": _TILES,
}
"""Why, for each operator, as a message goes on after its name."""
