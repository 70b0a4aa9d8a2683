"""Matrix products through compiled programs, against NumPy and onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

from onnxlet.graph.ir import Node

from .helpers import check, node, refusal

RNG = np.random.default_rng(5)


def some(*shape: int) -> np.ndarray:
    return RNG.uniform(-1, 1, shape).astype(np.float32)


SHAPES = [
    ((3, 4), (4, 5)), ((1, 64), (64, 40)), ((7, 33), (33, 17)), ((100, 20), (20, 9)), ((2, 3, 4), (4, 5)),
    ((2, 3, 4, 5), (2, 3, 5, 6)), ((2, 1, 4, 5), (3, 5, 6)), ((4, 5), (3, 5, 6)), ((5,), (5, 3)), ((3, 5), (5,)),
    ((5,), (5,)), ((2, 3, 5), (5,)), ((5,), (2, 5, 3)), ((2, 2, 2, 1, 4, 5), (2, 1, 2, 3, 5, 2)), ((3, 0), (0, 4)),
    ((0, 4), (4, 3)), ((2, 0, 4), (2, 4, 3)),
]  # fmt: skip


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("constant", ["", "a", "b"])
def test_matmul(provider, shapes, constant):
    values = {"a": some(*shapes[0]), "b": some(*shapes[1])}
    feeds = {k: v for k, v in values.items() if k != constant}
    check(provider, node("MatMul", "a b"), feeds, {constant: values[constant]} if constant else {},
          references={"MatMul": np.matmul})  # fmt: skip


@pytest.mark.parametrize("transposes", [(0, 0), (0, 1), (1, 0), (1, 1)])
@pytest.mark.parametrize("constants", ["", "b", "bc", "ac"])
@pytest.mark.parametrize("addend", [None, (), (1,), (9,), (1, 9), (6, 1), (6, 9)], ids=str)
@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 1.0), (0.5, 2.0)])
def test_gemm(provider, transposes, constants, addend, alpha, beta):
    m, n, k = 6, 9, 13
    trans_a, trans_b = transposes
    values = {"a": some(k, m) if trans_a else some(m, k), "b": some(n, k) if trans_b else some(k, n)}
    if addend is not None:
        values["c"] = np.asarray(some(*addend))
    feeds = {name: v for name, v in values.items() if name not in constants}
    rest = {name: v for name, v in values.items() if name in constants}
    one = node("Gemm", " ".join(values), transA=trans_a, transB=trans_b, alpha=alpha, beta=beta)

    def reference(a, b, c=0, **_):
        product = (a.T if trans_a else a) @ (b.T if trans_b else b)
        return (np.float32(alpha) * product + np.float32(beta) * c).astype(np.float32)

    check(provider, one, feeds, rest, references={"Gemm": reference})


def fused(a, b, bias=None, residual=None, *, transA=0, transB=0, alpha=1.0, activation="", activation_params=()):
    a = np.swapaxes(a, -1, -2) if transA else a
    b = np.swapaxes(b, -1, -2) if transB else b
    y = np.float32(alpha) * (a @ b) + (0 if bias is None else bias) + (0 if residual is None else residual)
    functions = {
        "": lambda v: v,
        "Relu": lambda v: np.maximum(v, 0),
        "Clip": lambda v: np.clip(v, *activation_params),
        "Tanh": np.tanh,
        "GeluTanh": lambda v: 0.5 * v * (1 + np.tanh(np.sqrt(2 / np.pi) * (v + 0.044715 * v**3))),
    }
    return functions[activation](y).astype(np.float32)


@pytest.mark.parametrize("activation", [{}, {"activation": "Relu"}, {"activation": "Tanh"}, {"activation": "GeluTanh"},
                                        {"activation": "Clip", "activation_params": [-0.2, 0.4]}], ids=str)  # fmt: skip
@pytest.mark.parametrize("inputs", ["a b", "a b bias", "a b bias r", "a b - r"])
@pytest.mark.parametrize("transposes", [(0, 0), (1, 0), (0, 1)])
def test_fused_matmul(provider, activation, inputs, transposes):
    trans_a, trans_b = transposes
    values = {
        "a": some(21, 10) if trans_a else some(2, 10, 21),
        "b": some(18, 21) if trans_b else some(21, 18),
        "bias": some(18),
    }
    values["r"] = some(10, 18) if trans_a else some(2, 10, 18)
    one = node(
        "FusedMatMul", inputs, domain="ai.onnxlet", version=1, transA=trans_a, transB=trans_b, alpha=0.5, **activation
    )
    feeds = {n: values[n] for n in one.inputs if n in ("a", "r")}
    constants = {n: values[n] for n in one.inputs if n in ("b", "bias")}
    check(provider, one, feeds, constants, references={"FusedMatMul": fused})


@pytest.mark.parametrize("transposes", [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_fused_matmul_of_stacks(provider, transposes):
    trans_a, trans_b = transposes
    a, b = some(2, 3, 7, 5), some(2, 3, 5, 9)
    feeds = {"a": np.swapaxes(a, -1, -2).copy() if trans_a else a, "b": np.swapaxes(b, -1, -2).copy() if trans_b else b}
    one = node("FusedMatMul", "a b", domain="com.microsoft", version=1, transA=trans_a, transB=trans_b, alpha=0.125)
    check(provider, one, feeds, references={"FusedMatMul": fused})


def test_large_product_in_blocks(provider):
    a, b = some(130, 700), some(700, 130)
    check(provider, node("MatMul", "a b"), {"a": a}, {"b": b}, rtol=1e-4, atol=1e-4, references={"MatMul": np.matmul})


def test_bytes_are_refused(provider):
    one = np.ones((2, 2), np.uint8)
    reason = refusal(provider, node("MatMul", "a b"), {"a": one, "b": one}, references={"MatMul": np.matmul})
    assert reason == "uint8 has no kernel here"


@pytest.mark.parametrize(
    ("attributes", "activate"),
    [
        ({"activation": "LeakyRelu", "activation_alpha": 0.3}, lambda y: np.where(y < 0, 0.3 * y, y)),
        ({"activation": "LeakyRelu"}, lambda y: np.where(y < 0, 0.01 * y, y)),
        ({"activation": "Clip", "activation_beta": 0.5}, lambda y: np.minimum(y, 0.5)),
        ({"activation": "Clip", "activation_alpha": -0.1, "activation_beta": 0.5}, lambda y: np.clip(y, -0.1, 0.5)),
    ],
)
def test_fused_gemm_has_an_attribute_for_each_parameter(provider, attributes, activate):
    a, b, c = some(3, 4), some(4, 17), some(17)
    one = Node("FusedGemm", ["a", "b", "c"], ["y"], {"alpha": 0.5, **attributes}, "com.microsoft", 1)
    result = (activate(0.5 * a @ b + c)).astype(np.float32)
    check(provider, one, {"a": a, "b": b, "c": c}, references={"FusedGemm": lambda *_, **__: result})
