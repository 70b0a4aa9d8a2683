"""`SparseTensor`: a tensor's elements that are not zero, and their places. Named as in onnxruntime's Python API."""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import FeedError, UnsupportedError
from ..model.dtypes import spec_name


class OrtSparseFormat(enum.IntEnum):
    """How a sparse tensor says where its elements are."""

    ORT_SPARSE_UNDEFINED = 0
    ORT_SPARSE_COO = 1
    ORT_SPARSE_CSRC = 2
    ORT_SPARSE_BLOCK_SPARSE = 4


class SparseTensor:
    """Values and their indices, in one of three formats. Sessions make a dense tensor of it."""

    _format: OrtSparseFormat
    _shape: list[int]
    _values: np.ndarray
    _indices: tuple[np.ndarray, ...]

    def __init__(self, sparse_tensor: SparseTensor):
        self.__dict__.update(vars(sparse_tensor))

    @classmethod
    def _of(cls, form: OrtSparseFormat, shape: Sequence[int], values: np.ndarray, *indices: np.ndarray) -> SparseTensor:
        made = cls.__new__(cls)
        made._format, made._shape, made._values = form, [int(n) for n in shape], values
        made._indices = indices
        return made

    @classmethod
    def sparse_coo_from_numpy(
        cls, dense_shape: Any, values: np.ndarray, coo_indices: np.ndarray, ort_device: Any
    ) -> SparseTensor:
        """From the places of the values: their numbers in a flattened tensor, or pairs of coordinates.

        Raises `FeedError` where there are not as many as values.
        """
        del ort_device
        if coo_indices.size not in (values.size, 2 * values.size):
            raise FeedError(f"{values.size} values have as many indices, or twice as many, not {coo_indices.size}")
        places = coo_indices.reshape(-1, 2) if coo_indices.size > values.size else coo_indices.reshape(-1)
        return cls._of(OrtSparseFormat.ORT_SPARSE_COO, dense_shape, values, places)

    @classmethod
    def sparse_csr_from_numpy(
        cls, dense_shape: Any, values: np.ndarray, inner_indices: np.ndarray, outer_indices: np.ndarray, ort_device: Any
    ) -> SparseTensor:
        """From the values' columns, and where in them each row begins and the last one ends.

        Raises `FeedError` where these numbers don't fit the values and the shape.
        """
        del ort_device
        if inner_indices.size != values.size or (values.size and outer_indices.size != dense_shape[0] + 1):
            raise FeedError(
                f"{values.size} values in {dense_shape[0]} rows don't go with {inner_indices.size} inner and "
                f"{outer_indices.size} outer indices"
            )
        return cls._of(OrtSparseFormat.ORT_SPARSE_CSRC, dense_shape, values, inner_indices, outer_indices)

    @classmethod
    def blocksparse_from_numpy(cls, dense_shape: Any, values: np.ndarray, indices: np.ndarray, ort_device: Any) -> Any:
        """From blocks and their places."""
        del ort_device
        return cls._of(OrtSparseFormat.ORT_SPARSE_BLOCK_SPARSE, dense_shape, values, indices)

    def values(self) -> np.ndarray:
        return self._values

    def format(self) -> OrtSparseFormat:
        return self._format

    def dense_shape(self) -> list[int]:
        return list(self._shape)

    def data_type(self) -> str:
        """The type as ONNX writes it, for example ``sparse_tensor(float)``."""
        return f"sparse_tensor({spec_name(self._values.dtype)})"

    def device_name(self) -> str:
        return "cpu"

    def to_cuda(self, ort_device: Any) -> SparseTensor:
        raise UnsupportedError("onnxlet does not use CUDA")

    # Each view raises `FeedError` for a tensor of another format.

    def as_coo_view(self) -> SparseCooView:
        return SparseCooView(self._of_format(OrtSparseFormat.ORT_SPARSE_COO))

    def as_csrc_view(self) -> SparseCsrView:
        return SparseCsrView(self._of_format(OrtSparseFormat.ORT_SPARSE_CSRC))

    def as_blocksparse_view(self) -> SparseBlockSparseView:
        return SparseBlockSparseView(self._of_format(OrtSparseFormat.ORT_SPARSE_BLOCK_SPARSE))

    get_coo_data, get_csrc_data, get_blocksparse_data = as_coo_view, as_csrc_view, as_blocksparse_view

    def _of_format(self, form: OrtSparseFormat) -> tuple[np.ndarray, ...]:
        if self._format != form:
            raise FeedError(f"the sparse tensor's format is {self._format.name}, not {form.name}")
        return self._indices

    def to_dense(self) -> np.ndarray:
        """The whole tensor. Raises `FeedError` where an index lies outside of it."""
        dense = np.zeros(math.prod(self._shape), self._values.dtype)
        first, *others = (indices.astype(np.intp) for indices in self._indices)  # NumPy's own, of 32 bits in Pyodide
        if self._format == OrtSparseFormat.ORT_SPARSE_BLOCK_SPARSE:
            raise UnsupportedError("a tensor of blocks can't be made dense")
        if self._format == OrtSparseFormat.ORT_SPARSE_CSRC:
            rows = np.repeat(np.arange(others[0].size - 1), np.diff(others[0]))
            first = np.stack([rows, first], axis=1)
        bounds = np.array(self._shape if first.ndim == 2 else dense.size)
        if (first < 0).any() or (first >= bounds).any():
            raise FeedError(f"an index lies outside of the shape {self._shape}")
        dense[np.ravel_multi_index(tuple(first.T), self._shape) if first.ndim == 2 else first] = self._values.reshape(
            -1
        )
        return dense.reshape(self._shape)


class _View:
    def __init__(self, arrays: tuple[np.ndarray, ...]):
        self._arrays = arrays


class SparseCooView(_View):
    def indices(self) -> np.ndarray:
        return self._arrays[0]


class SparseBlockSparseView(SparseCooView):
    pass


class SparseCsrView(_View):
    def inner(self) -> np.ndarray:
        return self._arrays[0]

    def outer(self) -> np.ndarray:
        return self._arrays[1]
