"""The CPU provider: compiled kernels, in a WebAssembly memory of their own or natively, driven by a flat program."""

from onnxlet import archive

__path__ = archive.extended(__path__)
