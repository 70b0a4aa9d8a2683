"""Where a pure wheel has its modules: in an archive for all packages, as `scripts/pack_wheel.py` makes it.

Wheels for desktops and checkouts have their modules in files, and no archive. An archive is a line with a separator, a
line with the files' paths, and then their contents, with the separator between; all of it may be compressed by bzip2.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, MutableSequence
from importlib.machinery import ModuleSpec, SourceFileLoader, SourcelessFileLoader
from importlib.util import spec_from_file_location
from types import ModuleType

PLACE = os.path.join(os.path.dirname(__file__), "modules.pack")
SUFFIX = os.path.splitext(__file__)[1]
"""Of this module, which is in no archive, and of those that are in one: all are sources, or all are bytecode."""

_files: dict[str, bytes] = {}
"""The contents of the archive."""


def extended(path: MutableSequence[str]) -> MutableSequence[str]:
    """The `__path__` of a package with the package's folder in the archive, if there is one."""
    return [*path, os.path.join(PLACE, os.path.basename(path[0]))] if _files else path


def unpacked(archive: bytes) -> Iterator[tuple[str, bytes]]:
    """The paths of the files in an archive, and their contents."""
    if archive.startswith(b"BZh"):
        from bz2 import decompress

        archive = decompress(archive)
    separator, names, rest = archive.split(b"\n", 2)
    return zip(names.decode().split(), rest.split(separator), strict=True)


class Finder:
    """Finds the modules in one folder of an archive."""

    def __init__(self, folder: str):
        if not folder.startswith(PLACE):
            raise ImportError("not in onnxlet's archive")
        self.folder = folder

    def find_spec(self, fullname: str, target: ModuleType | None = None) -> ModuleSpec | None:
        place = os.path.join(self.folder, fullname.rpartition(".")[2])
        for file, inside in ((os.path.join(place, "__init__"), [place]), (place, None)):
            file += SUFFIX
            if file in _files:
                loader = Sources(fullname, file) if SUFFIX == ".py" else Bytecode(fullname, file)
                return spec_from_file_location(fullname, file, loader=loader, submodule_search_locations=inside)
        return None

    def iter_modules(self, prefix: str = "") -> Iterator[tuple[str, bool]]:
        """Names of modules, and whether they are packages: what `pkgutil` asks for."""
        for file in _files:
            stem, suffix = os.path.splitext(os.path.relpath(file, self.folder))
            parts = stem.split(os.sep)
            if suffix == SUFFIX and parts[1:] in ([], ["__init__"]) and parts[0] not in ("__init__", os.pardir):
                yield prefix + parts[0], len(parts) == 2


class Sources(SourceFileLoader):
    def get_data(self, path: str) -> bytes:
        return _files[path]


class Bytecode(SourcelessFileLoader):
    def get_data(self, path: str) -> bytes:
        return _files[path]


if os.path.isfile(PLACE):
    with open(PLACE, "rb") as packed:
        _files.update((os.path.join(PLACE, *name.split("/")), content) for name, content in unpacked(packed.read()))
    sys.path_hooks.insert(0, Finder)
