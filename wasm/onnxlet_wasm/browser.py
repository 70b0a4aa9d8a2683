"""The kernels as a WebAssembly module with a memory of its own: the host in Pyodide, on a page or in a worker.

The memory is shared between threads where the page is cross-origin isolated. One build of a module serves both kinds
of memory: they differ in one byte of the import, which is set when the module is compiled.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

import onnxlet_wasm
from onnxlet.errors import LimitError, ProviderError

from .engine import Bind, array_header
from .heap import Heap

RELAXED, PLAIN = "kernels.wasm", "kernels-plain.wasm"
BOTH = "kernels.lzma"
"""What a pure wheel carries: the relaxed build, then the plain one, compressed as one file."""
MEMORY_IMPORT = b"\x03env\x06memory\x02"
"""In a module's imports: module "env", name "memory", kind memory. The byte after it says what memory it is."""
UNSHARED, SHARED = 0x01, 0x03  # with a maximum; with a maximum and shared

INITIAL_BYTES = 2 << 20
GROWTH = 1 << 20
PAGE = 1 << 16
STACK_BYTES = 1 << 17
"""Of a thread; as many as the link gives the main one."""


def available() -> str | None:
    """`None` where the kernels can run, else the reason why not."""
    try:
        # The plain build is put together, and looked at, only where the other one is of no use.
        if not any(_loader().validate(_with_memory(_module_bytes(name), False)) for name in (RELAXED, PLAIN)):
            return "this browser has no WebAssembly SIMD"
    except (FileNotFoundError, ImportError) as error:
        return f"the compiled kernels are missing from this installation: {error}"
    return None


def create_host(relaxed: bool | None = None) -> BrowserHost:
    """Compile (once per page) and instantiate the kernels. Raises `ProviderError`."""
    loader, shared = _loader(), _isolated()
    name = _chosen(relaxed)
    key = _key(name, shared)
    if not loader.hasModule(key):
        _guarded(loader.compile, key, _with_memory(_module_bytes(name), shared))
    return BrowserHost(key, shared)


async def create_host_async(relaxed: bool | None = None) -> BrowserHost:
    """As `create_host`, with the compilation off this thread."""
    loader, shared = _loader(), _isolated()
    name = _chosen(relaxed)
    key = _key(name, shared)
    if not loader.hasModule(key):
        try:
            await loader.compileAsync(key, _with_memory(_module_bytes(name), shared))
        except Exception as error:
            raise ProviderError(f"the kernels could not be compiled: {error}") from error
    return BrowserHost(key, shared)


@cache
def _loader() -> Any:
    from pyodide.code import run_js  # type: ignore[import-not-found]

    return run_js(_file("loader.js").decode())()


@cache
def _module_bytes(name: str) -> bytes:
    with suppress(FileNotFoundError):
        return _file(f"lib/{name}")
    return _unpacked()[name]


@cache
def _unpacked() -> dict[str, bytes]:
    from pyodide.code import run_js  # type: ignore[import-not-found]
    from pyodide.ffi import to_js  # type: ignore[import-not-found]

    both = run_js(_file("lzma.js").decode())(to_js(_file(f"lib/{BOTH}"))).to_bytes()
    middle = both.index(both[:8], 8)  # how every module begins
    return {RELAXED: both[:middle], PLAIN: both[middle:]}


def _file(path: str) -> bytes:
    """A file of this package. It is beside the package's top: modules may be in an archive."""
    return (Path(onnxlet_wasm.__path__[0]) / path).read_bytes()


def _isolated() -> bool:
    return bool(_loader().isolated())


def processors() -> int:
    """How many threads this machine runs at once, as far as the browser tells: 1 where memory can't be shared."""
    return int(_loader().processors()) if _isolated() else 1


def threads_missing() -> str | None:
    """`None` where there are threads, else why there are none."""
    if not _isolated():
        return "the page is not cross-origin isolated: serve it with COOP same-origin and COEP require-corp"
    refusal = _loader().refusal()
    return None if refusal is None else f"workers can't be started: {refusal}"


def features() -> dict[str, tuple[bool, str]]:
    """What the browser gives to the kernels; see `onnxlet.features`."""
    relaxed = _faster() == RELAXED
    return {
        "simd": (True, "128-bit vectors"),
        "relaxed-simd": (relaxed, "" if relaxed else "this browser has none that multiplies and adds at once"),
        "isolation": (_isolated(), "" if _isolated() else "the page lacks the headers for it: COOP and COEP"),
    }


async def await_threads(count: int, milliseconds: int) -> None:
    """Start workers, unless they are there, and wait until `count` are idle; no longer than `milliseconds`."""
    if _isolated():
        await _loader().awaitThreads(_thread_source(), count, milliseconds)


@cache
def _thread_source() -> str:
    return _file("thread.js").decode()


def _key(name: str, shared: bool) -> str:
    return f"{name} {'shared' if shared else 'unshared'}"


def _with_memory(module: bytes, shared: bool) -> bytearray:
    """The module with its memory import of the given kind."""
    at = module.index(MEMORY_IMPORT) + len(MEMORY_IMPORT)
    assert module[at] in (UNSHARED, SHARED)
    changed = bytearray(module)
    changed[at] = SHARED if shared else UNSHARED
    return changed


def _chosen(relaxed: bool | None) -> str:
    if relaxed is None:
        return _faster()
    return RELAXED if relaxed else PLAIN


@cache
def _faster() -> str:
    """The build that is faster here. A browser may know relaxed SIMD on a machine without fused multiply-add, and does
    it in two instructions there; the build without it has the tiles for that."""
    if not _loader().validate(_with_memory(_module_bytes(RELAXED), False)):
        return PLAIN
    if not _loader().hasModule(_key(RELAXED, False)):
        _guarded(_loader().compile, _key(RELAXED, False), _with_memory(_module_bytes(RELAXED), False))
    return RELAXED if _is_fused(BrowserHost(_key(RELAXED, False), False)) else PLAIN


def _is_fused(host: BrowserHost) -> bool:
    """Whether a product and its sum are rounded once: (1 + 2^-12)^2 - 1 keeps its last bit only then."""
    from .engine import Engine

    engine = Engine(host)
    value, block = np.float32(1 + 2.0**-12), host.alloc(4 * 25)
    engine.write(block, np.array([value] * 9 + [-1] * 8, np.float32))
    fields: dict[str, int | float] = {
        "a": block, "lda": 1, "b": block + 4, "c": block + 4 * 17, "ldc": 8, "m": 1, "n": 8, "k": 1,
        "bias": block + 4 * 9, "residual": 0, "ldr": 0, "activation": 0, "low": 0, "high": 0,
    }  # fmt: skip
    engine.call_pieces("gemm", 1, None, 0, fields)
    result = engine.read(block + 4 * 17, np.float32, (8,))
    engine.close()
    return bool((result == np.float32(2.0**-11 + 2.0**-24)).all())


def _guarded(function: Any, *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except Exception as error:
        raise ProviderError(f"the kernels could not be loaded: {error}") from error


def _bind(
    js: Any, tape: int, words: int, scratch: int, control: int, flags: int, flag_count: int,
    slots: Sequence[tuple[int, int]], inputs: int,
) -> Callable[..., int]:  # fmt: skip
    """See `onnxlet_wasm.engine.Bind`."""
    from pyodide.ffi import to_js  # type: ignore[import-not-found]

    places = to_js([number for slot in slots for number in slot])
    call = js.bind(tape, words, scratch, control, flags, 2 * flag_count, array_header(), places, inputs)
    return lambda *arrays: call(*map(id, arrays))


def _nothing() -> None:
    """Stops the threads of a host that has none."""


class BrowserHost:
    """An instance of the module, and its memory, which grows and never shrinks: `close` drops it."""

    def __init__(self, key: str, shared: bool):
        import pyodide_js  # type: ignore[import-not-found]

        js = _guarded(_loader().makeHost, key, shared, INITIAL_BYTES, getattr(pyodide_js, "_module", None))
        self._js: Any = js
        self.descriptions: list[str] = js.descriptions.to_py()
        self._heap = Heap(js.heap, js.size(), self._grow)
        self.free = self._heap.free
        # Bound once: looking an attribute of a JavaScript object up costs as much as calling it.
        self.run = js.run
        self.run_piece = js.run_piece
        self.run_shared = js.run_shared
        self.exports = js.exports
        self.may_sleep = bool(js.maySleep)
        self.write_js = js.writeJs
        self.write, self.read_into = js.write, js.read
        if js.seesHeap:  # ten times faster for small arrays than asking for their buffers
            copy_in, copy_out = js.copyIn, js.copyOut
            self.write = lambda address, data: copy_in(address, data.__array_interface__["data"][0], data.nbytes)
            self.read_into = lambda address, out: copy_out(address, out.__array_interface__["data"][0], out.nbytes)
        self.bind: Bind | None = partial(_bind, js) if js.seesHeap and array_header() else None
        self.zero = js.zero
        self._stop_threads: Any = _nothing

    def alloc(self, nbytes: int) -> int:
        try:
            return self._heap.alloc(nbytes)
        except MemoryError as error:
            raise LimitError(f"out of memory in the kernels' WebAssembly memory: {error}") from error

    def _grow(self, nbytes: int) -> bool:
        size = self._js.size()
        if nbytes <= size:
            return True
        wanted = min(-(-nbytes // GROWTH) * GROWTH, max(nbytes, 1 << 32))
        return bool(self._js.grow(-(-(wanted - size) // PAGE)))

    def start_threads(self, control: int, count: int) -> None:
        """Have up to `count` of the page's workers help with what is run with `control`, until the host is closed or
        no one has it any more. Those that are up begin at once, others when the event loop has had a turn."""
        stacks = self.alloc(count * STACK_BYTES)
        self._js.startThreads(_thread_source(), control, count, stacks, STACK_BYTES)
        self._stop_threads = weakref.finalize(self, self._js.stopThreads)

    def stats(self) -> int:
        """Bytes of the memory, used or not."""
        return self._js.size() if self._js is not None else 0

    def close(self) -> None:
        """Let go of the memory, so that the browser can have it back."""
        self._stop_threads()
        self.__dict__.clear()
        self._js = None
