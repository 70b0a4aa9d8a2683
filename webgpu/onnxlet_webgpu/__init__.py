"""The GPU provider of onnxlet. `provider.PROVIDER` is its entry in the registry."""
