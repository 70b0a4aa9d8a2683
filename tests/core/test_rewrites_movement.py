"""Transposes, reshapes and other operators that only move elements; products that are written as Einsum; constants."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import onnxlet
from onnxlet import rewrites
from onnxlet.model.loader import load_model

from .models import FLOAT, INT32, INT64, model, node
from .test_rewrites import agree, normal, operators

SHAPE = (2, 3, 4, 5)
TO_LAST, TO_FIRST = [0, 2, 3, 1], [0, 3, 1, 2]


def moved(steps: list[onnx.NodeProto], constants: dict[str, Any] | None = None, rank: int | None = 4, opset: int = 21):
    return model(
        steps, [("x", FLOAT, ["a", "b", "c", "d"])], [("y", FLOAT, None if rank is None else [None] * rank)],
        constants, opset=opset, check=rank is not None,
    )  # fmt: skip


def around(*middle: onnx.NodeProto, back: list[int] | None = None) -> list[onnx.NodeProto]:
    """Nodes from "t" to "u" between a transposition and the one back."""
    return [
        node("Transpose", ["x"], ["t"], perm=TO_LAST),
        *middle,
        node("Transpose", ["u"], ["y"], perm=back or TO_FIRST),
    ]


def test_two_transposes_are_one_or_none():
    first = node("Transpose", ["x"], ["t"], perm=[0, 2, 3, 1])
    made = moved([first, node("Transpose", ["t"], ["y"], perm=[2, 0, 1, 3])])
    assert operators(made) == ["Transpose"]
    agree(made, x=normal(*SHAPE))
    back = moved([first, node("Transpose", ["t"], ["u"], perm=TO_FIRST), node("Neg", ["u"], ["y"])])
    assert operators(back) == ["Neg"]
    reverse = moved([node("Transpose", ["x"], ["t"]), node("Transpose", ["t"], ["u"]), node("Neg", ["u"], ["y"])])
    assert operators(reverse) == ["Neg"]
    agree(reverse, x=normal(*SHAPE))


MIDDLES = {
    "unary": ([node("Relu", ["t"], ["v"]), node("Exp", ["v"], ["u"])], {}, ["Relu", "Exp"]),
    "clip": ([node("Clip", ["t", "low"], ["u"])], {"low": np.float32(0)}, ["Clip"]),
    "scalar": ([node("Mul", ["k", "t"], ["u"])], {"k": np.float32(3)}, ["Mul"]),
    "vector": ([node("Add", ["t", "k"], ["u"])], {"k": normal(3)}, ["Add"]),
    "part": ([node("Sub", ["k", "t"], ["u"])], {"k": normal(4, 1, 3)}, ["Sub"]),
    "softmax": ([node("Softmax", ["t"], ["u"], axis=-1)], {}, ["Softmax"]),
    "reduction": ([node("ReduceMean", ["t", "axes"], ["u"])], {"axes": np.array([1, -2])}, ["ReduceMean"]),
}


@pytest.mark.parametrize("middle", MIDDLES)
def test_transposes_cancel_across(middle: str):
    steps, constants, wanted = MIDDLES[middle]
    made = moved(around(*steps), constants)
    assert operators(made) == wanted
    agree(made, x=normal(*SHAPE))
    other = moved(around(*steps, back=[0, 2, 1, 3]), constants)
    assert sorted(operators(other)) == sorted([*wanted, "Transpose"])
    agree(other, x=normal(*SHAPE))


@pytest.mark.parametrize(
    ("middle", "constants"),
    [
        ([node("Softmax", ["t"], ["u"], axis=1)], {}),  # before opset 13 over all axes from there on
        ([node("Add", ["t", "k"], ["u"])], {"k": normal(2, 1, 1, 1, 3)}),  # of a higher rank
        ([node("CumSum", ["t", "k"], ["u"])], {"k": np.array(1)}),
    ],
)
def test_transposes_stay_around_other_operators(middle: list[onnx.NodeProto], constants: dict[str, Any]):
    higher = "k" in constants and constants["k"].ndim == 5
    steps = around(*middle, back=[0, 1, 4, 2, 3] if higher else None)
    made = moved(steps, constants, 5 if higher else 4, opset=12)
    assert operators(made).count("Transpose") == 2
    agree(made, x=normal(*SHAPE))


def test_transposes_of_one_order_join():
    two = [node("Transpose", ["x"], ["s"], perm=TO_LAST), node("Neg", ["x"], ["m"]),
           node("Transpose", ["m"], ["t"], perm=TO_LAST)]  # fmt: skip
    made = moved([*two, node("Pow", ["s", "t"], ["y"])])
    assert operators(made) == ["Neg", "Pow", "Transpose"]
    agree(made, x=np.abs(normal(*SHAPE)))
    apart = [two[0], two[1], node("Transpose", ["m"], ["t"], perm=[0, 2, 1, 3])]
    made = moved([*apart, node("Concat", ["s", "s"], ["y"], axis=1), node("Shape", ["t"], ["unread"])])
    assert operators(made) == ["Transpose", "Concat"]


def test_matrices_that_are_stacked_to_be_transposed():
    """torch's newer exporter writes the transposition of keys so."""
    made = model(
        [node("Reshape", ["x", "stack"], ["s"]), node("Transpose", ["s"], ["t"], perm=[0, 2, 1]),
         node("Reshape", ["t", "back"], ["y"])],
        [("x", FLOAT, [2, 3, 4, 5])], [("y", FLOAT, [2, 3, 5, 4])],
        {"stack": np.array([-1, 4, 5]), "back": np.array([2, 3, 5, 4])},
    )  # fmt: skip
    assert operators(made) == ["Transpose"]
    agree(made, x=normal(2, 3, 4, 5))
    mixed = model(
        [node("Reshape", ["x", "stack"], ["s"]), node("Transpose", ["s"], ["t"], perm=[0, 2, 1]),
         node("Reshape", ["t", "back"], ["y"])],
        [("x", FLOAT, [2, 3, 4, 4])], [("y", FLOAT, [2, 3, 4, 4])],
        {"stack": np.array([-1, 8, 2]), "back": np.array([2, 3, 4, 4])},
    )  # fmt: skip
    assert len(operators(mixed)) == 3
    agree(mixed, x=normal(2, 3, 4, 4))


def test_views_of_views():
    made = model(
        [node("Unsqueeze", ["x", "one"], ["a"]), node("Reshape", ["a", "to"], ["b"]),
         node("Squeeze", ["b", "one"], ["y"])],
        [("x", FLOAT, [4, 6])], [("y", FLOAT, [8, 3])], {"one": np.array([1]), "to": np.array([8, 1, -1])},
    )  # fmt: skip
    assert operators(made) == ["Reshape"]
    agree(made, x=normal(4, 6))
    same = model(
        [node("Unsqueeze", ["x", "one"], ["a"]), node("Squeeze", ["a", "one"], ["b"]), node("Neg", ["b"], ["y"])],
        [("x", FLOAT, [4, 6])], [("y", FLOAT, [4, 6])], {"one": np.array([1])},
    )  # fmt: skip
    assert operators(same) == ["Neg"]


def test_what_changes_nothing_vanishes():
    made = model(
        [node("Reshape", ["x", "copy"], ["a"]), node("Expand", ["a", "ones"], ["b"]),
         node("Slice", ["b", "zero", "end", "zero"], ["c"]), node("Neg", ["c"], ["y"])],
        [("x", FLOAT, [4, 6])], [("y", FLOAT, [4, 6])],
        {"copy": np.array([0, -1]), "ones": np.array([1, 1]), "zero": np.array([0]), "end": np.array([9])},
    )  # fmt: skip
    assert operators(made) == ["Neg"]
    agree(made, x=normal(4, 6))
    turned = model(
        [node("Slice", ["x", "last", "first", "zero", "back"], ["y"])], [("x", FLOAT, [4, 6])], [("y", FLOAT, [4, 6])],
        {"last": np.array([-1]), "first": np.array([-9]), "zero": np.array([0]), "back": np.array([-1])},
    )  # fmt: skip
    assert operators(turned) == ["Slice"]
    agree(turned, x=normal(4, 6))


@pytest.mark.parametrize(
    ("given", "between", "wanted"), [(INT32, INT64, 1), (INT64, INT32, 2), (FLOAT, INT64, 2), (INT32, 11, 1)]
)
def test_casts_that_lose_nothing(given: int, between: int, wanted: int):
    made = model(
        [node("Cast", ["x"], ["a"], to=between), node("Cast", ["a"], ["b"], to=FLOAT), node("Neg", ["b"], ["y"])],
        [("x", given, ["n"])], [("y", FLOAT, ["n"])],
    )  # fmt: skip
    assert operators(made).count("Cast") == wanted
    values = np.array([0, -7, 2**24 + 1, 2**31 - 1], onnx.helper.tensor_dtype_to_np_dtype(given))
    agree(made, x=values)


def test_concatenations_within_concatenations():
    inner = node("Concat", ["x", "x"], ["a"], axis=1)
    made = moved([inner, node("Neg", ["x"], ["m"]), node("Concat", ["m", "a"], ["y"], axis=-3)])
    assert operators(made) == ["Neg", "Concat"]
    agree(made, x=normal(*SHAPE))
    other = moved([inner, node("Concat", ["a", "a"], ["y"], axis=1)])
    assert operators(other) == ["Concat", "Concat"]
    agree(other, x=normal(*SHAPE))
    across = moved([
        inner, node("Exp", ["a"], ["b"]), node("Concat", ["b", "b"], ["c"], axis=3),
        node("Concat", ["c", "c"], ["y"], axis=2),
    ])  # fmt: skip
    assert operators(across) == ["Concat", "Exp", "Concat", "Concat"]
    agree(across, x=normal(*SHAPE))


EINSUMS = {
    "bhqd,bhkd->bhqk": ((2, 3, 4, 5), (2, 3, 6, 5)),
    "bqhd,bkhd->bhqk": ((2, 4, 3, 5), (2, 6, 3, 5)),
    "bhqk,bkhd->bqhd": ((2, 3, 4, 6), (2, 6, 3, 5)),
    "td,edf->etf": ((4, 5), (3, 5, 6)),
    "ij,jk->ki": ((3, 4), (4, 5)),
    "bxtd,bdf->btxf": ((2, 7, 4, 5), (2, 5, 6)),
    " ij , kj -> ik ": ((3, 4), (5, 4)),
}
OTHERS = {
    "ij,ij->ij": ((3, 4), (3, 4)),
    "ij,jk->ijk": ((3, 4), (4, 5)),
    "btd,edf->betf": ((2, 4, 5), (3, 5, 6)),
    "xij,jky->xiky": ((2, 3, 4), (4, 5, 6)),
    "ii,ij->ij": ((3, 3), (3, 4)),
    "ij,jk": ((3, 4), (4, 5)),
    "...ij,...jk->...ik": ((2, 3, 4), (2, 4, 5)),
    "aij,ajk->ik": ((2, 3, 4), (2, 4, 5)),
    "ij,jk->ik": ((3, 1), (4, 5)),  # one element, repeated
}


@pytest.mark.parametrize("equation", [*EINSUMS, *OTHERS])
def test_einsum(equation: str):
    shapes = (EINSUMS | OTHERS)[equation]
    made = model(
        [node("Einsum", ["a", "b"], ["y"], equation=equation)],
        [(name, FLOAT, list(shape)) for name, shape in zip("ab", shapes, strict=True)],
        [("y", FLOAT, None)], check=False,
    )  # fmt: skip
    feeds = {name: normal(*shape) for name, shape in zip("ab", shapes, strict=True)}
    if equation in EINSUMS:
        assert set(operators(made)) <= {"MatMul", "FusedMatMul", "Transpose"}
    else:
        assert "MatMul" not in operators(made)
    expected = np.einsum(equation.replace(" ", ""), *feeds.values())
    np.testing.assert_allclose(onnxlet.InferenceSession(made).run(None, feeds)[0], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
def test_products_read_transposed_operands_as_they_lie(batch: tuple[int, ...]):
    rank = len(batch) + 2
    perm = [*range(rank - 2), rank - 1, rank - 2]
    made = model(
        [node("Transpose", ["b"], ["t"], perm=perm), node("MatMul", ["a", "t"], ["p"]), node("Exp", ["p"], ["y"])],
        [("a", FLOAT, [*batch, "m", 4]), ("b", FLOAT, [*batch, "n", 4])], [("y", FLOAT, [*batch, "m", "n"])],
    )  # fmt: skip
    assert operators(made) == ["FusedMatMul", "Exp"]
    agree(made, a=normal(*batch, 5, 4) / 3, b=normal(*batch, 6, 4) / 3)
    other = model(
        [node("Transpose", ["b"], ["t"], perm=[2, 1, 0]), node("MatMul", ["a", "t"], ["y"])],
        [("a", FLOAT, [2, 5, 3]), ("b", FLOAT, [4, 3, 2])], [("y", FLOAT, [2, 5, 4])],
    )  # fmt: skip
    assert operators(other) == ["Transpose", "MatMul"]


def test_attention_by_einsum():
    """As Keras and Flax write it: the products need no transposes."""
    made = model(
        [node("Einsum", ["q", "k"], ["s"], equation="bqhd,bkhd->bhqk"), node("Softmax", ["s"], ["w"]),
         node("Einsum", ["w", "v"], ["y"], equation="bhqk,bkhd->bqhd")],
        [("q", FLOAT, [2, 4, 3, 5]), ("k", FLOAT, [2, 6, 3, 5]), ("v", FLOAT, [2, 6, 3, 5])],
        [("y", FLOAT, [2, 4, 3, 5])],
    )  # fmt: skip
    assert operators(made) == ["FusedAttention"]
    agree(made, q=normal(2, 4, 3, 5), k=normal(2, 6, 3, 5), v=normal(2, 6, 3, 5))


@pytest.mark.parametrize(
    ("divisor", "exact"), [(np.float32(8), True), (np.array([0.5, -4], np.float32), True), (np.float32(3), False),
                           (np.float32(0), False), (np.float32(np.inf), False), (np.float32(2**-127), False)],
)  # fmt: skip
def test_divisions_by_powers_of_two(divisor: np.ndarray, exact: bool):
    made = model([node("Div", ["x", "k"], ["y"])], [("x", FLOAT, ["n", 2])], [("y", FLOAT, ["n", 2])], {"k": divisor})
    assert operators(made) == (["Mul"] if exact else ["Div"])
    x = np.array([[1, np.inf], [np.nan, -3e-39], [1e38, 0.1]], np.float32)
    with np.errstate(all="ignore"):
        expected = x / divisor
    np.testing.assert_array_equal(onnxlet.InferenceSession(made).run(None, {"x": x})[0], expected)


def test_equal_constants_are_one():
    big = normal(100, 100)
    constants = {
        "a": big,
        "b": big.copy(),
        "c": np.where(np.arange(10000).reshape(100, 100) == 5000, 1, big),
        "z": -big,
    }
    made = model(
        [node("MatMul", ["x", "a"], ["p"]), node("MatMul", ["p", "b"], ["q"]), node("MatMul", ["q", "c"], ["r"]),
         node("Add", ["r", "z"], ["y"])],
        [("x", FLOAT, [100, 100])], [("y", FLOAT, [100, 100])], constants,
    )  # fmt: skip
    optimized = rewrites.optimize(load_model(made).graph, onnxlet.SessionOptions(disabled_rewrites={"fuse_epilogues"}))
    assert len(optimized.initializers) == 3
    agree(made, x=normal(100, 100) / 100)


def test_constants_that_are_outputs_keep_their_names():
    made = model(
        [node("Identity", ["a"], ["y"]), node("Add", ["x", "b"], ["z"])], [("x", FLOAT, [3])],
        [("y", FLOAT, [3]), ("z", FLOAT, [3]), ("a", FLOAT, [3])],
        {"a": np.ones(3, np.float32), "b": np.ones(3, np.float32)},
    )  # fmt: skip
    agree(made, x=normal(3))
