"""Plans: a graph specialised to concrete input types.

A plan has one or more *stages*. A stage holds every node whose inputs' shapes follow from what is known when it is
made; where a shape depends on data (NonZero, Loop, a Reshape to a computed shape), the rest of the graph is deferred
to a next stage, planned when the values are there and cached by their types.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import NodeError, OnnxletError, ShapeError
from ..graph.infer import requirements
from ..graph.infer.registry import find_inference
from ..graph.ir import Graph, Node, TensorType, Type
from ..limits import Limits
from ..model.tensors import Tensor
from ..providers.base import DeviceValue, Executable, Provider, Segment, Step
from .folding import fold_into, foldable, shape_result, too_large
from .inlining import branch_taken, inlined
from .numpy_steps import Body, Call, describe
from .placement import Placement, demote_islands, dependencies_of, order, place, refuse_others
from .sharing import Sharing

if TYPE_CHECKING:
    from .executor import GraphExecutor

WITHOUT_TENSORS = frozenset(
    {
        "SequenceAt", "SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert", "SequenceLength",
        "SplitToSequence", "ConcatFromSequence", "Optional", "OptionalGetElement", "OptionalHasElement", "ZipMap",
        "CastMap", "DictVectorizer",
    }
)  # fmt: skip
"""Operators on sequences, optionals and maps: only NumPy has them, so they never wait for types to be learnt."""

PLANS_KEPT = 16
"""Plans (and next stages of one plan) kept per graph; the least recently used is dropped first."""


class PlanCache(OrderedDict[Any, "Stage"]):
    """Stages by key, at most `PLANS_KEPT`; a dropped one frees what its executables hold."""

    def lookup(self, key: Any) -> Stage | None:
        stage = self.get(key)
        if stage is not None:
            self.move_to_end(key)
        return stage

    def add(self, key: Any, stage: Stage) -> None:
        self[key] = stage
        while len(self) > PLANS_KEPT:
            self.popitem(last=False)[1].close()

    def close(self) -> None:
        while self:
            self.popitem()[1].close()


@dataclass(slots=True, eq=False)
class Compiled:
    """A segment on a provider, compiled. `inputs` and `outputs` are names of values."""

    executable: Executable
    provider: Provider
    inputs: list[str]
    outputs: list[str]
    labels: list[str]
    dead: list[str] = field(default_factory=list)

    def error(self, given: Sequence[Any], error: Exception) -> NodeError:
        """What to raise for an error of the executable, which was given these values."""
        labels = self.labels
        nodes = ", ".join(map(repr, labels[:3])) + (f" and {len(labels) - 3} more" if len(labels) > 3 else "")
        inputs = ", ".join(f"{n}: {describe(v)}" for n, v in zip(self.inputs, given, strict=True))
        return NodeError(f"{self.provider.name} failed on node(s) {nodes}: {error}. Inputs: {inputs}")


@dataclass(slots=True, eq=False)
class Interpreted:
    """A node that NumPy computes. `inputs` are the node's own, then those that its bodies capture.

    `expected` holds the outputs' inferred types, on which later steps rely; `None` where there is none.
    """

    call: Call
    inputs: list[str]
    outputs: list[str]
    expected: list[TensorType | None]
    bodies: list[GraphExecutor]
    dead: list[str] = field(default_factory=list)
    fixed: dict[str, np.ndarray] = field(default_factory=dict)
    """Constants that the node reads, decoded at its first run."""


@dataclass(slots=True)
class Row:
    """What a plan decided about one node: a line of `explain()`."""

    node: str
    operator: str
    provider: str
    reason: str
    segment: int
    outputs: str = ""


@dataclass(slots=True, eq=False)
class Stage:
    """What can be run with what was known when it was made, and what is left for later."""

    instructions: list[Compiled | Interpreted]
    constants: dict[str, Tensor]
    types: dict[str, Type | None]
    deferred: list[Node]
    rows: list[Row]
    bodies: list[GraphExecutor]
    entry: list[str] = field(default_factory=list)
    """Values from run time whose types the next stage depends on."""
    copies: list[int] = field(default_factory=list)
    """Bytes of each value that a run brings to a device or back."""
    following: PlanCache = field(default_factory=PlanCache)

    def close(self) -> None:
        self.following.close()
        for instruction in self.instructions:
            if isinstance(instruction, Compiled):
                instruction.executable.close()
        for body in self.bodies:
            body.close()


def needed(graph: Graph, outputs: Collection[str]) -> Graph:
    """The graph with the nodes that these of its outputs need, and no others."""
    wanted, nodes = {*outputs}, []
    for node in reversed(graph.nodes):
        if not wanted.isdisjoint(node.outputs):
            nodes.append(node)
            wanted.update(node_reads(node))
    return replace(graph, nodes=nodes[::-1], outputs=[name for name in graph.outputs if name in outputs])


def type_of(value: Any) -> Type | None:
    """The type of a run-time value where plans care for it: tensors. Others are `None`."""
    if isinstance(value, np.ndarray):
        return TensorType(value.dtype, value.shape)
    return value.type if isinstance(value, DeviceValue) else None


def key_of(value: Any) -> tuple[np.dtype, tuple[int, ...]] | None:
    """What of a run-time value plans are cached by: the same as its type, cheaper to make and to hash."""
    return (value.dtype, value.shape) if isinstance(value, (np.ndarray, DeviceValue)) else None


def constant_type(tensor: Tensor) -> TensorType:
    return TensorType(tensor.dtype, tensor.shape)


def node_reads(node: Node) -> list[str]:
    """All values that a node reads: its inputs and what its bodies capture."""
    reads = [name for name in node.inputs if name]
    for body in node.subgraphs():
        reads += body.captures()
    return reads


def infer_types(node: Node, inputs: Sequence[Type | None], constants: Mapping[str, Tensor]) -> list[Type | None]:
    """The types of a node's outputs, with `None` for what can't be told before it runs."""
    inference = find_inference(node)
    unknown: list[Type | None] = [None] * len(node.outputs)
    if inference is None or any(t is None for t, name in zip(inputs, node.inputs, strict=True) if name):
        return unknown
    values = [small_value(constants.get(name)) if name else None for name in node.inputs]
    types = list(inference(node, inputs, values))
    requirements.check(node, inputs)
    return (types + unknown)[: len(node.outputs)]


def small_value(tensor: Tensor | None) -> np.ndarray | None:
    """The value of a constant if inference may need it (shapes, axes, sizes are short), else `None`."""
    return tensor.numpy() if tensor is not None and tensor.size <= 4096 else None


def make_stage(
    nodes: Sequence[Node],
    outputs: Sequence[str],
    types: Mapping[str, Type | None],
    constants: Mapping[str, Tensor],
    providers: Sequence[Provider],
    make_body: Any,
    declared: Graph,
    limits: Limits,
    alone: str = "",
    staying: frozenset[str] = frozenset(),
) -> Stage:
    """Plan `nodes` as far as types are known.

    `types` holds the types of the values that are there at run time (inputs, earlier results); `outputs` are the
    names that must be there at the end; `make_body(graph, types, constants)` makes the executor of a sub-graph.
    `alone` names a provider that must compute all of them: `ProviderError` says which it can't, and why. Outputs in
    `staying` are left on the device that computes them. Raises `ShapeError` where a node's inputs can't be right.
    """
    known: dict[str, Type | None] = dict(types)
    values: dict[str, Tensor] = dict(constants)
    available = {*known, *values}
    steps: list[Step] = []
    placements: list[Placement] = []
    rows: dict[Node, Row] = {}
    deferred: list[Node] = []
    learnt: set[str] = set()  # outputs of this stage whose types only the run will tell
    looked_at: list[Node] = []
    sharing = Sharing()
    waiting = deque(nodes)
    while waiting:
        node = sharing.read_past(waiting.popleft())
        looked_at.append(node)
        branch = branch_taken(node, values)
        if branch is not None:
            inner, tensors = inlined(node, branch, {*available, *(name for d in deferred for name in d.outputs)})
            values.update(tensors)
            available.update(tensors)
            waiting.extendleft(reversed(inner))
            rows[node] = Row(node.label, node.operator, "plan", "its condition is known: one branch is left", -1)
            continue
        reads = node_reads(node)
        waits = node.op_type not in WITHOUT_TENSORS
        if any(name not in available or (waits and name in learnt) for name in reads):
            deferred.append(node)
            continue
        inputs: list[Type | None] = [
            None if not name else constant_type(values[name]) if name in values else known[name] for name in node.inputs
        ]
        shape = shape_result(node, inputs)
        if shape is not None:
            values[node.outputs[0]] = Tensor.of(shape)
            available.add(node.outputs[0])
            rows[node] = Row(node.label, node.operator, "plan", "follows from the input shapes", -1)
            continue
        try:
            found = infer_types(node, inputs, values)
        except ShapeError:
            raise
        except Exception as error:
            raise ShapeError(f"node {node.label!r} ({node.operator}): its inputs can't be right: {error}") from error
        if foldable(node, values) and not too_large(node, found, values):
            folded = fold_into(node, values)
            if folded is not None:
                available.update(name for name in node.outputs if name)
                rows[node] = Row(node.label, node.operator, "plan", "computed ahead: all inputs are known", -1)
                continue
        step = Step(
            node,
            [t if isinstance(t, TensorType) else None for t in inputs],
            [t if isinstance(t, TensorType) else None for t in found],
            {name: values[name] for name in node.inputs if name in values},
        )
        steps.append(step)
        sharing.add(step)
        placements.append(_placement(step, inputs, found, providers))
        for name, type_ in zip(node.outputs, found, strict=True):
            if not name:
                continue
            available.add(name)
            if isinstance(type_, TensorType) and type_.concrete:
                assert type_.dtype is not None
                limits.check_tensor(
                    type_.dims, type_.dtype, f"output {name!r} of node {node.label!r} ({node.operator})"
                )
                known[name] = type_
            else:
                known[name] = None
                learnt.add(name)
    if sharing.bypassed:
        dead = sharing.unread(steps, {*outputs, *(name for node in deferred for name in node_reads(node))}, node_reads)
        for step in dead:
            rows[step.node] = Row(step.node.label, step.node.operator, "plan", "attention reads what it repeats", -1)
        placements = [p for p, step in zip(placements, steps, strict=True) if step not in dead]
        steps = [step for step in steps if step not in dead]
    return _schedule(
        steps,
        placements,
        rows,
        deferred,
        outputs,
        known,
        values,
        set(types),
        providers,
        make_body,
        declared,
        limits,
        looked_at,
        alone,
        staying,
    )


def _placement(
    step: Step, inputs: Sequence[Type | None], outputs: Sequence[Type | None], providers: Sequence[Provider]
) -> Placement:
    """NumPy takes nodes with bodies, with values that are not tensors, and with shapes that only a run can tell."""
    reason = None
    if next(step.node.subgraphs(), None) is not None:
        reason = "runs sub-graphs, whose nodes have providers of their own"
    elif any(name and not isinstance(t, TensorType) for name, t in zip(step.node.inputs, inputs, strict=True)):
        reason = "an input is not a tensor of known type"
    elif any(
        name and not (isinstance(t, TensorType) and t.concrete)
        for name, t in zip(step.node.outputs, outputs, strict=True)
    ):
        reason = "the shape of its result depends on data"
    if reason is None:
        return place(step, providers)
    return Placement(None, {provider.name: reason for provider in providers})


def _schedule(
    steps: list[Step],
    placements: list[Placement],
    rows: dict[Node, Row],
    deferred: list[Node],
    outputs: Sequence[str],
    known: dict[str, Type | None],
    values: dict[str, Tensor],
    entry_values: set[str],
    providers: Sequence[Provider],
    make_body: Any,
    declared: Graph,
    limits: Limits,
    looked_at: Sequence[Node],
    alone: str,
    staying: frozenset[str],
) -> Stage:
    reads = [node_reads(step.node) for step in steps]
    writes = [[name for name in step.node.outputs if name] for step in steps]
    dependencies = dependencies_of(reads, writes)
    segments = order(dependencies, placements)
    kept = {*outputs, *(name for node in deferred for name in node_reads(node))}
    cpu = [p for p in providers if p.name == "CPUExecutionProvider"]
    sizes = {name: t.nbytes if isinstance(t, TensorType) and t.concrete else 0 for name, t in known.items()}
    if alone:
        refuse_others(steps, placements, alone, len(deferred))
    elif demote_islands(steps, placements, reads, writes, kept - staying, staying, sizes, cpu):
        segments = order(dependencies, placements)

    read_by: dict[str, set[int]] = {}
    for number, segment in enumerate(segments):
        for i in segment:
            for name in reads[i]:
                read_by.setdefault(name, set()).add(number)
    # A value may stay on a device if only segments of that same device read it.
    owner = [placements[segment[0]].provider for segment in segments]
    resident = {
        name
        for number, segment in enumerate(segments)
        if owner[number] is not None
        for i in segment
        for name in writes[i]
        if name not in kept and all(owner[user] is owner[number] for user in read_by.get(name, ()))
    }
    # What the caller keeps does not have to: the run reads it back for those that want it on the host.
    left = {
        name
        for number, segment in enumerate(segments)
        if hasattr(owner[number], "upload")
        for i in segment
        for name in staying.intersection(writes[i])
    }

    stage = Stage([], values, known, deferred, [], [])
    for number, segment in enumerate(segments):
        provider = owner[number]
        for i in segment:
            rows[steps[i].node] = _row(steps[i], placements[i], number)
        if provider is None:
            for i in segment:
                stage.instructions.append(_interpreted(steps[i], known, values, make_body, declared, stage, limits))
            continue
        inside = {name for i in segment for name in writes[i]}
        used = dict.fromkeys(name for i in segment for name in reads[i] if name not in inside and name not in values)
        made = [
            name
            for i in segment
            for name in writes[i]
            if name in kept or any(user != number for user in read_by.get(name, ()))
        ]
        types = {name: t for name, t in known.items() if isinstance(t, TensorType)}
        constants = {name: values[name] for i in segment for name in reads[i] if name in values}
        labels = [steps[i].node.label for i in segment]
        try:
            compiled = provider.compile(
                Segment(
                    [steps[i] for i in segment],
                    list(used),
                    made,
                    types,
                    constants,
                    frozenset((resident | left) & set(made)),
                    frozenset(left & set(made)),
                )
            )
        except OnnxletError:
            raise
        except Exception as error:
            named = ", ".join(map(repr, labels[:3])) + (f" and {len(labels) - 3} more" if len(labels) > 3 else "")
            raise NodeError(f"{provider.name} could not prepare node(s) {named}: {error}") from error
        if provider not in cpu:
            stage.copies += [sizes[name] for name in (*used, *made) if sizes[name] and name not in resident | left]
        stage.instructions.append(Compiled(compiled, provider, list(used), made, labels))
        notes = getattr(compiled, "notes", {})
        for node in (steps[i].node for i in segment):
            if node.label in notes:
                rows[node].reason = "; ".join(filter(None, (rows[node].reason, notes[node.label])))
    stage.rows = [rows[node] for node in looked_at if node in rows]
    _mark_dead(stage, kept)
    stage.entry = sorted(kept & {*entry_values, *(name for w in writes for name in w)})
    return stage


def _interpreted(
    step: Step,
    known: Mapping[str, Type | None],
    values: Mapping[str, Tensor],
    make_body: Any,
    declared: Graph,
    stage: Stage,
    limits: Limits,
) -> Interpreted:
    bodies: list[GraphExecutor] = []

    def body(graph: Graph) -> Body:
        captured = graph.captures()
        executor = make_body(
            graph,
            {name: known.get(name) for name in captured if name not in values},
            {name: values[name] for name in captured if name in values},
        )
        bodies.append(executor)
        return executor.body

    types = [
        t.dtype if t is not None and t.dtype is not None else declared.tensor_type(name).dtype
        for t, name in zip(step.outputs, step.node.outputs, strict=True)
    ]
    call = Call(step.node, types, body, limits)
    stage.bodies += bodies
    # The node's inputs come first; what bodies capture follows, to be kept alive and on the host.
    captured = dict.fromkeys(name for executor in bodies for name in executor.captured)
    expected = [t if t is not None and t.concrete else None for t in step.outputs]
    return Interpreted(call, [*step.node.inputs, *captured], step.node.outputs, expected, bodies)


def _row(step: Step, placement: Placement, segment: int) -> Row:
    reason = "; ".join(f"{name}: {why}" for name, why in placement.refusals.items())
    outputs = ", ".join(str(t) for t in step.outputs if t is not None)
    return Row(step.node.label, step.node.operator, placement.name, reason, segment, outputs)


def _mark_dead(stage: Stage, kept: set[str]) -> None:
    """Note for each instruction which values nobody reads after it, so that the run can let go of them."""
    seen: set[str] = set(kept) | set(stage.constants)
    for instruction in reversed(stage.instructions):
        for name in {*instruction.inputs, *instruction.outputs}:
            if name and name not in seen:
                seen.add(name)
                instruction.dead.append(name)
