"""Ways to compute a model's values, for comparing: this package's providers and definitions, and other runtimes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from ..errors import UnsupportedError
from ..execution.executor import GraphExecutor, drive
from ..graph.ir import Model, TensorType, Type
from ..model.writer import to_bytes
from ..options import SessionOptions
from ..session import InferenceSession

Values = dict[str, Any]
Engine = Callable[[Model, Mapping[str, Any], Sequence[str], SessionOptions], Values]
"""Computes values by name from a model that has them as outputs."""


def _on(provider: str) -> Engine:
    def run(model: Model, feeds: Mapping[str, Any], names: Sequence[str], options: SessionOptions) -> Values:
        session = InferenceSession(model, options, [provider])
        try:
            return dict(zip(names, session.run(list(names), feeds), strict=True))
        finally:
            session.close()

    return run


def _numpy(model: Model, feeds: Mapping[str, Any], names: Sequence[str], options: SessionOptions) -> Values:
    executor = GraphExecutor(model.graph, [], limits=options.limits)
    return dict(zip(names, drive(executor.run(feeds, names)), strict=True))


@contextmanager
def _needing(package: str) -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise UnsupportedError(f"comparing with {package} needs that package: pip install {package}") from error


def _onnxruntime(model: Model, feeds: Mapping[str, Any], names: Sequence[str], options: SessionOptions) -> Values:
    with _needing("onnxruntime"):
        import onnxruntime
    theirs = onnxruntime.SessionOptions()
    theirs.log_severity_level = 3
    level = {0: "DISABLE_ALL", 1: "ENABLE_BASIC", 2: "ENABLE_EXTENDED"}.get(
        options.graph_optimization_level, "ENABLE_ALL"
    )
    theirs.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, f"ORT_{level}")
    session = onnxruntime.InferenceSession(to_bytes(model), theirs, providers=["CPUExecutionProvider"])
    return dict(zip(names, session.run(list(names), dict(feeds)), strict=True))


def _reference(model: Model, feeds: Mapping[str, Any], names: Sequence[str], options: SessionOptions) -> Values:
    with _needing("onnx"):
        from onnx.reference import ReferenceEvaluator
    evaluator: Any = ReferenceEvaluator(to_bytes(model))  # type: ignore[arg-type]
    return dict(zip(names, evaluator.run(list(names), dict(feeds)), strict=True))


ENGINES: dict[str, Engine] = {
    "cpu": _on("CPUExecutionProvider"),
    "webgpu": _on("WebGpuExecutionProvider"),
    "numpy": _numpy,
    "onnxruntime": _onnxruntime,
    "reference": _reference,
}
"""By the names that `onnxlet compare` takes: our providers and NumPy definitions, onnxruntime, `onnx.reference`."""


def exposed(model: Model, names: Sequence[str], types: Mapping[str, Type | None]) -> Model:
    """The model with the values `names`, of these `types`, as its outputs."""
    graph = model.graph
    shown = {name: types.get(name) for name in names if name not in graph.types or graph.types[name] is None}
    return replace(model, graph=replace(graph, outputs=list(names), types={**graph.types, **shown}))


def blocks(names: Sequence[str], types: Mapping[str, Type | None], most: int) -> Iterator[list[str]]:
    """The names in groups whose values take `most` bytes together (one that takes more is alone)."""
    group: list[str] = []
    total = 0
    for name in names:
        type_ = types.get(name)
        size = type_.nbytes if isinstance(type_, TensorType) and type_.concrete else 0
        if group and total + size > most:
            yield group
            group, total = [], 0
        group.append(name)
        total += size
    if group:
        yield group


def saved(path: str) -> Values:
    """Outputs that another framework has left in an `.npz` file."""
    with np.load(path, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}
