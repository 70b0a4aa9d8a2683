"""Models made to do harm, one kind each: refused with a reason, quickly, and with nothing read that is not theirs."""

from __future__ import annotations

import contextlib
import itertools
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

import onnxlet
from onnxlet.execution.executor import GraphExecutor, drive
from onnxlet.model import builder
from onnxlet.model.loader import load_model
from onnxlet.model.schema import MODEL
from onnxlet.model.sources import MemorySource
from onnxlet.model.wire import decode
from tests.core.models import BOOL, FLOAT, INT64, graph, model, node


def refused(made: onnx.ModelProto | bytes, message: str, kind: type[Exception] = onnxlet.ModelError) -> None:
    data = made if isinstance(made, bytes) else made.SerializeToString()
    with pytest.raises(kind, match=message):
        onnxlet.InferenceSession(data)


def wrong(nodes: list[onnx.NodeProto], **options: Any) -> onnx.ModelProto:
    return model(nodes, [("x", FLOAT, [2])], [("y", FLOAT, [2])], check=False, **options)


def test_names():
    refused(wrong([node("Relu", ["z"], ["y"]), node("Relu", ["y"], ["z"])]), "in a circle: 'y' .Relu. -> 'z' .Relu.")
    refused(wrong([node("Relu", ["y"], ["y"])]), "in a circle")
    refused(wrong([node("Relu", ["x"], ["y"]), node("Abs", ["x"], ["y"])]), "defines the value 'y' twice")
    refused(wrong([node("Relu", ["x"], ["x"])]), "defines the value 'x' twice|produced by no node")
    refused(wrong([node("Relu", ["nowhere"], ["y"])]), "'nowhere', which no node, input or initializer defines")
    refused(wrong([node("Relu", ["x"], ["z"])]), "output 'y' of graph 'g' is produced by no node")
    twice = wrong([node("Add", ["x", "c"], ["y"])], constants={"c": np.zeros(2, np.float32)})
    twice.graph.initializer.append(twice.graph.initializer[0])
    refused(twice, "'c' is defined twice")
    twice = wrong([node("Relu", ["x"], ["y"])])
    twice.graph.input.append(twice.graph.input[0])
    refused(twice, "two inputs named 'x'")


def test_nesting():
    """Sub-graphs deeper than any exporter makes; messages nested without end, by hand."""
    body = graph([node("Identity", ["x"], ["y0"])], [], [("y0", FLOAT, [2])])
    for i in range(1, 30):
        inner = node("If", ["c"], [f"y{i}"], then_branch=body, else_branch=body if i == 1 else graph(
            [node("Identity", ["x"], ["e"])], [], [("e", FLOAT, [2])]))  # fmt: skip
        body = graph([inner], [], [(f"y{i}", FLOAT, [2])])
    made = model([*body.node], [("x", FLOAT, [2]), ("c", BOOL, [])], [("y29", FLOAT, [2])], check=False)
    x = np.array([1, 2], np.float32)
    np.testing.assert_array_equal(load_and_run(made, {"x": x, "c": np.array(True)})[0], x)
    # GraphProto.node.attribute.g.node.attribute.g and so on: fields 1, 5, 6.
    data = b""
    for _ in range(400):
        data = field(1, field(5, field(6, data)))
    refused(field(7, data) + b"\x08\x0a", "nest", onnxlet.LimitError)


def field(number: int, content: bytes) -> bytes:
    """A field of the wire format that holds bytes."""
    length, size = len(content), b""
    while length > 127:
        size += bytes([length & 127 | 128])
        length >>= 7
    return bytes([number << 3 | 2]) + size + bytes([length]) + content


def load_and_run(made: onnx.ModelProto, feeds: dict[str, Any], **limits: int) -> list[Any]:
    options = onnxlet.SessionOptions(limits=onnxlet.Limits(**limits))
    with onnxlet.InferenceSession(made.SerializeToString(), options) as session:
        return session.run(None, feeds)


def test_loops_within_loops_are_inferred_at_once():
    """The types of what a Loop carries are found in rounds; nested, each level multiplies the rounds of the next."""
    one = {"one": np.ones(1, np.float32), "n": np.array(1), "yes": np.array(True)}
    body: onnx.GraphProto | None = None
    for d in range(12):
        nodes = [node("Identity", [f"g{d}"], [f"h{d}"])]
        if body is not None:
            nodes.append(node("Loop", ["n", "yes", "one"], [f"u{d}"], body=body))
        nodes.append(node("Concat", [f"v{d}", "one" if body is None else f"u{d}"], [f"w{d}"], axis=0))
        body = graph(nodes, [(f"i{d}", INT64, []), (f"g{d}", BOOL, []), (f"v{d}", FLOAT, None)],
                     [(f"h{d}", BOOL, []), (f"w{d}", FLOAT, None)])  # fmt: skip
    outer = node("Loop", ["n", "yes", "x"], ["y"], body=body)
    made = model([outer], [("x", FLOAT, [1])], [("y", FLOAT, None)], one, check=False)
    assert load_and_run(made, {"x": np.zeros(1, np.float32)})[0].sum() == 12


def test_functions_that_multiply(monkeypatch: pytest.MonkeyPatch):
    """Each function calls the next one ten times: a billion nodes if all were written out."""
    functions = []
    for level in range(9):
        callee = ("Relu", "") if level == 0 else (f"f{level - 1}", "d")
        names = ["x", *(f"v{i}" for i in range(9)), "y"]
        calls = [helper.make_node(callee[0], [a], [b], domain=callee[1]) for a, b in itertools.pairwise(names)]
        imports = [helper.make_opsetid("", 21), helper.make_opsetid("d", 1)]
        functions.append(helper.make_function("d", f"f{level}", ["x"], ["y"], calls, imports))
    made = wrong([node("f8", ["x"], ["y"], domain="d")], domains=["d"])
    made.functions.extend(functions)
    monkeypatch.setattr(builder, "MAX_NODES", 5000)
    refused(made, "more than 5000 nodes", onnxlet.LimitError)
    functions[0].node[0].op_type, functions[0].node[0].domain = "f8", "d"
    del made.functions[:]
    made.functions.extend(functions)
    refused(made, "calls itself")


@pytest.mark.parametrize("dims", [[-1, 2], [1 << 62, 4], [1 << 31, 1 << 31, 0], [3], [1] * 70])
def test_dimensions(dims: list[int]):
    made = wrong([node("Add", ["x", "c"], ["y"])])
    made.graph.initializer.append(TensorProto(name="c", data_type=1, dims=dims, raw_data=b"\0" * 8))
    refused(made, "tensor 'c'")


def test_sparse_tensors_do_not_explode():
    made = wrong([node("Add", ["x", "c"], ["y"])])
    values = TensorProto(name="c", data_type=1, dims=[1], float_data=[1.0])
    indices = TensorProto(name="i", data_type=7, dims=[1], int64_data=[0])
    made.graph.sparse_initializer.add(values=values, indices=indices, dims=[1 << 20, 1 << 20])
    refused(made, "too large to be made dense", onnxlet.LimitError)
    made.graph.sparse_initializer[0].dims[:] = [2]
    made.graph.sparse_initializer[0].indices.int64_data[:] = [7]
    refused(made, "lies outside the shape")


def test_a_scan_longer_than_the_limit():
    body = graph([node("Identity", ["e"], ["o"])], [("e", FLOAT, [])], [("o", FLOAT, [])])
    made = model(
        [node("Scan", ["x"], ["y"], body=body, num_scan_inputs=1)], [("x", FLOAT, ["n"])], [("y", FLOAT, ["n"])]
    )
    assert load_and_run(made, {"x": np.ones(3, np.float32)}, loop_iterations=3)[0].sum() == 3
    with pytest.raises(onnxlet.LimitError, match="the limit is 3"):
        load_and_run(made, {"x": np.ones(4, np.float32)}, loop_iterations=3)


def test_padding_that_only_a_window_sees():
    """The result is small, what is padded on the way is not: it is never made, or refused."""
    far = 1 << 40
    for operator, inputs in (("Conv", ["x", "w"]), ("AveragePool", ["x"]), ("MaxPool", ["x"])):
        kernel = {} if operator == "Conv" else {"kernel_shape": [2]}
        made = model(
            [node(operator, inputs, ["y"], pads=[far, far], dilations=[2 * far], **kernel)],
            [("x", FLOAT, [1, 1, 4])], [("y", FLOAT, None)], {"w": np.ones((1, 1, 2), np.float32)}, check=False,
        )  # fmt: skip
        for providers in (None, []):
            with contextlib.suppress(onnxlet.LimitError, onnxlet.NodeError):
                graph_ = load_model(made).graph
                x = {"x": np.ones((1, 1, 4), np.float32)}
                outputs = load_and_run(made, x) if providers is None else drive(GraphExecutor(graph_, []).run(x))
                assert outputs[0].shape == (1, 1, 4)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes(data: bytes):
    """Bytes are a message or a `ModelError`, whichever way they are read."""
    outcomes = []
    for source in (MemorySource(data), Copying(data)):
        try:
            outcomes.append(str(decode(source, MODEL).__dict__.keys()))
        except onnxlet.OnnxletError as error:
            outcomes.append(type(error).__name__)
    assert outcomes[0] == outcomes[1]
    with pytest.raises(onnxlet.OnnxletError):
        load_model(data)


class Copying:
    """A source whose reads are copies, as in a page."""

    def __init__(self, data: bytes):
        self.data, self.size = data, len(data)

    def read(self, offset: int, size: int) -> memoryview:
        return memoryview(bytes(self.data[offset : offset + size]))


KEYS = st.sampled_from([*range(1, 27)])
MESSAGES = st.recursive(
    st.builds(lambda key, number: bytes([key << 3]) + number, KEYS.filter(lambda k: k < 16),
              st.sampled_from([b"\0", b"\1", b"\x7f", b"\xff" * 9 + b"\1", b"\xff" * 5])),
    lambda inner: st.builds(field, st.integers(1, 15), st.lists(inner, max_size=5).map(b"".join)),
    max_leaves=25,
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.lists(MESSAGES, max_size=8).map(b"".join))
def test_messages_of_any_shape(data: bytes):
    """Fields well formed, but of any number and nesting, inside a graph and beside it."""
    for made in (data, field(7, data) + b"\x08\x0a\x42\x02\x10\x15"):
        try:
            onnxlet.InferenceSession(made).close()
        except onnxlet.OnnxletError:
            continue


def test_a_region_with_more_samples_than_pixels_on_earth():
    made = model(
        [node("RoiAlign", ["x", "rois", "batch"], ["y"], output_height=2, output_width=2, sampling_ratio=0)],
        [("x", FLOAT, [1, 1, 4, 4]), ("rois", FLOAT, [1, 4])], [("y", FLOAT, None)], {"batch": np.zeros(1, np.int64)},
        check=False,
    )  # fmt: skip
    feeds = {"x": np.ones((1, 1, 4, 4), np.float32), "rois": np.array([[0, 0, 1e9, 1e9]], np.float32)}
    with pytest.raises(onnxlet.LimitError, match="samples"):
        load_and_run(made, feeds)


@pytest.mark.parametrize(
    ("operator", "shapes", "attributes"),
    [
        ("Attention", [(1, 3, 8), (6, 24)], {"num_heads": 2}),
        ("Attention", [(1, 3, 8), (8, 24), (20,)], {"num_heads": 2}),
        ("MultiHeadAttention", [(1, 3, 8), (1, 5, 8), (1, 4, 8)], {"num_heads": 2}),
        ("MultiHeadAttention", [(1, 3, 8), (1, 5, 4), (1, 5, 8)], {"num_heads": 2}),
        ("MultiHeadAttention", [(2, 3, 8), (3, 5, 8), (3, 5, 8)], {"num_heads": 2}),
    ],
    ids=str,
)
def test_operands_that_do_not_go_together(operator: str, shapes: list[tuple[int, ...]], attributes: dict[str, int]):
    """What is written out as several steps reads nothing beyond its operands: the definition says what is wrong."""
    names = [f"x{i}" for i in range(len(shapes))]
    made = model(
        [node(operator, names, ["y"], domain="com.microsoft", **attributes)],
        [(name, FLOAT, [None] * len(shape)) for name, shape in zip(names, shapes, strict=True)], [("y", FLOAT, None)],
        domains=["com.microsoft"], check=False,
    )  # fmt: skip
    with pytest.raises((onnxlet.NodeError, onnxlet.ShapeError), match="'y'"):
        load_and_run(made, {n: np.ones(shape, np.float32) for n, shape in zip(names, shapes, strict=True)})
