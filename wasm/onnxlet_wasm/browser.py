"""The kernels as a WebAssembly module with a memory of its own: the host in Pyodide, on a page or in a worker.

The memory is shared between threads where the page is cross-origin isolated. One build of a module serves both kinds
of memory: they differ in one byte of the import, which is set when the module is compiled.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from time import perf_counter
from typing import Any

from onnxlet.errors import LimitError, ProviderError

from . import delta
from .heap import Heap

RELAXED, PLAIN = "kernels.wasm", "kernels-plain.wasm"
DELTA = "kernels-plain.delta"
"""What a pure wheel carries in place of the plain build: its difference from the relaxed one."""
MEMORY_IMPORT = b"\x03env\x06memory\x02"
"""In a module's imports: module "env", name "memory", kind memory. The byte after it says what memory it is."""
UNSHARED, SHARED = 0x01, 0x03  # with a maximum; with a maximum and shared

INITIAL_BYTES = 2 << 20
GROWTH = 1 << 20
PAGE = 1 << 16


def available() -> str | None:
    """`None` where the kernels can run, else the reason why not."""
    try:
        _module_bytes(PLAIN)
        if not _loader().validate(_with_memory(_module_bytes(PLAIN), False)):
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

    return run_js(files("onnxlet_wasm").joinpath("loader.js").read_text())()


@cache
def _module_bytes(name: str) -> bytes:
    folder = files("onnxlet_wasm").joinpath("lib")
    difference = folder.joinpath(DELTA)
    if name == PLAIN and difference.is_file():
        return delta.apply(_module_bytes(RELAXED), difference.read_bytes())
    return folder.joinpath(name).read_bytes()


def _isolated() -> bool:
    return bool(_loader().isolated())


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
    """The build that is faster here: a browser that knows relaxed SIMD may run on a machine that doesn't."""
    loader = _loader()
    if not loader.validate(_with_memory(_module_bytes(RELAXED), False)):
        return PLAIN
    times = {}
    for name in (RELAXED, PLAIN):
        if not loader.hasModule(_key(name, False)):
            _guarded(loader.compile, _key(name, False), _with_memory(_module_bytes(name), False))
        times[name] = _time_product(BrowserHost(_key(name, False), False))
    # A browser may give coarse or jittered times: plain must win clearly.
    return PLAIN if times[PLAIN] < 0.8 * times[RELAXED] else RELAXED


def _time_product(host: BrowserHost) -> float:
    """Seconds for a small matrix product, at best, once the browser's optimising compiler has had its time."""
    from .engine import Engine

    engine, n = Engine(host), 96
    block = engine.alloc(12 * n * n)
    engine.zero(block, 12 * n * n)
    a, b, c = block, block + 4 * n * n, block + 8 * n * n
    fields: dict[str, int | float] = {
        "a": a, "lda": n, "b": b, "c": c, "ldc": n, "m": n, "n": n, "k": n, "bias": 0, "residual": 0, "ldr": n,
        "activation": 0, "low": 0, "high": 0,
    }  # fmt: skip
    best, end = float("inf"), perf_counter() + 0.01
    while (start := perf_counter()) < end:
        for _ in range(4):
            engine.call_pieces("gemm", n // 12, None, 0, fields)
        best = min(best, perf_counter() - start)
    return best


def _guarded(function: Any, *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except Exception as error:
        raise ProviderError(f"the kernels could not be loaded: {error}") from error


class BrowserHost:
    """An instance of the module, and its memory, which grows and never shrinks: `close` drops it."""

    def __init__(self, key: str, shared: bool):
        js = _guarded(_loader().makeHost, key, shared, INITIAL_BYTES)
        self._js: Any = js
        self.descriptions: list[str] = js.descriptions.to_py()
        self._heap = Heap(js.heap, js.size(), self._grow)
        self.free = self._heap.free
        # Bound once: looking an attribute of a JavaScript object up costs as much as calling it.
        self.run = js.run
        self.run_piece = js.run_piece
        self.write = js.write
        self.write_js = js.writeJs
        self.read_into = js.read
        self.zero = js.zero

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

    def stats(self) -> int:
        """Bytes of the memory, used or not."""
        return self._js.size() if self._js is not None else 0

    def close(self) -> None:
        """Let go of the memory, so that the browser can have it back."""
        self.__dict__.clear()
        self._js = None
