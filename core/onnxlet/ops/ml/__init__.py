"""Operators of the domain ai.onnx.ml: classical machine learning."""
