"""`OrtValue`: a value to feed, or one that a run has left on its device. Named as in onnxruntime's Python API."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from . import providers
from .errors import DeviceLostError, FeedError, ProviderError, UnsupportedError
from .graph.ir import STRING, TensorType
from .model.dtypes import dtype_of, element_type_of, is_extended, spec_name
from .providers.base import DeviceValue, Provider

if TYPE_CHECKING:
    from .onnxruntime_face.sparse import SparseTensor

CPU = "cpu"


class OrtValue:
    """A tensor on the host or in a device's memory, or a sequence of tensors, or an optional that may be empty.

    Made by `ortvalue_from_numpy` and its like, and by runs. One that was made for "webgpu" is uploaded when a session
    first reads it, and stays on that session's device; a session with a device of its own reads it back and uploads it
    once more.
    """

    def __init__(self, value: Any, device_type: str = CPU):
        self._value: Any = value._value if isinstance(value, OrtValue) else value
        self._device_type = value._device_type if isinstance(value, OrtValue) else device_type

    def __reduce__(self) -> tuple[Any, ...]:
        value = self.numpy() if isinstance(self._value, DeviceValue) else self._value
        return OrtValue, (value, self._device_type)

    # Making

    @classmethod
    def ortvalue_from_numpy(
        cls, numpy_obj: np.ndarray, /, device_type: str = CPU, device_id: int = 0, vendor_id: int = -1
    ) -> OrtValue:
        """A tensor with an array's values. On the CPU a contiguous array is shared, not copied; a device has its own.

        Raises `FeedError` for an object that is not an array of a type that ONNX has, `ProviderError` for a device
        that is not there.
        """
        del device_id, vendor_id  # there is one device of a kind
        if not isinstance(numpy_obj, np.ndarray):
            raise FeedError(f"an OrtValue is made of a NumPy array, not of {type(numpy_obj).__name__}")
        array = _checked(numpy_obj)
        if _known(device_type) != CPU:
            return cls(array.copy(), device_type)
        return cls(array if array.flags.c_contiguous else array.copy())

    @classmethod
    def ortvalue_from_numpy_with_onnx_type(cls, data: np.ndarray, /, onnx_element_type: int) -> OrtValue:
        """A tensor of an element type that NumPy may lack, by its number in ONNX's `TensorProto.DataType`, from an
        array that holds its bits. Memory is shared."""
        dtype = dtype_of(onnx_element_type)
        if data.dtype.itemsize != dtype.itemsize or not data.flags.c_contiguous:
            raise FeedError(f"{spec_name(dtype)} wants a contiguous array of {dtype.itemsize} bytes an element")
        return cls(data.view(dtype))

    @classmethod
    def ortvalue_from_shape_and_type(
        cls,
        shape: Sequence[int],
        element_type: Any,
        device_type: str = CPU,
        device_id: int = 0,
        vendor_id: int = -1,
        memory_info: Any = None,
    ) -> OrtValue:
        """A tensor of zeros. `element_type` is a NumPy type, or a number of ONNX's `TensorProto.DataType`. With a
        `memory_info`, the one of a device, the device is the CPU."""
        del vendor_id
        if memory_info is not None:
            device_type = CPU
        dtype = dtype_of(element_type) if isinstance(element_type, int) else np.dtype(element_type)
        array = np.full(tuple(shape), "", object) if dtype == STRING else np.zeros(tuple(shape), dtype)
        return cls.ortvalue_from_numpy(array, device_type, device_id)

    @classmethod
    def ort_value_from_sparse_tensor(cls, sparse_tensor: SparseTensor) -> OrtValue:
        """A value that is a sparse tensor. Sessions make a dense one of it."""
        return cls(sparse_tensor)

    @classmethod
    def from_dlpack(cls, data: Any, /) -> OrtValue:
        """A tensor that shares its memory with any object that has `__dlpack__`, on the CPU, or that a capsule of one
        stands for."""
        return cls(_checked(np.from_dlpack(data if hasattr(data, "__dlpack__") else _Capsule(data))))

    # Asking

    def shape(self) -> list[int]:
        """The tensor's shape. Raises `FeedError` for what is not a tensor."""
        if self.is_sparse_tensor():
            return self._value.dense_shape()
        return [int(n) for n in self._tensor().shape]

    def data_type(self) -> str:
        """The type as ONNX writes it, for example ``tensor(float)`` or ``seq(tensor(int64))``."""
        if isinstance(self._value, list):
            inner = f"tensor({spec_name(self._value[0].dtype)})" if self._value else "tensor(?)"
            return f"seq({inner})"
        if self.is_sparse_tensor():
            return self._value.data_type()
        return f"tensor({spec_name(self._tensor().dtype)})"

    def element_type(self) -> int:
        """The number of the element type in ONNX's `TensorProto.DataType`."""
        return element_type_of(self._value.values().dtype if self.is_sparse_tensor() else self._tensor().dtype)

    def tensor_size_in_bytes(self) -> int:
        """Bytes of the tensor's elements on the host."""
        tensor = self._tensor()
        return int(np.prod(tensor.shape, dtype=np.int64)) * tensor.dtype.itemsize

    def device_name(self) -> str:
        """Where the tensor is: ``cpu`` or ``webgpu``."""
        return self._device_type

    def has_value(self) -> bool:
        """Whether there is a value: false for an optional without one."""
        return self._value is not None

    def is_tensor(self) -> bool:
        return isinstance(self._value, (np.ndarray, DeviceValue))

    def is_sparse_tensor(self) -> bool:
        return hasattr(self._value, "dense_shape")

    def as_sparse_tensor(self) -> SparseTensor:
        """The sparse tensor. Raises `FeedError` where it is something else."""
        if not self.is_sparse_tensor():
            raise FeedError("the value is not a sparse tensor")
        return self._value

    def is_tensor_sequence(self) -> bool:
        return isinstance(self._value, list)

    def data_ptr(self) -> int:
        """The address of the first element, on the CPU. Raises `UnsupportedError` on a device."""
        return self._on_host("an address").ctypes.data

    # Reading and writing

    def numpy(self) -> np.ndarray:
        """The tensor as an array: on the CPU it shares the memory, from a device it is read back into a copy.

        Raises `FeedError` for what is not a tensor, `DeviceLostError` if its device is gone, `ProviderError` in a page
        that can't block (`numpy_async` can wait there).
        """
        tensor = self._tensor()
        if isinstance(tensor, np.ndarray):
            return tensor
        if tensor.host is None:
            tensor.wait(tensor.read())
        assert tensor.host is not None
        return tensor.host.copy()

    async def numpy_async(self) -> np.ndarray:
        """Like `numpy`, but waits for a device without blocking."""
        tensor = self._tensor()
        if isinstance(tensor, np.ndarray):
            return tensor
        return (await tensor.read()).copy()

    def update_inplace(self, data: np.ndarray | OrtValue) -> None:
        """Replace the tensor's values by another's, which must have its element type and as many elements."""
        tensor = self._tensor()
        if isinstance(data, OrtValue):
            data = data.numpy()
        if data.dtype != tensor.dtype or data.size != np.prod(tensor.shape, dtype=np.int64):
            raise FeedError(f"the value is {_described(tensor)}, and can't be updated with {_described(data)}")
        if self._device_type == CPU:
            tensor[...] = data.reshape(tensor.shape)  # type: ignore[index]
        else:
            self._value = data.reshape(tensor.shape).copy()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        array = self.numpy()
        return np.array(array, dtype, copy=copy) if copy is not None else np.asarray(array, dtype)

    def __dlpack__(self, *, stream: Any = None, **options: Any) -> Any:
        return self._on_host("DLPack").__dlpack__(stream=stream, **options)

    def __dlpack_device__(self) -> tuple[int, int]:
        """The device as DLPack numbers it: (1, 0) for the CPU. Raises `UnsupportedError` for a GPU's buffers."""
        return self._on_host("DLPack").__dlpack_device__()

    def __repr__(self) -> str:
        what = _described(self._value) if self.is_tensor() else type(self._value).__name__
        return f"<OrtValue {what} on {self._device_type}>"

    def to_dlpack(self) -> Any:
        """A DLPack capsule of the tensor, on the CPU."""
        return self.__dlpack__()

    @property
    def _ortvalue(self) -> OrtValue:
        return self  # in onnxruntime the class that holds the tensor is another one

    def _get_c_value(self) -> OrtValue:
        return self

    # For sessions and bindings

    def feed(self, available: Sequence[Provider]) -> Any:
        """The value as a session with these providers takes it: on its device if it is meant for one it has."""
        value = self._value
        if self.is_sparse_tensor():
            return value.to_dense()
        if isinstance(value, DeviceValue):
            if value.host is None:
                value.check()
                return value
            return value if any(value.usable_on(p) for p in available) else value.host
        if self._device_type == CPU or not isinstance(value, np.ndarray) or not value.size:
            return value
        for provider in available:
            if getattr(provider, "device_type", CPU) == self._device_type:
                with suppress(DeviceLostError):  # the run will find that out too, and get a new device
                    self._value = provider.upload(value)  # type: ignore[attr-defined]
                break
        return self._value

    def take(self, result: Any) -> None:
        """Become the result of a run. On the CPU it is copied to the memory that is there."""
        tensor = self._tensor()
        if result.dtype != tensor.dtype or result.shape != tensor.shape:
            raise FeedError(f"an output was bound to a value of type {_described(tensor)}, but is {_described(result)}")
        if self._device_type == CPU:
            tensor[...] = result  # type: ignore[index]
        else:
            self._value = result

    def _tensor(self) -> np.ndarray | DeviceValue:
        if isinstance(self._value, (np.ndarray, DeviceValue)):
            return self._value
        raise FeedError(f"the value is not a tensor, but a {type(self._value).__name__}")

    def _on_host(self, what: str) -> np.ndarray:
        tensor = self._tensor()
        if self._device_type != CPU or not isinstance(tensor, np.ndarray):
            raise UnsupportedError(f"data on {self._device_type} have no {what}; use numpy() first")
        return tensor


class _Capsule:
    """A DLPack capsule of the CPU, as an object that gives it."""

    def __init__(self, capsule: Any):
        self._capsule = capsule

    def __dlpack__(self, **options: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


def at_address(pointer: int, shape: Sequence[int], element_type: Any) -> np.ndarray:
    """Memory of someone else's as an array: `shape` elements of a type, from an address on."""
    dtype = dtype_of(element_type) if isinstance(element_type, int) else np.dtype(element_type)
    nbytes = int(np.prod(tuple(shape), dtype=np.int64)) * dtype.itemsize
    memory = (ctypes.c_char * nbytes).from_address(pointer)
    return np.frombuffer(memoryview(memory), dtype).reshape(tuple(shape))


def _checked(array: np.ndarray) -> np.ndarray:
    if array.dtype.kind in "US":
        return array.astype(object)
    if array.dtype != STRING:
        is_extended(array.dtype)  # raises for a type that ONNX does not have
    return array


@functools.cache
def _known(device_type: str) -> str:
    """The kind of a device that can be had here. Raises `ProviderError` for others."""
    if device_type == CPU:
        return CPU
    if device_type != "webgpu":
        raise ProviderError(f"there is no device of the type {device_type!r}; there are 'cpu' and 'webgpu'")
    reason = providers.provider_info(providers.ALIASES[device_type]).available()
    if reason is not None:
        raise ProviderError(f"data can't be put on 'webgpu': {reason}")
    return device_type


def _described(value: Any) -> str:
    return str(TensorType(value.dtype, tuple(value.shape)))
