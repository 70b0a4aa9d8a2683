"""What is wrong with a model, or could be better: `check`."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ..errors import MissingOperatorsError, OnnxletError, ShapeError
from ..execution.plan import needed, node_reads
from ..graph.infer import infer_graph
from ..graph.ir import Model, TensorType, all_nodes
from ..model.dtypes import is_extended
from ..model.loader import load_model
from ..model.tensors import Tensor
from ..model.writer import MAX_BYTES
from ..session import check_operators
from .tables import amount

ERROR, WARNING, NOTE = "error", "warning", "note"
LEVELS = (ERROR, WARNING, NOTE)

WORTH_SHARING = 1024
"""Bytes from which on equal tensors are worth a word."""

WASM_MEMORY = 1 << 32
"""Bytes that WebAssembly with 32-bit addresses can have at all."""

WEBGPU_BINDING = 128 << 20
"""Bytes of one binding that every WebGPU device allows (maxStorageBufferBindingSize, WebGPU specification 3.6.2)."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that `check` found: how bad (`LEVELS`), what kind, where (a node, tensor or file), and in words."""

    level: str
    kind: str
    where: str
    message: str

    def __str__(self) -> str:
        return f"{self.level}: {self.where + ': ' if self.where else ''}{self.message} [{self.kind}]"

    def to_dict(self) -> dict[str, str]:
        """The same as plain data, ready for JSON."""
        return asdict(self)


def check(path: str | os.PathLike[str]) -> list[Finding]:
    """Everything that is wrong with the model file, or worth knowing, the worst first.

    Errors keep the model from running here or elsewhere, warnings may, notes tell of waste. What the `onnx` package's
    checker says is among them where that is installed. Raises `OSError` if there is no such file.
    """
    findings = list(_by_onnx(path))
    try:
        model = load_model(path)
    except OnnxletError as error:
        findings.append(Finding(ERROR, "unreadable", "", str(error)))
    else:
        findings += check_model(model)
    return sorted(dict.fromkeys(findings), key=lambda f: LEVELS.index(f.level))


def check_model(model: Model) -> list[Finding]:
    """Like `check`, of a model that has been read."""
    return [finding for rule in RULES for finding in rule(model)]


def _by_onnx(path: str | os.PathLike[str]) -> Iterator[Finding]:
    try:
        from onnx import checker
    except ImportError:
        yield Finding(NOTE, "checker", "", "onnx.checker was not asked: the package onnx is not installed")
        return
    try:
        checker.check_model(os.fspath(path), full_check=True)
    except Exception as error:  # a checker's and protobuf's own, of many types
        yield Finding(ERROR, "checker", "", f"onnx.checker: {str(error).strip()}")


def _operators(model: Model) -> Iterator[Finding]:
    try:
        check_operators(model.graph)
    except MissingOperatorsError as error:
        for operator, version, nodes in error.missing:
            yield Finding(
                ERROR, "operator", nodes[0], f"{operator} of opset {version} is not there ({len(nodes)} nodes)"
            )
    except OnnxletError as error:
        yield Finding(ERROR, "operator", "", str(error))
    for domain, version in model.opsets.items():
        used = any(node.domain == domain for node in all_nodes(model.graph))
        if not used and domain:
            yield Finding(NOTE, "opset", "", f"imports version {version} of {domain}, of which no node is")
        if domain == "" and version < 7:
            yield Finding(WARNING, "opset", "", f"opset {version} is from before 2018: other runtimes begin at 7")


def _shapes(model: Model) -> Iterator[Finding]:
    graph = model.graph
    try:
        known = infer_graph(graph)
    except ShapeError as error:
        yield Finding(ERROR, "shape", "", str(error))
        return
    for name in graph.outputs:
        declared, found = graph.types.get(name), known.get(name)
        if not isinstance(declared, TensorType) or not isinstance(found, TensorType):
            continue
        if declared.dtype is not None and found.dtype is not None and declared.dtype != found.dtype:
            yield Finding(ERROR, "type", name, f"is declared as {declared}, its node makes {found}")
        elif declared.shape is not None and found.shape is not None:
            fixed = [(a, b) for a, b in zip(declared.shape, found.shape, strict=False) if type(a) is type(b) is int]
            if len(declared.shape) != len(found.shape) or any(a != b for a, b in fixed):
                yield Finding(WARNING, "shape", name, f"is declared as {declared}, its node makes {found}")
    for name in graph.inputs:
        type_ = graph.tensor_type(name)
        if type_.shape is None:
            yield Finding(NOTE, "dynamic", name, "has no declared shape: plans are made anew for every new one")


def _waste(model: Model) -> Iterator[Finding]:
    graph = model.graph
    read = {*graph.outputs, *(name for node in graph.nodes for name in node_reads(node))}
    for name in graph.inputs:
        if name not in read:
            yield Finding(WARNING, "unused", name, "no node reads this input")
    unread = [(name, t) for name, t in graph.initializers.items() if name not in read]
    for name, tensor in unread:
        yield Finding(NOTE, "unused", name, f"no node reads this tensor of {amount(tensor.nbytes, 'B')}")
    alive = set(map(id, needed(graph, graph.outputs).nodes))
    for node in [node for node in graph.nodes if id(node) not in alive]:
        yield Finding(NOTE, "dead", node.label, f"nothing that is asked for depends on this {node.operator}")
    first: dict[bytes, str] = {}
    for name, tensor in graph.initializers.items():
        if tensor.nbytes >= WORTH_SHARING and tensor.dtype != object and name in read:
            same = first.setdefault(_digest(tensor), name)
            if same != name:
                yield Finding(NOTE, "duplicate", name, f"the same {amount(tensor.nbytes, 'B')} as {same!r}")


def _names(model: Model) -> Iterator[Finding]:
    counts = Counter(node.name for node in model.graph.nodes if node.name)
    for name, count in counts.items():
        if count > 1:
            yield Finding(WARNING, "name", name, f"{count} nodes have this name")


def _numbers(model: Model) -> Iterator[Finding]:
    for name, tensor in model.graph.initializers.items():
        if tensor.dtype.kind != "f" or is_extended(tensor.dtype):
            continue
        values = tensor.numpy()
        if nans := int(np.isnan(values).sum()):
            yield Finding(WARNING, "nan", name, f"{nans} of its {tensor.size} values are NaN")
        # One infinity is a mask's; weights have none.
        if tensor.size > 1 and (many := int(np.isinf(values).sum())):
            yield Finding(NOTE, "infinite", name, f"{many} of its {tensor.size} values are infinite")


def _sizes(model: Model) -> Iterator[Finding]:
    tensors = model.graph.initializers
    total = sum(t.nbytes for t in tensors.values())
    if total > MAX_BYTES:
        text = f"{amount(total, 'B')} of weights: above 2 GiB a model needs external data"
        yield Finding(NOTE, "size", "", text)
    if total > WASM_MEMORY // 2:
        text = f"{amount(total, 'B')} of weights: a page has 4 GiB in all"
        yield Finding(WARNING, "size", "", text)
    for name, tensor in tensors.items():
        if tensor.nbytes > WEBGPU_BINDING:
            text = f"{amount(tensor.nbytes, 'B')}: more than one WebGPU binding holds everywhere (134 MB)"
            yield Finding(NOTE, "size", name, text)
    wide = [name for name, t in tensors.items() if t.dtype == np.float64 and t.size > 1]
    if wide:
        text = f"{len(wide)} tensors are float64, which GPUs do not compute with: those nodes run on the CPU"
        yield Finding(NOTE, "float64", wide[0], text)


RULES: tuple[Callable[[Model], Iterator[Finding]], ...] = (_operators, _shapes, _names, _numbers, _sizes, _waste)


def _digest(tensor: Tensor) -> bytes:
    array = np.ascontiguousarray(tensor.numpy())
    key = hashlib.sha256(f"{array.dtype} {array.shape}".encode())
    key.update(array.tobytes())
    return key.digest()


def worst(findings: list[Finding]) -> str | None:
    """The worst level among findings; `None` where there are none."""
    return min((f.level for f in findings), key=LEVELS.index, default=None)


def summary(findings: list[Finding]) -> Mapping[str, Any]:
    """How many findings of each level there are."""
    counts = Counter(f.level for f in findings)
    return {level: counts[level] for level in LEVELS}
