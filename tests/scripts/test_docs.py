"""The documentation is built without a warning: every link leads somewhere, every docstring is valid."""

from __future__ import annotations

import subprocess
import sys

from provision.paths import REPOSITORY


def test_the_documentation(tmp_path):
    configuration = REPOSITORY / "scripts" / "documents"
    command = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "--quiet", "-c", configuration]
    done = subprocess.run([*command, REPOSITORY / "docs", tmp_path], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    api = (tmp_path / "api.html").read_text("utf-8")
    for name in (
        "onnxlet.InferenceSession.run",
        "onnxlet.OrtValue",
        "onnxlet.errors.NodeError",
        "onnxlet.tools.checking.check",
    ):
        assert f'id="{name}"' in api
    assert 'href="command-line.html"' in (tmp_path / "index.html").read_text("utf-8")
