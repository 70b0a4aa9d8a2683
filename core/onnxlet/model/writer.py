"""Writing a model back to .onnx.

The wire format is written by hand, as it is read. Large tensors are never joined into one piece of memory: a message is
a list of pieces, and pieces that are weights are views of where they lie.

Specification: onnx.proto of the onnx project, and docs/ExternalData.md.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from ..errors import LimitError, UnsupportedError
from ..graph.ir import (
    STRING,
    Function,
    Graph,
    MapType,
    Model,
    Node,
    OptionalType,
    SequenceType,
    TensorType,
    Type,
    all_nodes,
    all_tensors,
)
from .dtypes import BITS, bits_of, element_type_of
from .tensors import Tensor

PRODUCER = "onnxlet"
IR_VERSION = 10
"""Written where the model does not say; newer element types raise it."""

MAX_BYTES = (1 << 31) - 1
"""The largest file that readers made with Google's protobuf accept."""

ALIGNMENT = 4096
"""External tensors start at multiples of this, so that readers can map them."""

Pieces = list[bytes | memoryview]

# Element types and the IR version that brought them.
_SINCE_IR = {**dict.fromkeys(range(17, 21), 9), 21: 10, 22: 10, 23: 11, 24: 12, 25: 13, 26: 13, 27: 14, 28: 14}

External = Callable[[str, Tensor], "Pieces | None"]
"""Takes a tensor out of the file: gives the fields that say where it went, or `None` to leave it in."""


def to_bytes(model: Model, most: int | None = MAX_BYTES) -> bytes:
    """The model as the bytes of an .onnx file. Raises `LimitError` above `most`, `UnsupportedError` as `save` does."""
    pieces = _model(model, lambda name, tensor: None)
    if most is not None:
        _check_size(pieces)
    return b"".join(pieces)


def save(
    model: Model, path: str | os.PathLike[str], *, external_data: str | None = None, size_threshold: int = 1024
) -> None:
    """Write the model to `path`.

    With `external_data`, a file name, tensors of `size_threshold` bytes and more go to that file beside the model: a
    model above 2 GiB must be written so (`LimitError`). Raises `UnsupportedError` where nodes of one domain stand for
    different versions of its operators, which a file can't say.
    """
    if external_data is None:
        pieces = _model(model, lambda name, tensor: None)
        _check_size(pieces)
    else:
        if os.path.basename(external_data) != external_data or external_data in ("", ".", ".."):
            raise ValueError(f"external_data must be a file name, not {external_data!r}")
        folder = os.path.dirname(os.path.abspath(path))
        with _Replacing(os.path.join(folder, external_data)) as file:
            pieces = _model(model, _ExternalFile(file, external_data, size_threshold))
    with _Replacing(os.fspath(path)) as file:
        file.writelines(pieces)


class _Replacing:
    """A file to write, which takes its place when it is complete: the model may be mapped from the very same path."""

    def __init__(self, path: str):
        self.path, self.partial = path, f"{path}.{os.getpid()}.partial"

    def __enter__(self) -> Any:
        self.file = open(self.partial, "wb")
        return self.file

    def __exit__(self, kind: Any, *_: Any) -> None:
        self.file.close()
        if kind is None:
            os.replace(self.partial, self.path)
        else:
            os.unlink(self.partial)


class _ExternalFile:
    def __init__(self, file: Any, name: str, threshold: int):
        self.file, self.name, self.threshold = file, name, threshold
        self.position = 0

    def __call__(self, name: str, tensor: Tensor) -> Pieces | None:
        if tensor.dtype == STRING or tensor.nbytes < self.threshold:
            return None
        self.file.write(bytes(-self.position % ALIGNMENT))
        offset = self.position + -self.position % ALIGNMENT
        data = _raw(tensor)
        self.file.write(data)
        self.position = offset + len(data)
        entries = {"location": self.name, "offset": str(offset), "length": str(len(data))}
        return [*_pairs(13, entries), *_int(14, 1)]


def _check_size(pieces: Pieces) -> None:
    size = sum(map(len, pieces))
    if size > MAX_BYTES:
        raise LimitError(f"the model takes {size} bytes, more than an .onnx file may have: use external_data=")


def _varint(value: int) -> bytes:
    value &= 0xFFFFFFFFFFFFFFFF
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _int(number: int, value: int) -> Pieces:
    return [_varint(number << 3) + _varint(value)]


def _float(number: int, value: float) -> Pieces:
    return [_varint(number << 3 | 5) + struct.pack("<f", value)]


def _bytes(number: int, data: bytes | memoryview) -> Pieces:
    return [_varint(number << 3 | 2) + _varint(len(data)), data]


def _text(number: int, value: str) -> Pieces:
    return _bytes(number, value.encode()) if value else []


def _message(number: int, pieces: Pieces) -> Pieces:
    return [_varint(number << 3 | 2) + _varint(sum(map(len, pieces))), *pieces]


def _pairs(number: int, entries: Mapping[str, str]) -> Iterator[bytes | memoryview]:
    for key, value in entries.items():
        yield from _message(number, [*_text(1, key), *_text(2, value)])


def _model(model: Model, external: External) -> Pieces:
    opsets = _opsets(model)
    used = {element_type_of(t.dtype) for t in all_tensors(model.graph)}
    version = max(model.ir_version or IR_VERSION, 4, *(_SINCE_IR.get(t, 0) for t in used), 8 if model.functions else 0)
    return [
        *_int(1, version),
        *_text(2, model.producer_name or PRODUCER),
        *_text(3, model.producer_version),
        *_text(4, model.domain),
        *(_int(5, model.model_version) if model.model_version else []),
        *_text(6, model.doc_string),
        *_message(7, [*_graph(model.graph, external, declared=True), *_text(10, model.graph_doc_string)]),
        *(p for domain, v in opsets.items() for p in _message(8, [*_text(1, domain), *_int(2, v)])),
        *_pairs(14, model.metadata),
        *(p for function in model.functions for p in _message(25, _function(function, external))),
    ]


def _function(function: Function, external: External) -> Pieces:
    return [
        *_text(1, function.name),
        *(p for name in function.inputs for p in _bytes(4, name.encode())),
        *(p for name in function.outputs for p in _bytes(5, name.encode())),
        *(p for node in function.nodes for p in _message(7, _node(node, external))),
        *(p for domain, v in function.opsets.items() for p in _message(9, [*_text(1, domain), *_int(2, v)])),
        *_text(10, function.domain),
    ]


def _opsets(model: Model) -> dict[str, int]:
    """The imports: those of the model and what else its nodes need."""
    opsets = dict(model.opsets)
    for node in all_nodes(model.graph):
        version = opsets.setdefault(node.domain, node.version)
        if version != node.version:
            raise UnsupportedError(
                f"node {node.label!r} is {node.operator} of version {node.version}, the model imports version "
                f"{version} (the node comes from a function with an import of its own): a file holds one version of "
                "each domain"
            )
    return opsets


def _graph(graph: Graph, external: External, *, declared: bool = False) -> Pieces:
    pieces: Pieces = []
    for node in graph.nodes:
        pieces += _message(1, _node(node, external))
    pieces += _text(2, graph.name or "graph")
    for name, tensor in graph.initializers.items():
        pieces += _message(5, _tensor(name, tensor, external))
    types = dict(graph.types)
    if declared and any(types.get(name) is None for name in graph.outputs):
        # Readers want the types of a graph's outputs.
        from ..graph.infer import infer_graph

        types = {**infer_graph(graph), **{k: v for k, v in types.items() if v is not None}}
    ends = {*graph.inputs, *graph.defaults, *graph.outputs}
    for name in (*graph.inputs, *graph.defaults):
        pieces += _message(11, _value_info(name, types.get(name)))
    for name in graph.outputs:
        pieces += _message(12, _value_info(name, types.get(name)))
    known = [(n, t) for n, t in graph.types.items() if t is not None and n not in ends and n not in graph.initializers]
    for name, type_ in known:
        pieces += _message(13, _value_info(name, type_))
    return pieces


def _node(node: Node, external: External) -> Pieces:
    pieces: Pieces = []
    for name in node.inputs:
        pieces += _bytes(1, name.encode())
    for name in node.outputs:
        pieces += _bytes(2, name.encode())
    pieces += [*_text(3, node.name), *_text(4, node.op_type)]
    for name, value in node.attributes.items():
        pieces += _message(5, [*_text(1, name), *_attribute(value, external)])
    return [*pieces, *_text(7, node.domain)]


def _attribute(value: Any, external: External) -> Pieces:
    """The fields of an AttributeProto: its value and, in field 20, its kind."""
    if isinstance(value, (bool, int, np.integer)):
        return [*_int(3, int(value)), *_int(20, 2)]
    if isinstance(value, (float, np.floating)):
        return [*_float(2, float(value)), *_int(20, 1)]
    if isinstance(value, (str, bytes)):
        return [*_bytes(4, _encoded(value)), *_int(20, 3)]
    if isinstance(value, np.ndarray):
        return [*_message(5, _tensor("", Tensor.of(value), external)), *_int(20, 4)]
    if isinstance(value, Graph):
        return [*_message(6, _graph(value, external)), *_int(20, 5)]
    if isinstance(value, (TensorType, SequenceType, OptionalType, MapType)):
        return [*_message(14, _type(value)), *_int(20, 13)]
    return _list_attribute(list(value), external)


def _list_attribute(values: list[Any], external: External) -> Pieces:
    first = values[0] if values else 0
    if any(isinstance(v, (float, np.floating)) for v in values):
        return [*(p for v in values for p in _float(7, float(v))), *_int(20, 6)]
    if isinstance(first, (int, np.integer)):
        return [*(p for v in values for p in _int(8, int(v))), *_int(20, 7)]
    if isinstance(first, (str, bytes)):
        return [*(p for v in values for p in _bytes(9, _encoded(v))), *_int(20, 8)]
    if isinstance(first, np.ndarray):
        return [*(p for v in values for p in _message(10, _tensor("", Tensor.of(v), external))), *_int(20, 9)]
    if isinstance(first, Graph):
        return [*(p for v in values for p in _message(11, _graph(v, external))), *_int(20, 10)]
    return [*(p for v in values for p in _message(15, _type(v))), *_int(20, 14)]


def _encoded(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


def _tensor(name: str, tensor: Tensor, external: External) -> Pieces:
    pieces = [p for d in tensor.shape for p in _int(1, d)]
    pieces += [*_int(2, element_type_of(tensor.dtype)), *_text(8, name)]
    if tensor.dtype == STRING:
        return [*pieces, *(p for v in tensor.numpy().reshape(-1) for p in _bytes(6, v.encode()))]
    elsewhere = external(name, tensor)
    return [*pieces, *(_bytes(9, _raw(tensor)) if elsewhere is None else elsewhere)]


def _raw(tensor: Tensor) -> memoryview:
    """The bytes of a tensor as raw_data has them, where possible a view of where they lie."""
    bits = BITS.get(element_type_of(tensor.dtype))
    if tensor.location is not None and bits is None:
        source, offset = tensor.location
        return source.read(offset, tensor.nbytes)
    array = np.ascontiguousarray(tensor.numpy()).reshape(-1)
    if bits is not None:
        stream = np.unpackbits(bits_of(array)[:, None], axis=1, count=bits, bitorder="little")
        array = np.packbits(stream.reshape(-1), bitorder="little")
    return array.view(np.uint8).data if array.size else memoryview(b"")


def _value_info(name: str, type_: Type | None) -> Pieces:
    return [*_text(1, name), *(_message(2, _type(type_)) if type_ is not None else [])]


def _type(type_: Type | None) -> Pieces:
    """The fields of a TypeProto."""
    if isinstance(type_, TensorType):
        dims: Iterable[Pieces] = (
            _int(1, d) if isinstance(d, int) else _text(2, d) if d else [] for d in type_.shape or ()
        )
        shape = [p for d in dims for p in _message(1, d)]
        fields = _int(1, 0 if type_.dtype is None else element_type_of(type_.dtype))
        return _message(1, [*fields, *(_message(2, shape) if type_.shape is not None else [])])
    if isinstance(type_, SequenceType):
        return _message(4, _message(1, _type(type_.element)))
    if isinstance(type_, OptionalType):
        return _message(9, _message(1, _type(type_.element)))
    if isinstance(type_, MapType):
        return _message(5, [*_int(1, element_type_of(type_.key)), *_message(2, _type(type_.value))])
    return []
