"""The trace of a session's runs that `SessionOptions.enable_profiling` asks for.

Events are named as in onnxruntime's traces, in the Trace Event Format that Chrome and Perfetto show. A segment of a
provider that can't be timed inside, a GPU's, is one event.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..graph.ir import Graph, Node, TensorType
from ..model.dtypes import spec_name
from ..model.tensors import Tensor
from .plan import Compiled, Interpreted, Stage, type_of


class Profile:
    """Events since `began`, in nanoseconds of `time.monotonic_ns`."""

    def __init__(self, prefix: str):
        self.prefix = prefix
        self.began = time.monotonic_ns()
        self.since = time.perf_counter_ns()
        self.events: list[dict[str, Any]] = []
        self._nodes: dict[int, tuple[Graph, dict[str, tuple[int, Node]]]] = {}

    def note(
        self, name: str, since: int, nanoseconds: int | None = None, category: str = "Session", **arguments: Any
    ) -> None:
        """Add an event that began at `since`, a time of `time.perf_counter_ns`, and ends now or lasted that long."""
        if nanoseconds is None:
            nanoseconds = time.perf_counter_ns() - since
        thread = getattr(threading, "get_native_id", threading.get_ident)()
        self.events.append(
            {
                "cat": category,
                "pid": os.getpid(),
                "tid": thread,
                "dur": nanoseconds // 1000,
                "ts": (since - self.since) // 1000,
                "ph": "X",
                "name": name,
                "args": arguments,
            }
        )

    def loaded(self, source: Any) -> None:
        self.note(f"model_loading_{'uri' if isinstance(source, (str, os.PathLike)) else 'array'}", self.since)

    def add(
        self,
        graph: Graph,
        instruction: Compiled | Interpreted,
        stage: Stage,
        values: Mapping[str, Any],
        since: int,
        rows: Sequence[tuple[str, str, float]],
    ) -> None:
        """Add an instruction that began at `since` and has just ended, or the operations of it that were timed."""
        if isinstance(instruction, Interpreted):
            # To users NumPy is part of the CPU provider.
            found = [(instruction.call.node.label, "", None)]
            provider = "CPUExecutionProvider"
        else:
            found = rows or [(", ".join(instruction.labels), "", None)]
            provider = instruction.provider.name
        types = stage.types | {name: type_of(value) for name, value in values.items()}
        for label, kernel, nanoseconds in _by_node(found):
            index, node = self._find(graph, label)
            arguments: dict[str, Any] = {"op_name": kernel, "provider": provider, "node_index": str(index)}
            if node is not None:
                inputs = [name for name in node.inputs if name]
                known = [name for name in inputs if name in stage.constants]
                fed = [types.get(name) for name in inputs if name not in stage.constants]
                made = [types.get(name) for name in node.outputs if name]
                arguments |= {
                    "op_name": node.op_type,
                    "activation_size": str(_bytes(fed)),
                    "parameter_size": str(sum(stage.constants[name].nbytes for name in known)),
                    "output_size": str(_bytes(made)),
                    "input_type_shape": _shapes([stage.constants.get(name) or types.get(name) for name in inputs]),
                    "output_type_shape": _shapes(made),
                }
            self.note(f"{label}_kernel_time", since, nanoseconds, "Node", **arguments)
            since += nanoseconds or 0

    def _find(self, graph: Graph, label: str) -> tuple[int, Node | None]:
        if id(graph) not in self._nodes:
            self._nodes[id(graph)] = graph, {node.label: (i, node) for i, node in enumerate(graph.nodes)}
        return self._nodes[id(graph)][1].get(label, (-1, None))

    def write(self) -> str:
        """Write the file into the working directory, unless the prefix says another, and return its name."""
        now = time.time()
        stamp = time.strftime("%Y-%m-%d_%H-%M-%S", time.localtime(now))
        path = f"{self.prefix}_{stamp}_{int(now * 1000) % 1000}.json"
        with open(path, "w") as file:
            json.dump(self.events, file)
        return path


def _by_node(rows: Iterable[tuple[str, str, float | None]]) -> list[tuple[str, str, int | None]]:
    """The rows with neighbours of the same node joined, in nanoseconds."""
    joined: list[tuple[str, str, int | None]] = []
    for label, kernel, seconds in rows:
        nanoseconds = None if seconds is None else round(seconds * 1e9)
        if joined and nanoseconds is not None and joined[-1][0] == label:
            nanoseconds += joined.pop()[2] or 0
        joined.append((label, kernel, nanoseconds))
    return joined


def _bytes(types: Iterable[Any]) -> int:
    return sum(t.nbytes for t in types if isinstance(t, TensorType) and t.concrete)


def _shapes(tensors: Iterable[Any]) -> list[dict[str, list[Any]]]:
    return [
        {spec_name(t.dtype): list(t.shape or ())}
        for t in tensors
        if isinstance(t, (Tensor, TensorType)) and t.dtype is not None
    ]
