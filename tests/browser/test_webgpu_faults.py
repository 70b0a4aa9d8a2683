"""What goes wrong with a GPU in a page: sessions go on, and say what happened. Browsers that have none use the CPU."""

from __future__ import annotations

import numpy as np
import pytest

from provision import browser
from tests.browser.harness import Chromium, PyodideHost
from tests.browser.test_webgpu_provider import run_family
from tests.core.models import FLOAT, model, node
from tests.webgpu.cases import random

W = random(6, 5)


def product() -> bytes:
    nodes = [node("MatMul", ["x", "w"], ["p"], name="product"), node("Exp", ["p"], ["y"], name="exp")]
    made = model(nodes, [("x", FLOAT, [None, 6])], [("y", FLOAT, [None, 5])], {"w": W}, opset=21)
    return made.SerializeToString()


def expected(x: np.ndarray) -> np.ndarray:
    return np.exp(x @ W)


X = random(3, 6)

SESSION = """
import asyncio, warnings
import numpy as np
import onnxlet
from pyodide.code import run_js

async def made(providers=("webgpu",)):
    return await onnxlet.InferenceSession.create(bytes(model), providers=list(providers))

async def run(session, x):
    return (await session.run_async(None, {"x": x}))[0]

def used(session):
    return sorted({row.provider for row in session.explain().rows})
"""


def test_overlapping_runs_of_two_sessions(pyodide_worker: PyodideHost) -> None:
    code = """
    one, two = await made(), await made()
    runs = [run(session, x[: i + 1]) for i in range(3) for session in (one, two)]
    results = await asyncio.gather(*runs)
    one.close()
    results.append(await run(two, x))  # does not mind that the other one is gone
    two.close()
    results
    """
    results = pyodide_worker.run_python(SESSION + _dedented(code), model=product(), x=X)
    for i, (first, second) in enumerate(zip(results[:-1:2], results[1:-1:2], strict=True)):
        np.testing.assert_allclose(first, expected(X[: i + 1]), rtol=1e-4)
        np.testing.assert_allclose(second, expected(X[: i + 1]), rtol=1e-4)
    np.testing.assert_allclose(results[-1], expected(X), rtol=1e-4)


def test_a_blocking_run_in_the_middle_of_another_says_so(pyodide_worker: PyodideHost) -> None:
    code = """
    session = await made()
    await run(session, x)
    first = asyncio.ensure_future(run(session, x))
    await asyncio.sleep(0)
    try:
        session.run(None, {"x": x})
        told = "nothing"
    except onnxlet.ProviderError as error:
        told = str(error)
    result = await first
    again = session.run(None, {"x": x})[0]
    session.close()
    [told, result, again]
    """
    told, result, again = pyodide_worker.run_python(SESSION + _dedented(code), model=product(), x=X)
    assert "another run of this session is under way; await it first" in told
    np.testing.assert_allclose(result, expected(X), rtol=1e-4)
    np.testing.assert_array_equal(again, result)


def test_sessions_come_and_go(pyodide_worker: PyodideHost) -> None:
    """Each leaves nothing behind: its device is destroyed, with all its buffers."""
    code = """
    counts = run_js('''(() => {
      const counts = { devices: 0, destroyed: 0 };
      const request = GPUAdapter.prototype.requestDevice, destroy = GPUDevice.prototype.destroy;
      GPUAdapter.prototype.requestDevice = function (...given) { counts.devices++; return request.apply(this, given); };
      GPUDevice.prototype.destroy = function () { counts.destroyed++; return destroy.apply(this); };
      return counts;
    })()''')
    results = []
    for _ in range(8):
        session = await made()
        results.append(await run(session, x))
        session.close()
    [results, counts.devices, counts.destroyed]
    """
    results, devices, destroyed = pyodide_worker.run_python(SESSION + _dedented(code), model=product(), x=X)
    assert devices == destroyed == 8
    for result in results:
        np.testing.assert_allclose(result, expected(X), rtol=1e-4)


@pytest.mark.parametrize("place", ["between runs", "in the middle of a run", "while getting warm"])
def test_a_destroyed_device_is_replaced(pyodide_worker: PyodideHost, place: str) -> None:
    code = """
    session = await made()
    first = await run(session, x)
    device = session._providers[0].device
    async def destroyed(*given):
        device.handle.destroy()
        return await original(*given)
    original = device.run
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        if place == "in the middle of a run":
            device.run = destroyed
        else:
            device.handle.destroy()
            await asyncio.sleep(0.05)
        if place == "while getting warm":
            await session.warmup_async({"x": (2, 6)})
        second = await run(session, x)
    third = await run(session, x)
    providers = used(session)
    session.close()
    [first, second, third, [str(w.message) for w in told], providers]
    """
    first, second, third, told, providers = pyodide_worker.run_python(
        SESSION + _dedented(code), model=product(), x=X, place=place
    )
    for result in (first, second, third):
        np.testing.assert_allclose(result, expected(X), rtol=1e-4)
    assert len(told) == 1
    assert "was lost" in told[0]
    assert "has a new device" in told[0]
    assert providers == ["WebGpuExecutionProvider"]


def test_without_another_device_the_cpu_goes_on(pyodide_worker: PyodideHost) -> None:
    code = """
    session = await made()
    first = await run(session, x)
    session._providers[0].device.handle.destroy()
    await asyncio.sleep(0.05)
    request = run_js('''(() => {
      const original = GPU.prototype.requestAdapter;
      GPU.prototype.requestAdapter = async () => null;
      return () => { GPU.prototype.requestAdapter = original; };
    })()''')
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        second = await run(session, x)
    request()
    providers = used(session)
    session.close()
    [first, second, [str(w.message) for w in told], providers]
    """
    first, second, told, providers = pyodide_worker.run_python(SESSION + _dedented(code), model=product(), x=X)
    np.testing.assert_allclose(first, expected(X), rtol=1e-4)
    np.testing.assert_allclose(second, expected(X), rtol=1e-5)
    assert "could not be restored" in told[0]
    assert "goes on without it" in told[0]
    assert providers == ["CPUExecutionProvider"]


def test_out_of_memory_names_nodes_and_the_session_goes_on(pyodide_worker: PyodideHost) -> None:
    """A browser says only later that it had no room: here it says so of buffers of more than a megabyte."""
    code = """
    session = await made()
    first = await run(session, x)
    restore = run_js('''(() => {
      const create = GPUDevice.prototype.createBuffer, pop = GPUDevice.prototype.popErrorScope;
      let full = false;
      GPUDevice.prototype.createBuffer = function (how) { full ||= how.size > 1 << 20; return create.call(this, how); };
      GPUDevice.prototype.popErrorScope = async function () {
        const error = await pop.call(this);
        if (!full) return error;
        full = false;
        return new GPUOutOfMemoryError('not enough memory left');
      };
      return () => { GPUDevice.prototype.createBuffer = create; GPUDevice.prototype.popErrorScope = pop; };
    })()''')
    told, results = [], []
    for _ in range(2):
        try:
            await run(session, np.zeros((100_000, 6), np.float32))
        except onnxlet.LimitError as error:
            told.append(str(error))
        results.append(await run(session, x))
    restore()
    results.append((await run(session, np.zeros((100_000, 6), np.float32)))[:3])
    providers = used(session)
    session.close()
    [told, first, results, providers]
    """
    told, first, results, providers = pyodide_worker.run_python(SESSION + _dedented(code), model=product(), x=X)
    assert len(told) == 2
    for text in told:
        assert "has no room for the model's buffers: not enough memory left" in text
        assert "(2,000,000 bytes)" in text
        assert "bytes are in use" in text
        assert "'product'" in text or "'exp'" in text
    for result in (first, *results[:2]):
        np.testing.assert_allclose(result, expected(X), rtol=1e-4)
    np.testing.assert_array_equal(results[2], np.ones((3, 5)))
    assert providers == ["WebGpuExecutionProvider"]


def test_a_failed_shader_does_not_poison_the_next_run(pyodide_worker: PyodideHost) -> None:
    """What the compiler refuses once is named, and compiled again when it is wanted again."""
    code = """
    session = await made()
    restore = run_js('''(() => {
      const create = GPUDevice.prototype.createShaderModule;
      GPUDevice.prototype.createShaderModule = function (how) {
        return create.call(this, { ...how, code: how.code.replace('fn main', 'fn main(') });
      };
      return () => { GPUDevice.prototype.createShaderModule = create; };
    })()''')
    told = []
    for _ in range(2):
        try:
            await run(session, x)
        except onnxlet.ProviderError as error:
            told.append(str(error))
    restore()
    results = [await run(session, x), await run(session, x[:2])]
    providers = used(session)
    session.close()
    [told, results, providers]
    """
    told, results, providers = pyodide_worker.run_python(SESSION + _dedented(code), model=product(), x=X)
    assert len(told) == 2
    for text in told:
        assert "was refused by the GPU's compiler" in text
        assert "fn main(@builtin" in text
    np.testing.assert_allclose(results[0], expected(X), rtol=1e-4)
    np.testing.assert_allclose(results[1], expected(X[:2]), rtol=1e-4)
    assert providers == ["WebGpuExecutionProvider"]


WITHOUT = {
    "WebGPU": "if (globalThis.GPU) delete (globalThis.WorkerNavigator ?? globalThis.Navigator).prototype.gpu;",
    "JSPI": "delete WebAssembly.Suspending; delete WebAssembly.promising;",
}
"""JavaScript that takes something away from a browser."""

ON_THE_CPU = """
answers = []
for providers in (["webgpu", "cpu"], ["webgpu"], ["auto"]):
    for asynchronous in (True, False):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            try:
                session = await made(providers) if asynchronous else onnxlet.InferenceSession(
                    bytes(model), providers=providers
                )
            except onnxlet.ProviderError as error:
                answers.append([str(error), None, [], []])
                continue
        result = (await run(session, x)) if asynchronous else session.run(None, {"x": x})[0]
        choice = session.explain().choice
        reason = "" if choice is None else choice.reason
        answers.append([reason, result, used(session), [str(w.message) for w in told]])
        session.close()
answers
"""


def check_absence(answers: list[list], why: str) -> None:
    """With the CPU to go on with there is a warning, without it an error, and what chooses says why it chose."""
    for reason, result, providers, told in (*answers[:2], *answers[4:]):
        np.testing.assert_allclose(result, expected(X), rtol=1e-5)
        assert providers == ["CPUExecutionProvider"]
        assert why in (told[0] if told else reason)
    assert [len(told) for *_, told in answers] == [1, 1, 0, 0, 0, 0]
    for reason, result, *_ in answers[2:4]:
        assert result is None
        assert why in reason
        assert "Add 'CPUExecutionProvider'" in reason


def test_a_browser_without_webgpu_uses_the_cpu(chromium: Chromium) -> None:
    host = chromium.pyodide(before=WITHOUT["WebGPU"])
    check_absence(host.run_python(SESSION + ON_THE_CPU, model=product(), x=X), "navigator.gpu is missing")


def test_chromium_as_it_comes_uses_the_cpu(chromium: Chromium) -> None:
    """Without its flags Chromium has no adapter on a machine without a GPU; where there is one, it computes."""
    flags = tuple(flag for flag in browser.FLAGS if "webgpu" not in flag)
    host = chromium.pyodide(flags=flags)
    answers = host.run_python(SESSION + ON_THE_CPU, model=product(), x=X)
    for _, result, *_ in answers[:2]:
        np.testing.assert_allclose(result, expected(X), rtol=1e-4)
    if answers[0][2] == ["CPUExecutionProvider"]:
        check_absence(answers, "has WebGPU but gives no adapter")


def test_neither_webgpu_nor_jspi(chromium: Chromium) -> None:
    host = chromium.pyodide(before=WITHOUT["WebGPU"] + WITHOUT["JSPI"])
    check_absence(host.run_python(SESSION + ON_THE_CPU, model=product(), x=X), "navigator.gpu is missing")


def test_without_jspi_only_waiting_is_impossible(chromium: Chromium) -> None:
    """The asynchronous form computes on the GPU; the other one says what it lacks, and uses the CPU."""
    host = chromium.pyodide(before=WITHOUT["JSPI"])
    answers = host.run_python(SESSION + ON_THE_CPU, model=product(), x=X)
    for _, result, *_ in (*answers[:3], *answers[4:]):
        np.testing.assert_allclose(result, expected(X), rtol=1e-4)
    assert answers[0][2] == answers[2][2] == ["WebGpuExecutionProvider"]
    assert answers[1][2] == answers[5][2] == ["CPUExecutionProvider"]
    assert "no JavaScript promise integration (JSPI)" in answers[1][3][0]
    assert "await InferenceSession.create(...)" in answers[1][3][0]
    assert "(JSPI)" in answers[3][0]
    assert "(JSPI)" in answers[5][0]


@pytest.mark.parametrize("family", ["reduction", "rows"])
def test_with_workgroup_memory_that_starts_as_zeros(chromium: Chromium, family: str) -> None:
    """As browsers have it: our other tests run without, where reading it before writing shows."""
    host = chromium.pyodide(flags=tuple(browser.FLAGS))
    assert run_family(host, family) == []
    assert run_family(host, family, software=False) == []


def _dedented(code: str) -> str:
    return "\n".join(line[4:] for line in code.splitlines())
