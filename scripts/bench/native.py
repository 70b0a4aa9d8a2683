"""onnxlet and onnxruntime on this machine: `scripts/bench_native.py` calls it with `.venv`'s Python."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime

import onnxlet
from onnxlet.options import SessionOptions

from . import report
from .cases import LEAST_RUNS, PAUSE_MS, PEER_NATIVE, Case, Part, chosen
from .compare import difference
from .report import Row, Times

Run = Callable[[], Any]


def main(words: list[str] | None = None) -> int:
    parser = report.arguments("Compare onnxlet with onnxruntime on this machine.")
    options = parser.parse_args(words)
    cases = chosen(options.only)
    if options.list:
        print("\n".join(f"{case.kind}/{case.name}" for case in cases))
        return 0
    rows = report.measure_all(
        cases, lambda case: measure(case, options.rounds, options.turn, options.threads), "onnxruntime"
    )
    about = {
        "title": f"Natively, {threads_in_words(options.threads)}",
        "peer": "onnxruntime",
        "how": (
            "Milliseconds of `session.run` with NumPy arrays in and out, in one Python process, the engines in turns: "
            f"{options.rounds} rounds of about {options.turn:.0f} ms each, {PAUSE_MS} ms of rest before every turn. "
            "Times are minimums; an operator's is that of a graph with several copies of it less that of the same "
            "graph without. A ratio above 1: onnxlet is faster."
        ),
        "machine": report.machine(
            {"onnxlet": onnxlet.__version__, "onnxruntime": onnxruntime.__version__, "Python": sys.version.split()[0]}
        ),
        "settings": PEER_NATIVE,
    }
    return report.finish(rows, about, options)


def threads_in_words(threads: int) -> str:
    return "one thread" if threads == 1 else f"{threads} threads"


def measure(case: Case, rounds: int, turn_ms: float, threads: int) -> Row:
    """Measure one case. Raises what an engine raises."""
    parts = case.parts()
    engines: dict[str, list[Run]] = {"peer": [], "onnxlet": []}
    first: dict[str, float] = {}
    sessions = []
    for engine, create in (("peer", peer_session), ("onnxlet", our_session)):
        for number, part in enumerate(parts):
            begin = time.perf_counter()
            session = create(part, threads)
            engines[engine].append(lambda s=session, p=part: s.run(p.outputs, p.feeds))
            engines[engine][-1]()
            if number == 0:
                first[engine] = 1000 * (time.perf_counter() - begin)
            if engine == "onnxlet":
                sessions.append(session)
    times = {engine: Times([[] for _ in parts]) for engine in engines}
    differences = []
    for number in range(rounds):
        order = list(engines) if number % 2 == 0 else list(reversed(engines))
        results = {}
        for engine in order:
            time.sleep(PAUSE_MS / 1000)
            results[engine] = [run() for run in engines[engine]]
            for part, run in enumerate(engines[engine]):
                times[engine].turns[part].append(turn(run, turn_ms / len(parts)))
        pairs = zip(results["onnxlet"], results["peer"], strict=True)
        differences.append(max(worst(ours, theirs) for ours, theirs in pairs))
    on_numpy = Counter(r.operator for r in sessions[0].explain().rows if r.provider == "NumPy")
    for session in sessions:
        session.close()
    return report.row(case, times, differences, dict(on_numpy), first)


def turn(run: Run, turn_ms: float) -> list[float]:
    """Run again and again for about `turn_ms` milliseconds. Returns milliseconds per run; very short runs are timed
    several at a time."""
    begin = time.perf_counter()
    run()
    together = max(1, int(0.5e-3 / max(time.perf_counter() - begin, 1e-6)))
    samples = []
    end = time.perf_counter() + turn_ms / 1000
    while len(samples) < LEAST_RUNS or time.perf_counter() < end:
        begin = time.perf_counter()
        for _ in range(together):
            run()
        samples.append(1000 * (time.perf_counter() - begin) / together)
    return samples


def worst(ours: list[Any], theirs: list[Any]) -> float:
    return max(difference(np.asarray(a), np.asarray(b)) for a, b in zip(ours, theirs, strict=True))


def peer_session(part: Part, threads: int) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    return onnxruntime.InferenceSession(part.model, options, providers=["CPUExecutionProvider"])


def our_session(part: Part, threads: int) -> onnxlet.InferenceSession:
    options = SessionOptions(intra_op_num_threads=threads)
    return onnxlet.InferenceSession(part.model, options)


if __name__ == "__main__":
    sys.exit(main())
