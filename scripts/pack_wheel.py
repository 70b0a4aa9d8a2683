"""A wheel whose modules are one file for each package: what a page downloads.

Some two hundred small modules compress badly one by one, and each costs a wheel 180 bytes of headers and its row in
RECORD. Packed, the modules of all packages are in an archive beside `archive.py`, compressed as a whole: sources by
bzip2, which makes them a sixth smaller than the wheel's own compression would; bytecode, which is there to be fast, by
the wheel. `onnxlet.archive` imports them. What is no module stays a file of its own. Kernels are in one compressed
file, which takes a page 30 ms to take apart; beside bytecode is also the build that most browsers use, as it is.
"""

from __future__ import annotations

import bz2
import lzma
from pathlib import Path

import slim_wheel

ARCHIVE = "modules.pack"
KERNELS = "onnxlet_wasm/lib/kernels.lzma"
"""The build for browsers with relaxed SIMD, and then the one for others."""
SEPARATORS = [b"\0", *(b"\0onnxlet%d\0" % number for number in range(100))]
BLOCK, STEP = 900_000, 20_000
OUTSIDE = {"__init__", "archive"}
"""The modules at the top of a package that importing from its archive begins with."""


def pack(wheel: Path, target: Path) -> None:
    """Write the packed form of a pure wheel, of sources or of bytecode, as `target`."""
    contents = slim_wheel.read(wheel)
    modules: dict[str, bytes] = {}
    place = ""
    for name in sorted(contents):
        package, _, path = name.partition("/")
        stem, _, suffix = path.rpartition(".")
        if suffix in {"py", "pyc"} and stem not in OUTSIDE:
            modules[name] = contents.pop(name)
        elif stem == "archive":
            place = f"{package}/{ARCHIVE}"
    quick = {}
    if KERNELS in contents and any(name.endswith(".pyc") for name in contents):
        both = lzma.decompress(contents[KERNELS])
        quick = {KERNELS.replace(".lzma", ".wasm"): both[: both.index(both[:8], 8)]}
    slim_wheel.write(target, {place: _archive(modules)} | quick | contents)


def _archive(modules: dict[str, bytes]) -> bytes:
    contents = list(modules.values())
    separator = next(s for s in SEPARATORS if not any(s in content for content in contents))
    whole = b"\n".join([separator, " ".join(modules).encode(), separator.join(contents)])
    return whole if any(path.endswith(".pyc") for path in modules) else _smallest(whole)


def _smallest(whole: bytes) -> bytes:
    """All of it by bzip2, as two streams: it compresses 900 kB at once, and where the border lies matters by a
    hundredth."""
    borders = range(max(0, len(whole) - BLOCK), min(len(whole), BLOCK), STEP)
    pairs = ((whole[:border], whole[border:]) for border in borders)
    return min((b"".join(map(bz2.compress, filter(None, pair))) for pair in pairs), key=len)
