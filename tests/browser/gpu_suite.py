"""Cases with the GPU provider first, in Pyodide: all on whatever computes them, and on the GPU alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.browser import repeating
from tests.browser.harness import PyodideHost
from tests.conformance import packing
from tests.conformance.suite import Case
from tests.conftest import REPOSITORY

SOURCES = (*repeating.SOURCES, "tests/webgpu/alone.py")

PROVIDER = """
import functools, warnings
from onnxlet_webgpu import provider as webgpu
from tests.conformance import packing, suite
from tests.webgpu import alone

warnings.simplefilter("ignore")
cases = packing.loads(packed)
provider = await webgpu.create_async({})
"""

FIRST = (
    PROVIDER
    + """
with alone.gpu_first(provider):
    failed = suite.failures(cases, functools.partial(alone.run, level=level))
provider.close()
{"count": len(cases), "failed": failed}
"""
)

ALONE = (
    PROVIDER
    + """
told, failed, dispatching = {}, [], 0
with alone.gpu_first(provider):
    for case in cases:
        try:
            dispatching += alone.check_alone(case) > 0
        except alone.NotAlone as error:
            told[case.name] = str(error)
        except Exception as error:
            failed.append(f"{case.name}: {type(error).__name__}: {' '.join(str(error).split())[:300]}")
provider.close()
{"count": len(cases), "failed": failed, "told": told, "dispatching": dispatching}
"""
)

BATCH = 200
"""Cases handed to the page at once."""


def install(host: PyodideHost) -> None:
    """Put into the page what the functions below need there."""
    sources = {name: (REPOSITORY / name).read_text("utf-8") for name in SOURCES}
    host.run_python(repeating.INSTALL, sources=sources)


def _batches(host: PyodideHost, code: str, cases: Sequence[Case], **inputs: Any) -> list[dict[str, Any]]:
    answers = []
    for begin in range(0, len(cases), BATCH):
        batch = cases[begin : begin + BATCH]
        answers.append(host.run_python(code, packed=packing.dumps(batch), timeout=900, **inputs))
        assert answers[-1]["count"] == len(batch)
    return answers


def failures(host: PyodideHost, cases: Sequence[Case], level: str = "ORT_ENABLE_ALL") -> list[str]:
    """A line for each case that does not pass with the GPU provider first, after the rewrites of a level."""
    return [line for answer in _batches(host, FIRST, cases, level=level) for line in answer["failed"]]


def alone(host: PyodideHost, cases: Sequence[Case]) -> tuple[int, dict[str, str], list[str]]:
    """How many cases are computed by shaders alone; what the others would need, by name; a line for each wrong one."""
    answers = _batches(host, ALONE, cases)
    told = {name: why for answer in answers for name, why in answer["told"].items()}
    return sum(a["dispatching"] for a in answers), told, [line for a in answers for line in a["failed"]]
