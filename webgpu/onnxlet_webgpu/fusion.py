"""Fusing elementwise kernels into the store of the kernel before them: fewer values are written and read again."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace
from math import prod

from .kernel import CHAIN, Kernel, Operand, use


def fuse(kernels: list[Kernel], kept: Set[str], max_bindings: int) -> list[Kernel]:
    """Fuse what can be fused. `kept` are values that must be written, as others read them."""
    readers = use(kernels)
    fused: list[Kernel] = []
    made_by: dict[str, int] = {}
    for kernel in kernels:
        position = _producer(kernel, fused, made_by, readers, kept)
        if position is None or not _append(fused[position], kernel, max_bindings):
            fused.append(kernel)
            position = len(fused) - 1
        made_by[kernel.output] = position
    return fused


def _producer(
    kernel: Kernel, fused: list[Kernel], made_by: dict[str, int], readers: dict[str, int], kept: Set[str]
) -> int | None:
    """The kernel into whose store this one can go: the latest that it depends on, if no one else needs its result."""
    if kernel.element or not kernel.fusable:
        return None
    produced = [(made_by[o.value], o) for m in kernel.maps for o in m.operands if o.value in made_by]
    if not produced:
        return None
    position, operand = max(produced, key=lambda found: found[0])
    before = fused[position]
    if not before.fusable or before.output in kept or readers[before.output] != 1:
        return None
    later = {o.value for m in kernel.maps[1:] for o in m.operands}
    if operand.value != before.output or before.output in later:
        return None
    if prod(operand.shape) != kernel.size or before.size != kernel.size:
        return None
    return position


def _append(before: Kernel, kernel: Kernel, max_bindings: int) -> bool:
    """Append the elementwise kernel's maps to another's; `False` where that would take too many buffers."""
    first, *rest = kernel.maps
    operands = tuple(
        Operand(CHAIN, o.shape, o.element) if o.value == before.output and o.text is None else o for o in first.operands
    )
    added = [replace(first, operands=operands), *rest]
    read = {*before.values_read(), *(o.value for m in added for o in m.operands if o.text is None)} - {CHAIN}
    if len(read) + 1 > max_bindings:
        return False
    before.maps += added
    before.output = kernel.output
    before.title += " + " + kernel.title.split("(")[0]
    return True
