"""Programs: layouts, memory shared by liveness, values that stay in memory, several programs and sessions."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxlet import InferenceSession
from onnxlet.errors import LimitError, SessionClosedError
from onnxlet_wasm.program import Program, ResidentValue
from onnxlet_wasm.provider import create

from .helpers import check, make_segment, node

RNG = np.random.default_rng(23)


def some(*shape: int) -> np.ndarray:
    return RNG.uniform(-1, 1, shape).astype(np.float32)


def count(program: Program, *kernels: str) -> int:
    return sum(program.kernels.count(k) for k in kernels)


MOVES = ("copy", "nchw_to_nhwc", "nhwc_to_nchw")


def test_convolution_segment_stays_channels_last(provider):
    nodes = [
        node("Conv", "x w1 b", "c1", pads=[1, 1, 1, 1]),
        node("Relu", "c1", "r1"),
        node("Mul", "r1 s", "m1"),
        node("Conv", "m1 w2", "c2", pads=[1, 1, 1, 1], group=8),
        node("Add", "c2 m1", "a"),
        node("Concat", "a r1", "k", axis=1),
        node("MaxPool", "k", "p", kernel_shape=[2, 2], strides=[2, 2]),
        node("Pad", "p pads", "q"),
        node("Softmax", "q", "t", axis=1),
        node("Conv", "t w3", "y"),
    ]
    constants = {
        "w1": some(8, 8, 3, 3), "b": some(8), "s": some(8, 1, 1), "w2": some(8, 1, 3, 3), "w3": some(5, 16, 1, 1),
        "pads": np.array([0, 0, 1, 1, 0, 0, 1, 1]),
    }  # fmt: skip
    program = check(provider, nodes, {"x": some(1, 8, 10, 12)}, constants)
    # In, out, two parts of Concat, the inside of Pad.
    assert count(program, *MOVES) == 2 + 2 + 1


def test_value_moves_once_per_layout(provider):
    nodes = [node("Conv", f"x w{i}", f"c{i}", pads=[1, 1, 1, 1]) for i in range(3)]
    nodes += [node("Sum", "c0 c1 c2", "y")]
    program = check(provider, nodes, {"x": some(1, 8, 6, 7)}, {f"w{i}": some(8, 8, 3, 3) for i in range(3)})
    assert count(program, *MOVES) == 2


def test_transposes_of_the_exporter_are_views(provider):
    nodes = [
        node("Transpose", "x", "t", perm=[0, 3, 1, 2]),
        node("Conv", "t w", "c", pads=[1, 1, 1, 1]),
        node("Transpose", "c", "l", perm=[0, 2, 3, 1]),
        node("LayerNormalization", "l g", "n"),
        node("Transpose", "n", "y", perm=[0, 3, 1, 2]),
    ]
    constants = {"w": some(8, 6, 3, 3), "g": some(8)}
    program = check(provider, nodes, {"x": some(2, 5, 7, 6)}, constants, outputs=["l"])
    assert count(program, *MOVES) == 0
    check(provider, nodes, {"x": some(2, 5, 7, 6)}, constants)


def test_one_dimensional_convolution_through_two(provider):
    nodes = [
        node("Conv", "x w1", "c", pads=[1, 1]),
        node("Unsqueeze", "c a", "u"),
        node("Conv", "u w2", "d"),
        node("Squeeze", "d a", "s"),
        node("Conv", "s w1", "y", pads=[1, 1]),
    ]
    constants = {"w1": some(8, 8, 3), "w2": some(8, 8, 1, 1), "a": np.array([2])}
    program = check(provider, nodes, {"x": some(2, 8, 11)}, constants)
    assert count(program, *MOVES) == 2


def test_vector_of_channels_lies_in_both_layouts(provider):
    nodes = [
        node("Conv", "x w", "c", pads=[1, 1, 1, 1]),
        node("GlobalAveragePool", "c", "g"),
        node("Flatten", "g", "f"),
        node("Gemm", "f m", "y", transB=1),
    ]
    program = check(provider, nodes, {"x": some(2, 3, 9, 8)}, {"w": some(8, 3, 3, 3), "m": some(10, 8)})
    assert program.kernels == ["nchw_to_nhwc", "conv", "global_pool", "gemm"]


def test_squeeze_and_excite_keeps_its_layout(provider):
    nodes = [
        node("Conv", "x w", "c", pads=[1, 1, 1, 1]),
        node("GlobalAveragePool", "c", "g"),
        node("Conv", "g v", "e"),
        node("HardSigmoid", "e", "h"),
        node("Mul", "c h", "m"),
        node("Conv", "m v", "y"),
    ]
    program = check(provider, nodes, {"x": some(2, 3, 9, 8)}, {"w": some(8, 3, 3, 3), "v": some(8, 8, 1, 1)})
    assert count(program, *MOVES) == 2  # in and out


def test_chain_works_in_place(provider):
    names = ["x", "a", "b", "c", "y"]
    nodes = [node("Sigmoid", i, o) for i, o in pairwise(names)]
    program = check(provider, nodes, {"x": some(100, 100)})
    assert program.arena_bytes < 2 * 40_000


def test_values_that_are_needed_later_are_not_overwritten(provider):
    nodes = [
        node("Relu", "x", "a"),
        node("Neg", "a", "b"),
        node("Reshape", "b s", "v"),
        node("Abs", "b", "d"),
        node("Exp", "v", "e"),
        node("Reshape", "e t", "f"),
        node("Sum", "x a d f", "y"),
    ]
    constants = {"s": np.array([-1]), "t": np.array([3, 4])}
    check(provider, nodes, {"x": some(3, 4)}, constants, outputs=["y", "a", "v", "b"])


def test_outputs_that_are_views(provider):
    x = some(4, 6)
    nodes = [node("Identity", "x", "i"), node("Split", "x", "a b", axis=0, num_outputs=2), node("Neg", "a", "y")]
    check(provider, nodes, {"x": x}, outputs=["i", "a", "b", "y", "y"])


def test_constant_as_output(provider):
    nodes = [node("Identity", "k", "i"), node("Add", "x k", "y")]
    check(provider, nodes, {"x": some(2, 3)}, {"k": some(3)}, outputs=["i", "y"])


def random_graph(rng: random.Random):
    """Convolutions, elementwise operators, joins and views over images of one size."""
    nodes, constants, known = [], {"w": some(4, 4, 3, 3), "d": some(4, 1, 3, 3), "s": some(4, 1, 1)}, ["x"]
    for i in range(rng.randrange(5, 25)):
        a, b, out = rng.choice(known[-4:]), rng.choice(known), f"v{i}"
        kind = rng.randrange(9)
        if kind == 0:
            nodes.append(node("Conv", f"{a} w", out, pads=[1, 1, 1, 1]))
        elif kind == 1:
            nodes.append(node("Conv", f"{a} d", out, pads=[1, 1, 1, 1], group=4))
        elif kind == 2:
            nodes.append(node("Add", f"{a} {b}", out))
        elif kind == 3:
            nodes.append(node("Tanh", a, out))
        elif kind == 4:
            nodes.append(node("Mul", f"{a} s", out))
        elif kind == 5:
            nodes.append(node("Transpose", a, out, perm=[0, 1, 3, 2]))
        elif kind == 6:
            nodes += [node("Split", a, f"{out}a {out}b", axis=1, num_outputs=2)]
            nodes += [node("Concat", f"{out}b {out}a", out, axis=1)]
        elif kind == 7:
            nodes += [node("Transpose", a, f"{out}t", perm=[0, 2, 3, 1]), node("Softmax", f"{out}t", f"{out}u")]
            nodes += [node("Transpose", f"{out}u", out, perm=[0, 3, 1, 2])]
        else:
            nodes += [node("GlobalMaxPool", a, f"{out}g"), node("Sub", f"{b} {out}g", out)]
        known.append(out)
    outputs = [known[-1], *rng.sample(known[1:], 2)]
    return nodes, constants, outputs


@pytest.mark.parametrize("seed", range(25))
def test_sharing_memory_changes_nothing(provider, seed):
    nodes, constants, outputs = random_graph(random.Random(seed))
    x = some(1, 4, 6, 6)
    segment, values = make_segment(nodes, {"x": x}, constants, outputs)
    shared, apart = (Program(provider._memory, segment, share_memory=s) for s in (True, False))
    assert shared.arena_bytes <= apart.arena_bytes
    for _ in range(2):
        for name, a, b in zip(outputs, shared.run([x]), apart.run([x]), strict=True):
            assert isinstance(a, np.ndarray)
            np.testing.assert_array_equal(a, b, err_msg=name)
            np.testing.assert_allclose(a, values[name], rtol=1e-3, atol=1e-3, err_msg=name)


def test_programs_share_an_arena_that_grows(provider):
    small, large = some(2, 3), some(200, 300)
    one = [node("Sigmoid", "x", "a"), node("Add", "a x", "y")]
    first, first_values = make_segment(one, {"x": small}, {}, ["y"])
    second, second_values = make_segment(one, {"x": large}, {}, ["y"])
    a = provider.compile(first)
    np.testing.assert_allclose(a.run([small])[0], first_values["y"], rtol=1e-5)
    b = provider.compile(second)
    for _ in range(2):
        np.testing.assert_allclose(b.run([large])[0], second_values["y"], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(a.run([small])[0], first_values["y"], rtol=1e-5)
    assert provider.memory_stats()["arena"] == b.arena_bytes


def test_resident_values(provider):
    x = some(3, 8, 8)
    first, _ = make_segment([node("Exp", "x", "a"), node("Neg", "a", "b")], {"x": x}, {}, ["a", "b"], resident=["a"])
    a, b = np.exp(x), -np.exp(x)
    second, values = make_segment([node("Add", "a b", "y")], {"a": a, "b": b}, {}, ["y"])
    producer, consumer = provider.compile(first), provider.compile(second)
    for _ in range(2):
        kept, brought = producer.run([x])
        assert isinstance(kept, ResidentValue)
        assert isinstance(brought, np.ndarray)
        assert kept.shape == x.shape
        np.testing.assert_allclose(kept.numpy(), a, rtol=1e-5)
        np.testing.assert_allclose(consumer.run([kept, brought])[0], values["y"], atol=1e-5)


def test_half_precision_is_computed_in_single(provider):
    nodes = [node("Mul", "x k", "big"), node("Div", "big k", "y"), node("Cast", "x", "z", to=10)]
    x = np.array([1.5, -2.25, 1000.0], np.float16)
    segment, _ = make_segment(nodes, {"x": x}, {"k": np.array(1000, np.float16)}, ["big", "y", "z"])
    assert all(provider.supports(step) is None for step in segment.steps)
    big, y, z = provider.compile(segment).run([x])
    assert big.dtype == y.dtype == z.dtype == np.float16
    np.testing.assert_array_equal(big, np.array([1500, -2250, np.inf], np.float16))
    np.testing.assert_array_equal(y, x)
    np.testing.assert_array_equal(z, x)


def test_half_precision_weights_and_resident_values(provider):
    x, w, b = some(3, 8).astype(np.float16), some(8, 8).astype(np.float16), some(8).astype(np.float16)
    first, values = make_segment([node("Gemm", "x w b", "g")], {"x": x}, {"w": w, "b": b}, ["g"], resident=["g"])
    second, ends = make_segment([node("Tanh", "g", "y")], {"g": values["g"]}, {}, ["y"])
    (kept,) = provider.compile(first).run([x])
    assert kept.dtype == np.float16
    np.testing.assert_allclose(kept.numpy(), values["g"], rtol=2e-3, atol=2e-3)
    (y,) = provider.compile(second).run([kept])
    assert y.dtype == np.float16
    np.testing.assert_allclose(y, ends["y"], rtol=2e-3, atol=2e-3)


def test_weights_are_placed_once(provider):
    w = some(64, 64)
    segment, _ = make_segment([node("MatMul", "x w")], {"x": some(3, 64)}, {"w": w}, ["y"])
    provider.compile(segment)
    held = provider.memory_stats()["weights"]
    provider.compile(segment)
    assert provider.memory_stats()["weights"] == held


def test_closing_programs_gives_memory_back(provider):
    segment, _ = make_segment([node("Abs", "x")], {"x": some(1000)}, {}, ["y"], resident=["y"])
    before = provider.memory_stats()["programs"]
    program = provider.compile(segment)
    assert provider.memory_stats()["programs"] > before
    program.close()
    program.close()
    assert provider.memory_stats()["programs"] == before
    with pytest.raises(SessionClosedError):
        program.run([some(1000)])


def test_two_sessions_do_not_meet(provider):
    other = create({})
    x = some(4, 5)
    segment, values = make_segment([node("Exp", "x")], {"x": x}, {}, ["y"])
    mine, theirs = provider.compile(segment), other.compile(segment)
    np.testing.assert_allclose(mine.run([x])[0], values["y"], rtol=1e-5)
    other.close()
    with pytest.raises(SessionClosedError):
        theirs.run([x])
    with pytest.raises(SessionClosedError):
        other.compile(segment)
    np.testing.assert_allclose(mine.run([x])[0], values["y"], rtol=1e-5)


def test_every_operation_has_a_label(provider):
    nodes = [node("Conv", "x w", "c"), node("Relu", "c", "y")]
    program = check(provider, nodes, {"x": some(1, 8, 4, 4)}, {"w": some(8, 8, 3, 3)})
    assert len(program.labels) == len(program.kernels)
    assert set(program.labels) == {"Conv_c", "Relu_y"}


def test_results_are_the_callers_own(provider):
    x = some(3, 3)
    segment, values = make_segment([node("Relu", "x")], {"x": x}, {}, ["y"])
    program = provider.compile(segment)
    result = program.run([x])[0]
    program.run([x + 1])
    np.testing.assert_array_equal(result, values["y"])


def test_weights_that_are_computed_from_constants_are_computed_once(provider):
    nodes = [node("Cast", "q", "f", to=1), node("Mul", "f s", "w"), node("Gemm", "x w", "y"), node("Abs", "w", "z")]
    constants = {"q": RNG.integers(-100, 100, (8, 6)).astype(np.int8), "s": some(1, 6)}
    program = check(provider, nodes, {"x": some(3, 8)}, constants, outputs=["y", "z"], rtol=1e-4, atol=1e-4)
    assert program.kernels == ["gemm_weights", "unary"]


def test_constants_that_are_outputs_are_computed_by_kernels(provider):
    nodes = [node("Cast", "q", "f", to=1), node("Mul", "f x", "y")]
    program = check(provider, nodes, {"x": some(2, 3)}, {"q": np.ones((2, 3), np.int8)}, outputs=["f", "y"])
    assert program.kernels == ["cast", "binary"]


@pytest.mark.parametrize("operator", ["Floor", "Sign", "Greater", "Cast"])
def test_operators_that_jump_see_rounded_halves(operator):
    # sigmoid(11.6) is 0.99999, which is 1 as a float16.
    inputs = ["s", "one"] if operator == "Greater" else ["s"]
    attributes: dict[str, Any] = {"to": 7} if operator == "Cast" else {}
    nodes = [helper.make_node("Sigmoid", ["x"], ["s"]), helper.make_node(operator, inputs, ["y"], **attributes)]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT16, [1])],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(np.array(0.9995, np.float16), "one")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    (y,) = InferenceSession(made.SerializeToString()).run(None, {"x": np.array([11.6], np.float16)})
    assert y.tolist() == [1]


@pytest.mark.parametrize("fits", [1 << 12, 1 << 16, 1 << 20])
def test_running_out_of_memory_leaves_other_programs_alone(provider, monkeypatch, fits):
    """Wherever it fails (weights, tape, arena, scratch): it is an error, nothing stays behind, and the rest works."""
    x, w = some(4, 8), some(8, 8)
    small, values = make_segment([node("Gemm", "x w", "g"), node("Softmax", "g")], {"x": x}, {"w": w}, ["y"])
    program = provider.compile(small)
    wide = some(40, 60)
    nodes = [node("Gemm", "x w", "g"), node("MatMul", "g x", "m"), node("Concat", "m m m m", "y", axis=0)]
    large, large_values = make_segment(nodes, {"x": wide}, {"w": some(60, 40)}, ["y"])
    before = provider.memory_stats()
    memory = provider._memory
    alloc, left = memory.engine.alloc, fits // 2

    def limited(nbytes: int) -> int:
        nonlocal left
        left -= nbytes
        if left < 0:
            raise LimitError("full")
        return alloc(nbytes)

    with monkeypatch.context() as patched:
        patched.setattr(memory.engine, "alloc", limited)
        try:
            provider.compile(large).close()
        except LimitError:
            assert provider.memory_stats()["programs"] == before["programs"]
        else:
            assert fits == 1 << 20
    np.testing.assert_allclose(program.run([x])[0], values["y"], rtol=1e-5, atol=1e-6)
    again = provider.compile(large)
    np.testing.assert_allclose(again.run([wide])[0], large_values["y"], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(program.run([x])[0], values["y"], rtol=1e-5, atol=1e-6)


def test_profile_names_what_takes_the_time(provider):
    nodes = [node("Gemm", "x w", "g"), node("Softmax", "g")]
    x = some(4, 8)
    segment, _ = make_segment(nodes, {"x": x}, {"w": some(8, 8)}, ["y"])
    rows = provider.compile(segment).profile([x])
    assert [row[:2] for row in rows] == [("Gemm_g", "gemm"), ("Softmax_y", "softmax")]
    assert all(seconds >= 0 for _, _, seconds in rows)


def test_profile_of_a_program_that_computes_nothing(provider):
    x = some(4, 8)
    segment, _ = make_segment([node("Identity", "x")], {"x": x}, {}, ["y"])
    assert provider.compile(segment).profile([x]) == []
