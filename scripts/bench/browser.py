"""onnxlet and onnxruntime-web in one page: `scripts/bench_web.py` calls it with `.venv`'s Python."""

from __future__ import annotations

import argparse
import itertools
import sys
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import Page, sync_playwright
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route

import onnxlet
from demo_site.server import create_app
from demo_site.serving import running
from provision import browser, peers, site
from provision.pyodide import PINNED

from . import report
from .cases import LEAST_RUNS, PAUSE_MS, PEER_WEB, Case, chosen
from .report import Row, Times

FOLDER = Path(__file__).parent
CASE_SECONDS = 600
NOT_FUSED = ["--js-flags=--no-enable-fma3"]
"""Has V8 compute as on a machine without fused multiply-add, where relaxed SIMD is not the faster one."""


class Files:
    """Models and inputs, handed to the page over HTTP."""

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}
        self._numbers = itertools.count()

    def put(self, content: bytes) -> str:
        name = str(next(self._numbers))
        self.contents[name] = content
        return f"/files/{name}"

    def app(self, peer: Path) -> Starlette:
        """These files, the peer's, the benchmark's and the site."""
        return Starlette(
            routes=[
                Route("/files/{name}", self.get),
                Mount("/peer", create_app(peer)),
                Mount("/bench", create_app(FOLDER)),
                Mount("/", create_app(site.assemble())),
            ]
        )

    async def get(self, request: Request) -> Response:
        return Response(self.contents[request.path_params["name"]])


def main(words: list[str] | None = None) -> int:
    parser = report.arguments("Compare onnxlet with onnxruntime-web in one page of headless Chromium.")
    parser.add_argument("--plain", action="store_true", help="a browser on a machine without fused multiply-add")
    options = parser.parse_args(words)
    cases = chosen(options.only)
    if options.list:
        print("\n".join(f"{case.kind}/{case.name}" for case in cases))
        return 0
    files = Files()
    with running(files.app(peers.onnxruntime_web())) as url, sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=browser.chromium(), args=[*browser.FLAGS, *(NOT_FUSED if options.plain else [])]
        )
        version = chromium.version
        try:
            page = open_page(chromium.new_page(), url, "worker.mjs")
            started = command(page, "boot", {"threads": options.threads, "pyodide": f"{url}/pyodide/{PINNED}/"})
            if options.plain and started["relaxed"]:
                raise RuntimeError("relaxed SIMD is in use in spite of --plain")
            rows = report.measure_all(cases, lambda case: measure(page, files, case, options), "onnxruntime-web")
        finally:
            chromium.close()
    return report.finish(rows, about(options, version), options)


def about(options: argparse.Namespace, chromium: str) -> dict[str, Any]:
    words = "one thread" if options.threads == 1 else f"{options.threads} threads"
    words += ", without relaxed SIMD" if options.plain else ""
    return {
        "title": f"In a page, {words}",
        "peer": "onnxruntime-web",
        "how": (
            "Milliseconds of `session.run` in a dedicated worker of a cross-origin isolated page. Inputs are ready as "
            "typed arrays (onnxruntime-web) or NumPy arrays (onnxlet, in Pyodide); copying them in and results out "
            "counts. Both engines "
            "live in the same worker and are timed there by `performance.now()`, in turns: "
            f"{options.rounds} rounds of about {options.turn:.0f} ms each, {PAUSE_MS} ms of rest before every turn. "
            "Times are minimums; an operator's is that of a graph with several copies of it less that of the same "
            "graph without. A ratio above 1: onnxlet is faster."
        ),
        "machine": report.machine(
            {
                "onnxlet": onnxlet.__version__,
                "onnxruntime-web": peers.ONNXRUNTIME_WEB,
                "Pyodide": PINNED,
                "Chromium": chromium,
            }
        ),
        "settings": PEER_WEB,
    }


def open_page(page: Page, url: str, worker: str) -> Page:
    """Open the page that passes commands on to one of the workers."""
    page.set_default_timeout(CASE_SECONDS * 1000)
    page.on("pageerror", lambda error: print(f"  error in the page: {error}", flush=True))
    page.goto(f"{url}/bench/web/?worker={worker}")
    page.wait_for_function("() => window.call !== undefined")
    return page


def command(page: Page, name: str, argument: Any = None) -> Any:
    return page.evaluate("([name, argument]) => window.call(name, argument)", [name, argument])


def measure(page: Page, files: Files, case: Case, options: argparse.Namespace) -> Row:
    """Measure one case. Raises what an engine raises."""
    described = []
    for part in case.parts():
        feeds = [
            {"name": name, "type": str(value.dtype), "dims": list(value.shape), "url": files.put(_bytes(value))}
            for name, value in part.feeds.items()
        ]
        described.append({"model": files.put(part.model), "feeds": feeds, "outputs": part.outputs})
    try:
        first = command(page, "load", described)
        times = {engine: Times([[] for _ in described]) for engine in report.ENGINES}
        differences = []
        for number in range(options.rounds):
            told = {
                "first": report.ENGINES[number % 2],
                "pause": PAUSE_MS,
                "turn": options.turn,
                "least": LEAST_RUNS,
            }
            answer = command(page, "round", told)
            for engine, samples in answer["times"].items():
                for part, runs in enumerate(samples):
                    times[engine].turns[part].append(runs)
            differences.append(answer["difference"])
        on_numpy = command(page, "explain")
    finally:
        files.contents.clear()
        command(page, "release")
    return report.row(case, times, differences, on_numpy, first)


def _bytes(value: np.ndarray) -> bytes:
    return np.ascontiguousarray(value).tobytes()


if __name__ == "__main__":
    sys.exit(main())
