"""Other engines, to compare with."""

from __future__ import annotations

from pathlib import Path

from . import downloads, venv
from .console import step
from .paths import BUILD, cache

ONNXRUNTIME_WEB = "1.30.0"
JAX_JS = ("@jax-js/jax@0.1.25", "@jax-js/onnx@0.1.2", "onnx-buf@1.20.0-1", "@bufbuild/protobuf@2.17.0")
"""jax-js with its reader of ONNX, and what that needs."""

ONNXRUNTIME_WEBGPU = "1.27.0"

_FILES = {
    "dist/ort.wasm.min.mjs": "219e6a1fc8a9938268d18efca3c91d310bd2f4a59bbd13744df5b2b7fc6cee3b",
    "dist/ort-wasm-simd-threaded.mjs": "e13f7f94fc51b4ca72b12faeb1ee95f4ace6dfbc8939bc718aabdc0a27c4299b",
    "dist/ort-wasm-simd-threaded.wasm": "3398c10d07d229bd91b364548e130e0e51a8e5704b88c7c083ebbeb78842dee2",
}

_WEBGPU_FILES = {
    "dist/ort.webgpu.bundle.min.mjs": "0730816731ce2cdfb06f273da065d4a1c7091eb9d1756a83b2916c8a89d015e2",
    "dist/ort.webgpu.min.mjs": "3dffff71811bc13a3a3d9591c57ca5ee5735b8f5f3eaf789510b02bb040ae3a0",
    "dist/ort-wasm-simd-threaded.asyncify.mjs": "3d1c85995364bb643302fc6fd877a0c3ba5ae72401815e0f24828a53d9191e28",
    "dist/ort-wasm-simd-threaded.asyncify.wasm": "39f9f0894d478800487ed9f7dbe92618498db320cf55c8e3d89adff8dce658da",
}


def onnxruntime_web(webgpu: bool = False) -> Path:
    """The folder with `dist/`: onnxruntime-web's module for pages and its WebAssembly; with `webgpu` also those that
    have that provider."""
    suffix, files = ("-webgpu", _FILES | _WEBGPU_FILES) if webgpu else ("", _FILES)
    folder = cache() / f"onnxruntime-web-{ONNXRUNTIME_WEB}{suffix}"
    if not downloads.complete(folder, files):
        downloads.from_npm(f"onnxruntime-web@{ONNXRUNTIME_WEB}", "33 MB", files, folder)
    return folder


def onnxruntime_webgpu() -> Path:
    """The interpreter of an environment of its own with onnxruntime-webgpu: it is called onnxruntime there too.

    Raises `SetupError` where there is no wheel for this machine.
    """
    folder = BUILD / "peers" / f"onnxruntime-webgpu-{ONNXRUNTIME_WEBGPU}"
    interpreter = venv.create(folder)
    if not (folder / "complete").exists():
        with step(f"Installing onnxruntime-webgpu {ONNXRUNTIME_WEBGPU} from PyPI (60 MB)"):
            venv.pip(["install", "--quiet", f"onnxruntime-webgpu=={ONNXRUNTIME_WEBGPU}"], folder)
        (folder / "complete").touch()
    return interpreter


def jax_js() -> Path:
    """The folder with `node_modules/`: jax-js and what it needs, checked by npm."""
    folder = BUILD / "peers" / "-".join(["jax-js", *(package.rsplit("@", 1)[1] for package in JAX_JS)])
    if not (folder / "node_modules").exists():
        folder.mkdir(parents=True, exist_ok=True)
        with step(f"Downloading {', '.join(JAX_JS)} from npm (2 MB)"):
            downloads.npm(["install", "--silent", "--no-save", "--ignore-scripts", "--prefix", folder, *JAX_JS], folder)
    return folder
