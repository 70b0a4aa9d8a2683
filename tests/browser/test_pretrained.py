"""Pretrained models of other people, in Pyodide in Chromium: the same numbers as onnxruntime."""

from __future__ import annotations

import pytest

from tests.browser.harness import PyodideHost
from tests.pretrained import MODELS, check

RUN = """
import onnxlet
session = await onnxlet.InferenceSession.create(url)
names = [output.name for output in session.get_outputs()]
outputs = await session.run_async(names, {name: globals()[f"in_{name}"] for name in inputs})
session.close()
{"names": names, "outputs": outputs}
"""


@pytest.mark.parametrize("name", MODELS)
def test_pretrained_model(pyodide_worker: PyodideHost, name: str) -> None:
    model = MODELS[name]
    inputs = {f"in_{key}": value for key, value in model.inputs().items()}
    answer = pyodide_worker.run_python(RUN, url=pyodide_worker.url(model.path()), inputs=list(model.inputs()), **inputs)
    check(model, answer["names"], answer["outputs"])
