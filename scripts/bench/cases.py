"""What is measured: the list of cases, and the settings of the engine to compare with."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

PEER_WEB = {
    "package": "onnxruntime-web@1.30.0",
    "executionProviders": ["wasm"],
    "graphOptimizationLevel": "all",
    "simd": "its default (fixed-width SIMD)",
    "numThreads": "as --threads says",
}
PEER_NATIVE = {
    "package": "onnxruntime",
    "providers": ["CPUExecutionProvider"],
    "graph_optimization_level": "ORT_ENABLE_ALL",
    "inter_op_num_threads": 1,
    "intra_op_num_threads": "as --threads says",
}

PAUSE_MS = 25
"""Pause before each engine's turn: time for the other's threads to go to sleep."""

ROUNDS = 10
TURN_MS = 60.0
"""An engine's turn in a round lasts about this long, and at least `LEAST_RUNS` runs."""
LEAST_RUNS = 2


@dataclass(frozen=True)
class Part:
    """A model as bytes, its inputs, and which of its outputs are asked for (`None`: all)."""

    model: bytes
    feeds: dict[str, np.ndarray]
    outputs: list[str] | None = None


@dataclass(frozen=True)
class Case:
    """One row of the table.

    `kind` is `model` (a whole model, one `run`), `operator`, or `overhead` (graphs so small that only the way through
    the engine counts). An operator's time is that of a graph with `copies` independent nodes less that of the same
    graph without them (same inputs, outputs of a few elements), over `copies`: copying of inputs and the cost of a
    call drop out. `parts` makes the graph, and for an operator the one without its nodes as the second.

    Outputs may differ by `tolerance` of the peer's largest value.
    """

    name: str
    kind: str
    parts: Callable[[], list[Part]]
    copies: int = 1
    tolerance: float = 1e-4


def all_cases() -> list[Case]:
    """Every case, in the order of the table."""
    from . import models, operators

    return [*models.CASES, *operators.CASES]


def chosen(only: str | None) -> list[Case]:
    """The cases whose name, or kind/name, matches a regular expression; all without one."""
    return [case for case in all_cases() if only is None or re.search(only, f"{case.kind}/{case.name}")]
