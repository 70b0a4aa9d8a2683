"""Normalisations out of elementary operators, in the forms of exporters; and what only looks like them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from .models import FLOAT, model, node
from .test_rewrites import agree, normal, operators

LAST = np.array([-1])
EPSILON = np.float32(1e-5)


def normalised(
    steps: list[onnx.NodeProto], constants: dict[str, Any], shape: tuple[Any, ...] = ("n", "s", 6),
    outputs: tuple[Any, ...] = (), opset: int = 21,
) -> onnx.ModelProto:  # fmt: skip
    used = {name for n in steps for name in n.input}
    known = {"axes": LAST, "two": np.float32(2), "one": np.float32(1), "eps": EPSILON, "half": np.float32(0.5),
             "minus": np.float32(-0.5), "w": normal(6), "b": normal(6), **constants}  # fmt: skip
    return model(
        steps, [("x", FLOAT, list(shape))], [("y", FLOAT, list(shape)), *outputs],
        {name: value for name, value in known.items() if name in used}, opset=opset,
    )  # fmt: skip


CENTRE = [node("ReduceMean", ["x", "axes"], ["mean"]), node("Sub", ["x", "mean"], ["d"])]
SQUARES = [node("Mul", ["d", "d"], ["q"]), node("ReduceMean", ["q", "axes"], ["v"]), node("Add", ["v", "eps"], ["ve"])]

INVERSES = {
    "Div": [node("Sqrt", ["ve"], ["r"]), node("Div", ["d", "r"], ["n"])],
    "Reciprocal": [node("Sqrt", ["ve"], ["r"]), node("Reciprocal", ["r"], ["i"]), node("Mul", ["i", "d"], ["n"])],
    "Div of 1": [node("Sqrt", ["ve"], ["r"]), node("Div", ["one", "r"], ["i"]), node("Mul", ["d", "i"], ["n"])],
    "Pow": [node("Pow", ["ve", "minus"], ["i"]), node("Mul", ["d", "i"], ["n"])],
    "Div by Pow": [node("Pow", ["ve", "half"], ["r"]), node("Div", ["d", "r"], ["n"])],
}
SCALED = [node("Mul", ["w", "n"], ["s"])]
SHIFTED = [node("Add", ["b", "s"], ["y"])]


def named(steps: list[onnx.NodeProto], **names: str) -> list[onnx.NodeProto]:
    """The steps with some values under other names."""
    copies = []
    for step in steps:
        copy = onnx.NodeProto()
        copy.CopyFrom(step)
        copy.input[:] = [names.get(name, name) for name in step.input]
        copy.output[:] = [names.get(name, name) for name in step.output]
        copies.append(copy)
    return copies


@pytest.mark.parametrize("inverse", INVERSES)
def test_layer_norm(inverse: str):
    whole = normalised([*CENTRE, *SQUARES, *INVERSES[inverse], *SCALED, *SHIFTED], {})
    assert operators(whole) == ["LayerNormalization"]
    agree(whole, x=normal(2, 3, 6) + 5)
    bare = normalised(named([*CENTRE, *SQUARES, *INVERSES[inverse]], n="y"), {})
    assert operators(bare) == ["LayerNormalization"]
    agree(bare, x=normal(2, 3, 6))


@pytest.mark.parametrize("inverse", INVERSES)
def test_rms_norm(inverse: str):
    steps = named([*SQUARES, *INVERSES[inverse]], d="x")
    after = normalised([*steps, *named(SCALED, s="y")], {})
    assert operators(after) == ["RMSNormalization"]
    agree(after, x=normal(2, 3, 6))
    before = normalised([node("Mul", ["w", "x"], ["xw"]), *_scaled_first(inverse)], {})
    assert operators(before) == ["RMSNormalization"]
    agree(before, x=normal(2, 3, 6))


def _scaled_first(inverse: str) -> list[onnx.NodeProto]:
    *head, last = INVERSES[inverse]
    return [*named(SQUARES, d="x"), *named(head, d="x"), *named([last], d="xw", n="y")]


def test_layer_norm_over_two_axes():
    axes = np.array([-2, -1])
    made = normalised(
        [*CENTRE, *SQUARES, *INVERSES["Div"], *SCALED, *SHIFTED], {"axes": axes, "w": normal(5, 6), "b": normal(5, 6)},
        ("n", 5, 6),
    )  # fmt: skip
    assert operators(made) == ["LayerNormalization"]
    agree(made, x=normal(2, 5, 6))


@pytest.mark.parametrize(
    "changed",
    [
        {"axes": np.array([1])},  # not the last axis
        {"axes": np.array([0, 2])},
        {"two": np.float32(3)},
        {"eps": normal(6)},
        {"eps": np.float32(-1e-5)},
    ],
    ids=str,
)
def test_what_is_no_layer_norm_stays(changed: dict[str, Any]):
    squares = [node("Pow", ["d", "two"], ["q"]), *SQUARES[1:]]
    made = normalised([*CENTRE, *squares, *INVERSES["Div"], *SCALED, *SHIFTED], changed, (2, 3, 6))
    assert "LayerNormalization" not in operators(made)
    agree(made, x=normal(2, 3, 6))


@pytest.mark.parametrize("name", ["d", "ve", "n"])
def test_values_that_are_outputs_stay(name: str):
    outputs = ((name, FLOAT, [2, 3, 1 if name == "ve" else 6]),)
    made = normalised([*CENTRE, *SQUARES, *INVERSES["Div"], *SCALED, *SHIFTED], {}, (2, 3, 6), outputs)
    assert operators(made) == (
        ["LayerNormalization", "Mul", "Add"] if name == "n" else operators(made, disabled_rewrites={"fuse_layer_norm"})
    )
    agree(made, x=normal(2, 3, 6))


def test_scales_that_enlarge_the_result_stay():
    made = normalised(
        [*CENTRE, *SQUARES, *INVERSES["Div"], *named(SCALED, s="y")], {"w": normal(4, 1, 1, 6)}, (2, 3, 6)
    )
    made.graph.output[0].type.tensor_type.shape.dim.insert(0, onnx.TensorShapeProto.Dimension(dim_value=4))
    assert operators(made) == ["LayerNormalization", "Mul"]
    agree(made, x=normal(2, 3, 6))


CHANNELS = {"w": normal(6, 1, 1), "b": normal(1, 6, 1, 1), "axes": np.array([2, 3])}


def test_instance_norm():
    made = normalised([*CENTRE, *SQUARES, *INVERSES["Div"], *SCALED, *SHIFTED], CHANNELS, ("n", 6, "h", "w_"))
    assert operators(made) == ["InstanceNormalization"]
    agree(made, x=normal(2, 6, 4, 5))


@pytest.mark.parametrize("affine", [True, False])
def test_group_norm(affine: bool):
    """As torch's older exporter writes it."""
    steps = [
        node("Reshape", ["x", "groups"], ["g"]), node("InstanceNormalization", ["g", "gs", "gb"], ["i"], epsilon=1e-3),
        node("Shape", ["x"], ["shape"]), node("Reshape", ["i", "shape"], ["n" if affine else "y"]),
        *([*SCALED, *SHIFTED] if affine else []),
    ]  # fmt: skip
    constants = {"groups": np.array([0, 3, -1]), "gs": normal(3), "gb": normal(3), **CHANNELS}
    made = normalised(steps, constants, ("n", 6, "h", "w_"))
    assert operators(made) == ["GroupNormalization"]
    agree(made, x=normal(2, 6, 4, 5))


def test_groups_that_are_no_channels_stay():
    steps = [
        node("Reshape", ["x", "groups"], ["g"]), node("InstanceNormalization", ["g", "gs", "gb"], ["i"]),
        node("Reshape", ["i", "back"], ["y"]),
    ]  # fmt: skip
    constants = {"gs": normal(4), "gb": normal(4), "back": np.array([2, 6, 4, 5])}
    for groups in ([1, 4, 60], [2, 4, 30]):
        made = normalised(steps, {**constants, "groups": np.array(groups)}, (2, 6, 4, 5))
        assert "GroupNormalization" not in operators(made)
        agree(made, x=normal(2, 6, 4, 5))


def test_instance_norm_of_an_unknown_shape():
    made = model(
        [node("Reshape", ["x", "s"], ["r"]), node("InstanceNormalization", ["r", "w", "b"], ["i"]),
         node("Mul", ["i", "k"], ["y"])],
        [("x", FLOAT, ["n"]), ("s", onnx.TensorProto.INT64, ["rank"])], [("y", FLOAT, None)],
        {"w": normal(3), "b": normal(3), "k": normal(3, 1)}, check=False,
    )  # fmt: skip
    assert operators(made) == ["Reshape", "InstanceNormalization", "Mul"]
    agree(made, x=normal(24), s=np.array([2, 3, 4]))


def skip(*, twice: bool = False, **changed: Any) -> onnx.ModelProto:
    shape = ["n", "s", 6]
    return model(
        [node("Add", ["x", "z"], ["t"]), *([node("Neg", ["t"], ["u"])] if twice else []),
         node("LayerNormalization", ["t", "w", "b"], ["y"], **changed)],
        [("x", FLOAT, shape), ("z", FLOAT, shape)], [("y", FLOAT, shape), *([("u", FLOAT, shape)] if twice else [])],
        {"w": normal(6), "b": normal(6)},
    )  # fmt: skip


@pytest.mark.parametrize("twice", [False, True])
def test_skip_layer_norm(twice: bool):
    made = skip(twice=twice, epsilon=1e-3)
    assert operators(made) == ["SkipLayerNormalization", *["Neg"] * twice]
    agree(made, x=normal(2, 3, 6), z=normal(2, 3, 6))


def test_a_sum_that_broadcasts_is_no_skip():
    made = model(
        [node("Add", ["x", "z"], ["t"]), node("LayerNormalization", ["t", "w"], ["y"])],
        [("x", FLOAT, ["n", "s", 6]), ("z", FLOAT, ["m", "s", 6])], [("y", FLOAT, [None, "s", 6])], {"w": normal(6)},
    )  # fmt: skip
    assert operators(made) == ["Add", "LayerNormalization"]
    agree(made, x=normal(2, 3, 6), z=normal(1, 3, 6))
    wide = skip(axis=1)
    assert "SkipLayerNormalization" not in operators(wide)


GELU_TANH = {
    "Pow": [node("Pow", ["x", "three"], ["c"]), node("Mul", ["c", "k"], ["kc"]), node("Add", ["x", "kc"], ["p"])],
    "products": [node("Mul", ["x", "x"], ["q"]), node("Mul", ["x", "q"], ["c"]), node("Mul", ["k", "c"], ["kc"]),
                 node("Add", ["kc", "x"], ["p"])],
    "factored": [node("Mul", ["x", "x"], ["q"]), node("Mul", ["q", "k"], ["kq"]), node("Add", ["one", "kq"], ["f"]),
                 node("Mul", ["x", "f"], ["p"])],
}  # fmt: skip


def activated(steps: list[onnx.NodeProto], **changed: Any) -> onnx.ModelProto:
    known = {"three": 3, "k": 0.044715, "one": 1, "half": 0.5, "root": np.sqrt(2 / np.pi), "alpha": 1.702, "six": 6,
             "zero": 0, **changed}  # fmt: skip
    used = {name for n in steps for name in n.input}
    constants = {name: np.float32(value) for name, value in known.items() if name in used}
    return model(steps, [("x", FLOAT, ["n", 6])], [("y", FLOAT, ["n", 6])], constants)


@pytest.mark.parametrize("form", GELU_TANH)
def test_gelu_by_tanh(form: str):
    steps = [
        *GELU_TANH[form], node("Mul", ["p", "root"], ["a"]), node("Tanh", ["a"], ["t"]),
        node("Add", ["one", "t"], ["u"]), node("Mul", ["x", "half"], ["h"]), node("Mul", ["h", "u"], ["y"]),
    ]  # fmt: skip
    assert operators(activated(steps)) == ["FastGelu"]
    agree(activated(steps), x=normal(4, 6) * 3)
    assert "FastGelu" not in operators(activated(steps, k=0.04))
    assert "FastGelu" not in operators(activated(steps, root=0.79))
    # The same polynomial, but of another value than what is multiplied.
    other = [node("Neg", ["x"], ["x_"]), *steps[:-2], node("Mul", ["x_", "half"], ["h"]), steps[-1]]
    assert "FastGelu" not in operators(activated(other))
    agree(activated(other), x=normal(4, 6))


@pytest.mark.parametrize("log", [True, False])
def test_mish(log: bool):
    softplus = [node("Exp", ["x"], ["e"]), node("Add", ["e", "one"], ["f"]), node("Log", ["f"], ["s"])]
    steps = [
        *(softplus if log else [node("Softplus", ["x"], ["s"])]),
        node("Tanh", ["s"], ["t"]),
        node("Mul", ["x", "t"], ["y"]),
    ]
    assert operators(activated(steps)) == ["Mish"]
    agree(activated(steps), x=normal(4, 6) * 10)


def test_gates():
    quick = [node("Mul", ["x", "alpha"], ["a"]), node("Sigmoid", ["a"], ["g"]), node("Mul", ["x", "g"], ["y"])]
    assert operators(activated(quick)) == ["QuickGelu"]
    agree(activated(quick), x=normal(4, 6) * 3)
    logistic = [node("Neg", ["x"], ["m"]), node("Exp", ["m"], ["e"]), node("Add", ["one", "e"], ["f"])]
    for last, wanted in ((node("Div", ["x", "f"], ["y"]), "QuickGelu"), (node("Div", ["one", "f"], ["y"]), "Sigmoid"),
                         (node("Reciprocal", ["f"], ["y"]), "Sigmoid")):  # fmt: skip
        assert operators(activated([*logistic, last])) == [wanted]
        agree(activated([*logistic, last]), x=normal(4, 6) * 30)
    hard = [
        node("Add", ["x", "three"], ["a"]),
        node("Clip", ["a", "zero", "six"], ["c"]),
        node("Div", ["c", "six"], ["y"]),
    ]
    assert operators(activated(hard)) == ["HardSigmoid"]
    agree(activated(hard), x=normal(4, 6) * 4)


def test_halves_have_their_own_constants():
    """The square root of 2 as a float16 is 1.4140625."""
    steps = [
        node("Div", ["x", "root"], ["d"]), node("Erf", ["d"], ["e"]), node("Add", ["e", "one"], ["a"]),
        node("Mul", ["x", "a"], ["m"]), node("Mul", ["m", "half"], ["y"]),
    ]  # fmt: skip
    kind = onnx.TensorProto.FLOAT16
    constants = {name: np.float16(value) for name, value in {"root": np.sqrt(2), "one": 1, "half": 0.5}.items()}
    made = model(steps, [("x", kind, ["n"])], [("y", kind, ["n"])], constants)
    assert operators(made) == ["Gelu"]
