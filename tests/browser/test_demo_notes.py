"""The page that writes notes down, used as people use it."""

from __future__ import annotations

from playwright.async_api import Page

from tests.browser.harness import Chromium


def test_the_tune_is_written_down(chromium: Chromium) -> None:
    async def use(page: Page) -> None:
        await page.click("#sample")
        await page.wait_for_function("window.onnxletResult", timeout=400_000)
        found = await page.evaluate("window.onnxletResult")
        assert sorted(note["key"] for note in found["notes"]) == [60, 60, 64, 64, 67, 67, 72]
        assert await page.locator("#list li").count() == 7
        assert (await page.text_content("#list li") or "").startswith("C4 from 0.0")
        midi = await page.evaluate(
            "async () => [...new Uint8Array(await (await fetch(document.querySelector('#midi').href)).arrayBuffer())]"
        )
        assert bytes(midi[:14]) == b"MThd\0\0\0\6\0\0\0\1\1\xe0"
        assert bytes(midi[-4:]) == b"\0\xff\x2f\0"
        assert midi.count(0x90) >= 7
        width = await page.evaluate("document.documentElement.scrollWidth")
        assert width <= 375, "the page scrolls sideways"

    chromium.visit("/notes.html", use, viewport={"width": 375, "height": 720})
