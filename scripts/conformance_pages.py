"""Engines that run in a page of headless Chromium: what `conformance_peers.py` loads there and asks of them."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from provision import browser, peers
from tests.conformance import suite
from tests.conformance.suite import Case

SECONDS = 120
"""For one case, before its page is closed."""

LOST = ("crashed", "closed", "Instance")
"""Words of errors after which a page, or the GPU it holds, is of no use."""

BYTES = """
const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
const text = (array) => {
  const raw = new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
  let s = '';
  for (let i = 0; i < raw.length; i += 32768) s += String.fromCharCode(...raw.subarray(i, i + 32768));
  return btoa(s);
};
const arrays = {
  float32: Float32Array, float64: Float64Array, float16: globalThis.Float16Array ?? Uint16Array, int8: Int8Array,
  uint8: Uint8Array, int16: Int16Array, uint16: Uint16Array, int32: Int32Array, uint32: Uint32Array,
  int64: BigInt64Array, uint64: BigUint64Array, bool: Uint8Array,
};
const typed = (type, data) => {
  if (!arrays[type]) throw new Error(`no tensors of type ${type}`);
  return new arrays[type](bytes(data).buffer);
};
"""

ONNXRUNTIME_WEB = """
async ([folder, provider]) => {
  const entry = provider === 'wasm' ? 'ort.wasm.min.mjs' : 'ort.webgpu.min.mjs';
  const ort = await import(`${folder}/dist/${entry}`);
  ort.env.wasm.wasmPaths = `${folder}/dist/`;
  ort.env.wasm.numThreads = 1;
  ort.env.logLevel = 'fatal';
  window.runCase = async (model, feeds) => {
    const [name, alone] = provider.split(' ');
    const extra = alone ? {session: {disable_cpu_ep_fallback: '1'}} : {};
    const session = await ort.InferenceSession.create(bytes(model), {executionProviders: [name], extra});
    try {
      const given = {};
      for (const {name, type, dims, data} of feeds) {
        given[name] = new ort.Tensor(type, type === 'string' ? data : typed(type, data), dims);
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

JAX_JS = """
async ([folder, device]) => {
  const map = document.createElement('script');
  map.type = 'importmap';
  map.textContent = JSON.stringify({imports: {
    '@jax-js/jax': `${folder}/node_modules/@jax-js/jax/dist/index.js`,
    '@jax-js/onnx': `${folder}/node_modules/@jax-js/onnx/dist/index.js`,
    'onnx-buf': `${folder}/node_modules/onnx-buf/dist/onnx_pb.js`,
    '@bufbuild/protobuf': `${folder}/node_modules/@bufbuild/protobuf/dist/esm/index.js`,
    '@bufbuild/protobuf/codegenv2': `${folder}/node_modules/@bufbuild/protobuf/dist/esm/codegenv2/index.js`,
  }});
  document.head.append(map);
  const {init, defaultDevice, numpy} = await import('@jax-js/jax');
  const {ONNXModel} = await import('@jax-js/onnx');
  await init(device);
  defaultDevice(device);
  // It has no integers but those of 32 bits: others are given as such, as its own reader does with initializers.
  const narrow = (type, array) => {
    if (type.startsWith('float')) return array;
    if (type === 'uint64') return Uint32Array.from(array, (v) => v > 4294967295n ? 4294967295 : Number(v));
    if (type === 'int64') {
      return Int32Array.from(array, (v) => Number(v > 2147483647n ? 2147483647n : v < -2147483648n ? -2147483648n : v));
    }
    return type === 'uint32' ? array : Int32Array.from(array);
  };
  window.runCase = async (model, feeds) => {
    const loaded = new ONNXModel(bytes(model));
    try {
      const given = {};
      for (const {name, type, dims, data} of feeds) {
        if (type === 'string') throw new Error('no tensors of type string');
        const values = narrow(type, typed(type, data));
        const dtype = type === 'bool' ? 'bool' : values.constructor.name.replace('Array', '').toLowerCase();
        given[name] = values.length ? numpy.array(values, {shape: dims, dtype}) : numpy.zeros(dims, {dtype});
      }
      const results = loaded.run(given);
      const outputs = [];
      for (const {name} of loaded.model.graph.output) {
        const {dtype, shape} = results[name];
        const data = await results[name].data();
        outputs.push({type: dtype, dims: [...shape], data: text(dtype === 'bool' ? Uint8Array.from(data) : data)});
      }
      return outputs;
    } finally {
      loaded.dispose();
    }
  };
}
"""


@dataclass(frozen=True, slots=True)
class Page:
    """An engine for pages: where its files are, a function that loads it, and which of its backends is meant."""

    folder: Callable[[], Path]
    version: str
    script: str
    backend: str
    widens: bool = False
    """Whether 32-bit integers are all it has, and are taken for those that the model declares."""


def _onnxruntime_web() -> Path:
    return peers.onnxruntime_web(webgpu=True)


_JAX_JS = peers.JAX_JS[0].rsplit("@", 1)[1]
PAGES = {
    "onnxruntime-web (wasm)": Page(_onnxruntime_web, peers.ONNXRUNTIME_WEB, ONNXRUNTIME_WEB, "wasm"),
    "onnxruntime-web (webgpu)": Page(_onnxruntime_web, peers.ONNXRUNTIME_WEB, ONNXRUNTIME_WEB, "webgpu"),
    "onnxruntime-web (webgpu alone)": Page(_onnxruntime_web, peers.ONNXRUNTIME_WEB, ONNXRUNTIME_WEB, "webgpu alone"),
    "jax-js (wasm)": Page(peers.jax_js, _JAX_JS, JAX_JS, "wasm", widens=True),
    "jax-js (webgpu)": Page(peers.jax_js, _JAX_JS, JAX_JS, "webgpu", widens=True),
}


OURS = {"onnxlet (webgpu)": False, "onnxlet (webgpu alone)": True}
"""Our own GPU provider in Pyodide, and whether nothing else may compute."""


def run_ours(engine: str, cases: Sequence[Case]) -> dict[str, str]:
    """What each case that failed with our GPU provider first, or alone, failed with, by name."""
    from provision import prepare, site
    from tests.browser import gpu_suite
    from tests.browser.harness import Chromium

    prepare.test_pyodides()
    site.assemble()
    chromium = Chromium(browser.chromium())
    try:
        host = chromium.pyodide(worker=True, isolated=True)
        gpu_suite.install(host)
        if OURS[engine]:
            _, told, failed = gpu_suite.alone(host, cases)
        else:
            told, failed = {}, gpu_suite.failures(host, cases)
    finally:
        chromium.close()
    return told | dict(line.split(": ", 1) for line in failed)


def run(engine: str, cases: Sequence[Case]) -> dict[str, str]:
    """What each case that failed on an engine failed with, by name."""
    from playwright.sync_api import sync_playwright

    from demo_site.server import create_app
    from demo_site.serving import running

    peer = PAGES[engine]
    failed: dict[str, str] = {}
    with running(create_app(peer.folder())) as url, sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser.chromium(), args=browser.FLAGS)
        page: Any = None

        def fresh() -> Any:
            made = chromium.new_page()
            made.set_default_timeout(SECONDS * 1000)
            made.goto(f"{url}/nothing-here")  # a page of that origin; its text does not matter
            made.evaluate(f"(given) => {{ {BYTES} return ({peer.script})(given); }}", [url, peer.backend])
            return made

        def run_case(model: bytes, inputs: Sequence[Any]) -> list[Any]:
            graph = onnx.load_model_from_string(model).graph
            feeds = [_described(i.name, value) for i, value in zip(graph.input, inputs, strict=False)]
            outputs = page.evaluate("(a) => runCase(...a)", [base64.b64encode(model).decode(), feeds])
            arrays = [_array(output) for output in outputs]
            return [_widened(a, o) for a, o in zip(arrays, graph.output, strict=True)] if peer.widens else arrays

        for i, case in enumerate(cases):
            if i % 200 == 0 or page.is_closed():  # a new page now and then, and after a crash
                if page is not None and not page.is_closed():
                    page.close()
                page = fresh()
                print(f"  {i} of {len(cases)}, {len(failed)} failed", flush=True)
            try:
                suite.check(case, run_case)
            except Exception as error:
                failed[case.name] = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
                if "Timeout" in type(error).__name__ or any(word in str(error) for word in LOST):
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


def _widened(value: np.ndarray, output: onnx.ValueInfoProto) -> np.ndarray:
    declared = onnx.helper.tensor_dtype_to_np_dtype(output.type.tensor_type.elem_type)
    return value.astype(declared) if declared.kind in "iu" and value.dtype.kind in "iu" else value
