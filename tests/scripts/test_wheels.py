"""Wheels carry their kernels, whichever way they are built, and a build without kernels fails."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import index_wheel
import pytest
import wheel as wheel_script

from provision import packaging
from tests.conftest import REPOSITORY

PURE = {"onnxlet_wasm/lib/kernels.lzma"}
WEBASSEMBLY = {"onnxlet_wasm/lib/kernels.wasm", "onnxlet_wasm/lib/kernels-plain.wasm"}
JAVASCRIPT = {
    f"onnxlet_wasm/web/{name}" for name in ("onnxlet.mjs", "onnxlet.d.mts", "tensor.mjs", "worker.mjs", "boot.mjs")
}
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "core", "wasm", "webgpu")
SCRIPTS = ("scripts/hatch_build.py", "scripts/slim_wheel.py")


def build(project: Path, target: str, output: Path, kind: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **packaging.ZIG_CACHE, "ONNXLET_WHEEL": kind}
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(output)]
    return subprocess.run(command, cwd=project, env=env, capture_output=True, text=True)


def test_pure_wheel() -> None:
    wheel = packaging.build_wheel("pure")
    assert wheel.name == "onnxlet-0.1.0-py3-none-any.whl"
    assert set(packaging.kernels_in(wheel)) == PURE
    names = zipfile.ZipFile(wheel).namelist()
    assert {"onnxlet/__init__.py", "onnxlet_wasm/__init__.py", "onnxlet_webgpu/__init__.py"} <= set(names)
    assert not set(names) & JAVASCRIPT
    assert not [name for name in names if name.endswith((".c", ".h", ".pyc"))]


def test_pure_wheel_keeps_its_budget() -> None:
    assert packaging.build_wheel("pure").stat().st_size < wheel_script.BUDGET


def test_wheel_of_this_machine() -> None:
    wheel = packaging.build_wheel("native")
    native = {name for name in packaging.kernels_in(wheel) if not name.endswith(".wasm")}
    assert set(packaging.kernels_in(wheel)) == WEBASSEMBLY | native
    assert native
    assert set(zipfile.ZipFile(wheel).namelist()) >= JAVASCRIPT
    assert wheel.name.startswith("onnxlet-0.1.0-py3-none-")
    assert not wheel.name.endswith("-any.whl")
    metadata = zipfile.ZipFile(wheel).read("onnxlet-0.1.0.dist-info/WHEEL").decode()
    assert "Root-Is-Purelib: false" in metadata


@pytest.mark.slow
@pytest.mark.parametrize("target", ["linux-aarch64", "macos-arm64", "windows-x86_64"])
def test_wheels_of_other_platforms(target: str) -> None:
    suffix = {"linux": ".so", "macos": ".dylib", "windows": ".dll"}[target.split("-")[0]]
    found = packaging.kernels_in(packaging.build_wheel(target))
    assert set(found) > WEBASSEMBLY
    assert {Path(name).suffix for name in set(found) - WEBASSEMBLY} == {suffix}


def test_wheel_from_an_sdist(tmp_path: Path) -> None:
    done = build(REPOSITORY, "sdist", tmp_path, "pure")
    assert done.returncode == 0, done.stderr
    (sdist,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # from Python 3.11.4 on
        archive.extractall(tmp_path)
    project = tmp_path / sdist.name.removesuffix(".tar.gz")
    assert not list(project.glob("**/*.wasm")), "the sdist holds sources, not what they compile to"
    done = build(project, "wheel", tmp_path, "pure")
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    assert set(packaging.kernels_in(wheel)) == PURE
    ours = set(zipfile.ZipFile(packaging.build_unpacked()).namelist())
    assert set(zipfile.ZipFile(wheel).namelist()) == ours - {index_wheel.MODULE}


def test_no_wheel_without_kernels(tmp_path: Path) -> None:
    project = tmp_path / "onnxlet"
    for name in (*SOURCES, *SCRIPTS):
        source, target = REPOSITORY / name, project / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "lib"))
        else:
            shutil.copy(source, target)
    (project / "wasm" / "kernels" / "broken.c").write_text("this is no C\n")
    done = build(project, "wheel", tmp_path / "dist", "pure")
    assert done.returncode != 0
    assert "broken.c" in done.stderr
    assert not list(tmp_path.glob("dist/*.whl"))


def test_unknown_kind_of_wheel_is_an_error(tmp_path: Path) -> None:
    done = build(REPOSITORY, "wheel", tmp_path, "amiga")
    assert done.returncode != 0
    assert "ONNXLET_WHEEL=amiga" in done.stderr
