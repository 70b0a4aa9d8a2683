"""What goes wrong on a device: it is lost, it is full, it allows little; sessions go on and say what happened."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
import pytest

from onnxlet import InferenceSession
from onnxlet_webgpu.provider import WebGpuProvider
from tests.core.models import FLOAT, model, node
from tests.webgpu.cases import random

W = random(6, 5)


def product() -> onnx.ModelProto:
    """Two products with a node that only NumPy has between them: two segments on the device."""
    nodes = [
        node("MatMul", ["x", "w"], ["a"]),
        node("NonZero", ["a"], ["n"]),
        node("MatMul", ["a", "v"], ["b"]),
        node("Cast", ["n"], ["f"], to=1),
        node("ReduceSum", ["f"], ["s"], keepdims=0),
        node("Add", ["b", "s"], ["y"]),
    ]
    weights = {"w": W, "v": random(5, 4)}
    return model(nodes, [("x", FLOAT, [None, 6])], [("y", FLOAT, [None, 4])], weights, opset=21)


def expected(x: np.ndarray) -> np.ndarray:
    a = x @ W
    return a @ random(5, 4) + np.array(np.nonzero(a), np.float32).sum()


@pytest.fixture
def session(gpu_provider: WebGpuProvider) -> Iterator[InferenceSession]:
    del gpu_provider  # there is an adapter
    made = InferenceSession(product(), providers=["webgpu"])
    yield made
    made.close()


def provider_of(session: InferenceSession) -> WebGpuProvider:
    (provider,) = (p for p in session._providers if isinstance(p, WebGpuProvider))
    return provider


def losing(session: InferenceSession, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Let the next run on the device find it destroyed just before its work is submitted."""
    device = provider_of(session).device
    run = device.run

    async def destroyed(*given: Any) -> Any:
        monkeypatch.setattr(device, "run", run)
        device.handle.destroy()
        return await run(*given)

    monkeypatch.setattr(device, "run", destroyed)
    return run


def test_a_device_destroyed_in_the_middle_of_a_run_is_replaced(
    session: InferenceSession, monkeypatch: pytest.MonkeyPatch
):
    x = random(3, 6)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], expected(x), rtol=1e-4)
    before = provider_of(session).device
    losing(session, monkeypatch)
    with pytest.warns(RuntimeWarning, match="was lost: .* has a new device, on which the run was repeated"):
        (y,) = session.run(None, {"x": x})
    np.testing.assert_allclose(y, expected(x), rtol=1e-4)
    assert provider_of(session).device is not before
    np.testing.assert_allclose(session.run(None, {"x": 2 * x})[0], expected(2 * x), rtol=1e-4)
    assert {row.provider for row in session.explain().rows} >= {"WebGpuExecutionProvider"}


async def test_an_asynchronous_run_is_repeated_too(session: InferenceSession, monkeypatch: pytest.MonkeyPatch):
    x = random(3, 6)
    losing(session, monkeypatch)
    with pytest.warns(RuntimeWarning, match="has a new device"):
        (y,) = await session.run_async(None, {"x": x})
    np.testing.assert_allclose(y, expected(x), rtol=1e-4)


def test_without_a_new_device_the_cpu_goes_on(session: InferenceSession, monkeypatch: pytest.MonkeyPatch):
    async def none(options: Any) -> Any:
        raise RuntimeError("there is no adapter any more")

    x = random(3, 6)
    losing(session, monkeypatch)
    monkeypatch.setattr("onnxlet_webgpu.device.request_device", none)
    with pytest.warns(RuntimeWarning, match=r"could not be restored \(there is no adapter.*goes on without it"):
        (y,) = session.run(None, {"x": x})
    np.testing.assert_allclose(y, expected(x), rtol=1e-4)
    assert "WebGpuExecutionProvider" not in {row.provider for row in session.explain().rows}
    np.testing.assert_allclose(session.run(None, {"x": 2 * x})[0], expected(2 * x), rtol=1e-4)
