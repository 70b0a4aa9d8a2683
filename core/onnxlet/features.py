"""What the machine and the browser give to onnxlet, and why not more."""

from __future__ import annotations

from typing import NamedTuple

from . import providers
from .errors import ProviderError


class Feature(NamedTuple):
    """Whether something that makes models fast is there, and more about it, or why it is not."""

    available: bool
    detail: str


def features() -> dict[str, Feature]:
    """By name: ``cpu`` (compiled kernels), ``threads``, ``simd``, in a browser ``relaxed-simd`` and ``isolation``
    (cross-origin isolation, without which there are no threads), and ``webgpu``."""
    found = {}
    for name, alias in ((providers.CPU, "cpu"), (providers.WEBGPU, "webgpu")):
        reason = providers.unavailable(name)
        found[alias] = Feature(reason is None, reason or "")
        try:
            details = providers.provider_info(name).extra.get("features")
        except ProviderError:
            continue
        if details is not None and reason is None:
            found |= {key: Feature(*value) for key, value in details().items()}
    return found


async def ready(threads: int = 0) -> None:
    """Start, in a page, what sessions will want: workers for `threads` threads (0: the default number), and wait a
    moment for them. Sessions made afterwards have them at once, even in code that never awaits. Elsewhere there is
    nothing to wait for."""
    start = providers.provider_info(providers.CPU).extra["ready"]
    await start(threads)
