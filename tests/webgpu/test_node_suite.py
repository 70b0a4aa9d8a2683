"""The standard's cases for single operators with the GPU provider first: all pass, and most run on the GPU alone."""

from __future__ import annotations

import functools

import pytest

from onnxlet_webgpu.provider import WebGpuProvider
from tests.combinations import GPU, Campaign, combinations
from tests.conformance import suite
from tests.webgpu import alone

pytestmark = pytest.mark.slow


def test_all_cases(gpu_provider: WebGpuProvider):
    """Every case passes, wherever it runs."""
    with alone.gpu_first(gpu_provider):
        failed = suite.failures(suite.collect(), alone.run)
    assert not failed, f"{len(failed)} cases fail:\n" + "\n".join(failed)


@pytest.mark.parametrize("combination", combinations(GPU[:1], threads=[1]), ids=str)
def test_combinations(gpu_provider: WebGpuProvider, campaign: Campaign) -> None:
    share = campaign.share(suite.collect())
    with alone.gpu_first(gpu_provider):
        failed = suite.failures(share, functools.partial(alone.run, level=campaign.combination.level))
    campaign.conclude(len(share), failed)


def test_cases_without_anything_else(gpu_provider: WebGpuProvider):
    """Every case that is not left out with a reason is computed by the GPU alone; those that are, are not."""
    left_out = alone.read_left_out()
    lines, dispatching = [], 0
    with alone.gpu_first(gpu_provider):
        for case in suite.collect():
            try:
                dispatching += alone.check_alone(case) > 0
                told = ""
            except alone.NotAlone as error:
                told = str(error)
            except Exception as error:
                lines.append(f"{case.name}: {type(error).__name__}: {error}")
                continue
            if bool(told) != (case.name in left_out):
                lines.append(f"{case.name}: {told or 'runs alone, and is left out'}")
    assert not lines, f"{len(lines)} cases differ from left_out.txt:\n" + "\n".join(lines)
    assert set(left_out) <= {case.name for case in suite.collect()}
    assert dispatching >= 0.8 * alone.TENSOR_CASES


def test_cases_that_are_left_out_for_want_of_a_kernel_are_few():
    """All other reasons say that there can be none: cases that run alone are all that could, but for these."""
    left_out = alone.read_left_out()
    run = len(suite.collect()) - len(left_out)
    lacking = sum(reason == alone.REASONS[-1][1] for reason in left_out.values())
    assert run >= 0.95 * (run + lacking)
