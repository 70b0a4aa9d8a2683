"""The JavaScript half, loaded once, and what every call of it needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import js  # type: ignore[import-not-found]
from pyodide.code import run_js  # type: ignore[import-not-found]
from pyodide.ffi import JsException, to_js  # type: ignore[import-not-found]

import onnxlet_webgpu

from .errors import GPUOutOfMemoryError, GPUValidationError

# Beside the top package, and not beside this module, which may be in an archive.
BRIDGE: Any = run_js((Path(onnxlet_webgpu.__path__[0]) / "browser_wgpu" / "bridge.js").read_text())


def call(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function of the bridge; an exception of JavaScript's is raised as wgpu's type."""
    try:
        return function(*arguments)
    except JsException as error:
        raise typed(error) from None


def typed(error: Any) -> Exception:
    """A JavaScript exception as wgpu's type."""
    message = f"{error.name}: {error.message}"
    return GPUOutOfMemoryError(message) if error.name == "RangeError" else GPUValidationError(message)


def js_object(mapping: Mapping[str, Any]) -> Any:
    """A dictionary as a JavaScript object."""
    return to_js(dict(mapping), dict_converter=js.Object.fromEntries)


def dashed(name: str) -> str:
    """``maxBufferSize`` as ``max-buffer-size``, wgpu's spelling."""
    return "".join("-" + c.lower() if c.isupper() else c for c in name)


def camel(name: str) -> str:
    """``max-buffer-size`` or ``max_buffer_size`` as ``maxBufferSize``."""
    first, *rest = name.replace("_", "-").split("-")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


def limits_of(limits: Any) -> dict[str, int]:
    return {dashed(key): int(value) for key, value in BRIDGE.limits(limits).to_py().items()}


# wgpu's names of features that differ from WebGPU's.
FEATURES = {"subgroups": "subgroup"}


def features_of(features: Any) -> set[str]:
    return {FEATURES.get(name, name) for name in map(str, BRIDGE.list(features))}


def feature_names(features: Iterable[str]) -> list[str]:
    """wgpu's (or WebGPU's) feature names as WebGPU's."""
    back = {ours: theirs for theirs, ours in FEATURES.items()}
    return [back.get(name, name) for name in features]


class Handle:
    """An object in the bridge's table; its number is given back when Python lets go of it."""

    def __init__(self, label: str, number: int, device: Any = None):
        self.label = label
        self._internal = number
        self._device = device

    def __del__(self) -> None:
        number, self._internal = getattr(self, "_internal", 0), 0
        if number:
            BRIDGE.drop(number)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.label!r}>" if self.label else f"<{type(self).__name__}>"
