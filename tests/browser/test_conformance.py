"""The standard's suites, and what the tests of single operators call, in Pyodide in Chromium.

Integers are 32 bits wide by default there, and there is no `ml_dtypes`.
"""

from __future__ import annotations

import pytest

from tests.browser import repeating
from tests.browser.harness import Chromium, PyodideHost
from tests.browser.test_models import REFUSE_RELAXED
from tests.combinations import BROWSER, Campaign, combinations
from tests.conformance import model_suites, older, suite, versions
from tests.core import test_bug_cases as bug_cases
from tests.core.ops import recording

THREADS = """
import onnxlet
from onnxlet_wasm import engine
usual, engine.WORTH_SHARING = engine.WORTH_SHARING, 0  # threads even where a model is too small to be worth it
await onnxlet.ready(threads)
found = onnxlet.features()
[found["relaxed-simd"][0], found["threads"][0], usual]
"""


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


@pytest.mark.slow
@pytest.mark.parametrize("combination", combinations(BROWSER), ids=str)
def test_combinations(chromium: Chromium, campaign: Campaign) -> None:
    chosen = campaign.combination
    host = chromium.pyodide(before="" if chosen.build == "wasm-relaxed" else REFUSE_RELAXED)
    repeating.install(host)
    relaxed, threads, usual = host.run_python(THREADS, threads=chosen.threads)
    try:
        assert relaxed == (chosen.build == "wasm-relaxed")
        assert threads
        share = campaign.share(suite.collect())
        failed = repeating.failures(host, share, "run_session", level=chosen.level, threads=chosen.threads)
    finally:
        host.run_python("from onnxlet_wasm import engine; engine.WORTH_SHARING = usual", usual=usual)
    campaign.conclude(len(share), failed)


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
    cases = bug_cases.as_cases()
    failed = repeating.failures(host, cases, "run_session")
    assert not failed, f"{len(failed)} of {len(cases)} cases fail:\n" + "\n".join(failed)


def test_calls_of_operators(host: PyodideHost) -> None:
    count, failed = repeating.differing_calls(host, recording.calls())
    assert count > 1000
    assert not failed, f"{len(failed)} of {count} calls differ:\n" + "\n".join(failed)
