"""What the tests of compiled programs share."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from onnxlet_wasm.engine import Engine
from onnxlet_wasm.provider import KernelProvider, create

from . import wasmtime_host
from .workbench import Workbench


@pytest.fixture
def provider() -> Iterator[KernelProvider]:
    """A provider with an engine of its own, as a session has."""
    one = create({})
    yield one
    one.close()


ENGINES: dict[str, Callable[[], Engine]] = {
    "native": Engine.create,
    "native-baseline": lambda: Engine.create(relaxed=False),
    "wasm-relaxed": lambda: wasmtime_host.engine(relaxed=True),
    "wasm-plain": lambda: wasmtime_host.engine(relaxed=False),
}
"""Every build of the kernels that runs on this machine: for its processor, for any, and the browser's two."""


@pytest.fixture(scope="session", params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """The kernels, in each of their builds."""
    one = ENGINES[request.param]()
    yield one
    one.close()


@pytest.fixture
def bench(engine: Engine) -> Iterator[Workbench]:
    """Buffers for kernels that are called one at a time."""
    one = Workbench(engine)
    yield one
    one.close()
