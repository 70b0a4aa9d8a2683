"""Kernels and wheels, built by `.venv`'s hatchling and ziglang, again only where their sources changed."""

from __future__ import annotations

import os
import re
import shutil
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import index_wheel
import pack_wheel
import short_names

from . import downloads, pyodide, pyodide_build, venv
from .console import SetupError, megabytes, run, say, step
from .paths import BUILD, REPOSITORY, WHEELS, tree_hash

try:
    import fcntl
except ImportError:
    fcntl = None

SOURCES = [
    *(REPOSITORY / folder for folder in ("core", "wasm", "webgpu")),
    *(
        REPOSITORY / name
        for name in (
            *("pyproject.toml", "README.md", "LICENSE"),
            *("scripts/hatch_build.py", "scripts/slim_wheel.py", "scripts/index_wheel.py", "scripts/short_names.py"),
        )
    ),
]
ZIG_CACHE = {"ZIG_GLOBAL_CACHE_DIR": str(BUILD / "zig")}


def build_kernels() -> None:
    """Compile the kernels into the checkout, for `.venv`'s editable install."""
    with step("Compiling the kernels (WebAssembly and this machine)"):
        run([venv.python(), REPOSITORY / "wasm/onnxlet_wasm/build.py"], env=ZIG_CACHE)


def build_wheel(kind: str = "pure") -> Path:
    """Build a wheel (`ONNXLET_WHEEL`: `pure`, `native` or a target), unless the last one is of the same sources.

    The pure one is packed.
    """
    return packed(build_unpacked(kind), WHEELS / kind) if kind == "pure" else build_unpacked(kind)


def build_unpacked(kind: str = "pure") -> Path:
    """The wheel as the build hook makes it, with an index of operators; the pure one has short names."""
    folder = WHEELS / (f"{kind}-unpacked" if kind == "pure" else kind)
    with exclusive(WHEELS / f"{folder.name}.lock"):
        stamp, key = folder / "sources", tree_hash(SOURCES)
        found = list(folder.glob("*.whl"))
        if len(found) == 1 and stamp.exists() and stamp.read_text() == key:
            return found[0]
        fresh = folder / "fresh"
        shutil.rmtree(fresh, ignore_errors=True)
        with step(f"Building the wheel ({kind})"):
            command = [venv.python(), "-m", "hatchling", "build", "--target", "wheel", "--directory", fresh]
            run(command, cwd=REPOSITORY, env={**ZIG_CACHE, "ONNXLET_WHEEL": kind})
        (made,) = fresh.glob("*.whl")
        index_wheel.add(made, venv.python())
        if kind == "pure":
            short_names.apply(made)
        wheel = folder / made.name
        for old in folder.glob("*.whl"):
            if old != wheel:
                old.unlink()
        os.replace(made, wheel)  # in one go: a server may be reading the old one
        fresh.rmdir()
        stamp.write_text(key)
    return wheel


def packed(wheel: Path, folder: Path) -> Path:
    """The packed form of a pure wheel, in `folder`."""
    result = folder / wheel.name
    stamp, key = folder / "packed", tree_hash([wheel, Path(pack_wheel.__file__)], skip=())
    with exclusive(WHEELS / f"{folder.name}.lock"):
        if not result.exists() or not stamp.exists() or stamp.read_text() != key:
            folder.mkdir(exist_ok=True)
            for old in folder.glob("*.whl"):
                if old != result:
                    old.unlink()
            pack_wheel.pack(wheel, result)
            stamp.write_text(key)
            say(f"    {result.name}: {megabytes(result.stat().st_size)}")
    return result


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Let one process at a time through: tests run in several. (Windows has no `flock`: there, one process it is.)"""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def build_bytecode(version: str = pyodide.PINNED) -> Path:
    """The pure wheel in bytecode for one Pyodide release, packed.

    pyodide-build makes it where the machine has a Python of that version; else it is compiled inside that Pyodide.
    """
    wheel = build_unpacked()
    folder = WHEELS / f"bytecode-{version}-unpacked"
    stamp, key = folder / "sources", f"{wheel.name} {tree_hash([wheel], skip=())}"
    with exclusive(WHEELS / f"{folder.name}.lock"):
        if not stamp.exists() or stamp.read_text() != key:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            _compile(wheel, version, folder)
            stamp.write_text(key)
    (compiled,) = folder.glob("*.whl")
    return packed(compiled, WHEELS / f"bytecode-{version}")


def _compile(wheel: Path, version: str, folder: Path) -> None:
    """Write the bytecode form of a wheel, without the columns of its lines: no page shows them."""
    release = pyodide.RELEASES[version]
    if any(f"cp{major}{minor}" == release.python for (major, minor), _ in pyodide_build.pythons()):
        program = pyodide_build.command(release.python)
        shutil.copy(wheel, folder)
        with step(f"Compiling the wheel's modules for Pyodide {version} (pyodide py-compile)"):
            run([program, "py-compile", "--silent", folder / wheel.name], env={"PYTHONNODEBUGRANGES": "1"})
    else:
        core = pyodide.core(version)
        script = Path(__file__).with_name("bytecode.mjs")
        program = downloads.node()
        with step(f"Compiling the wheel's modules inside Pyodide {version}"):
            run([program, script, core, wheel, folder])


def build_with_pyodide() -> Path:
    """The wheel that `pyodide build` makes of the checkout.

    Raises `SetupError` that names Pyodide's cross-build environment where that can't be downloaded.
    """
    folder = WHEELS / "pyodide-build"
    program = pyodide_build.command()
    shutil.rmtree(folder, ignore_errors=True)
    env = {**ZIG_CACHE, "PATH": f"{program.parent}{os.pathsep}{os.environ.get('PATH', '')}"}
    try:
        with step("Building with pyodide build"):
            run([program, "build", REPOSITORY, "--outdir", folder], cwd=REPOSITORY, env=env)
    except SetupError as error:
        if re.search(
            r"pyodide-cross-build-environments|Failed to resolve|ConnectionError|ProxyError|URLError", str(error)
        ):
            raise SetupError(
                "pyodide build downloads Pyodide's cross-build environment from pyodide.github.io, which can't be "
                "reached from here. The pure wheel needs none of it: python3 scripts/wheel.py"
            ) from None
        raise
    (wheel,) = folder.glob("*.whl")
    return wheel


def kernels_in(wheel: Path) -> list[str]:
    """The compiled files that a wheel carries; none is an error."""
    with zipfile.ZipFile(wheel) as archive:
        found = [name for name in archive.namelist() if name.startswith("onnxlet_wasm/lib/")]
    if not {"onnxlet_wasm/lib/kernels.wasm", pack_wheel.KERNELS} & set(found):
        raise SetupError(f"{wheel.name} carries no kernels.")
    return found
