"""Where the time of a run goes, node by node: `profile`."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from ..options import SessionOptions
from ..session import InferenceSession
from .tables import table

SUFFIX = "_kernel_time"
"""How the names of nodes' events end in a trace."""


@dataclass(slots=True)
class NodeTime:
    """A node's time in one run, in milliseconds: the median of the runs."""

    node: str
    operator: str
    provider: str
    milliseconds: float


@dataclass(slots=True)
class Profile:
    """Times of nodes, the longest first, and of whole runs, in milliseconds. Nodes are timed one by one, so their sum
    may be a little above what a run takes that is not watched (`run`)."""

    nodes: list[NodeTime]
    run: float
    watched: float
    runs: int

    @property
    def operators(self) -> dict[str, float]:
        """Milliseconds of all nodes of an operator, the longest first."""
        sums: Counter[str] = Counter()
        for node in self.nodes:
            sums[node.operator] += node.milliseconds  # type: ignore[assignment]
        return dict(sums.most_common())

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data, ready for JSON."""
        return {**asdict(self), "operators": self.operators}

    def __str__(self) -> str:
        total = sum(n.milliseconds for n in self.nodes) or 1.0

        def rows(pairs: Sequence[tuple[Sequence[str], float]]) -> list[tuple[str, ...]]:
            return [(*names, f"{ms:.3f}", f"{ms / total:.1%}") for names, ms in pairs]

        by_operator = [((name,), ms) for name, ms in self.operators.items()]
        by_node = [((n.node, n.operator, n.provider), n.milliseconds) for n in self.nodes]
        return "\n".join(
            [
                f"a run takes {self.run:.3g} ms (median of {self.runs}); node by node {self.watched:.3g} ms",
                "",
                *table(("operator", "ms", "share"), rows(by_operator), right=(1, 2)),
                "",
                *table(("node", "operator", "provider", "ms", "share"), rows(by_node), right=(3, 4)),
            ]
        )


def profile(
    model: Any, feeds: Mapping[str, Any], options: SessionOptions, providers: Sequence[Any], runs: int, trace: str = ""
) -> Profile:
    """Run a model `runs` times as it is, and as often node by node; `trace` names a file for the Chrome trace of these.

    The first run, which makes the plan, is not counted.
    """
    plain = InferenceSession(model, options, providers)
    times = _timed(plain, feeds, runs)
    plain.close()
    with tempfile.TemporaryDirectory() as folder:
        watching = replace(options, enable_profiling=True, profile_file_prefix=str(Path(folder) / "trace"))
        watched = InferenceSession(model, watching, providers)
        watched_times = _timed(watched, feeds, runs)
        text = Path(watched.end_profiling()).read_text()
        watched.close()
    if trace:
        Path(trace).write_text(text)
    events = [event for event in json.loads(text) if event["cat"] == "Node" and event["name"].endswith(SUFFIX)]
    found: dict[str, list[dict[str, Any]]] = {}
    for event in events:
        found.setdefault(event["name"].removesuffix(SUFFIX), []).append(event)
    nodes = []
    for name, seen in found.items():
        # A node in the body of a loop is there several times in each run.
        each = max(1, round(len(seen) / (runs + 1)))
        arguments = seen[-1]["args"]
        spent = median(event["dur"] for event in seen[each:] or seen) * each / 1e3
        nodes.append(NodeTime(name, arguments["op_name"], arguments["provider"], spent))
    nodes.sort(key=lambda node: -node.milliseconds)
    return Profile(nodes, median(times), median(watched_times), runs)


def _timed(session: InferenceSession, feeds: Mapping[str, Any], runs: int) -> list[float]:
    """Milliseconds of some runs after a first one."""
    session.run(None, feeds)
    times = []
    for _ in range(runs):
        start = perf_counter()
        session.run(None, feeds)
        times.append((perf_counter() - start) * 1e3)
    return times
