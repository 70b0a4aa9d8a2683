"""Kernels called one at a time, in memory with guards: a byte written outside an output is found."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from onnxlet_wasm.engine import Engine

GUARD = 64
PADDING = 64
GUARD_BYTE = 0xA5
UNWRITTEN = 0x5A


class Workbench:
    """Buffers in an engine's memory. Outputs are filled with garbage, and surrounded by bytes that must stay."""

    def __init__(self, engine: Engine):
        self.engine = engine
        self._outputs: dict[int, tuple[np.dtype, tuple[int, ...], int]] = {}
        self._blocks: list[tuple[int, int]] = []

    def put(self, array: Any) -> int:
        """The address of a copy of the array. The 64 bytes after it are NaN: reading them must not matter."""
        array = np.ascontiguousarray(array)
        address = self._alloc(array.nbytes + PADDING)
        self.engine.write(address + array.nbytes, np.full(PADDING, 0xFF, np.uint8))
        self.engine.write(address, array)
        return address

    def out(self, shape: Any, dtype: Any = np.float32) -> int:
        """The address of memory for an output."""
        dtype, shape = np.dtype(dtype), tuple(shape)
        nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        address = self._alloc(nbytes + 2 * GUARD) + GUARD
        self.engine.write(address - GUARD, np.full(nbytes + 2 * GUARD, GUARD_BYTE, np.uint8))
        self.engine.write(address, np.full(nbytes, UNWRITTEN, np.uint8))
        self._outputs[address] = dtype, shape, nbytes
        return address

    def get(self, address: int) -> np.ndarray:
        """The output at an address, after a look at the bytes around it."""
        dtype, shape, nbytes = self._outputs[address]
        for side, start in (("before", address - GUARD), ("after", address + nbytes)):
            guard = self.engine.read(start, np.uint8, (GUARD,))
            assert (guard == GUARD_BYTE).all(), (
                f"the kernel wrote {side} its output, at {np.flatnonzero(guard != 0xA5)}"
            )
        return self.engine.read(address, dtype, shape)

    def call(self, kernel: str, *, units: int, rounds: int = 1, scratch: int = 0, **fields: int | float) -> None:
        """Run a kernel: each round in uneven pieces, the last one first, then whole, which must give the same bytes."""
        each = units // rounds
        cuts = sorted({0, each // 3, each // 3 + 1, each - each // 5, each} - {each + 1})
        within = list(itertools.pairwise(cuts))[::-1]
        pieces = [(first + begin, first + end) for first in range(0, units, each or 1) for begin, end in within]
        self.engine.call_pieces(kernel, units, pieces, scratch, fields)
        outputs = [a for a in self._outputs if a in fields.values()]
        in_pieces = {a: self.get(a).tobytes() for a in outputs}
        for a in outputs:
            self.engine.write(a, np.full(self._outputs[a][2], UNWRITTEN, np.uint8))
        self.engine.call_pieces(kernel, units, None, scratch, fields)
        for a in outputs:
            assert self.get(a).tobytes() == in_pieces[a], f"{kernel}: results depend on how the work is cut"

    def _alloc(self, nbytes: int) -> int:
        address = self.engine.alloc(nbytes)
        self._blocks.append((address, nbytes))
        return address

    def close(self) -> None:
        for address, nbytes in self._blocks:
            self.engine.free(address, nbytes)
        self._blocks.clear()
        self._outputs.clear()


def close(actual: np.ndarray, expected: np.ndarray, depth: int = 1) -> None:
    """Assert that a float32 result is the exact one up to the rounding of sums of `depth` terms of size about 1."""
    np.testing.assert_allclose(actual, expected, rtol=2e-5, atol=1e-6 * max(1.0, depth**0.5) * 4)
