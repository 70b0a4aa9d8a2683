"""The virtual environment in `.venv` and what is installed in it."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

from . import system
from .console import SetupError, run, step
from .paths import REPOSITORY, VENV

STAMP = VENV / "onnxlet-setup.json"


def python(folder: Path = VENV) -> Path:
    """The interpreter of a virtual environment."""
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def create(folder: Path = VENV, base: str = sys.executable) -> Path:
    """Make a virtual environment unless it is there; returns its interpreter."""
    interpreter = python(folder)
    if not (interpreter.exists() and (folder / "pyvenv.cfg").exists() and _has_pip(folder)):
        if base == sys.executable and importlib.util.find_spec("ensurepip") is None:
            system.install(["python3-venv"], "Python's venv module")
        with step(f"Creating {folder.relative_to(REPOSITORY)}"):
            run([base, "-m", "venv", "--clear", folder])
    return interpreter


def _has_pip(folder: Path) -> bool:
    return any(folder.glob("lib/python3*/site-packages/pip/__init__.py")) or (folder / "Lib/site-packages/pip").exists()


def requirements(groups: Iterable[str], extras: Iterable[str] = ()) -> list[str]:
    """The requirements of dependency groups and extras of `pyproject.toml`, and the package's own."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))
    found: dict[str, None] = dict.fromkeys(project["project"]["dependencies"])

    def add(group: str) -> None:
        for entry in project["dependency-groups"][group]:
            if isinstance(entry, str):
                found[entry] = None
            else:
                add(entry["include-group"])

    for group in groups:
        add(group)
    for extra in extras:
        found.update(dict.fromkeys(project["project"]["optional-dependencies"][extra]))
    return list(found)


def install(wanted: Iterable[str], title: str) -> None:
    """Install requirements in `.venv` unless an earlier run did."""
    done: list[str] = json.loads(STAMP.read_text("utf-8"))["requirements"] if STAMP.exists() else []
    new = [requirement for requirement in wanted if requirement not in done]
    if not new:
        return
    with step(title):
        pip(["install", "--quiet", *new])
    _stamp(requirements=done + new)


def install_editable() -> None:
    """Put the checkout's packages on `.venv`'s path, unless `pyproject.toml` is as it was when that was last done."""
    key = hashlib.sha256((REPOSITORY / "pyproject.toml").read_bytes()).hexdigest()
    if STAMP.exists() and json.loads(STAMP.read_text("utf-8")).get("editable") == key:
        return
    with step("Installing onnxlet from the checkout"):
        pip(["install", "--quiet", "--no-deps", "--no-build-isolation", "--editable", REPOSITORY])
    _stamp(editable=key)


def _stamp(**entries: object) -> None:
    old = json.loads(STAMP.read_text("utf-8")) if STAMP.exists() else {}
    STAMP.write_text(json.dumps({**old, **entries}, indent=1), "utf-8")


def pip(arguments: list[str | Path], folder: Path = VENV) -> str:
    """Call the environment's pip; a package that can't be had is an error that names it."""
    quiet = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_ROOT_USER_ACTION": "ignore", "PIP_NO_INPUT": "1"}
    try:
        return run([python(folder), "-m", "pip", *arguments], env=quiet)
    except SetupError as error:
        missing = re.search(r"No matching distribution found for (\S+)", str(error))
        reason = f"{missing[1]} is not to be had from the package index" if missing else "pip failed"
        raise SetupError(f"{reason}. Is the package index reachable?\n{error}") from None
