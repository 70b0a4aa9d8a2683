"""Gradient against differences of the function's values."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import onnxlet
from onnxlet.errors import UnsupportedError

DOMAIN = "ai.onnx.preview.training"


def build(nodes, inputs, xs, y, zs=(), constants=None):
    attributes: dict[str, Any] = {"xs": list(xs), "y": y, **({"zs": list(zs)} if zs else {})}
    gradient = helper.make_node("Gradient", [*xs, *zs], [f"d{x}" for x in xs], domain=DOMAIN, **attributes)
    graph = helper.make_graph(
        [*nodes, gradient],
        "g",
        [helper.make_tensor_value_info(n, TensorProto.DOUBLE, v.shape) for n, v in inputs.items()],
        [helper.make_empty_tensor_value_info(n) for n in [y, *(f"d{x}" for x in xs)]],
        [onnx.numpy_helper.from_array(v, n) for n, v in (constants or {}).items()],
    )
    imports = [helper.make_opsetid("", 18), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9).SerializeToString()


def differences(run, feeds, name, step=1e-6):
    """The derivative of the sum of run(feeds) by feeds[name], from central differences."""
    x = feeds[name]
    out = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[i] += step
        down[i] -= step
        out[i] = (run({**feeds, name: up}).sum() - run({**feeds, name: down}).sum()) / (2 * step)
    return out


RNG = np.random.default_rng(0)
A, B = RNG.random((2, 3)) + 0.5, RNG.random((1, 3)) + 0.5
M = RNG.random((3, 4))
IMAGE, W, D = RNG.normal(size=(2, 2, 4, 5)), RNG.normal(size=(4, 2, 2, 3)), RNG.normal(size=4)
CHANNELS = {name: RNG.random(2) + 0.5 for name in ("scale", "bias", "mean", "variance")}
LEAST, MOST = np.array(-0.4), np.array(0.6)
CONSTANTS = {
    "axis": np.array([1]), "two": np.array([2]), "wide": np.array([2, 2, 3]), "starts": np.array([2, 0]),
    "parts": np.array([1, 2, 2]), "places": np.array([[0, 2], [-1, 2]]), "two_of": np.array([1, 1, 0]),
    "pads": np.array([0, 1, 2, -1]), "nothing": np.array(0.0), "ends": np.array([-9, 2]),
    "axes": np.array([-1, 0]), "steps": np.array([-2, 1]),
}  # fmt: skip
node = helper.make_node


def square(*nodes):
    return [*nodes, node("Mul", ["t", "t"], ["y"])]


CASES = {
    **{
        name: ([node(name, ["a"], ["y"])], {"a": A})
        for name in (
            *("Neg", "Exp", "Log", "Sqrt", "Abs", "Sin", "Cos", "Tanh", "Sigmoid", "Softplus", "Reciprocal", "Relu"),
            *("Erf", "Identity", "Softmax", "LogSoftmax", "Tan", "Atan", "Sinh", "Cosh", "Asinh"),
        )
    },
    **{
        name: ([node(name, ["a", "b"], ["y"])], {"a": A, "b": B})
        for name in ("Add", "Sub", "Mul", "Div", "Pow", "Sum", "Max", "Min")
    },
    **{name: ([node(name, ["a"], ["y"])], {"a": A / 2 - 0.2}) for name in ("Asin", "Acos", "Atanh")},
    "Acosh": ([node("Acosh", ["a"], ["y"])], {"a": A + 1}),
    "LeakyRelu": ([node("LeakyRelu", ["i"], ["y"], alpha=0.3)], {"i": IMAGE}),
    "Elu": ([node("Elu", ["i"], ["y"], alpha=0.7)], {"i": IMAGE}),
    "Clip": ([node("Clip", ["i", "least", "most"], ["y"])], {"i": IMAGE, "least": LEAST, "most": MOST}),
    "Clip from above": ([node("Clip", ["i", "", "most"], ["y"])], {"i": IMAGE, "most": MOST}),
    "Cast": (
        [
            node("Cast", ["a"], ["s"], to=TensorProto.FLOAT),
            node("Cast", ["s"], ["t"], to=TensorProto.DOUBLE),
            # What differences of float32 can't tell.
            node("Mul", ["t", "nothing"], ["u"]),
            node("Add", ["a", "u"], ["y"]),
        ],
        {"a": A},
    ),
    "Split": (
        [node("Split", ["i", "parts"], ["", "t", "u"], axis=-1), node("Add", ["t", "u"], ["y"])],
        {"i": IMAGE},
    ),
    "Gather": (square(node("Gather", ["a", "places"], ["t"], axis=-1)), {"a": A}),
    "Gather of rows": (square(node("Gather", ["a", "two_of"], ["t"])), {"a": A}),
    "Pad": (square(node("Pad", ["a", "pads", "c"], ["t"])), {"a": A, "c": np.array(0.7)}),
    "Pad of one axis": (square(node("Pad", ["a", "axes", "", "axis"], ["t"])), {"a": A}),
    "MatMul": ([node("MatMul", ["a", "m"], ["y"])], {"a": A, "m": M}),
    "MatMul batched": ([node("MatMul", ["a", "m"], ["y"])], {"a": np.stack([A, A + B]), "m": M}),
    "Gemm": (
        [node("Gemm", ["a", "m", "c"], ["y"], transA=1, transB=1, alpha=0.5, beta=2.0)],
        {"a": A.T.copy(), "m": M.T.copy(), "c": B[:, :1]},
    ),
    "Transpose": (square(node("Transpose", ["a"], ["t"])), {"a": A}),
    "Transpose by perm": (square(node("Transpose", ["a"], ["t"], perm=[2, 0, 1])), {"a": A.reshape(1, 2, 3)}),
    "Flatten": (square(node("Flatten", ["a"], ["t"], axis=0)), {"a": A}),
    "ReduceMean": ([node("ReduceMean", ["a"], ["t"], keepdims=0), node("Mul", ["t", "a"], ["y"])], {"a": A}),
    "ReduceSum": ([node("ReduceSum", ["a", "axis"], ["t"]), node("Mul", ["t", "a"], ["y"])], {"a": A}),
    "Expand": (square(node("Expand", ["b", "wide"], ["t"])), {"b": B}),
    "Concat": (square(node("Concat", ["a", "b", "a"], ["t"], axis=0)), {"a": A, "b": B}),
    "Concat of the last axis": (square(node("Concat", ["a", "c"], ["t"], axis=-1)), {"a": A, "c": A[:, :1] + 1}),
    "Slice": (square(node("Slice", ["a", "starts", "ends", "axes", "steps"], ["t"])), {"a": A}),
    "Slice of the first axes": (square(node("Slice", ["a", "axis", "two"], ["t"])), {"a": A}),
    "Conv": ([node("Conv", ["i", "w", "d"], ["y"], pads=[1, 0, 0, 1], strides=[2, 1])], {"i": IMAGE, "w": W, "d": D}),
    "Conv of groups": (
        [node("Conv", ["i", "w"], ["y"], group=2, dilations=[1, 2], auto_pad="SAME_UPPER")],
        {"i": IMAGE, "w": W[:, :1]},
    ),
    "Conv of one axis": ([node("Conv", ["i", "w"], ["y"])], {"i": IMAGE[..., 0], "w": W[..., 0]}),
    "ConvTranspose": (
        [node("ConvTranspose", ["i", "w", "e"], ["y"], strides=[2, 2], pads=[1, 0, 1, 1], output_padding=[1, 0])],
        {"i": IMAGE, "w": W[:2, :], "e": D[:2]},
    ),
    "ConvTranspose of groups": ([node("ConvTranspose", ["i", "w"], ["y"], group=2)], {"i": IMAGE, "w": W[:2]}),
    "AveragePool": ([node("AveragePool", ["i"], ["y"], kernel_shape=[2, 3], pads=[1, 1, 0, 1])], {"i": IMAGE}),
    "AveragePool with padding": (
        [
            node(
                "AveragePool",
                ["i"],
                ["y"],
                kernel_shape=[2, 2],
                strides=[2, 2],
                pads=[1, 1, 1, 1],
                ceil_mode=1,
                count_include_pad=1,
            )
        ],
        {"i": IMAGE},
    ),
    "MaxPool": ([node("MaxPool", ["i"], ["y"], kernel_shape=[2, 2], strides=[1, 2], pads=[1, 0, 0, 1])], {"i": IMAGE}),
    "MaxPool of dilated windows": (
        [node("MaxPool", ["i"], ["y"], kernel_shape=[2, 2], dilations=[2, 1])],
        {"i": IMAGE},
    ),
    "GlobalAveragePool": ([node("GlobalAveragePool", ["i"], ["y"])], {"i": IMAGE}),
    "GlobalMaxPool": ([node("GlobalMaxPool", ["i"], ["y"])], {"i": IMAGE}),
    "LpPool": (
        [node("LpPool", ["i"], ["y"], kernel_shape=[2, 3], pads=[1, 1, 0, 1], strides=[1, 2])],
        {"i": IMAGE},
    ),
    "LpPool of other powers": (
        [node("LpPool", ["i"], ["y"], kernel_shape=[2, 2], p=3, ceil_mode=1, strides=[2, 2], dilations=[2, 1])],
        {"i": IMAGE},
    ),
    "GlobalLpPool": ([node("GlobalLpPool", ["i"], ["y"])], {"i": IMAGE}),
    "BatchNormalization": (
        [node("BatchNormalization", ["i", *CHANNELS], ["y"], epsilon=0.1)],
        {"i": IMAGE, **CHANNELS},
    ),
    "BatchNormalization that trains": (
        [node("BatchNormalization", ["i", *CHANNELS], ["y", "", ""], epsilon=0.1, training_mode=1)],
        {"i": IMAGE, **CHANNELS},
    ),
    "Steps": (
        [
            *(node(n, ["a"], [n]) for n in ("Sign", "Floor", "Ceil", "Round")),
            node("Sum", ["Sign", "Floor", "Ceil", "Round"], ["s"]),
            node("Mul", ["s", "a"], ["y"]),
        ],
        {"a": A},
    ),
    "Where": ([node("Greater", ["a", "b"], ["t"]), node("Where", ["t", "a", "b"], ["y"])], {"a": A, "b": B}),
}


@pytest.mark.parametrize("name", CASES)
def test_rules_against_differences(name):
    nodes, feeds = CASES[name]
    # A weight for each element, as the sum of a Softmax has no slope.
    nodes = [*nodes, node("Mul", ["y", "y"], ["z"])]
    used = {i for n in nodes for i in n.input}
    model = build(nodes, feeds, list(feeds), "z", constants={k: v for k, v in CONSTANTS.items() if k in used})
    session = onnxlet.InferenceSession(model)
    for name, got in zip(feeds, session.run(None, feeds)[1:], strict=True):
        expected = differences(lambda f: session.run(["z"], f)[0], feeds, name)
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-6)


def test_other_values_and_second_order():
    # y = a³: the slope at a is 3a², and that slope's own is 6a.
    nodes = [node("Mul", ["a", "a"], ["s"]), node("Mul", ["s", "a"], ["y"])]
    first = node("Gradient", ["b"], ["first"], domain=DOMAIN, xs=["a"], y="y")
    second = node("Gradient", ["b"], ["second"], domain=DOMAIN, xs=["b"], y="first")
    scalar = [helper.make_tensor_value_info(n, TensorProto.DOUBLE, []) for n in ("a", "b")]
    outputs = [helper.make_empty_tensor_value_info(n) for n in ("y", "first", "second")]
    graph = helper.make_graph([*nodes, first, second], "g", scalar, outputs)
    imports = [helper.make_opsetid("", 18), helper.make_opsetid(DOMAIN, 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=9)
    session = onnxlet.InferenceSession(model.SerializeToString())
    got = session.run(None, {"a": np.array(2.0), "b": np.array(5.0)})
    np.testing.assert_allclose(got, [8, 75, 30])


@pytest.mark.parametrize(
    "name",
    [
        "Conv",
        "Conv of groups",
        "ConvTranspose",
        "AveragePool",
        "MaxPool",
        "GlobalAveragePool",
        "LpPool",
        "GlobalLpPool",
        "BatchNormalization",
        "BatchNormalization that trains",
        "Concat",
        "Gather",
        "Pad",
        "Split",
        "Slice",
        "Expand",
    ],
)
def test_slopes_of_slopes(name):
    """The Gradient of the squares of a Gradient, by differences."""
    nodes, feeds = CASES[name]
    used = {i for n in nodes for i in n.input}
    xs = list(feeds)
    first = node("Gradient", xs, [f"first_{x}" for x in xs], domain=DOMAIN, xs=xs, y="z")
    squares = [node("Mul", [f"first_{x}", f"first_{x}"], [f"square_{x}"]) for x in xs]
    sums = [node("ReduceSum", [f"square_{x}"], [f"sum_{x}"], keepdims=0) for x in xs]
    total = node("Sum", [f"sum_{x}" for x in xs], ["total"])
    nodes = [*nodes, node("Mul", ["y", "y"], ["z"]), first, *squares, *sums, total]
    model = build(nodes, feeds, xs, "total", constants={k: v for k, v in CONSTANTS.items() if k in used})
    session = onnxlet.InferenceSession(model)
    for x, got in zip(feeds, session.run(None, feeds)[1:], strict=True):
        expected = differences(lambda f: session.run(["total"], f)[0], feeds, x)
        np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())


def test_gradients_of_old_slices():
    """Where to begin and to end are attributes before opset 10."""
    nodes = [node("Slice", ["a"], ["t"], starts=[1], ends=[3], axes=[1]), node("Mul", ["t", "t"], ["y"])]
    gradient = node("Gradient", ["a"], ["da"], domain=DOMAIN, xs=["a"], y="y")
    graph = helper.make_graph(
        [*nodes, gradient], "g", [helper.make_tensor_value_info("a", TensorProto.DOUBLE, A.shape)],
        [helper.make_empty_tensor_value_info("da")],
    )  # fmt: skip
    imports = [helper.make_opsetid("", 9), helper.make_opsetid(DOMAIN, 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=9).SerializeToString()
    (got,) = onnxlet.InferenceSession(model).run(None, {"a": A})
    np.testing.assert_allclose(got, np.where(np.arange(3) >= 1, 2 * A, 0))


def test_of_equal_elements_the_first_is_the_greatest():
    """Of a window; of a whole image they share."""
    x = np.array([[[[1.0, 3.0, 3.0, 2.0]]]])
    for name, attributes, expected in (
        ("MaxPool", {"kernel_shape": [1, 4]}, [0, 1, 0, 0]),
        ("GlobalMaxPool", {}, [0, 0.5, 0.5, 0]),
    ):
        model = build([node(name, ["a"], ["y"], **attributes)], {"a": x}, ["a"], "y")
        np.testing.assert_allclose(onnxlet.InferenceSession(model).run(["da"], {"a": x})[0][0, 0, 0], expected)


def test_no_slope_is_no_slope():
    """A norm has none at 0; there it counts as 0."""
    x = np.zeros((1, 1, 1, 4))
    x[..., 3] = -2.0
    for name, attributes in (("LpPool", {"kernel_shape": [1, 2], "strides": [1, 2]}), ("GlobalLpPool", {})):
        model = build([node(name, ["a"], ["y"], **attributes)], {"a": x}, ["a"], "y")
        got = onnxlet.InferenceSession(model).run(["da"], {"a": x})[0][0, 0, 0]
        np.testing.assert_allclose(got, [0, 0, 0, -1])


@pytest.mark.parametrize(("opset", "outputs"), [(8, ["y"]), (13, ["y", "m", "v"])])
def test_normalization_of_old_opsets_has_no_rule(opset, outputs):
    gradient = node("Gradient", ["i"], ["di"], domain=DOMAIN, xs=["i"], y="y")
    feeds = {"i": IMAGE, **CHANNELS}
    graph = helper.make_graph(
        [node("BatchNormalization", list(feeds), outputs), gradient], "g",
        [helper.make_tensor_value_info(n, TensorProto.DOUBLE, v.shape) for n, v in feeds.items()],
        [helper.make_empty_tensor_value_info("di")],
    )  # fmt: skip
    imports = [helper.make_opsetid("", opset), helper.make_opsetid(DOMAIN, 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=9).SerializeToString()
    with pytest.raises(UnsupportedError, match="no rule for BatchNormalization before opset 9"):
        onnxlet.InferenceSession(model)


def test_an_output_without_a_rule_is_not_taken_for_a_constant():
    scalars = [node("Identity", ["a"], ["s"])]
    nodes = [*scalars, node("TopK", ["s", "two"], ["", "t"]), node("Cast", ["t"], ["y"], to=TensorProto.DOUBLE)]
    with pytest.raises(UnsupportedError, match="no rule for TopK"):
        onnxlet.InferenceSession(build(nodes, {"a": A}, ["a"], "y", constants={"two": CONSTANTS["two"]}))
    nodes = [node("MaxPool", ["i"], ["s", "t"], kernel_shape=[2, 2]), node("Cast", ["t"], ["y"], to=TensorProto.DOUBLE)]
    with pytest.raises(UnsupportedError, match="no rule for all the outputs of MaxPool"):
        onnxlet.InferenceSession(build(nodes, {"i": IMAGE}, ["i"], "y"))


def test_padding_that_depends_on_the_result_has_no_rule():
    nodes = [node("ConvTranspose", ["i", "w"], ["y"], auto_pad="SAME_UPPER")]
    model = build(nodes, {"i": IMAGE, "w": W[:2]}, ["i"], "y")
    with pytest.raises(UnsupportedError, match="ConvTranspose with output_shape or SAME padding"):
        onnxlet.InferenceSession(model)


def test_a_variable_without_influence_has_slope_zero():
    model = build([node("Exp", ["a"], ["y"])], {"a": A, "b": B}, ["a", "b"], "y")
    np.testing.assert_array_equal(onnxlet.InferenceSession(model).run(["db"], {"a": A, "b": B})[0], np.zeros_like(B))


def test_an_operator_without_a_rule_is_named():
    model = build([node("CumSum", ["a", "axis"], ["y"])], {"a": A}, ["a"], "y", constants={"axis": np.array(0)})
    with pytest.raises(UnsupportedError, match="Gradient has no rule for CumSum"):
        onnxlet.InferenceSession(model)
