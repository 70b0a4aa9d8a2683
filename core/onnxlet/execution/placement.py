"""Which provider computes which step, and in what order the steps run.

Every provider is asked in the user's order; NumPy, which knows every operator, is last. Then steps are scheduled so
that neighbours on one provider form long segments: while anything is ready on the current provider, it goes on.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from ..errors import ProviderError
from ..providers.base import Provider, Step

NUMPY = "NumPy"
"""How tables name the provider of last resort. To users it is part of the CPU provider."""

HEAVY = frozenset(
    {
        "Conv", "FusedConv", "ConvTranspose", "ConvInteger", "QLinearConv", "DeformConv", "CausalConvWithState",
        "MatMul", "FusedMatMul", "TransposeMatMul", "MatMulInteger", "MatMulIntegerToFloat", "DynamicQuantizeMatMul",
        "QLinearMatMul", "MatMulNBits", "Gemm", "FusedGemm", "QGemm", "Einsum", "Attention", "MultiHeadAttention",
        "FusedAttention", "FlexAttention", "LinearAttention", "GroupQueryAttention", "LSTM", "GRU", "RNN", "DFT",
        "STFT",
    }
)  # fmt: skip
"""Operators that are worth a trip to a device of its own."""

LOOKED_BACK = 8
"""Light operators in a row that may be moved together."""

WAIT = 1 << 20
"""What it costs to wait for a device, in bytes that could be copied meanwhile."""


@dataclass(slots=True)
class Placement:
    """Where a step runs, and why not elsewhere: the reasons of the providers that were asked before."""

    provider: Provider | None
    refusals: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return NUMPY if self.provider is None else self.provider.name


def place(step: Step, providers: Sequence[Provider]) -> Placement:
    """Ask the providers in order; the first that has a kernel gets the step."""
    refusals: dict[str, str] = {}
    for provider in providers:
        try:
            reason = provider.supports(step)
        except Exception as error:
            # What a provider stumbles over is against the specification: NumPy's definition says how.
            reason = f"can't be looked at: {error or type(error).__name__}"
        if reason is None:
            return Placement(provider, refusals)
        refusals[provider.name] = reason
    return Placement(None, refusals)


def order(dependencies: Sequence[set[int]], placements: Sequence[Placement]) -> list[list[int]]:
    """Group steps into segments: lists of step numbers in an order that respects `dependencies`.

    `dependencies[i]` holds the numbers of the steps that step `i` needs. Steps without a provider (NumPy's) are
    grouped too.
    """
    waiting = [len(d) for d in dependencies]
    users: list[list[int]] = [[] for _ in dependencies]
    for i, needed in enumerate(dependencies):
        for j in needed:
            users[j].append(i)
    ready: dict[int, list[int]] = {}
    for i, n in enumerate(waiting):
        if n == 0:
            heapq.heappush(ready.setdefault(id(placements[i].provider), []), i)
    segments: list[list[int]] = []
    while any(ready.values()):
        # Switch to the provider whose oldest waiting step comes first in the graph.
        current = min((queue[0], key) for key, queue in ready.items() if queue)[1]
        segment: list[int] = []
        queue = ready[current]
        while queue:
            i = heapq.heappop(queue)
            segment.append(i)
            for j in users[i]:
                waiting[j] -= 1
                if waiting[j] == 0:
                    heapq.heappush(ready.setdefault(id(placements[j].provider), []), j)
            queue = ready[current]
        segments.append(segment)
    return segments


def demote_islands(
    steps: Sequence[Step],
    placements: list[Placement],
    reads: Sequence[Sequence[str]],
    writes: Sequence[Sequence[str]],
    kept: Collection[str],
    staying: Collection[str],
    sizes: Mapping[str, int],
    cpu: Sequence[Provider],
) -> bool:
    """Move steps of a device that are not worth their copies back to the CPU; say so in their refusals.

    A device is any provider that is not in `cpu`. Steps of it that hand each other values are an island if none of them
    is heavy. A light step beside one on the CPU is moved if that saves copies. `kept` are values that are wanted on the
    host, `staying` those that the caller wants on the device (what makes them counts as heavy), `sizes` the bytes of
    values that are not constants. Returns whether anything moved.
    """
    device = [p.provider if p.provider is not None and p.provider not in cpu else None for p in placements]
    if not any(device):
        return False
    heavy = [s.node.op_type in HEAVY or not w.isdisjoint(staying) for s, w in zip(steps, map(set, writes), strict=True)]
    makers = {name: i for i, names in enumerate(writes) for name in names}
    readers: dict[str, set[int]] = {}
    for i, names in enumerate(reads):
        for name in names:
            readers.setdefault(name, set()).add(i)
    beside = [
        {makers[name] for name in reads[i] if name in makers}.union(*(readers.get(name, ()) for name in writes[i]))
        for i in range(len(steps))
    ]

    def cost(name: str) -> int:
        """What copies of a value cost, as bytes: nothing for a constant."""
        if name not in sizes:
            return 0
        there = device[makers[name]] if name in makers else None
        wanted = {device[i] for i in readers.get(name, ())} | ({None} if name in kept else set())
        wanted.discard(there)
        return len(wanted) * sizes[name] + (WAIT if None in wanted else 0)

    def demote(i: int, reason: str) -> None:
        provider = device[i]
        assert provider is not None
        device[i] = None
        refusals = {**placements[i].refusals, provider.name: reason}
        placements[i] = place(steps[i], cpu)
        placements[i].refusals = {**refusals, **placements[i].refusals}

    moved = False
    for island in _islands(device, beside):
        if not any(heavy[i] for i in island):
            moved = True
            for i in island:
                demote(i, "no heavy operator nearby: not worth the copies")
    waiting = {j for i, there in enumerate(device) if there is None for j in beside[i]}
    while waiting:
        group = _saving(waiting.pop(), heavy, device, reads, writes, makers, sizes, cost)
        for i in group:
            moved = True
            demote(i, "beside an operator on the CPU: not worth the copies")
            waiting |= beside[i]
    return moved


def _saving(
    start: int,
    heavy: Sequence[bool],
    device: list[Provider | None],
    reads: Sequence[Sequence[str]],
    writes: Sequence[Sequence[str]],
    makers: Mapping[str, int],
    sizes: Mapping[str, int],
    cost: Callable[[str], int],
) -> list[int]:
    """A light step with as many of the light ones before it as it takes to save more by moving them to the CPU than
    computing them there costs; none where that is not to be had."""
    there, group, near = device[start], list[int](), [start]
    before = after = 0
    while near and len(group) < LOOKED_BACK and (not group or after >= before):
        i = near.pop(0)
        if device[i] is not there or there is None or heavy[i]:
            continue
        group.append(i)
        values = {name for j in group for name in (*reads[j], *writes[j])}
        for j in group:
            device[j] = there
        before = sum(map(cost, values))
        for j in group:
            device[j] = None
        after = sum(map(cost, values)) + sum(sizes.get(name, 0) for j in group for name in writes[j])
        near += [makers[name] for name in reads[i] if name in makers]
    for j in group:
        device[j] = there
    return group if after < before else []


def _islands(device: Sequence[Provider | None], beside: Sequence[set[int]]) -> list[list[int]]:
    """The steps of devices, grouped by whether they hand each other values."""
    found, seen = [], set[int]()
    for start, there in enumerate(device):
        if there is None or start in seen:
            continue
        seen.add(start)
        island = [start]
        for i in island:  # it grows meanwhile
            near = [j for j in beside[i] if device[j] is there and j not in seen]
            seen.update(near)
            island += near
        found.append(island)
    return found


def refuse_others(steps: Sequence[Step], placements: Sequence[Placement], name: str, later: int) -> None:
    """Raise `ProviderError` with all the reasons where steps are not on the provider `name`.

    A node with bodies may be elsewhere: the nodes inside of them are looked at by themselves. `later` is how many nodes
    are left for when their shapes are known.
    """
    elsewhere = [
        f"{step.node.label!r} ({step.node.operator}): {placement.refusals.get(name, placement.name)}"
        for step, placement in zip(steps, placements, strict=True)
        if placement.name != name and next(step.node.subgraphs(), None) is None
    ]
    if elsewhere:
        raise ProviderError(
            f"falling back to the CPU is switched off, and {name} does not compute {len(elsewhere)} of "
            f"{len(steps)} nodes: {'; '.join(elsewhere)}"
            + (f" (and {later} more nodes have shapes that only a run tells)" if later else "")
        )


def dependencies_of(reads: Sequence[Sequence[str]], writes: Sequence[Sequence[str]]) -> list[set[int]]:
    """For each step the steps whose outputs it reads."""
    producer: Mapping[str, int] = {name: i for i, names in enumerate(writes) for name in names if name}
    return [{producer[name] for name in names if name in producer} for names in reads]
