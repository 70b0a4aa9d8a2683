"""Loops that Mesa's llvmpipe would leave early.

It ends an invocation's loops after 65,535 turns, all loops of a shader together, and says nothing: results would be
wrong. (`LP_MAX_TGSI_LOOP_ITERATIONS` in its sources.) Kernels get more invocations, each with fewer elements, or are
refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ..kernel import WORKGROUP, Kernel

MOST = 65_000
"""Turns of all loops of an invocation, a few less than it has."""

LOOP = re.compile(r"for \(var \w+ = ([^;]*); [^;]*?<=? ([^;]*); \w+ ?(?:\+= (\d+)u?|\+\+)\) \{")
NUMBER = re.compile(r"(\d+)u?$")
COUNT = re.compile(r"let count = (\d+)u;")


def most_steps(info: Mapping[str, Any]) -> int:
    """How many turns of loops an adapter makes: 0 for any number."""
    return MOST if "llvmpipe" in str(info.get("device")) else 0


def steps(text: str) -> int:
    """Turns of the loops in a shader whose bounds are numbers, inner ones counted as often as they are run."""
    return _steps(iter(_pieces(text)))


def _pieces(text: str) -> Iterator[tuple[str, int]]:
    position = 0
    for found in re.finditer(rf"{LOOP.pattern}|[{{}}]", text):
        if found.start() < position:
            continue
        position = found.end()
        if found[0] in "{}":
            yield found[0], 1
            continue
        yield "{", max(-(-_turns(found[1], found[2]) // int(found[3] or 1)), 1)


def _turns(first: str, bound: str) -> int:
    """How many numbers there are from `first` up to the least of the bounds that are numbers, or numbers more."""
    start = NUMBER.match(first)
    known = []
    for part in re.split(r"\bmin\(|[,)]", bound):
        whole, more = NUMBER.match(part.strip()), NUMBER.match(part.strip().removeprefix(f"{first} + "))
        if whole:
            known.append(int(whole[1]) - (int(start[1]) if start else 0))
        elif more:
            known.append(int(more[1]))
    return min(known, default=0)


def _steps(pieces: Iterator[tuple[str, int]]) -> int:
    total = 0
    for brace, turns in pieces:
        if brace == "}":
            break
        inner = _steps(pieces)
        total += turns * (1 + inner) if turns > 1 else inner
    return total


def spread(kernel: Kernel, most: int, max_groups: int) -> str | None:
    """Give a kernel enough invocations that none makes more than `most` turns. Why that can't be, if it can't."""
    turns = steps(kernel.body)
    if turns > most:
        return f"it has loops of {turns:,} turns, of which this device makes at most {most:,}"
    if not kernel.body.startswith("let count = ") or turns < 2:
        return None
    found = COUNT.match(kernel.body)
    count = int(found[1]) if found else kernel.size
    needed = -(-count * (turns + 1) // (WORKGROUP * most))
    if needed > kernel.groups[0]:
        kernel.groups = (min(needed, max_groups), 1, 1)
    return None
