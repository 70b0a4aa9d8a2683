"""Where the JavaScript API is used from: bundlers, workers, other origins, pages without a network, TypeScript."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from onnx import TensorProto
from playwright.async_api import Page

from demo_site.server import create_app
from demo_site.serving import running
from provision import downloads, javascript
from provision.console import SetupError
from provision.paths import REPOSITORY, SITE
from provision.pyodide import PINNED
from tests.browser.harness import Chromium
from tests.conftest import missing
from tests.core.models import model, node
from tests.readme import ADDRESS, block

WEB = REPOSITORY / "wasm" / "web"
SAMPLE = Path(__file__).parent / "pages" / "sample.ts"

PAGE = """<!doctype html><title>A page</title><script type="module" src="./app.js"></script>"""

APP = """
import { InferenceSession, Tensor, env } from './onnxlet/onnxlet.mjs';

globalThis.double = async (bytes, settings, options) => {
  Object.assign(env, settings);
  const session = await InferenceSession.create(new Uint8Array(bytes), options);
  const { y } = await session.run({ x: new Tensor(new Float32Array([1, 2, 3])) });
  return [...y.data];
};
"""


@pytest.fixture(scope="module")
def tools() -> Path:
    """The folder `node_modules` with bundlers and TypeScript."""
    try:
        return javascript.packages() / "node_modules"
    except SetupError:
        missing("bundlers from npm")


def doubling() -> list[int]:
    return list(
        model(
            [node("Add", ["x", "x"], ["y"])], [("x", TensorProto.FLOAT, ["n"])], [("y", TensorProto.FLOAT, ["n"])]
        ).SerializeToString()
    )


def project(folder: Path) -> Path:
    """A project as people have them: a page, its script, and onnxlet's modules in a folder of their own."""
    shutil.copytree(WEB, folder / "onnxlet")
    (folder / "index.html").write_text(PAGE)
    (folder / "app.js").write_text(APP)
    (folder / "package.json").write_text('{"type": "module"}')
    return folder


def run_tool(tools: Path, script: str, folder: Path, *arguments: str | Path) -> None:
    command = [downloads.node(), tools / script, *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def run_page(chromium: Chromium, folder: Path, options: dict[str, Any], isolated: bool = False) -> list[float]:
    """What the page in `folder`, served from an origin of its own, computes. Python is on the site's origin."""
    settings = {"pyodide": f"{chromium.urls[True]}/pyodide/{PINNED}/", **options}
    with running(create_app(folder, isolated)) as url:

        async def actions(page: Page) -> list[float]:
            await page.goto(f"{url}/index.html")
            await page.wait_for_function("globalThis.double !== undefined")
            return await page.evaluate("([bytes, settings]) => double(bytes, settings)", [doubling(), settings])

        return chromium.visit("/site.json", actions)


@pytest.mark.parametrize("worker", [True, False])
def test_a_page_built_with_vite(chromium: Chromium, tools: Path, tmp_path: Path, worker: bool) -> None:
    folder = project(tmp_path / "project")
    os.symlink(tools, folder / "node_modules")
    run_tool(tools, "vite/bin/vite.js", folder, "build", "--base", "./", "--logLevel", "warn")
    built = sorted(path.name for path in (folder / "dist" / "assets").iterdir())
    assert any(name.startswith("worker-") for name in built), built
    assert run_page(chromium, folder / "dist", {"worker": worker}, isolated=worker) == [2, 4, 6]


def test_a_page_built_with_esbuild(chromium: Chromium, tools: Path, tmp_path: Path) -> None:
    """The worker's script is another entry point, and lies beside the page's."""
    folder = project(tmp_path / "project")
    (folder / "dist").mkdir()
    shutil.copy(folder / "index.html", folder / "dist")
    options = ["--bundle", "--minify", "--format=esm", "--outdir=dist", "--entry-names=[name]"]
    worker = "--out-extension:.js=.mjs"
    run_tool(tools, "esbuild/bin/esbuild", folder, "app.js", *options)
    run_tool(tools, "esbuild/bin/esbuild", folder, "onnxlet/worker.mjs", *options, worker)
    assert sorted(path.name for path in (folder / "dist").iterdir()) == ["app.js", "index.html", "worker.mjs"]
    assert run_page(chromium, folder / "dist", {}) == [2, 4, 6]


def test_modules_from_another_origin_and_in_a_worker(chromium: Chromium) -> None:
    """A page, and a page's worker, that import the modules from the site, and are not from there."""
    site = chromium.urls[True]

    async def actions(page: Page) -> list[Any]:
        script = """async ([site, bytes]) => {
          const double = async (site, bytes) => {
            const { InferenceSession, Tensor } = await import(`${site}/onnxlet/onnxlet.mjs`);
            const session = await InferenceSession.create(new Uint8Array(bytes));
            return [...(await session.run({x: new Tensor(new Float32Array([1, 2, 3]))})).y.data];
          };
          const here = await double(site, bytes);
          const answer = 'async ({data}) => postMessage(await double(...data).catch(String))';
          const text = new Blob([`const double = ${double}; onmessage = ${answer};`]);
          const worker = new Worker(URL.createObjectURL(text));
          const there = await new Promise((resolve, reject) => {
            worker.onmessage = ({data}) => resolve(data);
            worker.onerror = ({message}) => reject(new Error(message));
            worker.postMessage([site, bytes]);
          });
          return [location.origin === site, here, there];
        }"""
        return await page.evaluate(script, [site, doubling()])

    assert chromium.visit("/site.json", actions, isolated=False) == [False, [2, 4, 6], [2, 4, 6]]


SERVICE_WORKER = """
const fromNetwork = async (request) => {
  const answer = await fetch(request);
  if (answer.ok) await (await caches.open('page')).put(request, answer.clone());
  return answer;
};
addEventListener('install', () => skipWaiting());
addEventListener('activate', (event) => event.waitUntil(clients.claim()));
addEventListener('fetch', (event) => {
  if (event.request.method !== 'GET') return;
  event.respondWith(caches.match(event.request).then((kept) => kept ?? fromNetwork(event.request)));
});
"""


def test_a_page_without_a_network(chromium: Chromium, tmp_path: Path) -> None:
    """A service worker that keeps what the page fetches is enough: on the second visit no server is there."""
    folder = tmp_path / "site"
    shutil.copytree(SITE, folder, copy_function=os.link)
    (folder / "offline.html").write_text(PAGE)
    (folder / "app.js").write_text(APP)
    (folder / "service-worker.js").write_text(SERVICE_WORKER)
    server = running(create_app(folder))
    url = server.__enter__()
    stopped = False

    async def actions(page: Page) -> list[Any]:
        nonlocal stopped
        await page.goto(f"{url}/offline.html")
        await page.evaluate(
            """async () => {
              await navigator.serviceWorker.register('./service-worker.js');
              await navigator.serviceWorker.ready;
            }"""
        )
        results = []
        for visit in range(3):
            if visit == 2:
                server.__exit__(None, None, None)
                stopped = True
            await page.goto(f"{url}/offline.html")
            await page.wait_for_function("globalThis.double !== undefined")
            results.append(await page.evaluate("(bytes) => double(bytes)", doubling()))
        return results

    try:
        assert chromium.visit("/site.json", actions) == [[2, 4, 6]] * 3
    finally:
        if not stopped:
            server.__exit__(None, None, None)


@pytest.mark.parametrize(
    ("heading", "result"),
    [("From onnxruntime-web", "scores.length"), ("Data on the GPU", "[target_label.location, scores.length]")],
)
def test_the_documents_code(chromium: Chromium, heading: str, result: str) -> None:
    code = block(heading, "js", "docs/javascript.md")
    code = re.sub(r"import (?:\* as )?(.*) from (.*);", r"const \1 = await import(\2);", code)

    async def actions(page: Page) -> Any:
        return await page.evaluate(f"async () => {{ {code.replace(ADDRESS, '')} return {result}; }}")

    assert chromium.visit("/site.json", actions) == (214 if result == "scores.length" else ["cpu", 214])


def test_the_types(tools: Path, tmp_path: Path) -> None:
    """Code as it is written for onnxruntime-web passes TypeScript, wrong code does not, and values are those that
    onnxruntime-common's types ask for."""
    shutil.copy(WEB / "onnxlet.d.mts", tmp_path)
    shutil.copy(SAMPLE, tmp_path)
    options = {
        "strict": True,
        "noEmit": True,
        "target": "es2022",
        "module": "nodenext",
        "lib": ["es2024", "dom"],
        "types": [],
    }
    (tmp_path / "tsconfig.json").write_text(json.dumps({"compilerOptions": options, "files": [SAMPLE.name]}))
    (tmp_path / "package.json").write_text('{"type": "module"}')
    os.symlink(tools, tmp_path / "node_modules")
    run_tool(tools, "typescript/bin/tsc", tmp_path, "-p", ".")
