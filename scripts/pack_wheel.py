"""A wheel whose modules are one file for each package: what a page downloads.

Some two hundred small modules compress badly one by one, and each costs a wheel 180 bytes of headers and its row in
RECORD. Packed, a package's modules are in an archive beside its top `__init__`, compressed as a whole: sources by
bzip2, which makes them a sixth smaller than the wheel's own compression would; bytecode, which is there to be fast, by
the wheel. `onnxlet.archive` imports them. What is no module stays a file of its own; kernels beside sources are
compressed by bzip2 as well.
"""

from __future__ import annotations

import bz2
from collections import defaultdict
from pathlib import Path

import slim_wheel

ARCHIVE = "modules.pack"
OUTSIDE = {"__init__", "archive"}
"""The modules at the top of a package that importing from its archive begins with."""


def pack(wheel: Path, target: Path) -> None:
    """Write the packed form of a pure wheel, of sources or of bytecode, as `target`."""
    contents = slim_wheel.read(wheel)
    packages: dict[str, dict[str, bytes]] = defaultdict(dict)
    for name in sorted(contents):
        package, _, path = name.partition("/")
        stem, _, suffix = path.rpartition(".")
        if suffix in {"py", "pyc"} and stem not in OUTSIDE:
            packages[package][path] = contents.pop(name)
    compressed = {}
    if not any(name.endswith(".pyc") for name in contents):
        compressed = {
            f"{name}.bz2": bz2.compress(contents.pop(name)) for name in list(contents) if name.endswith(".wasm")
        }
    archives = {f"{package}/{ARCHIVE}": _archive(modules) for package, modules in packages.items()}
    slim_wheel.write(target, archives | compressed | contents)


def _archive(modules: dict[str, bytes]) -> bytes:
    head = " ".join(f"{path} {len(content)}" for path, content in modules.items())
    whole = head.encode() + b"\n" + b"".join(modules.values())
    return whole if any(path.endswith(".pyc") for path in modules) else bz2.compress(whole)
