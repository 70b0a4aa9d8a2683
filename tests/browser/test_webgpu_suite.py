"""The standard's cases, and whole models, in a page with the GPU provider first.

With `--full` all of them run, in the everyday suite a share.
"""

from __future__ import annotations

import pytest

from tests.browser import gpu_suite
from tests.browser.harness import PyodideHost
from tests.browser.test_models import SMALL, run
from tests.combinations import GPU, Campaign, combinations
from tests.conformance import suite
from tests.core import test_bug_cases as bug_cases
from tests.models import as_case, zoo
from tests.webgpu.alone import TENSOR_CASES, WHOLE, read_left_out


@pytest.fixture(scope="module")
def host(pyodide_worker: PyodideHost) -> PyodideHost:
    gpu_suite.install(pyodide_worker)
    return pyodide_worker


@pytest.mark.slow
@pytest.mark.parametrize("combination", combinations(GPU[1:], threads=[1]), ids=str)
def test_combinations(host: PyodideHost, campaign: Campaign) -> None:
    """Every case passes, wherever it runs."""
    share = campaign.share(suite.collect())
    failed = gpu_suite.failures(host, share, campaign.combination.level)
    campaign.conclude(len(share), failed)


@pytest.mark.slow
def test_cases_without_anything_else(host: PyodideHost, pytestconfig: pytest.Config) -> None:
    """Every case that is not left out with a reason is computed by the GPU alone, as on a desktop: dispatches and
    copies are counted in JavaScript, and neither kernels for the CPU nor NumPy's definitions can be had."""
    full = pytestconfig.getoption("--full")
    cases = suite.collect()[:: 1 if full else 4]
    left_out = read_left_out()
    dispatching, told, failed = gpu_suite.alone(host, cases)
    differing = [case.name for case in cases if (case.name in told) != (case.name in left_out)]
    failed += [f"{name}: {told.get(name) or 'runs alone, and is left out'}" for name in differing]
    assert not failed, f"{len(failed)} of {len(cases)} cases:\n" + "\n".join(failed)
    if full:
        assert dispatching >= 0.8 * TENSOR_CASES


def test_bug_cases_on_the_gpu(host: PyodideHost) -> None:
    cases = bug_cases.as_cases()
    failed = gpu_suite.failures(host, cases)
    assert not failed, f"{len(failed)} of {len(cases)} cases fail:\n" + "\n".join(failed)


def test_models(host: PyodideHost, pytestconfig: pytest.Config) -> None:
    """Small models of the collection, placed as users have it."""
    failed = []
    for model in SMALL[:: 1 if pytestconfig.getoption("--full") else 5]:
        try:
            explained = run(host, model, ("webgpu", "cpu"))["explained"]
            assert all(n["reason"] for n in explained["nodes"] if n["provider"] in ("CPUExecutionProvider", "NumPy"))
        except Exception as error:
            failed.append(f"{model.name}: {type(error).__name__}: {error}")
    assert not failed, f"{len(failed)} models fail:\n" + "\n".join(failed)


def test_models_on_the_gpu_alone(host: PyodideHost, pytestconfig: pytest.Config) -> None:
    """As on a desktop; dispatches are counted in JavaScript."""
    models = zoo(*WHOLE if pytestconfig.getoption("--full") else WHOLE[::5])
    dispatching, told, failed = gpu_suite.alone(host, [as_case(model) for model in models])
    assert not failed
    assert not told
    assert dispatching == len(models)
