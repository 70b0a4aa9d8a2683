"""Values as bytes that can be read where there is no `ml_dtypes`, as in a page."""

from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np

from onnxlet.model.dtypes import bits_of, dtype_of, element_type_of, is_extended


class _Pickler(pickle.Pickler):
    def persistent_id(self, obj: Any) -> tuple[int, np.ndarray] | None:
        if isinstance(obj, np.ndarray | np.generic) and obj.dtype.kind in "Vf" and is_extended(obj.dtype):
            return element_type_of(obj.dtype), np.array(bits_of(np.asarray(obj)))
        return None


class _Unpickler(pickle.Unpickler):
    def persistent_load(self, pid: Any) -> np.ndarray:
        number, bits = pid
        return bits.view(dtype_of(number))


def dumps(value: Any) -> bytes:
    """A value as bytes; arrays of types that NumPy lacks as the bits that they hold."""
    buffer = io.BytesIO()
    _Pickler(buffer).dump(value)
    return buffer.getvalue()


def loads(data: bytes) -> Any:
    """The value that `dumps` wrote."""
    return _Unpickler(io.BytesIO(data)).load()
