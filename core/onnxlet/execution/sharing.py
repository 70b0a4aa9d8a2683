"""Attention that reads keys and values where they are, before each head is repeated for several heads of the queries.

The rewrites do so where the graph alone tells that nothing but heads is repeated. With a cache of any length only the
shapes of a run do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from ..graph.ir import Node, TensorType
from ..providers.base import Step


class Sharing:
    """The steps of a stage in the making, by what they make; `bypassed` are those that some attention reads past."""

    def __init__(self) -> None:
        self._makers: dict[str, Step] = {}
        self.bypassed: set[Step] = set()

    def add(self, step: Step) -> None:
        if not step.node.domain and step.node.op_type in ("Reshape", "Expand", "Tile", "Unsqueeze"):
            self._makers[step.node.outputs[0]] = step

    def read_past(self, node: Node) -> Node:
        """An attention that reads keys and values before their repetition; any other node as it is."""
        kind = (node.domain, node.op_type)
        if kind not in (("ai.onnxlet", "FusedAttention"), ("", "Attention")) or len(node.inputs) < 3:
            return node
        chains = [self._chain(name) for name in node.inputs[1:3]]
        if any((node.attributes.get("heads_last") or [0] * 3)[1:3]) or not all(chains):
            return node
        if len({shape[1] for chain in chains if (shape := _shape(chain[0].inputs[0]))}) > 1:
            return node
        self.bypassed.update(step for chain in chains for step in chain)
        return replace(node, inputs=[node.inputs[0], *(chain[0].node.inputs[0] for chain in chains), *node.inputs[3:]])

    def unread(self, steps: Sequence[Step], kept: Iterable[str], reads: Callable[[Node], Iterable[str]]) -> set[Step]:
        """Those of the bypassed steps whose results nobody reads any more."""
        dead, live = set(), {*kept}
        for step in reversed(steps):
            if step in self.bypassed and live.isdisjoint(step.node.outputs):
                dead.add(step)
            else:
                live.update(reads(step.node))
        return dead

    def _chain(self, name: str) -> list[Step]:
        """Unsqueeze, Expand or Tile, and Reshape of (batch, heads, rows, size) to (batch, heads * repeats, rows, size);
        nothing for another maker of `name`."""
        chain: list[Step] = []
        for operators in (("Reshape",), ("Expand", "Tile"), ("Unsqueeze",)):
            step = self._makers.get(name)
            if step is None or step.node.op_type not in operators:
                return []
            chain.insert(0, step)
            name = step.node.inputs[0]
        source, single = _shape(chain[0].inputs[0]), _shape(chain[0].outputs[0])
        spread, joined = (_shape(step.outputs[0]) for step in chain[1:])
        if source is None or len(source) != 4 or single != (*source[:2], 1, *source[2:]):
            return []
        if spread is None or len(spread) != 5 or (*spread[:2], 1, *spread[3:]) != single:
            return []
        return chain if joined == (source[0], source[1] * spread[2], *source[2:]) else []


def _shape(type_: TensorType | None) -> tuple[int, ...] | None:
    return type_.dims if type_ is not None and type_.concrete else None
