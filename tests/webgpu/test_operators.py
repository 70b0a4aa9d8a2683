"""Every operator's kernels against its NumPy definition, on odd, broadcast and non-finite input."""

from __future__ import annotations

import numpy as np
import pytest

from onnxlet.graph.ir import Node, TensorType
from onnxlet.providers.base import Step
from onnxlet_webgpu.lowering import registered
from onnxlet_webgpu.provider import WebGpuProvider
from tests.webgpu import attention_cases, cases, line_cases, more_cases, product_cases, quantized_cases, type_cases
from tests.webgpu.cases import Case, check, expected, in_half, random, segment_of, step_of

FAMILIES = {
    **cases.FAMILIES,
    **type_cases.FAMILIES,
    **more_cases.FAMILIES,
    **attention_cases.FAMILIES,
    **quantized_cases.FAMILIES,
    **product_cases.FAMILIES,
    **line_cases.FAMILIES,
}
CASES = [(family, case) for family, cases in FAMILIES.items() for case in cases()]


@pytest.mark.parametrize(("family", "case"), CASES, ids=lambda value: str(value)[:80])
async def test_like_numpy(gpu_provider: WebGpuProvider, family: str, case: Case):
    await check(gpu_provider, case)


WITH_SHARED_MEMORY = [
    "matmul", "conv", "reduction", "rows", "norms", "losses", "attention", "heads", "grouped heads", "known weights",
    "known products", "recurrent", "one row", "long sums", "updates", "long",
    "bytes", "half weights", "byte windows",
]  # fmt: skip
"""Families whose kernels differ between software adapters and real GPUs."""


@pytest.mark.parametrize("family", WITH_SHARED_MEMORY)
async def test_kernels_for_real_gpus(hardware_provider: WebGpuProvider, family: str):
    for case in FAMILIES[family]():
        await check(hardware_provider, case)


@pytest.mark.parametrize("family", WITH_SHARED_MEMORY)
async def test_without_features(plain_provider: WebGpuProvider, family: str):
    for case in FAMILIES[family]():
        await check(plain_provider, case)


@pytest.mark.parametrize("family", cases.FAMILIES)
async def test_float16(gpu_provider: WebGpuProvider, family: str):
    """Stored as float32, rounded to float16 after every operator: on every adapter, and as NumPy rounds."""
    for case in filter(None, map(in_half, FAMILIES[family]())):
        await check(gpu_provider, case)


async def test_every_float16_is_rounded_right(gpu_provider: WebGpuProvider):
    """All float16 numbers, halfway points between them, and their neighbours."""
    with np.errstate(all="ignore"):
        halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
        middles = halves + (np.abs(np.nextafter(halves.astype(np.float16), np.float16(np.inf))) - np.abs(halves)) / 2
        numbers = np.concatenate([halves, middles, np.nextafter(middles, 0), np.nextafter(middles, np.inf)])
        await check(gpu_provider, Case("Cast", [numbers.astype(np.float32)], {"to": 10}, rtol=0, atol=0))


@pytest.mark.parametrize("family", ["binary", "matmul", "conv", "rows", "movement"])
async def test_low_limits(modest_provider: WebGpuProvider, family: str):
    """What needs more buffers or workgroups than there are is refused with the number, all else is right."""
    refused = []
    for case in FAMILIES[family]():
        reason = modest_provider.supports(step_of(case, expected(case)))
        if reason is None:
            await check(modest_provider, case)
        else:
            refused.append(reason)
    known = ("buffers, the device allows 4", "workgroups", "not constant")
    assert all(any(words in reason for words in known) for reason in refused)


async def test_a_dispatch_beyond_a_dimension_of_workgroups(gpu_provider: WebGpuProvider):
    """65,535 workgroups of 64 are 4,194,240 elements: one more goes to a second row."""
    await check(gpu_provider, Case("Relu", [random(4_194_240 + 65)]))


async def test_float16_weights_take_two_bytes(hardware_provider: WebGpuProvider):
    if not hardware_provider.device.target.half:
        pytest.skip("the adapter has no f16 in shaders")
    w = random(64, 48).astype(np.float16)
    case = Case("MatMul", [random(3, 64).astype(np.float16), w], {}, (1,))
    before = hardware_provider.weights.nbytes
    executable = hardware_provider.compile(segment_of([step_of(case, expected(case))], ["out0"]))
    assert hardware_provider.weights.nbytes - before == w.nbytes
    executable.close()


def reason(provider: WebGpuProvider, case: Case) -> str:
    answer = provider.supports(step_of(case, expected(case)))
    assert answer is not None, f"{case} is said to be supported"
    return answer


def test_reasons(gpu_provider: WebGpuProvider):
    assert "float64" in reason(gpu_provider, Case("Add", [np.zeros(3)] * 2))
    assert (
        reason(gpu_provider, Case("Pad", [random(0, 3), np.array([1, 0, 0, 0])], constants=(1,))) == "input 0 is empty"
    )
    assert "rank 9" in reason(gpu_provider, Case("Relu", [random(*[1] * 9)]))
    assert "no GPU kernel" in reason(gpu_provider, Case("NonZero", [random(3)]))
    assert "string" in reason(gpu_provider, Case("Identity", [np.array(["a"], object)]))
    starts = [np.array([v], np.int64) for v in (0, 1)]
    assert "not known before the run" in reason(gpu_provider, Case("Slice", [random(3, 4), *starts]))


def test_the_binding_limit_is_named(gpu_provider: WebGpuProvider):
    limit = gpu_provider.device.target.max_binding_bytes
    type_ = TensorType(np.dtype(np.float32), (limit // 4 + 1,))
    step = Step(Node("Relu", ["x"], ["y"]), [type_], [type_], {})
    assert f"the device binds at most {limit:,}" in (gpu_provider.supports(step) or "")


async def test_an_index_outside_of_the_axis_is_an_error(gpu_provider: WebGpuProvider):
    good = Case("Gather", [random(3, 4), np.array([0, 2], np.int64)])
    step = step_of(good, expected(good))
    executable = gpu_provider.compile(segment_of([step], ["out0"]))
    with pytest.raises(IndexError, match="holds the index 3, outside of an axis of 3"):
        executable.run([good.inputs[0], np.array([0, 3], np.int64)])
    result = executable.run([good.inputs[0], good.inputs[1]])
    np.testing.assert_array_equal(result[0], good.inputs[0][[0, 2]])  # type: ignore[index]
    executable.close()


def test_every_lowering_has_cases():
    """A lowering that no case runs is not known to be right."""
    run = {(case.domain, case.op) for _, case in CASES}
    fused = {("ai.onnxlet", "FusedMatMul"), ("com.microsoft", "FusedConv")}  # in test_segments.py
    others = {("com.microsoft", "SimplifiedLayerNormalization"), ("com.microsoft", "TransposeMatMul")}
    assert set(registered()) - run - fused - others == set()
