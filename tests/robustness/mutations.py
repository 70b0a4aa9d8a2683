"""Models made wrong, reproducibly: bytes flipped, cut and repeated, and fields of the decoded message changed.

The second kind gets past the reader and reaches the operators, with sizes, types, names and attributes that no exporter
would write.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError, Message

INTEGERS = (0, 1, -1, 2, 3, -2, 7, 64, 255, 1000, 1 << 16, 1 << 20, 1 << 31, (1 << 31) - 1, 1 << 40, (1 << 63) - 1)
SMALL_INTEGERS = (0, 1, -1, 2, 3, 5, 8, 16)
FLOATS = (0.0, -0.0, 1.0, -1.0, 1e-30, 3e38, float("inf"), -float("inf"), float("nan"), 0.5)
STRINGS = (
    "",
    "x",
    "../secret",
    "/etc/passwd",
    "a" * 10_000,
    "NOTSET",
    "SAME_UPPER",
    "linear",
    "\0",
    "é",
    "..",
    "(a+)+$",
)
OPERATORS = ("Identity", "Loop", "If", "Scan", "Reshape", "Expand", "Tile", "ConstantOfShape", "Range", "Pad", "Resize",
             "Concat", "Gather", "Slice", "Constant", "Conv", "MatMul", "Cast")  # fmt: skip

LARGEST = 1 << 22
"""Bytes of the largest model that a mutation may make."""


def mutate(data: bytes, seed: int) -> bytes:
    """A wrong version of a model; the same one for the same seed."""
    rng = random.Random(seed)
    if rng.random() < 0.25:
        return mutate_bytes(data, rng)
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
    except DecodeError:
        return mutate_bytes(data, rng)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
        try:
            mutate_message(proto, rng)
        except (TypeError, ValueError):  # protobuf refuses a value
            continue
    made = proto.SerializeToString()
    return made if len(made) <= LARGEST else data[: LARGEST // 2]


def mutate_bytes(data: bytes, rng: random.Random) -> bytes:
    """Flip, cut out, repeat or overwrite some bytes."""
    made = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8, 64))):
        if not made:
            break
        at = rng.randrange(len(made))
        length = rng.choice((1, 1, 2, 4, 16, 256))
        kind = rng.randrange(6)
        if kind == 0:
            made[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del made[at:]
        elif kind == 2:
            del made[at : at + length]
        elif kind == 3:
            made[at:at] = made[at : at + length] * rng.choice((1, 2, 50))
        elif kind == 4:
            made[at : at + length] = rng.randbytes(length)
        else:
            made[at : at + 9] = b"\xff" * rng.choice((1, 9, 10))
    return bytes(made)


def without_shapes(data: bytes) -> bytes:
    """A model that accepts inputs of any shape."""
    proto = onnx.ModelProto()
    proto.ParseFromString(data)
    del proto.graph.value_info[:]
    for info in (*proto.graph.input, *proto.graph.output):
        if info.type.HasField("tensor_type"):
            info.type.tensor_type.ClearField("shape")
    return proto.SerializeToString()


def mutate_inputs(inputs: list[Any], seed: int) -> list[Any]:
    """Inputs with other shapes and values: axes, sizes and indices that lie anywhere, NaN, empty tensors."""
    rng = random.Random(seed)
    changed = list(inputs)
    for _ in range(rng.choice((1, 1, 2, 4))):
        if not changed:
            break
        i = rng.randrange(len(changed))
        if isinstance(changed[i], np.ndarray):
            changed[i] = _mutate_array(changed[i], rng)
    return changed


def _mutate_array(array: np.ndarray, rng: random.Random) -> np.ndarray:
    action = rng.randrange(6)
    if action == 0 and array.ndim:
        return np.take(array, [], rng.randrange(array.ndim))
    if action == 1 and array.ndim:
        return np.repeat(array, 2, rng.randrange(array.ndim))
    if action == 2:
        return array[None]
    if action == 3 and array.ndim and array.shape[0]:
        return array[0, ...]
    if action == 4 and array.ndim:
        return array[..., : rng.randrange(array.shape[-1] + 1)]
    if not array.size or array.dtype.kind not in "iuf":
        return array
    made = np.array(array)
    for _ in range(rng.choice((1, 1, 3))):
        at = rng.randrange(made.size)
        if made.dtype.kind == "f":
            made.flat[at] = rng.choice(FLOATS)
        else:
            bits = np.iinfo(made.dtype)
            made.flat[at] = min(max(rng.choice((*INTEGERS, *SMALL_INTEGERS)), bits.min), bits.max)
    return made


def messages(root: Message) -> list[Message]:
    """The message and all those in it; tensors' own fields included."""
    found = [root]
    for message in found:
        for field, value in message.ListFields():
            if field.type == field.TYPE_MESSAGE:
                found.extend(value if field.is_repeated else [value])
    return found


def mutate_message(root: Message, rng: random.Random) -> None:
    """Change one field somewhere in a message."""
    every = messages(root)
    # Most changes elsewhere end in the reader; those of attributes and tensors reach the operators.
    deep = [m for m in every if m.DESCRIPTOR.name in ("AttributeProto", "TensorProto")]
    message = rng.choice(deep if deep and rng.random() < 0.6 else every)
    fields = list(message.DESCRIPTOR.fields)
    present = [field for field, _ in message.ListFields()]
    field = rng.choice(present if present and rng.random() < 0.8 else fields)
    if field.is_repeated:
        _mutate_list(message, field, every, rng)
    elif field.type == field.TYPE_MESSAGE:
        others = [m for m in every if m.DESCRIPTOR is field.message_type]
        if rng.random() < 0.3 or not others:
            message.ClearField(field.name)
        else:
            copy = _copied(rng.choice(others))
            getattr(message, field.name).CopyFrom(copy)
    elif rng.random() < 0.15:
        message.ClearField(field.name)
    else:
        setattr(message, field.name, _scalar(message, field, getattr(message, field.name), every, rng))


def _copied(message: Message) -> Message:
    copy = type(message)()
    copy.CopyFrom(message)
    return copy


def _mutate_list(message: Message, field: Any, every: list[Message], rng: random.Random) -> None:
    values = getattr(message, field.name)
    items = [_copied(v) for v in values] if field.type == field.TYPE_MESSAGE else list(values)
    action = rng.randrange(6)
    if action == 0 and items:
        del items[rng.randrange(len(items))]
    elif action == 1 and items:
        items.insert(rng.randrange(len(items) + 1), rng.choice(items))
    elif action == 2:
        rng.shuffle(items)
    elif action == 3 and items:
        items = items[: rng.randrange(len(items))]
    elif field.type == field.TYPE_MESSAGE:
        others = [m for m in every if m.DESCRIPTOR is field.message_type]
        if others:
            items.insert(rng.randrange(len(items) + 1), _copied(rng.choice(others)))
    elif items and action == 4:
        i = rng.randrange(len(items))
        items[i] = _scalar(message, field, items[i], every, rng)
    else:
        items.append(_scalar(message, field, None, every, rng))
    message.ClearField(field.name)
    getattr(message, field.name).extend(items)


def _scalar(message: Message, field: Any, old: Any, every: list[Message], rng: random.Random) -> Any:
    make: Callable[[], Any]
    if field.cpp_type in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
        make = lambda: rng.choice(FLOATS)  # noqa: E731
    elif field.cpp_type == field.CPPTYPE_STRING:
        return _text(message, field, every, rng)
    elif field.cpp_type == field.CPPTYPE_ENUM:
        return rng.choice([v.number for v in field.enum_type.values])
    else:
        signed = field.cpp_type in (field.CPPTYPE_INT32, field.CPPTYPE_INT64)
        bits = 32 if field.cpp_type in (field.CPPTYPE_INT32, field.CPPTYPE_UINT32) else 64
        near = [] if old is None else [old + 1, old - 1, old * 2, -old]
        number = rng.choice([*(SMALL_INTEGERS if rng.random() < 0.5 else INTEGERS), *near])
        wrapped = number & ((1 << bits) - 1)
        return wrapped - (1 << bits) if signed and wrapped >> (bits - 1) else wrapped
    return make()


def _text(message: Message, field: Any, every: list[Message], rng: random.Random) -> Any:
    if field.name == "op_type":
        used = [m.op_type for m in every if m.DESCRIPTOR.name == "NodeProto"]  # type: ignore[attr-defined]
        text = rng.choice([*OPERATORS, *used])
    elif field.name in ("input", "output", "name") and rng.random() < 0.8:
        # Other values' names make circles, duplicates and wrong types.
        names = [n for m in every if m.DESCRIPTOR.name == "NodeProto" for n in (*m.input, *m.output)]  # type: ignore[attr-defined]
        text = rng.choice([*names, "nowhere"])
    elif field.name == "raw_data" and rng.random() < 0.7:
        return mutate_bytes(message.raw_data, rng)  # type: ignore[attr-defined]
    else:
        text = rng.choice(STRINGS)
    return text.encode() if field.type == field.TYPE_BYTES else text
