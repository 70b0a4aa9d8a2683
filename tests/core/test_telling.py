"""Fed values that tell shapes: plans take them for constants until they change too often."""

from __future__ import annotations

import numpy as np
import onnx

import onnxlet
from onnxlet.execution.telling import MOST_VALUES, telling_inputs
from onnxlet.model.loader import load_model

from .models import FLOAT, INT64, model, node


def sliced() -> onnx.ModelProto:
    """Exp of a slice whose start is fed, with one added to it before."""
    nodes = [
        node("Add", ["start", "one"], ["from"]),
        node("Slice", ["x", "from", "end"], ["s"]),
        node("Exp", ["s"], ["y"]),
    ]
    inputs = [("x", FLOAT, [None]), ("start", INT64, [1]), ("one", INT64, [1]), ("end", INT64, [1])]
    return model(nodes, inputs, [("y", FLOAT, [None])], opset=21)


def run(session: onnxlet.InferenceSession, x: np.ndarray, start: int) -> np.ndarray:
    one, end = np.array([1], np.int64), np.array([1000], np.int64)
    return session.run(None, {"x": x, "start": np.array([start], np.int64), "one": one, "end": end})[0]


def test_they_are_found_through_other_nodes():
    assert telling_inputs(load_model(sliced()).graph) == ["start", "one", "end"]


def test_every_value_gives_its_own_result():
    x = np.arange(40, dtype=np.float32) / 10
    with onnxlet.InferenceSession(sliced()) as session:
        for start in (*range(2 * MOST_VALUES), 3, 0, 5):
            np.testing.assert_allclose(run(session, x, start), np.exp(x[start + 1 :]), rtol=1e-6)


def test_a_plan_keeps_its_own_copy():
    x = np.arange(9, dtype=np.float32)
    with onnxlet.InferenceSession(sliced()) as session:
        feeds = {"x": x, **{name: np.array([v], np.int64) for name, v in (("start", 2), ("one", 1), ("end", 99))}}
        assert session.run(None, feeds)[0].shape == (6,)
        feeds["start"][:] = 4
        assert session.run(None, feeds)[0].shape == (4,)
        feeds["start"][:] = 2
        np.testing.assert_allclose(session.run(None, feeds)[0], np.exp(x[3:]), rtol=1e-6)


def test_a_known_target_makes_one_plan_without_numpy():
    made = model(
        [node("Reshape", ["x", "shape"], ["r"]), node("Relu", ["r"], ["y"])],
        [("x", FLOAT, [None, None]), ("shape", INT64, [2])],
        [("y", FLOAT, [None, None])],
        opset=21,
    )
    with onnxlet.InferenceSession(made) as session:
        (y,) = session.run(None, {"x": np.ones((2, 3), np.float32), "shape": np.array([3, 2], np.int64)})
        assert y.shape == (3, 2)
        assert {row.provider for row in session.explain().rows} <= {"CPUExecutionProvider", "plan"}
