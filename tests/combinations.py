"""The combinations of kernels, optimisation level and threads that models are run in.

The everyday suite runs every case with the defaults, and in each combination a share of the cases, each time another
one. With `--full` (`scripts/test.py --full`) every case runs in all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TypeVar

import pytest

from onnxlet import GraphOptimizationLevel, SessionOptions
from onnxlet_wasm import engine, native

T = TypeVar("T")

NATIVE = ("native", "native-baseline")
"""Builds of the kernels for this processor, and for any of its kind."""
BROWSER = ("wasm-relaxed", "wasm-plain")
"""The browser's builds, with relaxed SIMD and without."""
GPU = ("webgpu", "webgpu-page")
"""The GPU provider first: natively, and in a page."""
LEVELS = ("ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL")
THREADS = (1, 2, 4)


@dataclass(frozen=True)
class Combination:
    build: str
    level: str
    threads: int
    number: int
    """Which of its builds' combinations it is."""

    def __str__(self) -> str:
        return f"{self.build}-{self.level}-{self.threads}"

    def options(self) -> SessionOptions:
        level = GraphOptimizationLevel[self.level]
        return SessionOptions(graph_optimization_level=level, intra_op_num_threads=self.threads)


def combinations(builds: Sequence[str], threads: Sequence[int] = THREADS) -> list[Combination]:
    return [Combination(*chosen, number) for number, chosen in enumerate(product(builds, LEVELS, threads))]


class Campaign:
    """What a test is to run in a combination, and what the report is to say of it."""

    def __init__(self, combination: Combination, full: bool, record: Callable[[str, object], None]):
        self.combination = combination
        self._full = full
        self._record = record

    def share(self, cases: Sequence[T]) -> Sequence[T]:
        """All cases with `--full`, else those for which this combination is next."""
        return cases if self._full else cases[self.combination.number :: len(combinations(NATIVE))]

    def conclude(self, count: int, failed: Sequence[str]) -> None:
        """Record how many cases ran; fails where any did."""
        for name in ("build", "level", "threads"):
            self._record(name, getattr(self.combination, name))
        self._record("cases", count)
        self._record("failed", len(failed))
        assert not failed, f"{len(failed)} of {count} cases fail:\n" + "\n".join(failed)


def use_kernels(combination: Combination, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make sessions use a native build, and its threads even where a model is too small to be worth it."""
    host = native.NativeHost
    monkeypatch.setattr(native, "NativeHost", lambda _: host(None if combination.build == "native" else False))
    monkeypatch.setattr(engine, "WORTH_SHARING", 0)
