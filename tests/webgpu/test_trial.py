"""The timed trial of kernels: what it may choose, that it is remembered, bounded, and told."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from onnxlet import InferenceSession
from onnxlet_webgpu.desktop import trial
from onnxlet_webgpu.provider import WebGpuProvider, create
from tests.core.models import FLOAT, model, node
from tests.webgpu.cases import random

HARDWARE = {"software": False, "trial_milliseconds": 60_000}


def product() -> onnx.ModelProto:
    nodes = [node("MatMul", ["x", "w"], ["y"], name="product")]
    return model(nodes, [("x", FLOAT, [None, 64])], [("y", FLOAT, [None, 96])], {"w": random(64, 96)}, opset=21)


@pytest.fixture
def forgetful(gpu_provider: WebGpuProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is remembered yet."""
    if "timestamp-query" not in gpu_provider.device.handle.features:
        pytest.skip("the adapter has no clock")
    monkeypatch.setattr(trial, "REMEMBERED", {})


def test_all_variants_are_compared_and_the_choice_is_remembered(forgetful: None, monkeypatch: pytest.MonkeyPatch):
    del forgetful
    first = create(HARDWARE)
    found = first.device.target.choices
    assert {shapes: why.count(" ms") for shapes, (_, why) in found.items()} == {"row": 2, "square": 2}
    assert found["row"][0] in ("vector", "registers")
    assert found["square"][0] in ("tiled", "registers")
    monkeypatch.setattr(trial, "_time", lambda *given: pytest.fail("it was remembered"))
    second = create(HARDWARE)
    assert second.device.target.choices == found
    for provider in (first, second):
        provider.close()


@pytest.mark.parametrize("chosen", ["tiled", "registers"])
def test_the_choice_is_taken_and_told(forgetful: None, monkeypatch: pytest.MonkeyPatch, chosen: str):
    del forgetful
    times = {"tiled": 2e5, "registers": 2e5, chosen: 1e5}
    monkeypatch.setattr(
        trial, "_time", lambda device, kernel: times["tiled" if "tiles" in kernel.title else "registers"]
    )
    x = random(48, 64)
    with InferenceSession(product(), providers=[("webgpu", HARDWARE)]) as session:
        np.testing.assert_allclose(session.run(None, {"x": x})[0], x @ random(64, 96), rtol=1e-4, atol=1e-5)
        (row,) = session.explain().rows
    assert row.reason.startswith(f"{chosen} was the fastest in a trial (")
    assert f"{chosen} 0.100 ms" in row.reason


def test_a_trial_ends_in_time(forgetful: None, monkeypatch: pytest.MonkeyPatch):
    """After the first kernel that takes it beyond its time nothing more is tried."""
    del forgetful
    tried = []
    monkeypatch.setattr(trial, "_time", lambda device, kernel: tried.append(kernel) or 1.0)
    provider = create({**HARDWARE, "trial_milliseconds": 1e-9})
    assert len(tried) == 1
    assert provider.device.target.choices == {}
    provider.close()


@pytest.mark.parametrize("options", [{"trial_milliseconds": 0, "software": False}, {"software": True}])
def test_no_trial(forgetful: None, monkeypatch: pytest.MonkeyPatch, options: dict[str, object]):
    del forgetful
    monkeypatch.setattr(trial, "_time", lambda *given: pytest.fail("nothing is to be tried"))
    provider = create(options)
    assert provider.device.target.choices == {}
    provider.close()
