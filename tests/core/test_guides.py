"""The Python of the guides runs, on a model of its own, in a process of its own: one stands in for onnxruntime."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

from tests.conftest import REPOSITORY
from tests.core.models import FLOAT, model, node

GUIDES = ("performance.md", "limits.md", "migrating.md")


@pytest.mark.parametrize("guide", GUIDES)
def test_the_code_of_a_guide(guide: str, tmp_path: Path):
    onnx.save(
        model([node("Neg", ["x"], ["y"])], [("x", FLOAT, ["n", 3])], [("y", FLOAT, ["n", 3])]), tmp_path / "model.onnx"
    )
    blocks = re.findall(r"```python\n(.*?)```", (REPOSITORY / "docs" / guide).read_text("utf-8"), re.DOTALL)
    assert blocks
    code = "\n".join([*blocks, 'assert session.get_outputs()[0].name == "y"'])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
