"""Where a pure wheel has its modules: in an archive for each package, as `scripts/pack_wheel.py` lays them there.

Wheels for desktops and checkouts have their modules in files, and no archive.
"""

from __future__ import annotations

import os
import sys
from collections.abc import MutableSequence
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from types import ModuleType
from zipimport import zipimporter

NAME = "modules.zip"
SUFFIX = os.path.splitext(__file__)[1]
"""Of this module, which is in no archive, and of those that are in one: all are sources, or all are bytecode."""


class Archive(zipimporter):
    """Python's importer of modules in archives, but for its `find_spec`.

    That compiles a module to learn the name of its file, and loading it compiles it again.
    """

    def find_spec(self, fullname: str, target: ModuleType | None = None) -> ModuleSpec | None:
        try:
            is_package = self.is_package(fullname)
        except ImportError:
            return None
        place = os.path.join(self.archive, self.prefix + fullname.rpartition(".")[2])
        file = os.path.join(place, "__init__") if is_package else place
        inside = [place] if is_package else None
        return spec_from_file_location(fullname, file + SUFFIX, loader=self, submodule_search_locations=inside)


def extended(path: MutableSequence[str]) -> MutableSequence[str]:
    """The `__path__` of a package with the package's archive, if there is one."""
    archive = os.path.join(path[0], NAME)
    return [*path, archive] if os.path.isfile(archive) else path


def _hook(place: str) -> Archive:
    if os.sep + NAME not in place:
        raise ImportError("not one of onnxlet's archives")
    return Archive(place)


sys.path_hooks.insert(0, _hook)
