"""What pages are built with, and other people's JavaScript that runs models: for tests of the JavaScript API."""

from __future__ import annotations

from pathlib import Path

from . import downloads
from .console import step
from .paths import BUILD, cache

PACKAGES = ("onnxruntime-common@1.30.0", "vite@8.4.0", "esbuild@0.28.2", "typescript@7.0.2")
TRANSFORMERS = "4.3.2"

_FILES = {
    "dist/transformers.min.js": "8b5a3171f8876bab2b1820a7d65eb87628e3d30bb5ea85b9dd398e76eb34decb",
    "dist/transformers.web.min.js": "ecaf2c7dce4bcbe882d1ec6e67c2f537720e0e47169e5f7e60f2c019fba91682",
}


def packages() -> Path:
    """The folder with `node_modules/`: onnxruntime's types and tensors, two bundlers and TypeScript, checked by npm."""
    folder = BUILD / "peers" / "-".join(["javascript", *(package.rsplit("@", 1)[1] for package in PACKAGES)])
    if not (folder / "node_modules").exists():
        folder.mkdir(parents=True, exist_ok=True)
        with step(f"Downloading {', '.join(PACKAGES)} from npm (30 MB)"):
            downloads.npm(
                ["install", "--silent", "--no-save", "--ignore-scripts", "--prefix", folder, *PACKAGES], folder
            )
    return folder


def transformers() -> Path:
    """The folder with `dist/`: transformers.js for pages, with onnxruntime-web's JavaScript in it and without."""
    folder = cache() / f"transformers.js-{TRANSFORMERS}"
    if not downloads.complete(folder, _FILES):
        downloads.from_npm(f"@huggingface/transformers@{TRANSFORMERS}", "14 MB", _FILES, folder)
    return folder
