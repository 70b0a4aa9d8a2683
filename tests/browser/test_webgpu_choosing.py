"""`providers=["auto"]` in a page, by a clock that the test moves."""

from __future__ import annotations

import numpy as np
import pytest

from tests.browser.harness import PyodideHost
from tests.browser.test_webgpu_faults import SESSION, X, expected, product

CHOOSE = """
from onnxlet.execution import choosing
from onnxlet_wasm.provider import KernelProvider

now = 0.0
costs = {"WebGpuExecutionProvider": on_the_gpu, "CPUExecutionProvider": on_the_cpu}
choosing.clock = lambda: now
choosing.remembered.clear()

def timed(executable, name):
    class Timed:
        def __init__(self):
            self.close = executable.close
        def run(self, values):
            global now
            now += costs[name]
            return executable.run(values)
    return Timed()

compile = KernelProvider.compile
KernelProvider.compile = lambda self, segment: timed(compile(self, segment), self.name)
answers = []
for turn in range(2):
    session = await made(["auto"]) if asynchronous else onnxlet.InferenceSession(bytes(model), providers=["auto"])
    gpu = session._providers[0]
    compile_there = gpu.compile
    gpu.compile = lambda segment: timed(compile_there(segment), gpu.name)
    results = [await run(session, x) if asynchronous else session.run(None, {"x": x})[0] for _ in range(2)]
    choice = session.explain().choice
    answers.append([results, choice.provider, choice.reason, dict(choice.seconds), used(session), gpu.device.closed])
    session.close()
KernelProvider.compile = compile
answers
"""


@pytest.mark.parametrize("asynchronous", [True, False])
@pytest.mark.parametrize("costs", [(0.001, 0.002), (0.002, 0.001)])
def test_the_faster_provider_is_kept(pyodide_worker: PyodideHost, costs: tuple[float, float], asynchronous: bool):
    first, second = pyodide_worker.run_python(
        SESSION + CHOOSE, model=product(), x=X, on_the_gpu=costs[0], on_the_cpu=costs[1], asynchronous=asynchronous
    )
    faster = "WebGpuExecutionProvider" if costs[0] < costs[1] else "CPUExecutionProvider"
    for results, provider, _, seconds, used, closed in (first, second):
        for result in results:
            np.testing.assert_allclose(result, expected(X), rtol=1e-4)
        assert provider == faster
        assert used == [faster]
        assert [*seconds.values()] == pytest.approx(costs)
        assert closed == (faster == "CPUExecutionProvider")
    gpu, cpu = (f"{1000 * cost:.3g} ms" for cost in costs)
    assert first[2] == f"a run took {gpu} on WebGpuExecutionProvider, {cpu} on CPUExecutionProvider"
    assert second[2] == f"known from before: {first[2]}"
