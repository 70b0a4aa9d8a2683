"""From a segment to a program: operators are lowered to kernel calls on virtual buffers, then everything gets a place.

A lowering asks the compiler for the places of its operands in the layout that its kernel wants; the compiler inserts
the moves between layouts, once per value. Places are addresses (constants, tables), or `Ref`s into virtual buffers,
whose offsets in the arena are chosen when all operations, and so all lifetimes, are known.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from onnxlet.errors import NodeError, OnnxletError
from onnxlet.execution.numpy_steps import fold
from onnxlet.graph.ir import TensorType
from onnxlet.model.tensors import Tensor
from onnxlet.providers.base import Segment, Step

from .layouts import LAST, PLAIN, same_in_both, size_of, strides_of
from .memory import Memory

NEVER = 1 << 62

FOLDED = frozenset(
    {
        "Add", "Cast", "CastLike", "Concat", "DequantizeLinear", "Div", "Expand", "Flatten", "Identity", "Mul", "Neg",
        "Pow", "Reciprocal", "Reshape", "Slice", "Sqrt", "Squeeze", "Sub", "Transpose", "Unsqueeze",
    }
)  # fmt: skip
"""Operators that are applied to weights."""

COPY_GRAIN = 1 << 17
"""Elements whose copy is worth a thread. Fewer lie in a processor's second cache; to fetch them from another's takes
longer than to move them."""
MOVE_GRAIN = 1 << 14
"""Elements that are worth a thread if each is moved by itself."""


class Buffer:
    """Memory that an operation writes and later ones read: `first` and `last` are the numbers of these operations.

    `values` counts the live values that lie in it. `offset` is its place in the arena, `address` that in the engine's
    memory: both are known when the program is placed.
    """

    __slots__ = ("address", "first", "last", "nbytes", "offset", "values")

    def __init__(self, nbytes: int, first: int | None = None):
        self.nbytes = nbytes
        self.first = NEVER if first is None else first
        self.last = -1 if first is None else first
        self.offset = 0
        self.address = 0
        self.values = 0


class Ref:
    """A place `offset` bytes into a buffer."""

    __slots__ = ("buffer", "offset")

    def __init__(self, buffer: Buffer, offset: int = 0):
        self.buffer = buffer
        self.offset = offset

    def __add__(self, nbytes: int) -> Ref:
        return Ref(self.buffer, self.offset + nbytes)


Place = Ref | int


class Operation(NamedTuple):
    """A kernel call with the places not yet turned into addresses."""

    kernel: str
    units: int
    grain: float
    rounds: int
    scratch: int
    fields: dict[str, Place]
    label: str


OUT_OF_BOUNDS = "its index number {} is out of bounds"


class Flagged(NamedTuple):
    """What is raised where a kernel flagged something of a node: `says` has a place for the number."""

    label: str
    error: type[OnnxletError]
    says: str


@dataclass(slots=True)
class Slot:
    """Where an input or output of the program lies."""

    place: Place
    dtype: np.dtype
    shape: tuple[int, ...]
    resident: bool = False
    outside: np.dtype | None = None
    """The 16-bit type that the value has outside of the program, if it has one."""
    block: tuple[Ref, ...] = ()
    """Of an input: the places of its size in bytes and of a 1, by which a resident value is copied in."""


class Compiler:
    """Records the operations of one segment. Lowerings see this object, with `step` set to what they lower."""

    def __init__(self, memory: Memory, segment: Segment):
        self.memory = memory
        self.segment = segment
        self.operations: list[Operation] = []
        self.buffers: list[Buffer] = []
        self.owned: list[int] = []
        self.flagged: list[Flagged] = []
        self.flags_buffer = Buffer(0)
        self.places: dict[str, dict[str, Place]] = {}
        self.words_buffer = Buffer(0)
        self.word_list: list[int] = []
        self._word_places: dict[tuple[int, ...], Ref] = {}
        self._folded: dict[str, Tensor] = {}
        self.step: Step = None  # type: ignore[assignment]
        self._types: dict[str, TensorType] = dict(segment.types)
        self._remaining: dict[str, int] = {}
        for step in segment.steps:
            for name in set(step.node.inputs):
                self._remaining[name] = self._remaining.get(name, 0) + 1
        for name in segment.outputs:
            self._remaining[name] = self._remaining.get(name, 0) + 1
        self.inputs = [self._add_input(name) for name in segment.inputs]

    def _add_input(self, name: str) -> Slot:
        type_ = self._types[name]
        assert type_.dtype is not None
        place = self._new(type_.nbytes, first=-1)
        place.buffer.values = 1
        self.places[name] = {PLAIN: place}
        return Slot(place, type_.dtype, type_.dims, block=(self.words([type_.nbytes]), self.words([1])))

    def _new(self, nbytes: int, first: int | None = None) -> Ref:
        buffer = Buffer(nbytes, first)
        self.buffers.append(buffer)
        return Ref(buffer)

    # What lowerings ask

    def type(self, name: str) -> TensorType:
        return self._types[name]

    def layouts(self, index: int) -> tuple[str, ...]:
        """The layouts in which input `index` lies already, the one in which it was made first.

        A constant is said to lie in all of them: it is laid as wanted when the program is compiled.
        """
        name = self.step.node.inputs[index]
        places = self.places.get(name)
        return (PLAIN, LAST) if places is None else tuple(places)

    def input(self, index: int, layout: str = PLAIN) -> Place:
        """The place of input `index` in a layout; moved there if need be. Absent inputs lie at 0."""
        names = self.step.node.inputs
        if index >= len(names) or not names[index]:
            return 0
        return self.place(names[index], layout)

    def place(self, name: str, layout: str = PLAIN) -> Place:
        places = self.places.get(name)
        if places is None:
            tensor = self.constant(name)
            assert tensor is not None, name
            return self.memory.constant(tensor, PLAIN if same_in_both(tensor.shape) else layout)
        found = places.get(layout)
        if found is None:
            found = places[layout] = self._moved(name, places, layout)
        return found

    def constant(self, name: str) -> Tensor | None:
        """The tensor of a constant that no step computes, else `None`."""
        if name in self.places:
            return None
        return self._folded.get(name) or self.segment.constants.get(name) or self.step.constants.get(name)

    def tensor(self, index: int) -> Tensor | None:
        """The constant tensor behind input `index`, or `None`."""
        names = self.step.node.inputs
        return self.constant(names[index]) if index < len(names) and names[index] else None

    def output(self, index: int = 0, layout: str = PLAIN, over: Sequence[int] = ()) -> Ref:
        """A place for output `index`, in a layout.

        `over` lists inputs whose memory the output may take where they are not needed afterwards: for kernels
        that read an element before they write the one at the same place. They must be of the same size and layout.
        """
        name = self.step.node.outputs[index]
        type_ = self.step.outputs[index]
        assert type_ is not None
        nbytes = type_.nbytes
        for i in over:
            ref = self._dying(self.step.node.inputs[i], layout, nbytes)
            if ref is not None:
                self._put(name, layout, ref)
                return ref
        ref = self._new(nbytes)
        self._put(name, layout, ref)
        return ref

    def wanted(self, index: int) -> bool:
        """Whether the node names output `index`."""
        names = self.step.node.outputs
        return index < len(names) and bool(names[index])

    def share(self, place: Place, index: int = 0, layout: str = PLAIN) -> None:
        """Let output `index` lie, in a layout, where something lies already: no copy is made."""
        self._put(self.step.node.outputs[index], layout, place)

    def temporary(self, nbytes: int) -> Ref:
        """Memory for this step alone."""
        return self._new(nbytes)

    def words(self, values: Sequence[int]) -> Ref:
        """The place of an array of 64-bit integers (lengths, steps) that the program brings along."""
        key = tuple(values)
        place = self._word_places.get(key)
        if place is None:
            place = self._word_places[key] = Ref(self.words_buffer, 8 * len(self.word_list))
            self.word_list += key
        return place

    def data(self, array: np.ndarray) -> Ref:
        """The place of an array that the program brings along."""
        raw = array.tobytes()
        return self.words(np.frombuffer(raw + bytes(-len(raw) % 8), np.int64).tolist())

    def error_flag(self, error: type[OnnxletError] = NodeError, says: str = OUT_OF_BOUNDS) -> Ref:
        """The place of a 64-bit word that kernels set to 1 + the number of what is wrong: of an index that is out of
        bounds, unless told otherwise."""
        self.flagged.append(Flagged(self.step.node.label, error, says))
        return Ref(self.flags_buffer, 8 * len(self.flagged) - 8)

    def computed(self, key: Hashable, compute: Callable[[], np.ndarray], *names: str) -> int:
        """The address of an array computed now from constants, and shared by all steps with the same key and names."""
        tensors = [t for t in map(self.constant, names) if t is not None]
        return self.memory.computed(key, compute, *tensors)

    def emit(self, kernel: str, *, units: int, grain: float = 1, scratch: int = 0, **fields: Place) -> None:
        """Record a kernel call (see `Tape.emit`); nothing if there are no units."""
        if units > 0:
            self.emit_rounds(kernel, 1, units, grain, scratch, fields)

    def emit_rounds(
        self, kernel: str, rounds: int, units: int, grain: float, scratch: int, fields: dict[str, Place]
    ) -> None:
        """As `emit`, with units that fall into rounds."""
        number = len(self.operations)
        for place in fields.values():
            if type(place) is Ref:
                buffer = place.buffer
                if buffer.first > number:
                    buffer.first = number
                buffer.last = number
        self.operations.append(Operation(kernel, units, grain, rounds, scratch, fields, self.step.node.label))

    # Values

    def folded(self, step: Step) -> bool:
        """Whether the step computes a constant from constants. If so its output is one from now on, computed by its
        NumPy definition when it is placed or packed, once for all programs of the session.

        The executor folds what is small; what it leaves are mostly weights stored in a smaller type than they have.
        """
        names, outputs = step.node.inputs, step.node.outputs
        if (
            step.node.op_type not in FOLDED
            or step.node.domain
            or len(outputs) != 1
            or outputs[0] in self.segment.outputs
        ):
            return False
        self.step = step
        sources = [self.constant(name) for name in names if name]
        type_ = step.outputs[0]
        if not sources or None in sources or type_ is None or type_.dtype is None:
            return False
        known = {name: self.constant(name) for name in names if name}

        def compute() -> np.ndarray:
            return fold(step.node, {name: tensor.numpy() for name, tensor in known.items() if tensor is not None})[0]

        key = ("folded", step.node.op_type, step.node.version, repr(sorted(step.node.attributes.items())), tuple(names))
        tensor = self.memory.derivations.get(key, tuple(sources), type_.dtype, type_.dims, compute)  # type: ignore[arg-type]
        tensor.node = step.node
        self._folded[outputs[0]] = tensor
        self._types[outputs[0]] = type_
        return True

    def begin(self, step: Step) -> None:
        self.step = step

    def end(self) -> None:
        """Forget the values that the current step was the last to use."""
        for name in set(self.step.node.inputs):
            self._remaining[name] -= 1
            if not self._remaining[name] and name in self.places:
                for place in self.places[name].values():
                    if type(place) is Ref:
                        place.buffer.values -= 1

    def _put(self, name: str, layout: str, place: Place) -> None:
        type_ = self.step.outputs[self.step.node.outputs.index(name)]
        assert type_ is not None
        self._types[name] = type_
        places = self.places.setdefault(name, {})
        places[layout] = place
        if type(place) is Ref:
            place.buffer.values += 1
        if same_in_both(type_.dims):
            other = LAST if layout == PLAIN else PLAIN
            if other not in places:
                places[other] = place
                if type(place) is Ref:
                    place.buffer.values += 1

    def _dying(self, name: str, layout: str, nbytes: int) -> Ref | None:
        """Where a value lies whose memory can be taken over by the current step."""
        places = self.places.get(name)
        if places is None or self._remaining[name] != 1 or self._types[name].nbytes != nbytes:
            return None
        ref = places.get(layout)
        if type(ref) is not Ref:
            return None
        mine = sum(1 for p in places.values() if type(p) is Ref and p.buffer is ref.buffer)
        return ref if ref.buffer.values == mine else None

    def _moved(self, name: str, places: dict[str, Place], layout: str) -> Place:
        type_ = self._types[name]
        assert type_.dtype is not None
        shape = type_.dims
        source = next(iter(places.values()))
        if same_in_both(shape):
            place = source
        else:
            place = self._new(type_.nbytes)
            self._move_channels(source, place, shape, type_.dtype.itemsize, layout)
        if type(place) is Ref:
            place.buffer.values += 1
        return place

    def _move_channels(self, source: Place, target: Place, shape: Sequence[int], itemsize: int, layout: str) -> None:
        """Copy a tensor from the other layout into `layout`."""
        batch, channels, spatial = shape[0], shape[1], size_of(shape[2:])
        lengths = (batch, spatial, channels) if layout == LAST else (batch, channels, spatial)
        if itemsize == 1:
            blocks = -(-lengths[1] // 16)
            grain = MOVE_GRAIN / (16 * lengths[2])
            self.emit("transpose_bytes", units=batch * blocks, grain=grain, x=source, y=target, rows=lengths[2],
                      columns=lengths[1])  # fmt: skip
            return
        self.copy(source, (lengths[1] * lengths[2], 1, lengths[1]), target, lengths, itemsize)

    def copy(self, x: Place, x_strides: Sequence[int], y: Place, lengths: Sequence[int], itemsize: int) -> None:
        """Copy a block to a contiguous place."""
        self.emit(
            "copy", units=size_of(lengths), grain=COPY_GRAIN, size=itemsize, x=x, y=y, rank=len(lengths),
            shape=self.words(lengths), x_strides=self.words(x_strides), y_strides=self.words(strides_of(lengths)),
        )  # fmt: skip

    def finish(self) -> list[Slot]:
        """Bring the outputs to where the program's caller reads them."""
        slots = []
        for name in self.segment.outputs:
            type_ = self._types[name]
            assert type_.dtype is not None
            place = self.place(name, PLAIN)
            resident = name in self.segment.resident
            if resident:
                kept = self.memory.allocate(type_.nbytes)
                self.owned.append(kept)
                self.copy(place, (1,), kept, (type_.size,), type_.dtype.itemsize)
                place = kept
            slots.append(Slot(place, type_.dtype, type_.dims, resident))
        for slot in slots:
            if type(slot.place) is Ref:
                slot.place.buffer.last = len(self.operations)
        return slots
