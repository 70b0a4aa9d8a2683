"""The registry of execution providers: which there are, which work here, and how to make them.

Providers of other packages are found by name, so that `onnxlet` imports none of them: a package is asked for its
`PROVIDER`, a `ProviderInfo`, when a session wants one.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from ..errors import ProviderError
from .base import Provider, ProviderInfo

CPU = "CPUExecutionProvider"
WEBGPU = "WebGpuExecutionProvider"

PACKAGES = {CPU: "onnxlet_wasm.provider", WEBGPU: "onnxlet_webgpu.provider"}
"""Where a provider's `PROVIDER: ProviderInfo` is."""

ALIASES = {"cpu": CPU, "wasm": CPU, "webgpu": WEBGPU, "CPU": CPU, "WebGPU": WEBGPU}

AUTO = "auto"
"""Asks for whichever of the providers is faster for the model (`execution/choosing.py`)."""

FOREIGN = frozenset(
    {
        "ACLExecutionProvider", "ArmNNExecutionProvider", "AzureExecutionProvider", "CANNExecutionProvider",
        "CUDAExecutionProvider", "CoreMLExecutionProvider", "DmlExecutionProvider", "DnnlExecutionProvider",
        "JsExecutionProvider", "MIGraphXExecutionProvider", "NnapiExecutionProvider", "NvTensorRTRTXExecutionProvider",
        "OpenVINOExecutionProvider", "QNNExecutionProvider", "ROCMExecutionProvider", "RknpuExecutionProvider",
        "SNPEExecutionProvider", "TensorrtExecutionProvider", "TvmExecutionProvider", "VSINPUExecutionProvider",
        "VitisAIExecutionProvider", "VulkanExecutionProvider", "WebNNExecutionProvider", "XnnpackExecutionProvider",
    }
)  # fmt: skip
"""Providers of onnxruntime's that code written for it may name. They are skipped with a warning."""

ProviderSpec = str | tuple[str, Mapping[str, Any]]


def provider_info(name: str) -> ProviderInfo:
    """The registry's entry for a full provider name. Raises `ProviderError` if its package can't be imported."""
    try:
        return import_module(PACKAGES[name]).PROVIDER
    except ImportError as error:
        raise ProviderError(f"{name} is not available here: {error}") from error


def unavailable(name: str) -> str | None:
    """Why the provider can't be used here, or `None` if it can."""
    try:
        return provider_info(name).available()
    except ProviderError as error:
        return str(error)


def get_available_providers() -> list[str]:
    """Names of the providers that work here, best first. `CPUExecutionProvider` is always the last."""
    return [name for name in (WEBGPU, CPU) if name == CPU or unavailable(name) is None]


def get_all_providers() -> list[str]:
    """Names of all providers that onnxlet has, available here or not, best first."""
    return [WEBGPU, CPU]


def asks_to_choose(providers: Sequence[ProviderSpec] | None) -> bool:
    """Whether the faster provider is wanted."""
    return any((spec if isinstance(spec, str) else spec[0]) == AUTO for spec in providers or ())


def resolve(
    providers: Sequence[ProviderSpec] | None, provider_options: Sequence[Mapping[str, Any]] | None = None
) -> list[tuple[str, dict[str, Any]]]:
    """Full names and options of the wanted providers, in order, the CPU provider last if it is not named.

    Providers of other runtimes are skipped with a warning, as onnxruntime does with those it was not built with;
    a name that nobody knows is a `ValueError`.
    """
    if provider_options is not None and len(provider_options) != len(providers or ()):
        raise ValueError(f"{len(providers or ())} providers but {len(provider_options)} provider_options")
    found: dict[str, dict[str, Any]] = {}
    for i, spec in enumerate([CPU] if providers is None else providers):
        name, options = (spec, {}) if isinstance(spec, str) else (spec[0], dict(spec[1]))
        if provider_options is not None:
            options |= provider_options[i]
        name = ALIASES.get(name, name)
        if name in FOREIGN:
            have = ", ".join(get_all_providers())
            warnings.warn(f"{name} is not a provider of onnxlet and is skipped. onnxlet has: {have}", stacklevel=5)
        elif name == AUTO:
            found.setdefault(WEBGPU, options)
        elif name in PACKAGES:
            found.setdefault(name, options)
        else:
            known = ", ".join([*PACKAGES, *ALIASES, AUTO])
            raise ValueError(f"unknown execution provider {name!r}. onnxlet knows: {known}")
    found.setdefault(CPU, {})
    return list(found.items())


__all__ = [
    "AUTO", "CPU", "WEBGPU", "Provider", "ProviderInfo", "asks_to_choose", "get_all_providers",
    "get_available_providers", "provider_info", "resolve", "unavailable",
]  # fmt: skip
