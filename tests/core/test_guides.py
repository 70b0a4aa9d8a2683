"""The Python of the guides runs, on a model of its own."""

from __future__ import annotations

import re
import sys

import onnx
import pytest

from tests.conftest import REPOSITORY
from tests.core.models import FLOAT, model, node

GUIDES = ("performance.md", "limits.md", "migrating.md")


@pytest.mark.parametrize("guide", GUIDES)
def test_the_code_of_a_guide(guide, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "modules", dict(sys.modules))  # what is installed there stays there
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    onnx.save(model([node("Neg", ["x"], ["y"])], [("x", FLOAT, ["n", 3])], [("y", FLOAT, ["n", 3])]), "model.onnx")
    names: dict = {}
    text = (REPOSITORY / "docs" / guide).read_text("utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert blocks
    for code in blocks:
        exec(compile(code, guide, "exec"), names)
    assert names["session"].get_outputs()[0].name == "y"
