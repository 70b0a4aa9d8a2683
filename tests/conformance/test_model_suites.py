"""The standard's suites of models that come as files: `simple`, `pytorch-converted`, `pytorch-operator`, `light`."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.conformance import model_suites, suite
from tests.conformance.model_suites import COUNTS, DATA


@pytest.mark.parametrize("run", [suite.run_definitions, suite.run_session], ids=["definitions", "sessions"])
@pytest.mark.parametrize("kind", COUNTS)
def test_suite(kind, run):
    cases = model_suites.collect(kind)
    assert len(cases) >= COUNTS[kind]
    failed = suite.failures(cases, run)
    assert not failed, f"{len(failed)} of {len(cases)} cases fail:\n" + "\n".join(failed)


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted((DATA / "light").glob("*.onnx")), ids=lambda path: path.stem)
def test_light(path):
    """Classifiers whose weights are constants; the input counts from 0 to 1, as in the standard's own runner."""
    data = path.read_bytes()
    graph = onnx.load_model_from_string(data).graph
    constants = {tensor.name for tensor in graph.initializer}
    (image,) = [value for value in graph.input if value.name not in constants]
    shape = [d.dim_value for d in image.type.tensor_type.shape.dim]
    proto = onnx.TensorProto()
    proto.ParseFromString(path.with_name(f"{path.stem}_output_0.pb").read_bytes())
    size = np.prod(shape)
    x = (np.arange(size).reshape(shape) / size).astype(np.float32)
    suite.check(suite.Case(path.stem, data, [([x], [suite.plain(proto)])], 1e-3, 1e-7), suite.run_session)
