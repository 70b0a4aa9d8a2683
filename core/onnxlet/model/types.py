"""From decoded TypeProto messages to the types of the intermediate representation."""

from __future__ import annotations

from ..graph.ir import Dim, MapType, OptionalType, SequenceType, TensorType, Type
from .dtypes import dtype_of
from .wire import Message


def read_type(proto: Message | None, *, symbols: bool = True) -> Type | None:
    """The type of a decoded TypeProto, `None` where it says nothing known. Without `symbols`, named dimensions are
    unknown ones."""
    if proto is None:
        return None
    tensor = proto.tensor_type or proto.sparse_tensor_type
    if tensor is not None:
        dtype = dtype_of(tensor.elem_type) if tensor.elem_type else None
        shape = None if tensor.shape is None else tuple(_dimension(d, symbols) for d in tensor.shape.dim)
        return TensorType(dtype, shape)
    if proto.sequence_type is not None:
        return SequenceType(read_type(proto.sequence_type.elem_type, symbols=symbols))
    if proto.optional_type is not None:
        return OptionalType(read_type(proto.optional_type.elem_type, symbols=symbols))
    if proto.map_type is not None:
        return MapType(dtype_of(proto.map_type.key_type), read_type(proto.map_type.value_type, symbols=symbols))
    return None


def _dimension(proto: Message, symbols: bool) -> Dim:
    if proto.has("dim_value"):
        # A negative number is how some exporters write "unknown".
        return proto.dim_value if proto.dim_value >= 0 else None
    return (proto.dim_param or None) if symbols else None
