"""wgpu's API over a browser's WebGPU: what programs written for wgpu rely on, and how errors arrive."""

from __future__ import annotations

import importlib.util
import inspect
from pathlib import Path
from textwrap import dedent

import pytest

from tests.browser.harness import Chromium, PyodideHost, SnippetError

SETUP = """
from onnxlet_webgpu import browser_wgpu as wgpu
adapter = await wgpu.gpu.request_adapter_async(power_preference="high-performance")
device = await adapter.request_device_async()
TRIPLE = '''
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(4)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x < arrayLength(&y)) { y[id.x] += 3.0 * x[id.x]; }
}
'''
STORAGE = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST
import array
values = array.array("f", range(10))

async def pipeline_of(code):
    module = device.create_shader_module(code=code)
    stage = {"module": module, "entry_point": "main"}
    return await device.create_compute_pipeline_async(layout="auto", compute=stage)

async def prepared():
    pipeline = await pipeline_of(TRIPLE)
    x = device.create_buffer_with_data(data=values, usage=STORAGE)
    y = device.create_buffer(size=40, usage=STORAGE)
    entries = [{"binding": i, "resource": {"buffer": b, "offset": 0, "size": 40}} for i, b in enumerate((x, y))]
    group = device.create_bind_group(layout=pipeline.get_bind_group_layout(0), entries=entries)
    encoder = device.create_command_encoder()
    compute = encoder.begin_compute_pass()
    compute.set_pipeline(pipeline)
    compute.set_bind_group(0, group)
    compute.dispatch_workgroups(3)
    compute.end()
    return encoder, y

def floats(data):
    return list(data.cast("f"))
"""

WANTED = [3.0 * i for i in range(10)]


@pytest.fixture(params=["worker", "page"])
def host(request: pytest.FixtureRequest) -> PyodideHost:
    return request.getfixturevalue(f"pyodide_{request.param}")


def test_compute(host: PyodideHost):
    code = """
    encoder, y = await prepared()
    device.queue.submit([encoder.finish()])
    floats(await device.queue.read_buffer_async(y))
    """
    assert host.run_python(SETUP + dedent(code)) == WANTED


def test_blocking_calls(host: PyodideHost):
    """The same with wgpu's blocking calls, which JSPI makes possible."""
    code = """
    adapter = wgpu.gpu.request_adapter_sync()
    device = adapter.request_device_sync(required_limits={"max-buffer-size": adapter.limits["max-buffer-size"]})
    pipeline = device.create_compute_pipeline(
        layout="auto", compute={"module": device.create_shader_module(code=TRIPLE), "entry_point": "main"}
    )
    x = device.create_buffer_with_data(data=values, usage="STORAGE")
    y = device.create_buffer(size=40, usage="STORAGE|COPY_SRC")
    entries = [{"binding": i, "resource": {"buffer": b}} for i, b in enumerate((x, y))]
    group = device.create_bind_group(layout=pipeline.get_bind_group_layout(0), entries=entries)
    encoder = device.create_command_encoder()
    compute = encoder.begin_compute_pass()
    compute.set_pipeline(pipeline)
    compute.set_bind_group(0, group)
    compute.dispatch_workgroups(3)
    compute.end()
    device.queue.submit([encoder.finish()])
    device.queue.on_submitted_work_done_sync()
    floats(device.queue.read_buffer(y))
    """
    assert host.run_python(SETUP + dedent(code)) == WANTED


def test_a_reusable_command_buffer_is_submitted_again(pyodide_worker: PyodideHost):
    code = """
    encoder, y = await prepared()
    commands = encoder.finish(reusable=True)
    for _ in range(3):
        device.queue.submit([commands])
    tripled = floats(await device.queue.read_buffer_async(y))
    spent = device.create_command_encoder().finish()
    device.queue.submit([spent])
    try:
        device.queue.submit([spent])
        message = ""
    except RuntimeError as error:
        message = str(error)
    [tripled, message]
    """
    values, message = pyodide_worker.run_python(SETUP + dedent(code))
    assert values == [3 * value for value in WANTED]
    assert "only once" in message


def test_mapping(pyodide_worker: PyodideHost):
    code = """
    usage = wgpu.BufferUsage
    target = device.create_buffer(size=16, usage=usage.MAP_READ | usage.COPY_DST)
    source = device.create_buffer(size=16, usage=usage.MAP_WRITE | usage.COPY_SRC, mapped_at_creation=True)
    source.write_mapped(b"abcd", 4)
    source.write_mapped(b"efgh", 8)
    states = [source.map_state]
    source.unmap()
    encoder = device.create_command_encoder()
    encoder.copy_buffer_to_buffer(source, 0, target, 0, 16)
    encoder.clear_buffer(target, 12, 4)
    device.queue.submit([encoder.finish()])
    await target.map_async("READ")
    states += [source.map_state, target.map_state]
    whole, part = bytes(target.read_mapped()), bytes(target.read_mapped(6, 3))
    target.unmap()
    try:
        target.read_mapped()
    except RuntimeError as error:
        states.append(str(error))
    [states, whole, part]
    """
    states, whole, part = pyodide_worker.run_python(SETUP + dedent(code))
    assert states[:3] == ["mapped", "unmapped", "mapped"]
    assert "not mapped" in states[3]
    assert whole == b"\0\0\0\0abcdefgh\0\0\0\0"
    assert part == b"cde"


def test_offsets_and_indirect_dispatch(pyodide_worker: PyodideHost):
    """A uniform at a dynamic offset, and the number of workgroups from a buffer."""
    code = """
    WGSL = '''
    struct Numbers { factor: f32 }
    @group(0) @binding(0) var<uniform> numbers: Numbers;
    @group(0) @binding(1) var<storage, read_write> y: array<f32>;
    @compute @workgroup_size(1)
    fn main(@builtin(global_invocation_id) id: vec3<u32>) { y[id.x] = numbers.factor * f32(id.x); }
    '''
    usage = wgpu.BufferUsage
    entries = [
        {"binding": 0, "visibility": wgpu.ShaderStage.COMPUTE,
         "buffer": {"type": "uniform", "has_dynamic_offset": True, "min_binding_size": 4}},
        {"binding": 1, "visibility": "COMPUTE", "buffer": {"type": "storage"}},
    ]
    layout = device.create_bind_group_layout(entries=entries)
    stage = {"module": device.create_shader_module(code=WGSL), "entry_point": "main"}
    pipeline = await device.create_compute_pipeline_async(
        layout=device.create_pipeline_layout(bind_group_layouts=[layout]), compute=stage
    )
    numbers = array.array("f", [0] * 128)
    numbers[0], numbers[64] = 2, 5
    uniform = device.create_buffer_with_data(data=numbers, usage=usage.UNIFORM)
    counts = device.create_buffer_with_data(data=array.array("I", [3, 1, 1]), usage=usage.INDIRECT)
    y = device.create_buffer(size=16, usage=STORAGE)
    bound = [{"binding": 0, "resource": {"buffer": uniform, "size": 4}}, {"binding": 1, "resource": y}]
    group = device.create_bind_group(layout=layout, entries=bound)
    encoder = device.create_command_encoder()
    compute = encoder.begin_compute_pass()
    compute.set_pipeline(pipeline)
    compute.set_bind_group(0, group, [256])
    compute.dispatch_workgroups_indirect(counts, 0)
    compute.end()
    device.queue.submit([encoder.finish()])
    floats(await device.queue.read_buffer_async(y))
    """
    assert pyodide_worker.run_python(SETUP + dedent(code)) == [0, 5, 10, 0]


def test_writing_from_python_and_from_javascript(pyodide_worker: PyodideHost):
    code = """
    import js
    import numpy as np
    y = device.create_buffer(size=16, usage=STORAGE)
    device.queue.write_buffer(y, 0, np.arange(4, dtype=np.uint32))
    device.queue.write_buffer(y, 4, js.Uint8Array.new([9, 9, 9, 9, 7, 0, 0, 0]), 4, 4)
    list((await device.queue.read_buffer_async(y)).cast("I"))
    """
    assert pyodide_worker.run_python(SETUP + dedent(code)) == [0, 7, 2, 3]


def test_a_shader_error_quotes_the_line(host: PyodideHost):
    code = """
    bad = TRIPLE.replace("3.0 * x[id.x]", "3.0 * z[id.x]")
    module = device.create_shader_module(code=bad)
    info = await module.get_compilation_info_async()
    try:
        await pipeline_of(bad)
    except wgpu.GPUPipelineError as error:
        answer = [error.reason, str(error), info.messages[0].line_num, info.messages[0].type]
    answer
    """
    reason, message, line, kind = host.run_python(SETUP + dedent(code))
    assert (reason, line, kind) == ("validation", 6, "error")
    assert "line 6: " in message
    assert "y[id.x] += 3.0 * z[id.x];" in message
    assert "'z'" in message


def test_error_scopes_and_thrown_errors(pyodide_worker: PyodideHost):
    code = """
    device.push_error_scope("validation")
    device.create_buffer(size=16, usage=wgpu.BufferUsage.MAP_READ | wgpu.BufferUsage.MAP_WRITE)
    error = await device.pop_error_scope_async()
    device.push_error_scope("validation")
    nothing = await device.pop_error_scope_async()
    try:
        device.queue.write_buffer(device.create_buffer(size=4, usage=STORAGE), 0, b"12345")
    except wgpu.GPUError as thrown:
        kind = type(thrown).__name__
    try:
        device.create_buffer(size=4, usage="STORAGE|NONSENSE")
    except ValueError as wrong:
        message = str(wrong)
    [isinstance(error, wgpu.GPUValidationError), bool(error.message), nothing is None, kind, message]
    """
    answer = pyodide_worker.run_python(SETUP + dedent(code))
    assert answer == [True, True, True, "GPUValidationError", "BufferUsage has no flag 'NONSENSE'"]


def test_promises(pyodide_worker: PyodideHost):
    code = """
    import asyncio
    def fails(_):
        raise KeyError("no")
    chained = wgpu.gpu.request_adapter_async().then(lambda a: a.request_device_async)
    method = await chained
    again = await chained
    caught = await wgpu.gpu.request_adapter_async().then(fails).then(lambda _: "?", lambda error: repr(error))
    [method is again, caught, chained.sync_wait() is method]
    """
    assert pyodide_worker.run_python(SETUP + dedent(code)) == [True, "KeyError('no')", True]


def test_handles_are_given_back(pyodide_worker: PyodideHost):
    code = """
    import gc
    from onnxlet_webgpu.browser_wgpu.bridge import BRIDGE
    async def use():
        encoder, y = await prepared()
        commands = encoder.finish(reusable=True)
        device.queue.submit([commands])
        await device.queue.read_buffer_async(y)
    await use()
    gc.collect()
    before = BRIDGE.count()
    for _ in range(5):
        await use()
    gc.collect()
    BRIDGE.count() - before
    """
    assert pyodide_worker.run_python(SETUP + dedent(code)) == 0


def test_a_destroyed_device_is_lost(pyodide_worker: PyodideHost):
    code = """
    lost = device.lost_async
    device.destroy()
    info = await lost
    info.reason
    """
    assert pyodide_worker.run_python(SETUP + dedent(code)) == "destroyed"


def test_names_are_those_of_wgpu(pyodide_worker: PyodideHost):
    """Every public method and argument name of the backend exists in wgpu too, its own additions aside."""
    wgpu = pytest.importorskip("wgpu")
    code = """
    import inspect
    from onnxlet_webgpu import browser_wgpu as wgpu
    found = {}
    for name in wgpu.__all__:
        cls = getattr(wgpu, name)
        if not inspect.isclass(cls) or name in ("GPUPromise", "GPUAdapterInfo") or issubclass(cls, Exception):
            continue
        for key, member in vars(cls).items():
            if not key.startswith("_") and inspect.isfunction(member):
                found[f"{name}.{key}"] = list(inspect.signature(member).parameters)
    found
    """
    # WebGPU's error scopes (wgpu raises errors at once instead), and what is the backend's own.
    added = {
        "GPUDevice.push_error_scope", "GPUDevice.pop_error_scope_async", "GPUDevice.pop_error_scope_sync",
        "GPUDevice.adopt_buffer", "GPUQueue.read_buffer_async",
    }  # fmt: skip
    found = pyodide_worker.run_python(code)
    assert added <= set(found)
    for name in set(found) - added:
        cls, _, method = name.partition(".")
        original = getattr(getattr(wgpu.classes, cls), method)
        theirs = inspect.signature(original).parameters
        for parameter in found[name]:
            assert parameter in (*theirs, "options", "reusable"), f"{name}({parameter}) is not wgpu's"


def test_wgpus_own_compute_utilities_run_unchanged(host: PyodideHost):
    """Its text, from the package that is installed here, on a `wgpu` that is ours."""
    text = Path(str(importlib.util.find_spec("wgpu.utils.compute").origin))  # type: ignore[union-attr]
    code = """
    import array, sys, types
    sys.modules["wgpu"] = wgpu
    sys.modules["wgpu.utils"] = wgpu.utils
    compute = types.ModuleType("wgpu.utils.compute")
    exec(bytes(text).decode(), compute.__dict__)
    shader = '''
    override factor: f32 = 2.0;
    @group(0) @binding(0) var<storage, read> x: array<f32>;
    @group(0) @binding(1) var<storage, read_write> y: array<f32>;
    @group(0) @binding(2) var<storage, read_write> z: array<i32>;
    @compute @workgroup_size(1)
    fn main(@builtin(global_invocation_id) id: vec3<u32>) {
        y[id.x] = factor * x[id.x];
        z[id.x] = i32(id.x);
    }
    '''
    x = array.array("f", range(12))
    plain = compute.compute_with_buffers({0: x}, {1: (3, 4, "f"), 2: (12, "i")}, shader, n=12)
    scaled = compute.compute_with_buffers({0: x}, {1: "12xf", 2: 48}, shader, {"factor": 5.0}, (12, 1, 1))
    [plain[1].tolist(), plain[2].tolist(), scaled[1].tolist(), scaled[2].nbytes]
    """
    doubled, numbers, scaled, nbytes = host.run_python(SETUP + dedent(code), text=text)
    assert doubled == [[2.0 * (4 * i + j) for j in range(4)] for i in range(3)]
    assert numbers == list(range(12))
    assert scaled == [5.0 * i for i in range(12)]
    assert nbytes == 48


WITHOUT_JSPI = "delete WebAssembly.Suspending; delete WebAssembly.promising;"


@pytest.fixture(scope="session")
def without_jspi(chromium: Chromium) -> PyodideHost:
    return chromium.pyodide(worker=True, before=WITHOUT_JSPI)


def test_without_jspi_waiting_names_await(without_jspi: PyodideHost):
    code = """
    encoder, y = await prepared()
    device.queue.submit([encoder.finish()])
    """
    read = "floats(await device.queue.read_buffer_async(y))"
    assert without_jspi.run_python(SETUP + dedent(code) + read) == WANTED
    with pytest.raises(SnippetError, match="Use `await`"):
        without_jspi.run_python(SETUP + dedent(code) + "device.queue.read_buffer(y)")
