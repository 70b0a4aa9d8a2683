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


def packed_weights(n: int, bits: int, suffix: str) -> dict[str, np.ndarray]:
    return {
        f"b{suffix}": RNG.integers(0, 256, (n, 2, 2 * bits), dtype=np.uint8),
        f"s{suffix}": RNG.uniform(0.01, 0.02, n * 2).astype(np.float32), f"c{suffix}": some(n),
    }  # fmt: skip


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("inputs", ["x k g", "x - g", "x k -"])
@pytest.mark.parametrize("activation", ["silu", "gelu", "relu"])
def test_gated_products_of_one_input(provider, bits, inputs, activation):
    constants = packed_weights(20, bits, "1") | packed_weights(20, bits, "2")
    feeds = {"x": some(2, 3, 32), "k": some(2, 3, 32), "g": some(32)}
    feeds = {name: value for name, value in feeds.items() if name in inputs}
    one = node("MatMulNBitsMlp", f"{inputs} b1 s1 c1 b2 s2", "y t", domain=MICROSOFT, version=1, K=32, N=20, bits=bits,
               block_size=16, activation=activation)  # fmt: skip
    del constants["c2"]
    references = definition("MatMulNBitsMlp", 1, MICROSOFT)
    check(provider, one, feeds, constants, references=references, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("outputs", ["q k v t", "q k v"])
def test_queries_keys_and_values_of_one_input(provider, outputs):
    constants = packed_weights(24, 4, "1") | packed_weights(9, 4, "2") | packed_weights(9, 4, "3")
    feeds = {"x": some(1, 32), "s": some(1, 32), "g": some(32)}
    one = node("MatMulNBitsQkv", "x s g b1 s1 c1 b2 s2 c2 b3 s3 c3", outputs, domain=MICROSOFT, version=1, K=32, Nq=24,
               Nkv=9, bits=4, block_size=16)  # fmt: skip
    references = definition("MatMulNBitsQkv", 1, MICROSOFT)
    check(provider, one, feeds, constants, references=references, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("dtype", [np.int32, np.int64], ids=lambda t: t.__name__)
def test_rows_of_small_tables(provider, bits, zeros, dtype):
    for rows, columns, block in (((7,), 32, 16), ((5, 3), 48, 32), ((4,), 16, 0)):
        blocks = -(-columns // (block or columns))
        constants = {"t": RNG.integers(0, 256, (*rows, columns * bits // 8), dtype=np.uint8), "s": some(*rows, blocks)}
        if zeros:
            constants["z"] = RNG.integers(0, 256, (*rows, -(-blocks * bits // 8)), dtype=np.uint8)
        indices = np.array([[1, -1, 0], [3, 99, -rows[0]]], dtype)
        one = node("GatherBlockQuantized", "t i s z" if zeros else "t i s", domain=MICROSOFT, version=1, bits=bits,
                   block_size=block, quantize_axis=-1)  # fmt: skip
        references = definition("GatherBlockQuantized", 1, MICROSOFT)
        for i in (indices, indices[:0]):
            check(provider, one, {"i": i}, constants, references=references)
