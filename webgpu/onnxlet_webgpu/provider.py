"""The WebGPU execution provider: compute shaders on the desktop through `wgpu`, in pages through `navigator.gpu`."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from onnxlet.errors import FeedError, ProviderError, UnsupportedError
from onnxlet.graph.ir import TensorType
from onnxlet.providers.base import DeviceValue, Executable, ProviderInfo, Segment, Step

if TYPE_CHECKING:
    import numpy as np

    from .device import Device

NAME = "WebGpuExecutionProvider"


class WebGpuProvider:
    """One session's GPU: a device, its pipelines and its memory."""

    name = NAME
    device_type = "webgpu"

    def __init__(self, device: Device, options: Mapping[str, Any]):
        self.options = options
        self._use(device)

    def _use(self, device: Device) -> None:
        from .memory import Arena, Pool, Weights
        from .sizes import Sizes

        self.device = device
        self.pool = Pool(device)
        self.arena = Arena(self.pool)
        self.weights = Weights(device)
        self.sizes = Sizes()

    @property
    def progress(self) -> Callable[[str, int, int], None] | None:
        """Is told of every shader that is compiled: what it computes, how many are done, and of how many."""
        return self.device.progress

    @progress.setter
    def progress(self, listener: Callable[[str, int, int], None] | None) -> None:
        self.device.progress = listener

    @property
    def is_lost(self) -> bool:
        return self.device.lost is not None

    async def restore(self) -> None:
        """Replace a lost device by a new one, with nothing on it. Raises `ProviderError` where there is none."""
        self._use(await _device(self.options))

    @property
    def adapter_info(self) -> dict[str, Any]:
        """What the adapter says about itself: vendor, architecture, device, description."""
        return self.device.adapter_info

    def supports(self, step: Step) -> str | None:
        """`None` if there are kernels for exactly this step, else why not."""
        from .lowering import Refusal, lower

        try:
            lower(step, self.device.target)
        except Refusal as refusal:
            return str(refusal)
        return None

    def compile(self, segment: Segment) -> Executable:
        """Make a segment's kernels, upload its weights, and begin to compile its shaders."""
        from .executable import GpuExecutable

        self.device.check()
        return GpuExecutable(segment, self.device, self.pool, self.arena, self.weights, self.sizes)

    def upload(self, array: np.ndarray) -> DeviceValue:
        """An array's copy in the device's memory. Raises `LimitError` where there is no room."""
        from .memory import GpuTensor, Held
        from .storage import stored

        values = stored(array)
        self.device.check()
        held = Held(self.pool, values.nbytes)
        self.device.write(held.buffer, values)
        return GpuTensor(held, TensorType(array.dtype, array.shape))

    def adopt(self, buffer: Any, type_: TensorType) -> DeviceValue:
        """A `GPUBuffer` that the page made with this device (the option `device`) as a value; it stays the page's.

        Raises `FeedError` for a buffer that is too small or may not be read by shaders, `UnsupportedError` for element
        types that are kept in another form.
        """
        from .browser_wgpu.flags import BufferUsage
        from .memory import AS_THEY_ARE, Borrowed, GpuTensor
        from .storage import stored_bytes

        if type_.dtype not in AS_THEY_ARE:
            raise UnsupportedError(f"{type_} is kept in another form on the GPU: feed it from the CPU")
        handle, needed = self.device.handle.adopt_buffer(buffer), stored_bytes(type_)
        if handle.size < needed:
            raise FeedError(f"{type_} takes {needed} bytes, but its GPU buffer has {handle.size}")
        if ~handle.usage & (BufferUsage.STORAGE | BufferUsage.COPY_SRC):
            raise FeedError("a tensor's GPU buffer needs the usages STORAGE and COPY_SRC")
        return GpuTensor(Borrowed(self.pool, handle), type_)

    async def prepare(self, constant_bytes: int) -> None:
        """Nothing to wait for: the device is there."""

    def wait(self, awaitable: Awaitable[Any]) -> Any:
        """Block until an awaitable is done. Raises `ProviderError` where the host can't block."""
        from .device import block

        return block(awaitable, "the asynchronous form: `await session.run_async(...)`")

    def memory_stats(self) -> dict[str, int]:
        """Bytes on the device: weights, scratch shared by all segments, other buffers in use, and kept for reuse."""
        arena = self.arena.nbytes
        parts = {
            "weights": self.weights.nbytes,
            "arena": arena,
            "other": self.pool.used_bytes - arena,
            "pooled": self.pool.free_bytes,
        }
        return {**parts, "total": sum(parts.values())}

    def close(self) -> None:
        """Free everything on the device, and the device."""
        self.weights.close()
        self.pool.close()
        self.device.close()


@lru_cache(maxsize=1)
def available() -> str | None:
    """`None` if a GPU can be used here, else why not. In a browser only creation tells whether there is an adapter."""
    from .device import desktop_adapter, no_adapter

    if sys.platform == "emscripten":
        import js  # type: ignore[import-not-found]

        if getattr(js.navigator, "gpu", None) is None:
            return (
                "this browser has no WebGPU (navigator.gpu is missing): it is too old, or the page is not secure "
                "(https or localhost)"
            )
        return None
    try:
        import wgpu
    except ImportError:
        return "the wgpu package is not installed: pip install onnxlet[webgpu]"
    try:
        desktop_adapter(wgpu, "high-performance")
    except ProviderError as error:
        return str(error)
    except Exception as error:
        return no_adapter(error)
    return None


def create(options: Mapping[str, Any]) -> WebGpuProvider:
    """A provider on a new device. In a browser this needs JSPI; `create_async` works everywhere."""
    from .device import block

    return block(create_async(options), "`await InferenceSession.create(...)`")


async def create_async(options: Mapping[str, Any]) -> WebGpuProvider:
    """A provider on a new device. Raises `ProviderError` where there is none. For the options see `request_device`.

    The option `same_device_as`, a session, makes it use that one's device: values that stay there feed both. In a page,
    the option `device` is a `GPUDevice` of JavaScript's to use.
    """
    reason = available() if sys.platform == "emscripten" else _without_wgpu()
    if reason is not None:
        raise ProviderError(reason)
    return WebGpuProvider(await _device(options), options)


async def _device(options: Mapping[str, Any]) -> Device:
    """The device of the session that the options name, if it has one that works, else a new one."""
    from .device import Device, request_device, wgpu_module

    other = options.get("same_device_as")
    for provider in getattr(other, "_providers", ()):
        if isinstance(provider, WebGpuProvider) and not provider.is_lost and not provider.device.closed:
            provider.device.users += 1
            return provider.device
    given = options.get("device")
    if given is not None:
        module = wgpu_module()
        adapter = module.GPUAdapter(given)
        device = Device(module, adapter, module.GPUDevice("", given, adapter), options)
        device.users += 1  # it is the page's, and outlives the sessions
        return device
    return await request_device(options)


def _without_wgpu() -> str | None:
    try:
        import wgpu  # noqa: F401
    except ImportError:
        return "the wgpu package is not installed: pip install onnxlet[webgpu]"
    return None


PROVIDER = ProviderInfo(NAME, ("webgpu",), available, create, create_async)
