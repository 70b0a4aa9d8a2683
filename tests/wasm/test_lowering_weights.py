"""Products by weights of a few bits through compiled programs, against the NumPy definitions."""

from __future__ import annotations

import numpy as np
import pytest

from onnxlet.ops.registry import find

from .helpers import check, node, refusal

RNG = np.random.default_rng(43)
MICROSOFT = "com.microsoft"


def some(*shape: int) -> np.ndarray:
    return RNG.uniform(-1, 1, shape).astype(np.float32)


def definition(operator: str, version: int = 21, domain: str = ""):
    found = find(operator, domain, version)
    assert found is not None, operator
    return {operator: found.function}


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("zeros", ["", "packed", "float"])
@pytest.mark.parametrize(("shape", "n", "block"), [((1, 70), 9, 16), ((2, 3, 64), 24, 32), ((5, 33), 7, 64)], ids=str)
@pytest.mark.parametrize("bias", [False, True])
def test_matmul_n_bits(provider, shape, n, block, bits, zeros, bias):
    k = shape[-1]
    blocks = -(-k // block)
    constants = {
        "b": RNG.integers(0, 256, (n, blocks, block * bits // 8), dtype=np.uint8),
        "s": RNG.uniform(0.01, 0.02, n * blocks).astype(np.float32),
    }
    if zeros == "packed":
        constants["z"] = RNG.integers(0, 256, n * -(-blocks * bits // 8), dtype=np.uint8)
    elif zeros == "float":
        constants["z"] = some(n * blocks) * 3
    if bias:
        constants["c"] = some(n)
    names = f"a b s {'z' if zeros else '-'}" + (" - c" if bias else "")
    one = node("MatMulNBits", names.removesuffix(" -"), domain=MICROSOFT, version=1, K=k, N=n, bits=bits,
               block_size=block)  # fmt: skip
    check(provider, one, {"a": some(*shape)}, constants, references=definition("MatMulNBits", 1, MICROSOFT))


def test_rows_in_another_order_are_refused(provider):
    constants = {"b": np.zeros((8, 1, 8), np.uint8), "s": some(8), "g": np.zeros(16, np.int32)}
    one = node("MatMulNBits", "a b s - g", domain=MICROSOFT, version=1, K=16, N=8, bits=4, block_size=16)
    reason = refusal(provider, one, {"a": some(2, 16)}, constants, definition("MatMulNBits", 1, MICROSOFT))
    assert "another order" in (reason or "")


@pytest.mark.parametrize("dtype", [np.int8, np.uint8], ids=lambda t: t.__name__)
@pytest.mark.parametrize("form", ["dequantize", "per column", "scaled", "shifted", "per row"])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("m", [1, 7])
def test_products_by_bytes(provider, dtype, form, transposed, m):
    k, n = 21, 12
    info = np.iinfo(dtype)
    constants = {"q": RNG.integers(info.min, info.max + 1, (n, k) if transposed else (k, n)).astype(dtype)}
    column = 0 if transposed else 1
    spread = (n, 1) if transposed else (1, n)
    if form in ("dequantize", "per column", "per row"):
        axis = 1 - column if form == "per row" else column
        count = () if form == "dequantize" else (k if form == "per row" else n,)
        constants |= {
            "s": np.asarray(RNG.uniform(0.01, 0.02, count), np.float32),
            "z": np.zeros(count, dtype) + dtype(5),
        }
        nodes = [node("DequantizeLinear", "q s z", "w", axis=axis)]
    else:
        constants |= {"s": RNG.uniform(0.01, 0.02, spread).astype(np.float32), "z": np.array([3.0], np.float32)}
        nodes = [node("Cast", "q", "f", to=1)]
        nodes += [node("Sub", "f z", "g")] if form == "shifted" else []
        nodes.append(node("Mul", f"{'g' if form == 'shifted' else 'f'} s", "w"))
    if transposed:
        nodes.append(node("Transpose", "w", "t", perm=[1, 0]))
    nodes.append(node("MatMul", f"x {'t' if transposed else 'w'}"))
    program = check(provider, nodes, {"x": some(m, k)}, constants)
    assert ("gemm_weights" in program.kernels) == (form != "per row")


def test_products_by_bytes_with_what_follows(provider):
    constants = {
        "q": RNG.integers(-128, 128, (12, 21)).astype(np.int8), "s": np.array(0.01, np.float32), "c": some(12),
    }  # fmt: skip
    nodes = [
        node("DequantizeLinear", "q s", "w"),
        node("FusedMatMul", "x w c r", domain="ai.onnxlet", version=1, transB=1, activation="Relu"),
    ]
    references = definition("FusedMatMul", 1, "ai.onnxlet")
    program = check(provider, nodes, {"x": some(2, 3, 21), "r": some(2, 3, 12)}, constants, references=references)
    assert "gemm_weights" in program.kernels
