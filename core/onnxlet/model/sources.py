"""Where bytes lie: in Python's memory, in a mapped file, in a file, or in JavaScript's memory.

A model is read through a `ByteSource`, and a weight remembers its source and offset instead of its bytes. An engine
can so copy weights from where they lie to where it needs them, with no stay in Python's heap.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Protocol, runtime_checkable

from ..errors import ModelError


@runtime_checkable
class ByteSource(Protocol):
    """A run of bytes that can be read piece by piece."""

    size: int

    def read(self, offset: int, size: int) -> memoryview:
        """The bytes [offset, offset + size) as a memoryview of format ``B``. Callers ask within bounds."""
        ...


class MemorySource:
    """Bytes in Python's memory. Reads are views, not copies."""

    def __init__(self, data: Any):
        view = memoryview(data)
        self.view = view.toreadonly() if view.format == "B" and view.ndim == 1 else view.cast("B").toreadonly()
        self.size = self.view.nbytes

    def read(self, offset: int, size: int) -> memoryview:
        return self.view[offset : offset + size]


class MappedFile(MemorySource):
    """A file mapped into memory: only the pages that are looked at are read, so its size does not matter."""

    def __init__(self, path: str):
        import mmap  # here: a page has no use for it

        self.path = path
        with open(path, "rb") as file:
            empty = os.fstat(file.fileno()).st_size == 0
            data = b"" if empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        super().__init__(data)


class FileSource:
    """A file that is read piece by piece, for hosts where mapping a file would copy all of it."""

    def __init__(self, path: str):
        self.path = path
        self._file = open(path, "rb")  # noqa: SIM115 - stays open as long as the source lives
        self.size = os.fstat(self._file.fileno()).st_size

    def read(self, offset: int, size: int) -> memoryview:
        self._file.seek(offset)
        return memoryview(self._file.read(size))

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            self._file.close()


class JsSource:
    """Bytes in a JavaScript `Uint8Array` (Pyodide). A read copies just the asked range into Python."""

    def __init__(self, array: Any):
        self.js = array
        self.size = int(array.byteLength)

    def read(self, offset: int, size: int) -> memoryview:
        part = self.js.subarray(offset, offset + size)
        try:
            return memoryview(part.to_py()).cast("B")
        finally:
            if hasattr(part, "destroy"):
                part.destroy()


def file_source(path: str | os.PathLike[str]) -> ByteSource:
    """Open a file. Raises `OSError` as `open` does."""
    # Emscripten's mmap copies the whole file into the heap.
    return FileSource(os.fspath(path)) if sys.platform == "emscripten" else MappedFile(os.fspath(path))


def _is_js(value: Any) -> bool:
    return type(value).__module__.startswith("pyodide") or type(value).__name__ == "JsProxy"


def as_source(value: Any) -> ByteSource:
    """A source for bytes-like objects, contiguous arrays, JavaScript buffers; a `ByteSource` is returned as it is.

    Raises `ModelError` for anything else.
    """
    if isinstance(value, (bytes, bytearray, memoryview)):
        return MemorySource(value)
    if _is_js(value):
        if hasattr(value, "subarray") and int(value.BYTES_PER_ELEMENT) == 1:
            return JsSource(value)
        import js  # type: ignore[import-not-found]

        if hasattr(value, "buffer"):
            return JsSource(js.Uint8Array.new(value.buffer, value.byteOffset, value.byteLength))
        return JsSource(js.Uint8Array.new(value))
    if isinstance(value, ByteSource):
        return value
    try:
        return MemorySource(value)
    except (TypeError, ValueError) as error:
        raise ModelError(f"expected bytes or a buffer, got {type(value).__name__}") from error
