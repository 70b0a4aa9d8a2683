"""Runs pytest with kernels that the sanitizers watch: `python watched.py FOLDER [pytest arguments]`, for `sanitize.py`.

Programs lay out their buffers in one block of memory, in which the address sanitizer sees no borders, and where one
buffer takes the place of another that is done with. Here each has a place of its own, and bytes around it that a
program may neither read (but for a vector's length behind the end, as kernels do) nor change.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from onnxlet_wasm import native, program
from onnxlet_wasm.arena import Lifetime, aligned

READABLE = 64
"""Bytes behind a buffer that kernels may read."""

POISONED = 64
UNCHANGED = bytes([0xA5]) * READABLE

SANITIZER = ctypes.CDLL(None)
for _name in ("__asan_poison_memory_region", "__asan_unpoison_memory_region"):
    getattr(SANITIZER, _name).argtypes = [ctypes.c_void_p, ctypes.c_size_t]


def spaced_offsets(buffers: Sequence[Lifetime]) -> int:
    """As `assign_offsets`, with space around every buffer, and none that share a place."""
    total = POISONED
    for buffer in buffers:
        buffer.offset = total
        total += aligned(buffer.nbytes) + READABLE + POISONED
    return total


def watched(run: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """A way to run a program, which looks after what lies between the program's buffers."""

    def watch(self: program.Program, values: Any) -> Any:
        memory = self._memory
        with memory.lock:
            self._make_ready()
            start, size = memory.arena, memory.arena_size
            ends = [buffer.address + buffer.nbytes for buffer in self._buffers]
            for buffer, end in zip(self._buffers, ends, strict=True):
                ctypes.memmove(end, UNCHANGED, READABLE)
                SANITIZER.__asan_poison_memory_region(buffer.address - POISONED, POISONED)
            try:
                result = run(self, values)
            finally:
                SANITIZER.__asan_unpoison_memory_region(start, size)
            changed = [end for end in ends if ctypes.string_at(end, READABLE) != UNCHANGED]
        assert not changed, f"{len(changed)} buffers of {self.labels} were written beyond their ends"
        return result

    return watch


if __name__ == "__main__":
    native.LIB = Path(sys.argv[1])
    program.assign_offsets = program.separate_offsets = spaced_offsets
    for name in ("run", "_direct"):
        setattr(program.Program, name, watched(getattr(program.Program, name)))
    sys.exit(pytest.main(sys.argv[2:]))
