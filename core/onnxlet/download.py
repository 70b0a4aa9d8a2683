"""Fetching models, and the files beside them, from URLs, with progress and a persistent cache.

In a page the bytes stay in JavaScript's memory (a `JsSource`), so that weights can go from there to the kernels'
memory without a stay in Python's heap; the cache is the browser's Cache Storage. On a desktop the cache is a folder,
and the model is mapped from it. A cached copy is used when the server still names the same version of it (ETag,
modification date or size), or can't be reached.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from inspect import isawaitable
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import quote, urljoin
from urllib.request import Request, urlopen

from .errors import ExternalDataError, ModelError
from .model.external import entry, locations
from .model.loader import read_proto
from .model.sources import JsSource, as_source, file_source
from .model.wire import Message

Progress = Callable[[str, int, int | None], None]

CHUNK = 1 << 20

FETCH_JS = """
async (url, useCache, progress) => {
  const same = (a, b) => {
    for (const header of ['etag', 'last-modified', 'content-length']) {
      const x = a.headers.get(header), y = b.headers.get(header);
      if (x && y) return x === y;
    }
    return false;
  };
  let store = null, kept = null;
  if (useCache && globalThis.caches) {
    // Cache Storage may be refused (private windows); the model is then downloaded every time.
    store = await caches.open('onnxlet-models').catch(() => null);
    kept = store && await store.match(url);
  }
  let response = null;
  if (kept) {
    const head = await fetch(url, {method: 'HEAD', cache: 'no-cache'}).catch(() => null);
    if (!head || (head.ok && same(head, kept))) response = kept;
  }
  const cached = response !== null;
  if (!cached) response = await fetch(url, {cache: useCache ? 'default' : 'no-store'});
  if (!response.ok) throw new Error(`the server answered ${response.status} ${response.statusText}`.trim());
  // A compressed answer's length is not the model's.
  const encoded = response.headers.has('content-encoding');
  const length = encoded ? null : Number(response.headers.get('content-length')) || null;
  const copy = !cached && store ? response.clone() : null;
  const saved = copy && store.put(url, copy).catch(() => null);
  let bytes = new Uint8Array(length ?? 1 << 20), done = 0;
  const reader = response.body.getReader();
  for (;;) {
    const {value, done: end} = await reader.read();
    if (end) break;
    if (done + value.length > bytes.length) {
      const larger = new Uint8Array(Math.max(2 * bytes.length, done + value.length));
      larger.set(bytes.subarray(0, done));
      bytes = larger;
    }
    bytes.set(value, done);
    done += value.length;
    progress(cached ? 'cache' : 'download', done, length);
  }
  await saved;
  return bytes.subarray(0, done);
}
"""


async def fetch(url: str, *, progress: Progress | None = None, cache: bool = True) -> Any:
    """Download `url` (http or https; in a page also a relative address) and return it as a source of bytes.

    `progress(stage, done, total)` is called with the stage ``"download"`` or ``"cache"`` and bytes; the total is
    `None` where the server does not tell it. Raises `ModelError` naming the URL if it can't be had.
    """
    report = progress or (lambda stage, done, total: None)
    try:
        if sys.platform == "emscripten":
            return await _fetch_in_page(url, report, cache)
        if not url.startswith(("http://", "https://")):
            raise ValueError("only http and https addresses can be fetched")
        return await asyncio.to_thread(_fetch_on_desktop, url, report, cache)
    except Exception as error:
        raise ModelError(f"{url} could not be downloaded: {error}") from error


async def gather_external(
    model: Any, given: Any, base: str | None, *, progress: Progress | None = None, cache: bool = True
) -> tuple[Any, Message | None]:
    """What finds the external data of a model whose files may have to be waited for, and the decoded model.

    `base` is the model's own address, if it has one: files that `given` does not name are fetched from beside it.
    `given` may be an address to fetch them from, or a mapping whose values are bytes, buffers, paths, addresses, and in
    a page also `Blob`s and file handles. Anything else goes through as it is.
    """
    if isinstance(given, str) and "://" in given:
        base, given = given.rstrip("/") + "/", None
    files = dict(given) if isinstance(given, Mapping) else {}
    if not (files or (given is None and base)):
        return given, None
    source = file_source(model) if isinstance(model, (str, os.PathLike)) else as_source(model)
    proto = read_proto(source)
    for name in locations(proto):
        value = entry(files, name)
        if value is None and base:
            value = urljoin(base, quote(name))
        if value is not None:
            try:
                files[name] = await _waited_for(value, progress, cache)
            except Exception as error:  # of the network, of a page's files, or of what was awaited
                raise ExternalDataError(f"external data file {name!r}: {error}") from error
    return files or given, proto


async def _waited_for(value: Any, progress: Progress | None, cache: bool) -> Any:
    """A file's bytes or path, where it is an address, a `Blob`, a file handle of a page, or an awaitable."""
    if isinstance(value, str) and ("://" in value or (sys.platform == "emscripten" and not os.path.exists(value))):
        return await fetch(value, progress=progress, cache=cache)
    if isinstance(value, (str, os.PathLike)):
        return value
    if isawaitable(value):
        value = await value
    if hasattr(value, "getFile"):
        value = await value.getFile()
    if hasattr(value, "arrayBuffer"):
        value = await value.arrayBuffer()
    return value


async def _fetch_in_page(url: str, report: Progress, cache: bool) -> JsSource:
    from pyodide.code import run_js  # type: ignore[import-not-found]
    from pyodide.ffi import create_proxy  # type: ignore[import-not-found]

    proxy = create_proxy(report)
    try:
        return JsSource(await run_js(FETCH_JS)(url, cache, proxy))
    finally:
        proxy.destroy()


def cache_folder() -> Path:
    """Where downloaded models are kept on a desktop: ``$XDG_CACHE_HOME/onnxlet`` or ``~/.cache/onnxlet``."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "onnxlet" / "models"


def _fetch_on_desktop(url: str, report: Progress, cache: bool) -> Path | bytes:
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
