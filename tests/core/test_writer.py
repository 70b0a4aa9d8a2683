"""Models written back: onnx's checker accepts them, and they read as what they were."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxlet.errors import LimitError, UnsupportedError
from onnxlet.graph.ir import STRING, Graph, MapType, Model, Node, OptionalType, SequenceType, TensorType
from onnxlet.model import writer
from onnxlet.model.dtypes import dtype_of
from onnxlet.model.loader import load_model
from onnxlet.model.tensors import Tensor
from onnxlet.model.writer import save, to_bytes


def assert_same_value(a: Any, b: Any) -> None:
    if isinstance(a, Graph):
        assert_same_graph(a, b)
    elif isinstance(a, np.ndarray):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        assert a.tolist() == b.tolist() if a.dtype == STRING else a.tobytes() == b.tobytes()
    elif isinstance(a, list):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            assert_same_value(x, y)
    else:
        assert a == b or (a != a and b != b)


def assert_same_graph(a: Graph, b: Graph) -> None:
    assert (a.inputs, a.outputs, a.defaults) == (b.inputs, b.outputs, b.defaults)
    assert list(map(str, a.nodes)) == list(map(str, b.nodes))
    for x, y in zip(a.nodes, b.nodes, strict=True):
        assert (x.name, x.version) == (y.name, y.version)
        assert x.attributes.keys() == y.attributes.keys()
        for key, value in x.attributes.items():
            assert_same_value(value, y.attributes[key])
    assert a.initializers.keys() == b.initializers.keys()
    for key, tensor in a.initializers.items():
        assert_same_value(tensor.numpy(), b.initializers[key].numpy())
    for key, type_ in a.types.items():
        if type_ is not None:
            assert b.types[key] == type_


def test_models_of_the_zoo(shared):
    paths = [p for p in sorted(shared.glob("zoo/*/model.onnx")) if p.stat().st_size < 500_000]
    written = 0
    for path in paths:
        model = load_model(path)
        try:
            data = to_bytes(model)
        except UnsupportedError as error:
            assert "a function with an import of its own" in str(error)  # noqa: PT017
            continue
        onnx.checker.check_model(onnx.load_from_string(data))
        assert_same_graph(model.graph, load_model(data).graph)
        written += 1
    assert written > 0.9 * len(paths)


def test_a_written_model_runs_elsewhere(tmp_path):
    rng = np.random.default_rng(1)
    w = rng.normal(size=(4, 5)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("Constant", [], ["w"], value=numpy_helper.from_array(w)),
         helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("LeakyRelu", ["h"], ["y"], alpha=0.3)],
        "g", [helper.make_tensor_value_info("x", 1, ["n", 4])], [helper.make_tensor_value_info("y", 1, None)],
    )  # fmt: skip
    original = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    save(load_model(original), tmp_path / "m.onnx")
    x = rng.normal(size=(3, 4)).astype(np.float32)
    runs = [
        onnxruntime.InferenceSession(m, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
        for m in (original.SerializeToString(), str(tmp_path / "m.onnx"))
    ]
    np.testing.assert_array_equal(runs[0], runs[1])


def everything() -> Model:
    """A model with every kind of attribute, type and element type."""
    f32 = TensorType(np.dtype("f4"), ("n", 3, None))
    body = Graph("body", [], ["b"], [Node("Neg", ["x"], ["b"], {}, "", 21)], types={"b": f32})
    attributes = {
        "i": -7, "f": 0.5, "s": "é", "raw": b"\xff\x00", "t": np.arange(3), "g": body, "tp": SequenceType(f32),
        "ints": [1, -(1 << 60)], "floats": [1.0, 2.5], "strings": ["a", b"\xfe"], "tensors": [np.ones(2), np.zeros(0)],
        "graphs": [body, body], "types": [f32, OptionalType(f32)], "text": np.array(["a", ""], STRING),
        "number": np.float32(2), "flag": True,
    }  # fmt: skip
    tensors = {}
    for element_type in TensorProto.DataType.values():
        if element_type not in (0, TensorProto.STRING):
            dtype = dtype_of(element_type)
            tensors[f"t{element_type}"] = Tensor.of(np.array([0, 1, 1, 0, 1]).astype(dtype))
    tensors["strings"] = Tensor.of(np.array([["a", "é"]], STRING))
    tensors["empty"] = Tensor.of(np.zeros((0, 3), np.float32))
    tensors["strided"] = Tensor.of(np.arange(6.0).reshape(2, 3).T)
    tensors["scalar"] = Tensor.of(np.float64(3))
    types = {
        "x": f32, "y": MapType(np.dtype("i8"), f32), "z": OptionalType(SequenceType(f32)),
        "inner": TensorType(STRING, ()),
    }  # fmt: skip
    node = Node("Op", ["x", "", "x"], ["y", "", "z"], attributes, "d", 3, "the node")
    graph = Graph("g", ["x"], ["y", "z"], [node], tensors, dict(types), ["scalar"])
    return Model(graph, {"": 21, "d": 3}, 9, "producer", "1.0", "dom", 5, "docs", {"k": "v", "empty": ""})


def test_everything_comes_back():
    model = everything()
    data = to_bytes(model)
    loaded = load_model(data)
    assert loaded.ir_version == 14  # for the newest element types
    for name in ("opsets", "producer_name", "producer_version", "domain", "model_version", "doc_string", "metadata"):
        assert getattr(loaded, name) == getattr(model, name)
    assert_same_graph(model.graph, loaded.graph)
    reference = onnx.load_from_string(data)
    for tensor in reference.graph.initializer:
        ours = model.graph.initializers[tensor.name].numpy()
        if tensor.data_type != TensorProto.STRING:
            np.testing.assert_array_equal(numpy_helper.to_array(tensor).astype(complex), ours.astype(complex))


def test_outputs_of_unknown_type_are_inferred():
    graph = Graph(
        "", ["x"], ["y"], [Node("Relu", ["x"], ["y"], version=20)], types={"x": TensorType(np.dtype("f4"), (2,))}
    )
    reference = onnx.load_from_string(to_bytes(Model(graph, {"": 20})))
    onnx.checker.check_model(reference, full_check=True)
    assert reference.graph.output[0].type.tensor_type.shape.dim[0].dim_value == 2
    assert reference.producer_name == "onnxlet"


def test_external_data(tmp_path):
    big, small = np.arange(5000, dtype=np.float32), np.arange(3)
    graph = Graph(
        "g", [], ["big", "small"], [], {"big": Tensor.of(big), "small": Tensor.of(small), "b2": Tensor.of(big * 2)}
    )
    path = tmp_path / "m.onnx"
    save(Model(graph, {"": 20}), path, external_data="m.data")
    assert path.stat().st_size < 1000
    onnx.checker.check_model(path)
    loaded = load_model(path)
    for name, tensor in graph.initializers.items():
        np.testing.assert_array_equal(loaded.graph.initializers[name].numpy(), tensor.numpy())
    assert loaded.graph.initializers["b2"].location[1] % 4096 == 0
    assert {p.name for p in tmp_path.iterdir()} == {"m.onnx", "m.data"}
    with pytest.raises(ValueError, match="must be a file name"):
        save(loaded, path, external_data="../m.data")


def test_over_the_file_it_was_read_from(tmp_path):
    path = tmp_path / "m.onnx"
    save(everything(), path)
    model = load_model(path)
    save(model, path)
    assert_same_graph(model.graph, load_model(path).graph)


def test_a_failed_save_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "MAX_BYTES", 100)
    with pytest.raises(LimitError, match="use external_data="):
        save(everything(), tmp_path / "m.onnx")
    model = everything()
    model.graph.nodes[0].attributes["bad"] = object()
    with pytest.raises(TypeError):
        save(model, tmp_path / "m.onnx", external_data="m.data")
    assert list(tmp_path.iterdir()) == []


def test_two_versions_of_a_domain():
    nodes = [Node("Relu", ["x"], ["h"], version=13), Node("Relu", ["h"], ["y"], version=20, name="odd")]
    with pytest.raises(UnsupportedError, match="node 'odd' is Relu of version 20, the model imports version 13"):
        to_bytes(Model(Graph("g", ["x"], ["y"], nodes), {"": 13}))
