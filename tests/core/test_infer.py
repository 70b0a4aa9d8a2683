"""Type and shape inference against the standard's own cases, onnx's inference, and what models really gave."""

from __future__ import annotations

import random

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxlet.errors import ModelError, ShapeError
from onnxlet.graph.infer import infer_graph, infer_node
from onnxlet.graph.infer.registry import find_inference
from onnxlet.graph.ir import STRING, MapType, Node, OptionalType, SequenceType, TensorType, Type
from onnxlet.model.loader import load_model
from onnxlet.model.tensors import Tensor
from tests.conformance.suite import collect

F32, I64, BOOL = np.dtype("f4"), np.dtype("i8"), np.dtype(bool)


def t(*shape, dtype=F32) -> TensorType:
    return TensorType(dtype, shape)


def array_type(array: np.ndarray) -> TensorType:
    return TensorType(STRING if array.dtype.kind in "USO" else array.dtype, array.shape)


def agrees(ours: Type | None, array: np.ndarray) -> bool:
    """Whether what was inferred is true of the array, as far as it says anything."""
    if not isinstance(ours, TensorType):
        return ours is None
    real = array_type(array)
    if ours.dtype is not None and ours.dtype != real.dtype:
        return False
    if ours.shape is None:
        return True
    return len(ours.shape) == array.ndim and all(
        not isinstance(d, int) or d == n for d, n in zip(ours.shape, array.shape, strict=True)
    )


@pytest.fixture(scope="module")
def cases():
    """The standard's own cases for single operators: name, model, input arrays, output arrays."""
    found = []
    for case in collect():
        arrays = [[v if isinstance(v, np.ndarray) else None for v in values] for values in case.sets[0]]
        model = onnx.load_from_string(case.model)
        found.append((case.name, model, *arrays))
    return found


# What their shapes depend on is the data itself.
DATA_DEPENDENT = {
    "Compress",
    "ImageDecoder",
    "NonMaxSuppression",
    "NonZero",
    "StringNormalizer",
    "StringSplit",
    "Unique",
    "Loop",
    "CastLike",
    "Cast",
    "Scan",
}


def test_cases_of_the_standard(cases):
    """With the inputs known, inference gives the very types of the outputs."""
    for name, model, inputs, outputs in cases:
        graph = load_model(model).graph
        sequences = {i for i, v in zip(graph.inputs, inputs, strict=False) if v is None}
        graph.types = {i: graph.types[i] for i in sequences if i in graph.types}
        for i, value in zip([i.name for i in model.graph.input], inputs, strict=False):
            if value is not None:
                graph.initializers[i] = Tensor.of(value)
        graph.inputs = [i for i in graph.inputs if i not in graph.initializers]
        found = infer_graph(graph)
        known = not sequences and not DATA_DEPENDENT & {n.op_type for n in graph.nodes}
        for output, value in zip(model.graph.output, outputs, strict=False):
            if value is not None:
                assert agrees(found.get(output.name), value), (name, str(found.get(output.name)), array_type(value))
                if known:
                    assert found[output.name].concrete, (name, str(found[output.name]))


def test_weak_types_are_never_a_crash(cases):
    """Unknown, symbolic, partly known or wrong input types give a type or a ShapeError, and nothing else."""
    rng = random.Random(1)

    def weaken(type_: Type | None) -> Type | None:
        if not isinstance(type_, TensorType) or type_.shape is None:
            return rng.choice([type_, None])
        shape = [rng.choice([d, d, None, "N", f"s{i}"]) for i, d in enumerate(type_.shape)]
        wrong = [rng.choice([d, 0, 1, 5]) for d in type_.shape]
        return rng.choice(
            [
                None,
                type_,
                TensorType(type_.dtype, None),
                TensorType(None, type_.shape),
                TensorType(type_.dtype, tuple(shape)),
                TensorType(type_.dtype, tuple(wrong)),
                TensorType(type_.dtype, (*shape, 2)),
                TensorType(type_.dtype, tuple(shape[1:])),
            ]
        )

    def weak_value(value: np.ndarray | None) -> np.ndarray | None:
        if value is None or rng.random() < 0.5:
            return None
        if value.dtype.kind == "i" and rng.random() < 0.3:
            value = value.astype(object)
            value.reshape(-1)[:1] = rng.choice(["N", None])
        return value

    for _, model, inputs, _ in cases:
        graph = load_model(model).graph
        values = dict(zip([i.name for i in model.graph.input], inputs, strict=False))
        for node in graph.nodes[:3]:
            for _ in range(2):
                types = [weaken(graph.types.get(i)) if i else None for i in node.inputs]
                constants = [
                    weak_value(values.get(i)) if isinstance(type_, TensorType) else None
                    for i, type_ in zip(node.inputs, types, strict=True)
                ]
                try:
                    found = infer_node(node, types, constants)
                except (ShapeError, ModelError):
                    continue
                assert len(found) == len(node.outputs)


def test_every_operator_has_inference(cases):
    without = {n.operator for _, model, *_ in cases for n in load_model(model).graph.nodes if find_inference(n) is None}
    assert without <= {"ai.onnx.preview.training::" + n for n in ("Adagrad", "Adam", "Gradient", "Momentum")}


def feeds_of(path) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    with np.load(path / "data.npz", allow_pickle=True) as data:
        arrays = {key: data[key] for key in data}
    return (
        {key[3:]: value for key, value in arrays.items() if key.startswith("in:")},
        {key[4:]: value for key, value in arrays.items() if key.startswith("out:")},
    )


def zoo(shared, prefix: str):
    return [p.parent for p in sorted(shared.glob(f"zoo/{prefix}*/model.onnx")) if p.stat().st_size < 20_000_000]


@pytest.mark.parametrize("prefix", ["torch_", "tf_", "q_"])
def test_models_of_the_zoo(shared, prefix: str):
    """Shapes inferred from those of the inputs are those of the outputs that the models were recorded with."""
    for path in zoo(shared, prefix):
        graph = load_model(path / "model.onnx").graph
        feeds, outputs = feeds_of(path)
        found = infer_graph(graph, {name: array_type(value) for name, value in feeds.items()})
        for name, value in outputs.items():
            ours = found[name]
            assert isinstance(ours, TensorType)
            if value.dtype.kind == "f":
                value = value.astype(ours.dtype)  # recorded as float32 where the model gives bfloat16
            assert agrees(ours, value), (path.name, name, str(ours), value.shape)


@pytest.mark.parametrize("prefix", ["torch_", "tf_", "q_mobilenetv2", "skl_"])
def test_agrees_with_onnx(shared, prefix: str):
    """Where both know a dimension, it is the same one; and ours knows at least the rank where theirs does."""
    for path in zoo(shared, prefix):
        theirs = onnx.shape_inference.infer_shapes(onnx.load(path / "model.onnx"))
        graph = load_model(path / "model.onnx").graph
        expected = load_model(theirs).graph.types
        for name, ours in infer_graph(graph).items():
            other = expected.get(name)
            if isinstance(other, TensorType) and isinstance(ours, TensorType) and name not in graph.inputs:
                assert other.dtype in (None, ours.dtype), (path.name, name)
                if other.shape is not None and ours.shape is not None:
                    assert len(other.shape) == len(ours.shape), (path.name, name, str(ours), str(other))
                    for a, b in zip(ours.shape, other.shape, strict=True):
                        assert not (isinstance(a, int) and isinstance(b, int)) or a == b, (path.name, name)


def graph_of(nodes, inputs, outputs=("y",), initializers=(), opset=20):
    infos = [helper.make_tensor_value_info(n, e, s) for n, (e, s) in inputs.items()]
    results = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs]
    graph = helper.make_graph(
        nodes, "g", infos, results, [numpy_helper.from_array(v, k) for k, v in dict(initializers).items()]
    )
    return load_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])).graph


def node(op: str, inputs: str, outputs: str, **attributes) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


class TestSymbols:
    def test_a_batch_dimension_goes_through_shape_arithmetic(self):
        """As exporters write a reshape to [batch, length, heads, size]."""
        nodes = [
            node("Shape", "x", "s"),
            node("Gather", "s zero", "b", axis=0),
            node("Gather", "s one", "l", axis=0),
            node("Unsqueeze", "b axes", "b1"),
            node("Unsqueeze", "l axes", "l1"),
            node("Concat", "b1 l1 rest", "shape", axis=0),
            node("Reshape", "x shape", "r"),
            node("Transpose", "r", "y", perm=[0, 2, 1, 3]),
        ]
        constants = {"zero": np.array(0), "one": np.array(1), "axes": np.array([0]), "rest": np.array([12, 64])}
        found = infer_graph(graph_of(nodes, {"x": (1, ["batch", "length", 768])}, initializers=constants))
        assert found["shape"] == t(4, dtype=I64)
        assert found["y"] == t("batch", 12, "length", 64)

    def test_a_large_tensor_is_not_computed(self):
        """A shape of one number may ask for terabytes."""
        nodes = [node("ConstantOfShape", "s", "c"), node("Range", "zero n one", "r"), node("Shape", "c", "y")]
        constants = {"s": np.array([1 << 42]), "n": np.array(1 << 42), "zero": np.array(0), "one": np.array(1)}
        found = infer_graph(graph_of(nodes, {}, initializers=constants))
        assert found["c"] == t(1 << 42)
        assert found["r"] == t(1 << 42, dtype=I64)

    def test_what_remains_for_minus_one(self):
        constants = {"s": np.array([0, -1, 64])}
        found = infer_graph(graph_of([node("Reshape", "x s", "y")], {"x": (1, ["n", "l", 64])}, initializers=constants))
        assert found["y"] == t("n", "l", 64)
        found = infer_graph(graph_of([node("Reshape", "x s", "y")], {"x": (1, ["n", 4, 128])}, initializers=constants))
        assert found["y"] == t("n", 8, 64)

    def test_broadcasting(self):
        def add(a, b):
            return infer_node(Node("Add", ["a", "b"], ["y"], version=14), [a, b])[0]

        assert add(t("n", 3), t(3)) == t("n", 3)
        assert add(t("n", 3), t("n", 1)) == t("n", 3)
        assert add(t("n"), t("m")) == t(None)
        assert add(t("n"), t(4)) == t(4)
        assert add(t("n"), t(1)) == t("n")
        assert add(t(0), t(1)) == t(0)
        assert add(t(None), t("n")) == t(None)

    def test_input_types_say_more_than_the_model(self):
        graph = graph_of([node("Relu", "x", "y")], {"x": (1, ["n", None, 4])})
        assert infer_graph(graph)["y"] == t("n", None, 4)
        assert infer_graph(graph, {"x": t(2, 3, 4)})["y"] == t(2, 3, 4)
        assert infer_graph(graph, {"x": t(2, None, 4)})["y"] == t(2, None, 4)

    def test_what_the_model_declares_fills_gaps_of_numbers(self):
        nodes = [node("NonZero", "x", "i"), node("Custom", "i", "c", domain="d"), node("Relu", "c", "y")]
        graph = graph_of(nodes, {"x": (1, [3])})
        graph.types["c"] = t("k", 7)
        assert infer_graph(graph)["y"] == t(None, 7)

    def test_an_overridable_initializer_is_no_constant(self):
        graph = graph_of(
            [node("Reshape", "x s", "y")], {"x": (1, [6]), "s": (7, [2])}, initializers={"s": np.array([2, 3])}
        )
        assert graph.defaults == ["s"]
        assert infer_graph(graph)["y"] == t(None, None)


class TestBodies:
    def branch(self, op: str, name: str):
        return helper.make_graph([node(op, "x", name)], name, [], [helper.make_tensor_value_info(name, 1, None)])

    def test_if(self):
        nodes = [node("If", "c", "y", then_branch=self.branch("Relu", "a"), else_branch=self.branch("Neg", "b"))]
        inputs = {"c": (9, []), "x": (1, ["n", 3])}
        assert infer_graph(graph_of(nodes, inputs))["y"] == t("n", 3)
        nodes = [node("If", "c", "y", then_branch=self.branch("Relu", "a"), else_branch=self.branch("Flatten", "b"))]
        found = infer_graph(graph_of(nodes, {"c": (9, []), "x": (1, ["n", 3, 2])}))
        assert found["y"] == TensorType(F32, None)

    def test_loop(self):
        body = helper.make_graph(
            [
                node("Concat", "v x", "grown", axis=0),
                node("Relu", "w", "same"),
                node("Identity", "c", "on"),
                node("Neg", "w", "z"),
            ],
            "body",
            [
                helper.make_tensor_value_info("i", 7, []),
                helper.make_tensor_value_info("c", 9, []),
                helper.make_tensor_value_info("v", 1, None),
                helper.make_tensor_value_info("w", 1, None),
            ],
            [
                helper.make_tensor_value_info("on", 9, []),
                *(helper.make_tensor_value_info(n, 1, None) for n in ("grown", "same", "z")),
            ],
        )
        nodes = [node("Loop", "m c0 x x", "a b s", body=body)]
        inputs = {"m": (7, []), "c0": (9, []), "x": (1, [2, 3])}
        found = infer_graph(graph_of(nodes, inputs, outputs=("a", "b", "s")))
        assert found["a"] == t(None, 3)
        assert found["b"] == t(2, 3)
        assert found["s"] == t(None, 2, 3)

    def test_scan(self):
        body = helper.make_graph(
            [node("Add", "h u", "g"), node("Neg", "g", "o")],
            "body",
            [helper.make_tensor_value_info(n, 1, None) for n in ("h", "u")],
            [helper.make_tensor_value_info(n, 1, None) for n in ("g", "o")],
        )
        nodes = [node("Scan", "h0 x", "h1 ys", body=body, num_scan_inputs=1, scan_input_axes=[1], scan_output_axes=[1])]
        found = infer_graph(graph_of(nodes, {"h0": (1, [2]), "x": (1, [2, 5])}, outputs=("h1", "ys")))
        assert (found["h1"], found["ys"]) == (t(2), t(2, 5))

    def test_captured_types_of_a_body(self):
        outer = graph_of(
            [node("If", "c", "y", then_branch=self.branch("Relu", "a"), else_branch=self.branch("Neg", "b"))],
            {"c": (9, []), "x": (1, [4])},
        )
        body = outer.nodes[0].attributes["then_branch"]
        assert infer_graph(body, {"x": t(4)})["a"] == t(4)


class TestOtherTypes:
    def test_sequences_and_optionals(self):
        x, y = t(2, 3), t(2, 5)
        sequence = infer_node(Node("SequenceConstruct", ["a", "b"], ["s"], version=11), [x, y])[0]
        assert sequence == SequenceType(t(2, None))
        assert infer_node(Node("SequenceAt", ["s", "i"], ["y"], version=11), [sequence, t(dtype=I64)])[0] == t(2, None)
        concat = Node("ConcatFromSequence", ["s"], ["y"], {"axis": 1}, version=11)
        assert infer_node(concat, [sequence])[0] == t(2, None)
        assert infer_node(Node("Optional", ["x"], ["o"], version=15), [x])[0] == OptionalType(x)
        assert infer_node(Node("OptionalGetElement", ["o"], ["y"], version=15), [OptionalType(x)])[0] == x

    def test_zip_map(self):
        node = Node("ZipMap", ["p"], ["m"], {"classlabels_strings": ["a", "b"]}, "ai.onnx.ml", 1)
        assert infer_node(node, [t(5, 2)])[0] == SequenceType(MapType(STRING, t()))


def test_a_norm_has_the_type_of_its_scale():
    """Output Y of RMSNormalization is of type V, as its scale."""
    narrow, wide = t("n", 4, dtype=np.dtype(np.float16)), t(4)
    assert infer_node(Node("RMSNormalization", ["x", "s"], ["y"], version=23), [narrow, wide]) == [t("n", 4)]


def test_our_fused_matmul():
    node = Node("FusedMatMul", ["a", "b", "bias"], ["y"], {"transB": 1, "activation": "Relu"}, "ai.onnxlet")
    assert infer_node(node, [t("n", 7, 8), t(5, 8), t(5)]) == [t("n", 7, 5)]


WRONG = [
    ("MatMul", {}, [t(2, 3), t(4, 5)], {}, r"inner dimensions of \[2,3\] and \[4,5\]: 3 and 4 should be equal"),
    ("Add", {}, [t(2, 3), t(4)], {}, r"shapes \[2,3\] and \[4\] can't be broadcast together"),
    ("Conv", {}, [t(1, 3, 8, 8), t(6, 4, 3, 3)], {}, r"the weights take 4 x 1 \(group\) channels, the input has 3"),
    ("Conv", {}, [t(1, 3, 2, 2), t(6, 3, 3, 3)], {}, "a window that spans 3 does not fit into 2 elements"),
    ("Concat", {"axis": 0}, [t(2, 3), t(2, 4)], {}, "inputs differ outside of axis 0"),
    ("Concat", {"axis": 2}, [t(2, 3), t(2, 4)], {}, r"axis 2 is outside \[-2, 1\]"),
    ("Reshape", {}, [t(2, 3), t(2, dtype=I64)], {1: np.array([4, 2])}, r"6 elements of shape \[2,3\] do not fit"),
    ("Transpose", {"perm": [0, 0]}, [t(2, 3)], {}, r"perm \[0, 0\] is not a permutation"),
    (
        "Squeeze",
        {},
        [t(2, 3), t(1, dtype=I64)],
        {1: np.array([0])},
        r"input 0 \('i0'\) is float32\[2,3\], expected 1 at axis 0",
    ),
    (
        "Gemm",
        {},
        [t(2, 3), t(3, 4), t(5)],
        {},
        r"input 2 \('i2'\) is \[5\], expected a shape that broadcasts to \[2,4\]",
    ),
    ("Expand", {}, [t(3), t(2, dtype=I64)], {1: np.array([2, 4])}, r"\[3\] can't be expanded to \[2, 4\]"),
    ("Split", {"num_outputs": 1}, [t(4), t(1, dtype=I64)], {1: np.array([3])}, r"split \[3\] does not add up to the 4"),
    ("TopK", {}, [t(4), t(1, dtype=I64)], {1: np.array([5])}, "k is 5, but axis 0"),
    ("Relu", {}, [SequenceType(t(2))], {}, r"input 0 \('i0'\) is seq\(float32\[2\]\), expected a tensor"),
    (
        "Einsum",
        {"equation": "ij,jk->ik"},
        [t(2, 3), t(4, 5)],
        {},
        "dimension 'j' of 'ij,jk->ik': 3 and 4 should be equal",
    ),
]


@pytest.mark.parametrize(("op", "attributes", "inputs", "values", "message"), WRONG)
def test_errors_name_the_node_and_what_came(op: str, attributes, inputs, values, message: str):
    node = Node(op, [f"i{i}" for i in range(len(inputs))], ["y"], attributes, version=18, name="the node")
    with pytest.raises(ShapeError, match=rf"^node 'the node' \({op}\): .*{message}"):
        infer_node(node, inputs, [values.get(i) for i in range(len(inputs))])


OLD = [
    ("Add", 6, {"broadcast": 1, "axis": 1}, [t(2, 3, 4), t(3)], t(2, 3, 4)),
    ("Unsqueeze", 11, {"axes": [0, 2]}, [t(3, 4)], t(1, 3, 1, 4)),
    ("Squeeze", 11, {}, [t(1, 3, 1)], t(3)),
    ("Slice", 9, {"starts": [1, -2], "ends": [2**31, 10], "axes": [0, 1]}, [t(5, 6)], t(4, 2)),
    ("Pad", 2, {"pads": [0, 1, 2, 3]}, [t(5, 6)], t(7, 10)),
    ("Pad", 1, {"paddings": [0, 1, 2, 3]}, [t(5, 6)], t(7, 10)),
    ("ReduceSum", 11, {"axes": [-1], "keepdims": 0}, [t(5, 6)], t(5)),
    ("ReduceSum", 13, {}, [t(5, 6)], t(1, 1)),
    ("Upsample", 7, {"scales": [1.0, 1.0, 2.0, 2.5]}, [t(1, 3, 4, 5)], t(1, 3, 8, 12)),
    ("Reshape", 1, {"shape": [0, -1]}, [t(2, 3, 4)], t(2, 12)),
    ("TopK", 1, {"k": 2, "axis": 0}, [t(5, 6)], t(2, 6)),
    ("Cast", 1, {"to": "FLOAT"}, [t(2, dtype=I64)], t(2)),
    ("Split", 2, {"split": [2, 3], "axis": 1}, [t(2, 5)], t(2, 2)),
    ("Flatten", 1, {}, [t(2, 3, 4)], t(2, 12)),
    ("Dropout", 6, {}, [t(2, 3)], t(2, 3)),
    ("Concat", 1, {}, [t(2, 3), t(2, 4)], t(2, 7)),
    ("Clip", 6, {"min": 0.0}, [t(2, 3)], t(2, 3)),
]


@pytest.mark.parametrize(("op", "version", "attributes", "inputs", "expected"), OLD)
def test_old_versions(op: str, version: int, attributes, inputs, expected):
    outputs = ["y", "z"] if op == "Split" else ["y"]
    node = Node(op, [f"i{i}" for i in range(len(inputs))], outputs, attributes, version=version)
    assert infer_node(node, inputs)[0] == expected


def test_maps_as_rows():
    def ml(op_type: str, given: Type, **attributes) -> Type | None:
        return infer_node(Node(op_type, ["m"], ["y"], attributes, "ai.onnx.ml", 1), [given])[0]

    numbers = MapType(I64, t())
    assert ml("CastMap", numbers) == t(1, None)
    assert ml("CastMap", numbers, cast_to="TO_STRING", map_form="SPARSE", max_map=7) == t(1, 7, dtype=STRING)
    assert ml("DictVectorizer", numbers, int64_vocabulary=[5, 6, 7]) == t(1, 3)
    assert ml("DictVectorizer", MapType(STRING, t(dtype=I64)), string_vocabulary=["a"]) == t(1, 1, dtype=I64)


def test_optimisers():
    def outputs(op_type: str, groups: int, kept: int) -> list[Type | None]:
        names = [f"y{i}" for i in range(2 * kept)]
        node = Node(op_type, ["r", "t"] + ["x"] * 2 * groups, names, {}, "ai.onnx.preview.training", 1)
        return infer_node(node, [t(), t(dtype=I64), *[t(2, 3), t(5)] * groups])

    for op_type, groups, kept in (("Adagrad", 3, 2), ("Momentum", 3, 2), ("Adam", 4, 3)):
        assert outputs(op_type, groups, kept) == [t(2, 3), t(5)] * kept
    odd = Node("Adam", ["r", "t", "x"], ["y"], {}, "ai.onnx.preview.training", 1)
    with pytest.raises(ShapeError, match="3 inputs; expected rate, step, and 4 for each parameter"):
        infer_node(odd, [t(), t(), t()])
