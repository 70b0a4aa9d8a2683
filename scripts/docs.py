#!/usr/bin/env python3
"""Builds the documentation as a site of static files into `build/docs`."""

from __future__ import annotations

import sys

if sys.version_info < (3, 11):  # noqa: UP036
    sys.exit("onnxlet needs Python 3.11 or newer; this is " + sys.version.split()[0])

from provision import venv
from provision.console import guarded, run, say, step
from provision.paths import BUILD, REPOSITORY


def main() -> int:
    venv.create()
    venv.install(venv.requirements(["docs"]), "Installing the documentation's generator from PyPI (about 30 MB)")
    venv.install_editable()
    pages = BUILD / "docs"
    with step("Building the documentation"):
        command = [
            venv.python(),
            "-m",
            "sphinx",
            "--fail-on-warning",
            "--quiet",
            "-c",
            REPOSITORY / "scripts" / "documents",
        ]
        run([*command, REPOSITORY / "docs", pages])
    say(f"{(pages / 'index.html').relative_to(REPOSITORY)}")
    return 0


if __name__ == "__main__":
    sys.exit(guarded(main))
