"""A short way to write ONNX graphs with random weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 20
MICROSOFT_OPSET = 1
IR_VERSION = 9


class GraphBuilder:
    """Collects nodes, weights, inputs and outputs; names are made up as it goes. Values are known by name."""

    def __init__(self, name: str, seed: int = 0):
        self.name = name
        self.rng = np.random.default_rng(seed)
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        self._names = 0

    def _fresh(self, prefix: str) -> str:
        self._names += 1
        return f"{prefix}{self._names}"

    def input(self, shape: Sequence[int | str], kind: int = TensorProto.FLOAT, name: str | None = None) -> str:
        name = name or self._fresh("x")
        self._inputs.append(helper.make_tensor_value_info(name, kind, list(shape)))
        return name

    def output(self, value: str, shape: Sequence[int | str], kind: int = TensorProto.FLOAT) -> None:
        self._outputs.append(helper.make_tensor_value_info(value, kind, list(shape)))

    def constant(self, array: Any) -> str:
        """An initializer. Python numbers become what `np.asarray` makes of them: give NumPy scalars."""
        name = self._fresh("w")
        self._weights.append(numpy_helper.from_array(np.ascontiguousarray(array).reshape(np.shape(array)), name))
        return name

    def node(self, operator: str, *inputs: str, outputs: int = 1, domain: str = "", **attributes: Any) -> Any:
        """Add a node; returns the name of its output, or a list of names where `outputs` is not 1."""
        names = [self._fresh("t") for _ in range(outputs)]
        self._nodes.append(helper.make_node(operator, list(inputs), names, domain=domain, **attributes))
        return names[0] if outputs == 1 else names

    def normal(self, *shape: int, scale: float = 1.0) -> np.ndarray:
        return self.rng.standard_normal(shape, np.float32) * np.float32(scale)

    def model(self) -> onnx.ModelProto:
        graph = helper.make_graph(self._nodes, self.name, self._inputs, self._outputs, self._weights)
        opsets = [helper.make_opsetid("", OPSET)]
        if any(node.domain == "com.microsoft" for node in self._nodes):
            opsets.append(helper.make_opsetid("com.microsoft", MICROSOFT_OPSET))
        return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
