"""`GPUPromise`: what an asynchronous call returns. It is awaited; it can be waited for where JSPI allows."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Generic, TypeVar

from pyodide.ffi import can_run_sync, run_sync  # type: ignore[import-not-found]

T = TypeVar("T")


class GPUPromise(Generic[T]):
    """The result of an asynchronous call, as in wgpu: ``await promise``, ``promise.then(callback)``, or
    ``promise.sync_wait()``, which raises `RuntimeError` where the browser can't block.

    `source` is an awaitable (a JavaScript promise), `handler` makes the result of what it gives.
    """

    def __init__(self, title: str, source: Awaitable[Any], handler: Callable[[Any], T] | None = None):
        self.title = title
        self._task: asyncio.Future[T] = asyncio.ensure_future(self._settle(source, handler))
        # An error that nobody asks for is nobody's: without this, asyncio would print it.
        self._task.add_done_callback(lambda task: task.cancelled() or task.exception())

    @staticmethod
    async def _settle(source: Awaitable[Any], handler: Callable[[Any], T] | None) -> T:
        value = await source
        return value if handler is None else handler(value)

    def __await__(self) -> Generator[Any, None, T]:
        return self._task.__await__()

    def then(
        self,
        callback: Callable[[T], Any],
        error_callback: Callable[[Exception], Any] | None = None,
        title: str | None = None,
    ) -> GPUPromise[Any]:
        """A promise of what `callback` makes of the result (or `error_callback` of the error)."""

        async def chained() -> Any:
            try:
                value = await self
            except Exception as error:
                if error_callback is None:
                    raise
                return error_callback(error)
            return callback(value)

        return GPUPromise(title or f"{self.title}.then", chained())

    def sync_wait(self) -> T:
        """Block until the result is there. Raises `RuntimeError` where that is not possible."""
        if self._task.done():
            return self._task.result()
        if not can_run_sync():
            raise RuntimeError(
                f"can't wait for {self.title} here: this browser has no JavaScript promise integration (JSPI), or "
                "Python was called from JavaScript synchronously. Use `await`"
            )
        return run_sync(self._task)
