"""A CPU segment as a program: a tape that the kernels' interpreter walks in one call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter

import numpy as np
from numpy import empty

from onnxlet.errors import SessionClosedError
from onnxlet.graph.ir import TensorType
from onnxlet.ops.common import to_float32
from onnxlet.providers.base import Segment

from .arena import assign_offsets, separate_offsets
from .compiler import Compiler, Operation, Place, Ref, Slot
from .engine import Tape
from .halves import is_half, rounded
from .layouts import size_of
from .lowering import find
from .memory import Memory


class ResidentValue:
    """A tensor that stays in the engine's memory between two segments. It lasts until its program runs again."""

    __slots__ = ("_inside", "_memory", "address", "dtype", "shape")

    def __init__(
        self,
        memory: Memory,
        address: int,
        dtype: np.dtype,
        shape: tuple[int, ...],
        outside: np.dtype | None = None,
    ):
        self._memory = memory
        self._inside = dtype
        self.address = address
        self.dtype = outside or dtype
        self.shape = shape

    @property
    def nbytes(self) -> int:
        """Bytes in the engine's memory."""
        return size_of(self.shape) * self._inside.itemsize

    def numpy(self) -> np.ndarray:
        """A copy of the tensor as an array."""
        array = self._memory.engine.read(self.address, self._inside, self.shape)
        return array if self.dtype == self._inside else rounded(array, self.dtype)


class Program:
    """The executable of a segment; see `onnxlet.providers.base.Executable`.

    `labels` and `kernels` tell, for each operation of the tape, for which node it works and which kernel does it.
    """

    def __init__(
        self,
        memory: Memory,
        segment: Segment,
        types: Mapping[str, TensorType] | None = None,
        share_memory: bool = True,
    ):
        """Compile `segment`, without 16-bit floats. `types` are those that its values have outside."""
        self._memory = memory
        self._tape_address = 0
        self._tape_words = 0
        self._starts: list[int] = []
        self._generation = -1
        self._shared = False
        self._call: Callable[..., int] | None = None
        self._closed = False
        compiler = Compiler(memory, segment)
        self._owned = compiler.owned
        try:
            for step in segment.steps:
                if compiler.folded(step):
                    continue
                emit = find(step.node)(step)
                compiler.begin(step)
                emit(compiler)
                compiler.end()
            self._outputs = compiler.finish()
            self._inputs = compiler.inputs
            _note_types(segment, types or segment.types, self._inputs, self._outputs)
            self._flagged = compiler.flagged
            self._flags = compiler.flags_buffer
            self._flag_values = np.zeros(len(compiler.flagged), np.int64)
            self._flags.address = self._keep(np.zeros(max(1, len(compiler.flagged)), np.int64))
            compiler.words_buffer.address = self._keep(np.array(compiler.word_list or [0], np.int64))
            self._operations = compiler.operations
            self.labels = [o.label for o in compiler.operations]
            self.kernels = [o.kernel for o in compiler.operations]
            self._buffers = [b for b in compiler.buffers if b.last >= b.first]
            self.arena_bytes = assign_offsets(self._buffers) if share_memory else separate_offsets(self._buffers)
            self._bindable = memory.engine.host.bind is not None and not any(
                slot.resident or slot.outside is not None for slot in (*self._inputs, *self._outputs)
            )
            memory.release_staging()
            self._place()
        except BaseException:
            memory.release_staging()
            self.close()
            raise

    def _place(self) -> None:
        """Write the tape for where the arena is now, and fill the tables that hold addresses."""
        memory = self._memory
        memory.reserve_arena(self.arena_bytes)
        for buffer in self._buffers:
            buffer.address = memory.arena + buffer.offset
        tape = self._encode(self._operations)
        if self._tape_address:
            memory.engine.write(self._tape_address, tape)
        else:
            self._tape_words = len(tape)
            self._tape_address = self._keep(tape)
        bind = memory.engine.host.bind
        if self._bindable and bind is not None:
            slots = [(_address(s.place), size_of(s.shape) * s.dtype.itemsize) for s in (*self._inputs, *self._outputs)]
            control = memory.engine.control if self._shared else 0
            self._call = bind(
                self._tape_address, self._tape_words, memory.scratch, control, self._flags.address, len(self._flagged),
                slots, len(self._inputs),
            )  # fmt: skip
        self._generation = memory.generation

    def _keep(self, array: np.ndarray) -> int:
        """The address of a copy that the program owns."""
        address = self._memory.allocate(array.nbytes)
        self._owned.append(address)
        self._memory.engine.write(address, array)
        return address

    def _encode(self, operations: Sequence[Operation]) -> np.ndarray:
        tape = Tape(self._memory.engine)
        for o in operations:
            fields = {name: _address(place) for name, place in o.fields.items()}
            tape.emit(o.kernel, units=o.units, grain=o.grain, rounds=o.rounds, scratch=o.scratch, **fields)
        self._shared = tape.worth_sharing and self._memory.engine.threads > 1
        self._memory.reserve_scratch(tape.scratch, self._shared)
        self._starts = [first for _, first in tape.operations]
        return tape.words

    def run(self, values: Sequence[np.ndarray | ResidentValue]) -> list[np.ndarray | ResidentValue]:
        """Copy the inputs in, walk the tape in one call, copy the outputs out.

        Raises `NodeError` where a kernel met an index out of bounds.
        """
        if self._bindable:
            arrays = [value for value in values if isinstance(value, np.ndarray) and value.flags.c_contiguous]
            if len(arrays) == len(values):
                return [*self._direct(arrays)]
        with self._memory.lock:
            self._begin(values)
            self._walk(self._tape_address, self._tape_words)
            if self._flagged:
                self._check_flags()
            return [self._result(slot) for slot in self._outputs]

    @property
    def direct(self) -> Callable[[Sequence[np.ndarray]], list[np.ndarray]] | None:
        """As `run`, for contiguous arrays of the right types, where none of the values stays in memory."""
        return self._direct if self._bindable else None

    def _direct(self, values: Sequence[np.ndarray]) -> list[np.ndarray]:
        memory = self._memory
        with memory.lock:
            call = self._call
            if call is None or self._generation != memory.generation:
                self._make_ready()
                call = self._call
                assert call is not None
            results = [empty(slot.shape, slot.dtype) for slot in self._outputs]
            if call(*values, *results):
                self._check_flags()
        return results

    def stepped(
        self, values: Sequence[np.ndarray | ResidentValue], after: Callable[[str, str, float], object]
    ) -> list[np.ndarray | ResidentValue]:
        """As `run`, but operation by operation. `after` is told of each the node's label, the kernel's name, and
        seconds; what it raises ends the run."""
        with self._memory.lock:
            self._begin(values)
            ends = [*self._starts, self._tape_words][1:]
            for label, kernel, start, end in zip(self.labels, self.kernels, self._starts, ends, strict=True):
                begin = perf_counter()
                self._walk(self._tape_address + 8 * start, end - start)
                took = perf_counter() - begin
                if self._flagged:
                    self._check_flags()
                after(label, kernel, took)
            return [self._result(slot) for slot in self._outputs]

    def profile(self, values: Sequence[np.ndarray | ResidentValue]) -> list[tuple[str, str, float]]:
        """Run operation by operation. Returns, for each, the node's label, the kernel's name, and seconds."""
        rows = []
        self.stepped(values, lambda *row: rows.append(row))
        return rows

    def _walk(self, tape: int, words: int) -> None:
        memory = self._memory
        if self._shared:
            memory.engine.run_shared(tape, words, memory.scratch, memory.engine.control)
        else:
            memory.engine.run(tape, words, memory.scratch)

    def _make_ready(self) -> None:
        memory = self._memory
        if self._closed or memory.closed:
            raise SessionClosedError("This session was closed.")
        if self._generation != memory.generation:
            self._place()

    def _begin(self, values: Sequence[np.ndarray | ResidentValue]) -> None:
        """Copy the inputs to where the tape expects them."""
        memory = self._memory
        self._make_ready()
        for slot, value in zip(self._inputs, values, strict=True):
            if isinstance(value, ResidentValue):
                self._bring(value, slot)
            else:
                array = np.asarray(value)
                memory.engine.write(
                    _address(slot.place), array if slot.outside is None else np.asarray(to_float32(array))
                )

    def _bring(self, value: ResidentValue, slot: Slot) -> None:
        """Copy a resident value to where the program expects it."""
        engine, target = self._memory.engine, _address(slot.place)
        shape, one = (_address(place) for place in slot.block)
        engine.call("copy", units=value.nbytes, size=1, x=value.address, y=target, rank=1, shape=shape, x_strides=one,
                    y_strides=one)  # fmt: skip

    def _result(self, slot: Slot) -> np.ndarray | ResidentValue:
        address = _address(slot.place)
        if slot.resident:
            return ResidentValue(self._memory, address, slot.dtype, slot.shape, slot.outside)
        array = self._memory.engine.read(address, slot.dtype, slot.shape)
        return array if slot.outside is None else rounded(array, slot.outside)

    def _check_flags(self) -> None:
        flags = self._flag_values
        self._memory.engine.read_into(self._flags.address, flags)
        if flags.tobytes().strip(b"\0"):  # several times faster than any()
            self._memory.engine.zero(self._flags.address, flags.nbytes)
            first = int(np.flatnonzero(flags)[0])
            flagged = self._flagged[first]
            raise flagged.error(f"Node {flagged.label!r}: {flagged.says.format(flags[first] - 1)}.")

    def close(self) -> None:
        """Free the tape, the tables and the values that stayed in memory. The weights stay with the session."""
        with self._memory.lock:
            if not self._closed:
                self._closed = True
                self._call = None
                for address in self._owned:
                    self._memory.free(address)
                self._owned = []


def _address(place: Place) -> int:
    return place.buffer.address + place.offset if isinstance(place, Ref) else place


def _note_types(
    segment: Segment, types: Mapping[str, TensorType], inputs: Sequence[Slot], outputs: Sequence[Slot]
) -> None:
    """Note in the slots which values have a 16-bit type outside."""
    for names, slots in ((segment.inputs, inputs), (segment.outputs, outputs)):
        for name, slot in zip(names, slots, strict=True):
            dtype = types[name].dtype
            if dtype is not None and is_half(dtype):
                slot.outside = dtype
