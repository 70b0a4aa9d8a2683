"""The steps that `run.py` and `test.py` share."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from . import packaging, pyodide, site, venv
from .paths import BUILD


def prepare(groups: Iterable[str], extras: Iterable[str], title: str) -> Path:
    """`.venv` with these dependency groups and extras, the kernels, and the site; returns the site's folder."""
    venv.create()
    venv.install(venv.requirements(groups, extras), title)
    packaging.build_kernels()
    venv.install_editable()
    return site.assemble()


def test_pyodides() -> None:
    """For the browser tests: a folder `build/pyodide/VERSION` for each release that onnxlet is tested in."""
    for version in pyodide.RELEASES:
        names = pyodide.TESTED if version == pyodide.PINNED else pyodide.PACKAGES
        pyodide.assemble(version, pyodide.packages(version, names), BUILD / "pyodide" / version)
