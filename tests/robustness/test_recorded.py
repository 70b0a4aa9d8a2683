"""What the tests of operators call, on sessions: kernels for all operators, com.microsoft's and old versions too."""

from __future__ import annotations

import pytest

from tests.conformance import suite
from tests.core.ops import recording
from tests.robustness import recorded

DRAWN = ("Random", "Bernoulli", "Multinomial", "Dropout", "Sampling")
"""Operators whose results are drawn."""


@pytest.mark.slow
def test_sessions_give_what_the_definitions_give():
    cases = [case for case in recorded.cases(recording.calls()) if not any(word in case.name for word in DRAWN)]
    assert len(cases) > 2300
    failed = suite.failures(cases, suite.run_session)
    assert not failed, f"{len(failed)} of {len(cases)} calls differ:\n" + "\n".join(failed)
