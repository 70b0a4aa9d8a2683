"""The pytest plugin for other people's pages, by the recipe of its document: a pytest of its own, on its own site."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

from provision import browser
from provision.paths import REPOSITORY, SITE
from tests.browser.harness import Chromium
from tests.core.models import FLOAT, model, node

DOCUMENT = REPOSITORY / "docs" / "testing.md"


def block(language: str, number: int = 0) -> str:
    return re.findall(rf"```{language}\n(.*?)```", DOCUMENT.read_text("utf-8"), re.DOTALL)[number]


@pytest.fixture
def project(chromium: Chromium, tmp_path: Path) -> Path:
    """A project with a page, its test and its conftest, as the document shows them, beside the files of our site."""
    site = tmp_path / "site"
    site.mkdir()
    for file in SITE.iterdir():
        if file.name not in ("index.html", "index.html.gz"):
            (site / file.name).symlink_to(file)
    (site / "index.html").write_text(block("html"))
    made = model([node("Mul", ["x", "two"], ["y"])], [("x", FLOAT, ["n"])], [("y", FLOAT, ["n"])], {"two": [2.0]})
    made.graph.initializer[0].CopyFrom(onnx.helper.make_tensor("two", FLOAT, [1], [2.0]))
    onnx.save(made, site / "model.onnx")
    (tmp_path / "conftest.py").write_text(block("python"))
    (tmp_path / "test_page.py").write_text(block("python", 1))
    return tmp_path


def run_pytest(project: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "ONNXLET_CHROMIUM": browser.chromium(install=False)}
    env.pop("PYTEST_XDIST_WORKER", None)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "test_page.py"]
    return subprocess.run(command, cwd=project, env=env, capture_output=True, text=True, timeout=900)


def test_the_recipe(project: Path):
    done = run_pytest(project)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


def test_a_page_that_computes_something_else_fails(project: Path):
    test = project / "test_page.py"
    test.write_text(test.read_text().replace("np.array([1, 2, 3], np.float32)", "np.array([1, 2, 4], np.float32)"))
    done = run_pytest(project)
    assert done.returncode == 1
    assert "the page's outputs differ from a desktop run: y: 33.33% of its values are off, by 2 at [2]" in done.stdout


def test_a_session_that_fails_is_told(project: Path):
    (project / "site" / "model.onnx").write_bytes(b"not a model")
    done = run_pytest(project)
    assert done.returncode == 1
    assert "window.session: " in done.stdout
    assert "not an ONNX model" in done.stdout
