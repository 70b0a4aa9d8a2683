"""The browser's builds of the kernels, run by wasmtime: all kernel tests reach them without a browser."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np
import wasmtime

from onnxlet_wasm.browser import PLAIN, RELAXED, _module_bytes, _with_memory
from onnxlet_wasm.engine import Engine
from onnxlet_wasm.heap import Heap

PAGE = 1 << 16


@cache
def _module(name: str) -> tuple[wasmtime.Engine, wasmtime.Module]:
    config = wasmtime.Config()
    config.wasm_threads = config.wasm_simd = config.wasm_relaxed_simd = config.wasm_bulk_memory = True
    engine = wasmtime.Engine(config)
    return engine, wasmtime.Module(engine, bytes(_with_memory(_module_bytes(name), False)))


class WasmtimeHost:
    """An `onnxlet_wasm.engine.Host` whose kernels are WebAssembly, without threads."""

    bind = None
    exports = None
    may_sleep = False

    def __init__(self, relaxed: bool):
        engine, module = _module(RELAXED if relaxed else PLAIN)
        self.store = wasmtime.Store(engine)
        self.memory = wasmtime.Memory(self.store, wasmtime.MemoryType(wasmtime.Limits(256, 65536)))
        exports: Any = wasmtime.Instance(self.store, module, [self.memory]).exports(self.store)
        self._run, self._run_piece = exports["run"], exports["run_piece"]
        described = exports["kernel_description"]
        self.descriptions = [self._text(described(self.store, i)) for i in range(exports["kernel_count"](self.store))]
        self._heap = Heap(exports["__heap_base"].value(self.store), self.memory.data_len(self.store), self._grow)
        self.alloc, self.free = self._heap.alloc, self._heap.free

    def _text(self, address: int) -> str:
        return bytes(self.memory.read(self.store, address, address + 1000)).split(b"\0")[0].decode()

    def _grow(self, nbytes: int) -> bool:
        missing = nbytes - self.memory.data_len(self.store)
        if missing > 0:
            self.memory.grow(self.store, -(-missing // PAGE))
        return True

    def _address(self, offset: int) -> int:
        base = ctypes.cast(self.memory.data_ptr(self.store), ctypes.c_void_p).value
        assert base is not None
        return base + offset

    def write(self, address: int, data: np.ndarray) -> None:
        data = np.ascontiguousarray(data)
        ctypes.memmove(self._address(address), data.ctypes.data, data.nbytes)

    def write_js(self, address: int, array: Any, offset: int, nbytes: int) -> None:
        raise NotImplementedError("there is no JavaScript memory here")

    def read_into(self, address: int, out: np.ndarray) -> None:
        ctypes.memmove(out.ctypes.data, self._address(address), out.nbytes)

    def zero(self, address: int, nbytes: int) -> None:
        ctypes.memset(self._address(address), 0, nbytes)

    def run(self, tape: int, words: int, scratch: int) -> None:
        self._run(self.store, tape, words, scratch)

    def run_piece(self, tape: int, begin: int, end: int, scratch: int) -> None:
        self._run_piece(self.store, tape, begin, end, scratch)

    def run_shared(self, tape: int, words: int, scratch: int, control: int) -> None:
        raise NotImplementedError("there are no threads here")

    def start_threads(self, control: int, count: int) -> None:
        raise NotImplementedError("there are no threads here")

    def stats(self) -> int:
        return self.memory.data_len(self.store)

    def close(self) -> None:
        pass


def engine(relaxed: bool) -> Engine:
    """An engine on WebAssembly kernels, with or without relaxed SIMD."""
    return Engine(WasmtimeHost(relaxed))
