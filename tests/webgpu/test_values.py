"""Values that stay on the device from run to run: recurrent state and KV caches without readbacks and uploads."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import pytest
import wgpu.backends.wgpu_native as native

from onnxlet import DeviceLostError, InferenceSession, OrtValue, ProviderError, UnsupportedError
from onnxlet_webgpu.provider import WebGpuProvider
from tests.core.models import BOOL, FLOAT, INT64, model, node
from tests.readme import block
from tests.webgpu.cases import random

W, U = random(4, 6) / 4, random(6, 6, seed=1) / 4


def recurrent() -> onnx.ModelProto:
    """``h' = tanh(x W + h U)`` and ``y``, the largest of its elements."""
    nodes = [
        node("MatMul", ["x", "w"], ["a"]),
        node("MatMul", ["h", "u"], ["b"]),
        node("Add", ["a", "b"], ["c"]),
        node("Tanh", ["c"], ["h2"]),
        node("ReduceMax", ["h2"], ["y"], keepdims=0),
    ]
    inputs = [("x", FLOAT, [2, 4]), ("h", FLOAT, [2, 6])]
    return model(nodes, inputs, [("y", FLOAT, []), ("h2", FLOAT, [2, 6])], {"w": W, "u": U}, opset=17)


def decoder() -> onnx.ModelProto:
    """Attention of one query to a cache that grows by one row with every run."""
    nodes = [
        node("MatMul", ["x", "w"], ["k"]),
        node("Concat", ["past", "k"], ["present"], axis=0),
        node("Transpose", ["present"], ["t"], perm=[1, 0]),
        node("MatMul", ["k", "t"], ["s"]),
        node("Softmax", ["s"], ["p"], axis=-1),
        node("MatMul", ["p", "present"], ["y"]),
    ]
    inputs = [("x", FLOAT, [1, 4]), ("past", FLOAT, ["n", 6])]
    return model(nodes, inputs, [("y", FLOAT, [1, 6]), ("present", FLOAT, ["m", 6])], {"w": W}, opset=17)


def step(x: np.ndarray, h: np.ndarray) -> np.ndarray:
    return np.tanh(x @ W + h @ U)


@dataclass
class Traffic:
    """Bytes written to buffers of the device, and times that one was mapped to be read."""

    written: int = 0
    reads: int = 0


@pytest.fixture
def traffic(monkeypatch: pytest.MonkeyPatch, gpu_provider: WebGpuProvider) -> Traffic:
    del gpu_provider  # there is an adapter
    seen = Traffic()
    write, mapped = native.GPUQueue.write_buffer, native.GPUBuffer.map_sync

    def write_buffer(self: Any, buffer: Any, offset: int, data: Any, start: int = 0, size: int | None = None) -> Any:
        seen.written += memoryview(data).nbytes - start if size is None else size
        return write(self, buffer, offset, data, start, size)

    def map_sync(self: Any, *given: Any) -> Any:
        seen.reads += 1
        return mapped(self, *given)

    monkeypatch.setattr(native.GPUQueue, "write_buffer", write_buffer)
    monkeypatch.setattr(native.GPUBuffer, "map_sync", map_sync)
    return seen


@pytest.fixture
def session(gpu_provider: WebGpuProvider) -> Iterator[InferenceSession]:
    del gpu_provider
    with InferenceSession(recurrent(), providers=["webgpu"]) as made:
        yield made


def on_gpu(array: np.ndarray) -> OrtValue:
    return OrtValue.ortvalue_from_numpy(array, "webgpu")


def provider_of(session: InferenceSession) -> WebGpuProvider:
    (provider,) = (p for p in session._providers if isinstance(p, WebGpuProvider))
    return provider


def test_recurrent_state_never_leaves_the_device(session: InferenceSession, traffic: Traffic):
    x, h = on_gpu(random(2, 4, seed=2)), on_gpu(random(2, 6, seed=3))
    want = h.numpy()
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", x)
    binding.bind_ortvalue_input("h", h)
    binding.bind_output("h2", "webgpu")
    states = []
    for turn in range(6):
        if turn == 1:
            traffic.written = traffic.reads = 0
        session.run_with_iobinding(binding)
        (state,) = binding.get_outputs()
        states.append(state)
        binding.bind_ortvalue_input("h", state)
    assert (traffic.written, traffic.reads) == (0, 0)
    assert {row.provider for row in session.explain().rows} == {"WebGpuExecutionProvider"}
    for state in states:  # each of them is still what its run made of it
        want = step(x.numpy(), want)
        assert state.device_name() == "webgpu"
        assert (state.shape(), state.data_type()) == ([2, 6], "tensor(float)")
        np.testing.assert_allclose(state.numpy(), want, rtol=1e-4, atol=1e-5)
    assert traffic.reads == 7  # the states, and x


def test_one_output_is_read_and_one_stays(session: InferenceSession, traffic: Traffic):
    x, h = random(2, 4, seed=2), random(2, 6, seed=3)
    binding = session.io_binding()
    binding.bind_ortvalue_input("h", on_gpu(h))
    binding.bind_output("y")
    binding.bind_output("h2", "webgpu")
    for turn in range(4):
        binding.bind_cpu_input("x", x + turn)
        traffic.written = traffic.reads = 0
        session.run_with_iobinding(binding)
        y, state = binding.get_outputs()
        h = step(x + turn, h)
        assert traffic.reads == 1
        assert turn == 0 or traffic.written == x.nbytes
        np.testing.assert_allclose(y.numpy(), h.max(), rtol=1e-4, atol=1e-5)
        binding.bind_ortvalue_input("h", state)
    np.testing.assert_allclose(binding.copy_outputs_to_cpu()[1], h, rtol=1e-4, atol=1e-5)


def test_a_cache_that_grows(gpu_provider: WebGpuProvider, traffic: Traffic):
    with (
        InferenceSession(decoder(), providers=["webgpu"]) as session,
        InferenceSession(decoder(), providers=["webgpu"]) as plain,
    ):
        binding = session.io_binding()
        past = on_gpu(random(1, 6, seed=5))
        rows = past.numpy()
        for turn in range(5):
            x = random(1, 4, seed=turn)
            y, rows = plain.run(None, {"x": x, "past": rows})
            binding.bind_cpu_input("x", x)
            binding.bind_ortvalue_input("past", past)
            binding.bind_output("y", "cpu")
            binding.bind_output("present", "webgpu")
            traffic.reads = 0
            session.run_with_iobinding(binding)
            assert traffic.reads == 1  # y
            ours, past = binding.get_outputs()
            np.testing.assert_allclose(ours.numpy(), y, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(past.numpy(), rows, rtol=1e-5, atol=1e-6)
        # what nobody holds any more goes back to the pool
        before = provider_of(session).memory_stats()["other"]
        del past, ours
        binding.clear_binding_inputs()
        binding.clear_binding_outputs()
        gc.collect()
        assert provider_of(session).memory_stats()["other"] < before


def test_an_output_is_put_in_a_bound_value(session: InferenceSession):
    """The same value may be read and written."""
    x, h = random(2, 4, seed=2), random(2, 6, seed=3)
    state = on_gpu(h)
    binding = session.io_binding()
    binding.bind_cpu_input("x", x)
    binding.bind_ortvalue_input("h", state)
    binding.bind_ortvalue_output("h2", state)
    for _ in range(3):
        session.run_with_iobinding(binding)
        h = step(x, h)
    np.testing.assert_allclose(state.numpy(), h, rtol=1e-4, atol=1e-5)
    state.update_inplace(np.zeros((2, 6), np.float32))
    session.run_with_iobinding(binding)
    np.testing.assert_allclose(state.numpy(), step(x, np.zeros((2, 6))), rtol=1e-4, atol=1e-5)


def test_run_takes_values_on_the_device(session: InferenceSession):
    x, h = random(2, 4, seed=2), random(2, 6, seed=3)
    for state in (on_gpu(h), OrtValue.ortvalue_from_numpy(h)):
        np.testing.assert_allclose(session.run(["h2"], {"x": x, "h": state})[0], step(x, h), rtol=1e-4, atol=1e-5)
    (state,) = session.run_with_ort_values(["h2"], {"x": on_gpu(x), "h": on_gpu(h)})
    assert state.device_name() == "cpu"
    np.testing.assert_allclose(state.numpy(), step(x, h), rtol=1e-4, atol=1e-5)


def test_awaited(session: InferenceSession):
    x, h = random(2, 4, seed=2), random(2, 6, seed=3)

    async def go() -> np.ndarray:
        binding = session.io_binding()
        binding.bind_cpu_input("x", x)
        binding.bind_ortvalue_input("h", on_gpu(h))
        binding.bind_output("h2", "webgpu")
        await session.run_with_iobinding_async(binding)
        (state,) = binding.get_outputs()
        np.testing.assert_array_equal((await binding.copy_outputs_to_cpu_async())[0], await state.numpy_async())
        return await state.numpy_async()

    np.testing.assert_allclose(asyncio.run(go()), step(x, h), rtol=1e-4, atol=1e-5)


def test_what_a_cpu_node_wants_is_read_back_once(gpu_provider: WebGpuProvider, traffic: Traffic):
    """NonZero has no kernel; it reads a fed value, twice, and an output that stays."""
    nodes = [
        node("NonZero", ["h"], ["a"]),
        node("NonZero", ["h"], ["b"]),
        node("MatMul", ["h", "u"], ["g"]),
        node("NonZero", ["g"], ["c"]),
    ]
    outputs = [("a", INT64, [2, None]), ("b", INT64, [2, None]), ("c", INT64, [2, None]), ("g", FLOAT, [3, 6])]
    made = model(nodes, [("h", FLOAT, [3, 6])], outputs, {"u": U}, opset=17)  # type: ignore[arg-type]
    h = random(3, 6) * (random(3, 6, seed=1) > 0)
    with InferenceSession(made, providers=["webgpu"]) as session:
        value = on_gpu(h)
        binding = session.io_binding()
        binding.bind_ortvalue_input("h", value)
        for name in "abc":
            binding.bind_output(name)
        binding.bind_output("g", "webgpu")
        session.run_with_iobinding(binding)
        assert traffic.reads == 2
        a, b, c, g = binding.copy_outputs_to_cpu()
        np.testing.assert_array_equal(a, np.nonzero(h))
        np.testing.assert_array_equal(b, np.nonzero(h))
        np.testing.assert_array_equal(c, np.nonzero(g))
        np.testing.assert_allclose(g, h @ U, rtol=1e-4, atol=1e-5)
        assert traffic.reads == 2


def test_views_constants_and_inputs_stay_too(gpu_provider: WebGpuProvider):
    nodes = [
        node("Exp", ["x"], ["e"]),
        node("Reshape", ["e", "s"], ["r"]),
        node("Flatten", ["x"], ["f"], axis=0),
        node("Identity", ["x"], ["i"]),
        node("Neg", ["f"], ["n"]),
    ]
    shape = {"s": np.array([3, 2], np.int64)}
    outputs = [("e", FLOAT, [2, 3]), ("r", FLOAT, [3, 2]), ("f", FLOAT, [1, 6]), ("i", FLOAT, [2, 3]),
               ("n", FLOAT, [1, 6])]  # fmt: skip
    made = model(nodes, [("x", FLOAT, [2, 3])], outputs, shape, opset=17)  # type: ignore[arg-type]
    with InferenceSession(made, providers=["webgpu"]) as session:
        for on_device in (True, False):
            kept = []
            for seed in range(3):
                x = random(2, 3, seed=seed)
                binding = session.io_binding()
                binding.bind_ortvalue_input("x", on_gpu(x) if on_device else OrtValue.ortvalue_from_numpy(x))
                for name in "erfin":
                    binding.bind_output(name, "webgpu")
                session.run_with_iobinding(binding)
                kept.append((x, binding.get_outputs()))
            for x, values in kept:
                e, r, f, i, n = (value.numpy() for value in values)
                np.testing.assert_allclose(e, np.exp(x), rtol=1e-5)
                np.testing.assert_array_equal(r, e.reshape(3, 2))
                np.testing.assert_array_equal(f, x.reshape(1, 6))
                np.testing.assert_array_equal(i, x)
                np.testing.assert_array_equal(n, -f)


@pytest.mark.parametrize("dtype", ["float16", "int8", "bool", "int64", "uint8"])
def test_element_types(gpu_provider: WebGpuProvider, dtype: str):
    """Any type comes back as it went there."""
    element = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    made = model(
        [node("Transpose", ["x"], ["y"], perm=[1, 0])], [("x", element, [3, 5])], [("y", element, [5, 3])], opset=17
    )
    x = (random(3, 5) * 50).astype(dtype)
    with InferenceSession(made, providers=["webgpu"]) as session:
        binding = session.io_binding()
        binding.bind_ortvalue_input("x", on_gpu(x))
        binding.bind_output("y", "webgpu")
        session.run_with_iobinding(binding)
        (y,) = binding.get_outputs()
        assert y.element_type() == element
        np.testing.assert_array_equal(y.numpy(), x.T)
        assert y.numpy().dtype == x.dtype


def test_a_session_on_another_device_reads_the_value_through_the_host(session: InferenceSession):
    x, h = random(2, 4, seed=2), random(2, 6, seed=3)
    value = on_gpu(h)
    want = session.run(["h2"], {"x": x, "h": value})[0]
    with InferenceSession(recurrent(), providers=["webgpu"]) as other:
        np.testing.assert_array_equal(other.run(["h2"], {"x": x, "h": value})[0], want)
    with InferenceSession(recurrent()) as plain:
        np.testing.assert_allclose(plain.run(["h2"], {"x": x, "h": value})[0], want, rtol=1e-4, atol=1e-5)


def test_sessions_on_one_device_share_values(traffic: Traffic, session: InferenceSession):
    """The state goes to and fro between two sessions; each can be closed without harm to the other."""
    x, h = on_gpu(random(2, 4, seed=2)), on_gpu(random(2, 6, seed=3))
    want = h.numpy()
    other = InferenceSession(recurrent(), providers=[("webgpu", {"same_device_as": session})])
    assert provider_of(other).device is provider_of(session).device
    for turn in range(6):
        if turn == 2:
            traffic.written = traffic.reads = 0
        one = (session, other)[turn % 2]
        binding = one.io_binding()
        binding.bind_ortvalue_input("x", x)
        binding.bind_ortvalue_input("h", h)
        binding.bind_output("h2", "webgpu")
        one.run_with_iobinding(binding)
        (h,) = binding.get_outputs()
    assert (traffic.written, traffic.reads) == (0, 0)
    other.close()
    for _ in range(6):
        want = step(x.numpy(), want)
    np.testing.assert_allclose(h.numpy(), want, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(session.run(["h2"], {"x": x, "h": h})[0], step(x.numpy(), want), rtol=1e-4, atol=1e-5)


def test_a_value_on_a_lost_device_says_so(session: InferenceSession):
    x, h = random(2, 4, seed=2), on_gpu(random(2, 6, seed=3))
    binding = session.io_binding()
    binding.bind_cpu_input("x", x)
    binding.bind_ortvalue_input("h", h)
    binding.bind_output("h2", "webgpu")
    session.run_with_iobinding(binding)
    (state,) = binding.get_outputs()
    provider_of(session).device.handle.destroy()
    with pytest.raises(DeviceLostError, match=r"float.*\[2, ?6\].*was on a device that is gone"):
        state.numpy()
    with pytest.raises(DeviceLostError, match="was on a device that is gone"):
        session.run(["h2"], {"x": x, "h": state})
    fresh = random(2, 6, seed=4)
    with pytest.warns(RuntimeWarning, match="has a new device"):
        (y,) = session.run(["h2"], {"x": x, "h": fresh})
    np.testing.assert_allclose(y, step(x, fresh), rtol=1e-4, atol=1e-5)
    with pytest.raises(DeviceLostError, match="was on a device that is gone"):
        session.run(["h2"], {"x": x, "h": state})


def test_a_value_of_a_closed_session_says_so(gpu_provider: WebGpuProvider):
    with InferenceSession(recurrent(), providers=["webgpu"]) as session:
        binding = session.io_binding()
        for name, value in (("x", random(2, 4)), ("h", random(2, 6))):
            binding.bind_cpu_input(name, value)
        binding.bind_output("h2", "webgpu")
        session.run_with_iobinding(binding)
        (state,) = binding.get_outputs()
    with pytest.raises(ProviderError, match="closed"):
        state.numpy()


def test_a_buffer_has_no_address(gpu_provider: WebGpuProvider):
    value = on_gpu(random(2))
    with pytest.raises(UnsupportedError, match=r"use numpy\(\)"):
        value.data_ptr()
    with pytest.raises(UnsupportedError, match=r"use numpy\(\)"):
        np.from_dlpack(value)


def test_the_example_of_the_documentation(gpu_provider: WebGpuProvider, capsys: pytest.CaptureFixture[str]):
    names: dict[str, Any] = {}
    exec(compile(block("Data that stay on the device", "python", "docs/webgpu.md"), "docs/webgpu.md", "exec"), names)
    assert capsys.readouterr().out.startswith("webgpu [[")
    state = 0.0
    for turn in range(4):
        state = np.tanh(turn + state)
    np.testing.assert_allclose(names["state"].numpy(), np.full((2, 3), state), rtol=1e-5)
    names["session"].close()


def test_shapes_bodies_and_later_stages(gpu_provider: WebGpuProvider):
    """On the device: the target of a Reshape, what a loop's body captures, and an output that a later stage reads."""
    body = onnx.helper.make_graph(
        [node("Add", ["s", "u"], ["t"]), node("Identity", ["c"], ["d"])],
        "body",
        [onnx.helper.make_tensor_value_info(*v) for v in (("i", INT64, []), ("c", BOOL, []), ("s", FLOAT, [2, 3]))],
        [onnx.helper.make_tensor_value_info(*v) for v in (("d", BOOL, []), ("t", FLOAT, [2, 3]))],
    )
    nodes = [
        node("Reshape", ["x", "shape"], ["r"]),
        node("Tanh", ["r"], ["u"]),
        node("Loop", ["n", "", "r"], ["l"], body=body),
        node("NonZero", ["u"], ["z"]),
        node("Cast", ["z"], ["f"], to=FLOAT),
        node("ReduceSum", ["f"], ["k"], keepdims=0),
        node("Mul", ["u", "k"], ["y"]),
    ]
    inputs = [("x", FLOAT, [6]), ("shape", INT64, [2]), ("n", INT64, [])]
    outputs = [("u", FLOAT, [2, 3]), ("l", FLOAT, [2, 3]), ("y", FLOAT, [2, 3])]
    with InferenceSession(model(nodes, inputs, outputs, opset=17), providers=["webgpu"]) as session:
        for seed in range(3):
            x = random(6, seed=seed)
            u = np.tanh(x.reshape(2, 3))
            binding = session.io_binding()
            for name, value in (("x", x), ("shape", np.array([2, 3])), ("n", np.array(4))):
                binding.bind_ortvalue_input(name, on_gpu(value))
            for name in "uly":
                binding.bind_output(name, "webgpu")
            session.run_with_iobinding(binding)
            got = binding.copy_outputs_to_cpu()
            for result, want in zip(got, (u, x.reshape(2, 3) + 4 * u, u * np.sum(np.nonzero(u))), strict=True):
                np.testing.assert_allclose(result, want, rtol=1e-4, atol=1e-5)


def test_an_empty_cache(gpu_provider: WebGpuProvider):
    with InferenceSession(decoder(), providers=["webgpu"]) as session:
        past, rows = on_gpu(np.zeros((0, 6), np.float32)), np.zeros((0, 6), np.float32)
        binding = session.io_binding()
        binding.bind_output("present", "webgpu")
        for turn in range(3):
            x = random(1, 4, seed=turn)
            binding.bind_cpu_input("x", x)
            binding.bind_ortvalue_input("past", past)
            session.run_with_iobinding(binding)
            (past,) = binding.get_outputs()
            rows = np.concatenate([rows, x @ W])
        np.testing.assert_allclose(past.numpy(), rows, rtol=1e-4, atol=1e-5)


def test_overlapping_runs(session: InferenceSession):
    """Runs that take turns on one event loop don't write to each other's states."""
    x = random(2, 4, seed=2)

    async def chain(seed: int) -> None:
        h = random(2, 6, seed=seed)
        state = on_gpu(h)
        binding = session.io_binding()
        binding.bind_cpu_input("x", x)
        binding.bind_output("h2", "webgpu")
        for _ in range(4):
            binding.bind_ortvalue_input("h", state)
            await session.run_with_iobinding_async(binding)
            (state,) = binding.get_outputs()
            h = step(x, h)
        np.testing.assert_allclose(await state.numpy_async(), h, rtol=1e-4, atol=1e-5)

    async def go() -> None:
        await asyncio.gather(*(chain(seed) for seed in range(3, 7)))

    asyncio.run(go())


@pytest.mark.parametrize("stays", [True, False])
def test_light_operators_are_worth_it_where_their_result_stays(gpu_provider: WebGpuProvider, stays: bool):
    """Alone, a sum and a hyperbolic tangent are not worth the way to the device and back."""
    nodes = [node("Add", ["x", "h"], ["c"]), node("Tanh", ["c"], ["h2"])]
    made = model(nodes, [("x", FLOAT, [2, 6]), ("h", FLOAT, [2, 6])], [("h2", FLOAT, [2, 6])], opset=17)
    x, h = random(2, 6), random(2, 6, seed=1)
    with InferenceSession(made, providers=["webgpu", "cpu"]) as session:
        binding = session.io_binding()
        binding.bind_cpu_input("x", x)
        binding.bind_ortvalue_input("h", OrtValue.ortvalue_from_numpy(h, "webgpu"))
        binding.bind_output("h2", "webgpu" if stays else "cpu")
        session.run_with_iobinding(binding)
        (state,) = binding.get_outputs()
        np.testing.assert_allclose(state.numpy(), np.tanh(x + h), rtol=1e-5)
        used = {row.provider for row in session.explain().rows}
        assert used == {"WebGpuExecutionProvider" if stays else "CPUExecutionProvider"}
        assert state.device_name() == ("webgpu" if stays else "cpu")
