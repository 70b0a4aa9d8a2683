"""The demo's pages, used as people use them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper
from playwright.async_api import Page, Route

from provision.files import MARKDOWN, png
from tests.browser.harness import Chromium
from tests.models import zoo

PHONE = {"width": 375, "height": 720}


async def answer(page: Page, *files: dict[str, Any]) -> dict[str, Any]:
    await page.evaluate("window.onnxletResult = null")
    await page.set_input_files("#file", files=list(files))
    await page.wait_for_function("window.onnxletResult", timeout=300_000)
    return await page.evaluate("window.onnxletResult")


def upload(name: str, content: bytes) -> dict[str, Any]:
    return {"name": name, "mimeType": "application/octet-stream", "buffer": content}


@pytest.mark.parametrize("isolated", [True, False])
def test_file_types(chromium: Chromium, isolated: bool) -> None:
    async def use(page: Page) -> None:
        for name, content, label, description in [
            ("notes.md", MARKDOWN, "markdown", "Markdown document"),
            ("picture.png", png(), "png", "PNG image"),
            ("empty", b"", "empty", "empty file"),
            ("short", b"ab", "txt", "Generic text document"),
        ]:
            found = await answer(page, upload(name, content))
            assert found["label"] == label, found
            assert (await page.inner_text("#answer-type")).lower() == description.lower()
        assert await page.locator("#nodes-body tr").count() == len(found["nodes"]) > 50
        assert "CPU" in await page.inner_text("#nodes-summary")
        await page.click("button[data-sample=python]")
        await page.wait_for_function("document.querySelector('#answer-type').textContent.includes('Python')")

    chromium.visit("/", use, isolated=isolated)


def test_a_file_may_come_before_anything_is_loaded(chromium: Chromium) -> None:
    async def slowly(route: Route) -> None:
        await asyncio.sleep(1)
        await route.continue_()

    async def use(page: Page) -> None:
        await page.route("**/site.json", slowly)
        await page.reload()
        assert (await answer(page, upload("picture.png", png())))["label"] == "png"

    chromium.visit("/", use)


def test_the_gpu_can_be_chosen(chromium: Chromium) -> None:
    async def use(page: Page) -> None:
        await page.check("input[value=webgpu]")
        found = await answer(page, upload("picture.png", png()))
        assert found["label"] == "png"
        assert found["provider"] == "WebGpuExecutionProvider"
        assert any(node["provider"] == "WebGpuExecutionProvider" for node in found["nodes"])

    chromium.visit("/", use)


def test_no_gpu_is_said_and_the_cpu_goes_on(chromium: Chromium) -> None:
    async def without_gpu(route: Route) -> None:
        answer = await route.fetch()
        await route.fulfill(response=answer, body="delete WorkerNavigator.prototype.gpu;" + await answer.text())

    async def use(page: Page) -> None:
        await page.route("**/worker.mjs*", without_gpu)
        await page.reload()
        await page.check("input[value=webgpu]")
        found = await answer(page, upload("picture.png", png()))
        assert found["label"] == "png"
        assert "WebGPU is not used" in (await page.text_content("#nodes-notes") or "")

    chromium.visit("/", use)


def test_the_page_is_usable_by_keyboard_and_at_phone_width(chromium: Chromium) -> None:
    async def use(page: Page) -> None:
        focused = []
        for _ in range(14):
            await page.keyboard.press("Tab")
            focused.append(
                await page.evaluate("document.activeElement.id || document.activeElement.textContent.trim()")
            )
        assert {"file", "some Python", "some JSON"} <= set(focused), focused
        await answer(page, upload("notes.md", MARKDOWN))
        width = await page.evaluate("document.documentElement.scrollWidth")
        assert width <= PHONE["width"], "the page scrolls sideways"

    chromium.visit("/", use, viewport=PHONE, color_scheme="dark")


def test_the_page_stays_alive_while_python_works(chromium: Chromium) -> None:
    async def use(page: Page) -> None:
        longest = await page.evaluate(
            """async () => {
              let last = performance.now(), longest = 0;
              while (!document.querySelector('#status').textContent.startsWith('Ready')) {
                await new Promise((resolve) => setTimeout(resolve, 10));
                longest = Math.max(longest, performance.now() - last);
                last = performance.now();
              }
              return longest;
            }"""
        )
        # Python's start takes seconds; the page's own thread must never wait for it. Two cores may stall a little.
        assert longest < 1000

    chromium.visit("/", use)


def test_any_model(chromium: Chromium) -> None:
    (model,) = zoo("torch_unet_ts")

    async def use(page: Page) -> None:
        described = await answer(page, upload("unet.onnx", Path(model.path).read_bytes()))
        (only,) = described["inputs"]
        assert only["shape"] == [1, 3, "h", "w"]
        assert only["suggestion"] == [1, 3, 16, 16]
        await page.fill("#inputs input", "1, 3, 64, 64")
        await page.evaluate("window.onnxletResult = null")
        await page.click("#run")
        await page.wait_for_function("window.onnxletResult", timeout=300_000)
        ran = await page.evaluate("window.onnxletResult")
        assert ran["outputs"][0]["type"] == "float32 [1, 2, 64, 64]"
        assert ran["explain"]["calls"] == 1

    chromium.visit("/model.html", use)


def test_errors_are_shown_readably_and_the_next_model_works(chromium: Chromium) -> None:
    relu = helper.make_model(
        helper.make_graph(
            [helper.make_node("Relu", ["x"], ["y"])],
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])],
        ),
        ir_version=10,
        opset_imports=[helper.make_opsetid("", 21)],
    )
    good = relu.SerializeToString()
    foreign = onnx.ModelProto.FromString(good)
    foreign.graph.node[0].op_type = "Nonsense"

    async def use(page: Page) -> None:
        for name, content, error, words in [
            ("cut.onnx", good[:-20], "ModelError", "not an ONNX model"),
            ("page.onnx", b"<!doctype html><html></html>", "ModelError", "HTML"),
            ("nonsense.onnx", foreign.SerializeToString(), "MissingOperatorsError", "Nonsense"),
        ]:
            found = await answer(page, upload(name, content))
            assert found["name"] == error, found
            shown = await page.inner_text("#status")
            assert words in shown
            assert "Traceback" not in shown
        await answer(page, upload("relu.onnx", good))
        await page.fill("#inputs input", "3")
        await page.evaluate("window.onnxletResult = null")
        await page.click("#run")
        await page.wait_for_function("window.onnxletResult")
        assert (await page.evaluate("window.onnxletResult"))["name"] == "FeedError"
        assert "must be float32[2]" in await page.inner_text("#status")
        await page.fill("#inputs input", "2")
        await page.evaluate("window.onnxletResult = null")
        await page.click("#run")
        await page.wait_for_function("window.onnxletResult")
        assert "outputs" in await page.evaluate("window.onnxletResult")

    chromium.visit("/model.html", use)
