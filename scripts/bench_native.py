#!/usr/bin/env python3
"""Compares onnxlet with onnxruntime on this machine: `python3 scripts/bench_native.py --help`."""

from __future__ import annotations

import sys

if sys.version_info < (3, 11):  # noqa: UP036
    sys.exit("onnxlet needs Python 3.11 or newer; this is " + sys.version.split()[0])

from provision import packaging, venv
from provision.console import guarded, say
from provision.launch import run_module


def main() -> int:
    say("Setting the benchmark up")
    venv.create()
    venv.install(venv.requirements(["dev"]), "Installing packages from PyPI (about 400 MB: the compiler, peers, tools)")
    packaging.build_kernels()
    venv.install_editable()
    return run_module("bench.native", sys.argv[1:])


if __name__ == "__main__":
    sys.exit(guarded(main))
