"""A pytest plugin for pages that run models: they are opened for real, and their outputs compared with a desktop run.

In `conftest.py`:

    pytest_plugins = ["onnxlet.testing"]

It builds on pytest-playwright (`pip install "onnxlet[testing]"`), whose `page` then is a Chromium with WebGPU, on the
machine's GPU or one made of software. It adds the fixtures `serve_folder`, `wait_for_session`, `read_tensors` and
`assert_like_desktop`. Pages may run onnxlet or onnxruntime-web: their sessions and tensors look the same.
"""

from __future__ import annotations

import base64
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ..model.dtypes import named
from ..session import InferenceSession
from ..tools.comparing import Tolerance, difference
from .serving import serving

if TYPE_CHECKING:
    from playwright.sync_api import Page

WEBGPU = ("--enable-unsafe-webgpu",)
"""Flags with which Chromium has WebGPU on machines without a GPU too."""

CHROMIUMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

SECONDS = 300
"""How long pages may take to get ready: Pyodide boots in seconds, but not on a machine that does much else too."""


@pytest.fixture(scope="session")
def browser_type_launch_args(browser_type_launch_args: dict[str, Any], browser_name: str) -> dict[str, Any]:
    """pytest-playwright's arguments, with WebGPU, and with the Chromium that `ONNXLET_CHROMIUM` names, or the system's
    where Playwright has not downloaded its own."""
    if browser_name != "chromium":
        return browser_type_launch_args
    arguments = {**browser_type_launch_args, "args": [*browser_type_launch_args.get("args", ()), *WEBGPU]}
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        arguments["args"].append("--no-sandbox")  # which Chromium can't set up for root
    chosen = os.environ.get("ONNXLET_CHROMIUM") or _system_chromium()
    if chosen and "executable_path" not in arguments and "channel" not in arguments:
        arguments["executable_path"] = chosen
    return arguments


def _system_chromium() -> str | None:
    """The system's Chromium, where Playwright has none of its own."""
    cache = Path(os.environ.get("PLAYWRIGHT_BROWSERS_PATH") or Path.home() / ".cache" / "ms-playwright")
    if any(cache.glob("chromium*")):
        return None
    return next((found for name in CHROMIUMS if (found := shutil.which(name))), None)


@pytest.fixture(scope="session")
def serve_folder() -> Iterator[Callable[..., str]]:
    """`serve_folder(folder, isolated=True)` serves a folder on this machine and returns its address.

    Pages are cross-origin isolated unless `isolated` is false: only such pages have threads. Servers stop with the test
    run.
    """
    with ExitStack() as servers:
        addresses: dict[tuple[Path, bool], str] = {}

        def serve(folder: str | os.PathLike[str], isolated: bool = True) -> str:
            key = Path(folder).resolve(), isolated
            if key not in addresses:
                addresses[key] = servers.enter_context(serving(*key))
            return addresses[key]

        yield serve


@pytest.fixture
def wait_for_session(page: Page) -> Callable[..., None]:
    """`wait_for_session(expression="window.session", seconds=300)` waits until a page has made its session.

    `expression` is JavaScript, of a session or a promise of one. An error that nothing in the page catches meanwhile is
    an `AssertionError` with its text.
    """
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))

    def wait(expression: str = "window.session", seconds: float = SECONDS) -> None:
        attempt = f"try {{ return Boolean(await ({expression})); }} catch (error) {{ return String(error); }}"
        from playwright.sync_api import TimeoutError as Late

        try:
            answer = page.wait_for_function(f"async () => {{ {attempt} }}", timeout=seconds * 1e3).json_value()
        except Late:
            told = f"; uncaught in the page: {errors}" if errors else ""
            raise AssertionError(f"no session at {expression} after {seconds} seconds{told}") from None
        assert answer is True, f"{expression}: {answer}"

    return wait


READ = """async () => {
  const tensors = await (EXPRESSION);
  const read = async (tensor) => {
    const data = tensor.getData ? await tensor.getData() : tensor.data;
    if (tensor.type === 'string') return { dims: [...tensor.dims], type: tensor.type, texts: [...data] };
    const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
    let text = '';
    for (let i = 0; i < bytes.length; i += 32768) text += String.fromCharCode(...bytes.subarray(i, i + 32768));
    return { dims: [...tensor.dims], type: tensor.type, bytes: btoa(text) };
  };
  const entries = Object.entries(tensors).map(async ([name, tensor]) => [name, await read(tensor)]);
  return Object.fromEntries(await Promise.all(entries));
}"""


@pytest.fixture
def read_tensors(page: Page) -> Callable[[str], dict[str, np.ndarray]]:
    """`read_tensors(expression)` evaluates JavaScript that gives tensors by name, or a promise of them, such as
    ``session.run(feeds)``, and returns them as arrays."""
    return lambda expression: {
        name: _array(entry) for name, entry in page.evaluate(READ.replace("EXPRESSION", expression)).items()
    }


def _array(entry: Mapping[str, Any]) -> np.ndarray:
    if "texts" in entry:
        return np.array(entry["texts"], object).reshape(entry["dims"])
    data = base64.b64decode(entry["bytes"])
    return np.frombuffer(data, named(entry["type"])).reshape(entry["dims"])


@pytest.fixture
def assert_like_desktop() -> Callable[..., None]:
    """`assert_like_desktop(model, feeds, outputs, rtol=None, atol=None)` runs a model here, and compares.

    `model` is what `InferenceSession` takes; `feeds` and `outputs` are arrays by name, as `read_tensors` gives them.
    `rtol` is a share of each value and `atol` one of the tensor's largest; without them, what rounding explains.
    """

    def check(
        model: Any,
        feeds: Mapping[str, np.ndarray],
        outputs: Mapping[str, np.ndarray],
        rtol: float | None = None,
        atol: float | None = None,
    ) -> None:
        tolerance = None if rtol is None and atol is None else Tolerance(rtol or 0.0, atol or 0.0, "asked for")
        session = InferenceSession(model)
        try:
            expected = dict(zip(outputs, session.run(list(outputs), feeds), strict=True))
        finally:
            session.close()
        apart = [difference(name, value, expected[name], tolerance) for name, value in outputs.items()]
        wrong = [
            f"{d.name}: {d.problem or f'{d.outside:.2%} of its values are off, by {d.largest:.3g} at {d.place}'}"
            for d in apart
            if not d.within
        ]
        assert not wrong, "the page's outputs differ from a desktop run: " + "; ".join(wrong)

    return check
