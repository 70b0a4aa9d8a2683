"""Cases of our own for versions of operators that no case of the standard's suites has.

The values are worked out here from the text of each version.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
from onnx import TensorProto, TypeProto, ValueInfoProto, helper

from tests.conformance.suite import Case

ML = "ai.onnx.ml"
CUBE = np.arange(24, dtype=np.float32).reshape(2, 3, 4) - 7.5
IMAGE = np.arange(1, 17, dtype=np.float32).reshape(1, 1, 4, 4)
SINES = np.sin(np.arange(500)).astype(np.float32)


def one(
    operator: str,
    since: int,
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    *,
    domain: str = "",
    output_type: TypeProto | None = None,
    **attributes: Any,
) -> Case:
    """A model of one node; `output_type` is that of its output where the array doesn't tell."""
    names = [f"x{i}" for i in range(len(inputs))]
    results = [f"y{i}" if y is not None else "" for i, y in enumerate(outputs)]
    node = helper.make_node(operator, names, results, domain=domain, **attributes)
    values = [_value(name, x) for name, x in zip(names, inputs, strict=True)]
    kept = [(name, y) for name, y in zip(results, outputs, strict=True) if name]
    made = [_value(name, y) for name, y in kept]
    if output_type is not None:
        made[0].type.CopyFrom(output_type)
    graph = helper.make_graph([node], operator, values, made)
    opsets = [helper.make_opsetid(domain, since)] + [helper.make_opsetid("", 13)] * (domain != "")
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    return Case(f"{operator} {since}", model.SerializeToString(), [(list(inputs), [y for _, y in kept])], 1e-5, 1e-6)


def _value(name: str, array: np.ndarray) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)


def collect() -> list[Case]:
    """All of the cases."""
    parts = (broadcasting, reductions, arrangements, pooling, types, recurrent, control, trees)
    cases = [case for part in parts for case in part()]
    return [replace(case, name=f"{case.name} (our case {i})") for i, case in enumerate(cases)]


def broadcasting() -> list[Case]:
    """Before opset 7 the second operand is stretched if `broadcast` says so, from `axis` on."""
    numbers, bits = np.array([2, -3, 0.5], np.float32), np.array([True, False, True])
    truth, whole = CUBE > 3, CUBE.astype(np.int64)
    stretch: dict[str, Any] = {"axis": 1, "broadcast": 1}
    return [
        one("Add", 1, [CUBE, numbers], [CUBE + numbers[:, None]], consumed_inputs=[0, 0], **stretch),
        one("Sub", 1, [CUBE, numbers], [CUBE - numbers[:, None]], **stretch),
        one("Div", 1, [CUBE, numbers], [CUBE / numbers[:, None]], **stretch),
        one("Div", 1, [CUBE, CUBE], [np.ones_like(CUBE)], consumed_inputs=[0, 0]),
        one("Less", 1, [CUBE, numbers], [numbers[:, None] > CUBE], **stretch),
        one("Equal", 1, [whole, np.array([-7, -2, 4])], [whole == np.array([[-7], [-2], [4]])], **stretch),
        one("Or", 1, [truth, bits], [truth | bits[:, None]], **stretch),
        one("Xor", 1, [truth, bits], [truth ^ bits[:, None]], **stretch),
        one("PRelu", 1, [CUBE, numbers], [np.where(CUBE < 0, CUBE * numbers[:, None], CUBE)], consumed_inputs=[0, 0]),
        one("Clip", 1, [CUBE], [np.clip(CUBE, -2, 3)], min=-2.0, max=3.0, consumed_inputs=[0]),
        one("Clip", 1, [CUBE], [np.minimum(CUBE, 3)], max=3.0),
    ]


def reductions() -> list[Case]:
    """`axes` is an attribute before opset 18 (ReduceSum: 13)."""
    small, axes = CUBE.astype(np.int8), (0, 2)
    positive = np.abs(CUBE)
    log = np.log
    return [
        one("ReduceMax", 12, [small], [small.max(axes, keepdims=True)], axes=[0, 2]),
        one("ReduceMin", 12, [small], [small.min(axes, keepdims=True)], axes=[0, 2]),
        one("ReduceMin", 13, [small], [small.min(axes)], axes=[0, -1], keepdims=0),
        one("ReduceL1", 13, [CUBE], [positive.sum(axes)], axes=[0, -1], keepdims=0),
        one("ReduceL2", 13, [CUBE], [np.sqrt((CUBE**2).sum(axes))], axes=[0, -1], keepdims=0),
        one("ReduceLogSum", 13, [positive], [log(positive.sum(1, keepdims=True))], axes=[1]),
        one("ReduceLogSumExp", 13, [CUBE], [log(np.exp(CUBE).sum()).reshape(1, 1, 1)]),
        one("ReduceProd", 13, [CUBE], [CUBE.prod(1)], axes=[-2], keepdims=0),
        one("ReduceSumSquare", 13, [CUBE], [(CUBE**2).sum(axes, keepdims=True)], axes=[0, 2]),
        one("ArgMax", 1, [CUBE], [CUBE.argmax(2)], axis=2, keepdims=0),
        one("ArgMin", 1, [-CUBE], [(-CUBE).argmin(0)[None]]),
        one("ArgMin", 11, [CUBE], [CUBE.argmin(-1)[..., None]], axis=-1),
    ]


def arrangements() -> list[Case]:
    x = np.array([[[1, 5, 2], [5, 0, 5]], [[0, 0, 1], [-1, 1, 0]]], np.float32)
    # One 1 in each row of a matrix whose rows are the dimensions before `axis`.
    largest = np.array([[[0, 1, 0], [0, 0, 0]], [[0, 0, 1], [0, 0, 0]]], np.float32)
    # depth (row in the block, column in the block, channel)
    blocks = IMAGE.reshape(1, 1, 2, 2, 2, 2).transpose(0, 3, 5, 1, 2, 4).reshape(1, 4, 2, 2)
    data, indices = np.zeros((3, 3), np.float32), np.array([[1, 0, 2], [0, 2, 1]])
    updates = np.array([[1.0, 1.1, 1.2], [2.0, 2.1, 2.2]], np.float32)
    scattered = np.array([[2.0, 1.1, 0.0], [1.0, 0.0, 2.2], [0.0, 2.1, 1.2]], np.float32)
    return [
        one("Hardmax", 1, [x], [largest]),
        one("SpaceToDepth", 1, [IMAGE], [blocks], blocksize=2),
        one("SpaceToDepth", 13, [IMAGE], [blocks], blocksize=2),
        one("ScatterElements", 13, [data, indices, updates], [scattered]),
    ]


def pooling() -> list[Case]:
    quarters = IMAGE.reshape(1, 1, 2, 2, 2, 2).swapaxes(3, 4).reshape(1, 1, 2, 2, 4)
    small = np.arange(1, 10, dtype=np.float32).reshape(1, 1, 3, 3)
    sums = np.array([[1, 3, 5], [5, 12, 16], [11, 24, 28]], np.float32)[None, None]
    counts = np.array([[1, 2, 2], [2, 4, 4], [2, 4, 4]], np.float32)
    ahead: dict[str, Any] = {"kernel_shape": [2, 2], "pads": [1, 1, 0, 0]}
    cubes = np.cbrt((IMAGE**3).sum((2, 3), keepdims=True))
    return [
        one("AveragePool", 7, [small], [sums / counts], **ahead),
        one("AveragePool", 7, [small], [sums / 4], count_include_pad=1, **ahead),
        one("AveragePool", 11, [small], [sums / counts], **ahead),
        one(
            "AveragePool", 11, [small], [np.array([[[[3, 4.5], [7.5, 9]]]], np.float32)],
            kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1,
        ),
        one("LpPool", 2, [IMAGE], [np.sqrt((quarters**2).sum(-1))], kernel_shape=[2, 2], strides=[2, 2]),
        one("LpPool", 2, [IMAGE], [quarters.sum(-1)], kernel_shape=[2, 2], strides=[2, 2], p=1),
        one("GlobalLpPool", 1, [IMAGE], [cubes], p=3.0),
        one("GlobalLpPool", 22, [IMAGE], [cubes], p=3),
        one(
            "MaxRoiPool", 22, [IMAGE, np.array([[0, 0, 0, 3, 3], [0, 1, 1, 2, 2]], np.float32)],
            [np.array([[[[6, 8], [14, 16]]], [[[6, 7], [10, 11]]]], np.float32)], pooled_shape=[2, 2],
        ),
    ]  # fmt: skip


def types() -> list[Case]:
    x = np.array([500, -1.3, 0.26], np.float32)
    scale, zero = np.array([0.5, 2], np.float32), np.array([128, 1], np.uint8)
    codes = np.array([[128, 129, 0], [1, 3, 255]], np.uint8)
    rows = np.array([[0, 0.5, -64], [0, 4, 508]], np.float32)
    optional = helper.make_optional_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, [3]))
    saturated = np.array([448, -1.25, 0.25], np.float32).astype(ml_dtypes.float8_e4m3fn)
    overflown = np.array([np.nan, -1.25, 0.25], np.float32).astype(ml_dtypes.float8_e4m3fn)
    return [
        one("Cast", 19, [x], [saturated], to=TensorProto.FLOAT8E4M3FN),
        one("Cast", 19, [x], [overflown], to=TensorProto.FLOAT8E4M3FN, saturate=0),
        one("CastLike", 21, [x, np.zeros(1, np.int16)], [np.array([500, -1, 0], np.int16)]),
        one("CastLike", 21, [x, overflown], [overflown], saturate=0),
        one("DequantizeLinear", 19, [codes, scale, zero], [rows], axis=0),
        one("Optional", 28, [x], [x], output_type=optional),
    ]


def recurrent() -> list[Case]:
    """Steps with default activations, forward; before opset 7 `output_sequence` is an attribute."""

    def sigmoid(v: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-v))

    def weights(gates: int) -> list[np.ndarray]:
        sizes = [(1, gates * 2, 3), (1, gates * 2, 2), (1, gates * 4)]
        return [np.resize(SINES[9 * i :], size) for i, size in enumerate(sizes)]

    def case(operator: str, since: int, gates: int, step: Callable[..., Any], **attributes: Any) -> Case:
        w, r, b = weights(gates)
        state, hidden = (np.zeros((2, 2), np.float32),) * (2 if operator == "LSTM" else 1), []
        for x in xs:
            from_x, from_h = x @ w[0].T + b[0, : gates * 2], state[0] @ r[0].T + b[0, gates * 2 :]
            state = step(np.split(from_x, gates, 1), np.split(from_h, gates, 1), *state, r, b)
            hidden.append(state[0])
        outputs = [np.stack(hidden)[:, None], *(s[None] for s in state)]
        return one(operator, since, [xs, w, r, b], outputs, hidden_size=2, output_sequence=1, **attributes)

    def rnn(x: Any, h: Any, last: Any, r: Any, b: Any) -> Any:
        return (np.tanh(x[0] + h[0]),)

    def gru(x: Any, h: Any, last: Any, r: Any, b: Any) -> Any:
        update, reset = sigmoid(x[0] + h[0]), sigmoid(x[1] + h[1])
        new = np.tanh(x[2] + (reset * last) @ r[0, 4:].T + b[0, 10:])
        return ((1 - update) * new + update * last,)

    def gru_with_linear_before_reset(x: Any, h: Any, last: Any, r: Any, b: Any) -> Any:
        update, reset = sigmoid(x[0] + h[0]), sigmoid(x[1] + h[1])
        return ((1 - update) * np.tanh(x[2] + reset * h[2]) + update * last,)

    def lstm(x: Any, h: Any, last: Any, cell: Any, r: Any, b: Any) -> Any:
        inlet, outlet, forget = (sigmoid(x[i] + h[i]) for i in range(3))
        cell = forget * cell + inlet * np.tanh(x[3] + h[3])
        return outlet * np.tanh(cell), cell

    xs = np.resize(SINES[100:], (4, 2, 3))
    return [
        case("RNN", 1, 1, rnn),
        case("GRU", 1, 3, gru),
        case("GRU", 3, 3, gru),
        case("GRU", 3, 3, gru_with_linear_before_reset, linear_before_reset=1),
        case("LSTM", 1, 4, lstm),
    ]


def control() -> list[Case]:
    def constant(name: str, value: np.ndarray) -> Any:
        number = helper.np_dtype_to_tensor_dtype(value.dtype)
        return helper.make_node("Constant", [], [name], value=helper.make_tensor(name, number, value.shape, value))

    def branch(name: str, value: np.ndarray) -> Any:
        return helper.make_graph([constant(name, value)], name, [], [_value(name, value)])

    yes, no, step = np.array([1, 2], np.float32), np.array([3, 4], np.float32), np.array([0.5, -1], np.float32)
    choose: dict[str, Any] = {"then_branch": branch("yes", yes), "else_branch": branch("no", no)}
    number, go = np.array(3), np.array(True)
    body = helper.make_graph(
        [
            constant("step", step),
            helper.make_node("Identity", ["go"], ["go_on"]),
            helper.make_node("Add", ["v", "step"], ["next"]),
            helper.make_node("Identity", ["next"], ["row"]),
        ],
        "body",
        [_value("i", number), _value("go", go), _value("v", step)],
        [_value("go_on", go), _value("next", step), _value("row", step)],
    )
    rows = np.stack([yes + (i + 1) * step for i in range(3)])
    return [
        one("If", 1, [np.array(True)], [yes], **choose),
        one("If", 1, [np.array(False)], [no], **choose),
        one("Loop", 1, [number, go, yes], [rows[-1], rows], body=body),
    ]


def trees() -> list[Case]:
    """One node that asks whether the first feature is at most 0.5, and two leaves."""
    tree: dict[str, Any] = {
        "nodes_treeids": [0, 0, 0],
        "nodes_nodeids": [0, 1, 2],
        "nodes_featureids": [0, 0, 0],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
        "nodes_truenodeids": [1, 0, 0],
        "nodes_falsenodeids": [2, 0, 0],
    }
    values: dict[str, Any] = {"nodes_values": [0.5, 0.0, 0.0]}
    doubles: dict[str, Any] = {"nodes_values_as_tensor": helper.make_tensor("v", TensorProto.DOUBLE, [3], [0.5, 0, 0])}
    leaves: dict[str, Any] = {"treeids": [0, 0], "nodeids": [1, 2], "ids": [0, 1]}
    classes = {f"class_{key}": value for key, value in leaves.items()} | {"classlabels_int64s": [3, 7]}
    targets = {f"target_{key}": value for key, value in leaves.items()} | {"n_targets": 2}
    x = np.array([[0.2, 9], [0.8, 9]])
    labels, scores = np.array([3, 7]), np.array([[2, 0], [0, 5]], np.float32)
    weights = helper.make_tensor("w", TensorProto.DOUBLE, [2], [2, 5])
    single = x.astype(np.float32)
    return [
        one(
            "TreeEnsembleClassifier",
            3,
            [single],
            [labels, scores],
            domain=ML,
            class_weights=[2.0, 5.0],
            **classes,
            **tree,
            **values,
        ),
        one(
            "TreeEnsembleClassifier",
            3,
            [x],
            [labels, scores],
            domain=ML,
            class_weights_as_tensor=weights,
            **classes,
            **tree,
            **doubles,
        ),
        one(
            "TreeEnsembleClassifier",
            5,
            [single],
            [labels, scores],
            domain=ML,
            class_weights=[2.0, 5.0],
            **classes,
            **tree,
            **values,
        ),
        one(
            "TreeEnsembleRegressor",
            5,
            [single],
            [scores],
            domain=ML,
            target_weights=[2.0, 5.0],
            **targets,
            **tree,
            **values,
        ),
    ]
