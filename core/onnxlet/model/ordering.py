"""Putting nodes into topological order."""

from __future__ import annotations

import heapq

from ..errors import ModelError
from ..graph.ir import Node


def sort_nodes(nodes: list[Node], graph: str) -> list[Node]:
    """`nodes` so that each comes after those whose outputs it, or a sub-graph of it, uses; else in the given order.

    Raises `ModelError` where nodes need each other in a circle.
    """
    producer = {output: i for i, node in enumerate(nodes) for output in node.outputs if output}
    needs = [{producer[name] for name in _used(node) if name in producer} for node in nodes]
    if all(not found or max(found) < i for i, found in enumerate(needs)):
        return nodes
    users: list[list[int]] = [[] for _ in nodes]
    for i, found in enumerate(needs):
        for j in found:
            users[j].append(i)
    waiting = [len(found) for found in needs]
    ready = [i for i, count in enumerate(waiting) if count == 0]
    order: list[int] = []
    while ready:
        i = heapq.heappop(ready)
        order.append(i)
        for user in users[i]:
            waiting[user] -= 1
            if waiting[user] == 0:
                heapq.heappush(ready, user)
    if len(order) < len(nodes):
        circle = _circle(needs, next(i for i, count in enumerate(waiting) if count))
        shown = " -> ".join(f"{nodes[i].label!r} ({nodes[i].operator})" for i in circle[:6])
        raise ModelError(f"nodes of graph {graph!r} need each other in a circle: {shown}{' ...' * (len(circle) > 6)}")
    return [nodes[i] for i in order]


def _used(node: Node) -> list[str]:
    used = list(node.inputs)
    for body in node.subgraphs():
        used += body.captures()
    return used


def _circle(needs: list[set[int]], start: int) -> list[int]:
    """A circle of nodes, each needing the next; `start` is one that waits for it."""
    # Nodes outside every circle may be needed too; a node is on the way only while something below it waits.
    path: list[int] = []
    place: dict[int, int] = {}
    done: set[int] = set()
    stack = [(start, iter(sorted(needs[start])))]
    path.append(start)
    place[start] = 0
    while stack:
        node, below = stack[-1]
        step = next((j for j in below if j not in done), None)
        if step is None:
            done.add(node)
            stack.pop()
            path.pop()
            del place[node]
        elif step in place:
            return [*path[place[step] :], step]
        else:
            place[step] = len(path)
            path.append(step)
            stack.append((step, iter(sorted(needs[step]))))
    return [start]
