"""Cast and its relatives: every number type that the device keeps to every other.

Their twins are in `onnxlet.ops.cast`: a float becomes the nearest integer of 64 bits and NaN becomes 0; a narrower type
takes the low bits of that.
"""

from __future__ import annotations

from onnxlet.model.dtypes import float_values

from ..lowering import Lowering, Tensor, lowering
from ..storage import MOVED, SMALL_FLOATS, SMALL_INTEGERS, type_name
from ..wgsl import literal

NUMBERS = ("float32", "int32", "uint32", "int64", "uint64", "bool", "float64")

CASTS = {
    ("float32", "int32"): "bitcast<i32>(pair_of_float({0}).x)",
    ("float32", "uint32"): "pair_of_float({0}).x",
    ("float32", "bool"): "select(1u, 0u, {0} == 0.0)",
    ("float32", "int64"): "pair_of_float({0})",
    ("float32", "uint64"): "unsigned_pair_of_float({0})",
    ("float32", "float64"): "double_of_float({0})",
    ("int32", "float32"): "f32({0})",
    ("int32", "uint32"): "bitcast<u32>({0})",
    ("int32", "bool"): "select(0u, 1u, {0} != 0)",
    ("int32", "int64"): "pair_of_int({0})",
    ("int32", "uint64"): "pair_of_int({0})",
    ("uint32", "float32"): "float_of_word({0})",
    ("uint32", "int32"): "bitcast<i32>({0})",
    ("uint32", "bool"): "select(0u, 1u, {0} != 0u)",
    ("uint32", "int64"): "vec2<u32>({0}, 0u)",
    ("uint32", "uint64"): "vec2<u32>({0}, 0u)",
    ("bool", "float32"): "f32({0})",
    ("bool", "int32"): "i32({0})",
    ("bool", "uint32"): "{0}",
    ("bool", "int64"): "vec2<u32>({0}, 0u)",
    ("bool", "uint64"): "vec2<u32>({0}, 0u)",
    ("int64", "float32"): "float_of_pair({0})",
    ("uint64", "float32"): "float_of_unsigned_pair({0})",
    ("float64", "float32"): "float_of_double({0})",
    **{(wide, "int32"): "bitcast<i32>({0}.x)" for wide in ("int64", "uint64")},
    **{(wide, "uint32"): "{0}.x" for wide in ("int64", "uint64")},
    **{(wide, "bool"): "min({0}.x | {0}.y, 1u)" for wide in ("int64", "uint64")},
    ("float64", "bool"): "min({0}.x | ({0}.y & 0x7fffffffu), 1u)",
    ("int64", "uint64"): "{0}",
    ("uint64", "int64"): "{0}",
}
"""How a number of one kind becomes one of another. What is stored in fewer than 32 bits is cut or rounded then."""

EXACT_IN_FLOAT = ("float16", "bfloat16", "int8", "uint8", "int16", "uint16", "bool", *SMALL_FLOATS, *SMALL_INTEGERS)
"""Types whose every value is a float32."""

FORMATS = {
    "float8_e4m3fn": (3, -6), "float8_e4m3fnuz": (3, -7), "float8_e5m2": (2, -14), "float8_e5m2fnuz": (2, -15),
    "float4_e2m1fn": (1, 0), "float6_e2m3fn": (3, 0), "float6_e3m2fn": (2, -2),
}  # fmt: skip
"""Bits of the mantissa and the lowest exponent of a normal number."""


@lowering("Cast", "CastLike")
def cast(n: Lowering) -> None:
    emit_cast(n, n.input(0, *MOVED), n.output(0), n.attribute("saturate", 1))


def emit_cast(n: Lowering, x: Tensor, out: Tensor, saturate: int = 1) -> None:
    source, target = type_name(x.dtype), type_name(out.dtype)
    if source == target or (x.element == "f32" and target == "float32"):
        n.alias(out, x)  # every float of 16 and fewer bits is the same number in f32
        return
    if "float8_e8m0fnu" in (source, target):
        n.refuse(f"a cast from {source} to {target} has no GPU kernel")
    from_, to = _kind(x), _kind(out)
    chosen = "{0}" if from_ == to else CASTS.get((from_, to))
    if chosen is None or (from_ == "float64" and target not in ("float32", "bool")):
        n.refuse(f"a cast from {source} to {target} has no GPU kernel")
    if target in ("bfloat16", *SMALL_FLOATS) and source not in ("float32", *EXACT_IN_FLOAT):
        n.refuse(f"a cast from {source} to {target} would be rounded twice on the GPU")
    if target in SMALL_FLOATS:
        chosen = small_float(chosen, target, bool(saturate))
    n.emit_map([n.operand(0, *MOVED)], chosen, out)


def _kind(t: Tensor) -> str:
    name = type_name(t.dtype)
    if name in SMALL_INTEGERS:
        return "uint32" if name.startswith("u") else "int32"
    return "float32" if name in SMALL_FLOATS else t.kind


def small_float(expression: str, name: str, saturate: bool) -> str:
    """Text that rounds a float to one of the types of 8 and fewer bits, to nearest with ties to even."""
    values = float_values(name)
    finite = sorted({float(v) for v in values if v >= 0 and v < float("inf")})
    largest, step = finite[-1], finite[-1] - finite[-2]
    bits, lowest = FORMATS[name]
    limit = literal(largest, "f32")
    rounded = f"rounded_to_bits({expression}, {bits}, {lowest})"
    finite_only = name.startswith(("float4", "float6"))
    if saturate or finite_only:
        text = f"clip({rounded}, -{limit}, {limit})"
    else:
        beyond = f"abs({expression}) >= {literal(largest + step / 2, 'f32')}"
        over = f"select(infinity(), -infinity(), {expression} < 0.0)" if name == "float8_e5m2" else "quiet_nan()"
        text = f"select({rounded}, {over}, {beyond})"
    if finite_only:
        text = f"select({text}, 0.0, is_nan({expression}))"
    if name.endswith("fnuz"):
        text = f"({text} + 0.0)"  # there is no negative zero
    return text


@lowering("BitCast")
def bit_cast(n: Lowering) -> None:
    """The same bits: types of 32 and of 64 bits are kept as they are."""
    x, out = n.input(0, *MOVED), n.output(0)
    names = type_name(x.dtype), type_name(out.dtype)
    if x.element != out.element:
        integers = all(name.startswith(("int", "uint")) for name in names)
        if x.dtype.itemsize != 4 and not integers:
            n.refuse(f"the bits of {names[0]} as {names[1]} have no GPU kernel")
        to = {"f32": "f32", "i32": "i32", "u32": "u32"}[out.element]
        n.emit_map([n.operand(0, *MOVED)], f"bitcast<{to}>({{0}})", out)
    elif names[0] == names[1] or x.dtype.itemsize >= 4 or (x.element != "f32" and names[1] != "bool"):
        n.alias(out, x)
    else:
        n.refuse(f"the bits of {names[0]} as {names[1]} have no GPU kernel")
