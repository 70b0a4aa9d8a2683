"""The engine: compiled kernels, the memory they work in, and the tapes they run.

A tape is an array of 64-bit words, operation after operation: [kernel, words, units, grain, rounds, arguments...].
Kernels are known by name and their arguments by name, as the C sources declare them, so a tape that does not fit the
kernels is an error in Python. One call of `Engine.run` computes a whole tape.

The host, where kernels and memory live, is a native library on a desktop (`native.py`) and a WebAssembly module with
a memory of its own in a browser (`browser.py`).
"""

from __future__ import annotations

import ctypes
import math
import struct
import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from onnxlet.errors import ProviderError

if TYPE_CHECKING:
    from onnxlet.model.tensors import Tensor

IN_BROWSER = sys.platform == "emscripten"

HEADER_WORDS = 5
WORTH_A_CHUNK = 2
"""Grains of a round from which on it is cut into chunks (interpreter.c says the same)."""
WORTH_SHARING = 16
"""Grains of all such operations for which threads are started: some 64 µs, about what it takes to wake one."""


@cache
def array_header() -> int:
    """Bytes from where Python keeps an array (its `id`) to the address of its elements; 0 where that can't be told.

    In CPython an array begins with what all objects begin with, and the address follows.
    """
    if sys.implementation.name != "cpython":
        return 0
    header, array = object.__basicsize__, np.zeros(1)
    found = ctypes.c_void_p.from_address(id(array) + header).value
    return header if found == array.ctypes.data else 0


def f32(value: float) -> int:
    """The word that holds a float32: its bits."""
    try:
        return struct.unpack("<I", struct.pack("<f", value))[0]
    except OverflowError:  # a finite float64 beyond float32
        return f32(float("inf") if value > 0 else float("-inf"))


class Bind(Protocol):
    """Makes a function that copies arrays to where a tape expects them, walks the tape, and copies its results into
    arrays; it says whether a kernel raised a flag.

    `control` is 0, or what threads share; `flags` are `flag_count` words of 64 bits. `slots` are addresses and sizes in
    bytes of `inputs` inputs, then of the outputs. The function takes as many arrays, contiguous and of these sizes.
    """

    def __call__(
        self, tape: int, words: int, scratch: int, control: int, flags: int, flag_count: int,
        slots: Sequence[tuple[int, int]], inputs: int, /,
    ) -> Callable[..., int]: ...  # fmt: skip


class Host(Protocol):
    """Kernels and the memory they see. Addresses are the kernels' own; every block is 64-byte aligned and followed by
    at least 64 bytes that may be read."""

    descriptions: list[str]
    """Of every kernel, in order: "name: argument, argument, ..."."""
    exports: Any
    """What the kernels export: called by name with integers."""
    bind: Bind | None
    """Makes a run that is one call, see `Bind`. `None` where there is none: what it does is then done in steps."""
    may_sleep: bool
    """Whether the thread that calls `run_shared` may sleep; a page's main thread must not."""

    def alloc(self, nbytes: int) -> int: ...
    def free(self, address: int, nbytes: int) -> None: ...
    def write(self, address: int, data: np.ndarray) -> None: ...
    def write_js(self, address: int, array: Any, offset: int, nbytes: int) -> None: ...
    def read_into(self, address: int, out: np.ndarray) -> None: ...
    def zero(self, address: int, nbytes: int) -> None: ...
    def run(self, tape: int, words: int, scratch: int) -> None: ...
    def run_piece(self, tape: int, begin: int, end: int, scratch: int) -> None: ...
    def run_shared(self, tape: int, words: int, scratch: int, control: int) -> None: ...
    def start_threads(self, control: int, count: int) -> None: ...
    def stats(self) -> int: ...
    def close(self) -> None: ...


class Engine:
    """Kernels with a memory of their own; one per session.

    `fields` maps a kernel's name to its number and the names of its arguments. `threads` is how many may compute at
    once, the caller among them, as soon as `share` is called.
    """

    def __init__(self, host: Host, threads: int = 1):
        self.host = host
        self.threads = threads
        self.control = 0
        """The address of what threads share; 0 before `share`."""
        self.fields: dict[str, tuple[int, tuple[str, ...]]] = {}
        for index, description in enumerate(host.descriptions):
            name, _, arguments = description.partition(": ")
            self.fields[name] = index, tuple(arguments.split(", "))
        self._call_words = HEADER_WORDS + max(len(names) for _, names in self.fields.values())
        self._call_tape = host.alloc(8 * self._call_words)
        # Bound once: these are called at every run.
        self.alloc = host.alloc
        self.free = host.free
        self.zero = host.zero
        self.run = host.run
        self.run_shared = host.run_shared

    @staticmethod
    def available() -> str | None:
        """`None` where the kernels can run, else the reason why not."""
        if IN_BROWSER:
            from . import browser

            return browser.available()
        try:
            from . import native
        except ImportError:
            return "this is the wheel for browsers, which has no native kernels"
        return native.available()

    @classmethod
    def create(cls, relaxed: bool | None = None, threads: int = 1) -> Engine:
        """Load the kernels. `relaxed` chooses between the builds: with relaxed SIMD (natively: AVX2 and fused
        multiply-add) or without; by default the faster one that the machine has. Raises `ProviderError`."""
        if IN_BROWSER:
            from . import browser

            return cls(browser.create_host(relaxed), threads)
        from . import native

        return cls(native.NativeHost(relaxed), threads)

    @classmethod
    async def create_async(cls, relaxed: bool | None = None, threads: int = 1) -> Engine:
        """As `create`; in a browser the kernels are compiled without blocking the page."""
        if IN_BROWSER:
            from . import browser

            return cls(await browser.create_host_async(relaxed), threads)
        return cls.create(relaxed, threads)

    def share(self) -> None:
        """Start threads, which help with every `run_shared` from when they are there until `close`. What is run has
        `threads` scratch memories, set apart by `exports.control_scratch`. Calling it again does nothing."""
        if self.control or self.threads == 1:
            return
        exports = self.host.exports
        self.control = self.alloc(exports.control_size())
        exports.control_init(self.control, self.host.may_sleep)
        self.host.start_threads(self.control, self.threads - 1)

    def thread_stats(self) -> dict[str, int]:
        """How many threads are there to help the caller, and how many pieces of work they did so far."""
        if not self.control:
            return {"threads": 0, "pieces": 0}
        exports = self.host.exports
        return {
            "threads": exports.control_threads(self.control),
            "pieces": exports.control_helped(self.control),
        }

    def write(self, address: int, data: np.ndarray | Tensor) -> None:
        """Copy an array's elements (row-major), or a tensor's from where they lie, to `address`."""
        if not isinstance(data, np.ndarray):
            if data.location is not None:
                source, offset = data.location
                array = getattr(source, "js", None)
                if array is not None:
                    self.host.write_js(address, array, offset, data.nbytes)
                    return
            data = data.numpy()
        if not data.flags.c_contiguous:
            data = np.ascontiguousarray(data)
        if data.dtype.kind == "V":  # ml_dtypes: a type that buffers can't name
            data = data.reshape(-1).view(np.uint8)
        if data.nbytes:
            self.host.write(address, data)

    def read(self, address: int, dtype: Any, shape: Sequence[int]) -> np.ndarray:
        """A copy of what lies at `address`, as an array."""
        out = np.empty(shape, dtype)
        self.read_into(address, out.reshape(-1).view(np.uint8) if out.dtype.kind == "V" else out)
        return out

    def read_into(self, address: int, out: np.ndarray) -> None:
        """Copy what lies at `address` into a contiguous array."""
        if not out.flags.c_contiguous:
            raise ValueError("read_into needs a contiguous array")
        if out.nbytes:
            self.host.read_into(address, out)

    def words(self, kernel: str, units: int, grain: int, rounds: int, values: dict[str, int | float]) -> list[int]:
        """One operation of a tape. A Python float stands for the bits of a float32. Raises `ProviderError` where the
        kernel is unknown or its arguments are not exactly the named ones."""
        known = self.fields.get(kernel)
        if known is None:
            raise ProviderError(
                f"no kernel {kernel!r} in the compiled library: rebuild it (python -m onnxlet_wasm.build)"
            )
        index, names = known
        if len(values) != len(names) or any(name not in values for name in names):
            missing, extra = [n for n in names if n not in values], [n for n in values if n not in names]
            raise ProviderError(f"kernel {kernel!r} takes {', '.join(names)}; missing: {missing}, unknown: {extra}")
        words = [index, HEADER_WORDS + len(names), units, grain, rounds]
        for name in names:
            value = values[name]
            words.append(f32(value) if isinstance(value, float) else int(value))
        return words

    def call(self, kernel: str, *, units: int, grain: int = 1, scratch: int = 0, **fields: int | float) -> None:
        """Run one kernel now. `scratch` is how many bytes of scratch memory it needs."""
        self.call_pieces(kernel, units, None, scratch, fields)

    def call_pieces(
        self,
        kernel: str,
        units: int,
        pieces: Sequence[tuple[int, int]] | None,
        scratch: int,
        fields: dict[str, int | float],
    ) -> None:
        """As `call`, but the given ranges of units one after the other, where there are any, as threads would."""
        words = self.words(kernel, units, 1, 1, fields)
        self.write(self._call_tape, np.array(words, np.int64))
        space = self.alloc(scratch) if scratch else 0
        try:
            if pieces is None:
                self.run(self._call_tape, len(words), space)
            else:
                for begin, end in pieces:
                    self.host.run_piece(self._call_tape, begin, end, space)
        finally:
            if space:
                self.free(space, scratch)

    def stats(self) -> int:
        """Bytes of memory held now, 0 once closed."""
        return self.host.stats()

    def close(self) -> None:
        """Give all memory back. The engine can't be used any more."""
        self.host.close()
        self.control = 0
        for name in ("alloc", "free", "zero", "run", "run_shared"):  # they may keep the memory alive
            self.__dict__.pop(name, None)


class Tape:
    """A program in the making: operations in the order in which they run."""

    def __init__(self, engine: Engine):
        self.engine = engine
        self.scratch = 0
        """Bytes of scratch memory that the operations need, the largest of all."""
        self._grains = 0.0
        self._words: list[int] = []
        self.operations: list[tuple[str, int]] = []
        """Kernel and first word of each operation."""

    def emit(
        self, kernel: str, *, units: int, grain: float = 1, rounds: int = 1, scratch: int = 0, **fields: int | float
    ) -> None:
        """Add an operation: `units` pieces of work, `grain` of which are worth a thread. That may be less than one:
        `units / grain` is how much work there is. Units are independent of each other, or fall into `rounds` of equally
        many, the units of one of which are."""
        self.operations.append((kernel, len(self._words)))
        least = max(1, math.ceil(grain))
        self._words += self.engine.words(kernel, units, least, rounds, fields)
        self.scratch = max(self.scratch, scratch)
        if units >= WORTH_A_CHUNK * least * rounds:
            self._grains += units / grain

    @property
    def worth_sharing(self) -> bool:
        """Whether there is enough that threads can share for them to be started."""
        return self._grains >= WORTH_SHARING

    @property
    def words(self) -> np.ndarray:
        """The tape as an int64 array."""
        return np.array(self._words, np.int64)
