"""A device of the tests' own: the CPU's kernels under the GPU provider's name, with what it refuses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from onnxlet.providers import WEBGPU
from onnxlet.providers.base import Step
from onnxlet_wasm.engine import Engine
from onnxlet_wasm.provider import KernelProvider
from onnxlet_webgpu import provider as webgpu


class PretendedDevice(KernelProvider):
    """Takes every step of float32 that the CPU has kernels for, but those for which `refusal` gives a reason."""

    name = WEBGPU

    def __init__(self, refusal: Callable[[Step], str | None]):
        super().__init__(Engine.create(threads=1))
        self._refusal = refusal

    def supports(self, step: Step) -> str | None:
        return self._refusal(step) or super().supports(step)


def pretend(
    monkeypatch: pytest.MonkeyPatch,
    refusal: Callable[[Step], str | None] = lambda step: None,
    make: Callable[[Callable[[Step], str | None]], Any] = PretendedDevice,
) -> None:
    """Let sessions find the device where they look for a GPU."""

    def create(options: Mapping[str, Any]) -> Any:
        del options
        return make(refusal)

    async def create_async(options: Mapping[str, Any]) -> Any:
        return create(options)

    info = replace(webgpu.PROVIDER, available=lambda: None, create=create, create_async=create_async)
    monkeypatch.setattr(webgpu, "PROVIDER", info)
