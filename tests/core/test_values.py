"""`OrtValue` and `IOBinding` do on the CPU what onnxruntime's do."""

from __future__ import annotations

import asyncio
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import onnxlet
from onnxlet import FeedError, InferenceSession, IOBinding, OrtValue, ProviderError, UnsupportedError
from tests.core.models import FLOAT, model, node

BOTH = pytest.mark.parametrize("library", [onnxlet, onnxruntime], ids=["onnxlet", "onnxruntime"])
"""What the tests assert holds for onnxruntime too."""


def small() -> bytes:
    """``y = x + s`` and ``z = x * x``."""
    nodes = [node("Add", ["x", "s"], ["y"]), node("Mul", ["x", "x"], ["z"])]
    made: onnx.ModelProto = model(
        nodes, [("x", FLOAT, ["n"]), ("s", FLOAT, ["n"])], [("y", FLOAT, ["n"]), ("z", FLOAT, ["n"])], opset=17
    )
    made.ir_version = 9
    return made.SerializeToString()


def session_of(library: ModuleType) -> Any:
    return library.InferenceSession(small(), providers=["CPUExecutionProvider"])


def numbers(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


@BOTH
def test_a_value_of_an_array(library: ModuleType):
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    value = library.OrtValue.ortvalue_from_numpy(array)
    assert list(value.shape()) == [2, 3]
    assert (value.data_type(), value.element_type(), value.device_name()) == ("tensor(float)", 1, "cpu")
    assert value.is_tensor()
    assert value.has_value()
    assert not value.is_sparse_tensor()
    assert not value.is_tensor_sequence()
    assert value.tensor_size_in_bytes() == 24
    array[0, 0] = 9  # memory is shared
    assert value.numpy()[0, 0] == 9
    value.numpy()[0, 1] = 8
    assert array[0, 1] == 8
    assert value.data_ptr() == array.ctypes.data
    value.update_inplace(np.ones((2, 3), np.float32))
    np.testing.assert_array_equal(array, np.ones((2, 3)))
    np.testing.assert_array_equal(library.OrtValue.ortvalue_from_numpy(array.T[::2]).numpy(), array.T[::2])
    with pytest.raises((ValueError, RuntimeError)):
        value.update_inplace(np.ones(7, np.float32))
    with pytest.raises((ValueError, RuntimeError)):
        library.OrtValue.ortvalue_from_numpy([1.0, 2.0])


@BOTH
@pytest.mark.parametrize(
    ("dtype", "name", "number"),
    [("int64", "int64", 7), ("bool", "bool", 9), ("float16", "float16", 10), ("float64", "double", 11)],
)
def test_element_types(library: ModuleType, dtype: str, name: str, number: int):
    value = library.OrtValue.ortvalue_from_numpy(np.zeros(3, dtype))
    assert (value.data_type(), value.element_type()) == (f"tensor({name})", number)
    for given in (np.dtype(dtype), number):
        made = library.OrtValue.ortvalue_from_shape_and_type([2, 3], given)
        assert (made.data_type(), list(made.shape())) == (f"tensor({name})", [2, 3])


@BOTH
def test_types_that_numpy_lacks(library: ModuleType):
    value = library.OrtValue.ortvalue_from_numpy_with_onnx_type(np.zeros(3, np.uint16), 16)
    assert (value.data_type(), value.element_type()) == ("tensor(bfloat16)", 16)


@BOTH
def test_dlpack(library: ModuleType):
    array = numbers(1, 2)
    value = library.OrtValue.from_dlpack(array)
    array[0] = 5
    assert value.numpy()[0] == 5
    assert value.__dlpack_device__() == (1, 0)
    np.testing.assert_array_equal(np.from_dlpack(value), [5, 2])


@BOTH
def test_values_are_fed(library: ModuleType):
    session, value = session_of(library), library.OrtValue.ortvalue_from_numpy
    x, s = numbers(1, 2, 3), numbers(10, 10, 10)
    for given in ({"x": value(x), "s": value(s)}, {"x": value(x), "s": s}):
        np.testing.assert_array_equal(session.run(["y"], given)[0], x + s)
    z, y = session.run_with_ort_values(["z", "y"], {"x": value(x), "s": value(s)})
    assert isinstance(z, library.OrtValue)
    np.testing.assert_array_equal(z.numpy(), x * x)
    np.testing.assert_array_equal(y.numpy(), x + s)
    assert len(session.run_with_ort_values(None, {"x": value(x), "s": value(s)})) == 2
    with pytest.raises(ValueError, match="s"):
        session.run_with_ort_values(["z"], {"x": value(x)})
    with pytest.raises((FeedError, AttributeError)):
        session.run_with_ort_values(["z"], {"x": x, "s": value(s)})


@BOTH
def test_a_binding(library: ModuleType):
    session = session_of(library)
    x, s = numbers(1, 2, 3), numbers(10, 10, 10)
    binding = session.io_binding()
    assert list(binding.get_outputs()) == []
    binding.bind_cpu_input("x", x)
    binding.bind_ortvalue_input("s", library.OrtValue.ortvalue_from_numpy(s))
    with pytest.raises((FeedError, RuntimeError)):  # no output is bound
        session.run_with_iobinding(binding)
    binding.bind_output("z")
    binding.bind_output("y")
    binding.bind_output("z")  # goes on being the first
    binding.synchronize_inputs()
    session.run_with_iobinding(binding)
    binding.synchronize_outputs()
    z, y = binding.copy_outputs_to_cpu()
    np.testing.assert_array_equal(z, x * x)
    np.testing.assert_array_equal(y, x + s)
    assert [value.device_name() for value in binding.get_outputs()] == ["cpu", "cpu"]
    x[0] = 7  # the array is shared
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], x * x)

    target = library.OrtValue.ortvalue_from_numpy(np.zeros(3, np.float32))
    binding.clear_binding_outputs()
    binding.bind_ortvalue_output("y", target)
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(target.numpy(), x + s)
    for wrong in (np.zeros(4, np.float32), np.zeros(3)):
        binding.clear_binding_outputs()
        binding.bind_ortvalue_output("y", library.OrtValue.ortvalue_from_numpy(wrong))
        with pytest.raises((FeedError, RuntimeError)):
            session.run_with_iobinding(binding)
    binding.clear_binding_outputs()
    binding.bind_output("q")
    with pytest.raises((FeedError, RuntimeError)):
        session.run_with_iobinding(binding)
    with pytest.raises((FeedError, RuntimeError)):
        binding.bind_cpu_input("q", x)
    binding.clear_binding_inputs()
    binding.clear_binding_outputs()
    binding.bind_output("y")
    with pytest.raises((FeedError, RuntimeError)):
        session.run_with_iobinding(binding)


@BOTH
def test_bound_memory(library: ModuleType):
    session = session_of(library)
    x, y = numbers(1, 2, 3), numbers(0, 0, 0)
    binding = session.io_binding()
    binding.bind_input("x", "cpu", 0, np.float32, (3,), x.ctypes.data)
    binding.bind_input("s", "cpu", 0, np.float32, (3,), x.ctypes.data)
    binding.bind_output("y", "cpu", 0, np.float32, (3,), y.ctypes.data)
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(y, x + x)


@BOTH
def test_an_output_for_a_device_that_the_session_lacks_is_on_the_cpu(library: ModuleType):
    session = session_of(library)
    binding = session.io_binding()
    for name in "xs":
        binding.bind_cpu_input(name, numbers(1, 2))
    binding.bind_output("z", "webgpu")
    session.run_with_iobinding(binding)
    (value,) = binding.get_outputs()
    assert value.device_name() == "cpu"
    np.testing.assert_array_equal(value.numpy(), [1, 4])


def test_awaited():
    session = InferenceSession(small())
    x = numbers(1, 2)

    async def go() -> None:
        value = OrtValue.ortvalue_from_numpy(x)
        (y,) = await session.run_with_ort_values_async(["y"], {"x": value, "s": value})
        np.testing.assert_array_equal(await y.numpy_async(), x + x)
        binding = session.io_binding()
        assert isinstance(binding, IOBinding)
        binding.bind_cpu_input("x", x)
        binding.bind_ortvalue_input("s", y)
        binding.bind_output("y")
        await session.run_with_iobinding_async(binding)
        np.testing.assert_array_equal((await binding.copy_outputs_to_cpu_async())[0], 3 * x)
        np.testing.assert_array_equal((await session.run_async(["z"], {"x": y, "s": x}))[0], 4 * x * x)

    asyncio.run(go())


def test_sequences_are_values_too():
    made = model([node("SequenceConstruct", ["x", "x"], ["q"])], [("x", FLOAT, ["n"])], [], opset=17)
    made.graph.output.append(onnx.helper.make_tensor_sequence_value_info("q", FLOAT, ["n"]))
    session = InferenceSession(made)
    (q,) = session.run_with_ort_values(None, {"x": OrtValue.ortvalue_from_numpy(numbers(1, 2))})
    assert q.is_tensor_sequence()
    assert not q.is_tensor()
    assert q.data_type() == "seq(tensor(float))"
    with pytest.raises(FeedError, match="not a tensor"):
        q.numpy()


def test_devices_that_there_are_not():
    with pytest.raises(ProviderError, match="there are 'cpu' and 'webgpu'"):
        OrtValue.ortvalue_from_numpy(numbers(1), "cuda")
    session = InferenceSession(small())
    with pytest.raises(UnsupportedError, match="bind an OrtValue"):
        session.io_binding().bind_input("x", "webgpu", 0, np.float32, (3,), 16)
