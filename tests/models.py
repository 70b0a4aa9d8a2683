"""The models that tests run: where they are, what goes in, and what must come out."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import onnxlet
from tests.conformance.suite import Case
from tests.conftest import DATA, shared_dir


@dataclass(frozen=True)
class ZooModel:
    """A small model from an exporter, with outputs of the framework that it came from."""

    name: str
    folder: Path
    tolerance: float

    @property
    def path(self) -> Path:
        return self.folder / "model.onnx"

    def values(self, kind: str) -> dict[str, np.ndarray]:
        """Inputs (kind ``in``) or expected outputs (``out``) by name."""
        with np.load(self.folder / "data.npz", allow_pickle=True) as file:
            return {name.removeprefix(f"{kind}:"): file[name] for name in file.files if name.startswith(f"{kind}:")}

    def check(self, names: list[str], outputs: list[Any]) -> None:
        """Assert that outputs are what the framework gave, within the model's tolerance of the largest value."""
        given = dict(zip(names, outputs, strict=True))
        for name, expected in self.values("out").items():
            value = as_array(given[name])
            assert value.size == expected.size, (name, value.shape, expected.shape)
            value = value.reshape(expected.shape)
            if expected.dtype.kind in "fc":
                scale = max(1e-6, float(np.nanmax(np.abs(expected.astype(np.float64))))) if expected.size else 1.0
                np.testing.assert_allclose(value, expected, rtol=0, atol=self.tolerance * scale, err_msg=name)
            else:
                np.testing.assert_array_equal(value, expected, err_msg=name)


def as_case(model: ZooModel) -> Case:
    """A model as a case of a suite: inputs and outputs in its own order, one tolerance for all of its outputs."""
    graph = onnxlet.load(model.path).graph
    given, expected = model.values("in"), model.values("out")
    scale = min(max(1e-6, float(np.abs(expected[name].astype(np.float64)).max())) for name in graph.outputs)
    values = [given[name] for name in graph.inputs], [expected[name] for name in graph.outputs]
    return Case(model.name, model.path.read_bytes(), [values], 0, model.tolerance * scale)


def as_array(value: Any) -> np.ndarray:
    """An output as one array; a sequence of maps (class probabilities) as rows of the maps' values."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return np.array([list(row.values()) for row in value])
    return np.asarray(value)


def zoo(*names: str) -> list[ZooModel]:
    """Models whose names start with one of `names` (all without any), from beside the checkout or `tests/data`."""
    shared = shared_dir()
    root = DATA / "zoo" if shared is None else shared / "zoo"
    folders = [f for f in sorted(root.iterdir()) if not names or f.name.startswith(names)]
    return [ZooModel(f.name, f, float(json.loads((f / "meta.json").read_text("utf-8"))["tol"])) for f in folders]
