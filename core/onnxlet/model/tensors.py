"""Constants: element type, shape, and where the bytes lie."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import LimitError, ModelError
from ..graph.ir import STRING
from .dtypes import BITS, dtype_of, spec_name
from .external import EXTERNAL, ExternalData
from .sources import ByteSource, MemorySource
from .wire import Message, Span

MAX_DENSE_BYTES = 1 << 30
"""The largest tensor that a sparse one may become."""

# The field that holds the elements of a type when they are not raw bytes, and how many numbers make an element.
_TYPED_FIELDS: dict[int, tuple[str, int]] = {
    1: ("float_data", 1),
    14: ("float_data", 2),
    11: ("double_data", 1),
    15: ("double_data", 2),
    7: ("int64_data", 1),
    12: ("uint64_data", 1),
    13: ("uint64_data", 1),
}


class Tensor:
    """An initializer or any other constant.

    `location` says where the `nbytes` bytes of the array lie, as (source, offset), or is `None` where they lie nowhere
    in that form. `numpy()` gives the values; the array is read-only.
    """

    __slots__ = ("_array", "_load", "dtype", "location", "nbytes", "shape", "size")

    def __init__(
        self,
        dtype: np.dtype,
        shape: tuple[int, ...],
        *,
        location: tuple[ByteSource, int] | None = None,
        load: Callable[[], np.ndarray] | None = None,
        array: np.ndarray | None = None,
    ):
        self.dtype = dtype
        self.shape = shape
        self.size = math.prod(shape)
        self.nbytes = self.size * dtype.itemsize
        self.location = location
        self._load = load
        self._array = array

    @staticmethod
    def of(array: Any) -> Tensor:
        """Wrap an array (or anything NumPy makes one of), without a copy where it is an array already."""
        array = np.asarray(array)
        if array.dtype.kind in "UST":
            array = array.astype(STRING)
        if not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="))
        view = array.view()
        view.flags.writeable = False
        location = None
        if view.dtype != STRING and view.flags.c_contiguous and view.size:
            location = (MemorySource(view.reshape(-1).view(np.uint8)), 0)
        return Tensor(array.dtype, array.shape, location=location, array=view)

    def numpy(self) -> np.ndarray:
        """The values as a read-only array: a view where the bytes lie in Python's memory, strings as objects.

        Values that have to be decoded are decoded once. Values that lie elsewhere (a file, JavaScript's memory) are
        copied at every call, so that they do not stay.
        """
        if self._array is not None:
            return self._array
        if self._load is not None:
            array = self._load().reshape(self.shape)
            array.flags.writeable = False
            self._array, self._load = array, None
            return array
        assert self.location is not None
        source, offset = self.location
        array = np.frombuffer(source.read(offset, self.nbytes), dtype=self.dtype).reshape(self.shape)
        array.flags.writeable = False
        return array

    def __repr__(self) -> str:
        return f"Tensor({spec_name(self.dtype)}[{','.join(map(str, self.shape))}])"


def read_tensor(proto: Message, source: ByteSource, external: ExternalData | None) -> Tensor:
    """The tensor of a decoded TensorProto.

    Nothing is copied: raw bytes and packed floats are located, other forms are decoded when they are asked for. Raises
    `ModelError` where shape and data do not fit each other, `ExternalDataError` where external data is missing.
    """
    name = proto.name or "(unnamed)"
    shape = tuple(proto.dims)
    _check_shape(shape, name)
    kind = proto.data_type
    try:
        dtype = dtype_of(kind)
    except ModelError as error:
        raise ModelError(f"tensor {name!r}: {error}") from None
    size = math.prod(shape)
    if kind == 8:
        return Tensor.of(_strings(proto.string_data, shape, name))
    if proto.data_location == EXTERNAL:
        if external is None:
            raise ModelError(f"tensor {name!r} has external data, which is not allowed here")
        fields = {entry.key: entry.value for entry in proto.external_data}
        return _raw_tensor(*external.locate(name, fields, _raw_bytes(kind, size, dtype)), kind, dtype, shape, name)
    if proto.has("raw_data") and (proto.raw_data.length or size == 0):
        return _raw_tensor(source, proto.raw_data, kind, dtype, shape, name)
    if size == 0:
        return Tensor.of(np.zeros(shape, dtype))
    field, per_element = _TYPED_FIELDS.get(kind, ("int32_data", 1))
    spans: list[Span] = getattr(proto, field)
    if field in ("float_data", "double_data"):
        given = sum(span.length for span in spans)
        if given != size * dtype.itemsize:
            raise _wrong_count(name, shape, given // (dtype.itemsize // per_element) // per_element, size)
        if len(spans) == 1:
            return Tensor(dtype, shape, location=(source, spans[0].offset))
        joined = b"".join(source.read(*span) for span in spans)
        return Tensor(dtype, shape, location=(MemorySource(joined), 0))
    numbers = _varints(b"".join(source.read(*span) for span in spans), name)
    return Tensor.of(_from_numbers(numbers, kind, dtype, shape, name))


def read_sparse(proto: Message, source: ByteSource, external: ExternalData | None) -> tuple[str, Tensor]:
    """The name and the dense form of a decoded SparseTensorProto.

    Raises `ModelError` where it is not valid, and `LimitError` where its dense form is above `MAX_DENSE_BYTES`.
    """
    if proto.values is None:
        raise ModelError("a sparse tensor has no values")
    name = proto.values.name
    values = read_tensor(proto.values, source, external)
    shape = tuple(proto.dims)
    _check_shape(shape, name)
    if not shape or len(values.shape) != 1:
        raise ModelError(f"sparse tensor {name!r}: dimensions {list(shape)} with values of shape {list(values.shape)}")
    if math.prod(shape) * values.dtype.itemsize > MAX_DENSE_BYTES:
        raise LimitError(f"sparse tensor {name!r} of shape {list(shape)} is too large to be made dense")
    dense = np.full(shape, "", STRING) if values.dtype == STRING else np.zeros(shape, values.dtype)
    if values.size:
        if proto.indices is None:
            raise ModelError(f"sparse tensor {name!r} has no indices")
        indices = read_tensor(proto.indices, source, external).numpy()
        _check_indices(indices, values.size, shape, name)
        where = tuple(indices.T) if indices.ndim == 2 else np.unravel_index(indices, shape)
        dense[where] = values.numpy()
    return name, Tensor.of(dense)


def _check_shape(shape: tuple[int, ...], name: str) -> None:
    if any(d < 0 for d in shape):
        raise ModelError(f"tensor {name!r} has a negative dimension: {list(shape)}")
    # NumPy's limits; the second also holds where another dimension is 0.
    if len(shape) > 64 or math.prod(d for d in shape if d) >= 1 << 58:
        raise ModelError(f"tensor {name!r} has too many or too large dimensions: {list(shape)}")


def _check_indices(indices: np.ndarray, count: int, shape: tuple[int, ...], name: str) -> None:
    if indices.dtype.kind not in "iu" or indices.shape not in ((count,), (count, len(shape))):
        raise ModelError(
            f"sparse tensor {name!r}: indices of shape {list(indices.shape)} and type {indices.dtype} "
            f"for {count} values in {len(shape)} dimensions"
        )
    bound = np.array(shape) if indices.ndim == 2 else math.prod(shape)
    if (indices < 0).any() or (indices >= bound).any():
        raise ModelError(f"sparse tensor {name!r}: an index lies outside the shape {list(shape)}")


def _raw_bytes(kind: int, size: int, dtype: np.dtype) -> int:
    return -(-size * BITS[kind] // 8) if kind in BITS else size * dtype.itemsize


def _raw_tensor(
    source: ByteSource, span: Span, kind: int, dtype: np.dtype, shape: tuple[int, ...], name: str
) -> Tensor:
    expected = _raw_bytes(kind, math.prod(shape), dtype)
    if span.length != expected:
        raise ModelError(
            f"tensor {name!r} of type {spec_name(dtype)} and shape {list(shape)} "
            f"takes {expected} bytes, but has {span.length}"
        )
    if kind in BITS:
        return Tensor(dtype, shape, load=lambda: _unpack_bits(source.read(*span), kind, dtype, math.prod(shape)))
    if dtype == np.bool_:
        # A byte other than 0 and 1 is no valid NumPy bool.
        return Tensor(dtype, shape, load=lambda: np.frombuffer(source.read(*span), np.uint8) != 0)
    return Tensor(dtype, shape, location=(source, span.offset))


def _unpack_bits(data: Any, kind: int, dtype: np.dtype, size: int) -> np.ndarray:
    """Elements of 6, 4 or 2 bits, the first in the lowest bits of the first byte, a byte each."""
    bits = BITS[kind]
    packed = np.frombuffer(data, np.uint8)
    if bits == 6:
        stream = np.unpackbits(packed, count=6 * size, bitorder="little").reshape(size, 6)
        return np.packbits(stream, axis=1, bitorder="little").reshape(size).view(dtype)
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    elements = ((packed[:, None] >> shifts) & ((1 << bits) - 1)).reshape(-1)[:size]
    return elements.view(dtype)


def _varints(data: bytes, name: str) -> np.ndarray:
    """All varints of a packed field, as uint64."""
    raw = np.frombuffer(data, np.uint8)
    last = np.flatnonzero(raw < 0x80)
    if raw.size and (not last.size or last[-1] != raw.size - 1):
        raise ModelError(f"tensor {name!r} ends in the middle of a number")
    first = np.concatenate([[0], last[:-1] + 1]).astype(np.int64)[: last.size]
    lengths = last - first + 1
    longest = int(lengths.max(initial=0))
    if longest > 10:
        raise ModelError(f"tensor {name!r} has a number longer than 64 bits")
    values = np.zeros(last.size, np.uint64)
    for i in range(longest):
        use = lengths > i
        part = (raw[first[use] + i] & 0x7F).astype(np.uint64)
        values[use] |= part << np.uint64(7 * i)
    return values


def _from_numbers(numbers: np.ndarray, kind: int, dtype: np.dtype, shape: tuple[int, ...], name: str) -> np.ndarray:
    size = math.prod(shape)
    # Elements of 6 bits are written one by one.
    packed = BITS.get(kind, 8) in (2, 4)
    expected = -(-size * BITS[kind] // 8) if packed else size
    if numbers.size != expected:
        raise _wrong_count(name, shape, numbers.size, expected)
    if packed:
        return _unpack_bits(numbers.astype(np.uint8), kind, dtype, size).reshape(shape)
    if dtype == np.bool_:
        return (numbers != 0).reshape(shape)
    if dtype.kind in "iu" and not dtype.names:
        return numbers.astype(dtype).reshape(shape)
    # float16, bfloat16, float8, float6: the numbers are the bits.
    return numbers.astype(f"<u{dtype.itemsize}").view(dtype).reshape(shape)


def _strings(values: Any, shape: tuple[int, ...], name: str) -> np.ndarray:
    if len(values) != math.prod(shape):
        raise _wrong_count(name, shape, len(values), math.prod(shape))
    array = np.empty(len(values), STRING)
    try:
        array[:] = [value.decode() for value in values]
    except UnicodeDecodeError as error:
        raise ModelError(f"tensor {name!r} has a string that is not UTF-8: {error}") from None
    return array.reshape(shape)


def _wrong_count(name: str, shape: tuple[int, ...], given: int, expected: int) -> ModelError:
    return ModelError(f"tensor {name!r} of shape {list(shape)} needs {expected} numbers, but has {given}")
