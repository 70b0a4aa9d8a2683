"""Which provider computes which step, and in what order the steps run.

Every provider is asked in the user's order; NumPy, which knows every operator, is last. Then steps are scheduled so
that neighbours on one provider form long segments: while anything is ready on the current provider, it goes on.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..errors import ProviderError
from ..providers.base import Provider, Step

NUMPY = "NumPy"
"""How tables name the provider of last resort. To users it is part of the CPU provider."""

HEAVY = frozenset(
    {
        "Conv", "FusedConv", "ConvTranspose", "MatMul", "Gemm", "FusedMatMul", "FusedGemm", "MatMulInteger",
        "MatMulNBits", "ConvInteger", "QLinearConv", "QLinearMatMul", "Attention", "MultiHeadAttention",
        "FusedAttention", "GroupQueryAttention", "LSTM", "GRU", "RNN", "Einsum",
    }
)  # fmt: skip
"""Operators that are worth a trip to a device of its own."""


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
    steps: Sequence[Step], placements: list[Placement], segments: Sequence[Sequence[int]], cpu: Sequence[Provider]
) -> bool:
    """Move segments of a device that are not worth two copies back to the CPU; say so in their refusals.

    A device is any provider that is not in `cpu`. An island is a segment of it without a heavy operator. Returns
    whether anything moved (the steps must then be ordered again).
    """
    moved = False
    for segment in segments:
        provider = placements[segment[0]].provider
        if provider is None or provider in cpu or any(steps[i].node.op_type in HEAVY for i in segment):
            continue
        for i in segment:
            refusals = {**placements[i].refusals, provider.name: "no heavy operator nearby: not worth the copies"}
            placements[i] = place(steps[i], cpu)
            placements[i].refusals = {**refusals, **placements[i].refusals}
        moved = True
    return moved


def refuse_others(steps: Sequence[Step], placements: Sequence[Placement], name: str) -> None:
    """Raise `ProviderError` with all the reasons where steps are not on the provider `name`. A node with bodies may be
    elsewhere: the nodes inside of them are looked at by themselves."""
    elsewhere = [
        f"{step.node.label!r} ({step.node.operator}): {placement.refusals.get(name, placement.name)}"
        for step, placement in zip(steps, placements, strict=True)
        if placement.name != name and next(step.node.subgraphs(), None) is None
    ]
    if elsewhere:
        raise ProviderError(
            f"falling back to the CPU is switched off, and {name} does not compute {len(elsewhere)} of "
            f"{len(steps)} nodes: {'; '.join(elsewhere)}"
        )


def dependencies_of(reads: Sequence[Sequence[str]], writes: Sequence[Sequence[str]]) -> list[set[int]]:
    """For each step the steps whose outputs it reads."""
    producer: Mapping[str, int] = {name: i for i, names in enumerate(writes) for name in names if name}
    return [{producer[name] for name in names if name in producer} for names in reads]
