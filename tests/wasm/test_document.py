"""docs/kernels.md lists the operators without kernels: those of the standard that nothing lowers or writes out."""

from __future__ import annotations

import re

import onnxlet.ops  # noqa: F401
from onnxlet.ops.registry import registered
from onnxlet_wasm.lowering import lowered_operators
from onnxlet_wasm.lowering.expansion import expanded_operators
from tests.conftest import REPOSITORY


def test_the_operators_without_kernels_are_listed():
    text = (REPOSITORY / "docs" / "kernels.md").read_text("utf-8")
    table = text.partition("## Operators without kernels")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    listed = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert len(listed) == len(set(listed))
    known = {*lowered_operators(), *expanded_operators()}
    missing = {o.name for o in registered() if o.domain in ("", "ai.onnx.ml") and (o.domain, o.name) not in known}
    assert set(listed) == missing
