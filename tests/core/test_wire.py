"""The wire reader against Google's own encoder (through `onnx`), and on bytes that are not what they seem."""

from __future__ import annotations

import contextlib
import random

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxlet.errors import LimitError, ModelError
from onnxlet.model import schema, wire
from onnxlet.model.sources import FileSource, MappedFile, MemorySource
from onnxlet.model.wire import Span


class CopyingSource:
    """A source whose reads are copies, as a JavaScript buffer's are, and which counts them."""

    def __init__(self, data: bytes):
        self.data, self.size, self.copied = data, len(data), 0

    def read(self, offset: int, size: int) -> memoryview:
        self.copied += size
        return memoryview(self.data[offset : offset + size])


def span_bytes(data: bytes, span: Span) -> bytes:
    return data[span.offset : span.offset + span.length]


PACKED = {"float_data": "<f4", "double_data": "<f8"}


def assert_same(message: wire.Message, reference, data: bytes) -> None:
    """Every field that our schema knows has the value that protobuf decoded."""
    for name, default in type(message).__dict__.items():
        if name.startswith("_"):
            continue
        theirs, ours = getattr(reference, name), getattr(message, name)
        field = reference.DESCRIPTOR.fields_by_name[name]
        if field.type == field.TYPE_MESSAGE:
            if field.is_repeated:
                assert len(ours) == len(theirs)
                for a, b in zip(ours, theirs, strict=True):
                    assert_same(a, b, data)
            elif reference.HasField(name):
                assert_same(ours, theirs, data)
            else:
                assert ours is None
        elif name == "raw_data":
            assert (span_bytes(data, ours) if ours else b"") == theirs
        elif field.is_repeated and name.endswith("_data") and name != "string_data":
            packed = b"".join(span_bytes(data, span) for span in ours)
            if name in PACKED:
                np.testing.assert_array_equal(np.frombuffer(packed, PACKED[name]), list(theirs))
            else:
                numbers, position = [], 0
                while position < len(packed):
                    number, position = wire.read_varint(memoryview(packed), position)
                    numbers.append(number)
                assert numbers == [n % (1 << 64) for n in theirs]
        elif field.is_repeated:
            assert list(ours) == list(theirs), name
        else:
            assert ours == theirs or (ours != ours and theirs != theirs), (name, default)


def rich_model() -> onnx.ModelProto:
    """A model with a field of every kind."""
    body = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["then_out"])],
        "then",
        [],
        [helper.make_tensor_value_info("then_out", TensorProto.FLOAT, [None, 3])],
    )
    nodes = [
        helper.make_node("If", ["cond"], ["a"], then_branch=body, else_branch=body, doc_string="docs", name="branch é"),
        helper.make_node("Custom", ["a", ""], ["b"], domain="com.example", i=-5, f=2.5, s="text", ints=[1, -2, 1 << 60],
                         floats=[0.5, -1.0], strings=["a", "b"], t=numpy_helper.from_array(np.arange(3)),
                         tensors=[numpy_helper.from_array(np.ones(2, np.float16))]),
    ]  # fmt: skip
    graph = helper.make_graph(
        nodes,
        "main",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3]),
         helper.make_tensor_value_info("cond", TensorProto.BOOL, [])],
        [helper.make_tensor_value_info("b", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.arange(3, dtype=np.float32), "w"),
         helper.make_tensor("typed", TensorProto.INT64, [3], [1, -1, 1 << 40]),
         helper.make_tensor("floats", TensorProto.FLOAT, [2], [1.5, -2]),
         helper.make_tensor("doubles", TensorProto.DOUBLE, [1], [np.pi]),
         helper.make_tensor("bytes", TensorProto.UINT8, [2], [7, 255]),
         helper.make_tensor("unsigned", TensorProto.UINT64, [1], [(1 << 64) - 1]),
         helper.make_tensor("strings", TensorProto.STRING, [2], ["a", "é"])],
        doc_string="graph docs",
        value_info=[helper.make_tensor_sequence_value_info("s", TensorProto.INT32, [1, "n"])],
    )  # fmt: skip
    function = helper.make_function(
        "com.example", "F", ["p"], ["q"], [helper.make_node("Relu", ["p"], ["q"])], [helper.make_opsetid("", 17)], ["k"]
    )
    model = helper.make_model(
        graph,
        producer_name="tests",
        opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.example", 1)],
        functions=[function],
    )
    helper.set_model_props(model, {"key": "value"})
    return model


def test_schema_agrees_with_onnx():
    protos = {name: getattr(onnx, name, None) for name in schema.SCHEMAS}
    protos.update(
        {
            "TypeProto.Tensor": onnx.TypeProto.Tensor,
            "TypeProto.Sequence": onnx.TypeProto.Sequence,
            "TypeProto.Map": onnx.TypeProto.Map,
            "TensorShapeProto.Dimension": onnx.TensorShapeProto.Dimension,
        }
    )
    for name, ours in schema.SCHEMAS.items():
        fields = protos[name].DESCRIPTOR.fields_by_number
        for key, (_, field, repeated, _) in ours.fields.items():
            assert fields[key >> 3].name == field
            assert repeated == fields[key >> 3].is_repeated, (name, field)


@pytest.mark.parametrize("copying", [False, True])
def test_every_field_of_a_model(copying: bool):
    model = rich_model()
    data = model.SerializeToString()
    source = CopyingSource(data) if copying else MemorySource(data)
    assert_same(wire.decode(source, schema.MODEL), model, data)


def test_models_of_the_zoo(shared_models):
    for path in shared_models:
        data = path.read_bytes()
        assert_same(wire.decode(MemorySource(data), schema.MODEL), onnx.load_from_string(data), data)


@pytest.fixture
def shared_models(shared):
    models = sorted(shared.glob("zoo/*/model.onnx"), key=lambda p: p.stat().st_size)
    return models[:40]


def test_a_copying_source_is_looked_at_through_a_window(monkeypatch):
    monkeypatch.setattr(wire, "WINDOW", 256)
    model = rich_model()
    model.graph.initializer.append(numpy_helper.from_array(np.zeros(100_000, np.float32), "large"))
    for i in range(100):
        model.graph.node.append(helper.make_node("Relu", ["x"], [f"out_{i}"]))
    data = model.SerializeToString()
    source = CopyingSource(data)
    assert_same(wire.decode(source, schema.MODEL), model, data)
    assert source.copied < 200_000 < len(data)


def test_files(tmp_path):
    data = rich_model().SerializeToString()
    path = tmp_path / "model.onnx"
    path.write_bytes(data)
    for source in (MappedFile(str(path)), FileSource(str(path))):
        assert source.size == len(data)
        assert bytes(source.read(3, 10)) == data[3:13]
        assert_same(wire.decode(source, schema.MODEL), rich_model(), data)


def test_numbers_written_unpacked_and_packed_are_the_same():
    unpacked = bytes([0x08, 3, 0x08, 0x80, 0x01, 0x10, 1])  # dims: 3, 128; data_type: 1
    packed = bytes([0x0A, 3, 3, 0x80, 0x01, 0x10, 1])
    for data in (unpacked, packed):
        message = wire.decode(MemorySource(data), schema.SCHEMAS["TensorProto"])
        assert message.dims == [3, 128]
        assert message.data_type == 1


def test_unknown_fields_are_skipped():
    known = bytes([0x08, 10])
    unknown = bytes([0xC2, 0x3E, 3]) + b"abc" + bytes([0xC0, 0x3E, 0x96, 1]) + bytes([0xC5, 0x3E, 1, 2, 3, 4])
    message = wire.decode(MemorySource(unknown + known + unknown), schema.MODEL)
    assert message.ir_version == 10


def test_a_message_given_twice_is_merged():
    graph = bytes([0x3A, 3, 0x12, 1, ord("a")]) + bytes([0x3A, 3, 0x52, 1, ord("d")])
    message = wire.decode(MemorySource(graph), schema.MODEL)
    assert (message.graph.name, message.graph.doc_string) == ("a", "d")


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (bytes([0x3A, 100, 1]), "longer than what is left"),
        (bytes([0x08]), "middle of a number"),
        (bytes([0x08, 0x80]), "middle of a number"),
        (bytes([0x08]) + b"\xff" * 11, "longer than 64 bits"),
        (bytes([0x3B, 0x3C]), "unknown wire type 3"),
        (bytes([0x3F]), "unknown wire type 7"),
        (bytes([0x02, 0x00]), "field number 0"),
        (bytes([0x12, 2, 0xFF, 0xFE]), "not UTF-8"),
    ],
)
def test_broken_bytes(data: bytes, match: str):
    for source in (MemorySource(data), CopyingSource(data)):
        with pytest.raises(ModelError, match=match):
            wire.decode(source, schema.MODEL)


def test_nesting_has_a_limit():
    data = b""
    for _ in range(3000):  # a sequence of a sequence of ...
        inner = b"\x0a" + _varint(len(data)) + data
        data = b"\x22" + _varint(len(inner)) + inner
    with pytest.raises(LimitError, match="nest deeper"):
        wire.decode(MemorySource(data), schema.SCHEMAS["TypeProto"])


def _varint(n: int) -> bytes:
    out = bytearray()
    while n >= 0x80:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    return bytes([*out, n])


def test_every_truncation_is_a_clear_error_or_valid():
    data = rich_model().SerializeToString()
    for end in range(len(data)):
        for source in (MemorySource(data[:end]), CopyingSource(data[:end])):
            with contextlib.suppress(ModelError, LimitError):
                wire.decode(source, schema.MODEL)


def test_random_damage_is_a_clear_error_or_valid():
    rng = random.Random(7)
    original = rich_model().SerializeToString()
    for _ in range(1500):
        data = bytearray(original)
        for _ in range(rng.choice([1, 1, 2, 8])):
            data[rng.randrange(len(data))] = rng.randrange(256)
        with contextlib.suppress(ModelError, LimitError):
            wire.decode(MemorySource(bytes(data)), schema.MODEL)
