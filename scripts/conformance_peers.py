"""The standard's cases for single operators on onnxlet and on other engines, by the same comparison.

    .venv/bin/python scripts/conformance_peers.py [engine ...]

Engines that are Python packages get a virtual environment of their own under `build/peers`; those for pages run in
headless Chromium. Each engine runs in a process that may crash or hang: what it did that on has failed. Counts and
versions are kept in `docs/peers.json`, and the table in `docs/peers.md` is written from that.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "scripts")]

import conformance_pages  # noqa: E402
import numpy as np  # noqa: E402

from provision.paths import BUILD  # noqa: E402
from tests.conformance import packing, suite  # noqa: E402
from tests.conformance.suite import Case  # noqa: E402

KEPT = REPOSITORY / "docs" / "peers.json"
DOCUMENT = REPOSITORY / "docs" / "peers.md"
PACKAGES: dict[str, list[str]] = {
    "onnxlet": [],
    "onnxruntime": [],
    "onnx's reference evaluator": [],
    "tinygrad": ["tinygrad==0.14.0", "ziglang==0.17.1"],
    "tract": ["tract==0.23.9"],
}
"""Engines that are Python packages, and what to install for them beside NumPy, ml_dtypes and onnx. Those without
anything are in `.venv`."""

ENGINES = [*PACKAGES, *conformance_pages.PAGES, *conformance_pages.OURS]


def tensor_cases() -> list[Case]:
    """The cases whose inputs and outputs are all tensors: what every engine has at least a type for."""
    return [
        case
        for case in suite.collect()
        if all(isinstance(v, np.ndarray) for inputs, outputs in case.sets for v in (*inputs, *outputs))
    ]


def python_for(engine: str) -> str:
    """The Python that has the engine, installed now if need be."""
    packages = PACKAGES[engine]
    if not packages:
        return sys.executable
    folder = BUILD / "peers" / engine
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    shared = ["numpy", "ml_dtypes", "onnx"]
    subprocess.run([python, "-m", "pip", "install", "--quiet", *shared, *packages], check=True)
    return str(python)


def run_in_processes(engine: str, cases: Sequence[Case]) -> dict[str, str]:
    """What each case that failed on an engine failed with, by name."""
    python = python_for(engine)
    failed: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder, "cases")
        corpus.write_bytes(packing.dumps(list(cases)))
        first = 0
        while first < len(cases):
            first = _one_process(python, engine, corpus, first, cases, failed)
    return failed


def _one_process(
    python: str, engine: str, corpus: Path, first: int, cases: Sequence[Case], failed: dict[str, str]
) -> int:
    """Run cases from `first` on until the process ends. Returns the number of the case to go on with."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, (REPOSITORY, REPOSITORY / "scripts", REPOSITORY / "core"))),
    }
    command = [python, str(REPOSITORY / "scripts" / "conformance_engines.py"), engine, str(corpus), str(first)]
    at = first
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment, cwd=REPOSITORY
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if not line.startswith("{"):
                continue
            told = json.loads(line)
            at = told["case"]
            if "error" in told:
                failed[cases[at].name] = told["error"]
            at += "done" in told
        code = process.wait()
    if at < len(cases) and code:
        failed[cases[at].name] = f"the process ended ({code})"
        at += 1
    elif at == first:
        raise RuntimeError(f"{engine} could not be started")
    return at if code else len(cases)


def version(engine: str) -> str:
    if engine in conformance_pages.PAGES:
        return conformance_pages.PAGES[engine].version
    if engine in conformance_pages.OURS:
        return importlib.metadata.version("onnxlet")
    if PACKAGES[engine]:
        return PACKAGES[engine][0].split("==")[1]
    return importlib.metadata.version("onnx" if engine.startswith("onnx's") else engine)


def document(kept: dict[str, Any]) -> str:
    """The table of all engines measured, the best first."""
    rows = sorted(kept["engines"].items(), key=lambda row: -row[1]["passed"])
    lines = [
        "# The standard's cases on other engines",
        "",
        f"The {kept['cases']} cases for single operators of onnx {kept['onnx']} whose inputs and outputs are tensors,",
        "by `scripts/conformance_peers.py`: one harness, one comparison (type, shape, and values within the case's",
        "tolerance, the absolute one being at least 1e-5 of the largest expected value). An engine that crashes on a",
        "case, or takes more than two minutes for it, has failed it. tinygrad runs on its CPU device. It and tract",
        "give float32 for types that NumPy lacks, and jax-js gives int32 for all integers: those count as right.",
        "With `webgpu` the CPU computes what the GPU does not; with `webgpu alone` such a case has failed.",
        "",
        "| Engine | Version | Passed | Of all |",
        "|---|---|---:|---:|",
    ]
    for engine, row in rows:
        lines.append(f"| {engine} | {row['version']} | {row['passed']} | {100 * row['passed'] / kept['cases']:.1f} % |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="Run the standard's cases for single operators on several engines.")
    parser.add_argument("engines", nargs="*", default=list(PACKAGES), help=f"of: {', '.join(ENGINES)}")
    parser.add_argument("--failures", action="store_true", help="say what failed")
    options = parser.parse_args()
    if unknown := [engine for engine in options.engines if engine not in ENGINES]:
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(ENGINES)}")
    cases = tensor_cases()
    kept: dict[str, Any] = json.loads(KEPT.read_text("utf-8")) if KEPT.exists() else {"engines": {}}
    kept |= {"cases": len(cases), "onnx": importlib.metadata.version("onnx")}
    for engine in options.engines:
        print(f"{engine}: {len(cases)} cases", flush=True)
        if engine in conformance_pages.OURS:
            run = conformance_pages.run_ours
        else:
            run = conformance_pages.run if engine in conformance_pages.PAGES else run_in_processes
        failed = run(engine, cases)
        print(f"{engine}: {len(cases) - len(failed)} passed", flush=True)
        if options.failures:
            print(*(f"  {name}: {why}" for name, why in failed.items()), sep="\n")
        kept["engines"][engine] = {
            "version": version(engine),
            "passed": len(cases) - len(failed),
            "date": datetime.now(UTC).date().isoformat(),
        }
        KEPT.write_text(json.dumps(kept, indent=1) + "\n", "utf-8")
        DOCUMENT.write_text(document(kept), "utf-8")


if __name__ == "__main__":
    main()
