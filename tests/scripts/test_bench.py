"""The benchmarks: cases are valid graphs, tables say what was measured, and the native one runs."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import numpy as np
import onnx
import pytest

from bench import native, report
from bench.cases import Case, all_cases, chosen
from bench.compare import difference
from bench.report import Row, Times

SMALL = [case for case in all_cases() if re.search(r"tiny|forest|128x128x128|LayerNorm|QLinearConv 1x1|GRU", case.name)]


def test_names_are_unique_and_kinds_known() -> None:
    cases = all_cases()
    assert len({case.name for case in cases}) == len(cases)
    assert {case.kind for case in cases} == set(report.KINDS)


def test_only_chooses_by_kind_and_name() -> None:
    assert [case.name for case in chosen("^overhead/one")] == ["one tiny node"]
    assert chosen(None) == all_cases()


@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
def test_models_are_valid(case: Case) -> None:
    parts = case.parts()
    assert len(parts) == (2 if case.kind == "operator" else 1)
    for part in parts:
        onnx.checker.check_model(part.model, full_check=True)
        graph = onnx.load_from_string(part.model).graph
        assert {value.name for value in graph.input} == set(part.feeds)


def test_an_operators_graph_has_its_copies() -> None:
    (case,) = chosen("LayerNormalization")
    full, empty = (onnx.load_from_string(part.model).graph for part in case.parts())
    count = [sum(node.op_type == "LayerNormalization" for node in graph.node) for graph in (full, empty)]
    assert count == [case.copies, 0]
    assert [value.name for value in full.input] == [value.name for value in empty.input]


def test_cases_are_the_same_each_time() -> None:
    (case,) = chosen("MatMul 128x384x384")
    assert case.parts()[0].model == case.parts()[0].model


def test_times() -> None:
    times = Times([[[10.0, 12.0], [11.0, 9.0]], [[1.0, 2.0], [3.0, 1.5]]])
    assert times.least(4) == (9 - 1) / 4
    assert times.by_round(1) == [9.0, 7.5]
    assert times.median(1) == 10.5 - 1.75
    assert Times([[[3.0], [2.0]]]).least(1) == 2.0


def test_difference() -> None:
    wanted = np.array([1, -4, np.nan, np.inf], np.float32)
    assert difference(wanted, wanted) == 0
    assert difference(wanted + np.array([0, 1, 0, 0], np.float32), wanted) == 0.25
    assert difference(np.array([1, -4, 0, np.inf], np.float32), wanted) == math.inf
    assert difference(wanted[None], wanted) == math.inf
    assert difference(np.zeros((0, 3)), np.zeros((0, 3))) == 0


def test_native_benchmark(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tables, results = tmp_path / "benchmarks.md", tmp_path / "results.json"
    tables.write_text("# Benchmarks\n\n## Another\n\nStays.\n", "utf-8")
    words = ["--only", "one tiny|LayerNormalization", "--rounds", "1", "--turn", "2"]
    for _ in range(2):  # the second replaces the first's section
        assert native.main([*words, "--json", str(results), "--markdown", str(tables)]) == 0
    assert "geometric mean of 1 ratios" in capsys.readouterr().out
    text = tables.read_text("utf-8")
    assert text.startswith("# Benchmarks\n\n## Another\n\nStays.\n")
    assert text.count("## Natively, one thread") == 1
    assert re.search(r"\| one tiny node \| [\d.]+ \| [\d.]+ \| [\d.]+ \|", text)
    written = json.loads(results.read_text("utf-8"))
    assert [row["name"] for row in written["rows"]] == ["LayerNormalization 128x384", "one tiny node"]
    assert all(row["agrees"] for row in written["rows"])


def test_a_case_that_fails_is_a_row_too(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> list[report.Any]:
        raise ValueError("no such model")

    rows = report.measure_all([Case("broken", "model", fail)], lambda case: native.measure(case, 1, 1.0, 1), "peer")
    assert rows[0].error == "ValueError: no such model"
    assert "FAILED" in capsys.readouterr().out
    assert not report.means(rows)


def test_means_are_geometric() -> None:
    rows = [Row(str(r), "model", ratio=r, ratio_median=1.0) for r in (1.0, 4.0)]
    assert report.means(rows)["model"] == pytest.approx({"ratio": 2, "ratio_median": 1, "least": 1, "cases": 2})
    assert [report.number(v) for v in (123.4, 1.234, 0.01234, math.nan)] == ["123", "1.23", "0.0123", "–"]
