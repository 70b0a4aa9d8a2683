"""What the tests of compiled programs share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from onnxlet_wasm.engine import Engine
from onnxlet_wasm.provider import KernelProvider, create

from .workbench import Workbench


@pytest.fixture
def provider() -> Iterator[KernelProvider]:
    """A provider with an engine of its own, as a session has."""
    one = create({})
    yield one
    one.close()


@pytest.fixture(scope="session", params=["fast", "baseline"])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """The native kernels: the build for this machine, and the one for any."""
    one = Engine.create(relaxed=None if request.param == "fast" else False)
    yield one
    one.close()


@pytest.fixture
def bench(engine: Engine) -> Iterator[Workbench]:
    """Buffers for kernels that are called one at a time."""
    one = Workbench(engine)
    yield one
    one.close()
