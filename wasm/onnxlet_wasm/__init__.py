"""The CPU provider: compiled kernels, in a WebAssembly memory of their own or natively, driven by a flat program."""
