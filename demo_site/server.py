"""Serves the assembled site: a folder of static files with the headers that WebAssembly threads and caches need."""

from __future__ import annotations

import re
from pathlib import Path

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import Route

MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".ico": "image/x-icon",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".mjs": "text/javascript; charset=utf-8",
    ".onnx": "application/octet-stream",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".wasm": "application/wasm",
    ".whl": "application/zip",
    ".zip": "application/zip",
}

FIXED = re.compile(r"^(pyodide/[\d.]+/(?!onnxlet|pyodide-lock)|models/[^/]+-[\d.]+/)")
"""Files that never change under their path: those of a pinned release. All others are asked for anew by their ETag."""

ISOLATION = {
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
}


def create_app(site: Path, isolated: bool = True) -> Starlette:
    """The application that serves the folder `site`.

    `isolated` pages get the two headers that make them cross-origin isolated, which shared memory and so threads
    need. Files may be read by pages of other origins: that is how `micropip.install(URL of our wheel)` works there.
    """
    root = site.resolve()

    async def file(request: Request) -> Response:
        path = request.path_params["path"]
        target = (root / path).resolve()
        if target.is_dir():
            if path and not path.endswith("/"):
                return Response(status_code=308, headers={"Location": f"/{path}/"})
            target = target / "index.html"
        if not target.is_relative_to(root) or not target.is_file():
            return PlainTextResponse(f"There is no {request.url.path} here.\n", status_code=404)
        return serve(target, root, request.headers, isolated)

    return Starlette(routes=[Route("/{path:path}", file, methods=["GET"])])


def serve(target: Path, root: Path, wanted: Headers, isolated: bool) -> Response:
    """One file, its compressed twin where there is one and the browser takes it, or word that it has not changed."""
    name = target.relative_to(root).as_posix()
    headers = {
        "Cache-Control": "public, max-age=31536000, immutable" if FIXED.match(name) else "no-cache",
        "Cross-Origin-Resource-Policy": "cross-origin",
        "Access-Control-Allow-Origin": "*",
        "X-Content-Type-Options": "nosniff",
        **(ISOLATION if isolated else {}),
    }
    media_type = MEDIA_TYPES.get(target.suffix, "application/octet-stream")
    compressed = target.with_name(target.name + ".gz")
    if compressed.is_file():
        headers["Vary"] = "Accept-Encoding"
        if "gzip" in wanted.get("accept-encoding", "") and "range" not in wanted:
            target = compressed
            headers["Content-Encoding"] = "gzip"
    state = target.stat()
    headers["ETag"] = f'"{state.st_mtime_ns:x}-{state.st_size:x}"'
    if wanted.get("if-none-match") == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    return FileResponse(target, media_type=media_type, headers=headers)
