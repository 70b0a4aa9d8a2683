"""External data: tensors whose bytes lie in files beside the model.

Specification: "External Data" in the onnx project's docs/ExternalData.md. A file is only ever taken from the model's
own folder: absolute paths, ``..`` and links that lead out of it are refused, because a model comes from strangers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..errors import ExternalDataError
from .sources import ByteSource, as_source, file_source
from .wire import Message, Span

EXTERNAL = 1
"""TensorProto.DataLocation.EXTERNAL"""

Resolver = Callable[[str], Any]
"""Gives the bytes (or a `ByteSource`, or a JavaScript buffer) of a file name; `None` or `KeyError` if it has none."""


class ExternalData:
    """Finds the external files of one model, each opened once."""

    def __init__(self, find: Callable[[str], ByteSource]):
        self._find = find
        self._sources: dict[str, ByteSource] = {}

    def locate(self, tensor: str, fields: Mapping[str, str], nbytes: int) -> tuple[ByteSource, Span]:
        """Where the `nbytes` bytes of `tensor` lie, from its ``external_data`` entries.

        Raises `ExternalDataError`, which names the tensor and the file.
        """
        location = normalise(fields.get("location", ""), tensor)
        offset = _number(fields, "offset", 0, tensor)
        length = _number(fields, "length", nbytes, tensor)
        if location not in self._sources:
            self._sources[location] = self._find(location)
        source = self._sources[location]
        if length != nbytes:
            raise ExternalDataError(
                f"tensor {tensor!r} takes {nbytes} bytes, but its external data in {location!r} is said to be {length}"
            )
        if offset + length > source.size:
            raise ExternalDataError(
                f"external data file {location!r} is too short: tensor {tensor!r} lies at bytes {offset} to "
                f"{offset + length}, the file has {source.size}"
            )
        return source, Span(offset, length)


def external_data(given: Any, folder: str | os.PathLike[str] | None = None) -> ExternalData:
    """What finds external data: `given` by the user (a folder, a mapping from names to bytes or
    paths, or a callable), else the
    model's own `folder`, else nothing (every external tensor is then an error that says so)."""
    if given is None:
        given = folder
    if given is None:
        return ExternalData(_refuse)
    if isinstance(given, (str, os.PathLike)):
        roots = [os.path.realpath(given)]
        return ExternalData(lambda name: _open_in(roots, name))
    if isinstance(given, Mapping):
        return ExternalData(lambda name: _from_mapping(given, name))
    if callable(given):
        return ExternalData(lambda name: _from_callable(given, name))
    raise TypeError(f"external_data: expected a folder, a mapping or a callable, got {type(given).__name__}")


def beside(model: str | os.PathLike[str]) -> ExternalData:
    """External data of a model file: in its folder, or, where the model is a link, beside what it links to (as in the
    download cache of the Hugging Face Hub, where model and data are links into one folder)."""
    path = os.path.abspath(model)
    roots = list(dict.fromkeys([os.path.realpath(os.path.dirname(path)), os.path.dirname(os.path.realpath(path))]))
    return ExternalData(lambda name: _open_in(roots, name))


def preferring(files: Mapping[str, Any], other: ExternalData) -> ExternalData:
    """`other`, but for the files that are in `files`."""
    return ExternalData(lambda name: other._find(name) if entry(files, name) is None else _from_mapping(files, name))


def locations(model: Message) -> list[str]:
    """The external files that a decoded ModelProto names, in its order. Raises `ExternalDataError` as `normalise`."""
    found: dict[str, None] = {}
    for tensor in _tensors(model):
        if tensor.data_location == EXTERNAL:
            fields = {pair.key: pair.value for pair in tensor.external_data}
            found[normalise(fields.get("location", ""), tensor.name)] = None
    return list(found)


def _tensors(model: Message) -> Iterator[Message]:
    """All tensors of a model: initializers and attributes, in sub-graphs and functions too."""
    graphs = [model.graph]
    nodes = [node for function in model.functions for node in function.node]
    while graphs or nodes:
        while graphs:
            graph = graphs.pop(0)
            yield from graph.initializer
            for sparse in graph.sparse_initializer:
                yield from (tensor for tensor in (sparse.values, sparse.indices) if tensor is not None)
            nodes += graph.node
        for attribute in nodes.pop(0).attribute if nodes else ():
            yield from ([] if attribute.t is None else [attribute.t])
            yield from attribute.tensors
            graphs += [*([] if attribute.g is None else [attribute.g]), *attribute.graphs]


def normalise(location: str, tensor: str) -> str:
    """The location without ``./`` and doubled slashes. Raises `ExternalDataError` where it leads out of the folder."""
    parts = _parts(location)
    absolute = location.startswith(("/", "\\")) or location[1:2] == ":"
    if not parts or absolute or ".." in parts or "\0" in location:
        raise ExternalDataError(
            f"tensor {tensor!r}: the external data location {location!r} is not a file inside the model's folder"
        )
    return "/".join(parts)


def _parts(location: str) -> list[str]:
    return [part for part in location.replace("\\", "/").split("/") if part not in ("", ".")]


def _number(fields: Mapping[str, str], key: str, default: int, tensor: str) -> int:
    text = fields.get(key)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise ExternalDataError(f"tensor {tensor!r}: external data {key} {text!r} is not a number")
    return int(text)


def _refuse(name: str) -> ByteSource:
    raise ExternalDataError(
        f"the model keeps tensors in the file {name!r}, and was given as bytes: "
        "pass external_data= a folder, a mapping from file names to bytes, or a callable"
    )


def _open_in(roots: list[str], name: str) -> ByteSource:
    path = os.path.join(roots[0], *name.split("/"))
    real = os.path.realpath(path)
    if not any(real.startswith(os.path.join(root, "")) for root in roots):
        raise ExternalDataError(f"external data file {name!r} is a link that leads out of the model's folder")
    try:
        return file_source(real)
    except (FileNotFoundError, NotADirectoryError):
        there = sorted(os.listdir(roots[0])) if os.path.isdir(roots[0]) else []
        raise ExternalDataError(
            f"external data file {name!r} is missing in {roots[0]!r}, which has {_shown(there)}"
        ) from None
    except (OSError, ValueError) as error:
        raise ExternalDataError(f"external data file {name!r} can't be read: {error}") from error


def entry(files: Mapping[str, Any], name: str) -> Any:
    """The value of a file name, however the key writes it (``./sub//file``); `None` where there is none."""
    if name in files:
        return files[name]
    return next((value for key, value in files.items() if "/".join(_parts(str(key))) == name), None)


def _from_mapping(files: Mapping[str, Any], name: str) -> ByteSource:
    value = entry(files, name)
    if isinstance(value, (str, os.PathLike)):
        try:
            return file_source(value)
        except OSError as error:
            raise ExternalDataError(f"external data file {name!r} can't be read: {error}") from error
    if value is not None:
        return as_source(value)
    raise ExternalDataError(f"external data file {name!r} is missing; given were {_shown(sorted(map(str, files)))}")


def _from_callable(resolve: Resolver, name: str) -> ByteSource:
    try:
        found = resolve(name)
    except (KeyError, OSError) as error:
        raise ExternalDataError(f"external data file {name!r} is missing: {error}") from error
    if found is None:
        raise ExternalDataError(f"external data file {name!r} is missing: the resolver has none of that name")
    return as_source(found)


def _shown(names: list[str]) -> str:
    if not names:
        return "no files"
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return ", ".join(map(repr, names[:10])) + more
