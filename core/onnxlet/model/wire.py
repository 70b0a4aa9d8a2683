"""A reader of the protobuf wire format, driven by a table of fields.

It reads from a `ByteSource`. Where the bytes are in Python's memory it walks over them in place; where reading copies
(a JavaScript buffer) it looks through a small window, and never at the payloads of large tensors: those are recorded as
a `Span`.

Specification: protobuf.dev/programming-guides/encoding. Groups, which ONNX does not use, are refused.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import LimitError, ModelError
from .sources import ByteSource, MemorySource

MAX_DEPTH = 100
"""How deep messages may nest (the limit of Google's own readers)."""

WINDOW = 1 << 14
"""Bytes fetched at once from a source whose reads are copies."""

_HEADER = 20  # the longest key and length: two varints of 10 bytes
_UNLIMITED = 1 << 62

_STRING, _MESSAGE, _INT, _BYTES, _SPAN, _FLOAT, _DOUBLE, _PACKED = range(8)
_KINDS = {"string": _STRING, "int": _INT, "bytes": _BYTES, "span": _SPAN, "float": _FLOAT, "double": _DOUBLE}
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_PACKED_FORMATS = {"float": (4, "f"), "double": (8, "d")}


class Span(NamedTuple):
    """Where a payload lies in the source, in bytes."""

    offset: int
    length: int


class Message:
    """A decoded message: a field is an attribute; one that is absent has its default."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def has(self, name: str) -> bool:
        """Whether the field was in the file."""
        return name in self.__dict__


class Schema:
    """The fields of a message, by key (field number and wire type)."""

    __slots__ = ("fields", "make", "name")

    def __init__(self, name: str):
        self.name = name
        self.make: type[Message] = Message
        self.fields: dict[int, tuple[int, str, bool, Any]] = {}
        """key -> (kind, field's name, repeated, schema of a message or format of a packed number)"""


def compile_schemas(table: Mapping[str, str]) -> dict[str, Schema]:
    """Schemas from rows such as ``1 name string, 2 dims int*``."""
    schemas = {name: Schema(name) for name in table}
    for name, text in table.items():
        schema, defaults = schemas[name], {}
        for row in text.split(","):
            number, field, kind = row.split()
            repeated, kind, key = kind.endswith("*"), kind.rstrip("*"), int(number) << 3
            defaults[field] = () if repeated else {"string": "", "int": 0, "bytes": b"", "float": 0.0}.get(kind)
            code = _KINDS.get(kind, _MESSAGE)
            fields = schema.fields
            if code == _SPAN and repeated:
                # The pieces of a packed field; a number that was written unpacked is a piece of its own.
                for wire in (_VARINT, _FIXED64, _LENGTH, _FIXED32):
                    fields[key | wire] = (_SPAN, field, True, None)
            elif code == _INT:
                fields[key | _VARINT] = (_INT, field, repeated, None)
                if repeated:
                    fields[key | _LENGTH] = (_PACKED, field, True, None)
            elif code in (_FLOAT, _DOUBLE):
                fields[key | (_FIXED32 if code == _FLOAT else _FIXED64)] = (code, field, repeated, None)
                if repeated:
                    fields[key | _LENGTH] = (_PACKED, field, True, _PACKED_FORMATS[kind])
            else:
                fields[key | _LENGTH] = (code, field, repeated, schemas.get(kind))
        schema.make = type(name.replace(".", ""), (Message,), defaults)
    return schemas


def decode(source: ByteSource, schema: Schema, span: Span | None = None) -> Message:
    """Decode the message of kind `schema` that lies at `span` (default: the whole source).

    Raises `ModelError` where the bytes are not such a message, and `LimitError` where messages nest too deep.
    """
    start, length = span or Span(0, source.size)
    message = schema.make()
    if isinstance(source, MemorySource):
        _decode(source, schema, message, source.view, 0, start, start + length, 0)
    else:
        window = source.read(start, min(length, WINDOW))
        _decode(source, schema, message, window, start, 0, length, 0)
    return message


def read_varint(buffer: memoryview, position: int) -> tuple[int, int]:
    """The unsigned number at `position`, and the position after it. Raises `ModelError` beyond 64 bits."""
    value = shift = 0
    while True:
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, position
        shift += 7
        if shift > 63:
            raise ModelError(f"a number at byte {position} is longer than 64 bits")


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _decode(
    source: ByteSource,
    schema: Schema,
    message: Message,
    buffer: memoryview,
    base: int,
    position: int,
    end: int,
    depth: int,
) -> None:
    """Decode [position, end) into `message`.

    Positions count from the start of `buffer`, which itself lies at `base` in the source. `end` may lie beyond the
    buffer; the buffer is then replaced as the position nears its end.
    """
    if depth > MAX_DEPTH:
        raise LimitError(f"messages nest deeper than {MAX_DEPTH} at byte {base + position}")
    values, fields = message.__dict__, schema.fields
    limit = _UNLIMITED if end <= len(buffer) else len(buffer) - _HEADER
    try:
        while position < end:
            if position > limit:
                base += position
                end -= position
                buffer, position = source.read(base, min(end, WINDOW)), 0
                limit = _UNLIMITED if end <= len(buffer) else len(buffer) - _HEADER
            start = position
            key = buffer[position]
            position += 1
            if key >= 0x80:
                key, position = read_varint(buffer, start)
            wire = key & 7
            number = 0
            if wire == _LENGTH:
                number = buffer[position]
                position += 1
                if number >= 0x80:
                    number, position = read_varint(buffer, position - 1)
                stop = position + number
            elif wire == _VARINT:
                number = buffer[position]
                stop = position + 1
                if number >= 0x80:
                    number, stop = read_varint(buffer, position)
            elif wire == _FIXED32:
                stop = position + 4
            elif wire == _FIXED64:
                stop = position + 8
            else:
                raise ModelError(f"unknown wire type {wire} at byte {base + start}, in {schema.name}")
            if stop > end:
                raise _too_long(schema, key, base, start, stop, end)
            field = fields.get(key)
            if field is None:
                if key < 8:
                    raise ModelError(f"field number 0 at byte {base + start}, in {schema.name}")
                position = stop
                continue
            kind, name, repeated, detail = field
            if kind == _MESSAGE:
                value = None if repeated else values.get(name)
                if value is None:
                    value = detail.make()
                _decode(source, detail, value, buffer, base, position, stop, depth + 1)
            elif kind == _INT:
                value = number if number < 0x8000000000000000 else number - 0x10000000000000000
            elif kind == _SPAN:
                value = Span(base + position, stop - position)
            else:
                part = buffer[position:stop] if stop <= len(buffer) else source.read(base + position, stop - position)
                if kind == _STRING:
                    value = str(part, "utf-8")
                elif kind == _BYTES:
                    value = bytes(part)
                elif kind == _PACKED:
                    values.setdefault(name, []).extend(_unpack(part, detail, schema, name))
                    position = stop
                    continue
                else:
                    value = struct.unpack("<f" if kind == _FLOAT else "<d", part)[0]
            position = stop
            if not repeated:
                values[name] = value
            elif name in values:
                values[name].append(value)
            else:
                values[name] = [value]
    except IndexError:
        raise ModelError(f"{schema.name} ends in the middle of a number at byte {base + position}") from None
    except UnicodeDecodeError as error:
        raise ModelError(f"text that is not UTF-8 near byte {base + position}, in {schema.name}: {error}") from None


def _unpack(part: memoryview, detail: tuple[int, str] | None, schema: Schema, name: str) -> list[Any]:
    if detail is not None:
        width, code = detail
        if len(part) % width:
            raise ModelError(f"{schema.name}.{name}: {len(part)} bytes are not a whole number of {width}-byte numbers")
        return list(struct.unpack(f"<{len(part) // width}{code}", part))
    found, position = [], 0
    while position < len(part):
        value, position = read_varint(part, position)
        found.append(_signed(value))
    return found


def _too_long(schema: Schema, key: int, base: int, start: int, stop: int, end: int) -> ModelError:
    field = schema.fields.get(key)
    name = f"{schema.name}.{field[1]}" if field else f"field {key >> 3} of {schema.name}"
    return ModelError(f"{name} at byte {base + start} is {stop - end} byte(s) longer than what is left")
