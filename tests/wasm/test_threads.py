"""Programs with threads: the same bytes for any number of them, and no run that waits for one that is not there."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from onnxlet import InferenceSession, SessionOptions, features, ready
from onnxlet.errors import SessionClosedError
from onnxlet_wasm.engine import Engine, Tape
from onnxlet_wasm.threads import MOST_BY_DEFAULT, thread_count
from tests.core.models import FLOAT, model, node

RNG = np.random.default_rng(0)


def some(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def convolutions() -> bytes:
    """What image models are made of: a strided, a 3x3, a depthwise and a 1x1 convolution, pooling, a classifier."""
    weights = {
        "stem": some(16, 3, 3, 3), "dense": some(32, 16, 3, 3) * 0.1, "deep": some(32, 1, 3, 3),
        "point": some(64, 32, 1, 1), "head": some(64, 40),
    }  # fmt: skip
    return model(
        [
            node("Conv", ["x", "stem"], ["a"], strides=[2, 2], pads=[1, 1, 1, 1]),
            node("Relu", ["a"], ["b"]),
            node("Conv", ["b", "dense"], ["c"], pads=[1, 1, 1, 1]),
            node("Sigmoid", ["c"], ["d"]),
            node("Conv", ["d", "deep"], ["e"], pads=[1, 1, 1, 1], group=32),
            node("Conv", ["e", "point"], ["f"]),
            node("MaxPool", ["f"], ["g"], kernel_shape=[2, 2], strides=[2, 2]),
            node("GlobalAveragePool", ["g"], ["h"]),
            node("Flatten", ["h"], ["i"]),
            node("MatMul", ["i", "head"], ["y"]),
        ],
        [("x", FLOAT, [1, 3, 96, 96])],
        [("y", FLOAT, [1, 40]), ("g", FLOAT, [1, 64, 24, 24])],
        weights,
    ).SerializeToString()


def transformer() -> bytes:
    """Products, normalisation, softmax, transposes and elementwise operators of some size."""
    weights = {"q": some(64, 64), "k": some(64, 64), "v": some(64, 64), "scale": some(64), "bias": some(64)}
    return model(
        [
            node("LayerNormalization", ["x", "scale", "bias"], ["n"]),
            *(node("MatMul", ["n", w], [f"{w}x"]) for w in "qkv"),
            node("Transpose", ["kx"], ["kt"], perm=[0, 2, 1]),
            node("MatMul", ["qx", "kt"], ["s"]),
            node("Softmax", ["s"], ["p"]),
            node("MatMul", ["p", "vx"], ["o"]),
            node("Erf", ["o"], ["e"]),
            node("Add", ["e", "x"], ["y"]),
            node("ReduceMean", ["y"], ["m"], keepdims=0),
        ],
        [("x", FLOAT, [4, 160, 64])],
        [("y", FLOAT, [4, 160, 64]), ("m", FLOAT, [])],
        weights,
    ).SerializeToString()


MODELS: dict[str, tuple[Callable[[], bytes], tuple[int, ...]]] = {
    "convolutions": (convolutions, (1, 3, 96, 96)),
    "transformer": (transformer, (4, 160, 64)),
}


def session_of(source: bytes, threads: int) -> InferenceSession:
    options = SessionOptions()
    options.intra_op_num_threads = threads
    return InferenceSession(source, options)


def thread_stats(session: InferenceSession) -> dict[str, int]:
    """How many threads help a session, and how much they did."""
    provider: Any = session._providers[0]
    return provider._memory.engine.thread_stats()


def wait_for(condition: Callable[[], bool]) -> None:
    """Until something is so that other threads bring about."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "it did not come about within a minute"
        time.sleep(0.001)


@pytest.fixture(params=MODELS)
def case(request: pytest.FixtureRequest) -> tuple[bytes, np.ndarray]:
    make, shape = MODELS[request.param]
    return make(), some(*shape)


def test_any_number_of_threads_gives_the_same_bytes(case):
    source, x = case
    results = []
    for threads in (1, 2, 4):
        with session_of(source, threads) as session:
            session.run(None, {"x": x})
            wait_for(lambda s=session, t=threads: thread_stats(s)["threads"] == t - 1)
            results += [session.run(None, {"x": x}) for _ in range(20)]
            assert thread_stats(session)["threads"] == threads - 1
    for outputs in results:
        assert [y.tobytes() for y in outputs] == [y.tobytes() for y in results[0]]


def test_threads_do_a_part_of_the_work():
    x = some(4, 160, 64)
    with session_of(transformer(), 2) as session:

        def helped() -> bool:
            session.run(None, {"x": x})
            return thread_stats(session)["pieces"] > 0

        wait_for(helped)


def product(m: int, k: int, n: int, batch: tuple[int, ...] = (), nodes: int = 1) -> bytes:
    """`nodes` products of the input and matrices: constants, or in a stack another input."""
    names = [f"w{i}" for i in range(nodes)]
    inputs = [("x", FLOAT, [*batch, m, k]), *((w, FLOAT, [*batch, k, n]) for w in names if batch)]
    return model(
        [node("MatMul", ["x", w], [f"y{i}"]) for i, w in enumerate(names)],
        inputs,
        [(f"y{i}", FLOAT, [*batch, m, n]) for i in range(nodes)],
        {} if batch else {w: some(k, n) for w in names},
    ).SerializeToString()


def long_rows(operator: str, **attributes: Any) -> bytes:
    """One row of many pixels."""
    return model(
        [node(operator, ["x", "w"], ["y"], **attributes)],
        [("x", FLOAT, [1, 64, 5000])],
        [("y", FLOAT, [1, 64, "pixels"])],
        {"w": some(64, 1, 9)},
    ).SerializeToString()


def recurrent() -> bytes:
    """Both directions of a layer whose batch is one sequence."""
    return model(
        [node("GRU", ["x", "w", "r"], ["y"], hidden_size=256, direction="bidirectional")],
        [("x", FLOAT, [9, 1, 8])],
        [("y", FLOAT, [9, 2, 1, 256])],
        {"w": some(2, 768, 8), "r": some(2, 768, 256) * 0.05},
    ).SerializeToString()


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(product(128, 384, 400), id="few pieces"),
        pytest.param(long_rows("Conv", group=64), id="a convolution's long row"),
        pytest.param(long_rows("ConvTranspose", group=64, strides=[2]), id="a transposed convolution's long row"),
        pytest.param(recurrent(), id="one sequence"),
        pytest.param(product(128, 128, 128, (2,)), id="two products"),
        pytest.param(product(64, 64, 96, nodes=20), id="many products"),
    ],
)
def test_how_much_there_is_to_do_starts_threads(source):
    """Not into how many pieces it falls, nor how large a single node is."""
    with session_of(source, 2) as session, session_of(source, 1) as alone:
        feeds = {i.name: some(*i.shape) for i in session.get_inputs()}
        expected = [y.tobytes() for y in alone.run(None, feeds)]

        def helped() -> bool:
            assert [y.tobytes() for y in session.run(None, feeds)] == expected
            return thread_stats(session)["pieces"] > 0

        wait_for(helped)


def test_small_models_start_no_threads():
    source = model(
        [node("MatMul", ["x", "w"], ["a"]), node("Relu", ["a"], ["y"])],
        [("x", FLOAT, [4, 8])],
        [("y", FLOAT, [4, 8])],
        {"w": some(8, 8)},
    ).SerializeToString()
    with session_of(source, 4) as session:
        session.run(None, {"x": some(4, 8)})
        assert thread_stats(session) == {"threads": 0, "pieces": 0}


@pytest.fixture
def tape() -> Iterator[tuple[Engine, Tape, int, int]]:
    """An even number of short operations, each inverting what the one before wrote: an engine, its tape, the address
    of the bytes and how many there are."""
    engine = Engine.create(threads=4)
    count = 20_000
    block = engine.alloc(2 * count)
    made = Tape(engine)
    for i in range(30):
        x, y = (block, block + count) if i % 2 == 0 else (block + count, block)
        made.emit("logical_not", units=count, grain=1000, x=x, y=y)
    engine.share()
    yield engine, made, block, count
    engine.close()


def test_thousands_of_runs(tape):
    engine, made, block, count = tape
    words = made.words
    address = engine.alloc(words.nbytes)
    engine.write(address, words)
    x = RNG.integers(0, 2, count).astype(bool)
    for i in range(2000):
        x[i] = not x[i]
        engine.write(block, x)
        engine.run_shared(address, len(words), 0, engine.control)
        assert engine.read(block, np.bool_, (count,)).tobytes() == x.tobytes()


def test_threads_sleep_and_wake(tape):
    engine, made, block, count = tape
    words = made.words
    address = engine.alloc(words.nbytes)
    engine.write(address, words)
    x = RNG.integers(0, 2, count).astype(bool)
    wait_for(lambda: engine.thread_stats()["threads"] == 3)
    for i in range(30):
        time.sleep(0.004)
        x[i] = not x[i]
        engine.write(block, x)
        engine.run_shared(address, len(words), 0, engine.control)
        assert engine.read(block, np.bool_, (count,)).tobytes() == x.tobytes()


def test_sessions_run_at_the_same_time(case):
    source, x = case
    sessions = [session_of(source, threads) for threads in (1, 2, 3, 4)]
    expected = [y.tobytes() for y in sessions[0].run(None, {"x": x})]

    def runs(session: InferenceSession) -> bool:
        return all([y.tobytes() for y in session.run(None, {"x": x})] == expected for _ in range(25))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(runs, sessions * 2))
    for session in sessions:
        session.close()


def test_sessions_close_while_others_run():
    source, x = transformer(), some(4, 160, 64)
    with session_of(source, 3) as lasting:
        expected = lasting.run(None, {"x": x})[0]
        done = threading.Event()

        def run_on() -> int:
            runs = 0
            while not done.is_set():
                np.testing.assert_array_equal(lasting.run(None, {"x": x})[0], expected)
                runs += 1
            return runs

        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(run_on)
            for _ in range(15):
                with session_of(source, 4) as session:
                    np.testing.assert_array_equal(session.run(None, {"x": x})[0], expected)
            done.set()
            assert running.result(60) > 0


def test_a_session_closes_while_it_runs():
    source, x = transformer(), some(4, 160, 64)
    for _ in range(5):
        session = session_of(source, 2)
        expected = session.run(None, {"x": x})[0]
        started = threading.Event()

        def until_closed(session: InferenceSession = session, started: threading.Event = started) -> np.ndarray:
            last = np.empty(0)
            try:
                while True:
                    last = session.run(None, {"x": x})[0]
                    started.set()
            except SessionClosedError:
                return last

        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(until_closed)
            assert started.wait(60)
            session.close()
            np.testing.assert_array_equal(running.result(60), expected)


def helpers() -> int:
    return sum(thread.name.startswith("onnxlet") for thread in threading.enumerate())


@pytest.mark.parametrize("end", ["close", "drop"])
def test_threads_end_with_their_session(end):
    source, x = transformer(), some(4, 160, 64)
    wait_for(lambda: helpers() == 0)
    session = session_of(source, 4)
    session.run(None, {"x": x})
    assert helpers() == 3
    if end == "close":
        session.close()
    else:
        del session
        gc.collect()
    wait_for(lambda: helpers() == 0)


SCRIPT = """
import os, sys
import numpy as np
from onnxlet import InferenceSession, SessionOptions
options = SessionOptions()
options.intra_op_num_threads = 4
session = InferenceSession(sys.argv[1], options)
x = np.ones((4, 160, 64), np.float32)
expected = session.run(None, {"x": x})[0]
for _ in range(20):
    session.run(None, {"x": x})
if sys.argv[2] == "fork":
    child = os.fork()
    for _ in range(5):
        assert (session.run(None, {"x": x})[0] == expected).all()
    if child:
        _, status = os.waitpid(child, 0)
        assert status == 0, status
    else:
        session.close()
print("done", flush=True)
"""


@pytest.mark.parametrize("way", ["fork", "exit"])
def test_processes_fork_and_end_with_threads_about(way, tmp_path):
    if way == "fork" and not hasattr(os, "fork"):
        pytest.skip("this system does not fork")
    path = tmp_path / "model.onnx"
    path.write_bytes(transformer())
    command = [sys.executable, "-c", SCRIPT, str(path), way]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment())
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("done") == (2 if way == "fork" else 1)


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}


def test_a_negative_number_of_threads():
    with pytest.raises(ValueError, match="-1 threads"):
        session_of(transformer(), -1)


async def test_ready():
    await ready()
    await ready(2)


def test_the_default_number_of_threads():
    assert 1 <= thread_count() <= MOST_BY_DEFAULT
    assert thread_count(3) == 3
    assert features()["threads"].available
