"""The standard's suites of models that come as files: `simple`, `pytorch-converted`, `pytorch-operator`, `light`."""

from __future__ import annotations

import pytest

from tests.conformance import model_suites, suite
from tests.conformance.model_suites import COUNTS


@pytest.mark.parametrize("run", [suite.run_definitions, suite.run_session], ids=["definitions", "sessions"])
@pytest.mark.parametrize("kind", COUNTS)
def test_suite(kind, run):
    cases = model_suites.collect(kind)
    assert len(cases) >= COUNTS[kind]
    failed = suite.failures(cases, run)
    assert not failed, f"{len(failed)} of {len(cases)} cases fail:\n" + "\n".join(failed)


@pytest.mark.slow
@pytest.mark.parametrize("case", model_suites.light(), ids=lambda case: case.name)
def test_light(case):
    suite.check(case, suite.run_session)
