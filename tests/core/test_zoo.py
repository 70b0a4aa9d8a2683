"""Whole models, against the frameworks that they came from."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import onnxlet
from onnxlet import rewrites
from onnxlet.execution import folding
from onnxlet.ops import registry
from tests.combinations import NATIVE, Campaign, combinations, use_kernels
from tests.models import ZooModel, zoo

MODELS = zoo()
IDS = [model.name for model in MODELS]


@pytest.mark.parametrize("model", MODELS, ids=IDS)
def test_model(model: ZooModel) -> None:
    session = onnxlet.InferenceSession(model.path)
    names = [output.name for output in session.get_outputs()]
    first = session.run(None, model.values("in"))
    model.check(names, first)
    model.check(names, session.run(None, model.values("in")))
    session.close()


@pytest.mark.parametrize("model", MODELS, ids=IDS)
def test_model_without_rewrites(model: ZooModel) -> None:
    options = onnxlet.SessionOptions(graph_optimization_level=onnxlet.GraphOptimizationLevel.ORT_DISABLE_ALL)
    with onnxlet.InferenceSession(model.path, options) as session:
        names = [output.name for output in session.get_outputs()]
        model.check(names, session.run(None, model.values("in")))


@pytest.mark.parametrize("combination", combinations(NATIVE), ids=str)
def test_combinations(campaign: Campaign, monkeypatch: pytest.MonkeyPatch) -> None:
    use_kernels(campaign.combination, monkeypatch)
    share = campaign.share(MODELS)
    failed = []
    for model in share:
        try:
            with onnxlet.InferenceSession(model.path, campaign.combination.options()) as session:
                names = [output.name for output in session.get_outputs()]
                model.check(names, session.run(None, model.values("in")))
        except Exception as error:
            failed.append(f"{model.name}: {type(error).__name__}: {error}")
    campaign.conclude(len(share), failed)


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("name", rewrites.names())
def test_any_rewrite_may_be_missing_or_alone(name: str, alone: bool) -> None:
    disabled = [other for other in rewrites.names() if (other == name) != alone]
    for model in zoo("torch_bert_dyn", "torch_llama_kv_ts", "q_bert_qdq", "torch_inception_ts"):
        with onnxlet.InferenceSession(model.path, disabled_optimizers=disabled) as session:
            names = [output.name for output in session.get_outputs()]
            model.check(names, session.run(None, model.values("in")))


@pytest.mark.parametrize("model", zoo("torch_mobilenetv2_ts", "torch_unet_ts"), ids=lambda model: model.name)
def test_kernels_do_all_the_work(model: ZooModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """With every NumPy operator broken, but for what is folded into the plan, the model runs, and in one call."""
    folding_now = False
    fold = folding.fold

    def folding_fold(*arguments: Any) -> Any:
        nonlocal folding_now
        folding_now = True
        try:
            return fold(*arguments)
        finally:
            folding_now = False

    def breakable(function: Any) -> Any:
        def call(*arguments: Any, **keywords: Any) -> Any:
            assert folding_now, "NumPy was asked to compute a node"
            return function(*arguments, **keywords)

        return call

    monkeypatch.setattr(folding, "fold", folding_fold)
    registry.registered()  # imports them all
    for key, versions in registry._OPERATORS.items():
        monkeypatch.setitem(registry._OPERATORS, key, [replace(o, function=breakable(o.function)) for o in versions])
    session = onnxlet.InferenceSession(model.path)
    names = [output.name for output in session.get_outputs()]
    model.check(names, session.run(None, model.values("in")))
    explanation = session.explain()
    assert set(explanation.counts) <= {"CPUExecutionProvider", "plan"}
    assert explanation.calls == 1
