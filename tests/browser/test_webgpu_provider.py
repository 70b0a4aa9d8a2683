"""The GPU provider in a page: the same kernels and models as on a desktop, through the browser's WebGPU."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest

from tests.browser.harness import Chromium, PyodideHost, SnippetError
from tests.conftest import DATA, REPOSITORY, shared_dir
from tests.webgpu import (
    attention_cases,
    cases,
    limit_cases,
    line_cases,
    more_cases,
    product_cases,
    quantized_cases,
    type_cases,
)
from tests.webgpu.cases import random
from tests.webgpu.test_values import recurrent, step

MODULES = (cases, type_cases, more_cases, attention_cases, quantized_cases, product_cases, line_cases, limit_cases)
FAMILIES = [family for module in MODULES for family in module.FAMILIES]
PARTS = [module.__name__.rpartition(".")[2] for module in MODULES]
FOLDER = REPOSITORY / "tests" / "webgpu"
SOURCES = {name: FOLDER / f"{name}.py" for name in PARTS}

LOAD_CASES = """
import sys, types
names = PARTS
# Other tests may bring these packages with files.
outer = {package: sys.modules.get(package) for package in ("tests", "tests.webgpu")}
sys.modules.update({package: types.ModuleType(package) for package in outer})
for name in names:
    text = globals()[name]
    part = types.ModuleType(f"tests.webgpu.{name}")
    sys.modules[part.__name__] = part
    exec(bytes(text).decode(), part.__dict__)
for package, before in outer.items():
    sys.modules.pop(package)
    if before is not None:
        sys.modules[package] = before
module = sys.modules["tests.webgpu.cases"]
for other in names[1:]:
    module.FAMILIES.update(sys.modules[f"tests.webgpu.{other}"].FAMILIES)
from onnxlet_webgpu.provider import create_async
""".replace("PARTS", repr(PARTS))


def run_family(host: PyodideHost, family: str, **options: object) -> list[str]:
    code = LOAD_CASES + (
        "provider = await create_async(options)\n"
        "failures = await module.check_family(provider, family)\n"
        "provider.close()\n"
        "failures\n"
    )
    return host.run_python(code, **SOURCES, family=family, options=options, timeout=900)


@pytest.mark.parametrize("family", FAMILIES)
def test_kernels_like_numpy(pyodide_worker: PyodideHost, family: str):
    assert run_family(pyodide_worker, family) == []


@pytest.mark.parametrize("family", ["matmul", "conv", "reduction", "rows", "one row", "long sums", "updates"])
def test_kernels_for_real_gpus(pyodide_worker: PyodideHost, family: str):
    assert run_family(pyodide_worker, family, software=False) == []


def test_low_limits(pyodide_worker: PyodideHost):
    """Far below what WebGPU guarantees: operators with many inputs, weights and dispatches are split."""
    assert run_family(pyodide_worker, "limits", **limit_cases.NARROW) == []


def test_on_the_main_thread(pyodide_page: PyodideHost):
    assert run_family(pyodide_page, "matmul") == []


def model_folder(name: str) -> Path:
    """A model of the collection: the small ones are in the repository too."""
    shared = shared_dir()
    for root in (DATA / "zoo", *([shared / "zoo"] if shared is not None else [])):
        if (root / name / "model.onnx").is_file():
            return root / name
    pytest.skip(f"{name} is in the shared collection only, which is not here")


MODELS = [
    "torch_mobilenetv2_ts", "torch_resnet18w32_dyn", "torch_resnet18w32_fp16_dyn", "torch_bert_dyn", "torch_unet_ts",
    "torch_gpt_dyn",
]  # fmt: skip

RUN_MODEL = """
import onnxlet
session = await onnxlet.InferenceSession.create(bytes(model), providers=["webgpu"])
results = [await session.run_async(None, feeds) for feeds in (given, given)][1]
rows = [[row.operator, row.provider, row.reason] for row in session.explain().rows]
names = [output.name for output in session.get_outputs()]
session.close()
[dict(zip(names, results)), rows]
"""


def run_model(host: PyodideHost, name: str) -> list[list[str]]:
    """Run a model on its example twice, compare with what its framework gave; returns the rows of `explain()`."""
    folder = model_folder(name)
    data = np.load(folder / "data.npz")
    tolerance = json.loads((folder / "meta.json").read_text())["tol"]
    inputs = [key for key in data.files if key.startswith("in:")]
    code = f"given = {{{', '.join(f'{key[3:]!r}: feed{i}' for i, key in enumerate(inputs))}}}\n" + RUN_MODEL
    feeds = {f"feed{i}": data[key] for i, key in enumerate(inputs)}
    results, rows = host.run_python(code, model=folder / "model.onnx", timeout=900, **feeds)
    for key, got in results.items():
        want = data[f"out:{key}"]
        np.testing.assert_allclose(got, want, rtol=0, atol=tolerance * max(1.0, float(np.abs(want).max())))
    return rows


@pytest.mark.parametrize("name", MODELS)
def test_models(pyodide_worker: PyodideHost, name: str):
    """All on the GPU, except shape arithmetic, which is in the plan, and what has a reason."""
    rows = run_model(pyodide_worker, name)
    assert any(provider == "WebGpuExecutionProvider" for _, provider, _ in rows)
    elsewhere = [row for row in rows if row[1] not in ("WebGpuExecutionProvider", "plan")]
    assert all("WebGpuExecutionProvider: int64 stays on the CPU" in reason for _, _, reason in elsewhere), elsewhere
    assert len(elsewhere) <= 2


def test_a_synchronous_session_waits_through_jspi(pyodide_worker: PyodideHost):
    data = np.load(model_folder("torch_mobilenetv2_ts") / "data.npz")
    code = """
    import onnxlet
    session = onnxlet.InferenceSession(bytes(model), providers=["WebGpuExecutionProvider"])
    result = session.run(None, {"in0": feed})[0]
    session.close()
    result
    """
    model = model_folder("torch_mobilenetv2_ts") / "model.onnx"
    got = pyodide_worker.run_python(code, model=model, feed=data["in:in0"])
    (want,) = (data[key] for key in data.files if key.startswith("out:"))
    np.testing.assert_allclose(got, want, atol=1e-4)


TWO_STEPS = """
from onnxlet.graph.ir import Node, TensorType
from onnxlet.providers.base import Step
import numpy as np
type_ = TensorType(np.dtype(np.float32), (5,))
steps = [Step(Node("Exp", ["x"], ["y"], {}, "", 13, "e"), [type_], [type_], {})]
segment = module.segment_of(steps, ["y"])
"""


def test_overlapping_runs(pyodide_worker: PyodideHost):
    code = (
        LOAD_CASES
        + TWO_STEPS
        + """
import asyncio
provider = await create_async({})
executable = provider.compile(segment)
runs = [executable.run([np.full(5, i, np.float32)]) for i in range(4)]
results = [r[0][0] for r in await asyncio.gather(*runs)]
executable.close()
provider.close()
results
"""
    )
    got = pyodide_worker.run_python(code, **SOURCES)
    np.testing.assert_allclose(got, np.exp(np.arange(4)), rtol=1e-5)


def test_a_lost_device_is_reported(pyodide_worker: PyodideHost):
    code = (
        LOAD_CASES
        + TWO_STEPS
        + """
import asyncio
provider = await create_async({})
executable = provider.compile(segment)
await executable.run([np.ones(5, np.float32)])
provider.device.handle.destroy()
await executable.run([np.ones(5, np.float32)])
"""
    )
    with pytest.raises(SnippetError, match="was lost") as caught:
        pyodide_worker.run_python(code, **SOURCES)
    assert caught.value.types[0] == "DeviceLostError"


def test_a_session_goes_on_after_a_loss(pyodide_worker: PyodideHost):
    """The device is destroyed in the middle of a run: a new one is made, and the caller is told."""
    code = """
    import warnings
    import numpy as np
    import onnxlet
    session = await onnxlet.InferenceSession.create(bytes(model), providers=["webgpu"])
    first = (await session.run_async(None, {"in0": given}))[0]
    (provider,) = (p for p in session._providers if p.name == "WebGpuExecutionProvider")
    run = provider.device.run
    async def destroyed(*arguments):
        provider.device.handle.destroy()
        return await run(*arguments)
    provider.device.run = destroyed
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        second = (await session.run_async(None, {"in0": given}))[0]
    third = (await session.run_async(None, {"in0": given}))[0]
    rows = {row.provider for row in session.explain().rows}
    session.close()
    [first, second, third, [str(w.message) for w in told], sorted(rows)]
    """
    folder = model_folder("torch_mobilenetv2_ts")
    data = np.load(folder / "data.npz")
    first, second, third, told, rows = pyodide_worker.run_python(
        dedent(code), model=folder / "model.onnx", given=data["in:in0"], timeout=600
    )
    np.testing.assert_array_equal(second, first)
    np.testing.assert_array_equal(third, first)
    assert any("was lost" in text and "has a new device" in text for text in told)
    assert "WebGpuExecutionProvider" in rows


def test_a_bad_shader_is_named_with_its_line(pyodide_worker: PyodideHost):
    code = """
    from onnxlet_webgpu.provider import create_async
    provider = await create_async({})
    text = "// Nonsense(f32[1])\\n@group(0) @binding(0) var<storage, read_write> y: array<f32>;\\nfn main( {\\n"
    pipeline = provider.device.pipeline(text, 1)
    await provider.device.ready([pipeline])
    """
    with pytest.raises(SnippetError, match=r"(?s)the shader of Nonsense\(f32\[1\]\).*line 3: .*fn main\( \{") as caught:
        pyodide_worker.run_python(code)
    assert caught.value.types[0] == "ProviderError"


def test_without_webgpu_the_reason_is_told(chromium: Chromium):
    before = (
        "if (typeof WorkerNavigator !== 'undefined') delete WorkerNavigator.prototype.gpu;"
        "if (typeof Navigator !== 'undefined') delete Navigator.prototype.gpu;"
    )
    host = chromium.pyodide(worker=True, before=before)
    code = """
    import onnxlet
    from onnxlet_webgpu.provider import available
    [available(), onnxlet.get_available_providers()]
    """
    reason, providers = host.run_python(code)
    assert "no WebGPU" in reason
    assert providers == ["CPUExecutionProvider"]


def test_without_jspi_the_asynchronous_form_is_named(chromium: Chromium):
    host = chromium.pyodide(worker=True, before="delete WebAssembly.Suspending; delete WebAssembly.promising;")
    with pytest.raises(SnippetError, match=r"await InferenceSession\.create"):
        host.run_python("from onnxlet_webgpu.provider import create\ncreate({})")
    assert run_family(host, "elementwise") == []


COUNTING = """
from pyodide.code import run_js
counts = run_js('''(() => {
  const counts = { submit: 0, map: 0, dispatch: 0, bindGroups: 0, writes: 0 };
  const count = (prototype, name, key) => {
    const original = prototype[name];
    prototype[name] = function (...given) { counts[key]++; return original.apply(this, given); };
  };
  if (!globalThis.counted) {
    count(GPUQueue.prototype, "submit", "submit");
    count(GPUQueue.prototype, "writeBuffer", "writes");
    count(GPUBuffer.prototype, "mapAsync", "map");
    count(GPUComputePassEncoder.prototype, "dispatchWorkgroups", "dispatch");
    count(GPUDevice.prototype, "createBindGroup", "bindGroups");
    globalThis.counted = counts;
  }
  return globalThis.counted;
})()''')
import onnxlet
session = await onnxlet.InferenceSession.create(bytes(model), providers=["webgpu"])
await session.run_async(None, {"in0": feed})
before = {key: getattr(counts, key) for key in ("submit", "map", "dispatch", "bindGroups", "writes")}
await session.run_async(None, {"in0": feed})
after = {key: getattr(counts, key) for key in before}
nodes = session.explain().counts
session.close()
[{key: after[key] - before[key] for key in before}, nodes]
"""


def test_a_warm_run_is_one_submission_and_one_readback(pyodide_worker: PyodideHost):
    """Counted in JavaScript, outside of our code. Every node of this model is one dispatch at most."""
    folder = model_folder("torch_mobilenetv2_ts")
    data = np.load(folder / "data.npz")
    calls, nodes = pyodide_worker.run_python(COUNTING, model=folder / "model.onnx", feed=data["in:in0"])
    assert nodes.keys() == {"WebGpuExecutionProvider"}
    assert calls.pop("dispatch") <= nodes["WebGpuExecutionProvider"]
    assert calls == {"submit": 1, "map": 1, "bindGroups": 0, "writes": 1}


WARM = """
from pyodide.code import run_js
made = run_js('''(() => {
  const made = { count: 0 };
  for (const name of ["createComputePipeline", "createComputePipelineAsync"]) {
    const original = GPUDevice.prototype[name];
    GPUDevice.prototype[name] = function (...given) { made.count++; return original.apply(this, given); };
  }
  return made;
})()''')
import onnxlet
session = await onnxlet.InferenceSession.create(bytes(model), providers=["webgpu"])
told = []
await session.warmup_async({"in0": feed.shape}, progress=lambda title, done, total: told.append([done, total]))
before = made.count
await session.run_async(None, {"in0": feed})
after = made.count
session.close()
[before, after, told]
"""


def test_the_first_run_after_a_warm_up_makes_no_pipelines(pyodide_worker: PyodideHost):
    """Counted in JavaScript, outside of our code."""
    folder = model_folder("torch_mobilenetv2_ts")
    data = np.load(folder / "data.npz")
    before, after, told = pyodide_worker.run_python(WARM, model=folder / "model.onnx", feed=data["in:in0"])
    assert after == before > 0
    assert [done for done, _ in told] == list(range(1, told[-1][1] + 1))


def test_out_of_memory_is_told(pyodide_worker: PyodideHost):
    """The browser says only later that it had no room; here it is made to say so."""
    code = (
        LOAD_CASES
        + TWO_STEPS
        + """
from onnxlet_webgpu.browser_wgpu import GPUOutOfMemoryError
provider = await create_async({})
async def full():
    return GPUOutOfMemoryError("not enough memory left")
provider.device.handle.pop_error_scope_async = full
executable = provider.compile(segment)
await executable.run([np.ones(5, np.float32)])
"""
    )
    with pytest.raises(SnippetError, match=r"has no room for the model's buffers: not enough memory left") as caught:
        pyodide_worker.run_python(code, **SOURCES)
    assert caught.value.types[0] == "LimitError"


STATE = """
from pyodide.code import run_js
import numpy as np
import onnxlet
counts = run_js('''(() => {
  const counts = { map: 0, writes: 0 };
  const count = (prototype, name, key) => {
    const original = prototype[name];
    prototype[name] = function (...given) { counts[key]++; return original.apply(this, given); };
  };
  count(GPUQueue.prototype, "writeBuffer", "writes");
  count(GPUBuffer.prototype, "mapAsync", "map");
  return counts;
})()''')
session = await onnxlet.InferenceSession.create(bytes(model), providers=["webgpu"])
state = onnxlet.OrtValue.ortvalue_from_numpy(h, "webgpu")
binding = session.io_binding()
binding.bind_ortvalue_input("x", onnxlet.OrtValue.ortvalue_from_numpy(x, "webgpu"))
binding.bind_ortvalue_input("h", state)
binding.bind_output("h2", "webgpu")
states = []
for turn in range(5):
    if turn == 1:
        counts.map = counts.writes = 0
    await session.run_with_iobinding_async(binding)
    (state,) = binding.get_outputs()
    states.append(state)
    binding.bind_ortvalue_input("h", state)
between = [counts.map, counts.writes]
results = [await state.numpy_async() for state in states]
session.close()
[between, results]
"""


def test_state_stays_on_the_device(pyodide_worker: PyodideHost, tmp_path: Path):
    """Readbacks and writes are counted in JavaScript, outside of our code: there are none from run to run."""
    path = tmp_path / "recurrent.onnx"
    path.write_bytes(recurrent().SerializeToString())
    x, h = random(2, 4, seed=2), random(2, 6, seed=3)
    between, results = pyodide_worker.run_python(STATE, model=path, x=x, h=h)
    assert between == [0, 0]
    for got in results:
        h = step(x, h)
        np.testing.assert_allclose(got, h, rtol=1e-4, atol=1e-5)
