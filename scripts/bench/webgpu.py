"""onnxlet and onnxruntime-web on WebGPU in one page: `scripts/bench_webgpu.py` calls it with `.venv`'s Python."""

from __future__ import annotations

import argparse
import sys
from typing import Any

import numpy as np
from playwright.sync_api import sync_playwright

import onnxlet
from demo_site.serving import running
from provision import browser, peers
from provision.pyodide import PINNED

from . import webgpu_report as report
from .browser import Files, command, open_page
from .cases import PAUSE_MS
from .report import machine
from .webgpu_cases import GpuCase, chosen, tiny
from .webgpu_report import GpuRow


def main(words: list[str] | None = None) -> int:
    options = report.arguments().parse_args(words)
    cases = chosen(options.only)
    if options.list:
        print("\n".join(case.name for case in cases))
        return 0
    files = Files()
    found: dict[str, str] = {}
    with running(files.app(peers.onnxruntime_web(webgpu=True))) as url, sync_playwright() as playwright:
        return report.measure_all(
            cases,
            lambda case: measure(playwright, url, files, case, options, found),
            lambda: about(options, found),
            options,
        )


def about(options: argparse.Namespace, found: dict[str, str]) -> dict[str, Any]:
    return {
        "title": "In a page" + (", workgroup memory not zeroed" if options.fast_pipelines else ""),
        "peer": "onnxruntime-web",
        "how": (
            "Milliseconds of `session.run` with the WebGPU providers of onnxruntime-web (`ort.webgpu.bundle`) and of "
            "onnxlet (in Pyodide), in one dedicated worker, timed by `performance.now()` from inputs on the CPU to "
            "outputs on the CPU; only a cache of keys and values stays on the GPU, with both. Each case is measured in "
            f"{options.pages} newly started browsers. The first run counts from the model's bytes on: it makes the "
            "session, compiles the shaders and runs once; both engines have run a tiny model on the GPU before. Then "
            f"come {options.rounds} rounds in each browser, the engines in turns of {options.turn:.0f} ms or one run, "
            f"after {PAUSE_MS} ms of rest. Times are minimums. A ratio above 1: onnxlet is faster. A software "
            "adapter, slow at barriers and shared memory, says little about a real GPU's speed; what is asked of "
            "WebGPU, counted outside of both engines by wrapping its prototypes, is the same on any."
        ),
        "machine": machine(
            {
                "onnxlet": onnxlet.__version__,
                "onnxruntime-web": peers.ONNXRUNTIME_WEB,
                "Pyodide": PINNED,
                "Chromium": found.get("chromium", "none"),
            }
        )
        | {"adapter": found.get("adapter", "none"), "flags": " ".join(flags(options)) or "the browser's own"},
    }


def flags(options: argparse.Namespace) -> list[str]:
    return [browser.FAST_PIPELINES] if options.fast_pipelines else []


def measure(
    playwright: Any, url: str, files: Files, case: GpuCase, options: argparse.Namespace, found: dict[str, str]
) -> GpuRow:
    """Measure one case. Raises what an engine raises."""
    model = case.build()
    told = {
        "model": files.put(model.SerializeToString()),
        "feeds": [
            {
                "name": name,
                "type": str(value.dtype),
                "dims": list(value.shape),
                "url": files.put(np.ascontiguousarray(value).tobytes()),
            }
            for name, value in case.feeds().items()
        ],
        "state": case.state(model),
        "steps": case.steps,
        "advancing": list(case.advancing),
        "pause": PAUSE_MS,
    }
    row = GpuRow(case.name, tolerance=case.tolerance)
    engines = {"peer": row.peer, "onnxlet": row.onnxlet}
    number = 0
    for page_number in range(options.pages):
        chromium = playwright.chromium.launch(
            executable_path=browser.chromium(), args=[*browser.FLAGS, *flags(options)]
        )
        try:
            page = open_page(chromium.new_page(), url, "webgpu.mjs")
            addresses = {"pyodide": f"{url}/pyodide/{PINNED}/", "tiny": files.put(tiny())}
            found.update(adapter=command(page, "boot", addresses), chromium=chromium.version)
            first = command(page, "load", {**told, "order": report.order(page_number)})
            for name, engine in engines.items():
                engine.first.append(first[name]["ms"])
                engine.first_counts = first[name]["counts"]
            for _ in range(options.rounds):
                turns = {"order": report.order(number), "pause": PAUSE_MS, "turn": options.turn}
                answer = command(page, "round", turns)
                for name, engine in engines.items():
                    engine.rounds.append(answer["times"][name])
                    engine.note(answer["counts"][name])
                row.difference = max(row.difference, answer["difference"])
                number += 1
            row.elsewhere = command(page, "explain")
        finally:
            chromium.close()
    return row


if __name__ == "__main__":
    sys.exit(main())
