"""Small models from public reports about other runtimes, with the values that the specification asks for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnxlet
from tests.conftest import DATA

FOLDER = DATA / "bug_cases"
CASES = json.loads((FOLDER / "manifest.json").read_text("utf-8"))


def read(folder: Path, described: dict[str, Any]) -> np.ndarray:
    raw = (folder / described["file"]).read_bytes()
    return np.frombuffer(raw, described["dtype"]).reshape(described["dims"])


@pytest.mark.parametrize("level", ["ORT_DISABLE_ALL", "ORT_ENABLE_ALL"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_bug_case(case: dict[str, Any], level: str) -> None:
    folder = FOLDER / case["name"]
    options = onnxlet.SessionOptions(graph_optimization_level=onnxlet.GraphOptimizationLevel[level])
    session = onnxlet.InferenceSession(folder / "model.onnx", options)
    names = [o["name"] for o in case["outputs"]]
    given = session.run(names, {i["name"]: read(folder, i) for i in case["inputs"]})
    for described, value in zip(case["outputs"], given, strict=True):
        expected = read(folder, described)
        assert value.dtype == expected.dtype
        assert value.shape == expected.shape
        np.testing.assert_allclose(value, expected, rtol=case["rtol"], atol=case["atol"])
