"""Constants that follow from a model's constants: computed when they are read, and the same object every time."""

from __future__ import annotations

from collections.abc import Callable, Hashable

import numpy as np

from onnxlet.graph.ir import Node
from onnxlet.model.tensors import Tensor


class DerivedTensor(Tensor):
    """A tensor whose values are computed whenever they are asked for, so that they take no memory of their own.

    `node` is what computes it, if that is a node of a graph; `sources` are then its inputs.
    """

    __slots__ = ("_compute", "node", "sources")

    def __init__(self, dtype: np.dtype, shape: tuple[int, ...], compute: Callable[[], np.ndarray], *sources: Tensor):
        super().__init__(dtype, shape)
        self._compute = compute
        self.node: Node | None = None
        self.sources = sources

    def numpy(self) -> np.ndarray:
        return np.asarray(self._compute(), self.dtype).reshape(self.shape)


class Derivations:
    """Derived tensors by what they follow from. Identity matters: weights are packed once per tensor."""

    def __init__(self) -> None:
        self._tensors: dict[Hashable, DerivedTensor] = {}

    def get(
        self,
        key: Hashable,
        sources: tuple[Tensor, ...],
        dtype: np.dtype,
        shape: tuple[int, ...],
        compute: Callable[[], np.ndarray],
    ) -> DerivedTensor:
        """The tensor for `key` (what is done) and `sources` (to what, by identity)."""
        whole = (key, *map(id, sources))
        tensor = self._tensors.get(whole)
        if tensor is None:
            tensor = self._tensors[whole] = DerivedTensor(dtype, shape, compute, *sources)
        return tensor
