"""Reading .onnx files: wire format, tensors, external data, functions."""
