from __future__ import annotations

import json

import numpy as np
import pytest
from onnx import helper

from onnxlet.graph.ir import TensorType
from onnxlet.model.loader import load_model
from onnxlet.tools import inputs
from onnxlet.tools.estimating import estimate
from onnxlet.tools.inspecting import inspect
from tests.core.models import BOOL, FLOAT, INT64, graph, model, node


def types(made, **dims):
    return inputs.input_types(made.graph, inputs.choose_dimensions(made.graph, dims))


def layers(nodes, given, outputs, constants, **options):
    made = load_model(model(nodes, given, outputs, constants, **options))
    return inspect(made, types(made))


def zeros(*shape):
    return np.zeros(shape, np.float32)


@pytest.mark.parametrize(
    ("made", "shape", "weights", "out", "expected"),
    [
        (node("MatMul", ["x", "w"], ["y"]), [2, 3, 4], (4, 5), [2, 3, 5], 2 * 3 * 4 * 5),
        (node("Gemm", ["x", "w"], ["y"], transA=1, transB=1), [4, 3], (5, 4), [3, 5], 3 * 4 * 5),
        # Output 1×8×6×6, each of 3×3 values of the 4 channels of its group.
        (node("Conv", ["x", "w"], ["y"], group=2), [1, 8, 8, 8], (8, 4, 3, 3), [1, 8, 6, 6], 8 * 36 * 4 * 9),
        (node("ConvTranspose", ["x", "w"], ["y"]), [1, 4, 5, 5], (4, 2, 3, 3), [1, 2, 7, 7], 4 * 25 * 2 * 9),
        (node("Einsum", ["x", "w"], ["y"], equation="bij,jk->bik"), [2, 3, 4], (4, 5), [2, 3, 5], 2 * 3 * 4 * 5),
        (node("Add", ["x", "w"], ["y"]), [3, 4], (4,), [3, 4], 0),
    ],
    ids=lambda v: v.op_type if hasattr(v, "op_type") else "",
)
def test_multiply_adds_by_the_formula(made, shape, weights, out, expected):
    found = layers([made], [("x", FLOAT, shape)], [("y", FLOAT, out)], {"w": zeros(*weights)})
    assert found.multiply_adds == expected
    assert found.parameters == np.prod(weights)
    assert found.parameter_bytes == {"float": 4 * np.prod(weights)}
    assert found.layers[0].activation_bytes == 4 * (np.prod(shape) + np.prod(out))


def test_recurrent_layers_count_input_and_hidden_products():
    steps, batch, features, hidden = 5, 2, 3, 4
    made = node("LSTM", ["x", "w", "r"], ["y"], hidden_size=hidden)
    constants = {"w": zeros(1, 4 * hidden, features), "r": zeros(1, 4 * hidden, hidden)}
    out = [steps, 1, batch, hidden]
    found = layers([made], [("x", FLOAT, [steps, batch, features])], [("y", FLOAT, out)], constants)
    assert found.multiply_adds == steps * batch * 4 * hidden * (features + hidden)


def test_the_most_memory_is_when_three_values_live():
    # a and b live while c is made of them: 3 · 400 bytes; x is dead by then, and y comes when a and b are.
    nodes = [
        node("Abs", ["x"], ["a"]),
        node("Neg", ["a"], ["b"]),
        node("Add", ["a", "b"], ["c"]),
        node("Relu", ["c"], ["y"]),
    ]
    found = layers(nodes, [("x", FLOAT, [100])], [("y", FLOAT, [100])], {})
    assert found.peak_activation_bytes == 1200


def test_bodies_of_loops_count_as_often_as_they_run():
    body = graph(
        [node("Identity", ["c"], ["d"]), node("MatMul", ["s", "w"], ["t"])],
        [("i", INT64, []), ("c", BOOL, []), ("s", FLOAT, [2, 3])],
        [("d", BOOL, []), ("t", FLOAT, [2, 3])],
    )
    loop = node("Loop", ["n", "", "x"], ["y"], body=body)
    constants = {"n": np.array(7), "w": zeros(3, 3)}
    found = layers([loop], [("x", FLOAT, [2, 3])], [("y", FLOAT, [2, 3])], constants)
    assert found.multiply_adds == 7 * 2 * 3 * 3
    assert [(layer.operator, layer.times) for layer in found.layers] == [("Loop", 1), ("Identity", 7), ("MatMul", 7)]


def test_shapes_that_only_a_run_tells_are_counted_as_unknown():
    nodes = [node("NonZero", ["x"], ["i"]), node("Cast", ["i"], ["y"], to=FLOAT)]
    found = layers(nodes, [("x", FLOAT, [4])], [("y", FLOAT, [1, None])], {})
    assert found.unknown == 2
    assert "2 nodes whose shapes only a run can tell" in str(found)


def test_a_real_model(data):
    made = load_model(data / "zoo/torch_mobilenetv2_ts/model.onnx")
    found = inspect(made, types(made))
    assert found.operators["Conv"] == 29
    assert found.inputs[0].shape == ["batch", 3, 96, 96]
    # The first convolution by hand: 16 channels of 48×48, each from 3×3 of 3.
    assert found.layers[0].multiply_adds == 16 * 48 * 48 * 3 * 9
    assert found.parameters == sum(t.size for t in made.graph.initializers.values())
    text = str(found)
    assert "in0: tensor(float)[batch, 3, 96, 96]" in text
    assert "Conv" in found.layer_table()
    assert json.loads(json.dumps(found.to_dict()))["nodes"] == len(made.graph.nodes)


def test_an_estimate_is_a_time_for_every_provider():
    made = load_model(
        model(
            [node("MatMul", ["x", "w"], ["y"])],
            [("x", FLOAT, [64, 64])],
            [("y", FLOAT, [64, 64])],
            {"w": zeros(64, 64)},
        )
    )
    found = inspect(made, {"x": TensorType(np.dtype(np.float32), (64, 64))})
    times = estimate(found, ["CPUExecutionProvider"])
    assert list(times) == ["CPUExecutionProvider"]
    assert times["CPUExecutionProvider"] > 0


def test_weights_of_bodies_are_weights():
    branch = [
        helper.make_graph(
            [node("Identity", [f"k{n}"], [f"o{n}"])], f"b{n}", [], [helper.make_tensor_value_info(f"o{n}", FLOAT, [2])],
            [helper.make_tensor(f"k{n}", FLOAT, [2], [1, 2])],
        )
        for n in (0, 1)
    ]  # fmt: skip
    made = node("If", ["c"], ["y"], then_branch=branch[0], else_branch=branch[1])
    assert layers([made], [("c", BOOL, [])], [("y", FLOAT, [2])], {}).parameters == 4
