"""The demo's model: magika, which tells a file's type from its bytes."""

from __future__ import annotations

from pathlib import Path

from . import downloads
from .paths import cache

VERSION = "1.0.3"
_INSIDE = "magika/models/standard_v3_3"
_FILES = {
    "model.onnx": (f"{_INSIDE}/model.onnx", "fe2d2eb49c5f88a9e0a6c048e15d6ffdf86235519c2afc535044de433169ec8c"),
    "config.json": (f"{_INSIDE}/config.min.json", "ae24c742205358f6ff6dfd5facb6743fb69743dbba8373e73da58ff0cbd695db"),
    "types.json": (
        "magika/config/content_types_kb.min.json",
        "75208adba69bc0556403b62b32ef3ccf8b5ce494411780845852e52e6583a10d",
    ),
}


def magika() -> Path:
    """The folder with `model.onnx`, `config.json` (labels, thresholds, sizes) and `types.json` (labels for people)."""
    folder = cache() / "models" / f"magika-{VERSION}"
    if not downloads.complete(folder, {name: wanted for name, (_, wanted) in _FILES.items()}):
        downloads.from_wheel(f"magika=={VERSION}", "16 MB", _FILES, folder, platform="manylinux_2_28_x86_64")
    return folder
