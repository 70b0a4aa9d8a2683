"""The standard's cases for single operators with the GPU provider first: all pass, and many run on the GPU alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from onnxlet import InferenceSession, providers
from onnxlet.execution import plan
from onnxlet_webgpu import provider as webgpu
from onnxlet_webgpu.provider import WebGpuProvider
from tests.conformance import suite

pytestmark = pytest.mark.slow

ALONE = 570
"""Cases that are computed by the GPU alone (what is folded into the plan aside)."""


class Shared:
    """The tests' provider, which sessions may use but not close."""

    name = webgpu.NAME

    def __init__(self, provider: WebGpuProvider):
        self.supports, self.compile = provider.supports, provider.compile
        self.wait, self.memory_stats = provider.wait, provider.memory_stats

    def close(self) -> None:
        pass


@pytest.fixture
def gpu_first(gpu_provider: WebGpuProvider, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Sessions on one device, which keep single operators there; gives the names of cases that it computed alone."""
    info = replace(webgpu.PROVIDER, create=lambda options: Shared(gpu_provider))
    monkeypatch.setattr(webgpu, "PROVIDER", info)
    monkeypatch.setattr(plan, "demote_islands", lambda *arguments: False)
    return []


def test_all_cases(gpu_first: list[str]):
    """Every case passes, wherever it runs."""
    current = ""

    def run(model: bytes, inputs: Sequence[Any]) -> Sequence[Any]:
        with InferenceSession(model, providers=[providers.WEBGPU]) as session:
            names = [argument.name for argument in session.get_inputs()]
            results = session.run(None, dict(zip(names, inputs, strict=True)))
            where = {row.provider for row in session.explain().rows}
        if providers.WEBGPU in where and where <= {providers.WEBGPU, "plan"}:
            gpu_first.append(current)
        return results

    failed = []
    for case in suite.collect():
        current = case.name
        failed += suite.failures([case], run)
    assert not failed, f"{len(failed)} cases fail:\n" + "\n".join(failed)
    assert len(set(gpu_first)) >= ALONE
