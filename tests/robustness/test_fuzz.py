"""Thousands of wrong models: each gives a result or an error of ours, and never a crash, a hang or a lack of memory.

The everyday run takes a few seconds. ``pytest tests/robustness --fuzz 20000`` is a campaign, over the standard's cases
for all operators as well; ``--fuzz-from`` continues one.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tests.conformance import packing, suite
from tests.conftest import DATA, REPOSITORY

EVERYDAY = 300


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


def campaign(corpus: Path, first: int, last: int) -> list[str]:
    """Run the cases in processes of their own, going on after one that ends too early. Returns what was found."""
    problems = []
    while first < last:
        process = subprocess.run(
            [sys.executable, "-m", "tests.robustness.victim", str(corpus), str(first), str(last)],
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
        )
        lines = process.stdout.splitlines()
        problems += [line[2:] for line in lines if line.startswith("!")]
        reached = max((int(line[2:]) for line in lines if line.startswith(">")), default=None)
        if process.returncode == 0:
            break
        assert reached is not None, process.stderr
        problems.append(f"{reached} ended the process ({process.returncode}): {process.stderr[-1500:]}")
        first = reached + 1
    return problems


def test_wrong_models(tmp_path: Path, request: pytest.FixtureRequest):
    count, first = request.config.getoption("--fuzz"), request.config.getoption("--fuzz-from")
    corpus = small_models()
    assert len(corpus) > 30
    if count:
        corpus += [(case.model, case.sets[0][0]) for case in suite.collect() if case.sets]
    path = tmp_path / "corpus"
    path.write_bytes(packing.dumps(corpus))
    problems = campaign(path, first, first + (count or EVERYDAY))
    assert not problems, f"{len(problems)} problem(s):\n" + "\n".join(problems)
