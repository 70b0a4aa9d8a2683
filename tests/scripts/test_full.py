"""The report of the long combinations says what pytest wrote of them, and names each."""

from __future__ import annotations

from pathlib import Path

import full
import pytest

from tests.combinations import BROWSER, NATIVE, combinations

SUITE = """<testsuites><testsuite>{cases}</testsuite></testsuites>"""
CASE = """<testcase classname="tests.core.test_zoo" name="test_combinations[x]" time="1.25"><properties>
<property name="build" value="native" /><property name="level" value="ORT_ENABLE_BASIC" />
<property name="threads" value="2" /><property name="cases" value="7" /><property name="failed" value="2" />
</properties><failure message="2 of 7 cases fail">a: E b: E</failure></testcase>"""


def test_a_report_counts_what_ran_and_what_failed(tmp_path: Path) -> None:
    (tmp_path / "full.xml").write_text(SUITE.format(cases=CASE + CASE), "utf-8")
    text = full.render(full.read(tmp_path / "full.xml"), {"commit": "c0ffee", "date": "2020-02-02", "machine": "M"})
    assert "Commit c0ffee, 2020-02-02, M.\n14 runs of cases, 4 failed, 2 s." in text
    assert text.count("| Whole models | native | ORT_ENABLE_BASIC | 2 | 7 | 5 | 2 | 1.2 |\n") == 2


def test_a_test_that_broke_off_is_no_result(tmp_path: Path) -> None:
    broken = """<testcase classname="tests.core.test_zoo" name="test_combinations[x]" time="1"><error /></testcase>"""
    (tmp_path / "full.xml").write_text(SUITE.format(cases=CASE + broken), "utf-8")
    with pytest.raises(ValueError, match="did not finish"):
        full.read(tmp_path / "full.xml")


def test_there_is_a_combination_of_each() -> None:
    for builds in (NATIVE, BROWSER):
        found = combinations(builds)
        assert len(set(found)) == 2 * 4 * 3
        assert [one.number for one in found] == list(range(len(found)))
