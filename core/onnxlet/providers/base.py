"""What an execution provider is, and what it is asked.

A provider is asked twice. `supports` decides per node, with concrete types and shapes, before anything runs: `None`
means "I have a kernel for exactly this", anything else is the reason why not, and the next provider is asked; saying
no is always right. `compile` then gets a *segment*, a run of nodes that it said yes to, and returns an `Executable`.

Providers live in packages of their own (`onnxlet_wasm`, `onnxlet_webgpu`); `onnxlet` finds them by name through
`onnxlet.providers`, so that the arrows of import point one way.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from ..graph.ir import Node, TensorType
from ..model.tensors import Tensor


@dataclass(slots=True, eq=False)
class Step:
    """A node with everything that is known about it at plan time.

    `inputs` and `outputs` are the types in the order of the node's names (`None` for an absent one); those of inputs
    are concrete. `constants` maps the names of inputs whose values are known to their tensors.
    """

    node: Node
    inputs: list[TensorType | None]
    outputs: list[TensorType | None]
    constants: Mapping[str, Tensor]

    def constant(self, index: int) -> np.ndarray | None:
        """The value of input `index` where it is known, else `None`."""
        if index >= len(self.node.inputs):
            return None
        tensor = self.constants.get(self.node.inputs[index])
        return None if tensor is None else tensor.numpy()

    def attribute(self, name: str, default: Any = None) -> Any:
        return self.node.attributes.get(name, default)


@dataclass(slots=True, eq=False)
class Segment:
    """A run of steps on one provider.

    `inputs` come from outside, in the order in which `Executable.run` gets them; `outputs` in the order in which it
    returns them. An output whose name is in `resident` is read by no one but later segments of the same provider,
    which may therefore return a handle of its own instead of an array, and gets it back as an input there.
    `constants` holds every tensor that the steps refer to by name and that is not an input.
    """

    steps: list[Step]
    inputs: list[str]
    outputs: list[str]
    types: Mapping[str, TensorType]
    constants: Mapping[str, Tensor]
    resident: frozenset[str] = frozenset()
    staying: frozenset[str] = frozenset()
    """Resident outputs that the caller keeps: they come back as `DeviceValue`s, which no later run writes to."""


class DeviceValue:
    """A tensor in a device's memory that belongs to a caller. It never changes; letting go of it frees it.

    `host` is a read-only copy on the host, once there is one.
    """

    device_type: str = ""
    type: TensorType
    host: np.ndarray | None = None

    @property
    def dtype(self) -> np.dtype:
        assert self.type.dtype is not None
        return self.type.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.dims

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def check(self) -> None:
        """Raise `DeviceLostError` if the device was lost, `ProviderError` if it was closed: the data are gone."""
        raise NotImplementedError

    def usable_on(self, provider: Provider | None) -> bool:
        """Whether a provider's segments can read the value where it lies."""
        raise NotImplementedError

    def read(self) -> Awaitable[np.ndarray]:
        """Copy the data to the host, into `host`."""
        raise NotImplementedError

    def wait(self, awaitable: Awaitable[Any]) -> Any:
        """Block until `read` is done. Raises `ProviderError` where the host can't block."""
        raise NotImplementedError


Value = Any
"""An `np.ndarray`, or a provider's own handle for a resident value."""


class Executable(Protocol):
    """A compiled segment."""

    def run(self, values: Sequence[Value]) -> Sequence[Value] | Awaitable[Sequence[Value]]:
        """Compute the outputs. A provider that has to wait for its device returns an awaitable."""
        ...

    def close(self) -> None:
        """Free what belongs to this segment alone."""
        ...


class Provider(Protocol):
    """An execution provider, one instance per session.

    One whose device can be lost raises `DeviceLostError` then, has a property `is_lost`, and a coroutine `restore` that
    makes a new device, for which everything has to be compiled again.

    One whose outputs can stay in a device's memory has a `device_type` other than "cpu" and a method `upload`, which
    makes a `DeviceValue` of an array.
    """

    name: str
    """What users call it, for example ``WebGpuExecutionProvider``."""

    def supports(self, step: Step) -> str | None:
        """`None` if this provider computes the step right, else why not, as a short phrase for people."""
        ...

    def compile(self, segment: Segment) -> Executable: ...

    async def prepare(self, constant_bytes: int) -> None:
        """Called at the end of asynchronous session creation for the provider that is asked first: a chance to wait
        for what runs will want. `constant_bytes` is the size of the model's weights."""
        ...

    def wait(self, awaitable: Awaitable[Any]) -> Any:
        """Block until an awaitable that `Executable.run` returned is done. Raises `ProviderError` where the host
        can't block (a page without JSPI)."""
        ...

    def memory_stats(self) -> dict[str, int]:
        """Bytes held now, by kind, for example ``{"weights": ..., "arena": ..., "total": ...}``."""
        ...

    def close(self) -> None: ...


@dataclass(slots=True)
class ProviderInfo:
    """An entry of the registry: how to find out whether a provider works here, and how to make one.

    `available` returns `None` or the reason why it is not. `create` takes the user's options and returns a `Provider`;
    where creation is asynchronous on some hosts (a browser's GPU adapter), `create_async` is set as well.
    """

    name: str
    aliases: tuple[str, ...]
    available: Callable[[], str | None]
    create: Callable[[Mapping[str, Any]], Provider]
    create_async: Callable[[Mapping[str, Any]], Awaitable[Provider]] | None = None
    extra: dict[str, Any] = field(default_factory=dict)
