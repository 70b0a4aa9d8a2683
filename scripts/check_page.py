"""Runs the demo once in headless Chromium: `run.py --check` calls it with `.venv`'s Python.

The main page is opened, two files are handed to its file input, and `window.onnxletResult` is awaited: the page sets
it to `null` when a file arrives and to {label, probability, milliseconds, provider, nodes} when the answer is there,
or to {error}.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright
from playwright.sync_api import TimeoutError as PlaywrightTimeout

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from demo_site.server import create_app
from demo_site.serving import running
from provision.browser import FAST_PIPELINES, FLAGS
from provision.files import MARKDOWN, png

BOOT_SECONDS = 180

FILES = [
    ("notes.md", "text/markdown", MARKDOWN, "markdown"),
    ("picture.png", "image/png", png(), "png"),
]
"""Name, media type, content, and the right answer."""


def main() -> int:
    parser = argparse.ArgumentParser(description="Check the demo in a headless browser.")
    parser.add_argument("--site", type=Path, required=True)
    parser.add_argument("--chromium", required=True)
    options = parser.parse_args()
    print("\nChecking the demo in headless Chromium", flush=True)
    with running(create_app(options.site)) as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=options.chromium, args=[*FLAGS, FAST_PIPELINES])
        page = browser.new_page()
        problems: list[str] = []
        page.on("pageerror", lambda error: problems.append(f"error in the page: {error}"))
        page.on("console", lambda line: problems.append(line.text) if line.type == "error" else None)
        page.goto(f"{url}/")
        right = all([_answers(page, *file) for file in FILES])
        browser.close()
    for problem in problems:
        print(f"  {problem}", flush=True)
    print("The demo works." if right else "The demo does NOT work.", flush=True)
    return 0 if right else 1


def _answers(page: Page, name: str, media_type: str, content: bytes, expected: str) -> bool:
    """Hand the page one file; print its answer; return whether it is right."""
    start = time.monotonic()
    page.evaluate("window.onnxletResult = null")
    page.set_input_files("#file", files=[{"name": name, "mimeType": media_type, "buffer": content}])
    try:
        page.wait_for_function("window.onnxletResult", timeout=BOOT_SECONDS * 1000)
    except PlaywrightTimeout:
        print(f"  {name}: no answer in {BOOT_SECONDS} s; the page says: {page.inner_text('body')[:600]}", flush=True)
        return False
    result: dict[str, Any] = page.evaluate("window.onnxletResult")
    waited = time.monotonic() - start
    if "error" in result:
        print(f"  {name}: {result['error']}", flush=True)
        return False
    right = result["label"] == expected
    verdict = "right" if right else f"WRONG, it is {expected}"
    print(f"  {name}: {result['label']} ({result['probability']:.1%}), {verdict}")
    print(f"    model run {result['milliseconds']:.1f} ms on {result['provider']}; answer after {waited:.1f} s")
    _print_nodes(result["nodes"])
    return right


def _print_nodes(nodes: list[dict[str, Any]]) -> None:
    """Where each node ran: one line for each provider, and one for each reason why a node did not get its kernel."""
    for provider, count in Counter(node["provider"] for node in nodes).most_common():
        operators = Counter(node["operator"] for node in nodes if node["provider"] == provider)
        listed = ", ".join(f"{name} {number}" if number > 1 else name for name, number in operators.most_common())
        print(f"    {count} nodes on {provider}: {listed}")
    for reason, count in Counter(node["reason"] for node in nodes if node.get("reason")).most_common():
        print(f"      {count}: {reason}")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
