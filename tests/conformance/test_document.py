"""`docs/conformance.md` says what there is. That all cases pass, as it says too, is for the other tests."""

from __future__ import annotations

import conformance
import pytest


@pytest.mark.slow
def test_the_document_is_up_to_date():
    cases = conformance.groups()
    names = [case.name for group in cases.values() for case in group]
    expected = conformance.render(cases, names, names)
    assert conformance.DOCUMENT.read_text("utf-8") == expected, "run scripts/conformance.py"
