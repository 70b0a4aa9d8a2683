"""The standard's cases for single operators on onnxlet and on other engines, by the same comparison.

    .venv/bin/python scripts/conformance_peers.py [engine ...]

Engines that are Python packages get a virtual environment of their own under `build/peers`; onnxruntime-web runs in
headless Chromium. Each engine runs in a process that may crash: what it crashed on has failed. Counts and versions are
kept in `docs/peers.json`, and the table in `docs/peers.md` is written from that.
"""

from __future__ import annotations

import argparse
import base64
import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "scripts")]

import numpy as np  # noqa: E402

from provision import browser, peers  # noqa: E402
from provision.paths import BUILD  # noqa: E402
from tests.conformance import packing, suite  # noqa: E402
from tests.conformance.suite import Case  # noqa: E402

KEPT = REPOSITORY / "docs" / "peers.json"
DOCUMENT = REPOSITORY / "docs" / "peers.md"
SECONDS = 120
"""For one case, before its process is ended."""

PACKAGES: dict[str, list[str]] = {
    "onnxlet": [],
    "onnxruntime": [],
    "onnx's reference evaluator": [],
    "tinygrad": ["tinygrad==0.14.0"],
    "tract": ["tract==0.23.9"],
}
"""Engines that are Python packages, and what to install for them beside NumPy, ml_dtypes and onnx. Those without
anything are in `.venv`."""

IN_A_PAGE = {"onnxruntime-web (wasm)": "wasm", "onnxruntime-web (webgpu)": "webgpu"}
ENGINES = [*PACKAGES, *IN_A_PAGE]


def tensor_cases() -> list[Case]:
    """The cases whose inputs and outputs are all tensors: what every engine has at least a type for."""
    return [
        case
        for case in suite.collect()
        if all(isinstance(v, np.ndarray) for inputs, outputs in case.sets for v in (*inputs, *outputs))
    ]


def python_for(engine: str) -> str:
    """The Python that has the engine, installed now if need be."""
    packages = PACKAGES[engine]
    if not packages:
        return sys.executable
    folder = BUILD / "peers" / engine
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    shared = ["numpy", "ml_dtypes", "onnx"]
    subprocess.run([python, "-m", "pip", "install", "--quiet", *shared, *packages], check=True)
    return str(python)


def run_in_processes(engine: str, cases: Sequence[Case]) -> dict[str, str]:
    """What each case that failed on an engine failed with, by name."""
    python = python_for(engine)
    failed: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder, "cases")
        corpus.write_bytes(packing.dumps(list(cases)))
        first = 0
        while first < len(cases):
            first = _one_process(python, engine, corpus, first, cases, failed)
    return failed


def _one_process(
    python: str, engine: str, corpus: Path, first: int, cases: Sequence[Case], failed: dict[str, str]
) -> int:
    """Run cases from `first` on until the process ends. Returns the number of the case to go on with."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, (REPOSITORY, REPOSITORY / "scripts", REPOSITORY / "core"))),
    }
    command = [python, str(REPOSITORY / "scripts" / "conformance_engines.py"), engine, str(corpus), str(first)]
    at = first
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment, cwd=REPOSITORY
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if not line.startswith("{"):
                continue
            told = json.loads(line)
            at = told["case"]
            if "error" in told:
                failed[cases[at].name] = told["error"]
            at += "done" in told
        code = process.wait()
    if at < len(cases) and code:
        failed[cases[at].name] = f"the process ended ({code})"
        at += 1
    elif at == first:
        raise RuntimeError(f"{engine} could not be started")
    return at if code else len(cases)


WEB = """
async ([entry, folder, provider]) => {
  const ort = await import(entry);
  ort.env.wasm.wasmPaths = folder;
  ort.env.wasm.numThreads = 1;
  ort.env.logLevel = 'fatal';
  const arrays = {
    float32: Float32Array, float64: Float64Array, float16: globalThis.Float16Array ?? Uint16Array, int8: Int8Array,
    uint8: Uint8Array, int16: Int16Array, uint16: Uint16Array, int32: Int32Array, uint32: Uint32Array,
    int64: BigInt64Array, uint64: BigUint64Array, bool: Uint8Array,
  };
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const text = (array) => {
    const raw = new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
    let s = '';
    for (let i = 0; i < raw.length; i += 32768) s += String.fromCharCode(...raw.subarray(i, i + 32768));
    return btoa(s);
  };
  window.runCase = async (model, feeds, outputs) => {
    const session = await ort.InferenceSession.create(bytes(model), {executionProviders: [provider]});
    try {
      const given = {};
      for (const {name, type, dims, data} of feeds) {
        if (type !== 'string' && !arrays[type]) throw new Error(`no tensors of type ${type}`);
        given[name] = new ort.Tensor(type, type === 'string' ? data : new arrays[type](bytes(data).buffer), dims);
      }
      const results = await session.run(given);
      return session.outputNames.map((name) => {
        const {type, dims, data} = results[name];
        return {type, dims: [...dims], data: type === 'string' ? [...data] : text(data)};
      });
    } finally {
      await session.release();
    }
  };
}
"""


def run_in_page(provider: str, cases: Sequence[Case]) -> dict[str, str]:
    """The same for onnxruntime-web, on one of its providers, in headless Chromium."""
    import onnx
    from playwright.sync_api import sync_playwright
    from starlette.applications import Starlette
    from starlette.routing import Mount

    from demo_site.server import create_app
    from demo_site.serving import running

    entry = "ort.wasm.min.mjs" if provider == "wasm" else "ort.webgpu.min.mjs"
    app = Starlette(
        routes=[Mount("/peer", create_app(peers.onnxruntime_web(webgpu=True))), Mount("/", create_app(BUILD))]
    )
    failed: dict[str, str] = {}
    with running(app) as url, sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser.chromium(), args=browser.FLAGS)
        page: Any = None

        def fresh() -> Any:
            made = chromium.new_page()
            made.set_default_timeout(SECONDS * 1000)
            made.goto(f"{url}/peer/dist/{entry}")
            made.evaluate(WEB, [f"{url}/peer/dist/{entry}", f"{url}/peer/dist/", provider])
            return made

        def run(model: bytes, inputs: Sequence[Any]) -> list[Any]:
            names = [i.name for i in onnx.load_model_from_string(model).graph.input]
            feeds = [_described(name, value) for name, value in zip(names, inputs, strict=False)]
            return [_array(o) for o in page.evaluate("(a) => runCase(...a)", [base64.b64encode(model).decode(), feeds])]

        for i, case in enumerate(cases):
            if i % 200 == 0 or page.is_closed():  # a new page now and then, and after a crash
                if page is not None and not page.is_closed():
                    page.close()
                page = fresh()
                print(f"  {i} of {len(cases)}, {len(failed)} failed", flush=True)
            try:
                suite.check(case, run)
            except Exception as error:
                failed[case.name] = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
                if "crashed" in str(error) or "closed" in str(error) or "Timeout" in type(error).__name__:
                    page.close()
        chromium.close()
    return failed


def _described(name: str, value: np.ndarray) -> dict[str, Any]:
    if value.dtype == object:
        return {"name": name, "type": "string", "dims": list(value.shape), "data": value.ravel().tolist()}
    data = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()
    return {"name": name, "type": value.dtype.name, "dims": list(value.shape), "data": data}


def _array(output: dict[str, Any]) -> np.ndarray:
    if output["type"] == "string":
        return np.array(output["data"], object).reshape(output["dims"])
    return np.frombuffer(base64.b64decode(output["data"]), output["type"]).reshape(output["dims"])


def version(engine: str) -> str:
    if engine in IN_A_PAGE:
        return peers.ONNXRUNTIME_WEB
    if PACKAGES[engine]:
        return PACKAGES[engine][0].split("==")[1]
    return importlib.metadata.version("onnx" if engine.startswith("onnx's") else engine)


def document(kept: dict[str, Any]) -> str:
    """The table of all engines measured, the best first."""
    rows = sorted(kept["engines"].items(), key=lambda row: -row[1]["passed"])
    lines = [
        "# The standard's cases on other engines",
        "",
        f"The {kept['cases']} cases for single operators of onnx {kept['onnx']} whose inputs and outputs are tensors,",
        "by `scripts/conformance_peers.py`: one harness, one comparison (type, shape, and values within the case's",
        "tolerance, the absolute one being at least 1e-5 of the largest expected value). An engine that crashes on a",
        "case has failed it.",
        "",
        "| Engine | Version | Passed | Of all |",
        "|---|---|---:|---:|",
    ]
    for engine, row in rows:
        lines.append(f"| {engine} | {row['version']} | {row['passed']} | {100 * row['passed'] / kept['cases']:.1f} % |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="Run the standard's cases for single operators on several engines.")
    parser.add_argument("engines", nargs="*", default=list(PACKAGES), help=f"of: {', '.join(ENGINES)}")
    parser.add_argument("--failures", action="store_true", help="say what failed")
    options = parser.parse_args()
    if unknown := [engine for engine in options.engines if engine not in ENGINES]:
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(ENGINES)}")
    cases = tensor_cases()
    kept: dict[str, Any] = json.loads(KEPT.read_text("utf-8")) if KEPT.exists() else {"engines": {}}
    kept |= {"cases": len(cases), "onnx": importlib.metadata.version("onnx")}
    for engine in options.engines:
        print(f"{engine}: {len(cases)} cases", flush=True)
        where = IN_A_PAGE.get(engine)
        failed = run_in_processes(engine, cases) if where is None else run_in_page(where, cases)
        print(f"{engine}: {len(cases) - len(failed)} passed", flush=True)
        if options.failures:
            print(*(f"  {name}: {why}" for name, why in failed.items()), sep="\n")
        kept["engines"][engine] = {
            "version": version(engine),
            "passed": len(cases) - len(failed),
            "date": datetime.now(UTC).date().isoformat(),
        }
        KEPT.write_text(json.dumps(kept, indent=1) + "\n", "utf-8")
        DOCUMENT.write_text(document(kept), "utf-8")


if __name__ == "__main__":
    main()
