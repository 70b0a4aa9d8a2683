"""`InferenceSession`: a model, ready to run. The face follows onnxruntime's Python API."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from . import download, providers, rewrites
from .errors import FeedError, MissingOperatorsError, ModelError, ProviderError, SessionClosedError, TerminatedError
from .execution.executor import GraphExecutor, Run, drive, drive_async
from .execution.numpy_steps import check_signature
from .execution.plan import needed
from .execution.recovery import recovering
from .execution.warming import Warming, warming
from .execution.watching import Watch
from .explain import Explanation, copies_of, count_calls, stage_rows
from .feeds import check_feeds
from .graph.ir import Graph, Model, TensorType, Type
from .io_binding import IOBinding
from .model.dtypes import type_name
from .model.loader import as_bytes, load_model
from .model.tensors import Tensor
from .ops import registry
from .options import RunOptions, SessionOptions
from .providers.base import Provider
from .providers.making import make, make_async
from .values import OrtValue

if TYPE_CHECKING:
    from .execution.choosing import Chooser
    from .execution.profiling import Profile

Progress = Callable[[str, int, int | None], None]
"""Called with what is being done, how much of it is done, and of how much (bytes; `None` where unknown)."""


EXECUTORS_KEPT = 4
"""Executors that a session keeps for overridden initializers and for different sets of outputs left on a device."""


@dataclass(frozen=True, slots=True)
class NodeArg:
    """An input or output of a model: its name, its type such as ``tensor(float)``, and its shape.

    The shape holds an `int` for a fixed dimension, the model's name for a symbolic one, `None` for an unknown one.
    """

    name: str
    type: str
    shape: list[int | str | None]

    @classmethod
    def of(cls, name: str, type_: Type | None) -> NodeArg:
        shape = list(type_.shape or ()) if isinstance(type_, TensorType) else []
        return cls(name, type_name(type_), shape)


@dataclass(frozen=True, slots=True)
class ModelMetadata:
    """What a model says about itself."""

    producer_name: str
    graph_name: str
    domain: str
    description: str
    graph_description: str
    version: int
    custom_metadata_map: dict[str, str]


class InferenceSession:
    """A model with its plans, on a list of execution providers.

    `path_or_bytes` is a path, the bytes of a model, an open binary file, or an `onnx.ModelProto`. `providers` is a
    list of names or `(name, options)` pairs in order of preference; the default is the CPU; `["auto"]` is a GPU or the
    CPU, by which of them is faster in the first run. A provider of onnxruntime's that onnxlet does not have is skipped
    with a warning. `disabled_optimizers` names rewrites of the
    graph that are left out (`onnxlet.rewrites.names()`); names of other runtimes' optimisers are passed over.

    Raises `ModelError` if the model is not valid, `MissingOperatorsError` if it uses operators that are not there
    (all are listed), `ProviderError` if none of the providers can be used.
    """

    def __init__(
        self,
        path_or_bytes: Any,
        sess_options: SessionOptions | None = None,
        providers: Sequence[providers.ProviderSpec] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
        *,
        external_data: Any = None,
        disabled_optimizers: Collection[str] | None = None,
    ):
        sess_options = _copied(sess_options, disabled_optimizers)
        made, absent = make(providers, provider_options, sess_options)
        self._wanted = providers, provider_options
        self._start(path_or_bytes, sess_options, made, absent, external_data)

    @classmethod
    async def create(
        cls,
        source: Any,
        sess_options: SessionOptions | None = None,
        providers: Sequence[providers.ProviderSpec] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
        *,
        external_data: Any = None,
        disabled_optimizers: Collection[str] | None = None,
        progress: Progress | None = None,
        cache: bool = True,
    ) -> InferenceSession:
        """The asynchronous form of the constructor, and the one for web pages.

        `source` may also be a URL: it is downloaded with `progress` and kept in a persistent cache (the browser's
        Cache Storage; a folder on a desktop), which is asked first if `cache` is true. Files of external data are
        fetched from beside it, or from `external_data` if that is a URL; a mapping's values may be URLs too, and in a
        page `Blob`s and file handles. A GPU's adapter is waited for without blocking.
        """
        address = source if isinstance(source, str) and "://" in source else None
        if address is not None:
            source = await download.fetch(address, progress=progress, cache=cache)
        source = as_bytes(source)
        sess_options = _copied(sess_options, disabled_optimizers)
        if sess_options.external_files and external_data is None:
            external_data = sess_options.external_files
        external_data, proto = await download.gather_external(
            source, external_data, address, progress=progress, cache=cache
        )
        made, absent = await make_async(providers, provider_options, sess_options)
        session = cls.__new__(cls)
        session._wanted = providers, provider_options
        session._start(source, sess_options, made, absent, external_data, proto)
        for provider in made if session._chooser else made[:1]:
            await provider.prepare(sum(t.nbytes for t in session._model.graph.initializers.values()))
        return session

    def _start(
        self,
        source: Any,
        options: SessionOptions,
        made: list[Provider],
        absent: dict[str, str],
        external_data: Any,
        proto: Any = None,
    ) -> None:
        self._closed = False
        self._providers = made
        self._absent = absent
        self._options = options
        self._thread_lock = threading.Lock()
        self._task_lock: asyncio.Lock | None = None
        self._watch = Watch()
        profile = self._start_profile()
        try:
            self._model: Model = load_model(
                source,
                external_data=external_data,
                proto=proto,
                files=options.external_files,
                initializers={name: Tensor.of(value.numpy()) for name, value in options.initializers.items()},
                dimensions=options.dimensions,
            )
            if profile is not None:
                profile.loaded(source)
            check_operators(self._model.graph)
            graph = rewrites.optimize(self._model.graph, self._options)
            if self._options.optimized_model_filepath:
                rewrites.write(self._model, graph, self._options.optimized_model_filepath)
        except BaseException:
            for provider in made:
                provider.close()
            raise
        self._executor = self._executor_of(graph)
        self._others: dict[tuple[bool, frozenset[str], frozenset[str]], GraphExecutor] = {}
        self._used = self._executor
        self._chooser = self._new_chooser()
        if profile is not None:
            profile.note("session_initialization", profile.since)

    def __reduce__(self) -> tuple[Any, ...]:
        """The model with its weights, the options and the wanted providers; where it is unpickled a new session is made
        of them. Raises what `onnxlet.save` raises for models that can't be written."""
        from .model.writer import to_bytes

        kept = replace(
            self._options, initializers={}, external_files={}, optimized_model_filepath="", enable_profiling=False
        )
        return type(self), (to_bytes(self._model, most=None), kept, *self._wanted)

    def set_providers(
        self,
        providers: Sequence[providers.ProviderSpec] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        """Go on with other providers: plans are made anew. Raises as the constructor does, and then changes nothing."""
        made, absent = make(providers, provider_options, self._options)
        with self._turn():
            self._free()
            self._providers, self._absent, self._wanted = made, absent, (providers, provider_options)
            self._executor = self._used = self._executor_of(self._executor.graph)
            self._others = {}
            self._chooser = self._new_chooser()

    def _new_chooser(self) -> Chooser | None:
        if not providers.asks_to_choose(self._wanted[0]):
            return None
        from .execution.choosing import Chooser

        return Chooser(self)

    # Running

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: RunOptions | None = None
    ) -> list[Any]:
        """Compute outputs, in the order of `output_names` (`None` or empty: all, in the model's order).

        `input_feed` maps input names to arrays or `OrtValue`s. Raises `FeedError` where they don't fit the model,
        `NodeError` where a node fails, `TerminatedError` where `RunOptions.terminate` ends the run; the session goes on
        working after an error.
        """
        shortcut = self._executor.shortcut
        if shortcut is not None and run_options is None and self._watch.profile is None:
            results = shortcut.run(output_names, input_feed)
            if results is not None:
                return results
        feeds, outputs = self._prepare(output_names, input_feed)
        with self._turn():
            return _own(drive(self._recovering(feeds, outputs, run_options)), feeds)

    async def run_async(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: RunOptions | None = None
    ) -> list[Any]:
        """Like `run`, but waits for a device without blocking. Overlapping calls take turns."""
        feeds, outputs = self._prepare(output_names, input_feed)
        async with self._async_turn():
            return _own(await drive_async(self._recovering(feeds, outputs, run_options)), feeds)

    def io_binding(self) -> IOBinding:
        """A new binding of this session's inputs and outputs, for `run_with_iobinding`."""
        return IOBinding(self)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: RunOptions | None = None) -> None:
        """Compute the bound outputs from the bound inputs, and leave them where the binding says.

        What stays on a device is not read back, and feeds later runs on that device without an upload.
        """
        feeds, outputs, staying = self._bound(iobinding)
        with self._turn():
            results = _own(drive(self._recovering(feeds, outputs, run_options, staying)), feeds)
        iobinding.take(results, self._devices())

    async def run_with_iobinding_async(self, iobinding: IOBinding) -> None:
        """Like `run_with_iobinding`, but waits for a device without blocking. Overlapping calls take turns."""
        feeds, outputs, staying = self._bound(iobinding)
        async with self._async_turn():
            results = _own(await drive_async(self._recovering(feeds, outputs, None, staying)), feeds)
        iobinding.take(results, self._devices())

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:
        """Like `run`, from `OrtValue`s to `OrtValue`s on the CPU."""
        return [OrtValue(v) for v in self.run(output_names, _only_values(input_dict_ort_values), run_options)]

    async def run_with_ort_values_async(
        self, output_names: Sequence[str] | None, input_dict_ort_values: Mapping[str, OrtValue]
    ) -> list[OrtValue]:
        """Like `run_with_ort_values`, but waits for a device without blocking."""
        return [OrtValue(v) for v in await self.run_async(output_names, _only_values(input_dict_ort_values))]

    def _devices(self) -> set[str]:
        """The types of devices on which values can stay."""
        return {kind for p in self._providers if (kind := getattr(p, "device_type", "cpu")) != "cpu"}

    def _bound(self, binding: IOBinding) -> tuple[dict[str, Any], list[str], frozenset[str]]:
        if not binding.outputs:
            raise FeedError("no output is bound")
        feeds, outputs = self._prepare(list(binding.outputs), binding.inputs)
        devices = self._devices()
        # What nobody asked for is not read back either.
        unasked = {*self._model.graph.outputs}.difference(outputs) if devices else frozenset()
        return feeds, outputs, binding.staying(devices) | unasked

    def warmup(self, inputs: Mapping[str, Any] | None = None, *, progress: Warming | None = None) -> None:
        """Get ready for inputs like these, so that the first run is as fast as any: make the plan, bring the weights
        where they are computed with, compile a GPU's shaders.

        `inputs` maps names to shapes, or to arrays where values tell shapes too (the target of a Reshape); what is not
        there has its declared shape. `progress` is called with the name of a shader and how many of how many are done.
        Raises `FeedError` where a shape is not known.
        """
        with self._thread_lock:
            drive(recovering(lambda: self._warming(inputs or {}, progress), self._providers, self._executors))

    async def warmup_async(self, inputs: Mapping[str, Any] | None = None, *, progress: Warming | None = None) -> None:
        """Like `warmup`, but waits for a device without blocking."""
        async with self._async_turn():
            run = recovering(lambda: self._warming(inputs or {}, progress), self._providers, self._executors)
            await drive_async(run)

    def _warming(self, inputs: Mapping[str, Any], progress: Warming | None) -> Run:
        yield from warming(self._executor, self._providers, inputs, progress)
        if self._chooser is not None:
            yield from self._chooser.warm(inputs)

    def _recovering(
        self,
        feeds: Mapping[str, Any],
        outputs: Sequence[str],
        options: RunOptions | None,
        staying: frozenset[str] = frozenset(),
    ) -> Run:
        wanted: frozenset[str] = frozenset()
        if options is not None:
            if options.terminate:
                raise TerminatedError("RunOptions.terminate is set")
            if options.only_execute_path_to_fetches and {*outputs} != {*self._model.graph.outputs}:
                wanted = frozenset(outputs)

        def start() -> Run:
            executor = self._choose(feeds, staying, wanted)
            if self._chooser is not None and executor is self._executor and self._chooser.decides(feeds):
                return self._chooser.run(feeds, outputs)
            return executor.run(feeds, outputs)

        run = recovering(start, self._providers, self._executors)
        watch = self._watch
        return run if options is None and watch.profile is None else watch.over(run, options)

    def _prepare(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any]
    ) -> tuple[dict[str, Any], list[str]]:
        if self._closed:
            raise SessionClosedError("this session was closed; make a new one")
        graph = self._model.graph
        outputs = list(output_names or graph.outputs)
        if output_names and (unknown := [name for name in outputs if name not in graph.outputs]):
            raise FeedError(
                f"the model has no output {', '.join(map(repr, unknown))}; its outputs are {', '.join(graph.outputs)}"
            )
        if isinstance(input_feed, Mapping) and any(isinstance(value, OrtValue) for value in input_feed.values()):
            available = self._providers
            input_feed = {n: v.feed(available) if isinstance(v, OrtValue) else v for n, v in input_feed.items()}
        return check_feeds(graph, input_feed), outputs

    def _choose(self, feeds: Mapping[str, Any], staying: frozenset[str], wanted: frozenset[str]) -> GraphExecutor:
        """The executor for these feeds, for outputs that stay on a device, and, unless empty, the only outputs that are
        wanted. Rewrites take initializers for constants: fed ones need the original graph."""
        overridden = any(name in feeds for name in self._model.graph.defaults)
        key = overridden, staying, wanted
        if not overridden and not staying and not wanted:
            self._used = self._executor
            return self._used
        if key not in self._others:
            if len(self._others) >= EXECUTORS_KEPT:
                self._others.pop(next(iter(self._others))).close()
            graph = self._model.graph if overridden else self._executor.graph
            if wanted:
                graph = needed(graph, wanted)
            self._others[key] = self._executor_of(graph)
            self._others[key].staying = staying
        self._used = self._others[key]
        return self._used

    def _executors(self) -> list[GraphExecutor]:
        return [self._executor, *self._others.values()]

    def _executor_of(self, graph: Graph, computing: list[Provider] | None = None) -> GraphExecutor:
        computing = self._providers if computing is None else computing
        executor = GraphExecutor(graph, computing, limits=self._options.limits)
        executor.watch = self._watch
        first = computing[0].name if computing else providers.CPU
        strict = self._options.config_entries.get("session.disable_cpu_ep_fallback") == "1"
        if strict and first != providers.CPU:
            executor.alone = first
        return executor

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """One run at a time: plans share memory."""
        # A page has one thread: waiting there for a run that is itself suspended would never end.
        if not self._thread_lock.acquire(blocking=sys.platform != "emscripten"):
            raise ProviderError("another run of this session is under way; await it first, or use run_async")
        try:
            yield
        finally:
            self._thread_lock.release()

    @asynccontextmanager
    async def _async_turn(self) -> AsyncIterator[None]:
        if self._task_lock is None:
            self._task_lock = asyncio.Lock()
        async with self._task_lock:
            while not self._thread_lock.acquire(blocking=False):
                await asyncio.sleep(0.001)
            try:
                yield
            finally:
                self._thread_lock.release()

    # Asking

    def get_inputs(self) -> list[NodeArg]:
        """The model's inputs, without initializers that have a default value."""
        return [NodeArg.of(name, self._model.graph.types.get(name)) for name in self._model.graph.inputs]

    def get_outputs(self) -> list[NodeArg]:
        """The model's outputs."""
        return [NodeArg.of(name, self._model.graph.types.get(name)) for name in self._model.graph.outputs]

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Inputs with a default value, which may be fed or left out."""
        return [NodeArg.of(name, self._model.graph.types.get(name)) for name in self._model.graph.defaults]

    def get_providers(self) -> list[str]:
        """Names of the providers in use, in order of preference."""
        return list(dict.fromkeys([*(p.name for p in self._providers), providers.CPU]))

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """The options of the providers in use, by name."""
        chosen = dict(providers.resolve(*self._wanted))
        return {n: {str(k): str(v) for k, v in chosen.get(n, {}).items()} for n in self.get_providers()}

    def get_session_options(self) -> SessionOptions:
        return self._options

    def get_modelmeta(self) -> ModelMetadata:
        """What the model says about itself."""
        model = self._model
        return ModelMetadata(
            model.producer_name,
            model.graph.name,
            model.domain,
            model.doc_string,
            model.graph_doc_string,
            model.model_version,
            dict(model.metadata),
        )

    def explain(self) -> Explanation:
        """Where each node runs and why: of the last run, or, before one, of the plan for the declared input shapes.

        Before the first run of a model whose input shapes are not fixed there is no plan yet, and the table is empty.
        """
        if self._closed:
            raise SessionClosedError("this session was closed; make a new one")
        executor = self._used
        choice = None if self._chooser is None else self._chooser.choice
        if executor.latest is None:
            types = {name: self._model.graph.tensor_type(name) for name in self._model.graph.inputs}
            if not all(t.concrete for t in types.values()):
                return Explanation([], self._absent, choice=choice)
            executor.latest = executor.plan(types)
        stage = executor.latest
        return Explanation(list(stage_rows(stage)), self._absent, count_calls(stage), copies_of(stage), choice)

    def _start_profile(self) -> Profile | None:
        if not self._options.enable_profiling:
            return None
        from .execution.profiling import Profile

        self._watch.profile = Profile(self._options.profile_file_prefix)
        return self._watch.profile

    def end_profiling(self) -> str:
        """Write what `SessionOptions.enable_profiling` has timed since the session was made, as a trace that Chrome and
        Perfetto show, with onnxruntime's names of events and fields. Returns the file's name; an empty text where
        nothing is being timed. What runs afterwards is not timed."""
        profile, self._watch.profile = self._watch.profile, None
        return "" if profile is None else profile.write()

    def get_profiling_start_time_ns(self) -> int:
        """When timing began, comparable to `time.monotonic_ns()`; 0 where nothing is being timed."""
        return 0 if self._watch.profile is None else self._watch.profile.began

    def memory_stats(self) -> dict[str, dict[str, int]]:
        """Bytes held by each provider, by kind."""
        return {provider.name: provider.memory_stats() for provider in self._providers}

    def close(self) -> None:
        """Free the plans and every provider's memory. Closing twice is fine; running afterwards is an error."""
        if self._closed:
            return
        self._closed = True
        self._free()

    def _free(self) -> None:
        for executor in self._executors():
            executor.close()
        for provider in self._providers:
            provider.close()

    def __enter__(self) -> InferenceSession:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _copied(options: SessionOptions | None, disabled: Collection[str] | None) -> SessionOptions:
    """A copy of the options, with more rewrites disabled."""
    options = options or SessionOptions()
    left_out = {*disabled} & {*rewrites.names()} if disabled else set()
    return replace(
        options,
        disabled_rewrites=options.disabled_rewrites | left_out,
        config_entries={**options.config_entries},
        dimensions={**options.dimensions},
        initializers={**options.initializers},
        external_files={**options.external_files},
    )


def _only_values(feeds: Mapping[str, Any]) -> Mapping[str, OrtValue]:
    if wrong := [name for name, value in feeds.items() if not isinstance(value, OrtValue)]:
        raise FeedError(f"input {', '.join(map(repr, wrong))} must be an OrtValue; `run` takes arrays too")
    return feeds


def _own(outputs: list[Any], feeds: Mapping[str, Any]) -> list[Any]:
    """Outputs that belong to the caller: contiguous, writable, and no views of the feeds, the model or each other."""
    seen: list[np.ndarray] = [v for v in feeds.values() if isinstance(v, np.ndarray)]
    owned = []
    for value in outputs:
        if isinstance(value, np.ndarray):
            flags = value.flags
            # Of two arrays that own their memory, neither is a view of the other.
            near = (v for v in seen if v is value or not (flags.owndata and v.flags.owndata))
            if not (flags.c_contiguous and flags.writeable) or any(np.may_share_memory(value, v) for v in near):
                value = value.copy()
            seen.append(value)
        owned.append(value)
    return owned


def check_operators(graph: Graph) -> None:
    """Raise `MissingOperatorsError` with all operators that nobody knows, or `ModelError` for a misused one."""
    missing: dict[tuple[str, int], list[str]] = {}
    _collect_missing(graph, missing)
    if missing:
        raise MissingOperatorsError([(operator, version, nodes) for (operator, version), nodes in missing.items()])


def _collect_missing(graph: Graph, missing: dict[tuple[str, int], list[str]]) -> None:
    for node in graph.nodes:
        operator = registry.find(node.op_type, node.domain, node.version)
        if operator is None:
            missing.setdefault((node.operator, node.version), []).append(node.label)
        else:
            check_signature(node, operator)
        for body in node.subgraphs():
            _collect_missing(body, missing)


__all__ = ["InferenceSession", "ModelError", "ModelMetadata", "NodeArg"]
