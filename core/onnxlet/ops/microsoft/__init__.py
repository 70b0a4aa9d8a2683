"""Operators of the domain com.microsoft, which optimisers and quantisers of ONNX models emit."""
