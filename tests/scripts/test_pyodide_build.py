"""pyodide-build's part in the build: bytecode, the audit, the recipe's schema, and `pyodide build` itself."""

from __future__ import annotations

import lzma
import os
import shutil
import subprocess
import tomllib
import zipfile
from pathlib import Path

import pytest

from onnxlet.archive import unpacked
from provision import packaging, pyodide, pyodide_build, venv
from provision.console import SetupError
from tests.conftest import REPOSITORY, missing

RECIPE = REPOSITORY / "wasm" / "recipe" / "meta.yaml"


@pytest.fixture(scope="module")
def command() -> Path:
    try:
        return pyodide_build.command()
    except SetupError as error:
        missing(f"pyodide-build ({error})")


def call(command: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    path = f"{command.parent}{os.pathsep}{os.environ['PATH']}"  # it calls other commands of its environment
    words = [str(command), *map(str, arguments)]
    env = {**os.environ, "PATH": path, "COLUMNS": "1000"}
    return subprocess.run(words, env=env, capture_output=True, text=True)


def test_audit_finds_nothing_to_link(command: Path, tmp_path: Path) -> None:
    wheel = packaging.build_unpacked()
    refused = call(command, "auditwheel", "show", wheel)
    assert refused.returncode != 0
    assert "is not an emscripten wheel" in refused.stdout + refused.stderr, "a pure wheel fits every Pyodide"
    # Under an Emscripten tag it reads what is inside: the kernels ask for a memory, and for no function or library.
    tagged = tmp_path / "onnxlet-0.1.0-cp314-cp314-emscripten_5_0_3_wasm32.whl"
    shutil.copy(packaging.build_bytecode(), tagged)
    imports = call(command, "auditwheel", "imports", tagged)
    assert imports.returncode == 0, imports.stderr
    lines = [line.split() for line in imports.stdout.splitlines() if line.strip()]
    assert lines == [["onnxlet_wasm/lib/kernels.wasm:"], ["env", "MEMORY", "memory"]]


@pytest.mark.parametrize("name", ["kernels.wasm", "kernels-plain.wasm"])
def test_audit_of_the_kernels(command: Path, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(zipfile.ZipFile(packaging.build_wheel("native")).read(f"onnxlet_wasm/lib/{name}"))
    imports = call(command, "auditwheel", "imports", path)
    assert imports.returncode == 0, imports.stderr
    assert [line.split() for line in imports.stdout.splitlines()[1:]] == [["env", "MEMORY", "memory"]]
    exports = {line.split()[-1] for line in call(command, "auditwheel", "exports", path).stdout.splitlines()[1:]}
    assert {"run", "kernel_count", "kernel_description", "__stack_pointer"} <= exports


def test_recipe_fits_the_schema(command: Path) -> None:
    script = """
import sys
from pathlib import Path
try:
    from pyodide_build.recipe.spec import MetaConfig
except ImportError:  # before 0.26
    from pyodide_build.io import MetaConfig
recipe = MetaConfig.from_yaml(Path(sys.argv[1]))
print(recipe.package.name, recipe.package.version, Path(recipe.source.path).resolve(), *recipe.requirements.run)
"""
    python = command.with_name(venv.python().name)
    done = subprocess.run([python, "-c", script, str(RECIPE)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    version = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    assert done.stdout.split() == ["onnxlet", version, str(REPOSITORY), "numpy"]


def test_py_compile_makes_bytecode(command: Path, tmp_path: Path) -> None:
    wheel = packaging.build_unpacked()
    shutil.copy(wheel, tmp_path)
    done = call(command, "py-compile", tmp_path / wheel.name)
    assert done.returncode == 0, done.stderr
    (compiled,) = tmp_path.glob("*.whl")
    check_bytecode(compiled, wheel)


def test_bytecode_for_the_pinned_pyodide() -> None:
    wheel = packaging.build_wheel("pure")
    compiled = packaging.build_bytecode()
    tag = pyodide.RELEASES[pyodide.PINNED].python
    assert compiled.name == f"onnxlet-0.1.0-{tag}-none-any.whl"
    kernels = check_bytecode(compiled, wheel)
    assert [name for name in packaging.kernels_in(compiled) if name.endswith(".wasm")] == list(kernels)


def compiled_name(name: str) -> str:
    return name + "c" if name.endswith(".py") else name


def check_bytecode(compiled: Path, wheel: Path) -> dict[str, bytes]:
    """The same files, modules as bytecode, and kernels untouched; returns those that are there uncompressed, too."""
    before, after = zipfile.ZipFile(wheel), zipfile.ZipFile(compiled)
    more = {name: after.read(name) for name in set(after.namelist()) - set(map(compiled_name, before.namelist()))}
    assert sorted(after.namelist()) == sorted([*map(compiled_name, before.namelist()), *more])
    for name in after.namelist():
        if name.endswith("/modules.pack"):
            inner = [list(dict(unpacked(archive.read(name)))) for archive in (before, after)]
            assert inner[1] == list(map(compiled_name, inner[0]))
    (name,) = packaging.kernels_in(wheel)
    assert after.read(name) == before.read(name)
    for content in more.values():
        assert lzma.decompress(before.read(name)).startswith(content)
        assert content.startswith(b"\0asm")
    return more


def test_pyodide_build_in_a_closed_network_says_what_it_lacks(
    command: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # A proxy that refuses every connection, and no environment downloaded earlier.
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(SetupError, match=r"cross-build environment from pyodide\.github\.io.*can't be reached"):
        packaging.build_with_pyodide()
