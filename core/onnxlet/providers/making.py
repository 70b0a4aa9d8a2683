"""Making the providers that a session wants."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import ProviderError
from ..options import SessionOptions
from . import ALIASES, CPU, PACKAGES, ProviderSpec, asks_to_choose, provider_info, resolve
from .base import Provider, ProviderInfo


def _plan_providers(
    wanted: Sequence[ProviderSpec] | None,
    options: Sequence[Mapping[str, Any]] | None,
    session_options: SessionOptions | None,
) -> tuple[list[tuple[str, dict[str, Any]]], bool]:
    """Names with options, and whether the caller would rather have an error than run on the CPU alone."""
    named = {s if isinstance(s, str) else s[0] for s in wanted or ()}
    resolved = resolve(wanted, options)
    threads = (session_options or SessionOptions()).intra_op_num_threads
    for name, chosen in resolved:
        if name == CPU:
            chosen.setdefault("threads", threads)
    asked = {ALIASES.get(name, name) for name in named} & set(PACKAGES)
    entries = (session_options or SessionOptions()).config_entries
    alone = entries.get("session.disable_cpu_ep_fallback") == "1"
    return resolved, bool(asked) and (alone or CPU not in asked)


def _absence(name: str, error: ProviderError, strict: bool, absent: dict[str, str], quiet: bool) -> None:
    """Note why a provider is not there, and warn; raise if it was the only one that the caller wanted."""
    if strict:
        raise ProviderError(
            f"{error}. Add 'CPUExecutionProvider' to the list of providers to run on the CPU instead (and leave "
            "session.disable_cpu_ep_fallback alone)"
        ) from error
    absent[name] = str(error)
    if not quiet:
        warnings.warn(f"{name} is not used: {error}", stacklevel=4)


def make(
    wanted: Sequence[ProviderSpec] | None,
    options: Sequence[Mapping[str, Any]] | None,
    session_options: SessionOptions | None,
) -> tuple[list[Provider], dict[str, str]]:
    resolved, strict = _plan_providers(wanted, options, session_options)
    made: list[Provider] = []
    absent: dict[str, str] = {}
    for name, chosen in resolved:
        try:
            made.append(_available(name).create(chosen))
        except ProviderError as error:
            _absence(name, error, strict and name != CPU, absent, asks_to_choose(wanted))
    return made, absent


async def make_async(
    wanted: Sequence[ProviderSpec] | None,
    options: Sequence[Mapping[str, Any]] | None,
    session_options: SessionOptions | None,
) -> tuple[list[Provider], dict[str, str]]:
    resolved, strict = _plan_providers(wanted, options, session_options)
    made: list[Provider] = []
    absent: dict[str, str] = {}
    for name, chosen in resolved:
        try:
            info = _available(name)
            made.append(info.create(chosen) if info.create_async is None else await info.create_async(chosen))
        except ProviderError as error:
            _absence(name, error, strict and name != CPU, absent, asks_to_choose(wanted))
    return made, absent


def _available(name: str) -> ProviderInfo:
    info = provider_info(name)
    reason = info.available()
    if reason is not None:
        raise ProviderError(f"{name} is not available here: {reason}")
    return info
