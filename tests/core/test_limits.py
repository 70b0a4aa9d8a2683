"""Models that ask for more memory than there is: a typed error, and the next run works."""

from __future__ import annotations

import numpy as np
import pytest

import onnxlet

from .models import FLOAT, INT64, model, node

TERABYTES = 1 << 20  # a square of this many float32 is 4 TiB


def test_a_constant_larger_than_memory():
    made = model(
        [node("ConstantOfShape", ["n"], ["c"], name="huge"), node("ReduceMax", ["c"], ["y"], keepdims=0)],
        [("n", INT64, [2])],
        [("y", FLOAT, [])],
    )
    session = onnxlet.InferenceSession(made)
    with pytest.raises(onnxlet.LimitError, match="'huge'"):
        session.run(None, {"n": np.array([TERABYTES, TERABYTES])})
    assert session.run(None, {"n": np.array([2, 3])})[0] == 0


def test_a_plan_larger_than_memory():
    made = model(
        [node("Expand", ["x", "shape"], ["e"]), node("Exp", ["e"], ["f"]), node("ReduceMax", ["f"], ["y"], keepdims=0)],
        [("x", FLOAT, [1])],
        [("y", FLOAT, [])],
        {"shape": np.array([TERABYTES, TERABYTES])},
    )
    session = onnxlet.InferenceSession(made)
    with pytest.raises(onnxlet.LimitError):
        session.run(None, {"x": np.ones(1, np.float32)})
    with pytest.raises(onnxlet.LimitError):
        session.run(None, {"x": np.ones(1, np.float32)})


def test_a_loop_without_end_is_stopped(monkeypatch):
    from onnxlet.ops import control

    from .models import BOOL, graph

    monkeypatch.setattr(control, "MAX_ITERATIONS", 1000)
    body = graph(
        [node("Identity", ["go"], ["go_out"]), node("Identity", ["v"], ["v_out"])],
        [("i", INT64, []), ("go", BOOL, []), ("v", FLOAT, [])],
        [("go_out", BOOL, []), ("v_out", FLOAT, [])],
        name="body",
    )
    made = model(
        [node("Loop", ["", "yes", "x"], ["y"], body=body, name="endless")],
        [("x", FLOAT, [])],
        [("y", FLOAT, [])],
        {"yes": np.array(True)},
    )
    with pytest.raises(onnxlet.LimitError, match="1000"):
        onnxlet.InferenceSession(made).run(None, {"x": np.float32(1)})
