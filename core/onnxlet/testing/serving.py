"""A server of one folder, for tests of pages."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

ISOLATION = {
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Cross-Origin-Resource-Policy": "cross-origin",
}
"""Headers that make a page cross-origin isolated, which shared memory and so threads need (HTML standard, 7.1.4)."""


class Handler(SimpleHTTPRequestHandler):
    """Files with the media types that browsers insist on, and nothing kept in caches."""

    extensions_map: ClassVar = {
        **SimpleHTTPRequestHandler.extensions_map,
        ".js": "text/javascript",
        ".mjs": "text/javascript",
        ".wasm": "application/wasm",
        ".onnx": "application/octet-stream",
    }

    def __init__(self, *arguments: object, isolated: bool, directory: str):
        self.isolated = isolated
        super().__init__(*arguments, directory=directory)  # type: ignore[arg-type]

    def end_headers(self) -> None:
        for name, value in (ISOLATION if self.isolated else {}).items():
            self.send_header(name, value)
        self.send_header("Cache-Control", "no-store")
        super().end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing: a test's output is its own."""


@contextmanager
def serving(folder: Path, isolated: bool = True) -> Iterator[str]:
    """Serve a folder on a free port of this machine; the value is its address, without a slash at the end."""
    handler = partial(Handler, isolated=isolated, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
