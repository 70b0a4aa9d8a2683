#!/usr/bin/env python3
"""Compares onnxlet's WebGPU provider with onnxruntime's, in a page and natively: `bench_webgpu.py --help`."""

from __future__ import annotations

import sys

if sys.version_info < (3, 11):  # noqa: UP036
    sys.exit("onnxlet needs Python 3.11 or newer; this is " + sys.version.split()[0])

from provision import gpu
from provision.console import guarded, say
from provision.launch import run_module
from provision.prepare import prepare


def main() -> int:
    say("Setting the benchmark up")
    prepare(["dev"], [], "Installing packages from PyPI (about 400 MB: the compiler, peers to compare with, tools)")
    native = "--native" in sys.argv
    return run_module(
        "bench.webgpu_native" if native else "bench.webgpu", sys.argv[1:], gpu.swiftshader() if native else None
    )


if __name__ == "__main__":
    sys.exit(guarded(main))
