"""From files to the intermediate representation."""

from __future__ import annotations

import contextlib
import io
import random
import sys
import types

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxlet.errors import LimitError, ModelError
from onnxlet.graph.ir import STRING, Graph, MapType, OptionalType, SequenceType, TensorType
from onnxlet.model import builder
from onnxlet.model.loader import load_model

F = TensorProto.FLOAT


def info(name: str, shape=(2,), element_type: int = F) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, element_type, shape)


def make(nodes, inputs=("x",), outputs=("y",), initializers=(), opsets=None, functions=(), **fields) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "g", [info(i) for i in inputs], [info(o) for o in outputs], initializers)
    imports = [helper.make_opsetid(d, v) for d, v in (opsets or {"": 20}).items()]
    model = helper.make_model(graph, opset_imports=imports, functions=functions)
    for key, value in fields.items():
        setattr(model, key, value)
    return model


def node(op: str, inputs: str, outputs: str, **attributes) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def names(graph: Graph) -> list[str]:
    return [str(n) for n in graph.nodes]


class TestWhereFrom:
    model = make([node("Relu", "x", "y", name="n")])

    @pytest.mark.parametrize(
        "form", ["str", "path", "bytes", "bytearray", "memoryview", "file", "open", "proto", "array"]
    )
    def test_forms(self, form: str, tmp_path):
        data = self.model.SerializeToString()
        path = tmp_path / "m.onnx"
        path.write_bytes(data)
        with path.open("rb") as file:
            source = {
                "str": str(path), "path": path, "bytes": data, "bytearray": bytearray(data), "open": file,
                "memoryview": memoryview(data), "file": io.BytesIO(data), "proto": self.model,
                "array": np.frombuffer(data, np.uint8),
            }[form]  # fmt: skip
            loaded = load_model(source)
        assert names(loaded.graph) == ["y = Relu(x)"]
        assert loaded.graph.inputs == ["x"]
        assert loaded.graph.outputs == ["y"]
        assert loaded.graph.types["x"] == TensorType(np.dtype("f4"), (2,))

    def test_metadata(self):
        model = make([node("Relu", "x", "y")], opsets={"ai.onnx": 13, "com.example": 2}, producer_name="p",
                     producer_version="1.2", domain="d", model_version=7, doc_string="docs", ir_version=8)  # fmt: skip
        helper.set_model_props(model, {"k": "v"})
        loaded = load_model(model)
        assert loaded.opsets == {"": 13, "com.example": 2}
        assert loaded.ir_version == 8
        assert (loaded.producer_name, loaded.producer_version, loaded.domain) == ("p", "1.2", "d")
        assert (loaded.model_version, loaded.doc_string, loaded.metadata) == (7, "docs", {"k": "v"})

    def test_a_file_that_knows_its_size(self):
        class File(io.BytesIO):
            size = 10

        assert names(load_model(File(self.model.SerializeToString())).graph) == ["y = Relu(x)"]

    @pytest.mark.parametrize("kind", ["Uint8Array", "ArrayBuffer", "DataView"])
    def test_javascript_buffers(self, kind: str, monkeypatch):
        """With stand-ins for Pyodide's proxies: the weights stay where they are, and only they are read for `numpy`."""
        w = np.arange(100_000, dtype=np.float32)
        model = make([node("Add", "x w", "y")], initializers=[numpy_helper.from_array(w, "w")])
        data = model.SerializeToString()
        copied = []

        class JsProxy:
            BYTES_PER_ELEMENT = 1

            def __init__(self, start: int, stop: int):
                self.start, self.stop, self.byteLength, self.byteOffset = start, stop, stop - start, start

            def subarray(self, start: int, stop: int):
                return JsProxy(self.start + start, self.start + stop)

            def to_py(self):
                copied.append(self.byteLength)
                return memoryview(bytearray(data[self.start : self.stop]))

            def destroy(self):
                pass

        class Uint8Array:
            @staticmethod
            def new(buffer, offset=0, length=None):
                assert buffer == "buffer" or type(buffer).__name__ == "JsProxy"
                return JsProxy(offset, offset + (length or len(data)))

        monkeypatch.setitem(sys.modules, "js", types.SimpleNamespace(Uint8Array=Uint8Array))
        proxy = JsProxy(0, len(data))
        if kind != "Uint8Array":
            proxy = type("JsProxy", (), {"byteLength": len(data), "byteOffset": 0})()
            if kind == "DataView":
                proxy.buffer = "buffer"
        loaded = load_model(proxy)
        assert sum(copied) < 50_000 < len(data)
        tensor = loaded.graph.initializers["w"]
        source, offset = tensor.location
        assert data[offset : offset + tensor.nbytes] == w.tobytes()
        assert source.js.byteLength == len(data)
        np.testing.assert_array_equal(tensor.numpy(), w)

    def test_a_missing_file(self, tmp_path):
        with pytest.raises(FileNotFoundError):
            load_model(tmp_path / "none.onnx")

    def test_a_text_stream(self):
        with pytest.raises(ModelError, match="binary mode"):
            load_model(io.StringIO("text"))

    def test_something_else(self):
        with pytest.raises(ModelError, match="expected bytes or a buffer, got int"):
            load_model(5)


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (b"", "the file is empty"),
        (b"Hello, I am a text file.\n" * 10, "this is a text file"),
        (b"<!DOCTYPE html>\n<html><body>Sign in</body></html>", "this is an HTML page"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:abc\nsize 5\n", "git lfs pull"),
        (b"PK\x03\x04" + bytes(50), "zip archive"),
        (b"\x1f\x8b\x08\x00" + bytes(50), "gzip"),
        (b"\x1c\x00\x00\x00TFL3" + bytes(50), "TensorFlow Lite"),
        (b"\x18\x00\x00\x00ORTM" + bytes(50), r"\.ort"),
        (b'{"format": "tfjs"}', "JSON"),
        (b"\x89HDF\r\n\x1a\n", "HDF5"),
        (b"\x40\x00\x00\x00\x00\x00\x00\x00" + b'{"a": 1}', "safetensors"),
        (b"GGUF" + bytes(20), "GGUF"),
        (b"\x80\x02}q\x00.", "pickle"),
        (bytes(100), "truncated, damaged, or another format"),
        (b"\xff" * 100, "truncated, damaged, or another format"),
        ("Grüße, Welt\n".encode() * 60, "this is a text file"),
        (make([node("Relu", "x", "y")]).SerializeToString()[:-30], "truncated"),
    ],
)
def test_foreign_bytes(data: bytes, match: str, tmp_path):
    with pytest.raises(ModelError, match=match):
        load_model(data)
    path = tmp_path / "file.onnx"
    path.write_bytes(data)
    with pytest.raises(ModelError, match=r"model '.*file\.onnx'"):
        load_model(path)


class TestAttributes:
    def test_values(self):
        tensor = numpy_helper.from_array(np.arange(3))
        sparse = helper.make_sparse_tensor(
            helper.make_tensor("v", F, [1], [2.0]), helper.make_tensor("i", TensorProto.INT64, [1], [1]), [3]
        )
        model = make(
            [node("Op", "x", "y", domain="d", i=-3, f=0.5, s="é", b=b"\xff\x00", ints=[1, 2], floats=[1.5], t=tensor,
                  strings=["a", b"\xfe"], tensors=[tensor, tensor], sparse=sparse,
                  tp=helper.make_tensor_type_proto(F, ["n"]))],
            opsets={"": 20, "d": 3},
        )  # fmt: skip
        empty = model.graph.node[0].attribute.add(name="none", type=onnx.AttributeProto.INTS)
        assert not empty.ints
        found = load_model(model).graph.nodes[0]
        assert (found.domain, found.version) == ("d", 3)
        a = found.attributes
        assert (a["i"], a["f"], a["s"], a["b"]) == (-3, 0.5, "é", b"\xff\x00")
        assert (a["ints"], a["floats"], a["strings"], a["none"]) == ([1, 2], [1.5], ["a", b"\xfe"], [])
        np.testing.assert_array_equal(a["t"], [0, 1, 2])
        assert len(a["tensors"]) == 2
        np.testing.assert_array_equal(a["sparse"], np.array([0, 2, 0], np.float32))
        assert a["tp"] == TensorType(np.dtype("f4"), ("n",))

    def test_without_a_type(self):
        model = make([node("Op", "x", "y", domain="d", ints=[4], f=1.0)])
        for attribute in model.graph.node[0].attribute:
            attribute.ClearField("type")
        assert load_model(model).graph.nodes[0].attributes == {"ints": [4], "f": 1.0}

    def test_twice(self):
        model = make([node("Op", "x", "y", domain="d", k=1)])
        model.graph.node[0].attribute.append(helper.make_attribute("k", 2))
        with pytest.raises(ModelError, match="two attributes named 'k'"):
            load_model(model)


class TestConstants:
    @pytest.mark.parametrize(
        ("form", "value", "expected"),
        [
            ("value", numpy_helper.from_array(np.eye(2)), np.eye(2)),
            ("value_float", 1.5, np.float32(1.5)),
            ("value_floats", [1.5, 2.0], np.array([1.5, 2], np.float32)),
            ("value_int", 3, np.int64(3)),
            ("value_ints", [3, 4], np.array([3, 4])),
            ("value_string", "a", np.array("a", STRING)),
            ("value_strings", ["a", "b"], np.array(["a", "b"], STRING)),
            (
                "sparse_value",
                helper.make_sparse_tensor(
                    helper.make_tensor("v", F, [1], [2.0]), helper.make_tensor("i", TensorProto.INT64, [1], [1]), [2]
                ),
                np.array([0, 2], np.float32),
            ),
        ],
    )
    def test_forms(self, form: str, value, expected):
        model = make([node("Constant", "", "c", **{form: value}), node("Op", "c", "y", domain="d")])
        graph = load_model(model).graph
        assert names(graph) == ["y = d::Op(c)"]
        constant = graph.initializers["c"].numpy()
        assert constant.dtype == expected.dtype
        np.testing.assert_array_equal(constant, expected)
        assert graph.types["c"] == TensorType(expected.dtype, expected.shape)

    def test_as_an_output(self):
        graph = load_model(make([node("Constant", "", "y", value_float=1.0)], inputs=())).graph
        assert graph.nodes == []
        assert list(graph.initializers) == graph.outputs == ["y"]

    def test_without_a_value(self):
        with pytest.raises(ModelError, match="must have one value, has 0"):
            load_model(make([node("Constant", "", "y")]))

    def test_sparse_initializers(self):
        model = make([node("Add", "x s", "y")])
        sparse = helper.make_sparse_tensor(
            helper.make_tensor("s", F, [1], [2.0]), helper.make_tensor("i", TensorProto.INT64, [1], [1]), [2]
        )
        model.graph.sparse_initializer.append(sparse)
        np.testing.assert_array_equal(load_model(model).graph.initializers["s"].numpy(), [0, 2])

    @pytest.mark.parametrize(("ir_version", "defaults"), [(3, []), (4, ["w"]), (10, ["w"])])
    def test_initializers_among_the_inputs(self, ir_version: int, defaults: list[str]):
        w = numpy_helper.from_array(np.ones(2, np.float32), "w")
        model = make([node("Add", "x w", "y")], inputs=("x", "w"), initializers=[w], ir_version=ir_version)
        graph = load_model(model).graph
        assert graph.inputs == ["x"]
        assert graph.defaults == defaults


class TestOrder:
    def test_unsorted_nodes_are_sorted(self):
        model = make([node("Exp", "b", "y"), node("Relu", "x", "a"), node("Neg", "a", "b")])
        assert names(load_model(model).graph) == ["a = Relu(x)", "b = Neg(a)", "y = Exp(b)"]

    def test_sorted_nodes_keep_their_order(self):
        model = make([node("Relu", "x", "b"), node("Neg", "x", "a"), node("Add", "a b", "y")])
        assert names(load_model(model).graph) == ["b = Relu(x)", "a = Neg(x)", "y = Add(a, b)"]

    def test_what_a_sub_graph_uses_comes_first(self):
        body = helper.make_graph([node("Neg", "later", "t")], "body", [], [info("t")])
        model = make(
            [node("If", "x", "y", then_branch=body, else_branch=body), node("Relu", "x", "later")],
        )
        graph = load_model(model).graph
        assert [n.op_type for n in graph.nodes] == ["Relu", "If"]
        assert graph.nodes[1].attributes["then_branch"].captures() == ["later"]

    def test_a_circle(self):
        model = make(
            [
                node("Relu", "x", "z"),
                node("Add", "x b", "a", name="first"),
                node("Neg", "a", "b"),
                node("Exp", "b", "y"),
            ]
        )
        with pytest.raises(ModelError, match=r"circle: 'first' \(Add\) -> 'b' \(Neg\) -> 'first'"):
            load_model(model)

    def test_a_circle_through_a_sub_graph(self):
        body = helper.make_graph([node("Neg", "y", "t")], "body", [], [info("t")])
        with pytest.raises(ModelError, match="circle"):
            load_model(make([node("If", "x", "y", then_branch=body, else_branch=body)]))

    def test_a_long_unsorted_chain(self):
        nodes = [node("Relu", "x" if i == 0 else f"v{i}", f"v{i + 1}") for i in range(3000)]
        model = make(nodes[::-1], outputs=("v3000",))
        assert [n.outputs[0] for n in load_model(model).graph.nodes] == [f"v{i + 1}" for i in range(3000)]


class TestNames:
    def test_an_input_that_nothing_defines(self):
        with pytest.raises(ModelError, match=r"input 1 of node 'add' \(Add\) is 'w', which no node"):
            load_model(make([node("Add", "x w", "y", name="add")]))

    def test_an_input_of_a_sub_graph_that_nothing_defines(self):
        body = helper.make_graph([node("Neg", "nothing", "t", name="inner")], "body", [], [info("t")])
        with pytest.raises(ModelError, match=r"input 0 of node 'inner' \(Neg\) is 'nothing'"):
            load_model(make([node("If", "x", "y", then_branch=body, else_branch=body)]))

    def test_an_output_that_nothing_produces(self):
        with pytest.raises(ModelError, match="output 'z' of graph 'g' is produced by no node"):
            load_model(make([node("Relu", "x", "y")], outputs=("y", "z")))

    def test_a_value_defined_twice(self):
        with pytest.raises(ModelError, match=r"defines the value 'y' twice; the second time by node 'two' \(Neg\)"):
            load_model(make([node("Relu", "x", "y"), node("Neg", "x", "y", name="two")]))

    def test_an_input_defined_again(self):
        with pytest.raises(ModelError, match="'x' twice"):
            load_model(make([node("Relu", "x", "x"), node("Neg", "x", "y")]))

    def test_two_inputs_of_one_name(self):
        with pytest.raises(ModelError, match="two inputs named 'x'"):
            load_model(make([node("Relu", "x", "y")], inputs=("x", "x")))

    def test_two_initializers_of_one_name(self):
        w = numpy_helper.from_array(np.ones(2, np.float32), "w")
        with pytest.raises(ModelError, match="'w' is defined twice"):
            load_model(make([node("Add", "x w", "y")], initializers=[w, w]))

    def test_absent_inputs_and_outputs(self):
        model = make([helper.make_node("Clip", ["x", "", "x"], ["y"]), helper.make_node("Dropout", ["x"], ["", "m"])])
        graph = load_model(model).graph
        assert graph.nodes[0].inputs == ["x", "", "x"]
        assert graph.nodes[1].outputs == ["", "m"]

    def test_a_node_without_an_operator(self):
        with pytest.raises(ModelError, match="names no operator"):
            load_model(make([node("", "x", "y")]))


class TestVersions:
    def test_both_spellings_of_the_standard_domain(self):
        model = make([node("Relu", "x", "a", domain="ai.onnx"), node("Relu", "a", "y")], opsets={"": 13})
        assert [(n.domain, n.version) for n in load_model(model).graph.nodes] == [("", 13)] * 2

    def test_newer_than_known(self):
        model = make([node("Relu", "x", "y")], opsets={"": 99}, ir_version=200)
        assert load_model(model).graph.nodes[0].version == 99

    def test_no_imports(self):
        model = make([node("Relu", "x", "y")])
        del model.opset_import[:]
        with pytest.raises(ModelError, match="imports no operator sets"):
            load_model(model)
        model.ir_version = 2
        assert load_model(model).graph.nodes[0].version == 1

    def test_the_standard_operators_not_imported(self):
        with pytest.raises(ModelError, match=r"imports no version of the ai\.onnx operators"):
            load_model(make([node("Relu", "x", "y")], opsets={"com.example": 1}))

    def test_a_custom_domain_not_imported(self):
        assert load_model(make([node("Op", "x", "y", domain="d")])).graph.nodes[0].version == 1

    def test_no_such_version(self):
        with pytest.raises(ModelError, match="version 0"):
            load_model(make([node("Relu", "x", "y")], opsets={"": 0}))


class TestTypes:
    def test_all_kinds(self):
        model = make([node("Op", "x", "y", domain="d")])
        tensor = helper.make_tensor_type_proto(F, ["batch", None, 3, -1])
        sequence = helper.make_sequence_type_proto(tensor)
        mapping = helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(F, []))
        values = {
            "tensor": tensor,
            "rankless": helper.make_tensor_type_proto(TensorProto.STRING, None),
            "sequence": sequence,
            "optional": helper.make_optional_type_proto(sequence),
            "zipmap": helper.make_sequence_type_proto(mapping),
            "untyped": onnx.TypeProto(),
        }
        model.graph.value_info.extend([helper.make_value_info(k, v) for k, v in values.items()])
        types = load_model(model).graph.types
        t = TensorType(np.dtype("f4"), ("batch", None, 3, None))
        assert types["tensor"] == t
        assert types["rankless"] == TensorType(STRING, None)
        assert types["sequence"] == SequenceType(t)
        assert types["optional"] == OptionalType(SequenceType(t))
        assert types["zipmap"] == SequenceType(MapType(np.dtype("i8"), TensorType(np.dtype("f4"), ())))
        assert types["untyped"] is None


def function(name: str, inputs: str, outputs: str, nodes, attributes=(), defaults=(), overload="", opset=20):
    return helper.make_function("f", name, inputs.split(), outputs.split(), nodes, [helper.make_opsetid("", opset)],
                                list(attributes), list(defaults), overload=overload)  # fmt: skip


def with_functions(nodes, *functions, **fields) -> Graph:
    return load_model(make(nodes, functions=functions, opsets={"": 20, "f": 1}, **fields)).graph


class TestFunctions:
    def test_a_call_becomes_the_body(self):
        double = function("Double", "a", "b", [node("Constant", "", "two", value_float=2.0), node("Mul", "a two", "b")])
        graph = with_functions(
            [node("Double", "x", "m", domain="f", name="c1"), node("Double", "m", "y", domain="f", name="c2")], double
        )
        assert names(graph) == ["m = Mul(x, c1/two)", "y = Mul(m, c2/two)"]
        assert set(graph.initializers) == {"c1/two", "c2/two"}

    def test_fresh_names_do_not_meet_others(self):
        body = function("F", "a", "b", [node("Relu", "a", "t"), node("Neg", "t", "b")])
        graph = with_functions(
            [node("F", "x", "c/t", domain="f", name="c"), node("F", "c/t", "y", domain="f", name="c")], body
        )
        assert names(graph) == ["c/t_2 = Relu(x)", "c/t = Neg(c/t_2)", "c_2/t = Relu(c/t)", "y = Neg(c_2/t)"]

    def test_attributes_are_passed_and_have_defaults(self):
        inner = node("Op", "a", "b", domain="d")
        for attribute, reference in (("alpha", "k"), ("beta", "m"), ("gamma", "absent")):
            inner.attribute.add(name=attribute, ref_attr_name=reference, type=onnx.AttributeProto.FLOAT)
        body = function("F", "a", "b", [inner], ["k", "absent"], [helper.make_attribute("m", 7.0)])
        graph = with_functions(
            [node("F", "x", "t", domain="f", k=5.0), node("F", "t", "y", domain="f", k=1.0, m=2.0)], body
        )
        assert [n.attributes for n in graph.nodes] == [{"alpha": 5.0, "beta": 7.0}, {"alpha": 1.0, "beta": 2.0}]

    def test_a_constant_from_an_attribute(self):
        constant = node("Constant", "", "c")
        constant.attribute.add(name="value_int", ref_attr_name="k", type=onnx.AttributeProto.INT)
        body = function("F", "a", "b", [constant, node("Add", "a c", "b")], ["k"])
        graph = with_functions([node("F", "x", "y", domain="f", k=5, name="call")], body)
        assert graph.initializers["call/c"].numpy() == 5
        with pytest.raises(ModelError, match="from an attribute that was not given"):
            with_functions([node("F", "x", "y", domain="f")], body)

    def test_functions_call_functions(self):
        inner = function("Inner", "a", "b", [node("Relu", "a", "t"), node("Neg", "t", "b")])
        outer = function("Outer", "a", "b", [node("Inner", "a", "t", domain="f", name="i"), node("Exp", "t", "b")])
        graph = with_functions([node("Outer", "x", "y", domain="f", name="o")], outer, inner)
        assert names(graph) == ["o/i/t = Relu(x)", "o/t = Neg(o/i/t)", "y = Exp(o/t)"]

    def test_overloads(self):
        functions = [
            function("F", "a", "b", [node(op, "a", "b")], overload=o) for op, o in (("Relu", ""), ("Neg", "v2"))
        ]
        graph = with_functions(
            [node("F", "x", "t", domain="f"), node("F", "t", "y", domain="f", overload="v2")], *functions
        )
        assert [n.op_type for n in graph.nodes] == ["Relu", "Neg"]

    def test_an_overload_that_calls_another(self):
        """Of the same name, which is no circle; and one within a function of another name."""
        base = function("F", "a", "b", [node("Relu", "a", "b")])
        second = function("F", "a", "b", [node("F", "a", "t", domain="f"), node("Neg", "t", "b")], overload="v2")
        outer = function("G", "a", "b", [node("F", "a", "t", domain="f", overload="v2"), node("Exp", "t", "b")])
        graph = with_functions([node("G", "x", "y", domain="f")], outer, second, base)
        assert [n.op_type for n in graph.nodes] == ["Relu", "Neg", "Exp"]

    def test_their_own_imports(self):
        body = function("F", "a", "b", [node("Relu", "a", "b")], opset=9)
        graph = with_functions([node("F", "x", "t", domain="f"), node("Relu", "t", "y")], body)
        assert [n.version for n in graph.nodes] == [9, 20]

    def test_absent_inputs_and_outputs(self):
        body = function("F", "a b c", "p q", [node("Op", "a b c", "p", domain="d"), node("Neg", "a", "q")])
        graph = with_functions([helper.make_node("F", ["x"], ["", "y"], domain="f", name="n")], body)
        assert names(graph) == ["n/p = d::Op(x, , )", "y = Neg(x)"]

    def test_an_output_that_is_an_input(self):
        body = function("F", "a", "a b", [node("Neg", "a", "b")])
        graph = with_functions([node("F", "x", "y z", domain="f")], body, outputs=("y", "z"))
        assert sorted(names(graph)) == ["y = Identity(x)", "z = Neg(x)"]

    def test_sub_graphs_in_functions(self):
        """A sub-graph sees the function's values, and its own names are made fresh: here one equals the caller's."""
        branch = helper.make_graph([node("Neg", "a", "x"), node("Add", "x t", "r")], "branch", [], [info("r")])
        body = function("F", "a cond", "b", [node("Exp", "a", "t"), node("If", "cond", "b", then_branch=branch)])
        graph = with_functions([node("F", "x x", "y", domain="f", name="n")], body)
        then = graph.nodes[1].attributes["then_branch"]
        assert names(then) == ["n/x = Neg(x)", "n/r = Add(n/x, n/t)"]
        assert then.outputs == ["n/r"]
        assert then.captures() == ["x", "n/t"]

    def test_calls_in_sub_graphs(self):
        body = function("F", "a", "b", [node("Relu", "a", "t"), node("Neg", "t", "b")])
        branch = helper.make_graph([node("F", "x", "r", domain="f", name="c")], "branch", [], [info("r")])
        graph = with_functions([node("If", "x", "y", then_branch=branch)], body)
        assert names(graph.nodes[0].attributes["then_branch"]) == ["c/t = Relu(x)", "r = Neg(c/t)"]

    def test_a_function_shadows_an_operator(self):
        body = helper.make_function("", "Relu", ["a"], ["b"], [node("Neg", "a", "b")], [helper.make_opsetid("", 20)])
        assert names(load_model(make([node("Relu", "x", "y")], functions=[body])).graph) == ["y = Neg(x)"]

    def test_recursion_is_refused(self):
        one = function("One", "a", "b", [node("Two", "a", "b", domain="f")])
        two = function("Two", "a", "b", [node("One", "a", "b", domain="f")])
        with pytest.raises(ModelError, match="'f::One' calls itself"):
            with_functions([node("One", "x", "y", domain="f")], one, two)

    def test_deep_calls_have_a_limit(self):
        functions = [function(f"F{i}", "a", "b", [node(f"F{i + 1}", "a", "b", domain="f")]) for i in range(2000)]
        with pytest.raises(LimitError, match="call each other deeper"):
            with_functions([node("F0", "x", "y", domain="f")], *functions)

    def test_growth_has_a_limit(self, monkeypatch):
        """Thirty functions that each call the next twice would make a billion nodes."""
        monkeypatch.setattr(builder, "MAX_NODES", 1000)
        calls = [
            function(
                f"F{i}", "a", "b", [node(f"F{i + 1}", "a", "t", domain="f"), node(f"F{i + 1}", "t", "b", domain="f")]
            )
            for i in range(30)
        ]
        with pytest.raises(LimitError, match="more than 1000 nodes"):
            with_functions(
                [node("F0", "x", "y", domain="f")], *calls, function("F30", "a", "b", [node("Neg", "a", "b")])
            )

    def test_too_many_inputs(self):
        with pytest.raises(ModelError, match="calls function 'f::F' with 2 inputs and 1 outputs; it has 1 and 1"):
            with_functions([node("F", "x x", "y", domain="f")], function("F", "a", "b", [node("Neg", "a", "b")]))


def nested(depth: int) -> bytes:
    """A model of one If inside the other, in bytes: onnx itself can't write more than 30."""

    def field(number: int, payload: bytes) -> bytes:
        length = len(payload)
        size = bytes([length & 127 | 128, length >> 7 & 127 | 128, length >> 14 & 127 | 128, length >> 21])
        return bytes([number << 3 | 2]) + size + payload

    graph = helper.make_graph([node("Neg", "x", "t")], "inner", [], [info("t")]).SerializeToString()
    outer = make([], inputs=("x",), outputs=("t",))
    for level in range(depth):
        attribute = field(1, b"then_branch") + field(6, graph) + bytes([0xA0, 1, 5])
        call = field(1, b"x") + field(2, b"t") + field(4, b"If") + field(5, attribute)
        last = level == depth - 1
        graph = (
            field(1, call) + field(12, info("t").SerializeToString()) + field(11, info("x").SerializeToString()) * last
        )
    outer.ClearField("graph")
    return outer.SerializeToString() + field(7, graph)


def test_deep_sub_graphs_have_a_limit():
    depth, inner = 0, load_model(nested(30)).graph
    while inner.nodes[0].op_type == "If":
        depth, inner = depth + 1, inner.nodes[0].attributes["then_branch"]
    assert depth == 30
    for depth in (40, 3000):
        with pytest.raises(LimitError, match="nest deeper"):
            load_model(nested(depth))


def busy_model() -> bytes:
    body = function("F", "a", "b", [node("Relu", "a", "t"), node("Neg", "t", "b")])
    branch = helper.make_graph([node("F", "x", "r", domain="f", name="c")], "branch", [], [info("r")])
    w = numpy_helper.from_array(np.ones(2, np.float32), "w")
    nodes = [
        node("Add", "c w", "y"),
        node("If", "x", "c", then_branch=branch, else_branch=branch),
        node("Constant", "", "k", value_ints=[1, 2]),
    ]
    return make(nodes, functions=[body], opsets={"": 20, "f": 1}, initializers=[w]).SerializeToString()


def load_damaged(data: bytes) -> None:
    with contextlib.suppress(ModelError, LimitError):
        graph = load_model(data).graph
        for tensor in graph.initializers.values():
            tensor.numpy()


def test_every_truncation():
    data = busy_model()
    for end in range(len(data)):
        load_damaged(data[:end])


def test_random_damage():
    rng = random.Random(3)
    original = busy_model()
    for _ in range(2000):
        data = bytearray(original)
        for _ in range(rng.choice([1, 1, 2, 5])):
            if rng.random() < 0.8:
                data[rng.randrange(len(data))] = rng.randrange(256)
            else:
                at = rng.randrange(len(data))
                data[at : at + rng.randrange(4)] = rng.randbytes(rng.randrange(4))
        load_damaged(bytes(data))


def test_damage_to_models_of_the_zoo(shared):
    rng = random.Random(5)
    paths = sorted(shared.glob("zoo/*/model.onnx"), key=lambda p: p.stat().st_size)[:20]
    for path in paths:
        original = path.read_bytes()
        for _ in range(3):
            load_damaged(original[: rng.randrange(len(original))])
            data = bytearray(original)
            data[rng.randrange(len(data))] = rng.randrange(256)
            load_damaged(bytes(data))


def test_models_of_the_zoo(shared):
    """Initializers and node counts are those of the file."""
    for path in sorted(shared.glob("zoo/*/model.onnx"), key=lambda p: p.stat().st_size)[:40]:
        proto, graph = onnx.load(path), load_model(path).graph
        assert [i.name for i in proto.graph.output] == graph.outputs
        for tensor in proto.graph.initializer:
            ours = graph.initializers[tensor.name].numpy()
            theirs = numpy_helper.to_array(tensor)
            assert ours.shape == theirs.shape
            if tensor.data_type == TensorProto.STRING:
                assert ours.tolist() == [s.decode() if isinstance(s, bytes) else s for s in theirs.ravel()]
            else:
                assert ours.dtype == theirs.dtype
                assert ours.tobytes() == theirs.tobytes()
        if not proto.functions:
            assert len(graph.nodes) == sum(n.op_type != "Constant" for n in proto.graph.node)
