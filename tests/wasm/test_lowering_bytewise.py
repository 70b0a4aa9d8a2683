"""Functions between DequantizeLinear and QuantizeLinear through compiled programs, against the NumPy definitions."""

from __future__ import annotations

import numpy as np
import pytest

from onnxlet.ops.registry import find

from .helpers import check, node

RNG = np.random.default_rng(47)


def definitions(*operators: str, domain: str = "") -> dict:
    """The NumPy definitions; those of what quantises come with them."""
    found = {}
    for name in operators:
        entry = find(name, domain, 1 if domain else 21)
        assert entry is not None, name
        found[name] = entry.function
    for name in ("QuantizeLinear", "DequantizeLinear"):
        entry = find(name, "", 21)
        assert entry is not None
        found[name] = entry.function
    return found


def integers(dtype, *shape: int) -> np.ndarray:
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max + 1, shape).astype(dtype)


SCALES = {"s": np.array(0.03, np.float32), "t": np.array(0.05, np.float32), "u": np.array(0.02, np.float32)}
ZEROS = {"z": np.array(120, np.uint8), "v": np.array(-3, np.int8), "w": np.array(90, np.uint8)}
CONSTANTS = {**SCALES, **ZEROS, "half": np.array(0.5, np.float32), "one": np.array([1.0], np.float32)}

CHAINS = [
    [],
    [node("Sigmoid", "a", "b")],
    [node("Relu", "a", "b")],
    [node("Sigmoid", "a", "g"), node("Mul", "a g", "b")],
    [node("HardSigmoid", "a", "g"), node("Mul", "g a", "h"), node("Add", "h half", "b")],
    [node("Mul", "a half", "h"), node("Erf", "h", "e"), node("Add", "e one", "f"), node("Mul", "f a", "b")],
    [node("LeakyRelu", "a", "b", alpha=0.1)],
    [node("Clip", "a half one", "b")],
]


@pytest.mark.parametrize("chain", CHAINS, ids=lambda c: "-".join(n.op_type for n in c) or "nothing")
@pytest.mark.parametrize("target", ["v", "w"])
def test_functions_of_one_tensor(provider, chain, target):
    last = chain[-1].outputs[0] if chain else "a"
    nodes = [node("DequantizeLinear", "x s z", "a"), *chain, node("QuantizeLinear", f"{last} t {target}")]
    used = {n for one in nodes for n in one.inputs}
    constants = {k: v for k, v in CONSTANTS.items() if k in used}
    references = definitions(*(n.op_type for n in chain))
    program = check(provider, nodes, {"x": integers(np.uint8, 2, 3, 5, 7)}, constants, references=references, atol=0,
                    rtol=0)  # fmt: skip
    assert program.kernels == ["byte_table"]


@pytest.mark.parametrize("operator", ["Add", "Mul"])
@pytest.mark.parametrize("activation", ["", "Relu", "Clip"])
@pytest.mark.parametrize("shape", [(3,), (2, 3, 5, 7), (0, 4)], ids=str)
def test_functions_of_two_tensors(provider, operator, activation, shape):
    nodes = [
        node("DequantizeLinear", "x s z", "a"),
        node("DequantizeLinear", "r u v", "b"),
        node(operator, "a b", "c"),
        *([node(activation, "c half one" if activation == "Clip" else "c", "d")] if activation else []),
        node("QuantizeLinear", f"{'d' if activation else 'c'} t w"),
    ]
    used = {n for one in nodes for n in one.inputs}
    constants = {k: v for k, v in CONSTANTS.items() if k in used}
    feeds = {"x": integers(np.uint8, *shape), "r": integers(np.int8, *shape)}
    references = definitions(operator, *([activation] if activation else []))
    program = check(provider, nodes, feeds, constants, references=references, atol=0, rtol=0)
    assert program.kernels == (["byte_pair"] if np.prod(shape) else [])


def test_what_is_read_elsewhere_stays(provider):
    nodes = [
        node("DequantizeLinear", "x s z", "a"),
        node("Sigmoid", "a", "b"),
        node("QuantizeLinear", "b t w", "y"),
        node("Neg", "b", "n"),
    ]
    constants = {k: CONSTANTS[k] for k in "sztw"}
    references = definitions("Sigmoid", "Neg")
    program = check(provider, nodes, {"x": integers(np.uint8, 9)}, constants, outputs=["y", "n"], references=references)
    assert "byte_table" not in program.kernels


def test_scales_per_channel_and_broadcasting_stay(provider):
    scales = {"s": RNG.uniform(0.01, 0.03, 3).astype(np.float32), "z": integers(np.uint8, 3)}
    nodes = [node("DequantizeLinear", "x s z", "a", axis=1), node("Relu", "a", "b"), node("QuantizeLinear", "b t w")]
    constants = {**scales, "t": CONSTANTS["t"], "w": CONSTANTS["w"]}
    feeds = {"x": integers(np.uint8, 2, 3, 4)}
    program = check(provider, nodes, feeds, constants, references=definitions("Relu"), atol=1)
    assert "byte_table" not in program.kernels
    nodes = [
        node("DequantizeLinear", "x s z", "a"),
        node("DequantizeLinear", "r s z", "b"),
        node("Add", "a b", "c"),
        node("QuantizeLinear", "c t w"),
    ]
    feeds = {"x": integers(np.uint8, 2, 3, 4), "r": integers(np.uint8, 3, 1)}
    constants = {k: CONSTANTS[k] for k in "sztw"}
    program = check(provider, nodes, feeds, constants, references=definitions("Add"), atol=1)
    assert "byte_pair" not in program.kernels
