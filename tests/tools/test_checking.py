from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from onnxlet.tools.checking import ERROR, NOTE, WARNING, Finding, check, worst
from tests.core.models import FLOAT, INT64, model, node


def found(tmp_path, made: onnx.ModelProto) -> list[Finding]:
    path = tmp_path / "model.onnx"
    onnx.save(made, path)
    return check(path)


def kinds(findings: list[Finding]) -> list[tuple[str, str, str]]:
    return [(f.level, f.kind, f.where) for f in findings]


def one(op_type="Abs", **options):
    return model([node(op_type, ["x"], ["y"])], [("x", FLOAT, [2])], [("y", FLOAT, [2])], **options)


def test_nothing_is_wrong_with_good_models(tmp_path, data):
    assert found(tmp_path, one()) == []
    for name in ("torch_mobilenetv2_ts", "torch_unet_ts", "tf_lstm", "skl_rf_clf"):
        assert worst(check(data / f"zoo/{name}/model.onnx")) not in (ERROR, WARNING), name


def test_a_file_that_is_no_model(tmp_path):
    path = tmp_path / "text.onnx"
    path.write_text("<html>not a model</html>")
    findings = check(path)
    assert {f.level for f in findings} == {ERROR}
    assert any("not an ONNX model: this is" in f.message for f in findings)
    with pytest.raises(FileNotFoundError):
        check(tmp_path / "absent.onnx")


def test_operators_that_are_not_there_are_named_with_their_nodes(tmp_path):
    nodes = [helper.make_node("Nowhere", ["x"], ["y"], name="first", domain="com.example")]
    made = model(nodes, [("x", FLOAT, [2])], [("y", FLOAT, [2])], domains=["com.example"], check=False)
    findings = [f for f in found(tmp_path, made) if f.kind == "operator"]
    assert kinds(findings) == [(ERROR, "operator", "first")]
    assert "com.example::Nowhere of opset 1" in findings[0].message


def test_waste_is_told(tmp_path):
    big = np.arange(1000, dtype=np.float32)
    nodes = [
        node("Add", ["x", "a"], ["s"]),
        node("Add", ["s", "b"], ["y"]),
        node("Neg", ["x"], ["nobody"], name="idle"),
    ]
    constants = {"a": big, "b": big, "c": big}
    given = [("x", FLOAT, [1000]), ("z", INT64, [1])]
    findings = found(tmp_path, model(nodes, given, [("y", FLOAT, [1000])], constants))
    assert kinds(findings) == [
        (WARNING, "unused", "z"),
        (NOTE, "unused", "c"),
        (NOTE, "dead", "idle"),
        (NOTE, "duplicate", "b"),
    ]


def test_shapes_against_what_nodes_make(tmp_path):
    made = model([node("Abs", ["x"], ["y"])], [("x", FLOAT, [2])], [("y", FLOAT, [3])], check=False)
    assert (WARNING, "shape", "y") in kinds(found(tmp_path, made))
    made = model([node("Abs", ["x"], ["y"])], [("x", FLOAT, [2])], [("y", INT64, [2])], check=False)
    assert (ERROR, "type", "y") in kinds(found(tmp_path, made))
    made = model([node("MatMul", ["x", "x"], ["y"])], [("x", FLOAT, [2, 3])], [("y", FLOAT, [2, 2])], check=False)
    assert (ERROR, "shape", "") in kinds(found(tmp_path, made))


def test_numbers_that_are_none(tmp_path):
    constants = {"k": np.array([1, np.nan], np.float32), "m": np.array([1, -np.inf], np.float32)}
    nodes = [node("Add", ["x", "k"], ["s"]), node("Add", ["s", "m"], ["y"])]
    findings = found(tmp_path, model(nodes, [("x", FLOAT, [2])], [("y", FLOAT, [2])], constants))
    assert kinds(findings) == [(WARNING, "nan", "k"), (NOTE, "infinite", "m")]


def test_names_opsets_and_types(tmp_path):
    nodes = [node("Abs", ["x"], ["s"], name="same"), node("Add", ["s", "w"], ["y"], name="same")]
    constants = {"w": np.zeros(2)}
    double = onnx.TensorProto.DOUBLE
    made = model(nodes, [("x", double, [2])], [("y", double, [2])], constants, domains=["com.example"])
    levels = kinds(found(tmp_path, made))
    assert (WARNING, "name", "same") in levels
    assert (NOTE, "float64", "w") in levels
    assert (NOTE, "opset", "") in levels


def test_external_data_that_is_missing(tmp_path):
    made = model(
        [node("Add", ["x", "w"], ["y"])], [("x", FLOAT, [500])], [("y", FLOAT, [500])], {"w": np.ones(500, "f4")}
    )
    path = tmp_path / "model.onnx"
    onnx.save(made, path, save_as_external_data=True, location="weights.bin")
    assert worst(check(path)) is None
    (tmp_path / "weights.bin").unlink()
    assert any(f.kind == "unreadable" and "weights.bin" in f.message for f in check(path))
