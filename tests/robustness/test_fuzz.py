"""Thousands of wrong models: each gives a result or an error of ours, and never a crash, a hang or a lack of memory.
And random valid graphs: sessions of all kinds give what the operators' definitions give.

The everyday run takes a few seconds. ``pytest tests/robustness --fuzz 20000`` is a campaign, over the standard's cases
for all operators as well; ``--fuzz-from`` continues one.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tests.conformance import packing, suite
from tests.conftest import DATA, REPOSITORY
from tests.core.ops import recording
from tests.robustness import recorded


def small_models() -> list[tuple[bytes, list[Any]]]:
    """Models under `tests/data` with their inputs: single operators, and exporters' small ones."""
    found = []
    for path in sorted(DATA.glob("*/*/model.onnx")):
        if path.stat().st_size < 100_000:
            found.append((path.read_bytes(), inputs_of(path)))
    return found


def inputs_of(path: Path) -> list[Any]:
    """The inputs kept beside a model, in its order; `None` where there is no file for one."""
    kept = path.parent / "data.npz"
    if not kept.exists():
        return []
    with np.load(kept, allow_pickle=True) as file:
        return [file[f"in:{i.name}"] if f"in:{i.name}" in file.files else None for i in onnx.load(path).graph.input]


def campaign(module: str, corpus: Path, first: int, last: int) -> tuple[list[str], Counter[str]]:
    """Run the cases in processes of their own, going on after one that ends too early. Returns what was found, and how
    many models came how far."""
    problems = []
    stages: Counter[str] = Counter()
    while first < last:
        process = subprocess.run(
            [sys.executable, "-m", f"tests.robustness.{module}", str(corpus), str(first), str(last)],
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
        )
        lines = process.stdout.splitlines()
        problems += [line[2:] for line in lines if line.startswith("!")]
        stages.update(line[2:] for line in lines if line.startswith("<"))
        reached = max((int(line[2:]) for line in lines if line.startswith(">")), default=None)
        if process.returncode == 0:
            break
        assert reached is not None, process.stderr
        problems.append(f"{reached} ended the process ({process.returncode}): {process.stderr[-1500:]}")
        first = reached + 1
    return problems, stages


def operators(config: pytest.Config) -> list[suite.Case]:
    """For a campaign, cases for all operators: the standard's, and what our own tests of operators call."""
    return [*suite.collect(), *recorded.cases(recording.calls())] if config.getoption("--fuzz") else []


def try_out(module: str, corpus: list[Any], everyday: int, folder: Path, config: pytest.Config) -> Counter[str]:
    """A campaign of as many cases as the options ask for; fails where one found something."""
    count, first = config.getoption("--fuzz"), config.getoption("--fuzz-from")
    path = folder / "corpus"
    path.write_bytes(packing.dumps(corpus))
    problems, stages = campaign(module, path, first, first + (count or everyday))
    total = sum(stages.values()) or 1
    summary = ", ".join(f"{name} {n} ({100 * n / total:.0f} %)" for name, n in stages.most_common())
    if count:
        with config.pluginmanager.get_plugin("capturemanager").global_and_fixture_disabled():
            print(f"\n{module}: {summary}")
    assert not problems, f"{len(problems)} problem(s) in {summary}:\n" + "\n".join(problems)
    return stages


def test_wrong_models(tmp_path: Path, request: pytest.FixtureRequest):
    corpus = small_models()
    assert len(corpus) > 30
    corpus += [(case.model, case.sets[0][0]) for case in operators(request.config) if case.sets]
    stages = try_out("victim", corpus, 300, tmp_path, request.config)
    assert stages["ran"] > sum(stages.values()) / 5, stages  # else the reader alone is tried


def test_random_graphs(tmp_path: Path, request: pytest.FixtureRequest):
    stages = try_out("agreeing", operators(request.config) or suite.collect(), 60, tmp_path, request.config)
    assert stages["ran"] > sum(stages.values()) * 0.9, stages
