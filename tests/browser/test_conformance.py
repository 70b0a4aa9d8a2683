"""The standard's suites, and what the tests of single operators call, in Pyodide in Chromium.

Integers are 32 bits wide by default there, and there is no `ml_dtypes`.
"""

from __future__ import annotations

import pytest

from tests.browser import repeating
from tests.browser.harness import PyodideHost
from tests.conformance import model_suites, older, suite, versions
from tests.core.ops import recording
from tests.core.test_bug_cases import CASES, FOLDER, expected_values, read


@pytest.fixture(scope="module")
def host(pyodide_worker: PyodideHost) -> PyodideHost:
    repeating.install(pyodide_worker)
    return pyodide_worker


@pytest.mark.slow
@pytest.mark.parametrize("run", ["run_definitions", "run_session"])
def test_single_operators(host: PyodideHost, run: str) -> None:
    cases = suite.collect()
    assert len(cases) >= suite.COUNT
    failed = repeating.failures(host, cases, run)
    assert not failed, f"{len(failed)} of {len(cases)} cases fail:\n" + "\n".join(failed)


def test_other_versions(host: PyodideHost) -> None:
    cases = [case for _, case in versions.moved(suite.collect())] + older.collect()
    failed = repeating.failures(host, cases, "run_session")
    assert not failed, f"{len(failed)} of {len(cases)} cases fail:\n" + "\n".join(failed)


@pytest.mark.parametrize("kind", model_suites.COUNTS)
def test_small_models(host: PyodideHost, kind: str) -> None:
    cases = model_suites.collect(kind)
    assert len(cases) >= model_suites.COUNTS[kind]
    failed = repeating.failures(host, cases, "run_session")
    assert not failed, f"{len(failed)} of {len(cases)} cases fail:\n" + "\n".join(failed)


def test_bug_cases(host: PyodideHost) -> None:
    cases = [
        suite.Case(
            case["name"],
            (FOLDER / case["name"] / "model.onnx").read_bytes(),
            [([read(FOLDER / case["name"], i) for i in case["inputs"]], expected_values(case))],
            case["rtol"],
            case["atol"],
        )
        for case in CASES
    ]
    failed = repeating.failures(host, cases, "run_session")
    assert not failed, f"{len(failed)} of {len(cases)} cases fail:\n" + "\n".join(failed)


def test_calls_of_operators(host: PyodideHost) -> None:
    count, failed = repeating.differing_calls(host, recording.calls())
    assert count > 1000
    assert not failed, f"{len(failed)} of {count} calls differ:\n" + "\n".join(failed)
