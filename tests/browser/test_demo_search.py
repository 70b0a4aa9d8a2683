"""The page that searches by meaning, used as people use it."""

from __future__ import annotations

from playwright.async_api import Page

from tests.browser.harness import Chromium


async def result(page: Page) -> dict:
    await page.wait_for_function("window.onnxletResult", timeout=300_000)
    return await page.evaluate("window.onnxletResult")


def test_questions_find_sentences(chromium: Chromium) -> None:
    async def use(page: Page) -> None:
        found = await result(page)  # the sample's own question
        assert "inn had one room" in found["found"][0]["sentence"]
        await page.click("button[data-query='what to eat']")
        await page.wait_for_function("document.querySelector('#found li')?.textContent.includes('breakfast')")
        await page.fill("#text", "Rain is expected in the north.\nThe goalkeeper saved two penalties.")
        await page.fill("#query", "weather")
        await page.wait_for_function("document.querySelector('#found li')?.textContent.includes('Rain')")
        assert await page.locator("#found li").count() == 2
        assert "CPU" in await page.inner_text("#nodes-summary")
        assert "all-MiniLM" in await page.inner_text("footer")
        width = await page.evaluate("document.documentElement.scrollWidth")
        assert width <= 375, "the page scrolls sideways"

    chromium.visit("/search.html", use, viewport={"width": 375, "height": 720})
