"""Each rewrite: the rewritten graph gives what the original gives, and the nodes are the ones it promises."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import onnxlet
from onnxlet import rewrites
from onnxlet.model.loader import load_model

from .models import BOOL, FLOAT, INT64, graph, model, node

rng = np.random.default_rng(7)


def normal(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def operators(made: onnx.ModelProto, **options: object) -> list[str]:
    """The operators of the rewritten graph, in order."""
    optimized = rewrites.optimize(load_model(made).graph, onnxlet.SessionOptions(**options))  # type: ignore[arg-type]
    return [n.op_type for n in optimized.nodes]


def agree(made: onnx.ModelProto, **feeds: np.ndarray) -> None:
    """Run with all rewrites and with none: same outputs."""
    plain = onnxlet.SessionOptions(graph_optimization_level=onnxlet.GraphOptimizationLevel.ORT_DISABLE_ALL)
    expected = onnxlet.InferenceSession(made, plain).run(None, feeds)
    given = onnxlet.InferenceSession(made).run(None, feeds)
    for a, b in zip(given, expected, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)


def image_model(nodes, constants, outputs=(("y", FLOAT, ["n", "c", "h", "w"]),), **options):
    return model(nodes, [("x", FLOAT, ["n", 3, 8, 8])], list(outputs), constants, **options)


CONV = {"w": normal(4, 3, 3, 3), "b": normal(4)}


def test_batch_norm_goes_into_the_convolution():
    constants = {**CONV, "s": normal(4), "o": normal(4), "m": normal(4), "v": np.abs(normal(4)) + 0.1}
    made = image_model(
        [
            node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
            node("BatchNormalization", ["c", "s", "o", "m", "v"], ["y"], epsilon=1e-3),
        ],
        constants,
    )
    assert operators(made) == ["Conv"]
    agree(made, x=normal(2, 3, 8, 8))
    without_bias = image_model(
        [
            node("Conv", ["x", "w"], ["c"]),
            node("BatchNormalization", ["c", "s", "o", "m", "v"], ["n"]),
            node("Relu", ["n"], ["y"]),
        ],
        {k: v for k, v in constants.items() if k != "b"},
    )
    assert operators(without_bias) == ["FusedConv"]
    agree(without_bias, x=normal(1, 3, 8, 8))


def test_batch_norm_stays_where_the_convolution_is_read_twice():
    constants = {**CONV, "s": normal(4), "o": normal(4), "m": normal(4), "v": np.abs(normal(4)) + 0.1}
    made = image_model(
        [
            node("Conv", ["x", "w", "b"], ["c"]),
            node("BatchNormalization", ["c", "s", "o", "m", "v"], ["y"]),
            node("Neg", ["c"], ["z"]),
        ],
        constants,
        outputs=[("y", FLOAT, ["n", 4, "h", "w"]), ("z", FLOAT, ["n", 4, "h", "w"])],
    )
    assert "BatchNormalization" in operators(made)
    agree(made, x=normal(1, 3, 8, 8))


@pytest.mark.parametrize("operator", ["Mul", "Add", "Sub", "Div"])
@pytest.mark.parametrize("shape", [(), (1,), (4, 1, 1), (1, 4, 1, 1)])
@pytest.mark.parametrize("first", [True, False])
def test_channel_constants_go_into_the_convolution(operator, shape, first):
    inputs = ["c", "k"] if first else ["k", "c"]
    made = image_model(
        [node("Conv", ["x", "w", "b"], ["c"]), node(operator, inputs, ["y"])],
        {**CONV, "k": np.abs(normal(*shape)) + np.float32(0.5)},
    )
    assert operators(made) == (["Conv"] if first or operator != "Div" else ["Conv", "Div"])
    agree(made, x=normal(2, 3, 8, 8))


def test_constants_that_enlarge_the_result_stay():
    made = image_model(
        [node("Conv", ["x", "w", "b"], ["c"]), node("Add", ["c", "k"], ["y"])], {**CONV, "k": normal(1, 4, 6, 6)}
    )
    assert operators(made) != ["Conv"]
    agree(made, x=normal(1, 3, 8, 8))


def test_zero_padding_goes_into_the_convolution():
    constants = {**CONV, "p": np.array([0, 0, 1, 2, 0, 0, 0, 1])}
    nodes = [node("Pad", ["x", "p"], ["q"]), node("Conv", ["q", "w", "b"], ["y"], pads=[1, 0, 0, 1])]
    assert operators(image_model(nodes, constants)) == ["Conv"]
    agree(image_model(nodes, constants), x=normal(1, 3, 8, 8))
    for changed in (
        {**constants, "p": np.array([0, 1, 0, 0, 0, 0, 0, 0]), "w": normal(4, 4, 3, 3)},  # pads channels
        {**constants, "p": np.array([0, 0, -1, 0, 0, 0, 0, 0])},  # crops
    ):
        assert operators(image_model(nodes, changed)) == ["Pad", "Conv"]
        agree(image_model(nodes, changed), x=normal(1, 3, 8, 8))
    reflected = [node("Pad", ["x", "p"], ["q"], mode="reflect"), nodes[1]]
    assert operators(image_model(reflected, constants)) == ["Pad", "Conv"]
    filled = [node("Pad", ["x", "p", "one"], ["q"]), nodes[1]]
    assert operators(image_model(filled, {**constants, "one": np.float32(1)})) == ["Pad", "Conv"]


AFFINE = {"s": np.float32(0.7), "o": normal(3, 1, 1), "w": normal(4, 3, 3, 3), "b": normal(4)}


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("groups", [1, 3])
def test_constants_before_a_convolution_go_into_it(padded, biased, groups):
    constants = {**AFFINE, "w": normal(6, 3 // groups, 3, 3) / 8, "b": normal(6)}
    inputs = ["a", "w", "b"] if biased else ["a", "w"]
    conv = node("Conv", inputs, ["y"], group=groups, pads=[1, 0, 1, 1] if padded else [0] * 4)
    constants = {n: v for n, v in constants.items() if n in ("s", "o", *inputs)}
    made = image_model([node("Mul", ["s", "x"], ["m"]), node("Add", ["m", "o"], ["a"]), conv], constants)
    # Where pixels are padded, what is added does not reach the border: only the factor goes into the weights.
    assert operators(made) == (["Add", "Conv"] if padded else ["Conv"])
    agree(made, x=normal(2, 3, 8, 8))
    divided = [node("Sub", ["x", "o"], ["m"]), node("Div", ["m", "s"], ["a"]), conv]
    assert operators(image_model(divided, constants)) == (["Add", "Conv"] if padded else ["Conv"])
    agree(image_model(divided, constants), x=normal(2, 3, 8, 8))


def test_constants_before_a_convolution_that_are_needed_elsewhere_stay():
    nodes = [node("Mul", ["x", "s"], ["a"]), node("Conv", ["a", "w", "b"], ["y"]), node("Neg", ["a"], ["z"])]
    constants = {n: v for n, v in AFFINE.items() if n != "o"}
    outputs = [("y", FLOAT, ["n", 4, "h", "w_"]), ("z", FLOAT, ["n", 3, 8, 8])]
    made = image_model(nodes, constants, outputs)
    assert operators(made) == ["Mul", "Conv", "Neg"]
    agree(made, x=normal(1, 3, 8, 8))
    each = image_model(nodes[:2], {**constants, "s": normal(3, 8, 8)})
    assert operators(each) == ["Mul", "Conv"]
    agree(each, x=normal(1, 3, 8, 8))
    padded = [node("Add", ["x", "s"], ["a"]), node("Conv", ["a", "w", "b"], ["y"], pads=[1] * 4)]
    assert operators(image_model(padded, constants)) == ["Add", "Conv"]
    zero = [node("Mul", ["x", "s"], ["m"]), node("Add", ["m", "o"], ["a"]), padded[1]]
    made = image_model(zero, {**AFFINE, "s": np.float32(0)})
    assert operators(made) == ["Mul", "Add", "Conv"]
    agree(made, x=normal(1, 3, 8, 8))


@pytest.mark.parametrize("groups", [1, 2])
def test_what_follows_a_transposed_convolution_goes_into_it(groups):
    made = model(
        [
            node("ConvTranspose", ["x", "w"], ["c"], strides=[2, 2], group=groups), node("Add", ["c", "k"], ["d"]),
            node("BatchNormalization", ["d", "s", "o", "m", "v"], ["y"]),
        ],
        [("x", FLOAT, ["n", 4, 5, 5])], [("y", FLOAT, ["n", 6, "h", "w_"])],
        {"w": normal(4, 6 // groups, 3, 3), "k": normal(1, 6, 1, 1), "s": normal(6), "o": normal(6), "m": normal(6),
         "v": np.abs(normal(6)) + 0.5},
    )  # fmt: skip
    assert operators(made) == ["ConvTranspose"]
    agree(made, x=normal(2, 4, 5, 5))


@pytest.mark.parametrize("transposed", [0, 1])
@pytest.mark.parametrize("bias", [None, (5,), (1, 5), (2, 5)])
def test_batch_norm_goes_into_a_product(transposed, bias):
    inputs = ["x", "w", "k"] if bias else ["x", "w"]
    known = {"w": normal(5, 8) if transposed else normal(8, 5), "s": normal(5), "o": normal(5), "m": normal(5),
             "v": np.abs(normal(5)) + 0.5, **({"k": normal(*bias)} if bias else {})}  # fmt: skip
    made = model(
        [node("Gemm", inputs, ["g"], transB=transposed, alpha=0.5, beta=2.0),
         node("BatchNormalization", ["g", "s", "o", "m", "v"], ["y"])],
        [("x", FLOAT, [2, 8])], [("y", FLOAT, [2, 5])], known,
    )  # fmt: skip
    assert operators(made) == (["Gemm", "BatchNormalization"] if bias == (2, 5) else ["Gemm"])
    agree(made, x=normal(2, 8))


def pooled(amounts: list[int], **attributes) -> onnx.ModelProto:
    nodes = [node("Pad", ["x", "p"], ["q"]), node("AveragePool", ["q"], ["y"], kernel_shape=[3, 3], **attributes)]
    return image_model(nodes, {"p": np.array(amounts)})


def test_zeros_that_are_averaged_become_padding():
    around = [0, 0, 1, 1, 0, 0, 1, 2]
    for attributes in ({}, {"strides": [2, 2]}, {"pads": [1, 0, 0, 0], "count_include_pad": 1}):
        made = pooled(around, **attributes)
        assert operators(made) == ["AveragePool"]
        agree(made, x=normal(2, 3, 8, 8))
    for amounts, attributes in (
        (around, {"ceil_mode": 1, "strides": [2, 2]}),
        (around, {"pads": [1, 0, 0, 0]}),  # its own padding does not count
        ([0, 0, 3, 0, 0, 0, 0, 0], {}),  # a window of nothing else
        ([0, 1, 0, 0, 0, 0, 0, 0], {}),
    ):
        made = pooled(amounts, **attributes)
        assert operators(made) == ["Pad", "AveragePool"]
        agree(made, x=normal(2, 3, 8, 8))
    assert operators(pooled([0] * 8)) == ["AveragePool"]


ACTIVATIONS = [
    ([node("Relu", ["c"], ["y"])], {}),
    ([node("LeakyRelu", ["c"], ["y"], alpha=0.2)], {}),
    ([node("Clip", ["c", "low", "high"], ["y"])], {"low": np.float32(0), "high": np.float32(6)}),
    ([node("Clip", ["c", "", "high"], ["y"])], {"high": np.float32(0.5)}),
    ([node("Sigmoid", ["c"], ["y"])], {}),
    ([node("Tanh", ["c"], ["y"])], {}),
    ([node("HardSwish", ["c"], ["y"])], {}),
    ([node("Sigmoid", ["c"], ["g"]), node("Mul", ["c", "g"], ["y"])], {}),
    ([node("HardSigmoid", ["c"], ["g"], alpha=1 / 6), node("Mul", ["g", "c"], ["y"])], {}),
    ([node("Gelu", ["c"], ["y"])], {}),
    ([node("Gelu", ["c"], ["y"], approximate="tanh")], {}),
]


@pytest.mark.parametrize(("nodes", "constants"), ACTIVATIONS)
def test_activations_go_into_convolutions_and_products(nodes, constants):
    made = image_model([node("Conv", ["x", "w", "b"], ["c"]), *nodes], {**CONV, **constants})
    assert operators(made) == ["FusedConv"]
    agree(made, x=normal(2, 3, 8, 8))
    product = model(
        [node("MatMul", ["x", "m"], ["p"]), node("Add", ["p", "v"], ["c"]), *nodes],
        [("x", FLOAT, ["n", "s", 8])],
        [("y", FLOAT, ["n", "s", 5])],
        {"m": normal(8, 5), "v": normal(5), **constants},
    )
    assert operators(product) == ["FusedMatMul"]
    agree(product, x=normal(2, 3, 8))
    gemm = model(
        [node("Gemm", ["x", "m", "v"], ["c"], transB=1, alpha=0.5), *nodes],
        [("x", FLOAT, ["n", 8])],
        [("y", FLOAT, ["n", 5])],
        {"m": normal(5, 8), "v": normal(5), **constants},
    )
    assert operators(gemm) == ["FusedMatMul"]
    agree(gemm, x=normal(3, 8))


def test_residuals_go_into_convolutions():
    constants = {"w": normal(3, 3, 3, 3), "b": normal(3)}
    nodes = [
        node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
        node("Add", ["x", "c"], ["r"]),
        node("Relu", ["r"], ["y"]),
    ]
    made = image_model(nodes, constants)
    assert operators(made) == ["FusedConv"]
    agree(made, x=normal(2, 3, 8, 8))


def test_a_broadcast_is_no_residual():
    made = model(
        [node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]), node("Add", ["z", "c"], ["y"])],
        [("x", FLOAT, [1, 3, 8, 8]), ("z", FLOAT, [5, 3, 8, 8])],
        [("y", FLOAT, [5, 3, 8, 8])],
        {"w": normal(3, 3, 3, 3), "b": normal(3)},
    )
    assert operators(made) == ["Conv", "Add"]
    agree(made, x=normal(1, 3, 8, 8), z=normal(5, 3, 8, 8))


GELUS = [
    # torch: x * (erf(x / sqrt 2) + 1) * 0.5
    [("Div", "x", "root"), ("Erf", 0), ("Add", 1, "one"), ("Mul", "x", 2), ("Mul", 3, "half")],
    # torch's dynamo exporter: x * sqrt(1/2), half of x first
    [("Mul", "x", "inverse"), ("Erf", 0), ("Add", 1, "one"), ("Mul", "half", "x"), ("Mul", 3, 2)],
    # TensorFlow: 0.5 * x * (1 + erf)
    [("Mul", "x", "half"), ("Div", "x", "root"), ("Erf", 1), ("Add", "one", 2), ("Mul", 0, 3)],
    [("Div", "x", "root"), ("Erf", 0), ("Add", 1, "one"), ("Mul", 2, "half"), ("Mul", 3, "x")],
    [("Div", "x", "root"), ("Erf", 0), ("Add", 1, "one"), ("Div", 2, "two"), ("Mul", "x", 3)],
]


@pytest.mark.parametrize("steps", GELUS)
def test_gelu_is_recognised_in_the_forms_of_exporters(steps):
    def name(i: int | str) -> str:
        return i if isinstance(i, str) else "y" if i == len(steps) - 1 else f"v{i}"

    constants = {"root": np.sqrt(2), "inverse": np.sqrt(0.5), "one": 1, "half": 0.5, "two": 2}
    made = model(
        [node(op, [name(i) for i in inputs], [name(k)]) for k, (op, *inputs) in enumerate(steps)],
        [("x", FLOAT, ["n", 6])],
        [("y", FLOAT, ["n", 6])],
        {k: np.float32(v) for k, v in constants.items() if any(k in s for s in steps)},
    )
    assert operators(made) == ["Gelu"]
    agree(made, x=normal(4, 6) * 3)


HARD_SWISHES = [
    [("Add", "x", "three"), ("Clip", 0, "zero", "six"), ("Mul", "x", 1), ("Div", 2, "six")],
    [("Add", "three", "x"), ("Clip", 0, "zero", "six"), ("Div", 1, "six"), ("Mul", 2, "x")],
    [("Add", "x", "three"), ("Clip", 0, "zero", "six"), ("Mul", 1, "sixth"), ("Mul", "x", 2)],
]


@pytest.mark.parametrize("steps", HARD_SWISHES)
def test_hard_swish_is_recognised(steps):
    def name(i: int | str) -> str:
        return i if isinstance(i, str) else "y" if i == len(steps) - 1 else f"v{i}"

    constants = {"zero": 0, "three": 3, "six": 6, "sixth": 1 / 6}
    made = model(
        [node(op, [name(i) for i in inputs], [name(k)]) for k, (op, *inputs) in enumerate(steps)],
        [("x", FLOAT, ["n", 6])],
        [("y", FLOAT, ["n", 6])],
        {k: np.float32(v) for k, v in constants.items() if any(k in s for s in steps)},
    )
    assert operators(made) == ["HardSwish"]
    agree(made, x=normal(4, 6) * 4)


def test_a_gelu_with_another_factor_is_none():
    made = model(
        [
            node("Div", ["x", "root"], ["d"]),
            node("Erf", ["d"], ["e"]),
            node("Add", ["e", "one"], ["a"]),
            node("Mul", ["x", "a"], ["m"]),
            node("Mul", ["m", "half"], ["y"]),
        ],
        [("x", FLOAT, ["n"])],
        [("y", FLOAT, ["n"])],
        {"root": np.float32(1.5), "one": np.float32(1), "half": np.float32(0.5)},
    )
    assert "Gelu" not in operators(made)
    agree(made, x=normal(5))


@pytest.mark.parametrize("square", ["Pow", "Mul"])
def test_layer_norm_is_recognised(square):
    made = model(
        [
            node("ReduceMean", ["x", "axis"], ["mean"]),
            node("Sub", ["x", "mean"], ["d"]),
            node("Pow", ["d", "two"], ["q"]) if square == "Pow" else node("Mul", ["d", "d"], ["q"]),
            node("ReduceMean", ["q", "axis"], ["var"]),
            node("Add", ["var", "eps"], ["ve"]),
            node("Sqrt", ["ve"], ["std"]),
            node("Div", ["d", "std"], ["n"]),
            node("Mul", ["n", "scale"], ["s"]),
            node("Add", ["s", "bias"], ["y"]),
        ],
        [("x", FLOAT, ["n", "s", 6])],
        [("y", FLOAT, ["n", "s", 6])],
        {
            "axis": np.array([-1]),
            "two": np.float32(2),
            "eps": np.float32(1e-5),
            "scale": normal(6),
            "bias": normal(6),
        },
    )
    assert operators(made) == ["LayerNormalization"]
    agree(made, x=normal(2, 3, 6))


def test_equal_nodes_are_computed_once_but_outputs_keep_their_names():
    made = model(
        [
            node("Exp", ["x"], ["a"]),
            node("Exp", ["x"], ["b"]),
            node("Add", ["a", "b"], ["y"]),
            node("Neg", ["x"], ["p"]),
            node("Neg", ["x"], ["q"]),
        ],
        [("x", FLOAT, [3])],
        [("y", FLOAT, [3]), ("p", FLOAT, [3]), ("q", FLOAT, [3])],
    )
    assert sorted(operators(made)) == ["Add", "Exp", "Neg", "Neg"]
    agree(made, x=normal(3))


def test_random_nodes_are_neither_shared_nor_folded():
    made = model(
        [
            node("RandomNormal", [], ["a"], shape=[4]),
            node("RandomNormal", [], ["b"], shape=[4]),
            node("Sub", ["a", "b"], ["y"]),
        ],
        [],
        [("y", FLOAT, [4])],
    )
    assert operators(made).count("RandomNormal") == 2
    assert onnxlet.InferenceSession(made).run(None, {})[0].any()


def test_no_ops_vanish_and_outputs_keep_their_names():
    made = model(
        [
            node("Identity", ["x"], ["a"]),
            node("Dropout", ["a"], ["b"]),
            node("Transpose", ["b"], ["c"], perm=[0, 1]),
            node("Cast", ["c"], ["d"], to=FLOAT),
            node("Neg", ["d"], ["e"]),
            node("Identity", ["e"], ["y"]),
            node("Abs", ["e"], ["z"]),
        ],
        [("x", FLOAT, [2, 2])],
        [("y", FLOAT, [2, 2]), ("z", FLOAT, [2, 2])],
    )
    assert operators(made) == ["Neg", "Abs"]
    agree(made, x=normal(2, 2))


def test_constants_and_shapes_are_folded():
    made = model(
        [
            node("Add", ["k", "k"], ["k2"]),
            node("Mul", ["x", "k2"], ["m"]),
            node("Shape", ["m"], ["s"]),
            node("Reshape", ["m", "s"], ["y"]),
            node("Neg", ["k"], ["unread"]),
        ],
        [("x", FLOAT, [2, 3])],
        [("y", FLOAT, [2, 3])],
        {"k": np.float32(2)},
    )
    assert operators(made) == ["Mul"]
    agree(made, x=normal(2, 3))


def test_huge_constants_stay_nodes():
    made = model(
        [node("ConstantOfShape", ["s"], ["a"]), node("ReduceSum", ["a"], ["r"]), node("Add", ["x", "r"], ["y"])],
        [("x", FLOAT, [1])],
        [("y", FLOAT, [1, 1])],
        {"s": np.array([100_000, 100_000])},
    )
    assert operators(made)[0] == "ConstantOfShape"


def test_bodies_are_rewritten_with_the_constants_around_them():
    body = graph(
        [node("MatMul", ["x", "m"], ["p"]), node("Add", ["p", "v"], ["q"]), node("Relu", ["q"], ["b"])],
        [],
        [("b", FLOAT, ["n", 5])],
    )
    made = model(
        [node("If", ["c"], ["y"], then_branch=body, else_branch=body)],
        [("c", BOOL, []), ("x", FLOAT, ["n", 8])],
        [("y", FLOAT, ["n", 5])],
        {"m": normal(8, 5), "v": normal(5)},
    )
    optimized = rewrites.optimize(load_model(made).graph, onnxlet.SessionOptions())
    assert [n.op_type for n in next(optimized.nodes[0].subgraphs()).nodes] == ["FusedMatMul"]
    agree(made, c=np.array(True), x=normal(2, 8))


def test_levels_and_names_switch_rewrites_off():
    made = image_model([node("Conv", ["x", "w", "b"], ["c"]), node("Relu", ["c"], ["y"])], CONV)
    level = onnxlet.GraphOptimizationLevel
    assert operators(made, graph_optimization_level=level.ORT_DISABLE_ALL) == ["Conv", "Relu"]
    assert operators(made, graph_optimization_level=level.ORT_ENABLE_BASIC) == ["Conv", "Relu"]
    assert operators(made, graph_optimization_level=level.ORT_ENABLE_EXTENDED) == ["FusedConv"]
    assert operators(made, disabled_rewrites={"fuse_epilogues"}) == ["Conv", "Relu"]
    with pytest.raises(ValueError, match="no rewrite is called nonsense"):
        operators(made, disabled_rewrites={"nonsense"})


def test_the_original_graph_is_left_alone():
    made = model(
        [node("Cast", ["x"], ["a"], to=INT64), node("Identity", ["a"], ["y"])],
        [("x", FLOAT, [2])],
        [("y", INT64, [2])],
    )
    loaded = load_model(made).graph
    before = [str(n) for n in loaded.nodes]
    rewrites.optimize(loaded, onnxlet.SessionOptions())
    assert [str(n) for n in loaded.nodes] == before
