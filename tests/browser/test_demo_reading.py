"""The page that reads text in images, used as people use it."""

from __future__ import annotations

from playwright.async_api import Page

from tests.browser.harness import Chromium


async def result(page: Page) -> dict:
    await page.wait_for_function("window.onnxletResult", timeout=400_000)
    return await page.evaluate("window.onnxletResult")


def test_the_sample_is_read(chromium: Chromium) -> None:
    async def use(page: Page) -> None:
        await page.click("#sample")
        found = await result(page)
        text = [line["text"].replace(" ", "").upper() for line in found["lines"]]
        assert text[0] == "HARBOURBAKERY"
        assert {"TOTAL10.50", "12QUAYSTREET"} <= set(text)
        assert await page.locator("#boxes polygon").count() == len(text) == await page.locator("#lines li").count()
        assert "PP-OCRv4" in await page.inner_text("footer")
        width = await page.evaluate("document.documentElement.scrollWidth")
        assert width <= 375, "the page scrolls sideways"
        await page.evaluate("window.onnxletResult = null")
        await page.set_input_files("#file", files=[{"name": "no.png", "mimeType": "image/png", "buffer": b"no image"}])
        assert "not an image" in (await result(page))["error"]
        assert "not an image" in await page.inner_text("#status")

    chromium.visit("/text.html", use, viewport={"width": 375, "height": 720})
