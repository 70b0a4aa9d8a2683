#!/usr/bin/env python3
"""Builds the wheels into `build/wheels`: the pure one and this machine's; with `--all` those of other platforms too."""

from __future__ import annotations

import argparse
import sys

if sys.version_info < (3, 11):  # noqa: UP036
    sys.exit("onnxlet needs Python 3.11 or newer; this is " + sys.version.split()[0])


from provision import packaging, venv
from provision.console import SetupError, guarded, say
from provision.paths import REPOSITORY

OTHERS = ("linux-x86_64", "linux-aarch64", "macos-arm64", "macos-x86_64", "windows-x86_64")
BUDGET = 400_000
"""Bytes that a page may have to download for onnxlet: every operator in every version, all kernels, both providers."""


def main() -> int:
    parser = argparse.ArgumentParser(description="Build onnxlet's wheels.")
    parser.add_argument("--all", action="store_true", help="cross-build for the other platforms too")
    parser.add_argument("--pyodide", action="store_true", help="build with `pyodide build` instead")
    options = parser.parse_args()
    if options.pyodide:
        wheel = packaging.build_with_pyodide()
        say(f"{wheel}  [{', '.join(packaging.kernels_in(wheel))}]")
        return 0
    venv.create()
    venv.install(venv.requirements(["build"]), "Installing packages from PyPI (about 130 MB, most of it the compiler)")
    built = [("pure", ""), ("native", "")]
    if options.all:
        built += [(target, "built, not run") for target in OTHERS]
    seen: set[str] = set()
    for kind, remark in built:
        wheel = packaging.build_wheel(kind)
        if wheel.name in seen:
            continue  # this machine's platform again
        seen.add(wheel.name)
        kernels = ", ".join(name.rsplit("/")[-1] for name in packaging.kernels_in(wheel))
        size = wheel.stat().st_size
        say(f"{wheel.relative_to(REPOSITORY)}  {size / 1000:.0f} kB  [{kernels}]  {remark}".rstrip())
        if kind == "pure" and size > BUDGET:
            raise SetupError(f"the pure wheel has {size / 1000:.0f} kB; its budget is {BUDGET / 1000:.0f} kB.")
    return 0


if __name__ == "__main__":
    sys.exit(guarded(main))
