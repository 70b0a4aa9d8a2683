#!/usr/bin/env python3
"""Measures how fast pages start and what memory they take: `python3 scripts/bench_startup.py --help`."""

from __future__ import annotations

import sys

if sys.version_info < (3, 11):  # noqa: UP036
    sys.exit("onnxlet needs Python 3.11 or newer; this is " + sys.version.split()[0])

from provision.console import guarded, say
from provision.launch import run_module
from provision.prepare import prepare


def main() -> int:
    say("Setting the benchmark up")
    prepare(["dev"], [], "Installing packages from PyPI (about 400 MB: the compiler, peers to compare with, tools)")
    return run_module("bench.startup", sys.argv[1:])


if __name__ == "__main__":
    sys.exit(guarded(main))
