"""What goes wrong on a device: it is lost, it is full, it allows little; sessions go on and say what happened."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
import pytest

from onnxlet import InferenceSession, LimitError, ProviderError
from onnxlet_webgpu import provider as webgpu
from onnxlet_webgpu.provider import WebGpuProvider
from tests.core.models import BOOL, FLOAT, INT64, model, node
from tests.webgpu.cases import Case, check, random, step_of
from tests.webgpu.cases import expected as expected_of
from tests.webgpu.limit_cases import NARROW, limit_cases

W = random(6, 5)


def product() -> onnx.ModelProto:
    """Two products with a node that only NumPy has between them: two segments on the device."""
    nodes = [
        node("MatMul", ["x", "w"], ["a"]),
        node("NonZero", ["a"], ["n"]),
        node("MatMul", ["a", "v"], ["b"]),
        node("Cast", ["n"], ["f"], to=1),
        node("ReduceSum", ["f"], ["s"], keepdims=0),
        node("Add", ["b", "s"], ["y"]),
    ]
    weights = {"w": W, "v": random(5, 4)}
    return model(nodes, [("x", FLOAT, [None, 6])], [("y", FLOAT, [None, 4])], weights, opset=21)


def expected(x: np.ndarray) -> np.ndarray:
    a = x @ W
    return a @ random(5, 4) + np.array(np.nonzero(a), np.float32).sum()


@pytest.fixture
def session(gpu_provider: WebGpuProvider) -> Iterator[InferenceSession]:
    del gpu_provider  # there is an adapter
    made = InferenceSession(product(), providers=["webgpu"])
    yield made
    made.close()


def provider_of(session: InferenceSession) -> WebGpuProvider:
    (provider,) = (p for p in session._providers if isinstance(p, WebGpuProvider))
    return provider


def losing(session: InferenceSession, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Let the next run on the device find it destroyed just before its work is submitted."""
    device = provider_of(session).device
    run = device.run

    async def destroyed(*given: Any) -> Any:
        monkeypatch.setattr(device, "run", run)
        device.handle.destroy()
        return await run(*given)

    monkeypatch.setattr(device, "run", destroyed)
    return run


def test_a_device_destroyed_in_the_middle_of_a_run_is_replaced(
    session: InferenceSession, monkeypatch: pytest.MonkeyPatch
):
    x = random(3, 6)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], expected(x), rtol=1e-4)
    before = provider_of(session).device
    losing(session, monkeypatch)
    with pytest.warns(RuntimeWarning, match="was lost: .* has a new device, on which the run was repeated"):
        (y,) = session.run(None, {"x": x})
    np.testing.assert_allclose(y, expected(x), rtol=1e-4)
    assert provider_of(session).device is not before
    np.testing.assert_allclose(session.run(None, {"x": 2 * x})[0], expected(2 * x), rtol=1e-4)
    assert {row.provider for row in session.explain().rows} >= {"WebGpuExecutionProvider"}


async def test_an_asynchronous_run_is_repeated_too(session: InferenceSession, monkeypatch: pytest.MonkeyPatch):
    x = random(3, 6)
    losing(session, monkeypatch)
    with pytest.warns(RuntimeWarning, match="has a new device"):
        (y,) = await session.run_async(None, {"x": x})
    np.testing.assert_allclose(y, expected(x), rtol=1e-4)


def test_without_a_new_device_the_cpu_goes_on(session: InferenceSession, monkeypatch: pytest.MonkeyPatch):
    async def none(options: Any) -> Any:
        raise RuntimeError("there is no adapter any more")

    x = random(3, 6)
    losing(session, monkeypatch)
    monkeypatch.setattr("onnxlet_webgpu.device.request_device", none)
    with pytest.warns(RuntimeWarning, match=r"could not be restored \(there is no adapter.*goes on without it"):
        (y,) = session.run(None, {"x": x})
    np.testing.assert_allclose(y, expected(x), rtol=1e-4)
    assert "WebGpuExecutionProvider" not in {row.provider for row in session.explain().rows}
    np.testing.assert_allclose(session.run(None, {"x": 2 * x})[0], expected(2 * x), rtol=1e-4)


def test_out_of_memory_names_the_node_and_the_session_goes_on(
    session: InferenceSession, monkeypatch: pytest.MonkeyPatch
):
    """Buffers of more than a megabyte are refused here: large inputs fail, small ones go on."""
    device = provider_of(session).device
    buffer = device.buffer

    def small(nbytes: int, usage: int) -> Any:
        if nbytes > 1 << 20:
            raise device._no_room(RuntimeError("not enough memory left"))
        return buffer(nbytes, usage)

    monkeypatch.setattr(device, "buffer", small)
    x = random(5, 6)
    for _ in range(2):
        with pytest.raises(
            LimitError, match=r"node '.*' \(MatMul.*: 2,000,000 bytes\) finds no room among [\d,]+ bytes"
        ):
            session.run(None, {"x": random(100_000, 6)})
        np.testing.assert_allclose(session.run(None, {"x": x})[0], expected(x), rtol=1e-4)
    assert device.lost is None


def test_there_may_be_room_another_time(session: InferenceSession, monkeypatch: pytest.MonkeyPatch):
    """What did not fit is planned anew when it is wanted again."""
    device = provider_of(session).device
    x = random(40_000, 6)

    def no_room(nbytes: int, usage: int) -> Any:
        raise device._no_room(RuntimeError(f"no {nbytes} bytes left"))

    with monkeypatch.context() as changed:
        changed.setattr(device, "buffer", no_room)
        with pytest.raises(LimitError, match="no room"):
            session.run(None, {"x": x})
    np.testing.assert_allclose(session.run(None, {"x": x})[0], expected(x), rtol=1e-4, atol=1e-3)
    assert {row.provider for row in session.explain().rows} >= {"WebGpuExecutionProvider"}


def looping() -> onnx.ModelProto:
    """Three products, in the body of a Loop."""
    square = np.eye(4, dtype=np.float32) * 2
    body = onnx.helper.make_graph(
        [node("MatMul", ["v", "square"], ["next"], name="inside"), node("Identity", ["go"], ["still"])],
        "body",
        [
            onnx.helper.make_tensor_value_info(name, kind, shape)
            for name, kind, shape in [("i", INT64, []), ("go", BOOL, []), ("v", FLOAT, [None, 4])]
        ],
        [
            onnx.helper.make_tensor_value_info(name, kind, shape)
            for name, kind, shape in [("still", BOOL, []), ("next", FLOAT, [None, 4])]
        ],
    )
    nodes = [node("Loop", ["turns", "", "x"], ["y"], body=body, name="loop")]
    constants = {"square": square, "turns": np.array(3, np.int64)}
    return model(nodes, [("x", FLOAT, [None, 4])], [("y", FLOAT, [None, 4])], constants, opset=21)


def test_a_device_destroyed_in_the_body_of_a_loop_is_replaced(
    gpu_provider: WebGpuProvider, monkeypatch: pytest.MonkeyPatch
):
    x = random(2, 4)
    with InferenceSession(looping(), providers=["webgpu"]) as session:
        np.testing.assert_allclose(session.run(None, {"x": x})[0], 8 * x, rtol=1e-5)
        assert {row.node: row.provider for row in session.explain().rows}["inside"] == "WebGpuExecutionProvider"
        losing(session, monkeypatch)
        with pytest.warns(RuntimeWarning, match="has a new device, on which the run was repeated"):
            (y,) = session.run(None, {"x": x})
        np.testing.assert_allclose(y, 8 * x, rtol=1e-5)


def test_a_device_destroyed_before_getting_warm_is_replaced(session: InferenceSession):
    x = random(3, 6)
    session.run(None, {"x": x})
    provider_of(session).device.handle.destroy()
    with pytest.warns(RuntimeWarning, match="has a new device"):
        session.warmup({"x": (20, 6)})
    np.testing.assert_allclose(session.run(None, {"x": x})[0], expected(x), rtol=1e-4)  # and no warning


def test_a_device_destroyed_before_values_of_other_shapes_come_is_replaced(session: InferenceSession):
    session.warmup({"x": (2, 6)})  # its shaders are there, and nothing is bound to them yet
    provider_of(session).device.handle.destroy()
    x = random(2, 6)
    with pytest.warns(RuntimeWarning, match="has a new device"):
        (y,) = session.run(None, {"x": x})
    np.testing.assert_allclose(y, expected(x), rtol=1e-4)


def test_a_refused_shader_does_not_poison_the_next_run(session: InferenceSession, monkeypatch: pytest.MonkeyPatch):
    device = provider_of(session).device
    pipeline = device.pipeline
    x = random(3, 6)
    with monkeypatch.context() as changed:
        changed.setattr(device, "pipeline", lambda text, n: pipeline(text.replace("fn main", "fn main("), n))
        for _ in range(2):
            with pytest.raises(ProviderError, match=r"the shader of MatMul.*was refused by the GPU's compiler"):
                session.run(None, {"x": x})
    np.testing.assert_allclose(session.run(None, {"x": x})[0], expected(x), rtol=1e-4)
    assert {row.provider for row in session.explain().rows} >= {"WebGpuExecutionProvider"}


def test_a_run_after_close_and_create_again(session: InferenceSession):
    x = random(5, 6)
    for _ in range(3):
        with InferenceSession(product(), providers=["webgpu"]) as other:
            np.testing.assert_allclose(other.run(None, {"x": x})[0], expected(x), rtol=1e-4)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], expected(x), rtol=1e-4)


async def test_overlapping_runs_of_two_sessions(session: InferenceSession):
    xs = [random(n, 6) for n in (1, 2, 3, 2, 1)]
    with InferenceSession(product(), providers=["webgpu"]) as other:
        runs = [one.run_async(None, {"x": x}) for x in xs for one in (session, other)]
        results = await asyncio.gather(*runs)
    for x, (first,), (second,) in zip(xs, results[::2], results[1::2], strict=True):
        np.testing.assert_allclose(first, expected(x), rtol=1e-4)
        np.testing.assert_allclose(second, expected(x), rtol=1e-4)


@pytest.fixture(scope="module")
def narrow_provider(gpu_provider: WebGpuProvider) -> Iterator[WebGpuProvider]:
    made = webgpu.create(NARROW)
    yield made
    made.close()


@pytest.mark.parametrize("case", [*limit_cases()], ids=str)
async def test_limits_are_worked_around(narrow_provider: WebGpuProvider, case: Case):
    await check(narrow_provider, case)


def test_what_can_not_be_bound_is_refused_with_numbers(narrow_provider: WebGpuProvider):
    case = Case("Relu", [random(40, 40)])
    assert "6,400 bytes, the device binds at most 4,096" in (
        narrow_provider.supports(step_of(case, expected_of(case))) or ""
    )
