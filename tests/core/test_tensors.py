"""Tensors against `onnx.numpy_helper`, for every element type and every way to write them."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxlet.errors import LimitError, ModelError
from onnxlet.graph.ir import STRING, MapType, OptionalType, SequenceType, TensorType
from onnxlet.model import dtypes, schema, tensors, wire
from onnxlet.model.sources import MemorySource
from onnxlet.model.tensors import Tensor, read_sparse, read_tensor

TYPES = [t for t in TensorProto.DataType.values() if t not in (TensorProto.UNDEFINED, TensorProto.STRING)]


def read(proto: onnx.TensorProto) -> Tensor:
    source = MemorySource(proto.SerializeToString())
    return read_tensor(wire.decode(source, schema.SCHEMAS["TensorProto"]), source, None)


def same_bits(a: np.ndarray, b: np.ndarray) -> None:
    assert a.shape == b.shape
    assert a.dtype == b.dtype
    assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize("element_type", TYPES, ids=TensorProto.DataType.Name)
@pytest.mark.parametrize("shape", [(3, 5), (), (0, 2), (7,)], ids=str)
@pytest.mark.parametrize("raw", [False, True])
def test_every_type(element_type: int, shape: tuple[int, ...], raw: bool):
    rng = np.random.default_rng(1)
    dtype = helper.tensor_dtype_to_np_dtype(element_type)
    values = (rng.random(shape) * 6 - 2).astype(np.float32)
    array = np.abs(values).astype(dtype) if "u" in str(dtype)[:1] else values.astype(dtype)
    proto = numpy_helper.from_array(array, "t")
    if not raw:
        proto = helper.make_tensor("t", element_type, shape, array.ravel().tolist())
    tensor = read(proto)
    same_bits(tensor.numpy(), array)
    assert tensor.dtype == dtype
    assert tensor.shape == shape
    assert (tensor.size, tensor.nbytes) == (array.size, array.nbytes)
    assert not tensor.numpy().flags.writeable


def test_strings():
    tensor = read(helper.make_tensor("s", TensorProto.STRING, [2, 2], ["a", "", "é", "日本"]))
    assert tensor.dtype == STRING
    assert tensor.numpy().tolist() == [["a", ""], ["é", "日本"]]
    assert tensor.location is None


def test_raw_bytes_are_not_copied():
    proto = numpy_helper.from_array(np.arange(1000, dtype=np.float32), "t")
    source = MemorySource(proto.SerializeToString())
    tensor = read_tensor(wire.decode(source, schema.SCHEMAS["TensorProto"]), source, None)
    assert tensor.location is not None
    assert tensor.location[0] is source
    assert np.shares_memory(tensor.numpy(), np.frombuffer(source.view, np.uint8))


def test_packed_floats_are_not_copied():
    tensor = read(helper.make_tensor("t", TensorProto.FLOAT, [3], [1.0, 2.0, 3.0]))
    assert tensor.location is not None
    source, offset = tensor.location
    assert bytes(source.read(offset, 12)) == np.array([1, 2, 3], np.float32).tobytes()


def test_of_wraps_without_a_copy():
    array = np.arange(6.0).reshape(2, 3)
    tensor = Tensor.of(array)
    assert np.shares_memory(tensor.numpy(), array)
    assert array.flags.writeable
    source, offset = tensor.location
    assert bytes(source.read(offset + 8, 8)) == np.float64(1).tobytes()
    assert Tensor.of(array.T).location is None
    assert Tensor.of(np.array(["a", "b"])).dtype == STRING
    assert Tensor.of(np.float32(2)).shape == ()
    swapped = Tensor.of(np.array([1, 2], ">f4"))
    assert swapped.dtype == np.float32
    assert swapped.numpy().tolist() == [1, 2]


def test_a_bool_of_another_byte_is_true():
    proto = TensorProto(name="b", data_type=TensorProto.BOOL, dims=[3], raw_data=b"\x00\x01\x07")
    array = read(proto).numpy()
    assert array.tolist() == [False, True, True]
    assert array.view(np.uint8).tolist() == [0, 1, 1]


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"data_type": 1, "dims": [2, 2], "raw_data": b"1234"}, "takes 16 bytes, but has 4"),
        ({"data_type": 1, "dims": [3], "float_data": [1.0]}, "needs 3 numbers, but has 1"),
        ({"data_type": 7, "dims": [1], "int64_data": [1, 2]}, "needs 1 numbers, but has 2"),
        ({"data_type": 1, "dims": [-1], "float_data": [1.0]}, "negative dimension"),
        ({"data_type": 1, "dims": [1 << 40, 1 << 40], "raw_data": b"1234"}, "too large dimensions"),
        ({"data_type": 1, "dims": [0, 1 << 62]}, "too large dimensions"),
        ({"data_type": 1, "dims": [1] * 65, "raw_data": b"1234"}, "too many"),
        ({"data_type": 99, "dims": [1]}, "unknown element type number 99"),
        ({"data_type": 0, "dims": [1]}, "unknown element type number 0"),
        ({"data_type": 8, "dims": [2], "string_data": [b"a"]}, "needs 2 numbers, but has 1"),
        ({"data_type": 8, "dims": [1], "string_data": [b"\xff"]}, "not UTF-8"),
        ({"data_type": 1, "dims": [2]}, "needs 2 numbers, but has 0"),
    ],
)
def test_shape_and_data_must_fit(fields, match: str):
    with pytest.raises(ModelError, match=match):
        read(TensorProto(name="t", **fields))


def sparse(proto: onnx.SparseTensorProto) -> Tensor:
    source = MemorySource(proto.SerializeToString())
    return read_sparse(wire.decode(source, schema.SCHEMAS["SparseTensorProto"]), source, None)[1]


def test_sparse_tensors_become_dense():
    values = helper.make_tensor("v", TensorProto.FLOAT, [2], [1.5, -2.0])
    flat = helper.make_tensor("i", TensorProto.INT64, [2], [1, 5])
    pairs = helper.make_tensor("i", TensorProto.INT64, [2, 2], [0, 1, 1, 2])
    for indices in (flat, pairs):
        dense = sparse(helper.make_sparse_tensor(values, indices, [2, 3]))
        np.testing.assert_array_equal(dense.numpy(), np.array([[0, 1.5, 0], [0, 0, -2]], np.float32))


def test_sparse_tensors_are_checked(monkeypatch):
    values = helper.make_tensor("v", TensorProto.FLOAT, [1], [1.0])
    outside = helper.make_tensor("i", TensorProto.INT64, [1], [6])
    with pytest.raises(ModelError, match="outside the shape"):
        sparse(helper.make_sparse_tensor(values, outside, [2, 3]))
    inside = helper.make_tensor("i", TensorProto.INT64, [1], [0])
    monkeypatch.setattr(tensors, "MAX_DENSE_BYTES", 100)
    with pytest.raises(LimitError, match="too large to be made dense"):
        sparse(helper.make_sparse_tensor(values, inside, [2, 30]))


@pytest.mark.parametrize("element_type", [*TYPES, TensorProto.STRING], ids=TensorProto.DataType.Name)
def test_numbers_names_and_types_go_together(element_type: int):
    dtype = dtypes.dtype_of(element_type)
    assert dtypes.element_type_of(dtype) == element_type
    assert dtypes.named(dtypes.spec_name(dtype)) == dtype
    if element_type != TensorProto.STRING:
        assert dtype == helper.tensor_dtype_to_np_dtype(element_type)


def test_type_names():
    f32 = TensorType(np.dtype("f4"), (1, "n"))
    assert dtypes.type_name(f32) == "tensor(float)"
    assert dtypes.type_name(TensorType(STRING, None)) == "tensor(string)"
    assert dtypes.type_name(OptionalType(SequenceType(f32))) == "optional(seq(tensor(float)))"
    zipmap = SequenceType(MapType(np.dtype("i8"), TensorType(np.dtype("f4"), ())))
    assert dtypes.type_name(zipmap) == "seq(map(int64,tensor(float)))"


EXTENDED = [t for t in TYPES if dtypes.is_extended(dtypes.dtype_of(t))]
STRUCTURED = {t: np.dtype([(dtypes._TABLE[t][1], dtypes._TABLE[t][2])]) for t in EXTENDED}


@pytest.mark.parametrize("element_type", EXTENDED, ids=TensorProto.DataType.Name)
def test_without_ml_dtypes_the_bits_are_the_same(element_type: int, monkeypatch):
    """The structured stand-in holds what ml_dtypes holds, and widens to the same values."""
    bits = dtypes._TABLE[element_type][2]
    size = 1 << (dtypes.BITS.get(element_type) or np.dtype(bits).itemsize * 8)
    patterns = np.arange(size, dtype=f"u{np.dtype(bits).itemsize}")
    real = patterns.view(dtypes.dtype_of(element_type))
    stand_in = patterns.view(STRUCTURED[element_type])
    assert dtypes.element_type_of(stand_in.dtype) == element_type
    expected = real.astype(np.float32)
    for array in (real, stand_in):
        np.testing.assert_array_equal(dtypes.widen(array).astype(np.float32), expected)


FLOATS = [t for t in EXTENDED if "FLOAT" in TensorProto.DataType.Name(t)]


@pytest.mark.parametrize("element_type", FLOATS, ids=TensorProto.DataType.Name)
def test_narrowing_rounds_as_the_standard_says(element_type: int):
    dtype = dtypes.dtype_of(element_type)
    rng = np.random.default_rng(2)
    values = np.concatenate([rng.normal(size=2000), rng.normal(size=500) * 1e-3, np.exp(rng.normal(size=500) * 4),
                             [0.0, -0.0, np.nan]]).astype(np.float32)  # fmt: skip
    finite = float(ml_dtypes.finfo(dtype).max)
    inside = np.abs(values) <= finite
    if dtype.name == "float8_e8m0fnu":
        inside &= values > 2.0**-127
    values = values[inside | np.isnan(values)]
    if dtype.name == "float4_e2m1fn":
        values = values[~np.isnan(values)]
    for target in (dtype, STRUCTURED[element_type]):
        ours = dtypes.widen(dtypes.narrow(values, target))
        np.testing.assert_array_equal(ours, values.astype(dtype).astype(np.float32))


def test_narrowing_saturates_or_overflows():
    big = np.array([1e30, -1e30, np.inf, -np.inf], np.float32)
    e4m3 = dtypes.named("float8e4m3fn")
    assert dtypes.widen(dtypes.narrow(big, e4m3)).tolist() == [448, -448, 448, -448]
    assert np.isnan(dtypes.widen(dtypes.narrow(big, e4m3, saturate=False))).all()
    e5m2 = dtypes.named("float8e5m2")
    assert dtypes.widen(dtypes.narrow(big, e5m2)).tolist() == [57344, -57344, 57344, -57344]
    assert dtypes.widen(dtypes.narrow(big, e5m2, saturate=False)).tolist() == [math.inf, -math.inf, math.inf, -math.inf]


def test_narrowing_small_integers_wraps():
    values = np.array([0, 7, 8, -1, 17])
    assert dtypes.widen(dtypes.narrow(values, dtypes.named("int4"))).tolist() == [0, 7, -8, -1, 1]
    assert dtypes.widen(dtypes.narrow(values, dtypes.named("uint4"))).tolist() == [0, 7, 8, 15, 1]


@pytest.mark.parametrize("element_type", EXTENDED, ids=TensorProto.DataType.Name)
@pytest.mark.parametrize("shape", [(), (0,), (2, 1, 3)], ids=str)
def test_converting_keeps_the_shape(element_type: int, shape: tuple[int, ...]):
    for dtype in (dtypes.dtype_of(element_type), STRUCTURED[element_type]):
        narrow = dtypes.narrow(np.ones(shape, np.float32), dtype)
        wide = dtypes.widen(narrow)
        for array in (narrow, wide):
            assert isinstance(array, np.ndarray)
            assert array.shape == shape
        assert narrow.dtype == dtype
        assert (wide == 1).all()


def test_converting_strided_arrays():
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    for name in ("bfloat16", "float8e5m2", "int4"):
        dtype = dtypes.named(name)
        narrow = dtypes.narrow(values.T[::2], dtype)
        assert dtypes.widen(narrow[:, 1:]).tolist() == dtypes.widen(dtypes.narrow(values, dtype)).T[::2, 1:].tolist()
