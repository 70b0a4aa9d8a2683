"""Sizes as data: shaders that serve many shapes.

The numbers in a shader's text make it fast, but a model whose shapes change from run to run (decoding with a growing
cache) would compile shaders anew for each of them. From a session's second plan on, the numbers by which a kernel
differs from what it was in the plans before are read from a buffer: one shader serves all sizes that follow.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from .kernel import Binding

NUMBER = re.compile(r"(?<![\w.])(\d+)u\b")
"""An index or size in WGSL. Array lengths, sizes of workgroups and numbers of bindings are written without the u."""


@dataclass(slots=True)
class Form:
    """A kernel as the first plan had it: its title, its numbers, and which of them have been others since then."""

    title: str
    numbers: list[str]
    varying: set[int] = field(default_factory=set)


class Sizes:
    """The kernels of a session's plans, by what they compute."""

    def __init__(self) -> None:
        self._forms: dict[tuple[str, int, str], Form] = {}

    def shared(
        self, output: str, place: int, text: str, bindings: Sequence[Binding], most: int
    ) -> tuple[str, list[Binding], list[int]]:
        """A shader that does the same as `text`, its bindings, and what the binding `sizes`, if it has that, must hold.

        The kernel is the one with the number `place` of those that write `output`. A shader has at most `most`
        bindings, the last of which it writes.
        """
        title, code = text.split("\n", 1)
        numbers = NUMBER.findall(code)
        key = output, place, NUMBER.sub("#", code)
        form = self._forms.setdefault(key, Form(title, numbers))
        form.varying.update(n for n, (old, new) in enumerate(zip(form.numbers, numbers, strict=True)) if old != new)
        if numbers == form.numbers or len(bindings) == most:
            return f"{form.title if numbers == form.numbers else title}\n{code}", list(bindings), []
        order = {n: i for i, n in enumerate(sorted(form.varying))}
        count = iter(range(len(numbers)))

        def written(found: re.Match[str]) -> str:
            n = next(count)
            return f"sizes[{order[n]}]" if n in order else found[0]

        code = NUMBER.sub(written, code)
        last = len(bindings) - 1
        declared = f"@group(0) @binding({last}) var<storage, read> sizes: array<u32>;\n@group(0) @binding({last + 1})"
        code = code.replace(f"@group(0) @binding({last})", declared, 1)
        table = Binding("sizes", f"\0sizes {place} of {output}", "u32", len(order))
        values = [int(numbers[n]) for n in order]
        return f"{form.title} of any size\n{code}", [*bindings[:-1], table, bindings[-1]], values
