"""Operators on quantised tensors, which are written out as other operators, against the NumPy definitions."""

from __future__ import annotations

import numpy as np
import pytest

from onnxlet.ops.registry import find

from .helpers import check, node, refusal

RNG = np.random.default_rng(41)
MICROSOFT = "com.microsoft"


def integers(dtype, *shape: int, low: int | None = None, high: int | None = None) -> np.ndarray:
    info = np.iinfo(dtype)
    low, high = (info.min if low is None else low), (info.max if high is None else high)
    return np.asarray(RNG.integers(low, high + 1, shape), dtype)


def scales(*shape: int) -> np.ndarray:
    return np.asarray(RNG.uniform(0.01, 0.03, shape), np.float32)


def definition(operator: str, version: int = 21, domain: str = ""):
    found = find(operator, domain, version)
    assert found is not None, operator
    return {operator: found.function}


CONVOLUTIONS = [
    (3, 8, 1, (3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
    (16, 16, 1, (3, 3), {"pads": [1, 1, 1, 1]}),
    (8, 12, 1, (1, 1), {}),
    (8, 8, 8, (3, 3), {"pads": [1, 1, 1, 1]}),
    (6, 9, 3, (3, 3), {"auto_pad": "SAME_UPPER"}),
]


@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
@pytest.mark.parametrize("types", [(np.uint8, np.int8), (np.uint8, np.uint8), (np.int8, np.int8)], ids=str)
@pytest.mark.parametrize("per_channel", [False, True])
def test_qlinear_conv(provider, case, types, per_channel):
    channels, outputs, groups, kernel, attributes = case
    count = (outputs,) if per_channel else ()
    constants = {
        "xs": scales(), "xz": integers(types[0]), "w": integers(types[1], outputs, channels // groups, *kernel),
        "ws": scales(*count), "wz": integers(types[1], *count), "ys": np.array(5, np.float32),
        "yz": integers(types[0], low=100, high=120), "b": integers(np.int32, outputs, low=-1000, high=1000),
    }  # fmt: skip
    one = node("QLinearConv", "x xs xz w ws wz ys yz b", group=groups, **attributes)
    feeds = {"x": integers(types[0], 2, channels, 10, 11)}
    check(provider, one, feeds, constants, references=definition("QLinearConv"), atol=0, rtol=0)


@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
def test_conv_integer(provider, case):
    channels, outputs, groups, kernel, attributes = case
    constants = {"w": integers(np.int8, outputs, channels // groups, *kernel), "z": integers(np.uint8)}
    one = node("ConvInteger", "x w z", group=groups, **attributes)
    feeds = {"x": integers(np.uint8, 2, channels, 10, 11)}
    check(provider, one, feeds, constants, references=definition("ConvInteger"), atol=0, rtol=0)


def test_sums_that_float32_can_not_hold_are_exact(provider):
    constants = {"w": np.full((2, 600, 1, 1), 127, np.int8)}
    feeds = {"x": integers(np.uint8, 1, 600, 2, 2, low=250)}
    check(provider, node("ConvInteger", "x w"), feeds, constants, references=definition("ConvInteger"), atol=0, rtol=0)


@pytest.mark.parametrize("operator", ["QLinearConv", "ConvInteger"])
@pytest.mark.parametrize("groups", [1, 2, 6])
def test_weights_that_are_computed(provider, operator, groups):
    feeds = {"x": integers(np.uint8, 1, 6, 7, 5), "w": integers(np.int8, 6, 6 // groups, 3, 2)}
    feeds |= {"wz": integers(np.int8, 6), "xz": integers(np.uint8)}
    constants = {}
    if operator == "QLinearConv":
        constants = {"xs": scales(), "ws": scales(6), "ys": np.array(5, np.float32), "yz": integers(np.uint8)}
    names = "x xs xz w ws wz ys yz" if operator == "QLinearConv" else "x w xz wz"
    check(provider, node(operator, names, group=groups), feeds, constants, references=definition(operator), atol=0,
          rtol=0)  # fmt: skip


def test_one_dimensional_convolution(provider):
    constants = {"w": integers(np.int8, 5, 4, 3), "xz": integers(np.uint8)}
    one = node("ConvInteger", "x w xz", pads=[1, 1], strides=[2])
    check(provider, one, {"x": integers(np.uint8, 2, 4, 9)}, constants, references=definition("ConvInteger"), atol=0)


@pytest.mark.parametrize("shapes", [((4, 20), (20, 9)), ((2, 3, 20), (20, 9)), ((2, 4, 20), (2, 20, 9))], ids=str)
@pytest.mark.parametrize("per_column", [False, True])
@pytest.mark.parametrize("computed", [False, True])
def test_qlinear_matmul(provider, shapes, per_column, computed):
    count = (9,) if per_column and len(shapes[1]) == 2 else ()
    constants = {
        "as": scales(), "az": integers(np.uint8), "bs": scales(*count), "bz": integers(np.int8, *count),
        "ys": np.array(2, np.float32), "yz": integers(np.uint8),
    }  # fmt: skip
    feeds = {"a": integers(np.uint8, *shapes[0])}
    (feeds if computed else constants)["b"] = integers(np.int8, *shapes[1])
    one = node("QLinearMatMul", "a as az b bs bz ys yz")
    check(provider, one, feeds, constants, references=definition("QLinearMatMul"), atol=0, rtol=0)


@pytest.mark.parametrize("quantizes", [False, True])
@pytest.mark.parametrize("per_column", [False, True])
def test_q_gemm(provider, quantizes, per_column):
    count = (9,) if per_column else ()
    constants = {
        "as": scales(), "az": integers(np.uint8), "b": integers(np.int8, 9, 20), "bs": scales(*count),
        "bz": integers(np.int8, *count), "c": integers(np.int32, 9, low=-500, high=500),
    }  # fmt: skip
    if quantizes:
        constants |= {"ys": np.array(2, np.float32), "yz": integers(np.uint8)}
    names = " ".join(["a as az b bs bz c", *(["ys yz"] if quantizes else [])])
    one = node("QGemm", names, domain=MICROSOFT, version=1, transB=1, alpha=1.0)
    check(provider, one, {"a": integers(np.uint8, 5, 20)}, constants,
          references=definition("QGemm", 1, MICROSOFT), atol=1 if quantizes else 1e-4)  # fmt: skip


@pytest.mark.parametrize("operator", ["QLinearAdd", "QLinearMul"])
def test_qlinear_binary(provider, operator):
    constants = {
        "as": scales(), "az": integers(np.uint8), "bs": scales(), "bz": integers(np.uint8), "cs": scales(),
        "cz": integers(np.uint8),
    }  # fmt: skip
    feeds = {"a": integers(np.uint8, 2, 3, 4), "b": integers(np.uint8, 3, 1)}
    one = node(operator, "a as az b bs bz cs cz", domain=MICROSOFT, version=1)
    check(provider, one, feeds, constants, references=definition(operator, 1, MICROSOFT), atol=1)


@pytest.mark.parametrize(("operator", "attributes", "shape"), [
    ("QLinearSigmoid", {}, (2, 7)), ("QLinearLeakyRelu", {"alpha": 0.1}, (2, 7)),
    ("QLinearAveragePool", {"kernel_shape": [2, 2], "strides": [2, 2]}, (1, 3, 6, 8)),
    ("QLinearGlobalAveragePool", {}, (2, 3, 5, 5)),
])  # fmt: skip
def test_qlinear_unary(provider, operator, attributes, shape):
    constants = {"xs": scales(), "xz": integers(np.uint8), "ys": scales(), "yz": integers(np.uint8)}
    one = node(operator, "x xs xz ys yz", domain=MICROSOFT, version=1, **attributes)
    check(provider, one, {"x": integers(np.uint8, *shape)}, constants, atol=1,
          references=definition(operator, 1, MICROSOFT))  # fmt: skip


@pytest.mark.parametrize("opset", [11, 13])
def test_qlinear_softmax(provider, opset):
    function = definition("QLinearSoftmax", 1, MICROSOFT)["QLinearSoftmax"]
    constants = {
        "xs": scales(),
        "xz": integers(np.uint8),
        "ys": np.array(1 / 256, np.float32),
        "yz": np.zeros((), np.uint8),
    }
    one = node("QLinearSoftmax", "x xs xz ys yz", domain=MICROSOFT, version=1, axis=1, opset=opset)
    check(provider, one, {"x": integers(np.uint8, 2, 3, 5)}, constants, references={"QLinearSoftmax": function}, atol=1)


def test_qlinear_concat(provider):
    constants = {"ys": scales(), "yz": integers(np.uint8), "bs": scales(), "bz": integers(np.uint8)}
    one = node("QLinearConcat", "ys yz a ys yz b bs bz", domain=MICROSOFT, version=1, axis=1)
    feeds = {"a": integers(np.uint8, 2, 3, 4), "b": integers(np.uint8, 2, 5, 4)}
    check(provider, one, feeds, constants, references=definition("QLinearConcat", 1, MICROSOFT), atol=1)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8], ids=lambda t: t.__name__)
def test_max_pool_of_bytes(provider, dtype):
    one = node("MaxPool", "x", kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    check(provider, one, {"x": integers(dtype, 1, 4, 6, 7)}, references=definition("MaxPool"))


def test_scales_by_data_are_refused(provider):
    feeds = {"x": integers(np.uint8, 2, 3), "xs": scales(), "xz": integers(np.uint8), "ys": scales()}
    one = node("QLinearSigmoid", "x xs xz ys", domain=MICROSOFT, version=1)
    reason = refusal(provider, one, feeds, references=definition("QLinearSigmoid", 1, MICROSOFT))
    assert reason == "its scale must be constant"


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8], ids=lambda t: t.__name__)
@pytest.mark.parametrize("per_column", [False, True])
@pytest.mark.parametrize("whole", [False, True])
def test_dynamic_quantize_lstm(provider, direction, dtype, per_column, whole):
    count, inputs, hidden = 2 if direction == "bidirectional" else 1, 5, 9
    columns = 4 * hidden
    shape = (count, columns) if per_column else (count,)
    zero = np.full(shape, 3 if dtype == np.int8 else 130, dtype)
    constants = {
        "w": integers(dtype, count, inputs, columns), "r": integers(dtype, count, hidden, columns),
        "ws": scales(*shape) / 4, "wz": zero, "rs": scales(*shape) / 4, "rz": zero,
    }  # fmt: skip
    names = "x w r - - - - - ws wz rs rz"
    if whole:
        names = "x w r b l h c p ws wz rs rz"
        constants |= {
            "b": RNG.uniform(-1, 1, (count, 8 * hidden)).astype(np.float32), "l": np.array([4, 2, 3], np.int32),
            "h": RNG.uniform(-1, 1, (count, 3, hidden)).astype(np.float32),
            "c": RNG.uniform(-1, 1, (count, 3, hidden)).astype(np.float32),
            "p": RNG.uniform(-1, 1, (count, 3 * hidden)).astype(np.float32),
        }  # fmt: skip
    one = node("DynamicQuantizeLSTM", names, "y yh yc", domain=MICROSOFT, version=1, hidden_size=hidden,
               direction=direction)  # fmt: skip
    feeds = {"x": RNG.uniform(-1, 1, (4, 3, inputs)).astype(np.float32)}
    # A state that lies in the middle between two steps may be rounded either way.
    check(provider, one, feeds, constants, references=definition("DynamicQuantizeLSTM", 1, MICROSOFT), atol=0.02)


@pytest.mark.parametrize("scale", [0.0, np.nan])
def test_scales_that_are_not_finite_are_refused(provider, scale):
    constants = {
        "xs": scales(), "xz": integers(np.uint8), "w": integers(np.int8, 4, 3, 1, 1), "ws": scales(),
        "wz": np.zeros((), np.int8), "ys": np.array(scale, np.float32), "yz": integers(np.uint8),
    }  # fmt: skip
    feeds = {"x": integers(np.uint8, 1, 3, 2, 2)}
    with np.errstate(all="ignore"):
        reason = refusal(provider, node("QLinearConv", "x xs xz w ws wz ys yz"), feeds, constants,
                         definition("QLinearConv"))  # fmt: skip
    assert "not finite" in (reason or "")


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("per_column", [False, True])
def test_q_attention(provider, masked, per_column):
    constants = {
        "w": integers(np.int8, 8, 24), "b": RNG.uniform(-1, 1, 24).astype(np.float32), "xs": scales() / 2,
        "ws": scales(24) if per_column else scales(), "xz": np.array(120, np.uint8),
        "wz": np.zeros(24 if per_column else (), np.int8),
    }  # fmt: skip
    feeds = {"x": integers(np.uint8, 2, 5, 8)}
    if masked:
        constants["m"] = np.array([[1] * 5, [1, 1, 1, 0, 0]], np.int32)
    one = node("QAttention", f"x w b xs ws {'m' if masked else '-'} xz wz", domain=MICROSOFT, version=1, num_heads=2)

    def first_output(*inputs, **attributes):
        return definition("QAttention", 1, MICROSOFT)["QAttention"](*inputs, **attributes)[0]

    check(provider, one, feeds, constants, references={"QAttention": first_output}, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
@pytest.mark.parametrize("activation", ["", "Relu", "Clip"])
@pytest.mark.parametrize("bias", [False, True])
def test_scaled_integer_convolutions(provider, case, activation, bias):
    channels, outputs, groups, kernel, attributes = case
    constants = {
        "w": integers(np.int8, outputs, channels // groups, *kernel), "ws": scales(),
        "b": RNG.uniform(-1, 1, (outputs, 1, 1)).astype(np.float32), "low": np.array(-1, np.float32),
        "high": np.array(2, np.float32),
    }  # fmt: skip
    nodes = [
        node("DynamicQuantizeLinear", "x", "q s z"),
        node("ConvInteger", "q w z", "c", group=groups, **attributes),
        node("Cast", "c", "f", to=1),
        node("Mul", "s ws", "t"),
        node("Mul", "f t", "m"),
    ]
    nodes += [node("Add", "m b", "a")] if bias else []
    if activation:
        names = f"{nodes[-1].outputs[0]} low high" if activation == "Clip" else nodes[-1].outputs[0]
        nodes.append(node(activation, names, "y"))
    used = {n for one in nodes for n in one.inputs}
    constants = {k: v for k, v in constants.items() if k in used}
    feeds = {"x": RNG.uniform(-1, 1, (2, channels, 10, 11)).astype(np.float32)}
    references = {**definition("DynamicQuantizeLinear"), **definition("ConvInteger")}
    program = check(provider, nodes, feeds, constants, references=references)
    assert not {"cast", "unary"} & set(program.kernels)
