"""Threads in a page: workers on the shared memory where the page is isolated, one thread where it is not."""

from __future__ import annotations

import numpy as np
import pytest

from tests.browser.harness import Chromium, PyodideHost
from tests.wasm.test_threads import convolutions, some, transformer

X = some(4, 160, 64)

RUNS = """
import asyncio
import onnxlet

def session_of(source, threads):
    options = onnxlet.SessionOptions()
    options.intra_op_num_threads = threads
    return onnxlet.InferenceSession(source, options)

def thread_stats(session):
    return session._providers[0]._memory.engine.thread_stats()

async def wait_for(condition):
    for _ in range(3000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise TimeoutError

"""


@pytest.fixture(params=["pyodide_worker", "pyodide_page"])
def isolated(request: pytest.FixtureRequest) -> PyodideHost:
    return request.getfixturevalue(request.param)


@pytest.fixture(params=["pyodide_plain_worker", "pyodide_plain_page"])
def plain(request: pytest.FixtureRequest) -> PyodideHost:
    return request.getfixturevalue(request.param)


@pytest.mark.parametrize(("source", "shape"), [(convolutions(), (1, 3, 96, 96)), (transformer(), (4, 160, 64))])
def test_workers_help_and_give_the_same_bytes(isolated, source, shape):
    same, stats = isolated.run_python(
        RUNS
        + """
alone = session_of(source, 1)
expected = [y.tobytes() for y in alone.run(None, {"x": x})]
alone.close()
session = session_of(source, 3)
same = [[y.tobytes() for y in session.run(None, {"x": x})] == expected]
await wait_for(lambda: thread_stats(session)["threads"] == 2)

def helped():
    same.append([y.tobytes() for y in session.run(None, {"x": x})] == expected)
    return thread_stats(session)["pieces"] > 10

await wait_for(helped)
for _ in range(100):
    same.append([y.tobytes() for y in session.run(None, {"x": x})] == expected)
stats = thread_stats(session)
session.close()
[all(same), stats]
""",
        source=source,
        x=some(*shape),
    )
    assert same
    assert stats["threads"] == 2
    assert stats["pieces"] > 0


def test_an_awaited_session_has_threads_without_another_turn(isolated):
    """Its workers are up when it is there, so that one snippet of synchronous code has them."""
    source, x = large(), some(256, 512)
    pieces = isolated.run_python(
        RUNS
        + """
import time
options = onnxlet.SessionOptions()
options.intra_op_num_threads = 2
await onnxlet.ready(2)
await asyncio.sleep(3)  # however long workers take to start here
session = await onnxlet.InferenceSession.create(source, options)
end = time.monotonic() + 60
while thread_stats(session)["pieces"] == 0 and time.monotonic() < end:
    session.run(None, {"x": x})
pieces = thread_stats(session)["pieces"]
session.close()
pieces
""",
        source=source,
        x=x,
    )
    assert pieces > 0


def large() -> bytes:
    """A product with a megabyte of weights."""
    from tests.core.models import FLOAT, model, node

    return model(
        [node("MatMul", ["x", "w"], ["y"])],
        [("x", FLOAT, [256, 512])],
        [("y", FLOAT, [256, 512])],
        {"w": some(512, 512)},
    ).SerializeToString()


def test_sessions_share_the_workers_of_a_page(isolated):
    """Closed ones and dropped ones give theirs back."""
    same, up = isolated.run_python(
        RUNS
        + """
import gc
first = session_of(source, 2)
expected = first.run(None, {"x": x})[0].tobytes()
same = []
for i in range(30):
    session = session_of(source, 3)
    same.append(session.run(None, {"x": x})[0].tobytes() == expected)
    if i % 3 == 0:
        await asyncio.sleep(0.01)
    same.append(session.run(None, {"x": x})[0].tobytes() == expected)
    same.append(first.run(None, {"x": x})[0].tobytes() == expected)
    if i % 2:
        session.close()
    del session
    gc.collect()
last = session_of(source, 3)
last.run(None, {"x": x})
await wait_for(lambda: thread_stats(last)["threads"] == 2)
await wait_for(lambda: thread_stats(first)["threads"] == 1)
up = thread_stats(last)["threads"]
same.append(last.run(None, {"x": x})[0].tobytes() == expected)
last.close()
first.close()
[all(same), up]
""",
        source=transformer(),
        x=X,
    )
    assert same
    assert up == 2


def test_a_kernel_that_traps_stops_the_threads_and_no_one_waits(isolated):
    caught, same, stats = isolated.run_python(
        RUNS
        + """
import numpy as np
from onnxlet_wasm.engine import Engine, Tape
engine = Engine.create(threads=3)
engine.share()
await wait_for(lambda: engine.thread_stats()["threads"] == 2)
count = 200_000
block = engine.alloc(2 * count)

def tape_of(*operations):
    made = Tape(engine)
    for x, y in operations:
        made.emit("logical_not", units=count, grain=1000, x=x, y=y)
    address = engine.alloc(made.words.nbytes)
    engine.write(address, made.words)
    return address, len(made.words), 0, engine.control

good = tape_of((block, block + count), (block + count, block))
bad = tape_of((block, block + count), (block, (1 << 32) - 100_000))
x = np.arange(count) % 3 == 0
engine.write(block, x)
engine.run_shared(*good)
caught = 0
for _ in range(3):
    try:
        engine.run_shared(*bad)
    except Exception:
        caught += 1
engine.run_shared(*good)
same = engine.read(block, np.bool_, (count,)).tobytes() == x.tobytes()
await wait_for(lambda: engine.thread_stats()["threads"] == 0)
stats = engine.thread_stats()
engine.close()
[caught, same, stats["threads"]]
""",
    )
    assert caught == 3
    assert same
    assert stats == 0


def test_pages_without_isolation_have_one_thread(plain):
    features, stats, threads = plain.run_python(
        RUNS
        + """
session = session_of(source, 4)
session.run(None, {"x": x})
await asyncio.sleep(0.1)
session.run(None, {"x": x})
result = [
    {k: list(v) for k, v in onnxlet.features().items()},
    thread_stats(session),
    session._providers[0]._memory.engine.threads,
]
session.close()
result
""",
        source=transformer(),
        x=X,
    )
    assert threads == 1
    assert stats == {"threads": 0, "pieces": 0}
    assert not features["threads"][0]
    assert "isolated" in features["threads"][1]
    assert features["simd"][0]
    assert not features["isolation"][0]


def test_pages_that_refuse_workers_have_one_thread(chromium: Chromium):
    host = chromium.pyodide(before="globalThis.Worker = class { constructor() { throw new Error('forbidden'); } };")
    outputs, threads = host.run_python(
        RUNS
        + """
session = session_of(source, 4)
first = session.run(None, {"x": x})[0]
await asyncio.sleep(0.1)
second = session.run(None, {"x": x})[0]
session.close()
[[first, second], list(onnxlet.features()["threads"])]
""",
        source=transformer(),
        x=X,
    )
    np.testing.assert_array_equal(*outputs)
    assert not threads[0]
    assert "forbidden" in threads[1]
