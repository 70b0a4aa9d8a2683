"""Element types without kernels of their own, computed in a wider one that has them.

Sums, differences, products and bits of integers are the same modulo the narrower type's range; quotients, remainders,
powers and comparisons of numbers that fit are the wider type's. What is as wide as the widest kernel, uint64, is taken
for int64 where that makes no difference.
"""

from __future__ import annotations

import numpy as np

from onnxlet.providers.base import Step

from .common import BOOL, F32, F64, I32, I64, TYPE_CODES, U8, dtype_of, output_dtype, present
from .expansion import Expansion, expand

U64 = np.dtype(np.uint64)

_NARROW = {np.dtype(name): I32 for name in ("int8", "uint8", "int16", "uint16")} | {np.dtype(np.uint32): I64}

_ARITHMETIC = ("Add", "Sub", "Mul", "Div")
_COMPARISONS = ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")
_BITS = ("BitwiseAnd", "BitwiseOr", "BitwiseXor")
_SAME_BITS = frozenset({"Add", "Sub", "Mul", "Equal", "BitShift", *_BITS})
"""Operators that don't tell int64 and uint64 apart, or are told."""


def _carrier(step: Step) -> np.dtype | None:
    """The type in which a step is computed instead of its own; `None` where it has kernels, or no such type exists."""
    dtype, operator = dtype_of(step, 0), step.node.op_type
    if operator == "Mod" and dtype == F32:
        return F64
    if operator == "Pow" and dtype_of(step, 1) not in (dtype, *_NARROW):
        return None
    if dtype == U64 and operator in _SAME_BITS:
        return I64
    if dtype == U8 and operator in (*_ARITHMETIC, *_COMPARISONS):
        return None
    return _NARROW.get(dtype)


def _is_carried(step: Step) -> bool:
    return _carrier(step) is not None


def to_type(e: Expansion, name: str, dtype: np.dtype, output: str = "") -> str:
    """A value as another type: uint64 and int64 become each other as they are, others are cast."""
    source = e.dtype(name)
    if {source, dtype} == {U64, I64}:
        return e.add("BitCast", [name], e.shape(name), dtype=dtype, output=output, to=TYPE_CODES[dtype])
    return e.add("Cast", [name], e.shape(name), dtype=dtype, output=output, to=TYPE_CODES[dtype])


@expand(
    *_ARITHMETIC, *_COMPARISONS, *_BITS, "Mod", "Max", "Min", "Neg", "Abs", "Sign", "Clip", "BitShift", "CumSum",
    "CumProd", "ReduceSum", "ReduceProd", "ReduceMax", "ReduceMin", when=_is_carried,
)  # fmt: skip
def carried(e: Expansion) -> None:
    step, node = e.step, e.step.node
    wide = _carrier(step)
    assert wide is not None
    operands = 1 if node.op_type.startswith(("Reduce", "Cum")) else len(node.inputs)
    inputs = [
        to_type(e, e.input(i), wide) if i < operands and present(step, i) else e.input(i)
        for i in range(len(node.inputs))
    ]
    target = step.outputs[0]
    assert target is not None
    attributes = dict(node.attributes)
    if node.op_type == "BitShift":
        attributes["unsigned"] = int(dtype_of(step, 0).kind == "u")
    kept = output_dtype(step) == BOOL
    y = e.add(node.op_type, inputs, target.dims, dtype=BOOL if kept else wide, output=e.output() if kept else "",
              version=node.version, **attributes)  # fmt: skip
    if not kept:
        to_type(e, y, output_dtype(step), e.output())


def _is_integer(step: Step) -> bool:
    return dtype_of(step, 0) in (I32, I64)


@expand("Abs", "Sign", when=_is_integer)
def of_integers(e: Expansion) -> None:
    x, dtype = e.input(0), e.dtype(e.input(0))
    zero = e.literal(0, dtype)
    if e.step.node.op_type == "Abs":
        e.binary("Max", x, e.binary("Sub", zero, x, dtype=dtype), e.output(), dtype)
        return
    above, below = (to_type(e, e.binary(o, x, zero, dtype=BOOL), dtype) for o in ("Greater", "Less"))
    e.binary("Sub", above, below, e.output(), dtype)


@expand("BitwiseNot")
def bitwise_not(e: Expansion) -> None:
    dtype = e.dtype(e.input(0))
    ones = e.literal(np.invert(np.zeros((), dtype)), dtype)
    e.binary("BitwiseXor", e.input(0), ones, e.output(), dtype)


def _has_other_exponent(step: Step) -> bool:
    """Whether float32 is raised to whole numbers that only a run will tell."""
    return dtype_of(step, 0) == F32 and dtype_of(step, 1).kind in "iu" and step.constant(1) is None


@expand("Pow", when=lambda step: _is_carried(step) or _has_other_exponent(step))
def power(e: Expansion) -> None:
    if _is_carried(e.step):
        carried(e)
    else:
        e.binary("Pow", e.input(0), to_type(e, e.input(1), F32), e.output())
