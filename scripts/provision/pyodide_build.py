"""pyodide-build in an environment of its own, on the newest Python that the machine has."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from . import venv
from .console import SetupError, step
from .paths import BUILD

NEWEST_MINOR = 20
"""The Python 3 minor versions looked for reach up to this one."""


def pythons() -> list[tuple[tuple[int, int], str]]:
    """All working Pythons 3.11 and newer that can make a virtual environment, newest first, with their versions."""
    probe = "import sys, ensurepip, venv; print(*sys.version_info[:2])"
    found = {}
    for candidate in _candidates():
        try:
            done = subprocess.run([candidate, "-c", probe], capture_output=True, text=True, timeout=20)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if done.returncode == 0:
            major, minor = done.stdout.split()
            found.setdefault((int(major), int(minor)), candidate)
    return sorted(((version, path) for version, path in found.items() if version >= (3, 11)), reverse=True)


def _candidates() -> Iterator[str]:
    yield sys.executable
    for minor in range(NEWEST_MINOR, 10, -1):
        if path := shutil.which(f"python3.{minor}"):
            yield path
    pyenv = shutil.which("pyenv")
    roots = {Path.home() / ".pyenv", *([Path(pyenv).resolve().parents[1]] if pyenv else [])}
    for root in roots:
        yield from map(str, sorted(root.glob("versions/3.*/bin/python3"), reverse=True))


def command(tag: str | None = None) -> Path:
    """The `pyodide` command of the newest pyodide-build that a Python on this machine allows.

    `tag`, such as `cp314`, asks for a Python of that very version. Raises `SetupError` where there is none.
    """
    found = [(version, path) for version, path in pythons() if tag in (None, f"cp{version[0]}{version[1]}")]
    if not found:
        raise SetupError("pyodide-build needs a Python 3.11 or newer with its venv module (Debian: python3-venv).")
    (major, minor), python = found[0]
    folder = BUILD / f"pyodide-build-{major}.{minor}"
    program = venv.python(folder).with_name("pyodide.exe" if os.name == "nt" else "pyodide")
    if not program.exists():
        venv.create(folder, base=python)
        with step(f"Installing pyodide-build on Python {major}.{minor} (about 20 MB)"):
            # The last pyodide-build for Python 3.11 calls what later versions of wheel don't have.
            venv.pip(["install", "--quiet", "pyodide-build", *(["wheel<0.46"] if minor == 11 else [])], folder)
    return program
