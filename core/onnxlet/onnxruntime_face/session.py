"""Onnxruntime's `InferenceSession`: onnxlet's, with the other's errors, fall-backs and callbacks."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import warnings
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from .. import providers as registry
from ..errors import OnnxletError, ProviderError
from ..options import RunOptions, SessionOptions
from ..session import InferenceSession as Base
from ..values import OrtValue
from . import state
from .errors import member, raising

ASSIGNMENT = "session.record_ep_graph_assignment_info"

_tasks: set[asyncio.Task[None]] = set()
"""Runs under way in a page: the loop itself holds them weakly."""


class InferenceSession(Base):
    """A model, ready to run: see `onnxlet.InferenceSession`, which also takes the keywords that it has more."""

    def __init__(
        self,
        path_or_bytes: Any,
        sess_options: SessionOptions | None = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
        **kwargs: Any,
    ) -> None:
        self._enable_fallback = bool(int(kwargs.get("enable_fallback", 1)))
        try:
            chosen = _chosen(providers, provider_options)
        except ValueError as error:
            if not self._enable_fallback:
                raise
            warnings.warn(f"EP Error {error} when using {providers}; falling back to the CPU", stacklevel=2)
            chosen = None
        more = {key: kwargs[key] for key in ("disabled_optimizers", "external_data") if key in kwargs}
        if not isinstance(path_or_bytes, (str, os.PathLike, bytes)) and isinstance(path_or_bytes, (int, float, list)):
            raise TypeError(f"Unable to load from type '{type(path_or_bytes)}'")
        if isinstance(sess_options, state.SessionOptions) and sess_options.providers and not chosen:
            chosen = sess_options.providers
        with raising():
            try:
                super().__init__(path_or_bytes, sess_options, chosen, **more)
            except ProviderError as error:
                if not self._enable_fallback:
                    raise
                warnings.warn(f"EP Error {error} when using {providers}; falling back to the CPU", stacklevel=2)
                super().__init__(path_or_bytes, sess_options, ["CPUExecutionProvider"], **more)

    # Running

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: RunOptions | None = None
    ) -> list[Any]:
        """See `onnxlet.InferenceSession.run`."""
        try:
            return super().run(output_names, input_feed, run_options)
        except OnnxletError as error:
            member(error)
            raise

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: Callable[[list[Any], Any, str], None] | None = None,
        user_data: Any = None,
        run_options: RunOptions | None = None,
    ) -> Any:
        """Run in another thread (in a page: in a task of its event loop), and then call `callback` with the outputs,
        `user_data` and a message, which is empty where there was no error. Without a `callback`: a coroutine."""
        if callback is None:
            return self._run_async(output_names, input_feed, run_options)
        if sys.platform == "emscripten":
            awaited = self._run_async(output_names, input_feed, run_options)
            task = asyncio.ensure_future(_told(awaited, callback, user_data))
            _tasks.add(task)
            task.add_done_callback(_tasks.discard)
        else:
            arguments = (output_names, input_feed, callback, user_data, run_options)
            threading.Thread(target=self._run_and_tell, args=arguments).start()
        return None

    async def _run_async(self, output_names: Any, input_feed: Any, run_options: Any) -> list[Any]:
        with raising():
            return await super().run_async(output_names, input_feed, run_options)

    def _run_and_tell(self, output_names: Any, input_feed: Any, callback: Any, user_data: Any, options: Any) -> None:
        try:
            results, message = super().run(output_names, input_feed, options), ""
        except Exception as error:
            results, message = [], str(error)
        callback(results, user_data, message)

    def run_with_iobinding(self, iobinding: Any, run_options: RunOptions | None = None) -> None:
        """See `onnxlet.InferenceSession.run_with_iobinding`."""
        with raising():
            super().run_with_iobinding(iobinding, run_options)

    def run_with_ortvaluevector(
        self,
        run_options: RunOptions | None,
        feed_names: Sequence[str],
        feeds: Sequence[OrtValue],
        fetch_names: Sequence[str],
        fetches: list[OrtValue],
        fetch_devices: Sequence[Any],
    ) -> None:
        """Run, and put the outputs into `fetches`."""
        del fetch_devices
        named = dict(zip(feed_names, feeds, strict=True))
        fetches[:] = self.run_with_ort_values(list(fetch_names), named, run_options)

    # Asking

    def get_provider_graph_assignment_info(self) -> list[state.OrtEpAssignedSubgraph]:
        """Which nodes each provider computes, in parts that it computes by one call. Where the shapes of the inputs are
        not fixed a run has to come first."""
        if self._options.config_entries.get(ASSIGNMENT) != "1":
            with raising():
                raise OnnxletError(f'the configuration entry {ASSIGNMENT!r} must be "1"')
        parts: dict[Any, state.OrtEpAssignedSubgraph] = {}
        for number, row in enumerate(self.explain().rows):
            if row.provider == "plan":
                continue
            name = registry.CPU if row.provider == "NumPy" else row.provider
            key = (name, row.segment if name == row.provider else -number)
            domain, _, kind = row.operator.rpartition("::")
            part = parts.setdefault(key, state.OrtEpAssignedSubgraph(name, []))
            part.nodes.append(state.OrtEpAssignedNode(row.node, domain, kind))
        return list(parts.values())

    def get_input_memory_infos(self) -> list[state.OrtMemoryInfo]:
        return [state.OrtMemoryInfo() for _ in self._model.graph.inputs]

    def get_output_memory_infos(self) -> list[state.OrtMemoryInfo]:
        return [state.OrtMemoryInfo() for _ in self._model.graph.outputs]

    def get_input_epdevices(self) -> list[state.OrtEpDevice]:
        return state.get_ep_devices()[-1:] * len(self._model.graph.inputs)

    def get_tuning_results(self) -> list[Any]:
        return []

    def create_ortvalue_from_shape_and_type(
        self, shape: Sequence[int], element_type: Any, device_type: str, device_id: int = 0, vendor_id: int = -1
    ) -> OrtValue:
        """A tensor of zeros on a device: see `OrtValue.ortvalue_from_shape_and_type`."""
        return OrtValue.ortvalue_from_shape_and_type(shape, element_type, device_type, device_id, vendor_id)

    # Setting

    def set_providers(self, providers: Any = None, provider_options: Any = None) -> None:
        """See `onnxlet.InferenceSession.set_providers`."""
        with raising():
            super().set_providers(_chosen(providers, provider_options))

    def disable_fallback(self) -> None:
        self._enable_fallback = False

    def enable_fallback(self) -> None:
        self._enable_fallback = True

    def set_tuning_results(self, results: Any, *, error_on_invalid: bool = False) -> None:
        """Accepted: there is nothing to tune."""

    def set_ep_dynamic_options(self, options: dict[str, str]) -> None:
        """Accepted: no provider has options that change while it runs."""

    def release_captured_graph(self, graph_annotation_id: int = 0) -> None:
        """Accepted: a GPU's recordings belong to plans, which free them."""


async def _told(awaited: Coroutine[Any, Any, list[Any]], callback: Any, user_data: Any) -> None:
    try:
        results, message = await awaited, ""
    except Exception as error:
        results, message = [], str(error)
    callback(results, user_data, message)


def _chosen(providers: Any, options: Any) -> list[Any] | None:
    """The providers with their options, without those that onnxlet does not have: code for onnxruntime names many."""
    if providers is None:
        return None
    if isinstance(providers, str):
        providers = [providers]
    names, options = check_and_normalize_provider_args(providers, options, registry.get_all_providers())
    return [(n, o) for n, o in zip(names, options, strict=True) if registry.ALIASES.get(n, n) in registry.PACKAGES]


def check_and_normalize_provider_args(
    providers: Any, provider_options: Any, available_provider_names: Sequence[str]
) -> tuple[list[str], list[dict[str, str]]]:
    """The names of the wanted providers, and the options of each. Raises `ValueError` where these are not sequences of
    names and dicts; names that are not available are told in a warning, and stay."""
    if providers is None:
        return [], []
    if not isinstance(providers, Sequence):
        raise ValueError("'providers' should be a sequence.")
    if provider_options is not None:
        if not isinstance(provider_options, Sequence):
            raise ValueError("'provider_options' should be a sequence.")
        if len(providers) != len(provider_options):
            raise ValueError("'providers' and 'provider_options' should be the same length if both are given.")
        if not all(isinstance(provider, str) for provider in providers):
            raise ValueError("Only string values for 'providers' are supported if 'provider_options' is given.")
        if not all(isinstance(chosen, dict) for chosen in provider_options):
            raise ValueError("'provider_options' values must be dicts.")
        providers = list(zip(providers, provider_options, strict=True))
    found: dict[str, dict[str, str]] = {}
    for given in providers:
        pair = (given, {}) if isinstance(given, str) else given
        if not (isinstance(pair, tuple) and [type(part) for part in pair] == [str, dict]):
            raise ValueError("'providers' values must be either strings or (string, dict) tuples.")
        name, chosen = pair
        if name in found:
            warnings.warn(f"Duplicate provider '{name}' encountered, ignoring.", stacklevel=4)
            continue
        if registry.ALIASES.get(name, name) not in available_provider_names:
            have = ", ".join(available_provider_names)
            warnings.warn(
                f"Specified provider '{name}' is not in available provider names. Available providers: '{have}'",
                stacklevel=4,
            )
        found[name] = {str(key): str(value) for key, value in chosen.items()}
    return list(found), list(found.values())
