"""What the programs of one session share in the engine's memory: weights, one arena, scratch, a staging area."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from threading import RLock

import numpy as np

from onnxlet.model.tensors import Tensor

from .arena import aligned
from .derived import Derivations
from .engine import Engine
from .layouts import PLAIN, to_layout


class Memory:
    """The engine's memory as one session uses it. Addresses are the engine's; sizes are bytes."""

    def __init__(self, engine: Engine):
        self.engine = engine
        self.derivations = Derivations()
        self.closed = False
        self.arena = 0
        self.arena_size = 0
        self.generation = 0
        """Counts the moves of arena and scratch, and the closing: a program made before must look again."""
        self.scratch = 0
        self.scratch_size = 0
        """Bytes of one thread's scratch memory."""
        self.lock = RLock()
        """Held while a program uses the memory, so that closing the session elsewhere waits for it."""
        self._lanes = 1
        self._staging = 0
        self._staging_size = 0
        self._weights: dict[Hashable, int] = {}
        self._kept: dict[int, Tensor] = {}
        self._allocated: dict[int, int] = {}
        self.weight_bytes = 0
        self.program_bytes = 0

    # Allocation

    def allocate(self, nbytes: int) -> int:
        """`nbytes` for a program's own data; given back with `free`."""
        size = aligned(nbytes)
        address = self.engine.alloc(size)
        self._allocated[address] = size
        self.program_bytes += size
        return address

    def free(self, address: int) -> None:
        if self.closed:
            return
        size = self._allocated.pop(address)
        self.program_bytes -= size
        self.engine.free(address, size)

    def reserve_arena(self, nbytes: int) -> None:
        """Make the arena at least `nbytes` long. Its contents do not outlive a run, so it may move."""
        if nbytes <= self.arena_size:
            return
        self.generation += 1
        if self.arena:
            self.engine.free(self.arena, self.arena_size)
            self.arena = self.arena_size = 0
        self.arena = self.engine.alloc(nbytes)
        self.arena_size = nbytes

    def reserve_scratch(self, nbytes: int, shared: bool = False) -> None:
        """Make scratch memory at least `nbytes` long, for each thread where work is `shared` with threads."""
        lanes = self.engine.threads if shared else self._lanes
        if nbytes <= self.scratch_size and lanes == self._lanes:
            return
        self.generation += 1
        size, old = max(aligned(nbytes), self.scratch_size), self.scratch
        self.scratch = 0
        if old:
            self.engine.free(old, self._lanes * self.scratch_size)
            self.scratch_size = 0
        self.scratch = self.engine.alloc(lanes * size)
        self.scratch_size, self._lanes = size, lanes
        if lanes > 1:
            self.engine.share()
            self.engine.host.exports.control_scratch(self.engine.control, size)

    def close(self) -> None:
        """Drop the engine with everything in its memory, once no program runs."""
        with self.lock:
            if not self.closed:
                self.closed = True
                self.generation += 1
                self.engine.close()

    # Weights

    def constant(self, tensor: Tensor, layout: str = PLAIN) -> int:
        """The address of a constant's bytes in the given layout; the same for all programs of the session."""
        key = (id(tensor), layout)
        address = self._weights.get(key)
        if address is None:
            data = tensor if layout == PLAIN else to_layout(tensor.numpy(), layout)
            address = self._place(key, tensor.nbytes, lambda a: self.engine.write(a, data))
            self._kept[id(tensor)] = tensor
        return address

    def packed(self, tensor: Tensor, kind: Hashable, nbytes: int, pack: Callable[[int, int], None]) -> int:
        """The address of a constant packed as `kind` says: `pack(raw, address)` fills `nbytes` bytes from the raw ones.

        The raw bytes are in the engine's memory only until `release_staging`, or until other ones take their place.
        """
        key = (id(tensor), kind)
        address = self._weights.get(key)
        if address is None:
            address = self._place(key, nbytes, lambda a: pack(self._stage(tensor), a))
            self._kept[id(tensor)] = tensor
        return address

    def computed(self, key: Hashable, compute: Callable[[], np.ndarray], *tensors: Tensor) -> int:
        """The address of an array that follows from `tensors` (by identity) and `key` alone."""
        key = (key, *map(id, tensors))
        address = self._weights.get(key)
        if address is None:
            array = np.ascontiguousarray(compute())
            address = self._place(key, array.nbytes, lambda a: self.engine.write(a, array))
            self._kept.update((id(t), t) for t in tensors)
        return address

    def zeros(self, nbytes: int) -> int:
        """The address of at least `nbytes` zero bytes, shared by all who ask for zeros of that order of size."""
        size = 1 << max(10, (nbytes - 1).bit_length())
        address = self._weights.get(("zeros", size))
        if address is None:
            address = self._place(("zeros", size), size, lambda a: self.engine.zero(a, size))
        return address

    def _place(self, key: Hashable, nbytes: int, fill: Callable[[int], None]) -> int:
        size = aligned(nbytes)
        address = self.engine.alloc(size)
        try:
            fill(address)
        except BaseException:
            self.engine.free(address, size)
            raise
        self._weights[key] = address
        self.weight_bytes += size
        return address

    def _stage(self, tensor: Tensor) -> int:
        if tensor.nbytes > self._staging_size:
            self.release_staging()
            self._staging_size = aligned(tensor.nbytes)
            self._staging = self.engine.alloc(self._staging_size)
        self.engine.write(self._staging, tensor)
        return self._staging

    def release_staging(self) -> None:
        """Give back what packing needed."""
        if self._staging:
            self.engine.free(self._staging, self._staging_size)
            self._staging = self._staging_size = 0

    def stats(self) -> dict[str, int]:
        """Bytes held now, by kind."""
        return {
            "weights": self.weight_bytes,
            "arena": self.arena_size,
            "scratch": self._lanes * self.scratch_size,
            "programs": self.program_bytes,
            "total": self.engine.stats(),
        }
