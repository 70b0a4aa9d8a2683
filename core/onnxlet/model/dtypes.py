"""ONNX element types, their numbers and names, and the NumPy types that stand for them.

Types that NumPy lacks (bfloat16, floats of 8, 6 and 4 bits, integers of 4 and 2 bits) are `ml_dtypes` types where that
package is installed. Elsewhere they are one-field structured types such as ``[("bfloat16", "<u2")]``: arrays of them
can be moved and compared bit by bit, and any arithmetic on them is an error instead of a wrong number. `widen` and
`narrow` convert both forms from and to float32 (or int8 and uint8).
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ..errors import ModelError
from ..graph.ir import STRING, MapType, OptionalType, SequenceType, TensorType, Type

# number: (the specification's name, NumPy's or ml_dtypes' name, for an extended type the one that holds its bits)
_TABLE: dict[int, tuple[str, str, str | None]] = {
    1: ("float", "float32", None),
    2: ("uint8", "uint8", None),
    3: ("int8", "int8", None),
    4: ("uint16", "uint16", None),
    5: ("int16", "int16", None),
    6: ("int32", "int32", None),
    7: ("int64", "int64", None),
    8: ("string", "object", None),
    9: ("bool", "bool", None),
    10: ("float16", "float16", None),
    11: ("double", "float64", None),
    12: ("uint32", "uint32", None),
    13: ("uint64", "uint64", None),
    14: ("complex64", "complex64", None),
    15: ("complex128", "complex128", None),
    16: ("bfloat16", "bfloat16", "<u2"),
    17: ("float8e4m3fn", "float8_e4m3fn", "u1"),
    18: ("float8e4m3fnuz", "float8_e4m3fnuz", "u1"),
    19: ("float8e5m2", "float8_e5m2", "u1"),
    20: ("float8e5m2fnuz", "float8_e5m2fnuz", "u1"),
    21: ("uint4", "uint4", "u1"),
    22: ("int4", "int4", "u1"),
    23: ("float4e2m1", "float4_e2m1fn", "u1"),
    24: ("float8e8m0", "float8_e8m0fnu", "u1"),
    25: ("uint2", "uint2", "u1"),
    26: ("int2", "int2", "u1"),
    27: ("float6e2m3", "float6_e2m3fn", "u1"),
    28: ("float6e3m2", "float6_e3m2fn", "u1"),
}

BITS = {21: 4, 22: 4, 23: 4, 25: 2, 26: 2, 27: 6, 28: 6}
"""Bits per element of the types that files pack several to a byte. In memory each takes a byte."""

_SPEC_NAMES = {row[0]: number for number, row in _TABLE.items()}
_NUMPY_NAMES = {row[1]: number for number, row in _TABLE.items()}


@functools.cache
def dtype_of(element_type: int) -> np.dtype:
    """The NumPy type for a number of TensorProto.DataType. Raises `ModelError` for an unknown one."""
    row = _TABLE.get(element_type)
    if row is None:
        raise ModelError(f"unknown element type number {element_type}")
    _, name, bits = row
    if bits is None:
        return np.dtype(name)
    try:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))
    except (ImportError, AttributeError):
        return np.dtype([(name, bits)])


def named(name: str) -> np.dtype:
    """The NumPy type for a name of the specification (``float``, ``bfloat16``), or NumPy's own (``float32``)."""
    number = _SPEC_NAMES.get(name) or _NUMPY_NAMES.get(name)
    if number is None:
        raise ModelError(f"unknown element type {name!r}")
    return dtype_of(number)


@functools.cache
def element_type_of(dtype: np.dtype) -> int:
    """The number of TensorProto.DataType for a NumPy type. Raises `ModelError` where ONNX has none."""
    if dtype.kind in "USTO":
        return 8
    name = dtype.names[0] if dtype.names else dtype.name
    number = _NUMPY_NAMES.get(name)
    if number is None:
        raise ModelError(f"ONNX has no element type for NumPy's {dtype}")
    return number


def spec_name(dtype: np.dtype) -> str:
    """The specification's name of an element type: ``float``, ``int64``, ``string``."""
    return _TABLE[element_type_of(dtype)][0]


def type_name(type_: Type | None) -> str:
    """The specification's name of a type: ``tensor(float)``, ``seq(map(int64,tensor(float)))``."""
    if isinstance(type_, TensorType):
        return "tensor(?)" if type_.dtype is None else f"tensor({spec_name(type_.dtype)})"
    if isinstance(type_, SequenceType):
        return f"seq({type_name(type_.element)})"
    if isinstance(type_, OptionalType):
        return f"optional({type_name(type_.element)})"
    if isinstance(type_, MapType):
        return f"map({spec_name(type_.key)},{type_name(type_.value)})"
    return "?"


def is_extended(dtype: np.dtype) -> bool:
    """Whether NumPy itself lacks this element type."""
    return dtype != STRING and _TABLE[element_type_of(dtype)][2] is not None


def bits_of(array: np.ndarray) -> np.ndarray:
    """An array of an extended type as the unsigned integers that hold its bits, without a copy where memory allows.

    Types of fewer than 8 bits lie in the low bits of a byte each.
    """
    bits = _TABLE[element_type_of(array.dtype)][2]
    assert bits is not None, array.dtype
    return array.view(bits)


# name: (bits of the exponent, of the mantissa, its bias, "fn": no infinity and NaN at the all-ones pattern, "fnuz": no
# infinity, no negative zero, NaN at the pattern of negative zero, "finite": neither, "ieee")
_FLOATS: dict[str, tuple[int, int, int, str]] = {
    "float8_e4m3fn": (4, 3, 7, "fn"),
    "float8_e4m3fnuz": (4, 3, 8, "fnuz"),
    "float8_e5m2": (5, 2, 15, "ieee"),
    "float8_e5m2fnuz": (5, 2, 16, "fnuz"),
    "float6_e2m3fn": (2, 3, 1, "finite"),
    "float6_e3m2fn": (3, 2, 3, "finite"),
    "float4_e2m1fn": (2, 1, 1, "finite"),
}


@functools.cache
def float_values(name: str) -> np.ndarray:
    """The float32 value of each bit pattern of a float8, float6 or float4 type, by ml_dtypes' name."""
    if name == "float8_e8m0fnu":
        return np.append(np.ldexp(1.0, np.arange(255) - 127), np.nan).astype(np.float32)
    exponent_bits, mantissa_bits, bias, style = _FLOATS[name]
    width = 1 + exponent_bits + mantissa_bits
    pattern = np.arange(1 << width)
    mantissa = pattern & ((1 << mantissa_bits) - 1)
    exponent = (pattern >> mantissa_bits) & ((1 << exponent_bits) - 1)
    sign = np.where(pattern >> (width - 1), -1.0, 1.0)
    fraction = mantissa / (1 << mantissa_bits) + (exponent > 0)
    values = sign * np.ldexp(fraction, np.maximum(exponent, 1) - bias)
    top = exponent == (1 << exponent_bits) - 1
    if style == "fn":
        values[top & (mantissa == (1 << mantissa_bits) - 1)] = np.nan
    elif style == "fnuz":
        values[1 << (width - 1)] = np.nan
    elif style == "ieee":
        values[top] = np.where(mantissa[top] == 0, sign[top] * np.inf, np.nan)
    return values.astype(np.float32)


def widen(array: np.ndarray) -> np.ndarray:
    """An array of an extended type as float32 (floats), int8 or uint8 (small integers): exact. Others are unchanged."""
    if array.dtype == STRING or not is_extended(array.dtype):
        return array
    number = element_type_of(array.dtype)
    # NumPy makes scalars of 0-d results; the shape is put back at the end.
    return _widened(np.atleast_1d(bits_of(array)), _TABLE[number][1], BITS.get(number, 8)).reshape(array.shape)


def _widened(bits: np.ndarray, name: str, width: int) -> np.ndarray:
    if name == "bfloat16":
        return (bits.astype(np.uint32) << 16).view(np.float32)
    if "int" in name:
        low = bits & ((1 << width) - 1)
        if name.startswith("uint"):
            return low
        top = np.uint8(1 << (width - 1))
        return ((low ^ top) - top).view(np.int8)
    return float_values(name)[bits]


def narrow(array: np.ndarray, dtype: np.dtype, *, saturate: bool = True) -> np.ndarray:
    """Round an array to an extended type, to nearest with ties to even.

    Floats beyond the largest finite value become that value where `saturate`, else infinity, or NaN where the type has
    no infinity (the rules of ONNX's Cast). Small integers keep their low bits. bfloat16 never saturates.
    """
    name = _TABLE[element_type_of(dtype)][1]
    values = np.atleast_1d(array)
    if "int" in name:
        width = BITS[element_type_of(dtype)]
        narrowed = (values.astype(np.int64) & ((1 << width) - 1)).astype(np.uint8)
    elif name == "bfloat16":
        bits = values.astype(np.float32, copy=False).view(np.uint32)
        rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
        quiet = ((bits >> 16) | 0x40).astype(np.uint16)
        narrowed = np.where((bits & 0x7FFFFFFF) > 0x7F800000, quiet, rounded)
    else:
        narrowed = _narrow_small(values.astype(np.float32, copy=False), name, saturate)
    return narrowed.reshape(np.shape(array)).view(dtype)


def _narrow_small(array: np.ndarray, name: str, saturate: bool) -> np.ndarray:
    values = float_values(name)
    style = "e8m0" if name == "float8_e8m0fnu" else _FLOATS[name][3]
    half = len(values) if style == "e8m0" else len(values) // 2
    table = values[:half].astype(np.float64)  # non-negative patterns, in order of value
    finite = int(np.sum(np.isfinite(table)))
    magnitude = np.abs(array.astype(np.float64)) if style != "e8m0" else array.astype(np.float64)
    upper = np.clip(np.searchsorted(table[:finite], magnitude), 1, finite - 1)
    lower = upper - 1
    above, below = table[upper] - magnitude, magnitude - table[lower]
    code = np.where((above < below) | ((above == below) & (upper % 2 == 0)), upper, lower)
    largest = table[finite - 1]
    step = largest - table[finite - 2]
    over = (magnitude >= largest + step / 2) & (not saturate)
    sign = np.signbit(array) & (style != "e8m0")
    code = np.where(magnitude > largest, finite - 1, code)
    if style == "finite":
        code = np.where(np.isnan(array), 0, code)
        return (code + sign * half).astype(np.uint8)
    nan = {"fn": half - 1, "fnuz": half, "ieee": half - 1, "e8m0": 255}[style]
    infinite = finite if style == "ieee" else nan
    code = np.where(over, infinite, code)
    if style == "fnuz":
        sign = sign & (code != 0) & (code != half)
    code = np.where(np.isnan(array), nan, code)
    if style == "e8m0":
        return np.where(array < 0, 255, code).astype(np.uint8)
    return np.where(code == half, half, code + sign * half).astype(np.uint8)


def describe(value: Any) -> str:
    """An array's element type and shape for messages, for example ``float[1,3,224,224]``."""
    array = np.asarray(value)
    return f"{spec_name(array.dtype)}[{','.join(map(str, array.shape))}]"
