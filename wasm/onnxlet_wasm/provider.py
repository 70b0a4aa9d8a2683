"""The CPU provider's compiled kernels: what they can do, and the programs made of them."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Any

from onnxlet.errors import ProviderError, SessionClosedError
from onnxlet.providers.base import ProviderInfo, Segment, Step

from . import threads
from .engine import IN_BROWSER, Engine
from .halves import Halves, jumps
from .lowering import Refused, expanded, expanded_segment, find, joined
from .lowering.expansion import check_part
from .memory import Memory
from .program import Program

NAME = "CPUExecutionProvider"


class KernelProvider:
    """An engine, with its memory, for one session; see `onnxlet.providers.base.Provider`."""

    name = NAME

    def __init__(self, engine: Engine):
        self._memory = Memory(engine)
        self._derivations = self._memory.derivations
        self._halves = Halves(self._derivations)

    def supports(self, step: Step) -> str | None:
        """`None` if there is a kernel for exactly this step, else why not."""
        try:
            for name, type_ in zip(step.node.outputs, step.outputs, strict=True):
                if name and (type_ is None or not type_.concrete):
                    return f"the shape of {name!r} is not known before it is computed"
            if jumps(step):
                return "it tells 16-bit floats apart by their last place, and kernels keep more than that"
            wide = self._halves.step(step)
            parts = expanded(wide, self._derivations)
            for part in parts:
                if part is not wide:
                    check_part(part)
                find(part.node)(part)
        except Refused as refusal:
            return str(refusal)
        return None

    def compile(self, segment: Segment) -> Program:
        """The program of a segment. Raises `LimitError` where memory is exhausted."""
        with self._memory.lock:
            if self._memory.closed:
                raise SessionClosedError("This session was closed.")
            steps = joined(expanded_segment(self._halves.segment(segment), self._derivations))
            return Program(self._memory, steps, types=segment.types)

    async def prepare(self, constant_bytes: int) -> None:
        """In a page, for models of some size: start workers and wait a moment for them, so that runs that never
        return to the event loop have them too."""
        if constant_bytes >= threads.MODEL_BYTES:
            await threads.await_threads(self._memory.engine.threads)

    def wait(self, awaitable: Awaitable[Any]) -> Any:
        raise ProviderError("Kernels run at once: there is nothing to wait for.")

    def memory_stats(self) -> dict[str, int]:
        """Bytes held now, by kind: weights, arena, scratch, programs (tapes, resident values), and the total."""
        return self._memory.stats()

    def close(self) -> None:
        """Drop the engine with all its memory. Programs can't run afterwards."""
        self._memory.close()


def available() -> str | None:
    """`None` where the kernels can be loaded, else why not."""
    return Engine.available()


def create(options: Mapping[str, Any]) -> KernelProvider:
    """A provider with an engine of its own. The option `threads` says how many compute; 0 is what the machine has.
    Raises `ProviderError` where the kernels can't be loaded."""
    return KernelProvider(Engine.create(threads=threads.thread_count(int(options.get("threads", 0)))))


async def create_async(options: Mapping[str, Any]) -> KernelProvider:
    """Like `create`; in a page the kernels are compiled without blocking it."""
    return KernelProvider(await Engine.create_async(threads=threads.thread_count(int(options.get("threads", 0)))))


def features() -> dict[str, tuple[bool, str]]:
    """See `onnxlet.features`."""
    found = {}
    missing = threads.unavailable()
    found["threads"] = missing is None, missing or f"{threads.thread_count()} by default"
    if IN_BROWSER:
        from . import browser

        found |= browser.features()
    else:
        from . import native

        found["simd"] = True, native.describe_library()
    return found


async def ready(count: int) -> None:
    """See `onnxlet.ready`."""
    await threads.await_threads(threads.thread_count(count))


PROVIDER = ProviderInfo(NAME, ("cpu", "wasm"), available, create, create_async, {"features": features, "ready": ready})
"""What the registry finds."""
