"""What the tests of compiled programs share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from onnxlet_wasm.provider import KernelProvider, create


@pytest.fixture
def provider() -> Iterator[KernelProvider]:
    """A provider with an engine of its own, as a session has."""
    one = create({})
    yield one
    one.close()
