"""Sessions in Pyodide where they differ from a desktop: waiting, memory, the main thread."""

from __future__ import annotations

import asyncio
import contextlib

import numpy as np

from tests.browser.harness import Chromium, PyodideHost
from tests.core.models import FLOAT, INT64, model, node

WITHOUT_JSPI = "delete WebAssembly.Suspending; delete WebAssembly.promising;"

PRODUCT = model(
    [node("MatMul", ["x", "w"], ["y"])],
    [("x", FLOAT, [2, 2])],
    [("y", FLOAT, [2, 2])],
    {"w": np.array([[1, 2], [3, 4]], np.float32)},
).SerializeToString()


def test_without_jspi_a_blocking_session_says_what_to_do(chromium: Chromium) -> None:
    found = chromium.pyodide(before=WITHOUT_JSPI).run_python(
        """
        import warnings
        import numpy as np
        import onnxlet

        def caught(call):
            try:
                call()
            except onnxlet.OnnxletError as error:
                return [type(error).__name__, str(error)]

        x = np.eye(2, dtype=np.float32)
        alone = caught(lambda: onnxlet.InferenceSession(product, providers=["webgpu"]))
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            both = onnxlet.InferenceSession(product, providers=["webgpu", "cpu"])
        blocking = await onnxlet.InferenceSession.create(product, providers=["webgpu"])
        {
            "alone": alone,
            "both": both.run(None, {"x": x})[0],
            "why": both.explain().absent,
            "warned": [str(w.message) for w in warned],
            "run": caught(lambda: blocking.run(None, {"x": x})),
            "awaited": (await blocking.run_async(None, {"x": x}))[0],
        }
        """,
        product=PRODUCT,
    )
    assert found["alone"][0] == "ProviderError"
    assert "InferenceSession.create" in found["alone"][1]
    np.testing.assert_array_equal(found["both"], [[1, 2], [3, 4]])
    assert "InferenceSession.create" in found["why"]["WebGpuExecutionProvider"]
    assert "WebGpuExecutionProvider is not used" in found["warned"][0]
    assert found["run"][0] == "ProviderError"
    assert "run_async" in found["run"][1]
    np.testing.assert_array_equal(found["awaited"], [[1, 2], [3, 4]])


def test_with_jspi_a_blocking_session_runs_on_the_gpu(pyodide_worker: PyodideHost) -> None:
    y, counts = pyodide_worker.run_python(
        """
        import numpy as np
        import onnxlet
        with onnxlet.InferenceSession(product, providers=["webgpu"]) as session:
            (y,) = session.run(None, {"x": np.eye(2, dtype=np.float32)})
            counts = session.explain().counts
        [y, counts]
        """,
        product=PRODUCT,
    )
    np.testing.assert_array_equal(y, [[1, 2], [3, 4]])
    assert counts == {"WebGpuExecutionProvider": 1}


def test_overlapping_runs_take_turns(pyodide_worker: PyodideHost) -> None:
    results = pyodide_worker.run_python(
        """
        import asyncio
        import numpy as np
        import onnxlet
        session = await onnxlet.InferenceSession.create(product, providers=["webgpu", "cpu"])
        runs = [session.run_async(None, {"x": np.full((2, 2), i, np.float32)}) for i in range(8)]
        [y for (y,) in await asyncio.gather(*runs)]
        """,
        product=PRODUCT,
    )
    for i, y in enumerate(results):
        np.testing.assert_array_equal(y, [[4 * i, 6 * i]] * 2)


def test_a_model_larger_than_memory_is_an_error_and_the_next_run_works(pyodide_worker: PyodideHost) -> None:
    made = model(
        [
            node("Expand", ["x", "shape"], ["e"]),
            node("Exp", ["e"], ["f"]),
            node("ReduceMax", ["f"], ["y"], keepdims=0),
        ],
        [("x", FLOAT, [1]), ("shape", INT64, [2])],
        [("y", FLOAT, [])],
    )
    error, y = pyodide_worker.run_python(
        """
        import numpy as np
        import onnxlet
        session = onnxlet.InferenceSession(large)
        x = np.zeros(1, np.float32)
        try:
            session.run(None, {"x": x, "shape": np.array([60000, 60000], np.int64)})
        except onnxlet.OnnxletError as caught:
            error = [type(caught).__name__, str(caught)]
        [error, session.run(None, {"x": x, "shape": np.array([2, 3], np.int64)})[0]]
        """,
        large=made.SerializeToString(),
    )
    assert error[0] in ("LimitError", "NodeError"), error
    assert y == 1


def test_closing_gives_memory_back(chromium: Chromium) -> None:
    made = model(
        [node("MatMul", ["x", "w"], ["y"])],
        [("x", FLOAT, [1, 1024])],
        [("y", FLOAT, [1, 1024])],
        {"w": np.ones((1024, 1024), np.float32)},
    )
    sums = chromium.pyodide().run_python(
        """
        import numpy as np
        import onnxlet
        sums = []
        for _ in range(60):
            with onnxlet.InferenceSession(weights) as session:
                sums.append(float(session.run(None, {"x": np.ones((1, 1024), np.float32)})[0].sum()))
        sums
        """,
        weights=made.SerializeToString(),
    )
    # Sixty memories of their own would not fit into one page's address space, were they kept.
    assert sums == [1024.0 * 1024] * 60


def test_sessions_leave_no_memory_behind(pyodide_worker: PyodideHost) -> None:
    code = """
        import gc
        import numpy as np
        import onnxlet, pyodide_js

        x = np.eye(2, dtype=np.float32)
        for _ in range(cycles):
            session = await onnxlet.InferenceSession.create(product)
            for _ in range(5):
                session.run(None, {"x": x})
            session.close()
        del session
        gc.collect()
        pyodide_js._module.HEAP8.length
        """

    def held(cycles: int) -> tuple[int, int]:
        heap = pyodide_worker.run_python(code, product=PRODUCT, cycles=cycles)
        measure = "async () => (await performance.measureUserAgentSpecificMemory()).bytes"
        return heap, pyodide_worker.evaluate(measure)

    heap, page = held(10)
    heap_later, page_later = held(40)
    assert heap_later == heap
    assert page_later - page < 20e6  # each session has a memory of 2 MB or more


def test_a_page_that_crashed_is_opened_again(chromium: Chromium) -> None:
    host = chromium.pyodide(worker=False, isolated=False, wheel=False)
    assert host.run_python("1 + 1") == 2

    async def crash() -> None:
        session = await host.page.context.new_cdp_session(host.page)
        with contextlib.suppress(Exception):  # nothing answers any more
            await asyncio.wait_for(session.send("Page.crash"), 20)

    chromium.call(crash())
    assert host.run_python("2 + 2") == 4
