"""How long a run should take here: a roofline from two small measurements per provider."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from ..graph.ir import Graph, Model, Node, TensorType
from ..model.tensors import Tensor
from ..providers import get_available_providers
from ..session import InferenceSession
from .inspecting import Inspection

SIDE = 512
"""Rows, columns and depth of the product that is timed."""
ELEMENTS = 4 << 20
"""Of the float32 tensor whose sum with itself is timed."""
ROUNDS = 5

FLOAT = np.dtype(np.float32)


def estimate(found: Inspection, providers: Sequence[str] | None = None) -> dict[str, float]:
    """Seconds that a run should take, for each of the providers (default: those available here).

    Every node is taken to be bound by its multiply-adds or by the bytes that it moves, whichever takes longer at the
    speed that a large matrix product and a large addition reach here (Williams, Waterman and Patterson, "Roofline",
    2009). Fused nodes move less, small ones are slower: take it as within a factor of two or three.
    """
    return {name: _roofline(found, *measure(name)) for name in providers or get_available_providers()}


def _roofline(found: Inspection, products: float, moved: float) -> float:
    return sum(
        layer.times
        * max((layer.multiply_adds or 0) / products, ((layer.activation_bytes or 0) + layer.weight_bytes) / moved)
        for layer in found.layers
    )


def measure(provider: str) -> tuple[float, float]:
    """Multiply-adds and bytes per second of a provider: the best of a few runs of a large product and a large sum."""
    rng = np.random.default_rng(0)
    x, y = "x", "y"
    square = TensorType(FLOAT, (SIDE, SIDE))
    weights = Tensor.of(rng.standard_normal((SIDE, SIDE), FLOAT))
    product = Graph(
        "product", [x], [y], [Node("MatMul", [x, "w"], [y], version=13)], {"w": weights}, {x: square, y: square}
    )
    line = TensorType(FLOAT, (ELEMENTS,))
    total = Graph("sum", [x], [y], [Node("Add", [x, x], [y], version=14)], {}, {x: line, y: line})
    return (
        SIDE**3 / _best(product, provider, rng.standard_normal((SIDE, SIDE), FLOAT)),
        2 * line.nbytes / _best(total, provider, rng.standard_normal(ELEMENTS, FLOAT)),
    )


def _best(graph: Graph, provider: str, value: np.ndarray) -> float:
    session = InferenceSession(Model(graph, {"": 14}, ir_version=8), providers=[provider])
    times = []
    try:
        for _ in range(ROUNDS):
            start = time.perf_counter()
            session.run(None, {"x": value})
            times.append(time.perf_counter() - start)
    finally:
        session.close()
    return min(times)
