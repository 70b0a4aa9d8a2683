"""Many runs of a session, and many sessions made and closed, leave Python's memory where it was."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest

import onnxlet
from onnxlet.execution.plan import PLANS_KEPT
from tests.core.models import FLOAT, model, node

SLACK = 16_000
"""Bytes that caches of Python's own and the measurement may take. A run's result has 65 kB, a session's weights 260."""

X = np.ones((64, 256), np.float32)


def network(operator: str) -> bytes:
    """A product, which is computed by kernels, and something after it."""
    nodes = [node("MatMul", ["x", "w"], ["h"]), node(operator, ["h"], ["y"])]
    weights = {"w": np.ones((256, 256), np.float32)}
    return model(nodes, [("x", FLOAT, [None, 256])], [("y", FLOAT, [None, 256])], weights).SerializeToString()


def grown(action: Callable[[], object], count: int, first: int = 4) -> int:
    """By how many bytes Python's memory, NumPy's arrays included, grows in `count` repetitions after `first` ones."""
    tracemalloc.start()
    try:
        for _ in range(first):
            action()
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(count):
            action()
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("threads", [1, 2])
def test_runs(threads: int) -> None:
    session = onnxlet.InferenceSession(network("Relu"), onnxlet.SessionOptions(intra_op_num_threads=threads))
    assert grown(lambda: session.run(None, {"x": X}), 300) < SLACK
    session.close()


def test_runs_with_ever_new_shapes() -> None:
    session = onnxlet.InferenceSession(network("Relu"))
    lengths = iter(range(300, 0, -1))  # the first is the longest: the arena need not grow later

    def another_shape() -> None:
        session.run(None, {"x": X[:1].repeat(next(lengths), 0)})

    assert grown(another_shape, 100, first=2 * PLANS_KEPT) < SLACK
    session.close()


@pytest.mark.parametrize("threads", [1, 2])
def test_sessions(threads: int) -> None:
    content = network("Softmax")

    def whole_life() -> None:
        session = onnxlet.InferenceSession(content, onnxlet.SessionOptions(intra_op_num_threads=threads))
        session.run(None, {"x": X})
        session.close()

    assert grown(whole_life, 20) < SLACK


def test_sessions_that_nobody_closes() -> None:
    content = network("Softmax")
    assert grown(lambda: onnxlet.InferenceSession(content).run(None, {"x": X}), 20) < SLACK
