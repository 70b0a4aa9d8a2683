"""The benchmark of GPU providers: cases are valid graphs, tables say what was measured, and its processes run."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from bench import webgpu_native, webgpu_process
from bench.webgpu_cases import CASES, GpuCase, chosen, tiny
from bench.webgpu_report import GpuRow, Measured, arguments, line, markdown, means, measure_all, moved
from onnxlet_webgpu.provider import available
from tests.conftest import missing

NONE = {"dispatches": 0, "submits": 0, "readbacks": 0, "pipelines": 0, "bindGroups": 0, "bytesWritten": 0}
NONE |= {"bytesCopied": 0, "bytesRead": 0}


def row(name: str, peer: float, ours: float) -> GpuRow:
    counts = {**NONE, "dispatches": 8, "bytesWritten": 100, "bytesCopied": 20, "bytesRead": 3, "pipelines": 5}
    theirs = Measured([4 * peer, 5 * peer], [[peer, 2 * peer], [3 * peer]], counts, counts)
    mine = Measured([ours, 2 * ours], [[ours], [ours]], {**counts, "pipelines": 2}, {**counts, "dispatches": 4})
    return GpuRow(name, theirs, mine, tolerance=1e-4)


def test_names_are_unique_and_chosen_by_expression() -> None:
    assert len({case.name for case in CASES}) == len(CASES)
    assert [case.name for case in chosen("^U-Net")] == ["U-Net 128, 16 to 128 channels"]
    assert chosen(None) == CASES


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_models_are_valid(case: GpuCase) -> None:
    model = case.build()
    onnx.checker.check_model(model)
    names = [value.name for value in model.graph.input]
    assert set(names) == set(case.feeds())
    state = case.state(model)
    outputs = {value.name for value in model.graph.output}
    assert set(state) < outputs
    assert set(state.values()) | set(case.advancing) <= set(names)


def test_ratios_and_means() -> None:
    r = row("a", 10.0, 2.0)
    assert (r.ratio, r.ratio_median) == (5.0, 10.0)
    assert (r.first_ratio, r.first_ratio_median) == (20.0, 15.0)
    assert means([r, row("b", 10.0, 10.0), GpuRow("c", error="gone")])["ratio"] == pytest.approx(5**0.5)
    assert moved(r.peer.counts) == 123


def test_counts_are_the_most_of_all_rounds() -> None:
    engine = Measured()
    engine.note({"dispatches": 3, "submits": 2})
    engine.note({"dispatches": 2, "submits": 4})
    assert engine.counts == {"dispatches": 3, "submits": 4}


def test_tables() -> None:
    wrong = row("wrong", 3.0, 1.0)
    wrong.difference = 0.5
    about = {"title": "In a page", "peer": "other", "how": "So.", "machine": {"date": "today"}}
    text = markdown([row("right", 10.0, 2.0), wrong, GpuRow("failed", error="boom")], about)
    assert "| right | 10.0 | 2.00 | 5.00 | 10.00 | 40.0 | 2.00 | 20.00 | 15.00 | 0e+00 |" in text
    assert "5e-01 (too much)" in text
    assert "| right | 8 / 4 | 123 / 123 | 0 / 0 | 0 / 0 | 0 / 0 | 5 / 2 |" in text
    assert "- date: today" in text
    assert "OUTPUTS DIFFER by 5.0e-01" in line(wrong)
    assert "FAILED: boom" in line(GpuRow("failed", error="boom"))


def test_results_are_written_case_by_case(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--markdown", str(tmp_path / "a.md"), "--json", str(tmp_path / "a.json")]
    written: list[list[str]] = []

    def measure(case: GpuCase) -> GpuRow:
        if written:
            written.append([r["name"] for r in json.loads((tmp_path / "a.json").read_text())["rows"]])
            raise ValueError("no room")
        written.append([])
        return row(case.name, 10.0, 2.0)

    about = {"title": "In a page", "peer": "other", "how": "So.", "machine": {}}
    assert measure_all(CASES[:2], measure, lambda: about, arguments().parse_args(words)) == 1
    assert written == [[], [CASES[0].name]]
    assert f"| {CASES[1].name} | failed |" in (tmp_path / "a.md").read_text()
    assert "geometric means: warm 5.00" in capsys.readouterr().out


def small() -> GpuCase:
    """``present = past + x`` and ``y = present * 2``, twice, with `x` growing by one."""
    a = onnx.helper.make_tensor_value_info
    kind = onnx.TensorProto.FLOAT
    nodes = [
        onnx.helper.make_node("Add", ["past", "x"], ["present"]),
        onnx.helper.make_node("Add", ["present", "present"], ["y"]),
    ]
    inputs, outputs = ([a(name, kind, [3]) for name in names] for names in (("past", "x"), ("present", "y")))
    model = onnx.helper.make_model(
        onnx.helper.make_graph(nodes, "small", inputs, outputs),
        opset_imports=[onnx.helper.make_opsetid("", 18)],
        ir_version=9,
    )
    feeds = {"past": np.array([1, 2, 3], np.float32), "x": np.array([10, 20, 30], np.float32)}
    return GpuCase("small", lambda: model, lambda: feeds, 2, lambda model: {"present": "past"}, ("x",))


def test_a_case_runs_step_by_step(tmp_path: Path) -> None:
    """Any session will do; here it is onnxruntime's on the CPU, whose values have a device of the same name."""
    case = small()
    webgpu_native.write_case(case, tmp_path)
    told = json.loads((tmp_path / "case.json").read_text())
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])

    class OnCpu:
        def __getattr__(self, name: str) -> object:
            return getattr(session, name)

        def io_binding(self) -> object:
            binding = session.io_binding()
            bind = binding.bind_output
            binding.bind_output = lambda name, device: bind(name, "cpu")
            return binding

    found = webgpu_process.run(OnCpu(), case.feeds(), told)
    np.testing.assert_array_equal(found["y"], np.array([1 + 10 + 11, 2 + 20 + 21, 3 + 30 + 31], np.float32) * 2)


def test_a_process_answers(tmp_path: Path) -> None:
    if (reason := available()) is not None:
        missing(f"a GPU adapter ({reason})")
    webgpu_native.write_case(small(), tmp_path)
    engine = webgpu_native.Engine("onnxlet", Path(sys.executable), tmp_path)
    try:
        assert engine.first > 0
        assert engine.run() > 0
        with np.load(engine.outputs) as outputs:
            np.testing.assert_array_equal(outputs["y"], np.array([44, 86, 128], np.float32))
    finally:
        engine.close()


def test_the_tiny_model_is_valid() -> None:
    onnx.checker.check_model(tiny(), full_check=True)
