"""Segments from a few nodes, their programs, and what another implementation computes for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx.reference import ReferenceEvaluator

from onnxlet.graph.ir import Node, TensorType
from onnxlet.model.tensors import Tensor
from onnxlet.providers.base import Segment, Step

OPSET = 21

QUIET = onnxruntime.SessionOptions()
QUIET.log_severity_level = 4

Reference = Callable[..., Any]


def evaluate(node: Node, inputs: Sequence[np.ndarray | None], reference: Reference | None = None) -> list[np.ndarray]:
    """The outputs of one node by onnxruntime, by ONNX's reference evaluator where that has no kernel, or by
    `reference(*inputs, **attributes)`."""
    if reference is not None:
        result = reference(*inputs, **node.attributes)
        return [np.asarray(r) for r in (result if isinstance(result, (list, tuple)) else [result])]
    attributes: dict[str, Any] = {
        k: onnx.numpy_helper.from_array(v) if isinstance(v, np.ndarray) else v for k, v in node.attributes.items()
    }
    proto = onnx.helper.make_node(node.op_type, node.inputs, node.outputs, **attributes)
    given = {n: v for n, v in zip(node.inputs, inputs, strict=True) if n and v is not None}
    graph = onnx.helper.make_graph(
        [proto],
        "one",
        [
            onnx.helper.make_tensor_value_info(n, onnx.helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
            for n, v in given.items()
        ],
        [onnx.helper.make_value_info(n, onnx.TypeProto()) for n in node.outputs if n],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", node.version)], ir_version=10)
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), QUIET, providers=["CPUExecutionProvider"])
        results = session.run(None, given)
    except Exception:
        with np.errstate(all="ignore"):
            results = ReferenceEvaluator(model).run(None, given)
    remaining = iter(results)
    return [np.asarray(next(remaining)) if n else np.empty(0) for n in node.outputs]


def make_segment(
    nodes: Sequence[Node],
    feeds: Mapping[str, np.ndarray],
    constants: Mapping[str, np.ndarray],
    outputs: Sequence[str],
    references: Mapping[str, Reference] | None = None,
    resident: Sequence[str] = (),
) -> tuple[Segment, dict[str, np.ndarray]]:
    """A segment of `nodes`, and the values that all its names should have."""
    values: dict[str, np.ndarray] = {**feeds, **constants}
    tensors = {name: Tensor.of(value) for name, value in constants.items()}
    steps = []
    for node in nodes:
        inputs = [values[n] if n else None for n in node.inputs]
        results = evaluate(node, inputs, (references or {}).get(node.op_type))
        values.update((n, r) for n, r in zip(node.outputs, results, strict=False) if n)
        steps.append(
            Step(
                node,
                [None if v is None else TensorType(v.dtype, v.shape) for v in inputs],
                [TensorType(values[n].dtype, values[n].shape) if n else None for n in node.outputs],
                {n: tensors[n] for n in node.inputs if n in tensors},
            )
        )
    types = {name: TensorType(v.dtype, v.shape) for name, v in values.items()}
    return Segment(steps, list(feeds), list(outputs), types, tensors, frozenset(resident)), values


def node(
    op_type: str, inputs: str, outputs: str = "y", *, domain: str = "", version: int = OPSET, **attributes: Any
) -> Node:
    """A node whose names are given as words; ``-`` is an absent one."""
    names = [[n if n != "-" else "" for n in words.split()] for words in (inputs, outputs)]
    return Node(op_type, names[0], names[1], attributes, domain, version, name=f"{op_type}_{names[1][0]}")


def check(
    provider: Any,
    nodes: Node | Sequence[Node],
    feeds: Mapping[str, np.ndarray],
    constants: Mapping[str, np.ndarray] | None = None,
    *,
    outputs: Sequence[str] | None = None,
    references: Mapping[str, Reference] | None = None,
    rtol: float = 1e-5,
    atol: float = 1e-5,
) -> Any:
    """Compile and run the nodes, and compare the outputs (those of the last node) with the reference. Returns the
    program."""
    nodes = [nodes] if isinstance(nodes, Node) else list(nodes)
    names = list(outputs or [n for n in nodes[-1].outputs if n])
    segment, values = make_segment(nodes, feeds, constants or {}, names, references)
    for step in segment.steps:
        assert provider.supports(step) is None, (step.node.op_type, provider.supports(step))
    program = provider.compile(segment)
    for _ in range(2):  # the second time in memory that the first has used
        for name, result in zip(names, program.run([feeds[n] for n in segment.inputs]), strict=True):
            expected = values[name]
            assert result.dtype == expected.dtype, name
            assert result.shape == expected.shape, name
            np.testing.assert_allclose(result, expected, rtol=rtol, atol=atol, err_msg=name)
    return program


def refusal(
    provider: Any,
    one: Node,
    feeds: Mapping[str, np.ndarray],
    constants: Mapping[str, np.ndarray] | None = None,
    references: Mapping[str, Reference] | None = None,
) -> str | None:
    """Why the provider does not take a node, or `None`."""
    segment, _ = make_segment([one], feeds, constants or {}, [n for n in one.outputs if n], references)
    return provider.supports(segment.steps[0])
