"""Every version of every operator of the standard is run: by the suite, or by a case moved to it, or by our own."""

from __future__ import annotations

import onnx
import pytest

from onnxlet.ops import registry
from tests.conformance import model_suites, older, suite, versions
from tests.conformance.test_schemas import SCHEMAS
from tests.core.ops import recording

IN_WHOLE_MODELS = {
    "com.microsoft::BeamSearch": "core/ops/test_microsoft_generation.py",
    "com.microsoft::GreedySearch": "core/ops/test_microsoft_generation.py",
    "com.microsoft::Sampling": "core/ops/test_microsoft_generation.py",
    "com.microsoft::WhisperBeamSearch": "core/ops/test_microsoft_generation.py",
    # Our own: what rewrites and gradients are written in.
    "ai.onnxlet::FusedAttention": "core/test_rewrites_attention.py",
    **{
        f"onnxlet::{name}": "core/test_gradient.py"
        for name in (
            "AveragePoolInput", "ConvInput", "ConvWeights", "FullLike", "GatherInput", "GlobalAveragePoolInput",
            "MaxPoolInput", "MaxPoolPicked", "SliceInput", "SumTo", "Unreduce",
        )
    },
}  # fmt: skip
"""Operators that are tested in models, not by calling their definitions, and where."""

RUNS = pytest.mark.parametrize("run", [suite.run_definitions, suite.run_session], ids=["definitions", "sessions"])


@RUNS
def test_cases_of_the_suite_at_other_versions(run):
    cases = [case for _, case in versions.moved(suite.collect())]
    assert len(cases) > 500
    failed = suite.failures(cases, run)
    assert not failed, f"{len(failed)} of {len(cases)} cases fail:\n" + "\n".join(failed)


@RUNS
def test_cases_of_our_own(run):
    cases = older.collect()
    for case in cases:
        if "TreeEnsemble" not in case.name:  # the checker refuses deprecated operators
            onnx.checker.check_model(case.model, full_check=True)
    failed = suite.failures(cases, run)
    assert not failed, f"{len(failed)} of {len(cases)} cases fail:\n" + "\n".join(failed)


@pytest.mark.slow
def test_every_version_is_run():
    cases = [
        *suite.collect(),
        *older.collect(),
        *(c for kind in model_suites.COUNTS for c in model_suites.collect(kind)),
    ]
    seen = {v for case in cases for v in versions.used(onnx.load_model_from_string(case.model))}
    seen |= {v for v, _ in versions.moved(suite.collect())} | recording.versions_called()
    missing = {versions.Version(s.domain, s.name, s.since_version) for s in SCHEMAS} - seen
    assert {v.operator for v in missing} <= {"Gradient"}, "it alone is replaced by nodes when a model is read"
    ours = {versions.version(o.name, o.domain, o.since) for o in registry.registered()} - seen
    ours = {f"{v.domain}::{v.operator}" for v in ours if v.domain != "my.domain"}  # where other tests have theirs
    assert ours == {*IN_WHOLE_MODELS}
