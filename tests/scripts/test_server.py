"""What the site's server says with each file."""

from __future__ import annotations

import gzip
import urllib.error
import urllib.request
from collections.abc import Iterator
from email.message import Message
from pathlib import Path

import pytest

from demo_site.server import create_app
from demo_site.serving import running

FILES = {
    "index.html": b"<!doctype html>",
    "onnxlet/onnxlet.mjs": b"export {};" * 200,
    "onnxlet-0.1.0-py3-none-any.whl": b"PK",
    "pyodide/314.0.3/pyodide.asm.wasm": b"\0asm" * 1000,
    "pyodide/314.0.3/pyodide-lock.json": b"{}",
    "pyodide/314.0.3/onnxlet-0.1.0-cp314-none-any.whl": b"PK",
    "models/magika-1.0.3/model.onnx": b"onnx",
    "style.css": b"a {}",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    root = tmp_path_factory.mktemp("files") / "site"
    for name, content in FILES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    for name in ("onnxlet/onnxlet.mjs", "pyodide/314.0.3/pyodide.asm.wasm"):
        (root / f"{name}.gz").write_bytes(gzip.compress(FILES[name]))
    (root.parent / "secret.txt").write_text("not for the web")
    with running(create_app(root)) as url:
        yield url


def get(url: str, **headers: str) -> tuple[int, Message, bytes]:
    request = urllib.request.Request(url, headers={name.replace("_", "-"): value for name, value in headers.items()})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, error.read()


@pytest.mark.parametrize(
    ("path", "media_type"),
    [
        ("/", "text/html; charset=utf-8"),
        ("/onnxlet/onnxlet.mjs", "text/javascript; charset=utf-8"),
        ("/pyodide/314.0.3/pyodide.asm.wasm", "application/wasm"),
        ("/pyodide/314.0.3/pyodide-lock.json", "application/json"),
        ("/onnxlet-0.1.0-py3-none-any.whl", "application/zip"),
        ("/models/magika-1.0.3/model.onnx", "application/octet-stream"),
        ("/style.css", "text/css; charset=utf-8"),
    ],
)
def test_media_types(site: str, path: str, media_type: str) -> None:
    status, headers, body = get(site + path)
    assert status == 200
    assert headers["Content-Type"] == media_type
    assert body == FILES[path.lstrip("/") or "index.html"]


def test_pages_are_cross_origin_isolated_and_files_usable_elsewhere(site: str) -> None:
    _, headers, _ = get(site + "/")
    assert headers["Cross-Origin-Opener-Policy"] == "same-origin"
    assert headers["Cross-Origin-Embedder-Policy"] == "require-corp"
    assert headers["Cross-Origin-Resource-Policy"] == "cross-origin"
    assert headers["Access-Control-Allow-Origin"] == "*"


def test_isolation_can_be_left_out(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("hello")
    with running(create_app(tmp_path, isolated=False)) as url:
        _, headers, _ = get(url + "/")
    assert "Cross-Origin-Embedder-Policy" not in headers
    assert "Cross-Origin-Opener-Policy" not in headers


@pytest.mark.parametrize(
    ("path", "fixed"),
    [
        ("/pyodide/314.0.3/pyodide.asm.wasm", True),
        ("/models/magika-1.0.3/model.onnx", True),
        ("/pyodide/314.0.3/pyodide-lock.json", False),
        ("/pyodide/314.0.3/onnxlet-0.1.0-cp314-none-any.whl", False),
        ("/onnxlet-0.1.0-py3-none-any.whl", False),
        ("/", False),
    ],
)
def test_only_files_of_pinned_releases_are_kept_unasked(site: str, path: str, fixed: bool) -> None:
    _, headers, _ = get(site + path)
    assert headers["Cache-Control"] == ("public, max-age=31536000, immutable" if fixed else "no-cache")


def test_an_unchanged_file_is_not_sent_again(site: str) -> None:
    _, headers, _ = get(site + "/style.css")
    status, _, body = get(site + "/style.css", If_None_Match=headers["ETag"])
    assert (status, body) == (304, b"")


def test_compressed_twins(site: str) -> None:
    _, headers, body = get(site + "/pyodide/314.0.3/pyodide.asm.wasm", Accept_Encoding="gzip, br")
    assert headers["Content-Encoding"] == "gzip"
    assert headers["Content-Type"] == "application/wasm"
    assert headers["Vary"] == "Accept-Encoding"
    assert gzip.decompress(body) == FILES["pyodide/314.0.3/pyodide.asm.wasm"]
    _, headers, _ = get(site + "/style.css", Accept_Encoding="gzip")
    assert "Content-Encoding" not in headers


@pytest.mark.parametrize("path", ["/missing.html", "/../secret.txt", "/%2e%2e/secret.txt", "/..%2fsecret.txt"])
def test_nothing_else_is_served(site: str, path: str) -> None:
    status, _, body = get(site + path)
    assert status == 404
    assert b"not for the web" not in body
