"""Small integers through compiled programs, against the NumPy definitions."""

from __future__ import annotations

import numpy as np
import pytest

from onnxlet.ops.registry import find

from .helpers import check, node, refusal

RNG = np.random.default_rng(37)


def some(*shape: int) -> np.ndarray:
    return RNG.uniform(-1, 1, shape).astype(np.float32)


def integers(dtype, *shape: int) -> np.ndarray:
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max + 1, shape).astype(dtype)


def definition(operator: str, version: int = 21, domain: str = ""):
    found = find(operator, domain, version)
    assert found is not None, operator
    return {operator: found.function}


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint16, np.int16], ids=lambda t: t.__name__)
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("zero", [False, True])
def test_quantize_and_dequantize(provider, dtype, axis, zero):
    x = some(3, 4, 5)
    count = 1 if axis is None else x.shape[axis]
    scale = RNG.uniform(0.002, 0.02, count).astype(np.float32)
    constants = {"s": scale if axis is not None else np.asarray(scale[0])}
    if zero or dtype != np.uint8:
        constants["z"] = integers(dtype, *constants["s"].shape) if zero else np.zeros(constants["s"].shape, dtype)
    attributes = {} if axis is None else {"axis": axis}
    names = " ".join(constants)
    check(provider, node("QuantizeLinear", f"x {names}", **attributes), {"x": x}, constants,
          references=definition("QuantizeLinear"))  # fmt: skip
    check(provider, node("DequantizeLinear", f"x {names}", **attributes), {"x": integers(dtype, 3, 4, 5)}, constants,
          references=definition("DequantizeLinear"))  # fmt: skip


def test_dequantize_int32(provider):
    one = node("DequantizeLinear", "x s")
    check(provider, one, {"x": integers(np.int32, 7)}, {"s": np.array(0.01, np.float32)},
          references=definition("DequantizeLinear"))  # fmt: skip


@pytest.mark.parametrize(
    "x", [some(3, 5), np.zeros((2, 2), np.float32), some(4) + 3, some(4) - 3], ids=lambda x: str(x.shape)
)
def test_dynamic_quantize(provider, x):
    one = node("DynamicQuantizeLinear", "x", "y s z")
    check(provider, one, {"x": x}, references=definition("DynamicQuantizeLinear"))


@pytest.mark.parametrize("odd", [[np.nan], [np.nan, np.inf], [-np.inf], [np.inf, -np.inf]], ids=str)
def test_dynamic_quantize_of_what_is_no_number(provider, odd):
    x = some(21)
    x[3 : 3 + len(odd)] = odd
    with np.errstate(invalid="ignore"):  # infinite by infinite
        check(provider, node("DynamicQuantizeLinear", "x", "y s z"), {"x": x},
              references=definition("DynamicQuantizeLinear"))  # fmt: skip


@pytest.mark.parametrize("a_type", [np.uint8, np.int8], ids=lambda t: t.__name__)
@pytest.mark.parametrize("b_type", [np.uint8, np.int8], ids=lambda t: t.__name__)
@pytest.mark.parametrize("zeros", ["", "a", "b", "ab", "columns"])
@pytest.mark.parametrize("computed", [False, True])
def test_matmul_integer(provider, a_type, b_type, zeros, computed):
    a, b = integers(a_type, 2, 5, 33), integers(b_type, 33, 19)
    constants = {"b": b}
    names = "a b"
    if zeros:
        names += " za" if "a" in zeros else " -"
        constants["za"] = integers(a_type)
        if zeros == "columns":
            constants["zb"] = integers(b_type, 19)
        elif "b" in zeros:
            constants["zb"] = integers(b_type)
        names += " zb" if "zb" in constants else ""
    feeds = {"a": a}
    if computed:
        feeds["b"] = constants.pop("b")
    constants = {k: np.asarray(v) for k, v in constants.items() if k in names.split()}
    check(provider, node("MatMulInteger", names), feeds, constants, references=definition("MatMulInteger"))


def to_float(a, b, a_scale, b_scale, a_zero, b_zero, bias):
    product = (a.astype(np.int64) - np.int64(a_zero)) @ (b.astype(np.int64) - b_zero.astype(np.int64))
    return (product.astype(np.float32) * (a_scale * b_scale) + bias).astype(np.float32)


def dynamic(a, b, scale, zero, bias):
    found = find("DynamicQuantizeLinear", "", 11)
    assert found is not None
    quantized, a_scale, a_zero = found.function(a)
    return to_float(quantized, b, a_scale, scale, a_zero, zero, bias)


def test_dynamic_quantize_matmul(provider):
    constants = {"b": integers(np.int8, 24, 10), "s": RNG.uniform(0.01, 0.02, 10).astype(np.float32),
                 "z": integers(np.int8, 10), "bias": some(10)}  # fmt: skip
    one = node("DynamicQuantizeMatMul", "a b s z bias", domain="com.microsoft", version=1)
    check(provider, one, {"a": some(2, 3, 24)}, constants, rtol=1e-4, atol=1e-4,
          references={"DynamicQuantizeMatMul": dynamic})  # fmt: skip


def test_matmul_integer_to_float(provider):
    constants = {"b": integers(np.uint8, 24, 10), "sa": np.array(0.02, np.float32), "sb": np.array(0.01, np.float32),
                 "za": np.array(120, np.uint8), "zb": np.array(130, np.uint8), "bias": some(10)}  # fmt: skip
    one = node("MatMulIntegerToFloat", "a b sa sb za zb bias", domain="com.microsoft", version=1)
    check(provider, one, {"a": integers(np.uint8, 3, 24)}, constants, rtol=1e-4, atol=1e-4,
          references={"MatMulIntegerToFloat": to_float})  # fmt: skip


def test_blocks_are_refused(provider):
    one = node("DequantizeLinear", "x s", block_size=2, axis=1)
    constants = {"s": np.full((2, 2), 0.5, np.float32)}
    assert refusal(provider, one, {"x": integers(np.int8, 2, 4)}, constants, definition("DequantizeLinear"))
