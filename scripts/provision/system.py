"""Debian packages: installed where that is allowed, else named."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence

from .console import SetupError, run, step


def may_install() -> bool:
    return hasattr(os, "geteuid") and os.geteuid() == 0 and shutil.which("apt-get") is not None


def install(packages: Sequence[str], purpose: str) -> None:
    """Install Debian packages when root; raises `SetupError` that names them otherwise."""
    names = " ".join(packages)
    if not may_install():
        raise SetupError(f"{purpose} is missing. On Debian and Ubuntu: sudo apt install {names}")
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    with step(f"Installing {purpose} (Debian: {names})"):
        run(["apt-get", "update", "-q"], env=quiet)
        run(["apt-get", "install", "-q", "-y", "--no-install-recommends", *packages], env=quiet)
