"""Running a graph: plans made and cached by input types, their instructions carried out in order.

A run is written once, as a generator that yields whatever it has to wait for (a GPU's answer). `drive` finishes such a
generator by blocking, `drive_async` by awaiting; where nothing has to be waited for, both are a plain call.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from inspect import isawaitable
from typing import Any

import numpy as np

from ..errors import NodeError, OnnxletError
from ..graph.ir import Graph, Node, TensorType, Type
from ..limits import DEFAULT, Limits
from ..model.tensors import Tensor
from ..providers.base import DeviceValue, Provider
from .numpy_steps import describe
from .plan import Compiled, Interpreted, PlanCache, Stage, key_of, make_stage, type_of
from .shortcut import Shortcut
from .telling import MOST_VALUES, telling_inputs, told
from .watching import Watch

Run = Generator[Any, Any, Any]


def drive(run: Run) -> Any:
    """Finish a run, blocking where it waits. What it yields is a `(provider, awaitable)` pair."""
    answer: Any = None
    error: BaseException | None = None
    while True:
        try:
            provider, awaitable = run.throw(error) if error is not None else run.send(answer)
        except StopIteration as stop:
            return stop.value
        answer, error = None, None
        try:
            answer = provider.wait(awaitable)
        except Exception as failure:
            error = failure


async def drive_async(run: Run) -> Any:
    """Finish a run, awaiting where it waits."""
    answer: Any = None
    error: BaseException | None = None
    while True:
        try:
            _, awaitable = run.throw(error) if error is not None else run.send(answer)
        except StopIteration as stop:
            return stop.value
        answer, error = None, None
        try:
            answer = await awaitable
        except BaseException as failure:
            error = failure


class GraphExecutor:
    """Runs one graph on a list of providers; sub-graphs get executors of their own.

    `captured` are the types and `constants` the tensors that a body takes from the graphs around it.
    """

    def __init__(
        self,
        graph: Graph,
        providers: Sequence[Provider],
        constants: Mapping[str, Tensor] | None = None,
        captured: Sequence[str] = (),
        limits: Limits = DEFAULT,
    ):
        self.graph = graph
        self.providers = providers
        self.constants = {**(constants or {}), **graph.initializers}
        self.captured = list(captured)
        self.limits = limits
        self.scope: dict[str, Any] = {}
        self.plans = PlanCache()
        self.latest: Stage | None = None
        self.shortcut: Shortcut | None = None
        """How to run the latest plan, when it was the latest one before too."""
        self.alone = ""
        """The name of a provider that has to compute everything; else planning fails with the reasons."""
        self.staying: frozenset[str] = frozenset()
        """Outputs that are left on the device that computes them."""
        self.watch: Watch | None = None
        self.telling = telling_inputs(graph)
        self.values_told: set[tuple[bytes, ...]] = set()

    def run(self, feeds: Mapping[str, Any], outputs: Sequence[str] | None = None) -> Run:
        """Compute `outputs` (default: the graph's) from values by name. Returns a list; yields to wait."""
        wanted = list(self.graph.outputs if outputs is None else outputs)
        values = dict(feeds)
        placed = bool(self.staying) or any(isinstance(v, DeviceValue) for v in values.values())
        if placed:
            told_on_device = [name for name in self.telling if name in values]
            values.update(zip(told_on_device, (yield from hosted([values[n] for n in told_on_device])), strict=True))
        fixed = self.fixed(values) if self.telling else {}
        key = tuple([(name, key_of(v)) for name, v in values.items()])
        if fixed:
            key = *key, *[value.tobytes() for value in fixed.values()]
        stage = self.plans.lookup(key)
        if stage is None:
            stage = self.plan({name: type_of(v) for name, v in values.items()}, fixed)
        if stage is not self.latest:
            self.shortcut = None
        elif self.shortcut is None:
            self.shortcut = Shortcut.of(stage, values, fixed, wanted)
        self.latest = stage
        watch = self.watch if self.watch is not None and self.watch.active else None
        while True:
            for instruction in stage.instructions:
                if watch is None:
                    yield from self.carry_out(instruction, values, stage, placed)
                else:
                    yield from watch.carry_out(self, instruction, values, stage, placed)
                for name in instruction.dead:
                    values.pop(name, None)
            if not stage.deferred:
                break
            key = tuple([(name, key_of(values[name])) for name in stage.entry if name in values])
            following = stage.following.lookup(key)
            if following is None:
                entry = {name: type_of(values[name]) for name in stage.entry if name in values}
                following = self._make_stage(stage.deferred, entry, stage.constants)
                stage.following.add(key, following)
            stage = following
        results = [values[name] if name in values else stage.constants[name].numpy() for name in wanted]
        if not placed:
            return results
        there = [n for n, name in enumerate(wanted) if name not in self.staying]
        for n, value in zip(there, (yield from hosted([results[n] for n in there])), strict=True):
            results[n] = value
        return results

    def plan(self, types: Mapping[str, Type | None], fixed: Mapping[str, np.ndarray] | None = None) -> Stage:
        """The first stage for inputs of these types, of which `fixed` have these values; from the cache or made now."""
        fixed = fixed or {}
        key: tuple[Any, ...] = tuple(
            [(name, (t.dtype, t.shape) if isinstance(t, TensorType) else None) for name, t in types.items()]
        )
        key = *key, *[value.tobytes() for value in fixed.values()]
        stage = self.plans.lookup(key)
        if stage is None:
            # A fed value overrides the initializer of the same name.
            constants = {name: t for name, t in self.constants.items() if name not in types}
            constants.update((name, Tensor.of(value.copy())) for name, value in fixed.items())
            unknown = {name: t for name, t in types.items() if name not in fixed}
            stage = self._make_stage(self.graph.nodes, unknown, constants)
            self.plans.add(key, stage)
        return stage

    def fixed(self, values: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """The fed values that this run's plan takes for constants."""
        fixed = told(self.telling, values)
        these = tuple([value.tobytes() for value in fixed.values()])
        if these not in self.values_told:
            if len(self.values_told) >= MOST_VALUES:
                self.telling = []
                self.values_told.clear()
                return {}
            self.values_told.add(these)
        return fixed

    def _make_stage(
        self, nodes: Sequence[Node], types: Mapping[str, Type | None], constants: Mapping[str, Tensor]
    ) -> Stage:
        return make_stage(
            nodes,
            self.graph.outputs,
            types,
            constants,
            self.providers,
            self._make_body,
            self.graph,
            self.limits,
            self.alone,
            self.staying,
        )

    def _make_body(
        self, graph: Graph, captured: Mapping[str, Type | None], constants: Mapping[str, Tensor]
    ) -> GraphExecutor:
        executor = GraphExecutor(graph, self.providers, constants, list(captured), self.limits)
        executor.alone = self.alone
        executor.watch = self.watch
        executor.telling = []  # what a body is given changes with every turn
        return executor

    def body(self, *inputs: Any) -> Run:
        """Run this graph as a sub-graph: `inputs` are the body's own, captured values come from `scope`."""
        if len(inputs) != len(self.graph.inputs):
            raise ValueError(f"a body with {len(self.graph.inputs)} inputs was given {len(inputs)}")
        return (yield from self.run({**self.scope, **dict(zip(self.graph.inputs, inputs, strict=True))}))

    def carry_out(
        self, instruction: Compiled | Interpreted, values: dict[str, Any], stage: Stage, placed: bool, step: Any = None
    ) -> Run:
        """Replace what an instruction reads by what it makes, in `values`. `step` computes a segment in the place of
        its executable."""
        if isinstance(instruction, Compiled):
            given = [values[name] for name in instruction.inputs]
            if placed:
                given = yield from hosted(given, instruction.provider)
            try:
                results = (step or instruction.executable.run)(given)
                if type(results) is not list and isawaitable(results):
                    results = yield instruction.provider, results
            except OnnxletError:
                raise
            except Exception as error:
                raise instruction.error(given, error) from error
        else:
            given = [self._argument(instruction, name, values, stage) for name in instruction.inputs]
            if placed:
                given = yield from hosted(given)
            for executor in instruction.bodies:
                executor.scope = {name: values[name] for name in executor.captured}
            own = given[: len(instruction.call.node.inputs)]
            results = yield from instruction.call(own)
            for expected, value in zip(instruction.expected, results, strict=True):
                if expected is not None and value is not None and key_of(value) != (expected.dtype, expected.shape):
                    raise _inference_error(instruction, own, expected, value)
        for name, value in zip(instruction.outputs, results, strict=True):
            if name:
                values[name] = value

    @staticmethod
    def _argument(instruction: Interpreted, name: str, values: Mapping[str, Any], stage: Stage) -> Any:
        if not name or name in values:
            return values.get(name)
        if name not in instruction.fixed:
            instruction.fixed[name] = stage.constants[name].numpy()
        return instruction.fixed[name]

    def close(self) -> None:
        """Free the plans and what they hold on the providers."""
        self.latest = self.shortcut = None
        self.plans.close()


def hosted(values: Sequence[Any], provider: Provider | None = None) -> Run:
    """Values as a provider, or NumPy, can read them: those on another device are read back, each of them once."""
    found = list(values)
    for position, value in enumerate(found):
        if isinstance(value, DeviceValue) and not value.usable_on(provider):
            if value.host is None:
                yield value, value.read()
            found[position] = value.host
    return found


def _inference_error(instruction: Interpreted, given: Sequence[Any], expected: TensorType, value: Any) -> NodeError:
    # Kernels further on were planned for the inferred type: going on would read the wrong bytes.
    wrong = ValueError(f"it gave {describe(value)} where the plan relies on {expected}")
    return instruction.call.error(given, wrong)
