"""What the tests of single operators call gives the same in Pyodide, where integers are 32 bits wide by default and
there is no `ml_dtypes`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.browser.harness import PyodideHost
from tests.conftest import REPOSITORY

SOURCES = ("tests/conformance/packing.py", "tests/conformance/suite.py", "tests/core/ops/calling.py")

INSTALL = """
import pathlib, sys, pyodide_js
await pyodide_js.loadPackage("pillow")
for name, text in sources.items():
    file = pathlib.Path("/suite", name)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
sys.path.append("/suite")
"""

REPEAT = """
import warnings
from tests.conformance import packing, suite
from tests.core.ops.calling import call

RANDOM = {"Bernoulli", "Dropout", "Multinomial"} | {
    f"Random{kind}{like}" for kind in ("Normal", "Uniform") for like in ("", "Like")
}

def repeat(asked, expected, raised):
    operator, opset, inputs, keywords = packing.loads(asked)
    drawn = operator in RANDOM and "seed" not in keywords
    try:
        given = call(operator, opset, *inputs, **keywords)
    except Exception as error:
        return "" if type(error).__name__ == raised else f"{operator} {opset}: {type(error).__name__}: {error}"
    if raised:
        return f"{operator} {opset}: no {raised}"
    try:
        outputs = keywords.get("outputs", 1)
        pairs = [(expected, given)] if outputs == 1 else zip(expected, given, strict=True)
        for want, got in pairs:
            suite.compare(want, got, 1e-4, 1e-6, f"{operator} {opset}", values=not drawn)
    except AssertionError as error:
        return " ".join(str(error).split())[:300]

warnings.simplefilter("ignore")
recorded = [packing.loads(each) for each in packing.loads(calls)]
{"count": len(recorded), "failed": [line for each in recorded if (line := repeat(*each))]}
"""


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The calls, from a run of those tests."""
    path: Path = tmp_path_factory.mktemp("recorded") / "calls"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.core.ops.recording", "tests/core/ops"]
    environment = {**os.environ, "ONNXLET_RECORD": str(path)}
    subprocess.run(command, cwd=REPOSITORY, env=environment, check=True, capture_output=True, timeout=300)
    return path.read_bytes()


def test_calls_of_operators(pyodide_worker: PyodideHost, calls: bytes) -> None:
    sources = {name: (REPOSITORY / name).read_text("utf-8") for name in SOURCES}
    pyodide_worker.run_python(INSTALL, sources=sources)
    answer = pyodide_worker.run_python(REPEAT, calls=calls, timeout=300)
    assert answer["count"] > 1000
    assert not answer["failed"], f"{len(answer['failed'])} of {answer['count']} fail:\n" + "\n".join(answer["failed"])
