"""One GPU device: its limits, pipelines, buffers, and the submission of recorded work.

Written against wgpu's Python API. On a desktop that is the `wgpu` package, whose calls block; in a browser it is
`browser_wgpu`, whose calls return promises. What may have to wait is a coroutine here; on a desktop such a coroutine
never suspends, and `finish` runs it to its end.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from onnxlet.errors import DeviceLostError, LimitError, ProviderError
from onnxlet.model.tensors import Tensor

from .lowering import Target

IN_BROWSER = sys.platform == "emscripten"

LOST = "device is lost"
"""What wgpu says when a lost device is asked for anything."""

INSTALL = (
    "install a Vulkan driver: the one of the graphics card's maker, or Mesa's software driver "
    "(Debian, Ubuntu: apt install mesa-vulkan-drivers)"
)

LIMITS = {
    "max_binding_bytes": "max-storage-buffer-binding-size",
    "max_buffer_bytes": "max-buffer-size",
    "max_bindings": "max-storage-buffers-per-shader-stage",
    "max_groups": "max-compute-workgroups-per-dimension",
    "max_invocations": "max-compute-invocations-per-workgroup",
    "max_shared_bytes": "max-compute-workgroup-storage-size",
}
"""Fields of `Target` and the limits, in wgpu's spelling, that they are read from."""

FEATURES = {"subgroups": "subgroup", "half": "shader-f16"}
"""Fields of `Target` and the features, in wgpu's spelling, that devices are asked for where adapters have them."""


def wgpu_module() -> Any:
    """wgpu's API: the `wgpu` package, or the part of it that this package brings for browsers."""
    if IN_BROWSER:
        from . import browser_wgpu

        return browser_wgpu
    import wgpu

    return wgpu


def finish(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine that never suspends (every one of this module, on a desktop)."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    coroutine.close()
    raise ProviderError("this host can't block on the GPU here: use `await`")


def block(awaitable: Awaitable[Any], remedy: str) -> Any:
    """Wait for an awaitable without `await`: through JavaScript promise integration in a browser."""
    if sys.platform != "emscripten":
        return finish(awaitable)  # type: ignore[arg-type]
    from pyodide.ffi import can_run_sync, run_sync  # type: ignore[import-not-found]

    if can_run_sync():
        return run_sync(awaitable)
    if hasattr(awaitable, "close"):
        awaitable.close()  # type: ignore[attr-defined]  # a coroutine that nobody will await
    raise ProviderError(
        "waiting for the GPU is not possible here: this browser has no JavaScript promise integration (JSPI), or "
        f"Python was called from JavaScript synchronously. Use {remedy}"
    )


@dataclass(slots=True, eq=False)
class Pipeline:
    """A compiled shader. In a browser it is being compiled while `pending` is set."""

    text: str
    layout: Any
    handle: Any = None
    pending: Any = None


@dataclass(slots=True)
class Dispatch:
    pipeline: Pipeline
    bind_group: Any
    groups: tuple[int, int, int]


@dataclass(slots=True, eq=False)
class Recording:
    """Dispatches and, after them, copies ``(source, destination, offset there, bytes)``.

    In a browser the first submission keeps it in JavaScript, and later ones are one call.
    """

    dispatches: list[Dispatch]
    copies: list[tuple[Any, Any, int, int]]
    kept: Any = None


class Device:
    """A GPU device and what it has cached. One per session, or shared by sessions that ask for it."""

    def __init__(self, module: Any, adapter: Any, handle: Any, forced: Mapping[str, Any]):
        self.handle = handle
        self.adapter_info = dict(adapter.info)
        self.lost: str | None = None
        self.closed = False
        self.users = 1
        """Providers on this device: the last one closes it."""
        self.progress: Callable[[str, int, int], None] | None = None
        """Is told what has been compiled: a shader's title, how many are done, and of how many."""
        usage = module.BufferUsage
        self.storage = int(usage.STORAGE | usage.COPY_SRC | usage.COPY_DST)
        self.staging = int(usage.MAP_READ | usage.COPY_DST)
        self._compute = int(module.ShaderStage.COMPUTE)
        self.target = _target(module, adapter, handle, forced)
        self._pipelines: dict[str, Pipeline] = {}
        self._layouts: dict[int, tuple[Any, Any]] = {}
        self._allocations: list[Any] = []
        if IN_BROWSER:
            handle.lost_async.then(self._note_loss)

    def _note_loss(self, info: Any) -> None:
        self.lost = info.message or info.reason

    @property
    def description(self) -> str:
        info = self.adapter_info
        parts = [info.get(key) for key in ("vendor", "architecture", "device", "description")]
        return " ".join(dict.fromkeys(p for p in parts if p)) or "unnamed adapter"

    def check(self) -> None:
        """Raise `DeviceLostError` if the device is lost, `ProviderError` if it was closed."""
        if self.closed:
            raise ProviderError(f"the GPU device ({self.description}) was closed")
        if self.lost is not None:
            raise DeviceLostError(f"the GPU device ({self.description}) was lost: {self.lost}.")

    def _failure(self, error: Exception) -> ProviderError:
        """What to raise for an error of the device's: that it is lost, if it is."""
        if self.lost is None and "lost" in str(error):  # wgpu says so in words
            self.lost = str(error).strip().rsplit("\n", 1)[-1].strip()
        try:
            self.check()
        except ProviderError as lost:
            return lost
        return ProviderError(f"the GPU ({self.description}) refused the work: {error}")

    # Buffers

    def buffer(self, nbytes: int, usage: int) -> Any:
        """A new buffer. Raises `LimitError` where the device has no room for it (in a browser, `settle` does)."""
        self.check()
        try:
            return self.handle.create_buffer(size=nbytes, usage=usage)
        except Exception as error:
            if LOST in str(error):
                raise self._failure(error) from error
            raise self._no_room(error) from error

    @contextmanager
    def allocating(self) -> Iterator[None]:
        """Around code that makes buffers. A browser tells only later that it has no room: `settle` waits for that."""
        if not IN_BROWSER:
            yield
            return
        self.handle.push_error_scope("out-of-memory")
        try:
            yield
        finally:
            self._allocations.append(self.handle.pop_error_scope_async())

    async def settle(self) -> None:
        """Wait for the browser's word on the buffers made so far. Raises `LimitError` where there was no room."""
        while self._allocations:
            error = await self._allocations.pop(0)
            if error is not None:
                raise self._no_room(error)

    def _no_room(self, error: Exception) -> LimitError:
        return LimitError(
            f"the GPU ({self.description}) has no room for the model's buffers: {error}. Use smaller inputs, or "
            "CPUExecutionProvider"
        )

    def write(self, buffer: Any, array: np.ndarray) -> None:
        """Copy a contiguous array whose size is a multiple of four bytes to the start of a buffer."""
        self._write(buffer, array.reshape(-1).view(np.uint8).data, 0, array.nbytes)

    def write_tensor(self, buffer: Any, tensor: Tensor) -> None:
        """Copy a constant to a buffer, from JavaScript's memory where its bytes lie there."""
        location = tensor.location
        source = getattr(location[0], "js", None) if location is not None else None
        if source is not None and location is not None:
            self._write(buffer, source, location[1], tensor.nbytes)
        else:
            self.write(buffer, np.ascontiguousarray(tensor.numpy()))

    def _write(self, buffer: Any, data: Any, offset: int, nbytes: int) -> None:
        try:
            self.handle.queue.write_buffer(buffer, 0, data, offset, nbytes)
        except Exception as error:
            raise self._failure(error) from error

    # Shaders

    def pipeline(self, text: str, bindings: int) -> Pipeline:
        """The pipeline of a shader with `bindings` storage buffers, the last of which it writes. Cached by text."""
        found = self._pipelines.get(text)
        if found is not None:
            return found
        self.check()
        bind_layout, pipeline_layout = self._layout(bindings)
        made = Pipeline(text, bind_layout)
        try:
            module = self.handle.create_shader_module(code=text)
            stage = {"module": module, "entry_point": "main"}
            if IN_BROWSER:
                made.pending = self.handle.create_compute_pipeline_async(layout=pipeline_layout, compute=stage)
            else:
                made.handle = self.handle.create_compute_pipeline(layout=pipeline_layout, compute=stage)
        except Exception as error:
            if LOST in str(error):
                raise self._failure(error) from error
            raise _shader_error(text, error) from error
        self._pipelines[text] = made
        return made

    def tell(self, text: str, done: int, total: int) -> None:
        """Tell who has asked for it that a shader is compiled."""
        if self.progress is not None:
            self.progress(_title(text), done, total)

    async def ready(self, pipelines: Sequence[Pipeline]) -> None:
        """Wait until pipelines are compiled. Raises `ProviderError` with the shader's line where one is not valid."""
        waiting = {id(pipeline) for pipeline in pipelines if pipeline.pending is not None}
        for number, pipeline in enumerate(pipelines if waiting else (), 1):
            if id(pipeline) not in waiting:
                continue
            if pipeline.pending is not None:  # it is not where kernels share a shader
                try:
                    pipeline.handle = await pipeline.pending
                except Exception as error:
                    for each in pipelines:
                        if each.pending is not None:  # it is compiled again when it is wanted again
                            self._pipelines.pop(each.text, None)
                    self.check()
                    raise _shader_error(pipeline.text, error) from error
                pipeline.pending = None
            self.tell(pipeline.text, number, len(pipelines))

    def _layout(self, bindings: int) -> tuple[Any, Any]:
        if bindings not in self._layouts:
            entries = [
                {
                    "binding": i,
                    "visibility": self._compute,
                    "buffer": {"type": "storage" if i == bindings - 1 else "read-only-storage"},
                }
                for i in range(bindings)
            ]
            bind = self.handle.create_bind_group_layout(entries=entries)
            self._layouts[bindings] = bind, self.handle.create_pipeline_layout(bind_group_layouts=[bind])
        return self._layouts[bindings]

    def bind_group(self, pipeline: Pipeline, parts: Sequence[tuple[Any, int]]) -> Any:
        """Bind ``(buffer, bytes)`` pairs to a shader's bindings, in order."""
        entries = [
            {"binding": i, "resource": {"buffer": buffer, "offset": 0, "size": nbytes}}
            for i, (buffer, nbytes) in enumerate(parts)
        ]
        try:
            return self.handle.create_bind_group(layout=pipeline.layout, entries=entries)
        except Exception as error:
            raise self._failure(error) from error

    # Work

    def submit(self, recording: Recording) -> None:
        """Encode and submit a recording."""
        self.check()
        commands = recording.kept
        if commands is None:
            encoder = self.handle.create_command_encoder()
            compute = encoder.begin_compute_pass()
            for d in recording.dispatches:
                compute.set_pipeline(d.pipeline.handle)
                compute.set_bind_group(0, d.bind_group)
                compute.dispatch_workgroups(*d.groups)
            compute.end()
            for source, destination, offset, nbytes in recording.copies:
                encoder.copy_buffer_to_buffer(source, 0, destination, offset, nbytes)
            if IN_BROWSER:
                commands = recording.kept = encoder.finish(reusable=True)
            else:
                commands = encoder.finish()
        self.handle.queue.submit([commands])

    async def run(self, recording: Recording, staging: Any, nbytes: int) -> memoryview | None:
        """Submit a recording and wait for the first `nbytes` of the staging buffer that it copies to.

        Raises `ProviderError` where the device refuses the work or is lost.
        """
        try:
            if staging is None:
                self.submit(recording)
                return None
            if IN_BROWSER:
                self.handle.push_error_scope("out-of-memory")
                self.handle.push_error_scope("validation")
                self.submit(recording)
                scopes = [self.handle.pop_error_scope_async(), self.handle.pop_error_scope_async()]
                mapped = staging.map_async("READ", 0, nbytes)
                for scope in scopes:
                    error = await scope
                    if error is not None:
                        raise error
                await mapped
            else:
                self.submit(recording)
                staging.map_sync("READ", 0, nbytes)
            data = staging.read_mapped(0, nbytes)
            staging.unmap()
        except ProviderError:
            raise
        except Exception as error:
            raise self._failure(error) from error
        return data

    def close(self) -> None:
        """One of the providers is done with the device."""
        self.users -= 1
        if self.users:
            return
        self._pipelines.clear()
        self._layouts.clear()
        self.handle.destroy()
        self.closed = True


def _title(text: str) -> str:
    """The first line of a shader, which says what it computes."""
    return text.split("\n", 1)[0].removeprefix("// ")


def _shader_error(text: str, error: Exception) -> ProviderError:
    return ProviderError(f"the shader of {_title(text)} was refused by the GPU's compiler: {error}")


def _target(module: Any, adapter: Any, handle: Any, forced: Mapping[str, Any]) -> Target:
    """What lowering may use: the device's limits, or lower ones where the caller forces them."""
    limits: dict[str, Any] = {}
    for name, key in LIMITS.items():
        value = int(handle.limits[key])
        limits[name] = min(value, int(forced.get(name, value)))
    limits["max_binding_bytes"] = limits["max_binding_bytes"] // 4 * 4
    software = bool(forced.get("software", is_software(dict(adapter.info))))
    has = {name: feature in handle.features for name, feature in FEATURES.items()}
    # wgpu translates WGSL itself, and knows these functions.
    has["dots"] = not IN_BROWSER or "packed_4x8_integer_dot_product" in module.gpu.wgsl_language_features
    features = {name: there and bool(forced.get(name, True)) for name, there in has.items()}
    if not IN_BROWSER:
        from .desktop.long_loops import most_steps

        limits["max_steps"] = most_steps(adapter.info)
    return Target(software=software, **features, **limits)


def is_software(info: Mapping[str, Any]) -> bool:
    """Whether an adapter is a CPU that poses as a GPU."""
    words = f"{info.get('architecture')} {info.get('device')} {info.get('description')}".lower()
    return (
        info.get("adapter_type") == "CPU"
        or bool(info.get("is_fallback_adapter"))
        or any(name in words for name in ("swiftshader", "llvmpipe", "lavapipe"))
    )


async def request_device(options: Mapping[str, Any]) -> Device:
    """A device on the adapter that suits the options.

    Options: `power_preference` ("high-performance" or "low-power"), `adapter` (a part of the adapter's name, on a
    desktop), `software` (which kind of kernels to use), `trial_milliseconds` (how long kernels may be tried out on a
    desktop: 0 makes every choice the same everywhere) and the fields of `Target`, to use less than the device has.
    Raises `ProviderError` where there is no adapter.
    """
    module = wgpu_module()
    preference = options.get("power_preference", "high-performance")
    try:
        if IN_BROWSER:
            adapter = await module.gpu.request_adapter_async(power_preference=preference)
        else:
            adapter = desktop_adapter(module, preference, options.get("adapter"))
    except ProviderError:
        raise
    except Exception as error:
        raise ProviderError(no_adapter(error)) from error
    limits = {key: adapter.limits[key] for key in LIMITS.values() if key in adapter.limits}
    wanted = [*FEATURES.values(), *(() if IN_BROWSER else ("timestamp-query",))]
    features = [name for name in wanted if name in adapter.features]
    if IN_BROWSER:
        limits |= {
            key: adapter.limits[key]
            for key in (f"max-compute-workgroup-size-{axis}" for axis in "xyz")
            if key in adapter.limits
        }
        handle = await adapter.request_device_async(required_features=features, required_limits=limits)
    else:
        handle = adapter.request_device_sync(required_features=features, required_limits=limits)
    device = Device(module, adapter, handle, options)
    if not IN_BROWSER:
        from .desktop.trial import MILLISECONDS, choices

        found = choices(device, float(options.get("trial_milliseconds", MILLISECONDS)))
        device.target = replace(device.target, choices=found)
    return device


def desktop_adapter(module: Any, preference: str, name: str | None = None) -> Any:
    """An adapter by preference, or the first whose description has `name` in it. Raises `ProviderError`.

    OpenGL is left out: its compute shaders are a subset that nobody has tried these kernels on.
    """
    adapter = None if name else module.gpu.request_adapter_sync(power_preference=preference)
    if adapter is not None and adapter.info["backend_type"] != "OpenGL":
        return adapter
    adapters = [a for a in module.gpu.enumerate_adapters_sync() if a.info["backend_type"] != "OpenGL"]
    for adapter in adapters:
        if (name or "").lower() in " ".join(str(v) for v in dict(adapter.info).values()).lower():
            return adapter
    if not name:
        raise ProviderError(no_adapter())
    have = ", ".join(repr(a.info["device"]) for a in adapters) or "none"
    raise ProviderError(f"no GPU adapter is called {name!r}. There are: {have}")


def no_adapter(error: Exception | None = None) -> str:
    """Why there is no adapter and what to do."""
    if IN_BROWSER:
        return (
            "this browser has WebGPU but gives no adapter: its GPU or driver is not supported, or WebGPU is switched "
            "off for it (Chromium on Linux: --enable-unsafe-webgpu)"
        )
    return f"no GPU adapter was found{f' ({error})' if error else ''}: {INSTALL}"
