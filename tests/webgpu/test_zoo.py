"""The collection of models, and the models of bug reports, with the GPU provider first."""

from __future__ import annotations

import pytest

from onnxlet import InferenceSession
from onnxlet_webgpu.provider import WebGpuProvider
from tests.combinations import GPU, Campaign, combinations
from tests.conformance import suite
from tests.core import test_bug_cases as bug_cases
from tests.models import ZooModel, as_case, zoo
from tests.webgpu import alone

MODELS = zoo()
BUG_CASES = bug_cases.as_cases()


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_model(gpu_provider: WebGpuProvider, model: ZooModel) -> None:
    """Placed as users have it, on a session's own device."""
    with InferenceSession(model.path, providers=["webgpu", "cpu"]) as session:
        names = [output.name for output in session.get_outputs()]
        model.check(names, session.run(None, model.values("in")))
        model.check(names, session.run(None, model.values("in")))


@pytest.mark.parametrize("combination", combinations(GPU[:1], threads=[1]), ids=str)
def test_combinations(gpu_provider: WebGpuProvider, campaign: Campaign) -> None:
    """With every operator on the GPU that it has a kernel for."""
    failed = []
    share = campaign.share(MODELS)
    with alone.gpu_first(gpu_provider):
        for model in share:
            try:
                with InferenceSession(model.path, campaign.combination.options(), providers=["webgpu"]) as session:
                    names = [output.name for output in session.get_outputs()]
                    model.check(names, session.run(None, model.values("in")))
            except Exception as error:
                failed.append(f"{model.name}: {type(error).__name__}: {error}")
    campaign.conclude(len(share), failed)


@pytest.mark.parametrize("level", ["ORT_DISABLE_ALL", "ORT_ENABLE_ALL"])
def test_bug_cases_on_the_gpu(gpu_provider: WebGpuProvider, level: str) -> None:
    with alone.gpu_first(gpu_provider):
        failed = suite.failures(BUG_CASES, lambda *given: alone.run(*given, level=level))
    assert not failed, f"{len(failed)} of {len(BUG_CASES)} cases fail:\n" + "\n".join(failed)


@pytest.mark.parametrize("model", zoo(*alone.WHOLE), ids=lambda model: model.name)
def test_models_on_the_gpu_alone(gpu_provider: WebGpuProvider, model: ZooModel) -> None:
    """With the CPU's kernels and NumPy's definitions broken; dispatches are counted in wgpu."""
    with alone.gpu_first(gpu_provider):
        assert alone.check_alone(as_case(model)) > 5
