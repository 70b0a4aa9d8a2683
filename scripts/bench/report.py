"""From measured times to tables."""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import platform
import re
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .cases import PAUSE_MS, ROUNDS, TURN_MS, Case

ENGINES = ("peer", "onnxlet")
KINDS = {"model": "Whole models", "operator": "Operators", "overhead": "Cost of a call and of a node"}


@dataclass
class Times:
    """Milliseconds of single runs of an engine: `turns[p][r]` are those of part p of a case in round r."""

    turns: list[list[list[float]]] = field(default_factory=list)

    def least(self, copies: int) -> float:
        """The shortest time; of an operator, for one copy."""
        return _net([min(map(min, part)) for part in self.turns], copies)

    def by_round(self, copies: int) -> list[float]:
        """The shortest time of each round."""
        return [_net([min(runs) for runs in turn], copies) for turn in zip(*self.turns, strict=True)]

    def median(self, copies: int) -> float:
        return _net([statistics.median(t for runs in part for t in runs) for part in self.turns], copies)


def _net(times: Sequence[float], copies: int) -> float:
    """The time of the whole, less the second part's where there is one, per copy. Noise may leave nothing."""
    rest = times[0] - times[1] if len(times) > 1 else times[0]
    return max(rest, 1e-6) / copies


@dataclass
class Row:
    """A case's result. Times are milliseconds, `ratio` is the peer's time over ours (above 1: onnxlet is faster)."""

    name: str
    kind: str
    peer: float = math.nan
    onnxlet: float = math.nan
    peer_median: float = math.nan
    onnxlet_median: float = math.nan
    ratio: float = math.nan
    ratio_median: float = math.nan
    difference: float = math.nan
    """Largest difference between outputs, over the peer's largest value, in the worst round."""
    agrees: bool = False
    on_numpy: dict[str, int] = field(default_factory=dict)
    """Operators that onnxlet left to NumPy, with their numbers."""
    first: dict[str, float] = field(default_factory=dict)
    """Milliseconds from the model's bytes to the first result, for each engine."""
    error: str = ""


def row(
    case: Case, times: dict[str, Times], differences: Sequence[float], on_numpy: dict[str, int], first: dict[str, float]
) -> Row:
    peer, ours = times["peer"], times["onnxlet"]
    copies = case.copies
    ratios = [a / b for a, b in zip(peer.by_round(copies), ours.by_round(copies), strict=True)]
    difference = max(differences)
    return Row(
        case.name, case.kind, peer.least(copies), ours.least(copies), peer.median(copies), ours.median(copies),
        peer.least(copies) / ours.least(copies), statistics.median(ratios), difference, difference <= case.tolerance,
        on_numpy, first,
    )  # fmt: skip


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values))) if values else math.nan


def means(rows: Sequence[Row]) -> dict[str, dict[str, float]]:
    """For each kind: the geometric mean of the ratios, of their medians, the least ratio, and how many there are."""
    found = {}
    for kind in KINDS:
        of_kind = [r for r in rows if r.kind == kind and not r.error]
        if of_kind:
            found[kind] = {
                "ratio": geometric_mean([r.ratio for r in of_kind]),
                "ratio_median": geometric_mean([r.ratio_median for r in of_kind]),
                "least": min(r.ratio for r in of_kind),
                "cases": len(of_kind),
            }
    return found


def number(value: float) -> str:
    """Three significant digits, without an exponent."""
    if math.isnan(value):
        return "–"
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}" if value else "0"


def line(r: Row, peer: str) -> str:
    """A case's line on the terminal."""
    if r.error:
        return f"{r.name:44} FAILED: {r.error.strip().splitlines()[-1][:160]}"
    verdict = "" if r.agrees else f"  OUTPUTS DIFFER by {r.difference:.1e}"
    numpy_nodes = "  NumPy: " + ", ".join(f"{k} {n}" for k, n in r.on_numpy.items()) if r.on_numpy else ""
    return (
        f"{r.name:44} {peer} {number(r.peer):>7} ms  onnxlet {number(r.onnxlet):>7} ms  ratio {r.ratio:5.2f}"
        f" (median {r.ratio_median:5.2f}){verdict}{numpy_nodes}"
    )


def markdown(rows: Sequence[Row], about: dict[str, Any]) -> str:
    """The tables, one for each kind."""
    peer = about["peer"]
    lines = [f"## {about['title']}", "", about["how"], "", *(f"- {k}: {v}" for k, v in about["machine"].items()), ""]
    summary = means(rows)
    for kind, title in KINDS.items():
        of_kind = [r for r in rows if r.kind == kind]
        if not of_kind:
            continue
        lines += [f"### {title}", ""]
        lines += [f"| case | {peer}, ms | onnxlet, ms | ratio | ratio of medians | largest difference |"]
        lines += ["| --- | ---: | ---: | ---: | ---: | ---: |"]
        for r in of_kind:
            if r.error:
                lines.append(f"| {r.name} | failed | | | | |")
                continue
            apart = f"{r.difference:.0e}" + ("" if r.agrees else " (too much)")
            cells = [r.name, number(r.peer), number(r.onnxlet), f"{r.ratio:.2f}", f"{r.ratio_median:.2f}", apart]
            lines.append("| " + " | ".join(cells) + " |")
        if kind in summary and kind != "overhead":
            mean = summary[kind]
            lines.append(f"| **geometric mean** | | | **{mean['ratio']:.2f}** | {mean['ratio_median']:.2f} | |")
        lines.append("")
    return "\n".join(lines)


def merge(path: Path, text: str) -> None:
    """Write a section (from its `## ` heading on) into a Markdown file, in the place of one with the same heading."""
    old = path.read_text("utf-8") if path.exists() else "# Benchmarks\n"
    heading = text.splitlines()[0]
    sections = re.split(r"(?m)^(?=## )", old)
    kept = [s for s in sections if s.splitlines()[:1] != [heading]]
    at = next((i for i, s in enumerate(sections) if s.splitlines()[:1] == [heading]), len(kept))
    kept.insert(at, text.rstrip() + "\n")
    path.write_text("\n".join(s.rstrip() + "\n" for s in kept), "utf-8")


def machine(versions: dict[str, str]) -> dict[str, str]:
    """Where and when it was measured."""
    cpu = platform.processor() or platform.machine()
    information = Path("/proc/cpuinfo")
    if information.exists():
        text = information.read_text("utf-8")
        if found := re.search(r"model name\s*: (.*)", text):
            cpu = found[1]
    load = f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown"
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": f"{cpu}, {_processors()} processors, {platform.system()}",
        "load average at the end": load,
        "versions": ", ".join(f"{k} {v}" for k, v in versions.items()),
    }


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def arguments(description: str) -> argparse.ArgumentParser:
    """The options that both benchmarks have."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--only", metavar="REGEX", help="only cases whose kind/name matches, such as ^model/ or LSTM")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"rounds for each case ({ROUNDS})")
    parser.add_argument("--turn", type=float, default=TURN_MS, help=f"milliseconds of an engine's turn ({TURN_MS:.0f})")
    parser.add_argument("--threads", type=int, default=1, help="threads of each engine (1)")
    parser.add_argument("--list", action="store_true", help="print the cases' names and end")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all results there")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables there, as a section of it")
    return parser


def finish(rows: Sequence[Row], about: dict[str, Any], options: argparse.Namespace) -> int:
    """Print the means, write what was asked for; returns the exit status: 1 where a case failed or differed."""
    print()
    for kind, mean in means(rows).items():
        print(
            f"{KINDS[kind]}: geometric mean of {mean['cases']} ratios {mean['ratio']:.2f}"
            f" (of medians {mean['ratio_median']:.2f}), least {mean['least']:.2f}"
        )
    if options.json:
        result = {**about, "rounds": options.rounds, "threads": options.threads, "pause_ms": PAUSE_MS}
        result |= {"means": means(rows), "rows": [asdict(r) for r in rows]}
        options.json.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    if options.markdown:
        merge(options.markdown, markdown(rows, about))
    return int(any(r.error or not r.agrees for r in rows))


def measure_all(cases: Sequence[Case], measure: Callable[[Case], Row], peer: str) -> list[Row]:
    """Measure case after case, telling each at once; one that fails is a row with an error."""
    rows = []
    for case in cases:
        try:
            found = measure(case)
        except Exception as error:
            found = Row(case.name, case.kind, error=f"{type(error).__name__}: {error}")
        rows.append(found)
        print(line(found, peer), flush=True)
    return rows
