"""Another implementation to compare with: onnxruntime, on models of one node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper

from tests.core.ops.calling import call


def onnxruntime_results(
    operator: str,
    opset: int,
    inputs: Sequence[np.ndarray | None],
    outputs: int,
    domain: str,
    attributes: dict[str, Any],
    types: Sequence[int | None] = (),
) -> list[Any]:
    """What onnxruntime computes, without its own fusions and without saturating products of 8-bit integers.

    `types` are the element types of outputs that it can't infer.
    """
    names = ["" if x is None else f"x{i}" for i, x in enumerate(inputs)]
    results = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(operator, names, results, domain=domain, **attributes)
    values = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for n, x in zip(names, inputs, strict=True)
        if x is not None
    ]
    made = [onnx.ValueInfoProto(name=y) for y in results]
    for i, element_type in enumerate(types):
        if element_type is not None:
            made[i] = helper.make_tensor_value_info(results[i], element_type, None)
    graph = helper.make_graph([node], "one", values, made)
    versions = {"": 17, "ai.onnx.ml": 3, "com.microsoft": 1, domain: opset}
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid(*v) for v in versions.items()], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.x64quantprecision", "1")
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, {n: x for n, x in zip(names, inputs, strict=True) if x is not None}))


def agrees(
    operator: str,
    opset: int,
    /,
    *inputs: np.ndarray | None,
    outputs: int = 1,
    domain: str = "",
    rtol: float = 1e-4,
    atol: float = 1e-5,
    flips: int = 0,
    types: Sequence[int | None] = (),
    **attributes: Any,
) -> None:
    """Assert that our definition and onnxruntime give the same; `flips` integers may differ by one, rounded at ties."""
    given = list(inputs)
    while given and given[-1] is None:
        given.pop()
    expected = onnxruntime_results(operator, opset, given, outputs, domain, attributes, types)
    got = call(operator, opset, *given, domain=domain, outputs=outputs, **attributes)
    for g, e in zip([got] if outputs == 1 else got, expected, strict=True):
        e = np.asarray(e)
        assert g.dtype == e.dtype, (g.dtype, e.dtype)
        assert g.shape == e.shape, (g.shape, e.shape)
        if e.dtype.kind in "iub":
            difference = np.abs(g.astype(np.int64) - e.astype(np.int64))
            assert difference.max(initial=0) <= (1 if flips else 0), (g, e)
            assert np.count_nonzero(difference) <= flips, (g, e)
        elif e.dtype.kind == "O":
            assert g.tolist() == e.tolist()
        else:
            np.testing.assert_allclose(g, e, rtol=rtol, atol=atol)


class Numbers:
    """Reproducible random arrays."""

    def __init__(self, seed: int = 0):
        self.generator = np.random.default_rng(seed)

    def f32(self, *shape: int) -> np.ndarray:
        return self.generator.normal(size=shape).astype(np.float32)

    def u8(self, *shape: int) -> np.ndarray:
        return self.generator.integers(0, 256, shape).astype(np.uint8)

    def s8(self, *shape: int) -> np.ndarray:
        return self.generator.integers(-128, 128, shape).astype(np.int8)

    def ints(self, low: int, high: int, *shape: int, dtype: str = "int64") -> np.ndarray:
        return self.generator.integers(low, high, shape).astype(dtype)
