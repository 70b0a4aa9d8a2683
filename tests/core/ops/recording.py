"""A pytest plugin that keeps what the tests of operators call and what they get: `-p tests.core.ops.recording`.

The calls are repeated in Pyodide, where integers are narrower and the types that NumPy lacks are only bits. The file
named by the environment variable ONNXLET_RECORD takes them.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from onnxlet.errors import UnsupportedError
from tests.conformance import packing, versions
from tests.conftest import REPOSITORY
from tests.core.ops import calling

LONGEST = 1 << 20
"""Longer dimensions, of arrays without elements, can't exist where addresses have 32 bits."""

_call = calling.call
_calls: list[bytes] = []


def _recorded(operator: str, opset: int, /, *inputs: Any, **keywords: Any) -> Any:
    asked = packing.dumps((operator, opset, inputs, keywords))
    try:
        result = _call(operator, opset, *inputs, **keywords)
    except UnsupportedError:  # for want of a package, which says nothing about elsewhere
        raise
    except Exception as error:
        _calls.append(packing.dumps((asked, None, type(error).__name__)))
        raise
    arrays = result if isinstance(result, list) else [result]
    if not any(isinstance(a, np.ndarray) and max(a.shape, default=0) > LONGEST for a in arrays):
        _calls.append(packing.dumps((asked, result, None)))
    return result


@functools.cache
def calls() -> bytes:
    """The calls, from a run of the tests of operators in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "calls"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.core.ops.recording", "tests/core/ops"]
        environment = {**os.environ, "ONNXLET_RECORD": str(path)}
        subprocess.run(command, cwd=REPOSITORY, env=environment, check=True, capture_output=True, timeout=300)
        return path.read_bytes()


def versions_called() -> set[versions.Version]:
    """The versions of operators that those tests call."""
    asked = [packing.loads(packing.loads(call)[0]) for call in packing.loads(calls())]
    return {versions.version(operator, keywords.get("domain", ""), opset) for operator, opset, _, keywords in asked}


def pytest_configure() -> None:
    calling.call = _recorded


def pytest_sessionfinish() -> None:
    Path(os.environ["ONNXLET_RECORD"]).write_bytes(packing.dumps(_calls))
