"""Where things lie."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
BUILD = REPOSITORY / "build"
SITE = BUILD / "site"
WHEELS = BUILD / "wheels"
VENV = REPOSITORY / ".venv"


def cache() -> Path:
    """The folder of everything downloaded: `$ONNXLET_CACHE`, else `build/cache`."""
    return Path(os.environ.get("ONNXLET_CACHE") or BUILD / "cache")


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def tree_hash(folders: Iterable[Path], skip: Iterable[str] = ("__pycache__", "lib")) -> str:
    """One hash over names and contents of all files below `folders` (or of files given themselves)."""
    ignored = set(skip)
    total = hashlib.sha256()
    for folder in folders:
        for path in sorted(folder.rglob("*")) if folder.is_dir() else [folder]:
            if path.is_file() and not ignored & set(path.relative_to(REPOSITORY).parts):
                total.update(f"{path.relative_to(REPOSITORY)}\0".encode())
                total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()
