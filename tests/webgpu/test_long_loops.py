"""Loops that a software device would leave early: how many turns they make, and what is done about it."""

from __future__ import annotations

import numpy as np
import pytest

from onnxlet_webgpu.desktop.long_loops import most_steps, spread, steps
from onnxlet_webgpu.kernel import Kernel, flat_body, flat_groups
from onnxlet_webgpu.provider import WebGpuProvider
from tests.webgpu.cases import Case, check, expected, integers, random, step_of


@pytest.mark.parametrize(
    ("text", "turns"),
    [
        ("x();", 0),
        ("for (var k = 0u; k < 12u; k++) { x(); }", 12),
        ("for (var k = 2; k < 12; k++) { x(); }", 10),
        ("for (var k = lane; k < 640u; k += 64u) { x(); }", 10),
        ("for (var k = c * 5u; k < min(c * 5u + 5u, 900u); k++) { x(); }", 5),
        ("for (var c = 0u; c < 4u; c++) { for (var k = 0u; k < 3u; k++) { if (a) { continue; } } }", 16),
        ("for (var c = 0u; c < 4u; c++) { x(); } for (var k = 0u; k < 3u; k++) { y(); }", 7),
    ],
)
def test_turns_are_counted(text: str, turns: int):
    assert steps(text) == turns


def test_heavy_elements_get_invocations_of_their_own():
    count = 1 << 20
    body = flat_body("for (var k = 0u; k < 1000u; k++) { x(); }", f"{count}u")
    kernel = Kernel("", [], "y", (count,), "f32", body, flat_groups(count, 8))
    assert spread(kernel, 65_000, 65_535) is None
    assert -(-count // (kernel.groups[0] * 64)) * 1000 <= 65_000
    assert "loops of" in (spread(kernel, 500, 65_535) or "")


def test_devices_without_a_limit():
    assert most_steps({"device": "some real GPU"}) == 0
    assert most_steps({"device": "llvmpipe (LLVM 15)"}) > 60_000


async def test_loops_of_many_outputs(gpu_provider: WebGpuProvider):
    """So many outputs, of so many products each, that an invocation would go through too many for this device."""
    x, w = integers(300, 260, low=0, high=255, dtype=np.uint8), integers(260, 3000, low=0, high=255, dtype=np.uint8)
    await check(gpu_provider, Case("MatMulInteger", [x, w]))


def test_a_loop_that_is_too_long_is_refused(gpu_provider: WebGpuProvider):
    case = Case("MatMul", [random(2, 70001), random(70001, 2)])
    reason = gpu_provider.supports(step_of(case, expected(case)))
    limited = gpu_provider.device.target.max_steps > 0
    assert ("turns" in (reason or "")) == limited
