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
    head = " ".join(f"{path} {len(content)}" for path, content in modules.items())
    whole = head.encode() + b"\n" + b"".join(modules.values())
    return whole if any(path.endswith(".pyc") for path in modules) else bz2.compress(whole)
