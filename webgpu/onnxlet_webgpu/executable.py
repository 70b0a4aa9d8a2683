"""A segment compiled for the GPU: kernels, pipelines, buffers, and the recording that a run replays."""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from onnxlet.errors import LimitError
from onnxlet.providers.base import Segment

from .device import IN_BROWSER, Device, Dispatch, Pipeline, Recording, finish
from .fusion import fuse
from .kernel import Binding, Kernel
from .lowering import Derived, lower
from .memory import Arena, GpuTensor, GpuValue, Held, Pool, Weights
from .operators.movement import check_indices
from .sizes import Sizes
from .storage import host_array, stored, stored_bytes

ALIGNMENT = 16
"""Outputs start at multiples of this many bytes in the staging buffer."""


class GpuExecutable:
    """Runs a segment: writes the inputs, replays the recording, reads all outputs back at once."""

    def __init__(self, segment: Segment, device: Device, pool: Pool, arena: Arena, weights: Weights, sizes: Sizes):
        self.device, self.pool, self.arena, self.weights = device, pool, arena, weights
        self.outputs = segment.outputs
        self.inputs = segment.inputs
        self.types = {name: segment.types[name] for name in (*segment.inputs, *segment.outputs)}
        self.aliases: dict[str, str] = {}
        derived: dict[str, Derived] = {}
        kernels: list[Kernel] = []
        self.index_limits: dict[str, list[int | tuple[int, ...]]] = {}
        for step in segment.steps:
            lowered = lower(step, device.target, self.aliases, derived)
            for kernel in lowered.kernels:
                kernel.node = step.node.label
            kernels += lowered.kernels
            for name, limit in lowered.index_limits:
                self.index_limits.setdefault(name, []).append(limit)
        self.roots = {name: self.aliases.get(name, name) for name in segment.outputs if segment.types[name].size}
        self.kernels = fuse(kernels, set(self.roots.values()), device.target.max_bindings)
        self.notes = {kernel.node: kernel.note for kernel in self.kernels if kernel.note}
        self.bindings: list[list[Binding]] = []
        self.pipelines: list[Pipeline] = []
        self.tables: dict[str, np.ndarray] = {}
        shaders = [kernel.assemble() for kernel in self.kernels]
        target = device.target
        shared = sizes.shared(shaders, target.max_bindings, target.software)
        for number, (text, bindings, values) in enumerate(shared, 1):
            if values:
                self.tables[bindings[-2].value] = np.array(values, np.uint32)
            self.bindings.append(bindings)
            self.pipelines.append(device.pipeline(text, len(bindings)))
            if self.pipelines[-1].pending is None:
                device.tell(text, number, len(self.kernels))
        self.resident = [name for name in self.roots if name in segment.resident]
        self.fresh = self._fresh(segment.staying)
        self.used_inputs = self._used_inputs()
        self.buffers: dict[str, Any] = {}
        self.weight_keys: list[tuple[Any, ...]] = []
        self.owned: list[Any] = []
        self.input_buffers: dict[str, Any] = {}
        self.offsets, self.staging_bytes = self._staging_layout()
        self.idle_staging: list[Any] = []
        self.recordings: dict[tuple[Any, ...], Recording] = {}
        self.closed = False
        self.failure: LimitError | None = None
        self.layout = self.arena.layout()
        try:
            with device.allocating():
                self._place_constants(segment, derived)
                self._place_tables()
                self._place_intermediates()
        except BaseException:
            self.close()
            raise

    # What compile time fixes

    def _fresh(self, staying: Collection[str]) -> dict[str, int]:
        """Values that callers keep, and so get a new buffer in every run, with their bytes."""
        return {root: stored_bytes(self.types[name]) for name, root in self.roots.items() if name in staying}

    def _used_inputs(self) -> list[str]:
        """The inputs that a kernel or an output needs (a Reshape's shape, for one, is not needed)."""
        needed = {b.value for bindings in self.bindings for b in bindings} | set(self.roots.values())
        return [name for name in self.inputs if name in needed]

    def _place_constants(self, segment: Segment, derived: dict[str, Derived]) -> None:
        needed = dict.fromkeys(b.value for bindings in self.bindings for b in bindings[:-1])
        needed.update((root, None) for root in self.roots.values())
        for name in needed:
            if name in derived:
                rule = derived[name]
                with self._naming(f"the constant {' and '.join(map(repr, rule.sources)) or name.strip()}"):
                    key = self.weights.derived(rule, [segment.constants[s] for s in rule.sources])
            elif name in segment.constants:
                with self._naming(f"the constant {name!r} ({segment.constants[name].nbytes:,} bytes)"):
                    key = self.weights.plain(segment.constants[name])
            else:
                continue
            self.weight_keys.append(key)
            self.buffers[name] = self.weights.buffer(key)

    def _place_tables(self) -> None:
        """Upload the sizes that shaders read, equal ones once."""
        made: dict[bytes, Any] = {}
        for name, values in self.tables.items():
            buffer = made.get(values.tobytes())
            if buffer is None:
                buffer = made[values.tobytes()] = self.pool.take(values.nbytes, self.device.storage)
                self.owned.append(buffer)
                self.device.write(buffer, values)
            self.buffers[name] = buffer

    def _place_intermediates(self) -> None:
        """Give every value that a kernel writes a buffer; scratch buffers are used again once a value is dead."""
        last_use: dict[str, int] = {}
        for position, bindings in enumerate(self.bindings):
            for b in bindings:
                last_use[b.value] = position
        staying = set(self.roots.values())
        apart = {self.roots[name] for name in self.resident}
        layout = self.layout
        made: set[str] = set()
        for position, (kernel, bindings) in enumerate(zip(self.kernels, self.bindings, strict=True)):
            name, nbytes = kernel.output, kernel.nbytes
            if name not in made:
                made.add(name)
                if name in self.fresh:
                    self.fresh[name] = nbytes
                    continue
                with self._naming(f"node {kernel.node!r} ({kernel.title}: {nbytes:,} bytes)"):
                    if name in apart:
                        self.buffers[name] = self.pool.take(nbytes, self.device.storage)
                        self.owned.append(self.buffers[name])
                    else:
                        self.buffers[name] = layout.take(nbytes)
            for value in dict.fromkeys(b.value for b in bindings):
                if value in made and value not in staying and last_use[value] == position:
                    layout.give(self.buffers[value])

    @contextmanager
    def _naming(self, what: str) -> Iterator[None]:
        """Say in a `LimitError` what there was no room for, and how much is in use."""
        try:
            yield
        except LimitError as error:
            held = self.pool.used_bytes + self.weights.nbytes
            raise LimitError(f"{what} finds no room among {held:,} bytes in use: {error}") from error

    def _staging_layout(self) -> tuple[dict[str, int], int]:
        """Where each output that goes back to the host lies in the staging buffer, and the size of that."""
        offsets, total = {}, 0
        for name in self.roots:
            if name not in self.resident:
                offsets[name] = total
                total += -(-stored_bytes(self.types[name]) // ALIGNMENT) * ALIGNMENT
        return offsets, total

    # Running

    def run(self, values: Sequence[Any]) -> Sequence[Any] | Awaitable[Sequence[Any]]:
        """Compute the outputs. In a browser the result is a coroutine, on a desktop the list of outputs."""
        coroutine = self._run(values)
        return coroutine if IN_BROWSER else finish(coroutine)

    async def ready(self) -> None:
        """Wait until all shaders are compiled. Raises `LimitError` where a browser had no room for the buffers."""
        if self.failure is not None:
            raise self.failure
        await self._settled()
        await self.device.ready(self.pipelines)

    async def _settled(self) -> None:
        """Wait for the browser's word on buffers; what it had no room for is not to be used again."""
        try:
            await self.device.settle()
        except LimitError as error:
            parts = sorted(self.kernels, key=lambda kernel: -kernel.nbytes)[:3]
            sizes = ", ".join(f"{kernel.node!r} ({kernel.nbytes:,} bytes)" for kernel in parts)
            held = self.pool.used_bytes + self.weights.nbytes
            self.failure = LimitError(f"{error}. {held:,} bytes are in use; the largest values are those of {sizes}")
            self.layout.discard()
            raise self.failure from error

    async def _run(self, values: Sequence[Any]) -> list[Any]:
        await self.ready()
        self.device.check()
        given = dict(zip(self.inputs, values, strict=True))
        staging = self._allocate(given)
        try:
            kept = self._keep()
            await self._settled()
            # Nothing is awaited from here to the submission: another run of this segment would write its inputs.
            bound = {name: self._input(name, given[name]) for name in self.used_inputs}
            recording = self._recording(bound, kept, staging)
            data = await self.device.run(recording, staging, self.staging_bytes)
        except BaseException:
            # Whether it is mapped is not known: it must not be used again.
            if staging is not None:
                self._forget(staging)
            raise
        if staging is not None:
            self.idle_staging.append(staging)
        return [self._output(name, bound, kept, data) for name in self.outputs]

    def _allocate(self, given: dict[str, Any]) -> Any:
        """Make the buffers that are missing for the inputs; returns a staging buffer, or `None` if none is needed."""
        fed = [name for name in self.used_inputs if not isinstance(given[name], GpuValue)]
        missing = [name for name in fed if name not in self.input_buffers]
        if not missing and (self.idle_staging or not self.staging_bytes):
            return self.idle_staging.pop() if self.staging_bytes else None
        with self.device.allocating():
            for name in missing:
                nbytes = stored_bytes(self.types[name])
                self.input_buffers[name] = self.pool.take(nbytes, self.device.storage)
            if not self.staging_bytes:
                return None
            return (
                self.idle_staging.pop()
                if self.idle_staging
                else self.pool.take(self.staging_bytes, self.device.staging)
            )

    def _keep(self) -> dict[str, Held]:
        """New buffers for the values that the caller keeps."""
        return {root: Held(self.pool, nbytes) for root, nbytes in self.fresh.items()}

    def _input(self, name: str, value: Any) -> Any:
        """The buffer that holds an input: the one that it lies in already, or ours, filled now."""
        if isinstance(value, GpuValue):
            return value.buffer
        for limit in self.index_limits.get(name, ()):
            check_indices(value, limit, name)
        buffer = self.input_buffers[name]
        self.device.write(buffer, stored(value))
        return buffer

    def _recording(self, bound: dict[str, Any], kept: dict[str, Held], staging: Any) -> Recording:
        fresh = {root: held.buffer for root, held in kept.items()}
        key = (*bound.values(), *fresh.values(), staging)
        found = self.recordings.get(key)
        if found is not None:
            return found
        given = {**self.buffers, **bound}
        places = {**fresh, **given}
        dispatches = []
        for kernel, bindings, pipeline in zip(self.kernels, self.bindings, self.pipelines, strict=True):
            parts = [(places[b.value], b.nbytes) for b in bindings]
            dispatches.append(Dispatch(pipeline, self.device.bind_group(pipeline, parts), kernel.groups))
        copies = [
            (places[self.roots[name]], staging, offset, stored_bytes(self.types[name]))
            for name, offset in self.offsets.items()
        ]
        # What no kernel writes, an input or a constant, is copied for the caller who keeps it.
        copies += [(given[r], buffer, 0, self.fresh[r]) for r, buffer in fresh.items() if r in given]
        if len(self.recordings) >= 8:  # inputs from ever new buffers: keep the latest
            self.recordings.pop(next(iter(self.recordings)))
        recording = self.recordings[key] = Recording(dispatches, copies)
        return recording

    def _forget(self, staging: Any) -> None:
        self.pool.used_bytes -= staging.size
        self.recordings = {key: r for key, r in self.recordings.items() if key[-1] is not staging}
        staging.destroy()

    def _output(self, name: str, bound: dict[str, Any], kept: dict[str, Held], data: memoryview | None) -> Any:
        type_ = self.types[name]
        if not type_.size:
            return np.empty(type_.dims, type_.dtype)
        if name in self.resident:
            root = self.roots[name]
            if root in kept:
                return GpuTensor(kept[root], type_)
            return GpuValue(self.buffers.get(root) or bound[root], type_)
        assert data is not None
        offset = self.offsets[name]
        return host_array(data[offset : offset + stored_bytes(type_)], type_)

    def close(self) -> None:
        """Give back buffers and weights."""
        if self.closed:
            return
        self.closed = True
        self.recordings.clear()
        for buffer in (*self.owned, *self.input_buffers.values(), *self.idle_staging):
            self.pool.give(buffer)
        self.arena.leave()
        for key in self.weight_keys:
            self.weights.release(key)
