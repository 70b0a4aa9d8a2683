"""Start-up and memory of onnxlet and onnxruntime-web, each in a browser of its own: `scripts/bench_startup.py`."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
from playwright.sync_api import BrowserContext, Page, Playwright, sync_playwright
from starlette.applications import Starlette
from starlette.routing import Mount, Route
from starlette.types import Message, Receive, Scope, Send

import onnxlet
from demo_site.server import create_app
from demo_site.serving import running
from provision import browser, models, peers, site
from provision.pyodide import PINNED

from . import networks, report
from .browser import FOLDER, Files
from .models import Feeds, picture, sentence

SECONDS = 400
NAMES = {
    "onnxlet": "onnxlet",
    "idle": "Pyodide with NumPy, idle",
    "peer": "onnxruntime-web",
    "empty": "an empty page with a worker",
}
RUNS, CYCLES = 10_000, 200
CASES = {
    "ResNet-50": lambda: (networks.resnet50(), picture()),
    "MiniLM, 128 tokens": lambda: (networks.minilm(), sentence()),
}


class Counting:
    """An application that counts the bytes it sends, by kind."""

    def __init__(self, app: Any):
        self.app = app
        self.sent: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def counting(message: Message) -> None:
            self.sent[kind(scope["path"])] += len(message.get("body", b""))
            await send(message)

        await self.app(scope, receive, counting)


def kind(path: str) -> str:
    """What a file of the site is part of."""
    name = path.rsplit("/", 1)[-1]
    if "/models/" in path or path.startswith("/files/"):
        return "model"
    if name.startswith("onnxlet-"):
        return "wheel"
    if name.startswith("numpy"):
        return "NumPy"
    if "/pyodide/" in path:
        return "Pyodide"
    return "onnxruntime-web" if path.startswith("/peer/") else "page"


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Measure start-up and memory in headless Chromium.")
    parser.add_argument(
        "--visits", type=int, default=4, help="visits with a full cache; each step's shortest time counts"
    )
    parser.add_argument("--only", choices=["startup", "memory", "lasting"], help="one of the three measurements")
    options = parser.parse_args(words)
    files = Files()
    folder = site.assemble()
    app = Counting(
        Starlette(
            routes=[
                Route("/files/{name}", files.get),
                Mount("/peer", create_app(peers.onnxruntime_web())),
                Mount("/bench", create_app(FOLDER.parent / "bench")),
                Mount("/", create_app(folder)),
            ]
        )
    )
    with running(app) as url, sync_playwright() as playwright:
        lab = Lab(playwright, app, url, files)
        if options.only in (None, "startup"):
            startup(lab, options.visits)
        if options.only in (None, "memory"):
            memory(lab)
        if options.only in (None, "lasting"):
            lasting(lab)
        versions = {
            "onnxlet": onnxlet.__version__,
            "onnxruntime-web": peers.ONNXRUNTIME_WEB,
            "Pyodide": PINNED,
            "Chromium": lab.version,
        }
        print(json.dumps(report.machine(versions)))
    return 0


class Lab:
    """A server, and browsers with folders of their own: what a page left in caches is there at its next visit."""

    def __init__(self, playwright: Playwright, app: Counting, url: str, files: Files):
        self.playwright, self.app, self.url, self.files = playwright, app, url, files
        self.version = ""
        self.folder = ""

    @contextmanager
    def browser(self) -> Iterator[BrowserContext]:
        with tempfile.TemporaryDirectory() as self.folder:
            context = self.playwright.chromium.launch_persistent_context(
                self.folder, executable_path=browser.chromium(), args=browser.FLAGS
            )
            context.set_default_timeout(SECONDS * 1000)
            self.version = context.browser.version if context.browser else self.version
            try:
                yield context
            finally:
                context.close()

    def visit(self, context: BrowserContext, engine: str, address: str, feeds: Feeds) -> tuple[Page, dict[str, float]]:
        """Open startup.html. Returns the page, and the milliseconds since then at which each step had ended."""
        inputs = [{"name": n, "type": str(v.dtype), "dims": list(v.shape)} for n, v in feeds.items()]
        told = {
            "engine": engine,
            "model": self.url + address,
            "inputs": json.dumps(inputs),
            "pyodide": f"{self.url}/pyodide/{PINNED}/",
        }
        self.app.sent.clear()
        page = context.new_page()
        page.goto(f"{self.url}/bench/web/startup.html?{urlencode(told)}")
        page.wait_for_function("() => window.answer")
        answer = page.evaluate("() => window.answer")
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return page, dict(answer["ends"])


def startup(lab: Lab, visits: int) -> None:
    """Print what each step takes until a page has its first result, with empty and with full caches."""
    address = f"/models/{models.MODELS['magika'].folder}/model.onnx"
    feeds = {"bytes": np.zeros((1, 2048), np.int32)}
    for engine in ("onnxlet", "peer"):
        with lab.browser() as context:
            rounds = []
            for _ in range(1 + visits):
                page, ends = lab.visit(context, engine, address, feeds)
                rounds.append((durations(ends), dict(lab.app.sent)))
                page.close()
        first, *later = (steps for steps, _ in rounds)
        least = {step: min(steps[step] for steps in later) for step in first}
        print(f"\n### {NAMES[engine]}\n\n| step | first visit, ms | later visits, ms |\n| --- | ---: | ---: |")
        for step, taken in first.items():
            print(f"| {step} | {taken:.0f} | {least[step]:.0f} |")
        print(f"| **together** | {sum(first.values()):.0f} | {sum(least.values()):.0f} |")
        for what, sent in (("first", rounds[0][1]), ("later", rounds[-1][1])):
            parts = ", ".join(f"{name} {size / 1e3:.0f}" for name, size in sorted(sent.items()) if size)
            print(f"\nkB, {what} visit: {sum(sent.values()) / 1e3:.0f} ({parts})")
    with lab.browser() as context:
        totals = [demo(lab, context) for _ in range(1 + visits)]
    print(f"\nThe demo, to its first answer: {totals[0]:.0f} ms; later {min(totals[1:]):.0f} ms")


def durations(ends: dict[str, float]) -> dict[str, float]:
    """What each step took, of the times at which they ended."""
    return {step: end - begin for (step, end), begin in zip(ends.items(), [0.0, *ends.values()], strict=False)}


def demo(lab: Lab, context: BrowserContext) -> float:
    """Milliseconds from the opening of the demo to the first answer about a file."""
    page = context.new_page()
    page.goto(lab.url)
    page.click("button[data-sample=json]")
    page.wait_for_function("() => window.onnxletResult?.label")
    total = page.evaluate("() => performance.now()")
    page.close()
    return total


def memory(lab: Lab) -> None:
    """Print what a page holds after a first run, and the most its process held until then."""
    for name, make in CASES.items():
        network, feeds = make()
        address = lab.files.put(network.SerializeToString())
        print(f"\n### {name} ({network.ByteSize() / 1e6:.0f} MB)\n")
        print("| MB | browser's own measure | process, at most | process, in the end |\n| --- | --- | --- | --- |")
        measured = {}
        for engine, label in NAMES.items():
            with lab.browser() as context:
                page, _ = lab.visit(context, engine, address, feeds)
                measured[engine] = [page_bytes(page) / 1e6, *process_memory(lab.folder)]
            print(f"| {label} | " + " | ".join(f"{v:.0f}" for v in measured[engine]) + " |")
        for engine, other in (("onnxlet", "idle"), ("peer", "empty")):
            less = [a - b for a, b in zip(measured[engine], measured[other], strict=True)]
            print(f"| {NAMES[engine]}, less {NAMES[other]} | " + " | ".join(f"{v:.0f}" for v in less) + " |")


def lasting(lab: Lab) -> None:
    """Print what is held before and after many runs of a session, and after many sessions made and closed."""
    network, feeds = networks.minilm(tokens=16, layers=1), sentence(16)
    address = lab.files.put(network.SerializeToString())
    with lab.browser() as context:
        page, _ = lab.visit(context, "onnxlet", address, feeds)
        rows = [("after the first run", 0, 0), ("after some more", 100, 5), ("after many", RUNS, CYCLES)]
        print("\n| a layer of MiniLM | browser's own measure, MB | Pyodide's memory, MB |\n| --- | --- | --- |")
        for label, runs, cycles in rows:
            heap = page.evaluate("told => window.again(told)", {"runs": runs, "cycles": cycles})
            print(f"| {label}: {runs} runs, {cycles} sessions | {page_bytes(page) / 1e6:.1f} | {heap / 1e6:.1f} |")


def page_bytes(page: Page) -> int:
    return page.evaluate("async () => (await performance.measureUserAgentSpecificMemory()).bytes")


def process_memory(marker: str) -> tuple[float, float]:
    """Most and present megabytes of the largest renderer of the browser with `marker` in its command (Linux only)."""
    found = [(0.0, 0.0)]
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if b"--type=renderer" in (folder / "cmdline").read_bytes() and _descends(folder, marker):
                status = _status(folder)
                found.append((int(status["VmHWM"].split()[0]) / 1e3, int(status["VmRSS"].split()[0]) / 1e3))
        except (OSError, KeyError):
            continue  # it ended meanwhile
    return max(found)


def _descends(process: Path, marker: str) -> bool:
    while process.name != "0":
        if marker.encode() in (process / "cmdline").read_bytes():
            return True
        process = process.with_name(_status(process)["PPid"].strip())
    return False


def _status(process: Path) -> dict[str, str]:
    return dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())


if __name__ == "__main__":
    sys.exit(main())
