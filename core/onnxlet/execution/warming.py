"""Getting ready for a run before there is anything to compute: the plan, its kernels, and a device's shaders."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..errors import FeedError
from ..graph.ir import Graph, TensorType, Type
from ..providers.base import Provider
from .executor import GraphExecutor, Run
from .plan import Compiled, type_of

Warming = Callable[[str, int, int], None]
"""Is told what has just been compiled, as the number of shaders done and the number of all of a segment."""


def entry_types(graph: Graph, given: Mapping[str, Any]) -> dict[str, Type | None]:
    """The types of the inputs for which a plan is made: those of arrays, or declared ones with the shapes given
    for them. Raises `FeedError` where a shape is not known."""
    if unknown := [name for name in given if name not in graph.inputs]:
        raise FeedError(f"the model has no input {', '.join(map(repr, unknown))}; its inputs are {graph.inputs}")
    types: dict[str, Type | None] = {}
    for name in graph.inputs:
        value, declared = given.get(name), graph.types.get(name)
        if isinstance(value, np.ndarray):
            types[name] = type_of(value)
        elif not isinstance(declared, TensorType):
            types[name] = declared
        else:
            type_ = declared if value is None else TensorType(declared.dtype, tuple(int(d) for d in value))
            if not type_.concrete:
                raise FeedError(f"the shape of input {name!r} ({declared}) is not fixed: give it one")
            types[name] = type_
    return types


def warming(
    executor: GraphExecutor,
    providers: list[Provider],
    given: Mapping[str, Any],
    progress: Warming | None,
) -> Run:
    """Make the plan for inputs of these types, and wait until its kernels are compiled."""
    types = entry_types(executor.graph, given)
    arrays = {name: value for name, value in given.items() if isinstance(value, np.ndarray)}
    telling: list[Any] = [provider for provider in providers if hasattr(provider, "progress")]
    for provider in telling:
        provider.progress = progress
    try:
        stage = executor.plan(types, executor.fixed(arrays))
        for instruction in stage.instructions:
            executable: Any = instruction.executable if isinstance(instruction, Compiled) else None
            if hasattr(executable, "ready"):
                yield instruction.provider, executable.ready()  # type: ignore[union-attr]
    finally:
        for provider in telling:
            provider.progress = None
