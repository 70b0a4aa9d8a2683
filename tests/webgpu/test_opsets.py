"""A node that means the same at several opsets runs on the GPU at each of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from onnxlet.ops.registry import find
from onnxlet_webgpu.lowering import registered
from onnxlet_webgpu.provider import WebGpuProvider
from tests.webgpu.cases import expected, node_of, step_of
from tests.webgpu.test_operators import CASES

OPSETS = range(7, 29)

CASES_EACH = 8
"""Cases of one operator that are tried, in the order in which they are listed."""


def test_every_opset(gpu_provider: WebGpuProvider):
    """Every case, at every opset at which its operator has the very definition that it has at the case's own, is
    supported: no operator is lost because a number went up."""
    refused = []
    seen: set[tuple[str, int]] = set()
    counts = Counter[str]()
    for _, case in CASES:
        counts[case.op] += 1
        if case.domain or counts[case.op] > CASES_EACH:
            continue
        definition = find(case.op, "", case.version)
        if definition is None:
            continue
        wanted = expected(case)
        for opset in OPSETS:
            if find(case.op, "", opset) is not definition or opset < definition.since:
                continue
            step = step_of(replace(case, version=opset), wanted)
            reason = gpu_provider.supports(step)
            seen.add((case.op, opset))
            if reason is not None:
                refused.append(f"{case.op} at opset {opset}: {reason} ({node_of(case)})")
    assert not refused, f"{len(refused)} are refused:\n" + "\n".join(refused[:20])
    newest = {op for op, opset in seen if opset == OPSETS[-1]}
    missing = {name for domain, name in registered() if not domain and find(name, "", OPSETS[-1])} - newest
    assert missing <= {"Scatter", "Upsample", "SimplifiedLayerNormalization"}
