"""Quantising and dequantising in one kernel, in every build, against one after the other by the NumPy definitions."""

from __future__ import annotations

import numpy as np
import pytest

from onnxlet.ops.registry import find
from onnxlet_wasm.provider import KernelProvider

from .helpers import check, node

RNG = np.random.default_rng(61)
TYPES = [np.uint8, np.int8, np.uint16, np.int16]
SPECIAL = np.float32([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e30, -1e30, 0.005, 0.015, -0.005])


@pytest.fixture
def provider(engine):
    return KernelProvider(engine)


REFERENCES = {o: find(o, "", 21).function for o in ("QuantizeLinear", "DequantizeLinear")}  # type: ignore[union-attr]


def run(provider, nodes, feeds, constants, outputs=("y",)):
    with np.errstate(all="ignore"):
        return check(provider, nodes, feeds, constants, outputs=outputs, references=REFERENCES, rtol=0, atol=0)


def some(*shape: int) -> np.ndarray:
    x = RNG.uniform(-4, 4, shape).astype(np.float32)
    return np.where(RNG.random(shape) < 0.1, RNG.choice(SPECIAL, shape), x)


def integers(dtype, *shape: int) -> np.ndarray:
    return np.asarray(RNG.integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, shape), dtype)


@pytest.mark.parametrize("dtype", TYPES, ids=lambda t: t.__name__)
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("shape", [(3, 4, 5), (2, 3, 7, 9)], ids=str)
def test_pair(provider, dtype, axis, shape):
    count = () if axis is None else (shape[axis],)
    constants = {"s": np.asarray(RNG.uniform(0.01, 0.02, count), np.float32), "z": integers(dtype, *count)}
    attributes = {} if axis is None else {"axis": axis}
    nodes = [node("QuantizeLinear", "x s z", "q", **attributes), node("DequantizeLinear", "q s z", **attributes)]
    program = run(provider, nodes, {"x": some(*shape)}, constants)
    assert program.kernels == ["fake_quantize"]


def test_scales_and_readers_may_differ(provider):
    nodes = [
        node("QuantizeLinear", "x s z", "q"), node("DequantizeLinear", "q one z2", "a"),
        node("DequantizeLinear", "q s z", "b"), node("Add", "a x", "y"),
    ]  # fmt: skip
    constants = {"s": np.float32(0.02), "one": np.float32([1]), "z": np.uint8(120), "z2": np.uint8(120)}
    constants = {k: np.asarray(v) for k, v in constants.items()}
    program = run(provider, nodes, {"x": some(5, 7)}, constants, ("b", "y"))
    assert program.kernels == ["fake_quantize", "fake_quantize", "binary"]


def test_what_is_not_a_pair_stays_apart(provider):
    constants = {"s": np.asarray(0.02, np.float32), "z": np.asarray(120, np.uint8), "w": np.asarray(7, np.uint8)}
    quantize, dequantize = node("QuantizeLinear", "x s z", "q"), node("DequantizeLinear", "q s z")
    x = {"x": some(5, 7)}
    assert run(provider, [quantize, dequantize], x, constants, ("q", "y")).kernels == ["quantize", "dequantize"]
    other = node("DequantizeLinear", "q s w")
    assert run(provider, [quantize, other], x, constants).kernels == ["quantize", "dequantize"]


@pytest.mark.parametrize("dtype", TYPES, ids=lambda t: t.__name__)
@pytest.mark.parametrize("axis", [None, 0])
@pytest.mark.parametrize("zero", ["lowest", "highest", "any"])
def test_quantize_of_special_values(provider, dtype, axis, zero):
    info, count = np.iinfo(dtype), () if axis is None else (5,)
    point = {"lowest": np.full(count, info.min), "highest": np.full(count, info.max)}.get(zero, integers(dtype, *count))
    constants = {"s": np.asarray(RNG.uniform(0.01, 0.02, count), np.float32), "z": point.astype(dtype)}
    run(provider, [node("QuantizeLinear", "x s z", **({} if axis is None else {"axis": axis}))], {"x": some(5, 43)},
        constants)  # fmt: skip
