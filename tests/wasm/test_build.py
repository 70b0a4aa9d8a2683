"""Compiling the kernels."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from onnxlet_wasm import build
from onnxlet_wasm.browser import MEMORY_IMPORT, SHARED, UNSHARED, _with_memory
from onnxlet_wasm.engine import Engine


def test_the_sources_name_the_kernels(engine):
    assert build.kernel_names() == list(engine.fields)


def test_both_modules_and_the_native_library(tmp_path):
    files = build.build(tmp_path)
    suffix = {"darwin": "dylib", "win32": "dll"}.get(sys.platform, "so")
    assert {"kernels.wasm", "kernels-plain.wasm", f"kernels.{suffix}"} <= {f.name for f in files}
    assert {f.name for f in tmp_path.iterdir()} == {f.name for f in files}
    for module in (f for f in files if f.suffix == ".wasm"):
        assert module.read_bytes().startswith(b"\0asm\x01\0\0\0")


def test_what_did_not_change_is_not_compiled_again(tmp_path, monkeypatch):
    first = build.build(tmp_path, ["wasm"])
    before = [(f.stat().st_mtime_ns, f.read_bytes()) for f in first]

    def fail(*_):
        raise AssertionError("compiled again")

    monkeypatch.setattr(build, "_compile", fail)
    again = build.build(tmp_path, ["wasm"])
    assert [(f.stat().st_mtime_ns, f.read_bytes()) for f in again] == before
    other = tmp_path / "other"
    assert [f.read_bytes() for f in build.build(other, ["wasm"])] == [content for _, content in before]


def test_a_missing_compiler_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(build.BuildError, match="pip install ziglang"):
        build.build(tmp_path)


def test_what_the_compiler_says_is_passed_on(tmp_path, monkeypatch):
    sources = tmp_path / "kernels"
    sources.mkdir()
    for name in ("kernel.h", "interpreter.c", "hot_loops.py"):
        (sources / name).write_bytes((build.SOURCES / name).read_bytes())
    (sources / "broken.c").write_text("KERNEL(broken, x) { no_such_function(); }\n")
    monkeypatch.setattr(build, "SOURCES", sources)
    monkeypatch.setattr(build, "CACHE", tmp_path / "cache")
    with pytest.raises(build.BuildError, match=r"broken\.c"):
        build.build(tmp_path / "lib", ["wasm"])
    (sources / "broken.c").write_text("KERNEL(twice, x) {}\nKERNEL(twice, x) {}\n")
    with pytest.raises(build.BuildError, match="defined more than once: twice"):
        build.build(tmp_path / "lib", ["wasm"])


def test_files_of_the_same_name_are_built_apart(tmp_path):
    with pytest.raises(build.BuildError, match="build them apart"):
        build.build(tmp_path, ["linux-x86_64", "linux-aarch64"])


def test_an_unknown_machine_is_named(monkeypatch):
    monkeypatch.setattr(build.platform, "machine", lambda: "mips")
    with pytest.raises(build.BuildError, match="mips"):
        build.native_target()


def test_a_module_serves_both_kinds_of_memory():
    module = (Path(build.LIB) / "kernels.wasm").read_bytes()
    assert module.count(MEMORY_IMPORT) == 1
    at = module.index(MEMORY_IMPORT) + len(MEMORY_IMPORT)
    for shared, flag in ((True, SHARED), (False, UNSHARED)):
        changed = _with_memory(module, shared)
        assert changed[at] == flag
        assert changed[:at] + changed[at + 1 :] == module[:at] + module[at + 1 :]


def test_without_a_library_the_reason_says_what_to_do(monkeypatch, tmp_path):
    from onnxlet_wasm import native

    monkeypatch.setattr(native, "LIB", tmp_path)
    native.load_library.cache_clear()
    try:
        assert "python -m onnxlet_wasm.build" in (Engine.available() or "")
    finally:
        native.load_library.cache_clear()
