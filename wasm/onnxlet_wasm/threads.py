"""How many threads compute, and why not more."""

from __future__ import annotations

import os

from .engine import IN_BROWSER

MOST_BY_DEFAULT = 8
MOST = 64

MODEL_BYTES = 1 << 18
"""Constants of a model from which on threads are worth waiting for when a session is made."""
WAIT_MILLISECONDS = 250


def thread_count(wish: int = 0) -> int:
    """How many threads a session uses for a wish, the caller among them. 0 is what the machine has, up to 8; it is 1
    where a page can't share memory. Raises `ValueError` for a negative wish."""
    if wish < 0:
        raise ValueError(f"{wish} threads: it is 0, to leave the number to onnxlet, or positive")
    if wish == 1 or unavailable() is not None:
        return 1
    return min(wish, MOST) or min(_processors(), MOST_BY_DEFAULT)


def unavailable() -> str | None:
    """`None` where there are threads, else why there are none."""
    if not IN_BROWSER:
        return None
    from . import browser

    return browser.threads_missing()


async def await_threads(count: int) -> None:
    """In a page: start workers for `count` threads, and wait a moment for them. Elsewhere threads need no waiting."""
    if IN_BROWSER and count > 1:
        from . import browser

        await browser.await_threads(count - 1, WAIT_MILLISECONDS)


def _processors() -> int:
    if IN_BROWSER:
        from . import browser

        return browser.processors()
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1
