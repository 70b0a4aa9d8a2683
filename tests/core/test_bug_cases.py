"""Small models from public reports about other runtimes, with the values that the specification asks for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnxlet
from tests.conformance.suite import Case
from tests.conftest import DATA

FOLDER = DATA / "bug_cases"
CASES = json.loads((FOLDER / "manifest.json").read_text("utf-8"))

CORRECTED = {
    # The file holds zeros. By the text of Resize, row i and column j of the crop lie at 3 * 0.5 * (i, j) / 3 of an
    # image whose value at (y, x) is 4 y + x.
    "C16_Resize_tf_crop_and_resize_with_scales_out_floor_in_roi_e": np.add.outer(
        2 * np.arange(4, dtype=np.float32), np.arange(4, dtype=np.float32) / 2
    ).reshape(1, 1, 4, 4),
}
"""Expected values that the files have wrong, worked out from the specification."""


def read(folder: Path, described: dict[str, Any]) -> np.ndarray:
    raw = (folder / described["file"]).read_bytes()
    return np.frombuffer(raw, described["dtype"]).reshape(described["dims"])


def expected_values(case: dict[str, Any]) -> list[np.ndarray]:
    return [CORRECTED.get(case["name"], read(FOLDER / case["name"], o)) for o in case["outputs"]]


def as_cases() -> list[Case]:
    """The models as cases of a suite: inputs and outputs in the order of the model."""
    return [
        Case(
            case["name"],
            (FOLDER / case["name"] / "model.onnx").read_bytes(),
            [([read(FOLDER / case["name"], i) for i in case["inputs"]], expected_values(case))],
            case["rtol"],
            case["atol"],
        )
        for case in CASES
    ]


@pytest.mark.parametrize("level", ["ORT_DISABLE_ALL", "ORT_ENABLE_ALL"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_bug_case(case: dict[str, Any], level: str) -> None:
    folder = FOLDER / case["name"]
    options = onnxlet.SessionOptions(graph_optimization_level=onnxlet.GraphOptimizationLevel[level])
    session = onnxlet.InferenceSession(folder / "model.onnx", options)
    names = [o["name"] for o in case["outputs"]]
    given = session.run(names, {i["name"]: read(folder, i) for i in case["inputs"]})
    for expected, value in zip(expected_values(case), given, strict=True):
        assert value.dtype == expected.dtype
        assert value.shape == expected.shape
        np.testing.assert_allclose(value, expected, rtol=case["rtol"], atol=case["atol"])
