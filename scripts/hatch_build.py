"""The build hook: no wheel without compiled kernels.

`ONNXLET_WHEEL` says what the wheel is for:

- `pure`: WebAssembly kernels only, tagged `py3-none-any`: what every Pyodide installs. It is made slim
  (`slim_wheel.py`); `pack_wheel.py` packs it for pages.
- `native` (the default): these and the library for this machine, tagged for the machine's platform.
- a target of `onnxlet_wasm.build.TARGETS`, such as `macos-arm64`: the same for another platform, cross-compiled.

All but the pure one carry the JavaScript for web pages. Under `pyodide build` the default is `pure`.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PLATFORMS = {
    # The Linux libraries need no C library, so they run on glibc and musl alike.
    "linux-x86_64": "manylinux_2_17_x86_64.musllinux_1_1_x86_64",
    "linux-aarch64": "manylinux_2_17_aarch64.musllinux_1_1_aarch64",
    "macos-x86_64": "macosx_10_15_x86_64",
    "macos-arm64": "macosx_11_0_arm64",
    "windows-x86_64": "win_amd64",
}


class KernelBuildHook(BuildHookInterface):
    """Compiles the kernels before a wheel is put together and adds them to it; an error ends the build."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        self.slim = False
        root = Path(self.root)
        kernels = _load(root / "wasm" / "onnxlet_wasm" / "build.py")
        os.environ.setdefault("ZIG_GLOBAL_CACHE_DIR", str(root / "build" / "zig"))
        if version == "editable":
            kernels.build()  # into the package itself
            return
        for_pyodide = "PYODIDE" in os.environ or os.environ.get("_PYTHON_HOST_PLATFORM", "").startswith("emscripten")
        kind = os.environ.get("ONNXLET_WHEEL") or ("pure" if for_pyodide else "native")
        if kind == "native":
            kind = kernels.native_target()
        targets = ["wasm"]
        if kind != "pure":
            if kind not in PLATFORMS:
                raise ValueError(f"ONNXLET_WHEEL={kind}: it is pure, native or one of {', '.join(PLATFORMS)}")
            targets.append(kind)
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{PLATFORMS[kind]}"
        self.slim = kind == "pure"
        files = kernels.build(root / "build" / "kernels" / f"for-{kind}", targets)
        if self.slim:
            files = [_in_one(files)]
        build_data["force_include"][str(root / "wasm" / "web")] = "onnxlet_wasm/web"
        for file in files:
            build_data["force_include"][str(file)] = f"onnxlet_wasm/lib/{file.name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if self.slim:
            _load(Path(self.root) / "scripts" / "slim_wheel.py").slim(Path(artifact_path))


def _in_one(files: list[Path]) -> Path:
    """The builds of the kernels, one after the other and compressed: the second repeats most of the first.

    The header tells the length, which Python leaves out.
    """
    import lzma  # which some Pythons are built without

    content = b"".join(file.read_bytes() for file in files)
    best = {"id": lzma.FILTER_LZMA1, "preset": 9 | lzma.PRESET_EXTREME, "pb": 0, "nice_len": 273, "depth": 1000}
    packed = lzma.compress(content, lzma.FORMAT_ALONE, filters=[best])
    result = files[0].with_name("kernels.lzma")
    result.write_bytes(packed[:5] + len(content).to_bytes(8, "little") + packed[13:])
    return result


def _load(path: Path) -> ModuleType:
    """Import a file by its path: those of `onnxlet_wasm` are in a package that needs more than a build brings."""
    spec = importlib.util.spec_from_file_location(f"onnxlet_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
