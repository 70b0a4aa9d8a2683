"""The standard's suites of models that come as files: `simple`, `pytorch-converted`, `pytorch-operator`, `light`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.backend.test

from tests.conformance import suite

DATA = Path(onnx.backend.test.__file__).parent / "data"
COUNTS = {"simple": 23, "pytorch-converted": 82, "pytorch-operator": 35}
"""How many cases each suite of onnx 1.23 has."""

_PROTOS = {"tensor_type": onnx.TensorProto, "sequence_type": onnx.SequenceProto, "optional_type": onnx.OptionalProto}


def collect(kind: str) -> list[suite.Case]:
    """The cases of one suite."""
    return [_read(folder) for folder in sorted((DATA / kind).iterdir())]


def _read(folder: Path) -> suite.Case:
    """A case from a folder with a model and its data sets."""
    data = (folder / "model.onnx").read_bytes()
    graph = onnx.load_model_from_string(data).graph
    constants = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in constants]

    def read(path: Path, value: onnx.ValueInfoProto) -> Any:
        proto = _PROTOS[str(value.type.WhichOneof("value"))]()
        proto.ParseFromString(path.read_bytes())
        return suite.plain(proto)

    sets = [
        (
            [read(each / f"input_{i}.pb", value) for i, value in enumerate(inputs)],
            [read(each / f"output_{i}.pb", value) for i, value in enumerate(graph.output)],
        )
        for each in sorted(folder.glob("test_data_set_*"))
    ]
    return suite.Case(folder.name, data, sets, 1e-3, 1e-7)


def light() -> list[suite.Case]:
    """Classifiers whose weights are constants; the input counts from 0 to 1, as in the standard's own runner."""
    return [_light(path) for path in sorted((DATA / "light").glob("*.onnx"))]


def _light(path: Path) -> suite.Case:
    data = path.read_bytes()
    graph = onnx.load_model_from_string(data).graph
    constants = {tensor.name for tensor in graph.initializer}
    (image,) = [value for value in graph.input if value.name not in constants]
    shape = [d.dim_value for d in image.type.tensor_type.shape.dim]
    expected = onnx.TensorProto()
    expected.ParseFromString(path.with_name(f"{path.stem}_output_0.pb").read_bytes())
    size = np.prod(shape)
    x = (np.arange(size).reshape(shape) / size).astype(np.float32)
    return suite.Case(path.stem, data, [([x], [suite.plain(expected)])], 1e-3, 1e-7)
