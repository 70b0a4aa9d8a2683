"""Headless Chromium for the tests: pages of the site, and Python snippets in Pyodide.

Playwright lives on a thread with an event loop of its own, so that it disturbs no other test's loop.
"""

from __future__ import annotations

import asyncio
import base64
import io
import itertools
import json
import textwrap
import threading
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from playwright.async_api import Browser, Page, Playwright, async_playwright
from playwright.async_api import Error as PlaywrightError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Route

from demo_site.server import create_app
from demo_site.serving import running
from provision import browser as chromium
from provision.packaging import build_wheel
from provision.paths import BUILD, REPOSITORY, SITE
from provision.pyodide import PINNED

T = TypeVar("T")

PAGES = REPOSITORY / "tests" / "browser" / "pages"
# Nothing takes that long: they end what hangs, on a machine that does much else at the same time too.
BOOT_SECONDS = 400
SNIPPET_SECONDS = 400


class SnippetError(AssertionError):
    """An exception in a Python snippet: `types` are the class names from its own to `BaseException`."""

    def __init__(self, types: list[str], message: str, traceback: str):
        super().__init__(f"{types[0]}: {message}\n\nIn Pyodide:\n{traceback}")
        self.types = types
        self.message = message


class Blobs:
    """Bytes and files handed to pages over HTTP: models of tens of megabytes travel as they do for users."""

    def __init__(self) -> None:
        self.contents: dict[str, bytes | Path] = {}
        self._numbers = itertools.count()

    def put(self, content: bytes | Path) -> str:
        name = f"{next(self._numbers)}"
        self.contents[name] = content
        return f"/blobs/{name}"

    async def get(self, request: Request) -> Response:
        content = self.contents.get(request.path_params["name"])
        if content is None:
            return Response(status_code=404)
        return FileResponse(content) if isinstance(content, Path) else Response(content)


class Chromium:
    """A running browser, and two servers of the same files: one makes pages cross-origin isolated, one does not."""

    def __init__(self, executable: str):
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.blobs = Blobs()
        wheel = build_wheel("pure")
        self._wheel_name, self._wheel = wheel.name, wheel.read_bytes()  # one wheel for the whole run
        self._servers = {isolated: running(self._app(isolated)) for isolated in (True, False)}
        self.urls = {isolated: server.__enter__() for isolated, server in self._servers.items()}
        self._executable = executable
        self._others: dict[tuple[str, ...], Browser] = {}
        self._playwright, self._browser = self.call(self._launch())
        self._hosts: dict[tuple[object, ...], PyodideHost] = {}

    def _app(self, isolated: bool) -> Starlette:
        return Starlette(
            routes=[
                Route("/blobs/{name:path}", self.blobs.get),
                Mount("/harness", create_app(PAGES, isolated)),
                Mount("/pyodides", create_app(BUILD / "pyodide", isolated)),
                Route("/wheels/{name}", self._serve_wheel),
                Mount("/data", create_app(REPOSITORY / "tests" / "data", isolated)),
                Mount("/", create_app(SITE, isolated)),
            ]
        )

    async def _serve_wheel(self, request: Request) -> Response:
        return Response(self._wheel, headers={"Cross-Origin-Resource-Policy": "cross-origin"})

    async def _launch(self) -> tuple[Playwright, Browser]:
        playwright = await async_playwright().start()
        flags = [*chromium.FLAGS, chromium.FAST_PIPELINES]
        return playwright, await playwright.chromium.launch(executable_path=self._executable, args=flags)

    async def _with_flags(self, flags: tuple[str, ...]) -> Browser:
        """Another browser, started with these flags alone."""
        if flags not in self._others:
            launch = self._playwright.chromium.launch(executable_path=self._executable, args=[*flags])
            self._others[flags] = await launch
        return self._others[flags]

    def call(self, coroutine: Coroutine[Any, Any, T], timeout: float = BOOT_SECONDS) -> T:
        """Run a coroutine on the browser's event loop and wait for its result; `TimeoutError` after `timeout` s."""
        return asyncio.run_coroutine_threadsafe(asyncio.wait_for(coroutine, timeout), self._loop).result()

    def visit(
        self,
        path: str,
        actions: Callable[[Page], Awaitable[T]],
        *,
        isolated: bool = True,
        timeout: float = BOOT_SECONDS,
        before: str = "",
        **context: Any,
    ) -> T:
        """Open a page of the site and run `actions(page)` on it, a coroutine function; returns its result.

        `before` is JavaScript that runs in the page ahead of its own; `context` goes to Playwright's `new_context`
        (`viewport`, `color_scheme`, ...). An error that nothing in the page catches fails the test.
        """

        async def whole() -> T:
            session = await self._browser.new_context(**context)
            page = await session.new_page()
            errors: list[str] = []
            page.on("pageerror", lambda error: errors.append(str(error)))
            if before:
                await page.add_init_script(before)
            try:
                await page.goto(self.urls[isolated] + path)
                result = await actions(page)
            finally:
                await session.close()
            assert not errors, f"uncaught in the page: {errors}"
            return result

        return self.call(whole(), timeout)

    def pyodide(
        self,
        *,
        worker: bool = True,
        isolated: bool = True,
        version: str = PINNED,
        before: str = "",
        wheel: bool = True,
        flags: tuple[str, ...] = (),
    ) -> PyodideHost:
        """A booted Pyodide with NumPy and onnxlet's pure wheel; the same arguments give the same one again.

        `worker` says whether Python runs in a Web Worker or on the page's main thread, `isolated` whether the page is
        cross-origin isolated. `before` is JavaScript that runs ahead of Pyodide, to take features away from the
        browser. Without `wheel` onnxlet is not installed. `flags` are those of another Chromium, if they are not the
        usual ones.
        """
        key = (worker, isolated, version, before, wheel, flags)
        if key not in self._hosts:
            options = {
                "worker": worker,
                "pyodide": f"{self.urls[isolated]}/pyodides/{version}/",
                "wheel": f"{self.urls[isolated]}/wheels/{self._wheel_name}" if wheel else None,
                "before": before,
            }
            self._hosts[key] = PyodideHost(self, lambda: self.call(self._boot(options, isolated, flags)), isolated)
        return self._hosts[key]

    async def _boot(self, options: dict[str, object], isolated: bool, flags: tuple[str, ...]) -> Page:
        browser = await self._with_flags(flags) if flags else self._browser
        page = await browser.new_page()
        await page.goto(f"{self.urls[isolated]}/harness/page.html")
        await page.wait_for_function("window.ready")
        await page.evaluate("options => window.start(options)", options)
        return page

    def close(self) -> None:
        async def stop() -> None:
            for browser in (self._browser, *self._others.values()):
                await browser.close()
            await self._playwright.stop()

        self.call(stop())
        for server in self._servers.values():
            server.__exit__(None, None, None)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class PyodideHost:
    """Pyodide in a page of the browser."""

    def __init__(self, chromium: Chromium, boot: Callable[[], Page], isolated: bool):
        self.chromium = chromium
        self.page = boot()
        self.isolated = isolated
        self._boot = boot

    def run_python(self, code: str, *, timeout: float = SNIPPET_SECONDS, **inputs: Any) -> Any:
        """Run a snippet in a namespace of its own and return the value of its last expression.

        `inputs` become variables: `bytes` and the contents of a `Path` arrive as bytes, arrays as arrays, all else as
        JSON does. The result may be built from what JSON knows, arrays, NumPy scalars and bytes. `await` works at top
        level. Raises `SnippetError` for an exception in it.

        Where the page itself has crashed, the snippet is run once more in a new one: when Chromium's collector looks
        for pointers on a stack that WebAssembly has suspended (JSPI), it now and then reads beyond that stack's end,
        mostly in pages whose main thread runs Python.
        """
        described = [self._describe(name, value) for name, value in inputs.items()]
        arguments = [textwrap.dedent(code), described]
        call = "([code, inputs]) => window.run(code, inputs)"
        try:
            answer = json.loads(self.evaluate(call, arguments, timeout=timeout))
        except PlaywrightError as error:
            if "crashed" not in str(error):
                raise
            self.page = self._boot()
            answer = json.loads(self.evaluate(call, arguments, timeout=timeout))
        if "types" in answer:
            raise SnippetError(**answer)
        return _revive(answer["result"])

    def evaluate(self, script: str, argument: Any = None, *, timeout: float = SNIPPET_SECONDS) -> Any:
        """Evaluate JavaScript in the page around Pyodide."""
        return self.chromium.call(self.page.evaluate(script, argument), timeout)

    def url(self, content: bytes | Path) -> str:
        """An address from which the page can fetch `content`."""
        return self.chromium.urls[self.isolated] + self.chromium.blobs.put(content)

    def _describe(self, name: str, value: Any) -> dict[str, str]:
        if isinstance(value, np.ndarray):
            file = io.BytesIO()
            np.save(file, value, allow_pickle=False)
            return {"name": name, "kind": "array", "value": self.url(file.getvalue())}
        if isinstance(value, bytes | Path):
            return {"name": name, "kind": "bytes", "value": self.url(value)}
        return {"name": name, "kind": "json", "value": json.dumps(value)}


def _revive(value: Any) -> Any:
    """Arrays and bytes out of their form in JSON."""
    if isinstance(value, list):
        return [_revive(item) for item in value]
    if isinstance(value, dict):
        if value.keys() == {"npy"}:
            return np.load(io.BytesIO(base64.b64decode(value["npy"])), allow_pickle=False)
        if value.keys() == {"bytes"}:
            return base64.b64decode(value["bytes"])
        return {key: _revive(item) for key, item in value.items()}
    return value
