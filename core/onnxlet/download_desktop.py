"""Fetching a model on a desktop: what `download` does there."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

from .download import Progress

CHUNK = 1 << 20


def cache_folder() -> Path:
    """Where downloaded models are kept on a desktop: ``$XDG_CACHE_HOME/onnxlet`` or ``~/.cache/onnxlet``."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "onnxlet" / "models"


def fetch(url: str, report: Progress, cache: bool) -> Path | bytes:
    """Download a model, or find it in the cache: its path, or its bytes where it is not to be kept."""
    folder = cache_folder()
    path = folder / (hashlib.sha256(url.encode()).hexdigest() + ".onnx")
    noted = path.with_suffix(".json")
    if cache and path.exists() and noted.exists() and _still_current(url, json.loads(noted.read_text())):
        report("cache", path.stat().st_size, path.stat().st_size)
        return path
    with urlopen(url, timeout=60) as response:
        total = int(response.headers["Content-Length"]) if response.headers["Content-Length"] else None
        version = _version(response.headers)
        if not cache:
            return b"".join(_chunks(response, report, total))
        folder.mkdir(parents=True, exist_ok=True)
        # Written aside and moved into place: a broken download never looks like a model.
        with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
            try:
                for chunk in _chunks(response, report, total):
                    file.write(chunk)
            except BaseException:
                file.close()
                os.unlink(file.name)
                raise
    os.replace(file.name, path)
    noted.write_text(json.dumps(version))
    return path


def _chunks(response: Any, report: Progress, total: int | None) -> Any:
    done = 0
    while chunk := response.read(CHUNK):
        done += len(chunk)
        report("download", done, total)
        yield chunk
    if total is not None and done != total:
        raise ValueError(f"the connection ended after {done} of {total} bytes")


def _version(headers: Any) -> dict[str, str]:
    names = ("ETag", "Last-Modified", "Content-Length")
    return {name: headers[name] for name in names if headers[name]}


def _still_current(url: str, version: dict[str, str]) -> bool:
    try:
        with urlopen(Request(url, method="HEAD"), timeout=10) as response:
            now = _version(response.headers)
    except (URLError, OSError):
        return True
    return next((now[name] == version[name] for name in now if name in version), False)
