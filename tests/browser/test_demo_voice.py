"""The page that hears voices, used as people use it."""

from __future__ import annotations

import io
import wave

import numpy as np
from playwright.async_api import Page

from tests.browser.harness import Chromium


async def result(page: Page) -> dict:
    await page.wait_for_function("window.onnxletResult", timeout=400_000)
    return await page.evaluate("({...window.onnxletResult, samples: null})")


def recording(samples: np.ndarray, rate: int) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(2)
        out.setsampwidth(2)
        out.setframerate(rate)
        out.writeframes((np.repeat(samples, 2) * 32767).astype("<i2").tobytes())
    return file.getvalue()


def test_a_voice_and_a_tone(chromium: Chromium) -> None:
    async def use(page: Page) -> None:
        await page.click("#sample")
        found = await result(page)
        # A second of silence, three of voice, a second of silence.
        assert 0.9 < found["speech"][0][0] < 1.5
        assert 3.5 < found["speech"][-1][1] < 4.4
        assert "seconds are speech" in await page.inner_text("#answer-title")
        tone = 0.3 * np.sin(2 * np.pi * 440 * np.arange(44100) / 44100)
        await page.evaluate("window.onnxletResult = null")
        file = {"name": "tone.wav", "mimeType": "audio/wav", "buffer": recording(tone, 44100)}
        await page.set_input_files("#file", files=[file])
        found = await result(page)
        assert found["speech"] == []
        assert abs(found["seconds"] - 1) < 0.01
        assert await page.inner_text("#answer-title") == "Nobody speaks"
        await page.evaluate("window.onnxletResult = null")
        await page.set_input_files("#file", files=[{"name": "x.wav", "mimeType": "audio/wav", "buffer": b"no"}])
        assert "not a recording" in (await result(page))["error"]
        width = await page.evaluate("document.documentElement.scrollWidth")
        assert width <= 375, "the page scrolls sideways"

    chromium.visit("/voice.html", use, viewport={"width": 375, "height": 720})


# A microphone made of an oscillator: Chromium's own fake one needs a flag at its start.
MICROPHONE = """
navigator.mediaDevices.getUserMedia = async () => {
  const context = new AudioContext();
  const tone = context.createOscillator();
  const stream = context.createMediaStreamDestination();
  tone.connect(stream);
  tone.start();
  return stream.stream;
};
"""


def test_a_microphone_is_heard_live(chromium: Chromium) -> None:
    async def use(page: Page) -> None:
        await page.wait_for_function(
            "document.querySelector('#status').textContent.startsWith('Ready')", timeout=400_000
        )
        await page.click("#microphone")
        await page.wait_for_function("window.onnxletResult?.probabilities?.length > 12", timeout=120_000)
        assert await page.get_attribute("#microphone", "aria-pressed") == "true"
        await page.click("#microphone")
        assert await page.get_attribute("#microphone", "aria-pressed") == "false"

    chromium.visit("/voice.html", use, before=MICROPHONE)
