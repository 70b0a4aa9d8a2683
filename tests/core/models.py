"""Small models for tests, built with `onnx.helper` and checked by `onnx.checker`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, checker, helper, numpy_helper

Value = tuple[str, int, Sequence[int | str | None]]
FLOAT, INT64, BOOL, INT32 = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL, TensorProto.INT32


def value(name: str, element: int, shape: Sequence[int | str | None] | None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, element, shape)


def graph(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    constants: Mapping[str, Any] | None = None,
    name: str = "g",
) -> onnx.GraphProto:
    return helper.make_graph(
        list(nodes),
        name,
        [value(*v) for v in inputs],
        [value(*v) for v in outputs],
        [numpy_helper.from_array(np.asarray(v), n) for n, v in (constants or {}).items()],
    )


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    constants: Mapping[str, Any] | None = None,
    *,
    opset: int = 21,
    domains: Sequence[str] = (),
    check: bool = True,
) -> onnx.ModelProto:
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    made = helper.make_model(graph(nodes, inputs, outputs, constants), opset_imports=imports, ir_version=10)
    if check:
        checker.check_model(made)
    return made


node = helper.make_node
