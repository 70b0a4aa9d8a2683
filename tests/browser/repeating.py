"""The standard's cases, and the calls of the operators' tests, repeated in Pyodide."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.browser.harness import PyodideHost
from tests.conformance import packing
from tests.conformance.suite import Case
from tests.conftest import REPOSITORY

SOURCES = ("tests/conformance/packing.py", "tests/conformance/suite.py", "tests/core/ops/calling.py")
"""What of the tests' own code runs in the page."""

INSTALL = """
import pathlib, sys, pyodide_js
await pyodide_js.loadPackage("pillow")
for name, text in sources.items():
    file = pathlib.Path("/suite", name)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
if "/suite" not in sys.path:
    sys.path.append("/suite")
"""

CASES = """
import functools, warnings
import onnxlet
from tests.conformance import packing, suite

warnings.simplefilter("ignore")
cases = packing.loads(packed)
run_one = functools.partial(getattr(suite, run), **keywords)
failed = []
for case in cases:
    await onnxlet.ready(keywords.get("threads", 1))  # the workers of the session before are only now free again
    failed += suite.failures([case], run_one)
{"count": len(cases), "failed": failed}
"""

CALLS = """
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
            # A sum in another order may round to the next number.
            rtol = 1e-3 if getattr(want, "dtype", None) == "float16" else 1e-4
            suite.compare(want, got, rtol, 1e-6, f"{operator} {opset}", values=not drawn)
    except AssertionError as error:
        return " ".join(str(error).split())[:300]

warnings.simplefilter("ignore")
recorded = [packing.loads(each) for each in packing.loads(packed)]
{"count": len(recorded), "failed": [line for each in recorded if (line := repeat(*each))]}
"""

BATCH = 400
"""Cases handed to the page at once."""


def install(host: PyodideHost) -> None:
    """Put into the page what the functions below need there."""
    host.run_python(INSTALL, sources={name: (REPOSITORY / name).read_text("utf-8") for name in SOURCES})


def failures(host: PyodideHost, cases: Sequence[Case], run: str, **keywords: Any) -> list[str]:
    """A line for each case that does not pass in the page; `run` is the name of a runner of `suite`, which takes the
    keywords."""
    failed = []
    for begin in range(0, len(cases), BATCH):
        batch = cases[begin : begin + BATCH]
        answer = host.run_python(CASES, packed=packing.dumps(batch), run=run, keywords=keywords, timeout=900)
        assert answer["count"] == len(batch)
        failed += answer["failed"]
    return failed


def differing_calls(host: PyodideHost, calls: bytes) -> tuple[int, list[str]]:
    """How many calls `tests.core.ops.recording` wrote, and a line for each that gives something else in the page."""
    answer = host.run_python(CALLS, packed=calls, timeout=900)
    return answer["count"], answer["failed"]
