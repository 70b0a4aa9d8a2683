"""Devices and what they make, with wgpu's names, keyword arguments and dictionaries."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Any

from .bridge import BRIDGE, Handle, call, camel, feature_names, features_of, js_object, limits_of
from .encoder import GPUCommandBuffer, GPUCommandEncoder
from .errors import (
    GPUCompilationInfo,
    GPUDeviceLostInfo,
    GPUError,
    GPUPipelineError,
    compilation_messages,
    scoped_error,
    shader_report,
)
from .flags import BufferUsage, MapMode, ShaderStage, bits
from .promise import GPUPromise

BINDING_TYPES = {"uniform": 0, "storage": 1, "read-only-storage": 2}


class GPUAdapterInfo(dict):
    """What an adapter says about itself; the entries are attributes too."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


class GPUAdapter(Handle):
    """A GPU that devices can be requested from. Made by `gpu.request_adapter_async`. Made of a `GPUDevice` of
    JavaScript's, it tells about that one's adapter."""

    def __init__(self, adapter: Any):
        super().__init__("", BRIDGE.put(adapter))
        info = getattr(adapter, "info", None) or adapter.adapterInfo
        self.features = features_of(adapter.features)
        self.limits = limits_of(adapter.limits)
        self.info = GPUAdapterInfo(
            vendor=info.vendor,
            architecture=info.architecture,
            device=info.device,
            description=info.description,
            subgroup_min_size=getattr(info, "subgroupMinSize", 0),
            subgroup_max_size=getattr(info, "subgroupMaxSize", 0),
            is_fallback_adapter=bool(getattr(info, "isFallbackAdapter", False)),
            vendor_id=0,
            device_id=0,
            adapter_type="Unknown",
            backend_type="WebGPU",
        )

    @property
    def summary(self) -> str:
        return " ".join(str(self.info[key]) for key in ("vendor", "architecture", "device") if self.info[key])

    def request_device_async(
        self,
        *,
        label: str = "",
        required_features: Sequence[str] = (),
        required_limits: Mapping[str, int] | None = None,
        default_queue: Any = None,
    ) -> GPUPromise[GPUDevice]:
        """Request a device. Unlike wgpu's native backend, a device gets WebGPU's default limits unless it asks for
        more, as in every browser."""
        options = {
            "label": label,
            "requiredFeatures": feature_names(required_features),
            "requiredLimits": {camel(key): value for key, value in (required_limits or {}).items()},
        }
        promise = call(BRIDGE.requestDevice, self._internal, js_object(options))
        return GPUPromise("request_device", promise, lambda device: GPUDevice(label, device, self))

    def request_device_sync(self, **options: Any) -> GPUDevice:
        return self.request_device_async(**options).sync_wait()


class GPUDevice(Handle):
    """A device. Made by `GPUAdapter.request_device_async`."""

    def __init__(self, label: str, device: Any, adapter: GPUAdapter):
        super().__init__(label, BRIDGE.put(device))
        self.adapter = adapter
        self.features = features_of(device.features)
        self.limits = limits_of(device.limits)
        self.queue = GPUQueue(self)

    @property
    def adapter_info(self) -> GPUAdapterInfo:
        return self.adapter.info

    @property
    def lost_async(self) -> GPUPromise[GPUDeviceLostInfo]:
        """A promise that is kept when the device is lost."""
        return GPUPromise(
            "lost", BRIDGE.lost(self._internal), lambda info: GPUDeviceLostInfo(info.reason, info.message)
        )

    @property
    def lost_sync(self) -> GPUDeviceLostInfo:
        return self.lost_async.sync_wait()

    def destroy(self) -> None:
        call(BRIDGE.destroy, self._internal)

    # Buffers

    def create_buffer(
        self, *, label: str = "", size: int, usage: int | str, mapped_at_creation: bool = False
    ) -> GPUBuffer:
        flags = bits(BufferUsage, usage)
        number = call(BRIDGE.createBuffer, self._internal, int(size), flags, bool(mapped_at_creation), label)
        return GPUBuffer(label, number, self, int(size), flags, "mapped" if mapped_at_creation else "unmapped")

    def adopt_buffer(self, buffer: Any) -> GPUBuffer:
        """A `GPUBuffer` that JavaScript made with this device. Not in wgpu."""
        return GPUBuffer("", BRIDGE.put(buffer), self, int(buffer.size), int(buffer.usage), buffer.mapState)

    def create_buffer_with_data(self, *, label: str = "", data: Any, usage: int | str) -> GPUBuffer:
        """A buffer filled with `data`, as large as that, rounded up to four bytes."""
        view = memoryview(data).cast("B")
        size = -(-view.nbytes // 4) * 4
        buffer = self.create_buffer(label=label, size=size, usage=usage, mapped_at_creation=True)
        call(BRIDGE.writeMapped, buffer._internal, 0, size, 0, view)
        buffer.unmap()
        return buffer

    # Bindings

    def create_bind_group_layout(self, *, label: str = "", entries: Sequence[Mapping[str, Any]]) -> GPUBindGroupLayout:
        rows = array("d")
        for entry in entries:
            buffer = entry.get("buffer")
            if buffer is None:
                raise NotImplementedError("this backend binds buffers only")
            rows.extend(
                (
                    entry["binding"],
                    bits(ShaderStage, entry["visibility"]),
                    BINDING_TYPES[buffer.get("type") or "uniform"],
                    bool(buffer.get("has_dynamic_offset")),
                    buffer.get("min_binding_size") or 0,
                )
            )
        return GPUBindGroupLayout(label, call(BRIDGE.createBindGroupLayout, self._internal, rows, label), self)

    def create_pipeline_layout(
        self, *, label: str = "", bind_group_layouts: Sequence[GPUBindGroupLayout], immediate_size: int = 0
    ) -> GPUPipelineLayout:
        numbers = array("d", [layout._internal for layout in bind_group_layouts])
        return GPUPipelineLayout(label, call(BRIDGE.createPipelineLayout, self._internal, numbers, label), self)

    def create_bind_group(
        self, *, label: str = "", layout: GPUBindGroupLayout, entries: Sequence[Mapping[str, Any]]
    ) -> GPUBindGroup:
        rows = array("d")
        buffers = []
        for entry in entries:
            resource = entry["resource"]
            part: Mapping[str, Any] = {"buffer": resource} if isinstance(resource, GPUBuffer) else resource
            size = part.get("size")
            buffers.append(part["buffer"])
            rows.extend(
                (entry["binding"], part["buffer"]._internal, part.get("offset") or 0, -1 if size is None else size)
            )
        number = call(BRIDGE.createBindGroup, self._internal, layout._internal, rows, label)
        return GPUBindGroup(label, number, self, buffers)

    # Shaders and pipelines

    def create_shader_module(
        self, *, label: str = "", code: str, compilation_hints: Sequence[Any] = ()
    ) -> GPUShaderModule:
        """A shader module from WGSL. What is wrong with it is raised when a pipeline is made of it."""
        return GPUShaderModule(label, call(BRIDGE.createShaderModule, self._internal, code, label), self, code)

    def create_compute_pipeline(
        self, *, label: str = "", layout: Any, compute: Mapping[str, Any]
    ) -> GPUComputePipeline:
        """A pipeline, compiled when it is first used. Errors in its shader go to the error scope: the asynchronous
        form raises them."""
        number = call(BRIDGE.createComputePipeline, *self._pipeline_arguments(label, layout, compute))
        return GPUComputePipeline(label, number, self)

    def create_compute_pipeline_async(
        self, *, label: str = "", layout: Any, compute: Mapping[str, Any]
    ) -> GPUPromise[GPUComputePipeline]:
        """A pipeline, compiled without holding up anything. Rejected with a `GPUPipelineError` that quotes the
        shader's lines."""
        code = compute["module"].code

        def handler(result: Any) -> GPUComputePipeline:
            if isinstance(result, int):
                return GPUComputePipeline(label, result, self)
            reason, message, rows = result.to_py()
            report = shader_report(code, compilation_messages(rows))
            raise GPUPipelineError(report or message, {"reason": reason})

        promise = call(BRIDGE.createComputePipelineAsync, *self._pipeline_arguments(label, layout, compute))
        return GPUPromise("create_compute_pipeline", promise, handler)

    def _pipeline_arguments(self, label: str, layout: Any, compute: Mapping[str, Any]) -> tuple[Any, ...]:
        constants = compute.get("constants")
        return (
            self._internal,
            0 if layout in (None, "auto") else layout._internal,
            compute["module"]._internal,
            compute.get("entry_point"),
            js_object(constants) if constants else None,
            label,
        )

    # Commands and errors

    def create_command_encoder(self, *, label: str = "") -> GPUCommandEncoder:
        return GPUCommandEncoder(label, self)

    def push_error_scope(self, filter: str) -> None:
        call(BRIDGE.pushErrorScope, self._internal, filter)

    def pop_error_scope_async(self) -> GPUPromise[GPUError | None]:
        """The first error since the matching `push_error_scope`, or `None`."""

        def handler(error: Any) -> GPUError | None:
            return None if error is None else scoped_error(*error.to_py())

        return GPUPromise("pop_error_scope", call(BRIDGE.popErrorScope, self._internal), handler)

    def pop_error_scope_sync(self) -> GPUError | None:
        return self.pop_error_scope_async().sync_wait()


class GPUBuffer(Handle):
    """Memory of the device. Made by `GPUDevice.create_buffer`."""

    def __init__(self, label: str, number: int, device: GPUDevice, size: int, usage: int, map_state: str):
        super().__init__(label, number, device)
        self.size = size
        self.usage = usage
        self.map_state = map_state
        self._mapped = (0, size)

    @property
    def js(self) -> Any:
        """JavaScript's `GPUBuffer`. Not in wgpu."""
        return BRIDGE.get(self._internal)

    def map_async(self, mode: int | str, offset: int = 0, size: int | None = None) -> GPUPromise[None]:
        count = self.size - offset if size is None else size
        promise = call(BRIDGE.mapAsync, self._internal, bits(MapMode, mode), offset, count)
        self.map_state = "pending"

        def handler(_: Any) -> None:
            self.map_state = "mapped"
            self._mapped = (offset, count)

        return GPUPromise("map", promise, handler)

    def map_sync(self, mode: int | str, offset: int = 0, size: int | None = None) -> None:
        self.map_async(mode, offset, size).sync_wait()

    def unmap(self) -> None:
        call(BRIDGE.unmap, self._internal)
        self.map_state = "unmapped"

    def read_mapped(
        self, buffer_offset: int | None = None, size: int | None = None, *, copy: bool = True
    ) -> memoryview:
        """The mapped bytes. JavaScript's memory is not Python's: this is always a copy."""
        self._check_mapped()
        start, length = self._mapped
        offset = 0 if buffer_offset is None else buffer_offset - start
        data = bytearray(length - offset if size is None else size)
        if offset < 0 or offset + len(data) > length:
            raise ValueError(f"only the bytes {start} to {start + length} are mapped")
        call(BRIDGE.readMapped, self._internal, start, length, offset, len(data), data)
        return memoryview(data)

    def write_mapped(self, data: Any, buffer_offset: int | None = None) -> None:
        self._check_mapped()
        start, length = self._mapped
        view = memoryview(data).cast("B")
        offset = 0 if buffer_offset is None else buffer_offset - start
        if offset < 0 or offset + view.nbytes > length:
            raise ValueError(f"only the bytes {start} to {start + length} are mapped")
        call(BRIDGE.writeMapped, self._internal, start, length, offset, view)

    def _check_mapped(self) -> None:
        if self.map_state != "mapped":
            raise RuntimeError("the buffer is not mapped: map it first")

    def destroy(self) -> None:
        call(BRIDGE.destroy, self._internal)


class GPUQueue:
    """The device's queue: work and writes are done in the order in which they are given to it."""

    def __init__(self, device: GPUDevice):
        self.label = ""
        # The device's number, not the device: a cycle would keep both from going away in time.
        self._number = device._internal

    def submit(self, command_buffers: Sequence[GPUCommandBuffer]) -> None:
        """Encode recorded commands and run them. Command buffers that are not reusable are spent."""
        kept = array("d")
        for commands in command_buffers:
            if commands.operations is None and not commands.reusable:
                raise RuntimeError("a command buffer can be submitted only once, unless it was finished as reusable")
            if not commands.reusable:
                if kept:
                    call(BRIDGE.submit, self._number, kept)
                    kept = array("d")
                call(BRIDGE.submitOnce, self._number, commands.operations, commands.label)
                commands.operations = None
                continue
            if commands.operations is not None:
                commands._internal = call(BRIDGE.keep, commands.operations)
                commands.operations = None
            kept.append(commands._internal)
        if kept:
            call(BRIDGE.submit, self._number, kept)

    def write_buffer(
        self, buffer: GPUBuffer, buffer_offset: int, data: Any, data_offset: int = 0, size: int | None = None
    ) -> None:
        """Copy bytes to a buffer. `data` is a Python buffer, or (this backend's own) a typed array of JavaScript's;
        offset and size count bytes."""
        source = data
        if hasattr(data, "byteLength"):
            available = int(data.byteLength)
        else:
            source = memoryview(data).cast("B")
            available = source.nbytes
        count = available - data_offset if size is None else size
        call(BRIDGE.writeBuffer, self._number, buffer._internal, buffer_offset, source, data_offset, count)

    def read_buffer_async(
        self, buffer: GPUBuffer, buffer_offset: int = 0, size: int | None = None
    ) -> GPUPromise[memoryview]:
        """The bytes of a buffer, through a temporary one. wgpu has the blocking form only."""
        count = buffer.size - buffer_offset if size is None else size

        async def read() -> memoryview:
            device = buffer._device
            staging = device.create_buffer(size=count, usage=BufferUsage.MAP_READ | BufferUsage.COPY_DST)
            encoder = device.create_command_encoder()
            encoder.copy_buffer_to_buffer(buffer, buffer_offset, staging, 0, count)
            self.submit([encoder.finish()])
            try:
                await staging.map_async(MapMode.READ)
                return staging.read_mapped()
            finally:
                staging.destroy()

        return GPUPromise("read_buffer", read())

    def read_buffer(self, buffer: GPUBuffer, buffer_offset: int = 0, size: int | None = None) -> memoryview:
        return self.read_buffer_async(buffer, buffer_offset, size).sync_wait()

    def on_submitted_work_done_async(self) -> GPUPromise[None]:
        return GPUPromise("on_submitted_work_done", call(BRIDGE.submittedWorkDone, self._number), lambda _: None)

    def on_submitted_work_done_sync(self) -> None:
        self.on_submitted_work_done_async().sync_wait()


class GPUShaderModule(Handle):
    """A shader. Made by `GPUDevice.create_shader_module`."""

    def __init__(self, label: str, number: int, device: GPUDevice, code: str):
        super().__init__(label, number, device)
        self.code = code

    def get_compilation_info_async(self) -> GPUPromise[GPUCompilationInfo]:
        def handler(rows: Any) -> GPUCompilationInfo:
            return GPUCompilationInfo(compilation_messages(rows.to_py()))

        return GPUPromise("get_compilation_info", BRIDGE.messages(self._internal), handler)

    def get_compilation_info_sync(self) -> GPUCompilationInfo:
        return self.get_compilation_info_async().sync_wait()


class GPUComputePipeline(Handle):
    """A compiled shader. Made by `GPUDevice.create_compute_pipeline_async`."""

    def get_bind_group_layout(self, index: int) -> GPUBindGroupLayout:
        return GPUBindGroupLayout("", call(BRIDGE.bindGroupLayout, self._internal, index), self._device)


class GPUBindGroupLayout(Handle):
    """Which buffers a group of bindings has."""


class GPUPipelineLayout(Handle):
    """The bind group layouts of a pipeline."""


class GPUBindGroup(Handle):
    """Buffers for a group of bindings."""

    def __init__(self, label: str, number: int, device: GPUDevice, buffers: list[GPUBuffer]):
        super().__init__(label, number, device)
        self._buffers = buffers
