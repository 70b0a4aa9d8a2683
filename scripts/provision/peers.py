"""Other engines, to compare with."""

from __future__ import annotations

from pathlib import Path

from . import downloads
from .paths import cache

ONNXRUNTIME_WEB = "1.30.0"
_FILES = {
    "dist/ort.wasm.min.mjs": "219e6a1fc8a9938268d18efca3c91d310bd2f4a59bbd13744df5b2b7fc6cee3b",
    "dist/ort-wasm-simd-threaded.mjs": "e13f7f94fc51b4ca72b12faeb1ee95f4ace6dfbc8939bc718aabdc0a27c4299b",
    "dist/ort-wasm-simd-threaded.wasm": "3398c10d07d229bd91b364548e130e0e51a8e5704b88c7c083ebbeb78842dee2",
}


def onnxruntime_web() -> Path:
    """The folder with `dist/`: onnxruntime-web's module for pages and its WebAssembly."""
    folder = cache() / f"onnxruntime-web-{ONNXRUNTIME_WEB}"
    if not downloads.complete(folder, _FILES):
        downloads.from_npm(f"onnxruntime-web@{ONNXRUNTIME_WEB}", "33 MB", _FILES, folder)
    return folder
