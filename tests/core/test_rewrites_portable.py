"""Rewritten models as files: valid, and run by another runtime as by the definitions of the operators."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx.reference import ReferenceEvaluator

import onnxlet
from onnxlet.graph.ir import Graph, Model, Node, TensorType
from onnxlet.model.writer import to_bytes
from onnxlet.ops.registry import find
from onnxlet.rewrites.portable import BODIES, portable
from tests.models import ZooModel, zoo

from .models import FLOAT, model, node
from .test_rewrites import normal

ONNXLET, MICROSOFT = "ai.onnxlet", "com.microsoft"
X, SQUARE, IMAGE = normal(2, 3, 6), normal(6, 6), normal(2, 4, 5, 5)
HIDDEN = np.zeros((5, 7), np.float32)
HIDDEN[1], HIDDEN[2, 3:] = -np.inf, -np.inf
HEADS = [normal(2, 4, 5, 8), normal(2, 4, 7, 8), normal(2, 4, 7, 3)]
SHARED = [normal(2, 6, 5, 8), normal(2, 2, 7, 8), normal(2, 7, 2, 3)]
TURNED = [x.swapaxes(1, 2) for x in HEADS]

Values = Sequence[np.ndarray | None]
Case = tuple[str, str, Values, dict[str, Any]]

ADDED = [X, SQUARE, normal(6), normal(2, 3, 6)]
CASES: list[Case] = [
    *[
        ("FusedMatMul", ONNXLET, ADDED, {"activation": name, "activation_params": values})
        for name, values in [
            ("Relu", []), ("LeakyRelu", [0.1]), ("Clip", [-0.5, 0.5]), ("Sigmoid", []), ("Tanh", []), ("HardSwish", []),
            ("Silu", []), ("Gelu", []), ("GeluTanh", []),
        ]
    ],
    ("FusedMatMul", ONNXLET, [normal(6, 4), normal(5, 6)], {"transA": 1, "transB": 1, "alpha": 0.5}),
    ("FusedMatMul", ONNXLET, [X, SQUARE, None, normal(2, 3, 6)], {}),
    ("FusedAttention", ONNXLET, HEADS, {"scale": 0.3}),
    ("FusedAttention", ONNXLET, TURNED, {"scale": 0.3, "heads_last": [1, 1, 1, 1]}),
    ("FusedAttention", ONNXLET, SHARED, {"heads_last": [0, 0, 1, 1]}),
    *[("FusedAttention", ONNXLET, [*HEADS, HIDDEN], {"unseen": unseen}) for unseen in range(3)],
    ("FusedAttention", ONNXLET, [*HEADS, None, normal(2, 1, 5, 7) > 0], {"fill": -100.0}),
    ("FusedAttention", ONNXLET, [normal(4, 5, 8), normal(7, 4, 8), normal(4, 7, 3)], {"heads_last": [0, 1, 0, 1]}),
    ("FusedConv", MICROSOFT, [IMAGE, normal(4, 4, 3, 3), normal(4), IMAGE], {"activation": "Silu", "pads": [1] * 4}),
    ("FusedConv", MICROSOFT, [IMAGE, normal(4, 4, 1, 1)], {"activation": "Clip", "activation_params": [0.0, 1.0]}),
    ("LayerNormalization", "", [X, normal(6), normal(6)], {"axis": -1, "epsilon": 1e-3}),
    ("LayerNormalization", "", [X, normal(3, 6)], {"axis": 1}),
    ("RMSNormalization", "", [X, normal(6)], {"axis": -1, "epsilon": 1e-3}),
    ("GroupNormalization", "", [IMAGE, normal(4), normal(4)], {"num_groups": 2}),
    ("RotaryEmbedding", "", [normal(2, 3, 5, 8), normal(2, 5, 4), normal(2, 5, 4)], {}),
    ("RotaryEmbedding", "", [normal(2, 3, 5, 8), normal(2, 5, 4), normal(2, 5, 4)], {"interleaved": 1}),
    ("HardSwish", "", [X], {}),
    ("Mish", "", [X], {}),
]  # fmt: skip
HALF = [("Gelu", {}), ("FastGelu", {}), ("QuickGelu", {"alpha": 1.5})]
CASES += [(name, MICROSOFT, [X.astype(np.float64)], attributes) for name, attributes in HALF]
CASES += [
    (name, MICROSOFT, [x.astype(np.float64) for x in (X, normal(2, 3, 6), normal(6), *more)], {"epsilon": 1e-3})
    for name, more in (("SkipLayerNormalization", (normal(6),)), ("SkipSimplifiedLayerNormalization", ()))
]


def written(
    kind: str, domain: str, values: Values, attributes: dict[str, Any], opset: int, shape: tuple[int, ...]
) -> bytes:
    """A model of one node, which a rewrite is taken to have made of operators of `opset`."""
    inputs = ["" if v is None else f"x{i}" for i, v in enumerate(values)]
    version = (
        1 if domain else {"GroupNormalization": 21, "HardSwish": 14, "Mish": 18, "LayerNormalization": 17}.get(kind, 23)
    )
    made = Node(kind, inputs, ["y"], attributes, domain, version, "made")
    types = {f"x{i}": TensorType(v.dtype, v.shape) for i, v in enumerate(values) if v is not None}
    dtype = next(iter(types.values())).dtype
    graph = Graph("g", list(types), ["y"], [made], types={**types, "y": TensorType(dtype, shape)})
    original = Graph("g", list(types), ["y"], [], types=graph.types)
    return to_bytes(portable(Model(original, {"": opset}, 8), graph))


@pytest.mark.parametrize("opset", [12, 13, 17])
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[3]}")
def test_bodies(case: Case, opset: int):
    kind, domain, values, attributes = case
    operator = find(kind, domain, 23)
    assert operator is not None
    with np.errstate(all="ignore"):
        expected = operator.function(*values, **attributes)
    expected = expected[0] if isinstance(expected, tuple) else expected
    data = written(kind, domain, values, attributes, opset, expected.shape)
    onnx.checker.check_model(data)
    native = kind == "LayerNormalization" and opset >= 17
    assert onnx.load_from_string(data).graph.node[0].domain == ("" if native else ONNXLET)
    feeds = {f"x{i}": v for i, v in enumerate(values) if v is not None}
    for given in (by_onnxruntime(data, feeds)[0], onnxlet.InferenceSession(data).run(None, feeds)[0]):
        assert given.dtype == expected.dtype
        np.testing.assert_allclose(given, expected, rtol=2e-5, atol=2e-6)


def by_onnxruntime(source: bytes | str, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    """The outputs by onnxruntime, which leaves the model as it is; ONNX's evaluator has Erf of float64, too."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    except onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented:
        session = ReferenceEvaluator(onnx.load_from_string(source) if isinstance(source, bytes) else source)
    return [np.asarray(value) for value in session.run(None, feeds)]


def test_causal_attention():
    """It only comes from opset 23."""
    data = written("FusedAttention", ONNXLET, [*HEADS], {"causal_offset": 2}, 23, (2, 4, 5, 3))
    onnx.checker.check_model(data)
    feeds = {f"x{i}": v for i, v in enumerate(HEADS)}
    operator = find("FusedAttention", ONNXLET, 1)
    assert operator is not None
    expected = operator.function(*HEADS, causal_offset=2)
    np.testing.assert_allclose(by_onnxruntime(data, feeds)[0], expected, rtol=2e-5, atol=2e-6)


def test_every_body_has_a_case():
    assert {(domain, name) for name, domain, *_ in CASES} == set(BODIES)


def rewritten(made: Any, path: Path) -> onnx.ModelProto:
    onnxlet.InferenceSession(made, onnxlet.SessionOptions(optimized_model_filepath=str(path))).close()
    proto = onnx.load(path)
    onnx.checker.check_model(proto)
    return proto


MODELS = zoo("torch_bert_dyn", "torch_llama_kv_ts", "torch_gpt_dyn", "torch_mobilenetv3_ts", "torch_diffunet_ts",
             "torch_seq2seq_ts", "tf_gru", "q_mobilenetv2_qdq", "torch_unet_ts", "torch_inception_ts")  # fmt: skip


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_models(model: ZooModel, tmp_path: Path):
    rewritten(model.path, tmp_path / "model.onnx")
    names = [output.name for output in onnxlet.InferenceSession(model.path).get_outputs()]
    model.check(names, by_onnxruntime(str(tmp_path / "model.onnx"), model.values("in")))
    model.check(names, onnxlet.InferenceSession(tmp_path / "model.onnx").run(None, model.values("in")))


def test_equal_bodies_are_written_once(tmp_path: Path):
    steps = []
    for i in range(3):
        steps += [node("MatMul", [f"h{i}", "w"], [f"p{i}"]), node("HardSwish", [f"p{i}"], [f"h{i + 1}"])]
    made = model(
        [node("Identity", ["x"], ["h0"]), *steps, node("Neg", ["h3"], ["y"])], [("x", FLOAT, ["n", 6])],
        [("y", FLOAT, ["n", 6])], {"w": SQUARE},
    )  # fmt: skip
    proto = rewritten(made, tmp_path / "model.onnx")
    assert [f.name for f in proto.functions] == ["FusedMatMul_1"]
    assert [n.op_type for n in proto.graph.node] == ["FusedMatMul_1"] * 3 + ["Neg"]
    x = normal(4, 6)
    expected = by_onnxruntime(made.SerializeToString(), {"x": x})[0]
    given = by_onnxruntime(str(tmp_path / "model.onnx"), {"x": x})[0]
    np.testing.assert_allclose(given, expected, rtol=1e-5, atol=1e-6)


def test_rewrites_are_disabled_by_name():
    made = model(
        [node("MatMul", ["x", "w"], ["p"]), node("Relu", ["p"], ["y"])], [("x", FLOAT, ["n", 6])],
        [("y", FLOAT, ["n", 6])], {"w": SQUARE},
    )  # fmt: skip
    x = normal(4, 6)
    for disabled, wanted in (
        (None, {"ai.onnxlet::FusedMatMul"}),
        (["fuse_epilogues", "ConstantFolding"], {"MatMul", "Relu"}),
    ):
        session = onnxlet.InferenceSession(made, disabled_optimizers=disabled)
        np.testing.assert_allclose(session.run(None, {"x": x})[0], np.maximum(x @ SQUARE, 0), rtol=1e-5, atol=1e-6)
        assert {row.operator for row in session.explain().rows} == wanted
