"""Packages that depend on onnxruntime give the same answers with onnxlet, without a change to them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from provision.console import SetupError
from tests.conftest import missing
from tests.packages import answers, environments

pytestmark = pytest.mark.slow

OLD_PYTHON = {"slovorez": (3, 11), "rapidocr": (3, 12)}
"""The newest Python for which there is a release."""


@pytest.fixture(scope="module")
def interpreters() -> dict[str, Path]:
    try:
        return environments.create()
    except SetupError as error:
        missing(f"the packages: {error}")


def ask(interpreter: Path, name: str, folder: Path) -> tuple[str, Any]:
    """The module of `onnxruntime.InferenceSession`, and a package's answer."""
    command = [interpreter, environments.HERE / "answers.py", name]
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "ONNXLET"))}
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", cwd=folder, timeout=300, env=env)
    assert done.returncode == 0, done.stderr[-4000:]
    return tuple(json.loads(done.stdout))


def check(found: Any, expected: Any) -> None:
    """Texts are the same; numbers are close."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        found, expected = list(found.values()), list(expected.values())
    if isinstance(expected, list):
        assert len(found) == len(expected)
        for a, b in zip(found, expected, strict=True):
            check(a, b)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=2e-3, abs=2e-3)
    else:
        assert found == expected


@pytest.mark.parametrize("name", [name for name in answers.QUESTIONS if name != "dask_table"])
def test_the_answers_are_the_same(interpreters: dict[str, Path], tmp_path: Path, name: str):
    if sys.version_info[:2] > OLD_PYTHON.get(name, (4, 0)):
        pytest.skip(f"{name} has no release for this Python")
    theirs, expected = ask(interpreters["onnxruntime"], name, tmp_path)
    ours, found = ask(interpreters["onnxlet"], name, tmp_path)
    assert (theirs, ours) == ("onnxruntime.capi.onnxruntime_inference_collection", "onnxlet.onnxruntime_face.session")
    assert expected
    check(found, expected)


def test_dask_scores_a_partitioned_table(interpreters: dict[str, Path], tmp_path: Path):
    """The session travels to Dask's processes, which it does not with onnxruntime."""
    assert ask(interpreters["onnxlet"], "dask_table", tmp_path)[1] == [1000, 1.0]
