"""The GPU provider of onnxlet. `provider.PROVIDER` is its entry in the registry."""

from onnxlet import archive

__path__ = archive.extended(__path__)
