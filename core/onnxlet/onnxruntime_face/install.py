"""Standing in for onnxruntime: `import onnxruntime` finds onnxlet, and so does who asks for installed distributions."""

from __future__ import annotations

import importlib.abc
import os
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.metadata import Distribution
from types import ModuleType
from typing import Any

from ..errors import UnsupportedError

VERSION = "1.32.0"
"""The release of onnxruntime whose API the face has."""

MODULES = frozenset(
    {
        "onnxruntime", "onnxruntime.capi", "onnxruntime.capi._pybind_state",
        "onnxruntime.capi.build_and_package_info", "onnxruntime.capi.onnxruntime_inference_collection",
        "onnxruntime.capi.onnxruntime_pybind11_state", "onnxruntime.capi.onnxruntime_validation",
    }
)  # fmt: skip

ABSENT = {
    "backend": "run models with onnxruntime.InferenceSession",
    "datasets": "its example models come with onnxruntime alone",
    "quantization": "quantise models with onnxruntime, and run them here",
    "tools": "prepare models with onnxruntime, and run them here",
    "training": "onnxlet does not train",
    "transformers": "optimise models with onnxruntime, and run them here",
}
"""Parts of onnxruntime that prepare models rather than run them, and what to do instead."""

DISTRIBUTIONS = {
    "onnxruntime",
    "onnxruntime-gpu",
    "onnxruntime-directml",
    "onnxruntime-openvino",
    "onnxruntime-silicon",
}
"""The names under which onnxruntime is required. The first is listed, the others are found by who asks for them."""


def install(version: str = VERSION) -> None:
    """See `onnxlet.install_as_onnxruntime`."""
    loaded = sys.modules.get("onnxruntime")
    if loaded is not None and not hasattr(loaded, "__onnxlet__"):
        place = getattr(loaded, "__file__", None)
        raise UnsupportedError(
            f"onnxruntime itself is imported already, from {place}: call install_as_onnxruntime() before whatever "
            "imports it"
        )
    for finder in sys.meta_path:
        if isinstance(finder, Finder):
            finder.version = version
            break
    else:
        sys.meta_path.insert(0, Finder(version))
    if loaded is not None:
        vars(loaded)["__version__"] = version


def fill(module: Any) -> None:
    """Give a module what onnxruntime's module of that name has."""
    from . import NAMES

    vars(module).update(NAMES[module.__name__])
    module.__file__ = os.path.join(os.path.dirname(__file__), "__init__.py")
    module.__onnxlet__ = True
    if module.__name__ == "onnxruntime":
        found = next(finder for finder in sys.meta_path if isinstance(finder, Finder))
        module.__version__ = found.version
        module.__author__ = "The onnxlet authors"
        module.version, module.package_name, module.cuda_version = found.version, "onnxruntime", ""
        for name in sorted(MODULES):
            if name != "onnxruntime":
                import_module(name)


class Finder:
    """Finds onnxruntime's modules and distributions. It is asked before those that look into folders."""

    def __init__(self, version: str):
        self.version = version

    def find_spec(self, fullname: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        top, _, rest = fullname.partition(".")
        if top != "onnxruntime" or not (fullname in MODULES or rest.partition(".")[0] in ABSENT):
            return None
        return ModuleSpec(fullname, Loader(), origin="onnxlet", is_package=fullname.count(".") < 2)

    def find_distributions(self, context: Any = None) -> Iterator[Distribution]:
        """The stand-in's distribution, unless somebody asks for those in certain folders."""
        asked = {} if context is None else vars(context)
        name = re.sub("[-_.]+", "-", asked.get("name") or "onnxruntime").lower()
        if "path" not in asked and name in DISTRIBUTIONS:
            yield StandIn(name, self.version)


class Loader(importlib.abc.Loader):
    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        if name not in MODULES:
            part = name.split(".")[1]
            message = f"onnxlet stands in for onnxruntime and has no {name}: {ABSENT[part]}"
            raise ModuleNotFoundError(message, name=name)
        fill(module)


class StandIn(Distribution):
    """A distribution without files."""

    def __init__(self, name: str, version: str):
        self._text = metadata(name, version)

    def read_text(self, filename: str) -> str | None:
        return {"METADATA": self._text, "INSTALLER": "onnxlet\n"}.get(filename)

    def locate_file(self, path: Any) -> Any:
        return path


def metadata(name: str, version: str, *more: str) -> str:
    """What a distribution says about itself."""
    return "\n".join(
        [
            "Metadata-Version: 2.1",
            f"Name: {name}",
            f"Version: {version}",
            "Summary: onnxlet in the place of onnxruntime",
            *more,
            "",
        ]
    )
