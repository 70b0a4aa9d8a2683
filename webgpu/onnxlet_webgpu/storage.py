"""How element types are kept on the device.

float16, bfloat16 and the floats of 8 and fewer bits are the same numbers in f32, rounded after every operator: that
needs no feature that adapters may lack. Integers of 16 and fewer bits are kept in 32, booleans as a u32 of 0 or 1.
Types of 64 bits are pairs of u32, the low word first: integers are computed with in that form (see `pairs`), float64
is only moved and cast.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from onnxlet.graph.ir import STRING, TensorType
from onnxlet.model.dtypes import is_extended, narrow, widen

PAIR = "vec2<u32>"
"""The WGSL type of an element of 64 bits."""

SMALL_FLOATS = (
    "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn",
    "float6_e2m3fn", "float6_e3m2fn",
)  # fmt: skip
SMALL_INTEGERS = ("int4", "uint4", "int2", "uint2")

ELEMENTS = {
    **dict.fromkeys(("float32", "float16", "bfloat16", *SMALL_FLOATS), "f32"),
    **dict.fromkeys(("int32", "int16", "int8", "int4", "int2"), "i32"),
    **dict.fromkeys(("uint32", "uint16", "uint8", "uint4", "uint2", "bool"), "u32"),
    **dict.fromkeys(("int64", "uint64", "float64"), PAIR),
}
"""NumPy's and ml_dtypes' names of element types to WGSL's."""

KINDS = {
    "float16": "float32", "bfloat16": "float32", "int8": "int32", "int16": "int32", "uint8": "uint32",
    "uint16": "uint32",
}  # fmt: skip
"""Types that are computed with like another one, and then rounded or cut to their size."""

MOVED = tuple(name for name in ELEMENTS if name not in KINDS)
"""Every kind there is: for operators that only move elements."""

BITS = {"int8": 8, "uint8": 8, "int16": 16, "uint16": 16, "int4": 4, "uint4": 4, "int2": 2, "uint2": 2}


@cache
def type_name(dtype: np.dtype) -> str:
    """The name of an element type, whether NumPy has it or not."""
    return "string" if dtype == STRING else dtype.names[0] if dtype.names else dtype.name


def element_of(dtype: np.dtype) -> str:
    """The WGSL type that holds an element."""
    return ELEMENTS[type_name(dtype)]


def width_of(element: str) -> int:
    """Bytes of a WGSL type: a number, or a vector of numbers."""
    return (int(element[3]) if element.startswith("vec") else 1) * (2 if "f16" in element else 4)


def stored_bytes(type_: TensorType) -> int:
    """Bytes that a value takes on the device."""
    assert type_.dtype is not None
    return type_.size * width_of(element_of(type_.dtype))


def widened(array: np.ndarray) -> np.ndarray:
    """Floats of 16 and fewer bits as float32, integers of fewer than 8 as 8, all else as it is."""
    return array.astype(np.float32) if array.dtype == np.float16 else widen(array)


def stored(array: np.ndarray) -> np.ndarray:
    """Host values in the form in which the device keeps them: contiguous, 4 or 8 bytes an element."""
    array = widened(array)
    if array.dtype.itemsize < 4:
        array = array.astype(np.int32 if array.dtype.kind == "i" else np.uint32)
    return np.ascontiguousarray(array)


def host_array(data: memoryview, type_: TensorType) -> np.ndarray:
    """Bytes from the device as an array of the type that the graph gives the value."""
    dtype = type_.dtype
    assert dtype is not None
    held = {"f32": np.float32, "i32": np.int32, "u32": np.uint32, PAIR: dtype}[element_of(dtype)]
    array = np.frombuffer(data, held).reshape(type_.dims)
    if dtype == np.bool_:
        return array != 0
    if is_extended(dtype):
        return narrow(array, dtype, saturate=False)
    if dtype != array.dtype:
        with np.errstate(over="ignore"):
            return array.astype(dtype)
    return array if array.flags.writeable else array.copy()
