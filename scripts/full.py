"""Runs every case in every combination of build, optimisation level and threads, and writes `docs/full.md`.

`scripts/test.py --full` calls it; the combinations are those of `tests/combinations.py`.
"""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from provision import venv
from provision.paths import BUILD, REPOSITORY

DOCUMENT = REPOSITORY / "docs" / "full.md"
TESTS = (
    "tests/core/test_zoo.py",
    "tests/conformance/test_node_suite.py",
    "tests/browser/test_conformance.py",
    "tests/webgpu/test_zoo.py",
    "tests/webgpu/test_node_suite.py",
    "tests/browser/test_webgpu_suite.py",
)
BUILDS = ("native-ORT", "native-baseline", "wasm-relaxed", "wasm-plain", "webgpu-ORT", "webgpu-page")
"""What the names of the tests of each build contain. A run of pytest for each keeps what is done, come what may."""
TITLES = {
    "test_zoo": "Whole models",
    "test_node_suite": "Single operators",
    "test_conformance": "Single operators",
    "test_webgpu_suite": "Single operators",
}

HEAD = """# The long combinations

Written by `scripts/test.py --full`: the standard's cases for single operators, and whole models natively, each in
every combination of build, optimisation level and threads, through `InferenceSession` with the CPU provider. Work is
shared with threads here even where a model is too small to be worth it. Natively the kernels are those for this
processor, and those for any of its kind (`baseline`); in Pyodide, in a worker in headless Chromium, those with relaxed
SIMD and those without (`plain`). Last, the GPU provider first, natively (`webgpu`) and in that worker (`webgpu-page`),
on adapters made of software, with every operator on the GPU that it has a kernel for. The everyday suite runs a share
of the cases in each.

Commit {commit}, {date}, {machine}.
{cases} runs of cases, {failed} failed, {seconds:.0f} s.

| | Build | Level | Threads | Cases | Passed | Failed | Seconds |
|---|---|---|---:|---:|---:|---:|---:|
"""


@dataclass(frozen=True)
class Result:
    title: str
    build: str
    level: str
    threads: int
    cases: int
    failed: int
    seconds: float


def read(path: Path) -> list[Result]:
    """What pytest wrote of each combination. Raises `ValueError` where a test ended before it could say anything."""
    results = []
    for test in ElementTree.parse(path).iter("testcase"):
        said = {p.attrib["name"]: p.attrib["value"] for p in test.iter("property")}
        module = test.attrib["classname"].split(".")[-1]
        if not said:
            raise ValueError(f"{module}: {test.attrib['name']} did not finish")
        counts = int(said["cases"]), int(said["failed"])
        seconds = float(test.attrib["time"])
        results.append(Result(TITLES[module], said["build"], said["level"], int(said["threads"]), *counts, seconds))
    return results


def render(results: Iterable[Result], facts: Mapping[str, str]) -> str:
    """The document; `facts` are commit, date and machine."""
    results = list(results)
    totals = {"cases": sum(r.cases for r in results), "failed": sum(r.failed for r in results)}
    text = HEAD.format(**facts, **totals, seconds=sum(r.seconds for r in results))
    for r in results:
        text += (
            f"| {r.title} | {r.build} | {r.level} | {r.threads} "
            f"| {r.cases} | {r.cases - r.failed} | {r.failed} | {r.seconds:.1f} |\n"
        )
    return text


def facts() -> dict[str, str]:
    """The commit (and whether files differ from it), the day, and the machine."""

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=REPOSITORY, capture_output=True, text=True).stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "core", "wasm", "tests")
    commit = git("rev-parse", "--short=12", "HEAD") + (" with changes" if changed else "")
    names = [line.partition(": ")[2] for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    processor = names[0] if names else platform.machine()
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    return {"commit": commit, "date": date, "machine": f"{processor}, {os.cpu_count()} processors, {platform.system()}"}


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text("utf-8").splitlines()
    except OSError:
        return []


def run(arguments: Iterable[str], env: Mapping[str, str]) -> int:
    """Run all combinations and write the document, with whatever fails; returns pytest's worst exit status."""
    known = facts()
    results: list[Result] = []
    worst = 0
    for build in BUILDS:
        path = BUILD / f"full-{build}.xml"
        options = ["--full", "-k", f"test_combinations and {build}", "-o", "junit_family=xunit1", f"--junitxml={path}"]
        command = [venv.python(), "-m", "pytest", *TESTS, *options, *arguments]
        status = subprocess.run(command, cwd=REPOSITORY, env=dict(env)).returncode
        if status not in (0, 1):  # neither did all pass nor some fail: it was interrupted
            return status
        worst = max(worst, status)
        results += read(path)
    DOCUMENT.write_text(render(results, known), "utf-8")
    print(f"Wrote {DOCUMENT.relative_to(REPOSITORY)}")
    return worst
