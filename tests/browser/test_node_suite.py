"""Every case of the standard's suite for single operators, in Pyodide in Chromium."""

from __future__ import annotations

import pytest

from tests.browser.harness import PyodideHost
from tests.conformance import suite
from tests.conftest import REPOSITORY

INSTALL = """
import os, sys
import pyodide_js
await pyodide_js.loadPackage("pillow")
os.makedirs("/suite/tests/conformance", exist_ok=True)
for package in ("tests", "tests/conformance"):
    open(f"/suite/{package}/__init__.py", "w").close()
open("/suite/tests/conformance/suite.py", "wb").write(source)
open("/suite/cases", "wb").write(cases)
sys.path.append("/suite")
"""

RUN = """
import warnings
from tests.conformance import suite

warnings.simplefilter("ignore")
cases = [case for case in suite.unpack(open("/suite/cases", "rb").read()) if case.name[5] in initials]
exact = [case for case in cases if case.name not in other_codecs]
failed = suite.failures(exact, getattr(suite, run))
for case in cases:
    if case.name in other_codecs:
        shape = list(getattr(suite, run)(case.model, case.sets[0][0])[0].shape)
        if shape != list(other_codecs[case.name]):
            failed.append(f"{case.name}: {shape}")
{"count": len(cases), "failed": failed}
"""

OTHER_CODECS = {
    "test_image_decoder_decode_jpeg_rgb": (32, 32, 3),
    "test_image_decoder_decode_jpeg_bgr": (32, 32, 3),
    "test_image_decoder_decode_jpeg_grayscale": (32, 32, 1),
    "test_image_decoder_decode_jpeg2k_rgb": (0, 0, 3),
}
"""Shapes of what Pyodide's Pillow decodes otherwise than desktops': it is built with another JPEG library, which
spreads colours differently, and without JPEG 2000, for which ImageDecoder gives an empty image, as for all that can't
be decoded.
"""


@pytest.fixture(scope="module")
def host(pyodide_worker: PyodideHost) -> PyodideHost:
    source = (REPOSITORY / "tests" / "conformance" / "suite.py").read_bytes()
    pyodide_worker.run_python(INSTALL, source=source, cases=suite.pack(suite.collect()))
    return pyodide_worker


@pytest.mark.slow
@pytest.mark.parametrize("run", ["run_definitions", "run_session"])
@pytest.mark.parametrize("initials", ["a", "bc", "defg", "hijkl", "mnop", "qr", "stuvwxyz"])
def test_cases(host: PyodideHost, initials: str, run: str) -> None:
    answer = host.run_python(RUN, initials=initials, run=run, other_codecs=OTHER_CODECS, timeout=300)
    assert answer["count"] > 50
    assert not answer["failed"], f"{len(answer['failed'])} of {answer['count']} fail:\n" + "\n".join(answer["failed"])
