"""How an operator's type and shape inference is added: one function, decorated with `@infer`.

    @infer("Concat")
    def concat(node, inputs, constants): ...

`inputs` are the types of the node's inputs (`None` for an absent one or one of unknown type), `constants` the values
of those inputs that are known (`None` otherwise). The function returns the list of the outputs' types, with `None` for
dimensions it can't tell. It raises `ShapeError` where the inputs are against the specification. An operator without
inference is not wrong, only slower: its outputs' shapes are learnt when it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ...families import Families
from ..ir import Node, Type

Inference = Callable[[Node, Sequence[Type | None], Sequence[np.ndarray | None]], Sequence[Type | None]]

FAMILIES = Families("onnxlet.graph.infer")

_INFERENCES: dict[tuple[str, str], Inference] = {}


def infer(*names: str, domain: str = "") -> Callable[[Inference], Inference]:
    """Register the decorated function as the inference of the operators `names` of `domain`, at every version."""

    def register(function: Inference) -> Inference:
        for name in names:
            _INFERENCES[domain, name] = function
        return function

    return register


def find_inference(node: Node) -> Inference | None:
    """The inference function for a node's operator, or `None`."""
    FAMILIES.load(node.domain, node.op_type)
    return _INFERENCES.get((node.domain, node.op_type))
