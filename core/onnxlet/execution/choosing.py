"""`providers=["auto"]`: a model is timed on a device and on the CPU once, and goes on where it is faster.

Both are run with the values of the first run, once to get warm and then by turns. What was chosen is remembered for
the process: by the graph, the device's adapter and the types of the inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import LimitError, NodeError, OnnxletError, ProviderError
from ..explain import stage_rows
from ..graph.ir import STRING, Graph, TensorType
from ..providers import CPU
from ..providers.base import DeviceValue, Provider
from .executor import GraphExecutor, Run
from .plan import key_of
from .warming import entry_types

if TYPE_CHECKING:
    from ..session import InferenceSession

ROUNDS = 3
"""Runs of each that are timed."""

SECONDS = 1.0
"""No further round begins after so long."""

SMALL = 64
"""Elements of a constant up to which its values tell models apart: they may be shapes."""

MOST_REMEMBERED = 64

clock = perf_counter
"""What runs are timed by."""

remembered: dict[tuple[Any, ...], Choice] = {}


@dataclass(frozen=True, slots=True)
class Choice:
    """What was chosen, why, and the least seconds of a run on each, where they were measured."""

    provider: str
    reason: str
    seconds: Mapping[str, float] = field(default_factory=dict)


class Chooser:
    """What a session with `providers=["auto"]` has found out: `choice` is `None` until there is one."""

    def __init__(self, session: InferenceSession):
        self._session = session
        self.choice: Choice | None = None
        devices = [p for p in session._providers if p.name != CPU]
        if not devices:
            self.choice = Choice(CPU, "; ".join(session._absent.values()) or "there is nothing else")

    def decides(self, feeds: Mapping[str, Any]) -> bool:
        """Whether a run with these values is to choose: one that reads nothing from a device."""
        return self.choice is None and not any(isinstance(v, DeviceValue) for v in feeds.values())

    def run(self, feeds: Mapping[str, Any], outputs: Sequence[str]) -> Run:
        """A run that leads to a choice; gives the outputs of the provider that is chosen."""
        session = self._session
        name, device = session._providers[0].name, session._executor
        key = self._key(feeds)
        known = remembered.get(key)
        if known is not None:
            self._take(Choice(known.provider, f"known from before: {known.reason}", known.seconds))
            return (yield from session._executor.run(feeds, outputs))
        host = session._executor_of(device.graph, self._on_cpu())
        results: dict[str, Any] = {}
        seconds: dict[str, float] = {}
        failure, useless, began = "", False, 0.0
        for turn in range(ROUNDS + 1):  # the first one gets them warm
            for each, executor in ((name, device), (CPU, host)):
                since = clock()
                try:
                    results[each] = yield from executor.run(feeds, outputs)
                except (ProviderError, LimitError, NodeError) as error:
                    if each == CPU:
                        host.close()
                        raise
                    failure = f"{each} failed: {error}"
                else:
                    if turn:
                        seconds[each] = min(clock() - since, seconds.get(each, np.inf))
            if not turn:
                began = clock()
                stage = device.latest
                useless = stage is not None and not failure and all(r.provider != name for r in stage_rows(stage))
            if failure or useless or clock() - began > SECONDS:
                break
        if failure or useless:
            choice = Choice(CPU, failure or f"{name} computes no node of it")
        else:
            told = ", ".join(f"{1000 * s:.3g} ms on {each}" for each, s in seconds.items())
            choice = Choice(min(seconds, key=lambda each: seconds[each]), f"a run took {told}", seconds)
        if not failure:  # which may not happen again
            if len(remembered) >= MOST_REMEMBERED:
                remembered.pop(next(iter(remembered)))
            remembered[key] = choice
        if choice.provider != CPU:
            host.close()
        self._take(choice, host)
        return results[choice.provider]

    def warm(self, given: Mapping[str, Any]) -> Run:
        """Choose by values of these shapes, zeros where there are no others; see `warming`."""
        graph = self._session._executor.graph
        types = entry_types(graph, given)
        feeds = {}
        for name, type_ in types.items():
            if not isinstance(type_, TensorType):
                return
            value = given.get(name)
            zero = "" if type_.dtype == STRING else 0
            feeds[name] = value if isinstance(value, np.ndarray) else np.full(type_.dims, zero, type_.dtype)
        if self.choice is None:
            with suppress(OnnxletError):  # a model need not take zeros: then the first run will choose
                yield from self.run(feeds, graph.outputs)

    def _on_cpu(self) -> list[Provider]:
        return [provider for provider in self._session._providers if provider.name == CPU]

    def _key(self, feeds: Mapping[str, Any]) -> tuple[Any, ...]:
        session = self._session
        adapter = repr(getattr(session._providers[0], "adapter_info", None))
        types = tuple((name, key_of(value)) for name, value in feeds.items())
        return fingerprint(session._executor.graph), adapter, session._options.intra_op_num_threads, types

    def _take(self, choice: Choice, host: GraphExecutor | None = None) -> None:
        """Go on with the choice. The device is given back if it is the CPU."""
        self.choice = choice
        if choice.provider != CPU:
            return
        session = self._session
        kept = self._on_cpu()
        host = host or session._executor_of(session._executor.graph, kept)
        for executor in (session._executor, *session._others.values()):
            executor.close()
        session._others.clear()
        for provider in session._providers:
            if provider not in kept:
                provider.close()
        session._providers = kept
        session._executor = session._used = host


def fingerprint(graph: Graph) -> bytes:
    """A digest of what makes a graph fast or slow: nodes, types, and the values of small constants."""
    digest = sha256()
    _describe(graph, digest.update)
    return digest.digest()


def _describe(value: Any, write: Callable[[bytes], Any]) -> None:
    if isinstance(value, Graph):
        _describe([value.inputs, value.outputs, *[value.types.get(name) for name in value.inputs]], write)
        for node in value.nodes:
            _describe([node.operator, node.version, node.inputs, node.outputs, *node.attributes.items()], write)
        for name, tensor in value.initializers.items():
            _describe([name, tensor.numpy() if tensor.size <= SMALL else (tensor.dtype, tensor.shape)], write)
    elif isinstance(value, (list, tuple)):
        write(b"[")
        for item in value:
            _describe(item, write)
        write(b"]")
    elif isinstance(value, np.ndarray):
        _describe((value.dtype, value.shape, value.tolist() if value.size <= SMALL else None), write)
    else:
        write(repr(value).encode())
