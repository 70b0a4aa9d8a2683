"""Fetching models, and the files beside them, from URLs, with progress and a persistent cache.

In a page the bytes stay in JavaScript's memory (a `JsSource`), so that weights can go from there to the kernels'
memory without a stay in Python's heap; the cache is the browser's Cache Storage. On a desktop the cache is a folder,
and the model is mapped from it. A cached copy is used when the server still names the same version of it (ETag,
modification date or size), or can't be reached.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Mapping
from inspect import isawaitable
from typing import Any

from .errors import ExternalDataError, ModelError
from .model.external import entry, locations
from .model.loader import read_proto
from .model.sources import JsSource, as_source, file_source
from .model.wire import Message

Progress = Callable[[str, int, int | None], None]

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
        from . import download_desktop  # not above: a page would wait for a tenth of Python's library

        return await asyncio.to_thread(download_desktop.fetch, url, report, cache)
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
            value = _beside(base, name)
        if value is not None:
            try:
                files[name] = await _waited_for(value, progress, cache)
            except Exception as error:  # of the network, of a page's files, or of what was awaited
                raise ExternalDataError(f"external data file {name!r}: {error}") from error
    return files or given, proto


def _beside(base: str, name: str) -> str:
    from urllib.parse import quote, urljoin

    return urljoin(base, quote(name))


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
