"""From what was measured of GPU providers to tables."""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .report import ENGINES, geometric_mean, merge, number
from .webgpu_cases import GpuCase

Counts = dict[str, int]


@dataclass
class Measured:
    """One engine's numbers: ms of the first run in each page (or process), ms of warm runs in each round, and what was
    asked of WebGPU in a first run and in a warm one (the most of all rounds)."""

    first: list[float] = field(default_factory=list)
    rounds: list[list[float]] = field(default_factory=list)
    first_counts: Counts = field(default_factory=dict)
    counts: Counts = field(default_factory=dict)

    def note(self, counts: Mapping[str, int]) -> None:
        self.counts = {key: max(n, self.counts.get(key, 0)) for key, n in counts.items()}

    @property
    def warm(self) -> float:
        return min(map(min, self.rounds))

    @property
    def warm_median(self) -> float:
        return statistics.median(t for runs in self.rounds for t in runs)


@dataclass
class GpuRow:
    """A case's result. Ratios are the peer's time over ours: above 1, onnxlet is faster."""

    name: str
    peer: Measured = field(default_factory=Measured)
    onnxlet: Measured = field(default_factory=Measured)
    difference: float = 0.0
    """Largest difference between outputs, over the peer's largest value, in the worst round."""
    tolerance: float = math.inf
    elsewhere: dict[str, int] = field(default_factory=dict)
    """Operators that onnxlet computed elsewhere than on the GPU, with their numbers."""
    error: str = ""

    @property
    def agrees(self) -> bool:
        return self.difference <= self.tolerance

    @property
    def ratio(self) -> float:
        return self.peer.warm / self.onnxlet.warm

    @property
    def ratio_median(self) -> float:
        """The median of the rounds' ratios of shortest times."""
        pairs = zip(self.peer.rounds, self.onnxlet.rounds, strict=True)
        return statistics.median(min(a) / min(b) for a, b in pairs)

    @property
    def first_ratio(self) -> float:
        return min(self.peer.first) / min(self.onnxlet.first)

    @property
    def first_ratio_median(self) -> float:
        return statistics.median(self.peer.first) / statistics.median(self.onnxlet.first)


def moved(counts: Counts) -> int:
    """Bytes that were written to the GPU, copied on it, and read back."""
    return counts["bytesWritten"] + counts["bytesCopied"] + counts["bytesRead"]


COUNTED: dict[str, Callable[[Counts], int]] = {
    "dispatches": lambda c: c["dispatches"],
    "bytes moved": moved,
    "readbacks": lambda c: c["readbacks"],
    "submissions": lambda c: c["submits"],
    "bind groups": lambda c: c["bindGroups"],
}


def line(r: GpuRow) -> str:
    """A case's lines on the terminal."""
    if r.error:
        return f"{r.name:32} FAILED: {r.error.strip().splitlines()[-1][:300]}"
    verdict = "" if r.agrees else f"  OUTPUTS DIFFER by {r.difference:.1e}"
    other = "  not on the GPU: " + ", ".join(f"{k} {n}" for k, n in r.elsewhere.items()) if r.elsewhere else ""
    text = (
        f"{r.name:32} warm {number(r.peer.warm):>6} / {number(r.onnxlet.warm):>6} ms  ratio {r.ratio:5.2f}"
        f" (median {r.ratio_median:5.2f})  first {number(min(r.peer.first)):>6} / {number(min(r.onnxlet.first)):>6} ms"
        f"  ratio {r.first_ratio:5.2f} (median {r.first_ratio_median:5.2f}){verdict}{other}"
    )
    if r.peer.counts:
        shown = [f"{name} {_pair(r, count)}" for name, count in COUNTED.items()]
        text += f"\n    {'; '.join(shown)}; pipelines {_made(r.peer)} / {_made(r.onnxlet)}"
    return text


def _pair(r: GpuRow, count: Callable[[Counts], int]) -> str:
    return f"{count(r.peer.counts):,} / {count(r.onnxlet.counts):,}"


def _made(engine: Measured) -> int:
    return engine.first_counts["pipelines"]


def means(rows: Sequence[GpuRow]) -> dict[str, float]:
    """Geometric means of the ratios."""
    good = [r for r in rows if not r.error]
    names = ("ratio", "ratio_median", "first_ratio", "first_ratio_median")
    return {name: geometric_mean([getattr(r, name) for r in good]) for name in names}


def markdown(rows: Sequence[GpuRow], about: Mapping[str, Any]) -> str:
    """The tables."""
    peer = about["peer"]
    lines = [f"## {about['title']}", "", about["how"], "", *(f"- {k}: {v}" for k, v in about["machine"].items()), ""]
    mean = means(rows)
    lines += ["| case | warm run: " + peer + ", ms | onnxlet, ms | ratio | of medians | first run: " + peer +
              ", ms | onnxlet, ms | ratio | of medians | largest difference |"]  # fmt: skip
    lines += ["| --- |" + " ---: |" * 9]
    for r in rows:
        if r.error:
            lines.append(f"| {r.name} | failed |" + " |" * 8)
            continue
        apart = f"{r.difference:.0e}" + ("" if r.agrees else " (too much)")
        cells = [
            number(r.peer.warm), number(r.onnxlet.warm), f"{r.ratio:.2f}", f"{r.ratio_median:.2f}",
            number(min(r.peer.first)), number(min(r.onnxlet.first)), f"{r.first_ratio:.2f}",
            f"{r.first_ratio_median:.2f}", apart,
        ]  # fmt: skip
        lines.append(f"| {r.name} | " + " | ".join(cells) + " |")
    lines += [
        f"| **geometric mean** | | | **{mean['ratio']:.2f}** | {mean['ratio_median']:.2f} | | |"
        f" **{mean['first_ratio']:.2f}** | {mean['first_ratio_median']:.2f} | |",
        "",
    ]
    counted = [r for r in rows if r.peer.counts]
    if counted:
        lines += [
            "What a warm run asks of WebGPU, onnxruntime-web / onnxlet; pipelines are those of the first run:",
            "",
        ]
        lines += ["| case | " + " | ".join(COUNTED) + " | pipelines |", "| --- |" + " ---: |" * (len(COUNTED) + 1)]
        for r in counted:
            cells = [*(_pair(r, count) for count in COUNTED.values()), f"{_made(r.peer)} / {_made(r.onnxlet)}"]
            lines.append(f"| {r.name} | " + " | ".join(cells) + " |")
        lines.append("")
    return "\n".join(lines)


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bench_webgpu.py",
        description="Compare onnxlet's WebGPU provider with onnxruntime's.",
    )
    parser.add_argument("--native", action="store_true", help="on this machine, not in a page: onnxruntime-webgpu")
    parser.add_argument("--only", metavar="REGEX", help="only cases whose name matches")
    parser.add_argument(
        "--pages", type=int, default=3, help="new browsers (or processes) for each case (3): first runs"
    )
    parser.add_argument("--rounds", type=int, default=3, help="rounds of warm runs in each of them (3)")
    parser.add_argument("--turn", type=float, default=200.0, help="milliseconds of an engine's turn in a round (200)")
    parser.add_argument(
        "--fast-pipelines",
        action="store_true",
        help="let workgroup memory start uninitialised: shaders compile faster on Chromium's software adapter, but "
        "onnxruntime-web's LayerNormalization relies on zeros",
    )
    parser.add_argument("--list", action="store_true", help="print the cases' names and end")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all results there")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables there, as a section of it")
    return parser


def order(number: int) -> list[str]:
    """Whose turn is first."""
    return list(ENGINES) if number % 2 == 0 else list(reversed(ENGINES))


def measure_all(
    cases: Sequence[GpuCase],
    measure: Callable[[GpuCase], GpuRow],
    about: Callable[[], Mapping[str, Any]],
    options: argparse.Namespace,
) -> int:
    """Measure case after case, telling and writing each at once; one that fails is a row with an error.

    Returns the exit status: 1 where a case failed or differed.
    """
    rows: list[GpuRow] = []
    for case in cases:
        try:
            found = measure(case)
        except Exception as error:
            found = GpuRow(case.name, error=f"{type(error).__name__}: {error}")
        rows.append(found)
        print(line(found), flush=True)
        write(rows, about(), options)
    mean = means(rows)
    print(
        f"\ngeometric means: warm {mean['ratio']:.2f} (of medians {mean['ratio_median']:.2f}),"
        f" first run {mean['first_ratio']:.2f} (of medians {mean['first_ratio_median']:.2f})"
    )
    return int(any(r.error or not r.agrees for r in rows))


def write(rows: Sequence[GpuRow], about: Mapping[str, Any], options: argparse.Namespace) -> None:
    """Write what the options ask for."""
    if options.json:
        result = {**about, "means": means(rows), "rows": [asdict(r) for r in rows]}
        options.json.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    if options.markdown:
        if not options.markdown.exists():
            options.markdown.write_text("# Benchmarks of the GPU provider\n", "utf-8")
        merge(options.markdown, markdown(rows, about))
