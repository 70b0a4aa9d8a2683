"""Conversions between element types."""

from __future__ import annotations

import numpy as np

from ..graph.ir import STRING
from ..model.dtypes import BITS, bits_of, dtype_of, element_type_of, is_extended, named, narrow, spec_name, widen
from .registry import op


@op("Cast")
def cast_1(x: np.ndarray, *, to: str):
    """`to` is the type's name in TensorProto: FLOAT, INT64, ..."""
    return convert(x, named(to.lower()))


@op("Cast", since=6)
def cast(x: np.ndarray, *, to: int, saturate: int = 1, round_mode: str = "up"):
    return convert(x, dtype_of(to), saturate=bool(saturate), round_mode=round_mode)


@op("CastLike", since=15)
def cast_like(x: np.ndarray, target_type: np.ndarray, *, saturate: int = 1, round_mode: str = "up"):
    return convert(x, target_type.dtype, saturate=bool(saturate), round_mode=round_mode)


def convert(x: np.ndarray, dtype: np.dtype, *, saturate: bool = True, round_mode: str = "up") -> np.ndarray:
    """`x` as elements of `dtype`, by the rules of Cast.

    Where these leave a result open: a float becomes the nearest integer of 64 bits and NaN becomes 0; a narrower type
    takes the low bits of that, as it does from an integer. `saturate` and `round_mode` are for the float8 types alone.
    """
    if x.dtype == dtype:
        return x
    if x.dtype == STRING:
        return _from_strings(x, dtype, saturate, round_mode)
    if dtype == STRING:
        return _to_strings(x)
    x = widen(x)
    if not is_extended(dtype):
        if dtype.kind in "iu" and x.dtype.kind == "f":
            return _to_integers(x, dtype)
        return x.astype(dtype)
    name = spec_name(dtype)
    if "int" in name:
        return narrow(_to_integers(x, np.dtype(np.int64)) if x.dtype.kind == "f" else x, dtype)
    if name == "float8e8m0":
        return _scales(x.astype(np.float64), saturate, round_mode).view(dtype)
    if x.dtype.kind != "f" or x.dtype == np.float64:
        x = _to_odd_float32(x)
    return narrow(x, dtype, saturate=saturate)


def _to_integers(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    x = np.trunc(x.astype(np.float64))
    # 2**63 is a power of two, which a float holds exactly, as it does not 2**63 - 1.
    inside = (x >= -(2.0**63)) & (x < 2.0**63)
    nearest = np.where(x < 0, np.int64(-(2**63)), np.int64(2**63 - 1))
    whole = np.where(inside | np.isnan(x), np.where(inside, x, 0).astype(np.int64), nearest)
    if dtype != np.uint64:
        return whole.astype(dtype)
    above = (x >= 2.0**63) & (x < 2.0**64)
    large = np.where(above, np.where(above, x, 0).astype(np.uint64), np.uint64(2**64 - 1))
    return np.where(x >= 2.0**63, large, whole.astype(np.uint64))


def _to_odd_float32(x: np.ndarray):
    """A float32 that is inexact only in its last bit, which is then odd: rounding it again to fewer bits gives what
    rounding `x` once would."""
    wide = _to_odd_float64(x)
    near = wide.astype(np.float32)
    bits = near.view(np.uint32)
    exact = (near == wide) | ~np.isfinite(near)
    beyond = np.abs(near.astype(np.float64)) > np.abs(wide)
    truncated = np.where(~exact & beyond, bits - np.uint32(1), bits)
    return np.where(exact, bits, truncated | np.uint32(1)).view(np.float32)


def _to_odd_float64(x: np.ndarray) -> np.ndarray:
    if x.dtype.itemsize < 8 or x.dtype.kind == "f":
        return x.astype(np.float64)
    rest = x & x.dtype.type(2047)
    odd = ((x >> x.dtype.type(11)) | (rest != 0)).astype(np.float64) * 2048
    return np.where((x > -(2**53)) & (x < 2**53), x.astype(np.float64), odd)


def _scales(x: np.ndarray, saturate: bool, round_mode: str):
    """The bits of float8e8m0: 2 ** (bits - 127), or NaN for 255. A negative number has no such form and becomes NaN."""
    usable = np.isfinite(x) & (x > 0)
    fraction, exponent = np.frexp(np.where(usable, x, 1.0))  # the fraction is at least a half
    upwards = {"up": fraction > 0.5, "nearest": fraction >= 0.75, "down": np.zeros(x.shape, np.bool_)}
    if round_mode not in upwards:
        raise ValueError(f"round_mode is {', '.join(upwards)}, not {round_mode!r}")
    bits = exponent.astype(np.int64) + 126 + upwards[round_mode]
    if saturate:
        bits = np.where(usable, np.clip(bits, 0, 254), np.where(x == 0, 0, np.where(x == np.inf, 254, 255)))
    else:
        bits = np.where(usable & (bits >= 0) & (bits < 255), bits, 255)
    return bits.astype(np.uint8)


def _from_strings(x: np.ndarray, dtype: np.dtype, saturate: bool, round_mode: str):
    texts = x.reshape(-1).tolist()
    if dtype.kind not in "iu":
        numbers = np.array([float(text) for text in texts], np.float64)
        return convert(numbers, dtype, saturate=saturate, round_mode=round_mode).reshape(x.shape)
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    numbers = [_whole(text) for text in texts]
    return np.array([(n - low) % (high - low + 1) + low for n in numbers], dtype).reshape(x.shape)


def _whole(text: str):
    """The integer that a text shows; a number with a fraction is truncated."""
    try:
        return int(text)
    except ValueError:
        return int(float(text))


def _to_strings(x: np.ndarray):
    """Integers in decimal; floats in the fewest digits that give the same value back."""
    if is_extended(x.dtype):
        x = widen(x)
    return x.astype(str).astype(STRING)


@op("BitCast", since=26)
def bit_cast(x: np.ndarray, *, to: int):
    """The same bits as another type of the same width."""
    dtype = dtype_of(to)
    have, want = _width(x.dtype), _width(dtype)
    if have != want or STRING in (x.dtype, dtype):
        raise ValueError(f"{spec_name(x.dtype)} ({have} bits) can't be read as {spec_name(dtype)} ({want} bits)")
    bits = bits_of(x) if is_extended(x.dtype) else x
    return bits.view(dtype)


def _width(dtype: np.dtype) -> int:
    return BITS.get(element_type_of(dtype), dtype.itemsize * 8)
