"""Models as exporters wrote them in 2018: of IR version 3, with their weights among the inputs, and of old opsets."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxlet

RNG = np.random.default_rng(5)


def f(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


WEIGHTS = {
    "w": f(4, 3, 3, 3), "b": f(4), "scale": f(4), "shift": f(4), "mean": f(4), "var": np.abs(f(4)) + 0.5,
    "v": f(4, 1, 3, 3), "dense": f(64, 5), "add": f(5), "shape": np.array([2, 64], np.int64),
}  # fmt: skip


def old_model(opset: int, attributes: dict[str, dict[str, int]]) -> onnx.ModelProto:
    """A small network whose weights are inputs too, as IR version 3 wants them."""
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1], kernel_shape=[3, 3]),
        helper.make_node(
            "BatchNormalization", ["c", "scale", "shift", "mean", "var"], ["n"], **attributes["BatchNormalization"]
        ),
        helper.make_node("Relu", ["n"], ["r"]),
        helper.make_node("Conv", ["r", "v"], ["d"], group=4, kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["d", "b"], ["s"], **attributes["Add"])
        if opset < 7
        else helper.make_node("Sum", ["d", "r"], ["s"]),
        helper.make_node("MaxPool", ["s"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Dropout", ["p"], ["q"], ratio=0.5, **attributes["Dropout"]),
        helper.make_node("Reshape", ["q", "shape"], ["l"]),
        helper.make_node("Gemm", ["l", "dense", "add"], ["g"], **attributes["Gemm"]),
        helper.make_node("Softmax", ["g"], ["y"]),
    ]
    infos = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3, 8, 8])]
    for name, value in WEIGHTS.items():
        infos.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape))
    graph = helper.make_graph(
        nodes, "old", infos, [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 5])],
        [numpy_helper.from_array(value, name) for name, value in WEIGHTS.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=3)


SEVEN = {"BatchNormalization": {"spatial": 1}, "Dropout": {}, "Gemm": {}, "Add": {}}
SIX = {
    "BatchNormalization": {"spatial": 1, "is_test": 1},
    "Dropout": {"is_test": 1},
    "Gemm": {"broadcast": 1},
    "Add": {"broadcast": 1, "axis": 1},
}


def test_weights_among_the_inputs():
    made = old_model(7, SEVEN)
    onnx.checker.check_model(made, full_check=True)
    session = onnxlet.InferenceSession(made.SerializeToString())
    assert [i.name for i in session.get_inputs()] == ["x"]
    assert session.get_overridable_initializers() == []
    x = f(2, 3, 8, 8)
    peer = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(
        session.run(None, {"x": x})[0], np.asarray(peer.run(None, {"x": x})[0]), rtol=1e-4, atol=1e-6
    )
    with pytest.raises(onnxlet.FeedError, match="'b'"):
        session.run(None, {"x": x, "b": f(4)})


def convolved(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """A 3 by 3 convolution with a border of zeros, each output channel by its own weights (in, 3, 3)."""
    padded = np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)]).astype(np.float64)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    return np.einsum("nchwij,ocij->nohw", windows, w)


@pytest.mark.parametrize("optimised", [True, False])
def test_broadcasting_before_opset_7(optimised: bool):
    """By NumPy: a bias along axis 1, statistics that are not trained, nothing dropped."""
    made = old_model(6, SIX)
    onnx.checker.check_model(made)
    options = onnxlet.SessionOptions()
    if not optimised:
        options.graph_optimization_level = onnxlet.GraphOptimizationLevel.ORT_DISABLE_ALL
    x = f(2, 3, 8, 8)
    (got,) = onnxlet.InferenceSession(made.SerializeToString(), options).run(None, {"x": x})
    channel = {name: value.reshape(1, -1, 1, 1) for name, value in WEIGHTS.items() if value.shape == (4,)}
    y = convolved(x, WEIGHTS["w"]) + channel["b"]
    y = (y - channel["mean"]) / np.sqrt(channel["var"] + 1e-5) * channel["scale"] + channel["shift"]
    y = np.maximum(y, 0)
    y = np.concatenate([convolved(y[:, c : c + 1], WEIGHTS["v"][c : c + 1]) for c in range(4)], axis=1) + channel["b"]
    y = y.reshape(2, 4, 4, 2, 4, 2).max(axis=(3, 5)).reshape(2, 64) @ WEIGHTS["dense"] + WEIGHTS["add"]
    weights = np.exp(y - y.max(axis=1, keepdims=True))
    np.testing.assert_allclose(got, weights / weights.sum(axis=1, keepdims=True), rtol=1e-4, atol=1e-6)
