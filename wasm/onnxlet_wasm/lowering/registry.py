"""How an operator gets kernels: one function that reads a step and says how to compute it, decorated with `@lower`.

    @lower("Relu")
    def relu(step):
        need_float32(step, 0)
        def emit(c):
            x, y = c.input(0), c.output(0, over=[0])
            c.emit("unary", ...)
        return emit

The function looks at the concrete types, shapes, attributes and constants of the step, and either refuses with a
reason (`raise Refused("...")`, or one of the `need` helpers) or returns a function that records the kernel calls with a
`Compiler`. What is refused is computed by NumPy; a wrong number never is an option.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from onnxlet.families import Families
from onnxlet.graph.ir import Node
from onnxlet.providers.base import Step

if TYPE_CHECKING:
    from ..compiler import Compiler

Emit = Callable[["Compiler"], None]
Lowering = Callable[[Step], Emit]

FAMILIES = Families("onnxlet_wasm.lowering")

_LOWERINGS: dict[tuple[str, str], Lowering] = {}


class Refused(Exception):
    """The step asks for something that has no kernel; the message says what."""


def lower(*names: str, domain: str = "") -> Callable[[Lowering], Lowering]:
    """Register the decorated function for the operators `names` of `domain`, whatever their version."""

    def register(function: Lowering) -> Lowering:
        for name in names:
            _LOWERINGS[domain, name] = function
        return function

    return register


def find(node: Node) -> Lowering:
    """The lowering of a node's operator. Raises `Refused` where it has none."""
    FAMILIES.load(node.domain, node.op_type)
    try:
        return _LOWERINGS[node.domain, node.op_type]
    except KeyError:
        raise Refused(f"{node.operator} has no kernel") from None


def lowered_operators() -> list[tuple[str, str]]:
    """Domain and name of every operator that has kernels."""
    FAMILIES.load_all()
    return sorted(_LOWERINGS)
