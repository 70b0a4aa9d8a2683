"""The standard's suites of small models that come as files: `simple`, `pytorch-converted`, `pytorch-operator`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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
