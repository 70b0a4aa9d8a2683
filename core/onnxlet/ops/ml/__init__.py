"""Operators of the domain ai.onnx.ml: classical machine learning."""

from __future__ import annotations

from . import encoders, linear, svm, trees

__all__ = ["encoders", "linear", "svm", "trees"]
