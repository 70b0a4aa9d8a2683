"""Fixtures for the GPU provider on this machine: any adapter will do, one made of software too."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from onnxlet_webgpu.provider import WebGpuProvider, available, create
from tests.conftest import missing


@pytest.fixture(scope="session")
def gpu_provider() -> Iterator[WebGpuProvider]:
    """A provider on this machine's adapter, with the kernels that suit it."""
    reason = available()
    if reason is not None:
        missing(f"a GPU adapter ({reason})")
    provider = create({})
    yield provider
    provider.close()


@pytest.fixture(scope="session")
def hardware_provider(gpu_provider: WebGpuProvider) -> Iterator[WebGpuProvider]:
    """The same, made to use the kernels for real GPUs, with shared memory and barriers."""
    provider = create({"software": False, "trial_milliseconds": 0})
    yield provider
    provider.close()


@pytest.fixture(scope="session")
def plain_provider(gpu_provider: WebGpuProvider) -> Iterator[WebGpuProvider]:
    """The same without anything that adapters need not have: subgroups, f16, products of packed integers."""
    provider = create({"software": False, "trial_milliseconds": 0, "subgroups": False, "half": False, "dots": False})
    yield provider
    provider.close()


@pytest.fixture(scope="session")
def modest_provider(gpu_provider: WebGpuProvider) -> Iterator[WebGpuProvider]:
    """The same, with hardly more than WebGPU guarantees: 4 buffers to a shader, 7 workgroups in a row."""
    provider = create({"max_bindings": 4, "max_groups": 7, "max_invocations": 64, "max_shared_bytes": 1024})
    yield provider
    provider.close()
