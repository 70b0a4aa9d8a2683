"""Without falling back: the GPU computes every node, or the error names all that it does not, with the reasons."""

from __future__ import annotations

import numpy as np
import pytest

import onnxlet_webgpu.operators  # noqa: F401  (fills the table of lowerings)
from onnxlet import InferenceSession, ProviderError, SessionOptions
from onnxlet.execution.placement import HEAVY
from onnxlet_webgpu.lowering import _LOWERINGS
from onnxlet_webgpu.provider import WebGpuProvider
from tests.core.models import FLOAT, model, node
from tests.webgpu.cases import random


def strict() -> SessionOptions:
    options = SessionOptions()
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    return options


def test_single_cheap_operators_stay_on_the_device(gpu_provider: WebGpuProvider):
    del gpu_provider  # there is an adapter
    made = model([node("Exp", ["x"], ["y"])], [("x", FLOAT, [None])], [("y", FLOAT, [None])], opset=21)
    x = random(5)
    with InferenceSession(made, strict(), providers=["webgpu"]) as session:
        np.testing.assert_allclose(session.run(None, {"x": x})[0], np.exp(x), rtol=1e-5)
        assert {row.provider for row in session.explain().rows} == {"WebGpuExecutionProvider"}


def test_all_reasons_are_told(gpu_provider: WebGpuProvider):
    nodes = [
        node("Cast", ["x"], ["d"], name="wide", to=11),
        node("Exp", ["d"], ["e"], name="exp"),
        node("Log", ["d"], ["l"], name="log"),
        node("Add", ["e", "l"], ["s"], name="sum"),
        node("Cast", ["s"], ["y"], name="back", to=1),
    ]
    made = model(nodes, [("x", FLOAT, [None])], [("y", FLOAT, [None])], opset=21)
    x = np.abs(random(5)) + 1
    with (
        InferenceSession(made, strict(), providers=["webgpu"]) as session,
        pytest.raises(ProviderError, match=r"does not compute 3 of 5 nodes: 'exp' \(Exp\): float64 .*'log'.*'sum'"),
    ):
        session.run(None, {"x": x})
    with InferenceSession(made, providers=["webgpu"]) as session:
        np.testing.assert_allclose(session.run(None, {"x": x})[0], np.exp(x) + np.log(x), rtol=1e-5)


def test_the_cpu_is_never_a_fall_back_of_itself():
    made = model([node("NonZero", ["x"], ["n"])], [("x", FLOAT, [None])], [("n", 7, [1, None])], opset=21)
    with InferenceSession(made, strict()) as session:
        np.testing.assert_array_equal(session.run(None, {"x": np.array([0, 1, 2], np.float32)})[0], [[1, 2]])


def test_all_products_and_convolutions_are_worth_a_trip_to_the_device():
    """An operator with a kernel that is missing in the table of heavy ones would never get there by itself."""
    words = ("Conv", "MatMul", "Gemm", "Attention", "LSTM", "GRU", "RNN")
    heavy = {name for _, name in _LOWERINGS if any(word in name for word in words)}
    assert len(heavy) > 20
    assert heavy <= HEAVY
