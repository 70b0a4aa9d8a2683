"""Assembles the static site: everything that the pages need, in one folder that any static server can serve."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

from . import models, packaging, pyodide
from .console import SetupError, megabytes, say, step
from .paths import REPOSITORY, SITE

PAGES = REPOSITORY / "demo_site" / "pages"
MODULES = REPOSITORY / "wasm" / "web"
COMPRESSED = {".wasm", ".mjs", ".js", ".css", ".html", ".json", ".onnx"}


def assemble() -> Path:
    """Lay out `build/site`:

    - the pages, from `demo_site/pages`
    - `onnxlet/`: the JavaScript modules, from `wasm/web`
    - `onnxlet-….whl`: the pure wheel, for `micropip.install(URL)`
    - `pyodide/VERSION/`: Pyodide, NumPy, micropip and onnxlet in bytecode form, with a lock file that names just these
    - `models/NAME-VERSION/`: the demo's models
    - `site.json`: where these lie, for the pages, with what is shown about the models
    """
    wheel = packaging.build_wheel("pure")
    bytecode = packaging.build_bytecode()
    wheels = [*pyodide.packages(pyodide.PINNED), bytecode]
    pretrained = {name: models.fetch(name) for name in models.MODELS}
    if not (PAGES / "index.html").exists():
        raise SetupError(f"{PAGES.relative_to(REPOSITORY)} has no index.html.")
    with step("Assembling build/site"):
        placed = set(_places(wheel, wheels, pretrained))
        for target in sorted(placed):
            compress(target)
        for path in sorted(SITE.rglob("*"), reverse=True):
            plain = path.with_name(path.name.removesuffix(".gz"))
            if path.is_file() and path not in placed and (path == plain or plain not in placed):
                path.unlink()  # left from an earlier state of the sources
            elif path.is_dir() and not any(path.iterdir()):
                path.rmdir()
    say(f"    {len(placed)} files, {megabytes(sum(path.stat().st_size for path in placed))}")
    return SITE


def _places(wheel: Path, wheels: list[Path], pretrained: dict[str, Path]) -> Iterator[Path]:
    """Put every file in its place and yield it."""
    for prefix, source in {"": PAGES, "onnxlet": MODULES}.items():
        for path in sorted(source.rglob("*")):
            if path.is_file():
                target = SITE / prefix / path.relative_to(source)
                pyodide.place(path, target)
                yield target
    for name, source in pretrained.items():
        for part in models.MODELS[name].parts:
            for file in part.files:
                target = SITE / "models" / source.name / file
                pyodide.place(source / file, target)
                yield target
    pyodide.place(wheel, SITE / wheel.name)
    yield SITE / wheel.name
    folder = SITE / "pyodide" / pyodide.PINNED
    yield from pyodide.assemble(pyodide.PINNED, wheels, folder)
    places = {
        "pyodide": f"pyodide/{pyodide.PINNED}/",
        "wheel": wheel.name,
        "models": {
            name: {"path": f"models/{folder.name}/", "about": found.about, "licence": found.licence}
            for name, folder in pretrained.items()
            for found in [models.MODELS[name]]
        },
    }
    _write(SITE / "site.json", json.dumps(places, indent=1) + "\n")
    yield SITE / "site.json"


def _write(path: Path, text: str) -> None:
    if not path.exists() or path.read_text("utf-8") != text:
        path.write_text(text, "utf-8")


def compress(path: Path) -> None:
    """Lay a gzip twin beside a file that gets smaller by it; one that is up to date stays."""
    twin = path.with_name(path.name + ".gz")
    if path.suffix not in COMPRESSED or path.stat().st_size < 1024:
        return
    if not twin.exists() or twin.stat().st_mtime_ns < path.stat().st_mtime_ns:
        twin.write_bytes(gzip.compress(path.read_bytes(), 6, mtime=0))
