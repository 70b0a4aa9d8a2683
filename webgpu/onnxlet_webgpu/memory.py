"""The device's memory: a pool of buffers by size class, a scratch arena for segments, and weights uploaded once."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onnxlet.errors import DeviceLostError, ProviderError
from onnxlet.graph.ir import TensorType
from onnxlet.model.tensors import Tensor
from onnxlet.providers.base import DeviceValue

from .device import Device, Recording, block
from .lowering import Derived
from .storage import host_array, stored, stored_bytes, widened

MIN_CLASS = 256

AS_THEY_ARE = tuple(map(np.dtype, (np.float32, np.int32, np.uint32, np.int64, np.uint64, np.float64)))
"""Element types whose bytes are the same on the host and on the device."""


def size_class(nbytes: int) -> int:
    """The size that is allocated for a request: at most a quarter more, and at least 256 bytes."""
    if nbytes <= MIN_CLASS:
        return MIN_CLASS
    step = max(MIN_CLASS, 1 << (nbytes - 1).bit_length() - 3)
    return -(-nbytes // step) * step


@dataclass(eq=False)
class GpuValue:
    """A value that stays on the device. `type` is its element type and shape there."""

    buffer: Any
    type: TensorType


@dataclass(slots=True)
class Pool:
    """Free buffers by size class. At most `cap` bytes are kept for later; what comes back above it is destroyed."""

    device: Device
    cap: int = 256 << 20
    free: dict[tuple[int, int], list[Any]] = field(default_factory=dict)
    free_bytes: int = 0
    used_bytes: int = 0
    closed: bool = False

    def size(self, nbytes: int) -> int:
        """The size of the buffer for a request."""
        return min(size_class(nbytes), max(self.device.target.max_buffer_bytes // 4 * 4, nbytes))

    def has(self, nbytes: int, usage: int) -> bool:
        """Whether there is a free buffer for a request."""
        return bool(self.free.get((self.size(nbytes), usage)))

    def take(self, nbytes: int, usage: int) -> Any:
        size = self.size(nbytes)
        self.used_bytes += size
        waiting = self.free.get((size, usage))
        if waiting:
            self.free_bytes -= size
            return waiting.pop()
        return self.device.buffer(size, usage)

    def give(self, buffer: Any) -> None:
        size = buffer.size
        self.used_bytes -= size
        if self.closed or self.free_bytes + size > self.cap:
            buffer.destroy()
            return
        self.free_bytes += size
        self.free.setdefault((size, buffer.usage), []).append(buffer)

    def close(self) -> None:
        """Destroy what is free. What is in use is destroyed when it comes back."""
        self.closed = True
        for buffers in self.free.values():
            for buffer in buffers:
                buffer.destroy()
        self.free.clear()
        self.free_bytes = 0


class Held:
    """A buffer of a pool's, which goes back there when nobody refers to it any more."""

    __slots__ = ("buffer", "pool")

    def __init__(self, pool: Pool, nbytes: int):
        self.pool = pool
        usage = pool.device.storage
        # Only a new buffer is something to wait for the browser's word on.
        with nullcontext() if pool.has(nbytes, usage) else pool.device.allocating():
            self.buffer = pool.take(nbytes, usage)

    def __del__(self) -> None:
        if hasattr(self, "buffer") and not self.pool.device.closed:
            self.pool.give(self.buffer)


@dataclass(slots=True)
class Borrowed:
    """A buffer of a page's own, made with the same device."""

    pool: Pool
    buffer: Any


class GpuTensor(GpuValue, DeviceValue):
    """A value on the device that belongs to a caller."""

    device_type = "webgpu"

    def __init__(self, held: Held | Borrowed, type_: TensorType):
        GpuValue.__init__(self, held.buffer, type_)
        self.held = held
        self.device = held.pool.device

    def check(self) -> None:
        """Raise `DeviceLostError` if the device was lost, `ProviderError` if it was closed: the data are gone."""
        try:
            self.device.check()
        except DeviceLostError as error:
            raise DeviceLostError(f"a value of type {self.type} was on a device that is gone: {error}") from error
        except ProviderError as error:
            raise ProviderError(f"a value of type {self.type} was on a device that is gone: {error}") from error

    @property
    def js_buffer(self) -> Any:
        """JavaScript's `GPUBuffer`, in a page, if the elements are in it as JavaScript would have them; else `None`."""
        return self.buffer.js if self.dtype in AS_THEY_ARE else None

    def usable_on(self, provider: Any) -> bool:
        """Whether a provider's segments can read the value where it lies."""
        return getattr(provider, "device", None) is self.device

    async def read(self) -> np.ndarray:
        """Copy the data to the host, into `host`."""
        if self.host is None:
            self.check()
            try:
                host = host_array(await self._bytes(), self.type)
            except DeviceLostError:
                self.check()
                raise
            host.flags.writeable = False
            self.host = host
        return self.host

    async def _bytes(self) -> memoryview:
        pool, nbytes = self.held.pool, stored_bytes(self.type)
        with self.device.allocating():
            staging = pool.take(nbytes, self.device.staging)
        try:
            await self.device.settle()
            data = await self.device.run(Recording([], [(self.buffer, staging, 0, nbytes)]), staging, nbytes)
        except BaseException:
            # Whether it is mapped is not known: it must not be used again.
            pool.used_bytes -= staging.size
            staging.destroy()
            raise
        pool.give(staging)
        assert data is not None
        return data

    def wait(self, awaitable: Awaitable[Any]) -> Any:
        """Block until `read` is done. Raises `ProviderError` where the host can't block."""
        return block(awaitable, "the asynchronous form: `await value.numpy_async()`, `await session.run_async(...)`")


@dataclass(slots=True)
class Arena:
    """Scratch buffers that all segments of a session share: the queue runs them one after another.

    A segment's plan takes buffers from `Layout`s of its own; the arena only owns them.
    """

    pool: Pool
    buffers: list[Any] = field(default_factory=list)
    users: int = 0

    def layout(self) -> Layout:
        self.users += 1
        return Layout(self, list(self.buffers))

    def leave(self) -> None:
        """A segment is closed. When the last one is, the buffers go back to the pool."""
        self.users -= 1
        if self.users == 0:
            for buffer in self.buffers:
                self.pool.give(buffer)
            self.buffers.clear()

    @property
    def nbytes(self) -> int:
        return sum(buffer.size for buffer in self.buffers)


@dataclass(slots=True)
class Layout:
    """One segment's use of the arena: which buffers are free at the point that is being planned."""

    arena: Arena
    free: list[Any]
    added: list[Any] = field(default_factory=list)

    def take(self, nbytes: int) -> Any:
        """The smallest free buffer that fits and is not more than twice too large, else a new one."""
        wanted = size_class(nbytes)
        fitting = [b for b in self.free if nbytes <= b.size <= 2 * wanted]
        if fitting:
            best = min(fitting, key=lambda b: b.size)
            self.free.remove(best)
            return best
        buffer = self.arena.pool.take(nbytes, self.arena.pool.device.storage)
        self.arena.buffers.append(buffer)
        self.added.append(buffer)
        return buffer

    def discard(self) -> None:
        """Destroy what was added to the arena: the device had no room for some of it."""
        for buffer in self.added:
            if buffer in self.arena.buffers:
                self.arena.buffers.remove(buffer)
                self.arena.pool.used_bytes -= buffer.size
                buffer.destroy()
        self.added.clear()

    def give(self, buffer: Any) -> None:
        self.free.append(buffer)


@dataclass(slots=True, eq=False)
class Weight:
    """A constant on the device. `sources` are kept so that the identities that the cache is keyed by stay theirs."""

    buffer: Any
    sources: tuple[Tensor, ...]
    users: int = 0


@dataclass(slots=True)
class Weights:
    """Constants on the device, uploaded once per session and shared by all its plans."""

    device: Device
    held: dict[tuple[Any, ...], Weight] = field(default_factory=dict)
    nbytes: int = 0

    def plain(self, tensor: Tensor) -> tuple[Any, ...]:
        """Upload a tensor as it is (booleans widened), unless it is there. Returns its key, to be given back by
        `release`. The bytes go straight from where they lie."""
        return self._hold((id(tensor),), (tensor,), None)

    def derived(self, rule: Derived, sources: Sequence[Tensor]) -> tuple[Any, ...]:
        """Upload a constant that is made from others, unless it is there. Returns its key."""
        if sources:
            return self._hold((rule.tag, *(id(t) for t in sources)), tuple(sources), rule)
        return self._hold((rule.tag, rule.make().tobytes()), (), rule)

    def buffer(self, key: tuple[Any, ...]) -> Any:
        return self.held[key].buffer

    def release(self, key: tuple[Any, ...]) -> None:
        weight = self.held[key]
        weight.users -= 1
        if weight.users == 0:
            self.nbytes -= weight.buffer.size
            weight.buffer.destroy()
            del self.held[key]

    def _hold(self, key: tuple[Any, ...], sources: tuple[Tensor, ...], rule: Derived | None) -> tuple[Any, ...]:
        weight = self.held.get(key)
        if weight is None:
            if rule is None and sources[0].dtype in AS_THEY_ARE:
                buffer = self._new(sources[0].nbytes)
                self.device.write_tensor(buffer, sources[0])
            else:
                values = [widened(t.numpy()) for t in sources]
                array = values[0] if rule is None else rule.make(*values)
                array = array.astype(np.float16) if rule is not None and rule.half else stored(array)
                buffer = self._new(array.nbytes)
                self.device.write(buffer, array)
            weight = self.held[key] = Weight(buffer, sources)
        weight.users += 1
        return key

    def _new(self, nbytes: int) -> Any:
        buffer = self.device.buffer(-(-nbytes // 16) * 16, self.device.storage)
        self.nbytes += buffer.size
        return buffer

    def close(self) -> None:
        for weight in self.held.values():
            weight.buffer.destroy()
        self.held.clear()
        self.nbytes = 0
