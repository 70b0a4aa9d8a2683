"""A Chromium to drive: the system's, installed from Debian where that is allowed."""

from __future__ import annotations

import os
import shutil

from . import system
from .console import SetupError

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

FLAGS = [
    "--no-sandbox",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # A GPU made of software, for machines that have none.
    "--enable-unsafe-webgpu",
]
FAST_PIPELINES = "--enable-dawn-features=disable_workgroup_init"
"""Pipelines compile ten times faster on the software GPU; workgroup memory starts uninitialised, as nobody may assume
otherwise."""


def chromium(install: bool = True) -> str:
    """The path of a Chromium: `$ONNXLET_CHROMIUM`, else one on the path, else Debian's, installed now.

    Raises `SetupError` that says what to install.
    """
    chosen = os.environ.get("ONNXLET_CHROMIUM")
    if chosen:
        if shutil.which(chosen):
            return chosen
        raise SetupError(f"ONNXLET_CHROMIUM says {chosen}, which is not there.")
    for attempt in range(2):
        for name in NAMES:
            if found := shutil.which(name):
                return found
        if attempt == 0:
            if not install:
                break
            system.install(["chromium"], "Chromium, the browser for headless checks")
    raise SetupError("No Chromium found: install it, or set ONNXLET_CHROMIUM to the path of a Chrome or Chromium.")
