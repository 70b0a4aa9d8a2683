"""Every case of the standard's suite for single operators. There is no list of exceptions."""

from __future__ import annotations

import functools
import string
import subprocess
import sys
from pathlib import Path

import pytest

from tests.combinations import NATIVE, Campaign, combinations, use_kernels
from tests.conformance import packing, suite

INITIALS = string.ascii_lowercase


@pytest.fixture(scope="session")
def cases() -> list[suite.Case]:
    return suite.collect()


def test_every_case_is_in_a_batch(cases):
    assert len(cases) >= suite.COUNT
    assert all(case.name.startswith("test_") and case.name[5] in INITIALS for case in cases)


@pytest.mark.parametrize("initial", INITIALS)
def test_definitions(cases, initial):
    run_batch(cases, initial, suite.run_definitions)


@pytest.mark.parametrize("initial", INITIALS)
def test_sessions(cases, initial):
    run_batch(cases, initial, suite.run_session)


@pytest.mark.parametrize("combination", combinations(NATIVE), ids=str)
def test_combinations(cases, campaign: Campaign, monkeypatch):
    chosen = campaign.combination
    use_kernels(chosen, monkeypatch)
    share = campaign.share(cases)
    run = functools.partial(suite.run_session, level=chosen.level, threads=chosen.threads)
    campaign.conclude(len(share), suite.failures(share, run))


def run_batch(cases, initial, run):
    batch = [case for case in cases if case.name[5] == initial]
    failed = suite.failures(batch, run)
    assert not failed, f"{len(failed)} of {len(batch)} cases fail:\n" + "\n".join(failed)


ALONE = """
import sys
for name in ("onnx", "ml_dtypes", "google.protobuf"):
    sys.modules[name] = None
from tests.conformance import packing, suite
cases = packing.loads(open(sys.argv[1], "rb").read())
failed = suite.failures(cases, suite.run_definitions)
print(f"{len(cases) - len(failed)} of {len(cases)} pass", *failed, sep="\\n")
sys.exit(bool(failed))
"""


@pytest.mark.slow
def test_definitions_lean_on_neither_onnx_nor_ml_dtypes(cases, tmp_path):
    path = tmp_path / "cases"
    path.write_bytes(packing.dumps(cases))
    here = Path(__file__).resolve().parents[2]
    run = subprocess.run([sys.executable, "-c", ALONE, path], cwd=here, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stdout + run.stderr
