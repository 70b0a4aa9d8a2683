"""Running a module of `scripts` with `.venv`'s Python."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence

from . import venv
from .paths import REPOSITORY


def run_module(name: str, arguments: Sequence[str], env: Mapping[str, str] | None = None) -> int:
    """Run `python -m name` with `scripts` and the repository on its path; returns its exit status."""
    path = os.pathsep.join([str(REPOSITORY / "scripts"), str(REPOSITORY)])
    everything = {**os.environ, "PYTHONPATH": path, **(env or {})}
    return subprocess.run([venv.python(), "-m", name, *arguments], env=everything).returncode
