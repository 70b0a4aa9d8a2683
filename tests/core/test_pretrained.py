"""Pretrained models of other people, natively: the same numbers as onnxruntime."""

from __future__ import annotations

import pytest

from onnxlet import InferenceSession
from tests.pretrained import MODELS, check


@pytest.mark.parametrize("name", MODELS)
def test_pretrained_model(name: str) -> None:
    model = MODELS[name]
    with InferenceSession(model.path()) as session:
        names = [output.name for output in session.get_outputs()]
        check(model, names, session.run(names, model.inputs()))
        check(model, names, session.run(names, model.inputs()))
