"""The kernels as a native library: the host on a desktop."""

from __future__ import annotations

import ctypes
import platform
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from onnxlet.errors import LimitError, ProviderError

from .arena import LARGE, PAGE, SPREAD
from .engine import Bind, array_header

LIB = Path(__file__).resolve().parent / "lib"
SUFFIX = {"darwin": ".dylib", "win32": ".dll"}.get(sys.platform, ".so")
ALIGNMENT = 64
PADDING = 64
X86_64_V3 = 3
"""What `processor_level` says of a processor with AVX2 and fused multiply-add."""


def available() -> str | None:
    """`None` where the native kernels can run, else the reason why not."""
    try:
        load_library()
    except ProviderError as error:
        return str(error)
    return None


@cache
def load_library(baseline: bool = False) -> ctypes.CDLL:
    """The library for this processor. `baseline` asks for the build for processors without AVX2, where there is one.
    Raises `ProviderError`."""
    path = LIB / f"kernels{SUFFIX}"
    fallback = LIB / f"kernels-baseline{SUFFIX}"
    if fallback.exists():
        library = _load(fallback)
        if baseline or library.processor_level() < X86_64_V3:
            return library
    if not path.exists():
        raise ProviderError(
            f"no compiled kernels for {sys.platform} {platform.machine()} in {LIB}: this installation has none for "
            "this machine. In a checkout, compile them: python -m onnxlet_wasm.build"
        )
    return _load(path)


def _load(path: Path) -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise ProviderError(f"the compiled kernels can't be loaded: {error}") from error
    library.run.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
    library.run.restype = None
    library.run_piece.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_void_p]
    library.run_piece.restype = None
    library.kernel_description.restype = ctypes.c_char_p
    library.run_shared.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p]
    library.run_shared.restype = None
    library.run_call.argtypes = [ctypes.c_void_p]
    library.control_size.restype = ctypes.c_size_t
    library.control_init.argtypes = library.help.argtypes = [ctypes.c_void_p, ctypes.c_int]
    library.control_scratch.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    for returns_nothing in ("control_init", "control_scratch", "control_stop", "help"):
        getattr(library, returns_nothing).restype = None
    for takes_control in ("control_threads", "control_helped", "control_stop"):
        getattr(library, takes_control).argtypes = [ctypes.c_void_p]
    return library


def _address_of(array: np.ndarray) -> int:
    """Where the elements of a contiguous array begin."""
    if array.flags.writeable and array.dtype.kind in "fiub":
        return ctypes.addressof(ctypes.c_char.from_buffer(array.data))  # a fraction of the time of what works for all
    return array.ctypes.data


def _bind(
    library: ctypes.CDLL, header: int, tape: int, words: int, scratch: int, control: int, flags: int, flag_count: int,
    slots: Sequence[tuple[int, int]], inputs: int,
) -> Callable[..., int]:  # fmt: skip
    """See `onnxlet_wasm.engine.Bind`."""
    head = [tape, words, scratch, control, flags, flag_count, header, inputs, len(slots)]
    numbers = head + [number for address, nbytes in slots for number in (address, nbytes, 0)]
    block = (ctypes.c_int64 * len(numbers))(*numbers)
    at = range(len(head) + 2, len(numbers), 3)
    address, run_call = ctypes.addressof(block), library.run_call

    def call(*arrays: np.ndarray) -> int:
        for i, array in zip(at, arrays, strict=True):
            block[i] = id(array)
        return run_call(address)

    return call


def _help(library: ctypes.CDLL, control: int, number: int, _block: np.ndarray) -> None:
    """What a thread does. It holds the block that `control` lies in, so that the block outlives it."""
    library.help(control, number)


def _stop(library: ctypes.CDLL, control: int, _block: np.ndarray) -> None:
    library.control_stop(control)


def _nothing() -> None:
    """Stops the threads of a host that has none."""


def describe_library() -> str:
    """What the kernels in use are compiled for."""
    return f"{platform.machine()}, {Path(load_library()._name).stem}"


class NativeHost:
    """A native library that works in the process's own memory."""

    may_sleep = True

    def __init__(self, relaxed: bool | None = None):
        library = load_library(baseline=relaxed is False)
        self.descriptions = [library.kernel_description(i).decode() for i in range(library.kernel_count())]
        self.exports = library
        self.run = library.run
        self.run_piece = library.run_piece
        self.run_shared = library.run_shared
        header = array_header()
        self.bind: Bind | None = partial(_bind, library, header) if header else None
        self._stop_threads = _nothing
        self._blocks: dict[int, np.ndarray] = {}
        self._shift = 0
        self._total = 0

    def alloc(self, nbytes: int) -> int:
        # Large blocks come at the same place of a page: they are moved apart, see `arena.SPREAD`.
        shift = 0
        if nbytes >= LARGE:
            shift = self._shift = (self._shift + SPREAD) % PAGE
        size = nbytes + ALIGNMENT + PADDING + shift
        try:
            block = np.empty(size, np.uint8)
        except (MemoryError, ValueError) as error:
            raise LimitError(f"out of memory: {nbytes:,} more bytes could not be had") from error
        address = (block.ctypes.data + ALIGNMENT - 1 & -ALIGNMENT) + shift
        self._blocks[address] = block
        self._total += size
        return address

    def free(self, address: int, nbytes: int) -> None:
        self._total -= self._blocks.pop(address).nbytes

    def write(self, address: int, data: np.ndarray) -> None:
        ctypes.memmove(address, _address_of(data), data.nbytes)

    def write_js(self, address: int, array: Any, offset: int, nbytes: int) -> None:
        raise ProviderError("there is no JavaScript memory here")

    def read_into(self, address: int, out: np.ndarray) -> None:
        ctypes.memmove(_address_of(out), address, out.nbytes)

    def zero(self, address: int, nbytes: int) -> None:
        ctypes.memset(address, 0, nbytes)

    def start_threads(self, control: int, count: int) -> None:
        """Start up to `count` threads that help with what is run with `control`, until the host is closed, or no one
        has it any more, or Python ends. (In a process that was forked off there are none, and runs go on without.)"""
        block = self._blocks[control]
        self._stop_threads = weakref.finalize(self, _stop, self.exports, control, block)
        for number in range(1, count + 1):
            arguments = self.exports, control, number, block
            try:
                threading.Thread(target=_help, args=arguments, name=f"onnxlet-{number}", daemon=True).start()
            except RuntimeError:  # the system grants no more
                break

    def stats(self) -> int:
        """Bytes allocated now."""
        return self._total

    def close(self) -> None:
        self._stop_threads()
        self._blocks.clear()
        self._total = 0
