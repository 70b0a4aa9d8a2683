"""Sizes as data: shaders that serve many shapes.

The numbers in a shader's text make it fast, but a model whose shapes change from run to run (decoding with a growing
cache) would compile shaders anew for each of them. Where the texts of two kernels differ by numbers only, these can be
read from a buffer instead: one shader serves both, and all sizes that follow.

A session's first plan keeps its numbers on a real GPU. On a software adapter, which takes a tenth of a second and more
to compile a long shader, kernels of that plan share them too.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from .kernel import Binding

NUMBER = re.compile(r"(?<![\w.])(\d+)u\b")
"""An index or size in WGSL. Array lengths, sizes of workgroups and numbers of bindings are written without the u."""

LONG = 1500
"""Characters of a shader that is worth sharing from the start."""

Shader = tuple[str, list[Binding]]
"""A text and its bindings, of which it writes the last."""


@dataclass(slots=True)
class Form:
    """A shader as it was first met: its title, its numbers, whether several kernels of a plan share it, and which of
    the numbers have been others since then."""

    title: str
    numbers: list[str]
    common: bool
    varying: set[int] = field(default_factory=set)

    def note(self, numbers: Sequence[str]) -> None:
        self.varying.update(n for n, (old, new) in enumerate(zip(self.numbers, numbers, strict=True)) if old != new)


class Sizes:
    """The shaders of a session's plans, by their texts without numbers."""

    def __init__(self) -> None:
        self._forms: dict[tuple[str, str], Form] = {}

    def shared(self, shaders: Sequence[Shader], most: int, ahead: bool) -> list[tuple[str, list[Binding], list[int]]]:
        """Shaders that do the same, for all of a plan: text, bindings, and what the last but one, `sizes`, must hold if
        the list is not empty.

        A shader has at most `most` bindings. With `ahead` all long ones are shared between kernels; the others
        between a kernel and what it was in earlier plans.
        """
        parts = [text.split("\n", 1) for text, _ in shaders]
        numbers = [NUMBER.findall(code) for _, code in parts]
        forms, seen = [], Counter[str]()
        for (title, code), own, (_, bindings) in zip(parts, numbers, shaders, strict=True):
            output = bindings[-1].value
            seen[output] += 1
            kernel = "" if ahead and len(code) > LONG else f"{seen[output]} of {output}"
            form = self._forms.setdefault((kernel, NUMBER.sub("#", code)), Form(title, own, not kernel))
            form.note(own)
            forms.append(form)
        found = []
        for place, ((title, code), own, form) in enumerate(zip(parts, numbers, forms, strict=True)):
            bindings = shaders[place][1]
            if not form.varying or len(bindings) == most or (own == form.numbers and not form.common):
                found.append((f"{form.title if own == form.numbers else title}\n{code}", bindings, []))
                continue
            order = {n: i for i, n in enumerate(sorted(form.varying))}
            table = Binding("sizes", f"\0sizes of {place} {bindings[-1].value}", "u32", len(order))
            text = f"{form.title} of any size\n{_written(code, order, len(bindings) - 1)}"
            found.append((text, [*bindings[:-1], table, bindings[-1]], [int(own[n]) for n in order]))
        return found


def _written(code: str, order: dict[int, int], last: int) -> str:
    """The text with some of its numbers, counted from its start, read from a binding before the one numbered `last`."""
    count = -1

    def number(found: re.Match[str]) -> str:
        nonlocal count
        count += 1
        return f"sizes[{order[count]}]" if count in order else found[0]

    declared = f"@group(0) @binding({last}) var<storage, read> sizes: array<u32>;\n@group(0) @binding({last + 1})"
    return NUMBER.sub(number, code).replace(f"@group(0) @binding({last})", declared, 1)
