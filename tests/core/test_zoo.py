"""Whole models, against the frameworks that they came from."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxlet
import pytest
from onnxlet.ops import registry

from tests.models import ZooModel, zoo

MODELS = list(zoo())
IDS = [model.name for model in MODELS]


@pytest.mark.parametrize("model", MODELS, ids=IDS)
def test_model(model: ZooModel) -> None:
    session = onnxlet.InferenceSession(model.path)
    names = [output.name for output in session.get_outputs()]
    first = session.run(None, model.values("in"))
    model.check(names, first)
    model.check(names, session.run(None, model.values("in")))
    session.close()


@pytest.mark.parametrize("model", MODELS, ids=IDS)
def test_model_without_rewrites(model: ZooModel) -> None:
    options = onnxlet.SessionOptions(graph_optimization_level=onnxlet.GraphOptimizationLevel.ORT_DISABLE_ALL)
    with onnxlet.InferenceSession(model.path, options) as session:
        names = [output.name for output in session.get_outputs()]
        model.check(names, session.run(None, model.values("in")))


@pytest.mark.parametrize("model", zoo("torch_mobilenetv2_ts", "torch_unet_ts"), ids=lambda model: model.name)
def test_kernels_do_all_the_work(model: ZooModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """With every NumPy operator broken a convolutional model still runs, in one call."""
    session = onnxlet.InferenceSession(model.path)
    session.run(None, model.values("in"))  # the plan: shape arithmetic is NumPy's

    def broken(*_: Any, **__: Any) -> Any:
        raise AssertionError("NumPy was asked to compute a node")

    for operator in registry.registered():
        monkeypatch.setattr(type(operator), "function", property(lambda _: broken), raising=False)
    monkeypatch.setattr(np, "matmul", broken)
    names = [output.name for output in session.get_outputs()]
    model.check(names, session.run(None, model.values("in")))
    explanation = session.explain()
    assert set(explanation.counts) <= {"CPUExecutionProvider", "plan"}
    assert explanation.calls == 1
