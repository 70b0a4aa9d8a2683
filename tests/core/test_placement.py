"""Which nodes go to a device, and which are not worth their copies."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from onnxlet import InferenceSession, ProviderError, SessionOptions
from onnxlet.providers import CPU, WEBGPU
from onnxlet.providers.base import Step
from onnxlet_webgpu import provider as webgpu
from tests.core.devices import pretend
from tests.core.models import FLOAT, INT64, model, node

W = np.linspace(-1, 1, 16, dtype=np.float32).reshape(4, 4)
X = np.linspace(0, 1, 12, dtype=np.float32).reshape(3, 4)
BYTES = X.nbytes
KEPT_OFF = ("Erf", "Slice")


@pytest.fixture(autouse=True)
def device(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that has no kernels for a few operators."""

    def refusal(step: Step) -> str | None:
        return "not on this device" if step.node.op_type in KEPT_OFF else None

    pretend(monkeypatch, refusal)


def plain(*given: str) -> Any:
    """A node from its operator, inputs and output, named after its output."""
    op, *inputs, output = given
    return node(op, inputs, [output], name=output)


def placed(nodes: list[Any], outputs: list[str], **feeds: np.ndarray) -> tuple[dict[str, str], InferenceSession]:
    """Run a model with the device and without it, compare, and tell where each node ran."""
    kinds = {"f": FLOAT, "i": INT64}
    inputs = [(name, kinds[value.dtype.kind], [None] * value.ndim) for name, value in feeds.items()]
    made = model(nodes, inputs, [(name, FLOAT, None) for name in outputs], {"w": W}, opset=21, check=False)
    session = InferenceSession(made.SerializeToString(), providers=["webgpu", "cpu"])
    with InferenceSession(made.SerializeToString()) as other:
        for got, want in zip(session.run(None, feeds), other.run(None, feeds), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5)
    return {row.node: row.provider for row in session.explain().rows}, session


def test_one_light_operator_between_others_on_the_cpu_stays_there() -> None:
    """Even where the device is at work at the same time, on something that has nothing to do with it."""
    nodes = [
        plain("Erf", "x", "a"),
        plain("Sqrt", "a", "b"),
        plain("Erf", "b", "c"),
        plain("MatMul", "z", "w", "p"),
        plain("Sqrt", "p", "q"),
    ]
    where, session = placed(nodes, ["c", "q"], x=X, z=np.abs(X @ W) + 1)
    assert where == {"a": CPU, "b": CPU, "c": CPU, "p": WEBGPU, "q": WEBGPU}
    (row,) = (row for row in session.explain().rows if row.node == "b")
    assert f"{WEBGPU}: no heavy operator nearby: not worth the copies" in row.reason
    session.close()


def test_light_operators_beside_a_heavy_one_are_on_the_device() -> None:
    nodes = [plain("Sqrt", "x", "a"), plain("MatMul", "a", "w", "b"), plain("Abs", "b", "c"), plain("Erf", "c", "d")]
    where, session = placed(nodes, ["d"], x=X)
    assert where == {"a": WEBGPU, "b": WEBGPU, "c": WEBGPU, "d": CPU}
    session.close()


def test_a_light_operator_moves_where_that_saves_copies() -> None:
    """`a` is read back anyway: with `b` and `c` on the device there would be more to read back, and nothing gained."""
    nodes = [
        plain("MatMul", "x", "w", "a"),
        plain("Erf", "a", "e"),
        plain("Abs", "a", "b"),
        plain("Sqrt", "b", "c"),
        plain("Erf", "c", "d"),
    ]
    where, session = placed(nodes, ["e", "d"], x=X)
    assert where == {"a": WEBGPU, "e": CPU, "b": CPU, "c": CPU, "d": CPU}
    assert session.explain().copies == 2
    reasons = {row.node: row.reason for row in session.explain().rows}
    assert "beside an operator on the CPU: not worth the copies" in reasons["c"]
    session.close()


def test_a_light_operator_stays_where_nothing_is_saved() -> None:
    """What is read back is a number, and not the matrix that it is made of."""
    nodes = [
        plain("MatMul", "x", "w", "a"),
        node("ReduceMax", ["a"], ["m"], name="m", keepdims=0),
        plain("Erf", "m", "d"),
    ]
    where, session = placed(nodes, ["d"], x=X)
    assert where == {"a": WEBGPU, "m": WEBGPU, "d": CPU}
    assert (session.explain().copies, session.explain().copied_bytes) == (2, BYTES + 4)
    session.close()


def test_what_tells_shapes_is_computed_on_the_cpu() -> None:
    """A position that grows with every run: it says where a Slice ends, and the device wants it too."""
    nodes = [
        node("Constant", [], ["one"], value_ints=[1], name="one"),
        plain("Add", "n", "one", "m"),
        node("Constant", [], ["zero"], value_ints=[0], name="zero"),
        plain("Slice", "x", "zero", "m", "s"),
        node("Cast", ["m"], ["f"], to=FLOAT, name="f"),
        plain("MatMul", "z", "w", "p"),
        plain("Add", "p", "f", "q"),
    ]
    made = model(
        nodes,
        [("x", FLOAT, [None, 4]), ("z", FLOAT, [None, 4]), ("n", INT64, [1])],
        [("s", FLOAT, [None, 4]), ("q", FLOAT, [None, 4])],
        {"w": W}, opset=21,
    )  # fmt: skip
    with InferenceSession(made.SerializeToString(), providers=["webgpu", "cpu"]) as session:
        for n in [0, 1, 0, *range(20)]:  # more values than plans are made for
            n = min(n, 2)
            s, q = session.run(None, {"x": X, "z": X, "n": np.array([n], np.int64)})
            np.testing.assert_array_equal(s, X[: n + 1])
            np.testing.assert_allclose(q, X @ W + n + 1, rtol=1e-5)
        session._executor.telling = []  # as after more values than that
        session.run(None, {"x": X, "z": X, "n": np.array([1], np.int64)})
        where = {row.node: row.provider for row in session.explain().rows}
    assert where["m"] == CPU
    assert where["p"] == where["q"] == WEBGPU


@pytest.mark.parametrize(
    ("nodes", "outputs", "copies"),
    [
        ([("MatMul", "x", "w", "a"), ("Abs", "a", "b")], ["b"], 2),
        ([("MatMul", "x", "w", "a"), ("Abs", "a", "b")], ["a", "b"], 3),
        ([("MatMul", "x", "w", "a"), ("Erf", "a", "b"), ("MatMul", "b", "w", "c")], ["c"], 4),
        # `a` comes back, and goes to the device again with `b`.
        ([("MatMul", "x", "w", "a"), ("Erf", "a", "b"), ("Gemm", "a", "b", "c")], ["c"], 5),
        ([("Erf", "x", "a")], ["a"], 0),
    ],
)
def test_copies_are_counted(nodes: list[tuple[str, ...]], outputs: list[str], copies: int) -> None:
    square = np.ascontiguousarray(X[:, :3])
    square = np.pad(square, ((0, 1), (0, 1)))  # 4 by 4
    where, session = placed([plain(*given) for given in nodes], outputs, x=square)
    explained = session.explain()
    assert explained.copies == copies
    assert explained.copied_bytes == copies * square.nbytes
    assert (f"a run makes {copies} copies" in str(explained)) == (copies > 0)
    assert explained.to_dict()["copies"] == copies
    assert len(where) == len(nodes)
    session.close()


def strict() -> SessionOptions:
    options = SessionOptions()
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    return options


def test_without_falling_back_all_reasons_are_told() -> None:
    """No kernel, a result whose shape depends on data, what is no tensor, and how much nobody could look at."""
    nodes = [
        plain("Erf", "x", "a"),
        plain("MatMul", "a", "w", "b"),
        plain("NonZero", "b", "n"),
        node("SequenceConstruct", ["x", "b"], ["s"], name="s"),
        plain("Shape", "n", "k"),
        node("Cast", ["k"], ["f"], to=FLOAT, name="f"),
        plain("ReduceSum", "f", "y"),
        node("SequenceLength", ["s"], ["l"], name="l"),
    ]
    made: onnx.ModelProto = model(
        nodes, [("x", FLOAT, [None, 4])], [("y", FLOAT, [None]), ("l", INT64, [])], {"w": W}, opset=21
    )
    with (
        InferenceSession(made.SerializeToString(), strict(), providers=["webgpu"]) as session,
        pytest.raises(ProviderError) as told,
    ):
        session.run(None, {"x": X})
    text = str(told.value)
    assert f"{WEBGPU} does not compute 4 of 5 nodes: 'a' (Erf): not on this device; 'n' (NonZero): " in text
    assert "'n' (NonZero): the shape of its result depends on data" in text
    assert "'s' (SequenceConstruct): " in text
    assert "'l' (SequenceLength): an input is not a tensor of known type" in text
    assert "(and 3 more nodes have shapes that only a run tells)" in text


def test_without_falling_back_bodies_are_looked_at_too() -> None:
    body = onnx.helper.make_graph(
        [plain("Erf", "x", "inner"), plain("MatMul", "inner", "w", "z")],
        "then",
        [],
        [onnx.helper.make_tensor_value_info("z", FLOAT, None)],
    )
    other = onnx.helper.make_graph(
        [plain("MatMul", "x", "w", "z")], "else", [], [onnx.helper.make_tensor_value_info("z", FLOAT, None)]
    )
    nodes = [
        plain("ReduceMax", "x", "m"),
        node("Cast", ["m"], ["c"], to=onnx.TensorProto.BOOL, name="c"),
        node("If", ["c"], ["y"], then_branch=body, else_branch=other, name="if"),
    ]
    made = model(nodes, [("x", FLOAT, [None, 4])], [("y", FLOAT, [None, 4])], {"w": W}, opset=21)
    with InferenceSession(made.SerializeToString(), strict(), providers=["webgpu"]) as session:
        with pytest.raises(ProviderError, match=r"1 of 2 nodes: 'inner' \(Erf\): not on this device"):
            session.run(None, {"x": X})
        np.testing.assert_array_equal(session.run(None, {"x": 0 * X})[0], 0 * X)


def test_without_falling_back_there_must_be_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    made = model([plain("Abs", "x", "y")], [("x", FLOAT, [None])], [("y", FLOAT, [None])], opset=21)
    monkeypatch.setattr(webgpu.PROVIDER, "available", lambda: "no card is there")
    with pytest.raises(ProviderError, match="no card is there"):
        InferenceSession(made.SerializeToString(), strict(), providers=["webgpu", "cpu"])
    InferenceSession(made.SerializeToString(), strict(), providers=["cpu"]).close()
    InferenceSession(made.SerializeToString(), strict(), providers=["auto"]).close()
