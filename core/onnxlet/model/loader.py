"""Reading a model."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..errors import LimitError, ModelError, OnnxletError
from ..graph.ir import Model
from .builder import Builder, read_opsets
from .external import ExternalData, beside, external_data, preferring
from .foreign import looks_like
from .schema import MODEL
from .sources import ByteSource, as_source, file_source
from .tensors import Tensor
from .wire import Message, decode


def load_model(
    source: Any,
    *,
    external_data: Any = None,
    proto: Message | None = None,
    files: Mapping[str, Any] | None = None,
    initializers: Mapping[str, Tensor] | None = None,
    dimensions: Mapping[tuple[str, str], int] | None = None,
) -> Model:
    """Read an ONNX model into the intermediate representation.

    `source` is a path, bytes or any buffer, a JavaScript `Uint8Array`, an open binary file, an `onnx.ModelProto`, a
    `ByteSource`, or a `Model` (which is returned as it is). Tensors kept outside the model are looked for in
    `external_data`: a folder, a mapping from file names to bytes or paths, or a callable; by default in the folder of
    the model's path. `proto` is the decoded message, where `read_proto` has given it before. `files` are asked before
    `external_data`; `initializers` take the place of the main graph's; `dimensions` are lengths of its inputs' free
    dimensions, by ("name" or "denotation", which).

    Raises `ModelError` for what is not a valid model, `ExternalDataError` for external data, `LimitError` for models
    beyond a limit, and `OSError` where a file can't be opened.
    """
    if isinstance(source, Model):
        return source
    what, data, external = _open(source, external_data)
    if files:
        external = preferring(files, external)
    try:
        return _load(data, external, proto, initializers, dimensions)
    except RecursionError:
        raise LimitError(f"{what} nests too deep to be read") from None
    except OnnxletError as error:
        raise type(error)(f"{what}: {error}") from error.__cause__


def _open(source: Any, given: Any) -> tuple[str, ByteSource, ExternalData]:
    if isinstance(source, (str, os.PathLike)):
        path = os.fspath(source)
        return f"model {path!r}", file_source(path), beside(path) if given is None else external_data(given)
    return "model", as_source(as_bytes(source)), external_data(given)


def as_bytes(source: Any) -> Any:
    """The bytes of an `onnx.ModelProto` or an open file; anything else as it is."""
    if hasattr(source, "SerializeToString"):
        return source.SerializeToString()
    if hasattr(source, "read") and (hasattr(source, "seek") or not isinstance(source, ByteSource)):
        source = source.read()
        if not isinstance(source, bytes):
            raise ModelError(f"the model's file must be open in binary mode; reading it gave {type(source).__name__}")
    return source


def read_proto(source: ByteSource) -> Message:
    """The decoded ModelProto. Raises `ModelError` for what is no model; says what it looks like instead."""
    if source.size == 0:
        raise ModelError("the file is empty")
    try:
        proto = decode(source, MODEL)
        if proto.graph is None:
            raise ModelError("it has no graph")
        if not proto.ir_version:
            raise ModelError("it has no IR version")
    except ModelError as error:
        guess = looks_like(bytes(source.read(0, min(source.size, 512))))
        why = f"this is {guess}" if guess else f"truncated, damaged, or another format ({error})"
        raise ModelError(f"not an ONNX model: {why}") from None
    return proto


def _load(
    source: ByteSource,
    external: ExternalData,
    proto: Message | None,
    initializers: Mapping[str, Tensor] | None,
    dimensions: Mapping[tuple[str, str], int] | None,
) -> Model:
    if proto is None:
        proto = read_proto(source)
    if dimensions:
        _fix_dimensions(proto.graph, dimensions)
    opsets = read_opsets(proto.opset_import)
    if not opsets:
        if proto.ir_version >= 3:
            raise ModelError("the model imports no operator sets (opset_import), as it must since IR version 3")
        opsets[""] = 1
    graph = Builder(source, external, opsets, proto.ir_version, initializers).build(proto.graph, proto.functions)
    if any(node.op_type == "Gradient" for node in graph.nodes):
        from ..graph.gradient import expand_gradients

        expand_gradients(graph)
    return Model(
        graph,
        opsets,
        ir_version=proto.ir_version,
        producer_name=proto.producer_name,
        producer_version=proto.producer_version,
        domain=proto.domain,
        model_version=proto.model_version,
        doc_string=proto.doc_string,
        graph_doc_string=proto.graph.doc_string,
        metadata={entry.key: entry.value for entry in proto.metadata_props},
    )


def _fix_dimensions(graph: Message, lengths: Mapping[tuple[str, str], int]) -> None:
    """Give free dimensions a length, and those of the same name in all the graph's types."""
    names = {name: length for (kind, name), length in lengths.items() if kind == "name"}
    for dim in _dimensions(graph.input):
        length = lengths.get(("denotation", dim.denotation))
        if length is None or dim.has("dim_value"):
            continue
        if dim.dim_param:
            names.setdefault(dim.dim_param, length)
        else:
            vars(dim)["dim_value"] = length
    for dim in _dimensions((*graph.input, *graph.output, *graph.value_info)):
        if dim.dim_param in names and not dim.has("dim_value"):
            vars(dim)["dim_value"] = names[dim.dim_param]


def _dimensions(infos: Iterable[Message]) -> Iterator[Message]:
    for info in infos:
        tensor = info.type and info.type.tensor_type
        if tensor and tensor.shape:
            yield from tensor.shape.dim
