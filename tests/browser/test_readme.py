"""The README's code for the browser, run there."""

from __future__ import annotations

import textwrap

from playwright.async_api import Page

from tests.browser.harness import Chromium
from tests.readme import ADDRESS, block


def test_python_in_the_browser(chromium: Chromium) -> None:
    pyodide = chromium.pyodide(wheel=False)
    code = block("Python in the browser", "python").replace(ADDRESS, chromium.urls[True])
    shape, counts = pyodide.run_python(code + "\n[list(scores.shape), session.explain().counts]")
    assert shape == [1, 214]
    assert sum(counts.values()) > 50


def test_javascript_on_a_web_page(chromium: Chromium) -> None:
    code = block("JavaScript on a web page", "js").replace(ADDRESS, chromium.urls[True])
    code = code.replace(
        "import { InferenceSession, Tensor } from", "const { InferenceSession, Tensor } = await import("
    )
    code = code.replace("onnxlet.mjs';", "onnxlet.mjs');")
    script = f"(async () => {{\n{textwrap.indent(code, '  ')}\n  return target_label.dims;\n}})()"

    async def run(page: Page) -> list[int]:
        return await page.evaluate(script)

    assert chromium.visit("/site.json", run) == [1, 214]
