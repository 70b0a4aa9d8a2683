"""Operators of com.microsoft, which onnxruntime's optimisers write, as those of the standard that they are made of."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from .carried import to_type
from .common import BOOL, F32, I32, I64, need_float32, need_types, normal_axis, output_shape, present, text
from .copies import need_copyable
from .expansion import Expansion, expand
from .registry import Refused

MICROSOFT = "com.microsoft"


def _last_to_second(e: Expansion, x: str) -> str:
    """(N, ..., C) as (N, C, ...)."""
    rank = len(e.shape(x))
    return e.transpose(x, (0, rank - 1, *range(1, rank - 1)))


def _second_to_last(e: Expansion, x: str, output: str) -> str:
    return e.transpose(x, (0, *range(2, len(e.shape(x))), 1), output)


def _turned(shape: Sequence[int]) -> tuple[int, ...]:
    return (shape[0], shape[-1], *shape[1:-1])


@expand("EmbedLayerNormalization", domain=MICROSOFT)
def embed_layer_normalization(e: Expansion) -> None:
    """Identifiers of words and segments, three tables, scale, bias, mask, positions."""
    step = e.step
    need_float32(step, 2, 3, 4, 5, 6)
    need_types(step, (I32,), 0, 1, 7, 8)
    words = e.input(0)
    batch, length = e.shape(words)
    width = e.shape(e.input(2))[1]
    total = _rows(e, e.input(2), words)
    if present(step, 8):
        places = _rows(e, e.input(3), e.input(8))
    elif e.shape(e.input(3))[0] < length:
        raise Refused("fewer positions than words have no kernel")
    else:
        places = e.add("Slice", [e.input(3), *(e.literal([n], I64) for n in (0, length, 0))], (length, width))
    total = e.binary("Add", total, places)
    if present(step, 1) and present(step, 4):
        total = e.binary("Add", total, _rows(e, e.input(4), e.input(1)))
    epsilon = float(step.attribute("epsilon", 1e-12))
    e.add("LayerNormalization", [total, e.input(5), e.input(6)], output=e.output(), axis=-1, epsilon=epsilon)
    if e.output(2):
        e.add("Identity", [total], output=e.output(2))
    if e.output(1) and present(step, 7):
        seen = to_type(e, e.binary("Equal", e.input(7), e.literal(1, I32), dtype=BOOL), I32)
        e.add("ReduceSum", [seen, e.literal([1], I64)], (batch,), dtype=I32, output=e.output(1), keepdims=0)
    elif e.output(1):
        e.add("Identity", [e.literal(np.zeros(batch), I32)], dtype=I32, output=e.output(1))


def _rows(e: Expansion, table: str, numbers: str) -> str:
    """The rows of a table that int32 numbers say; a negative one is an error."""
    below = e.binary("Less", numbers, e.literal(0, I32), dtype=BOOL)
    checked = e.add("Where", [below, e.literal(2**30, I32), numbers], dtype=I32, shape=e.shape(numbers))
    return e.add("Gather", [table, checked], (*e.shape(numbers), e.shape(table)[1]), axis=0)


@expand("BiasSoftmax", domain=MICROSOFT)
def bias_softmax(e: Expansion) -> None:
    data, bias, step = e.input(0), e.input(1), e.step
    need_float32(step)
    shape, other = e.shape(data), e.shape(bias)
    axis = normal_axis(int(step.attribute("axis", 1)), len(shape))
    if step.attribute("is_inner_broadcast", 0) and len(other) < len(shape):
        lead = len(other) - (len(shape) - axis)
        bias = e.reshape(bias, (*other[:lead], *(1,) * (len(shape) - len(other)), *other[lead:]))
    total = e.reshape(e.binary("Add", data, bias), (prod(shape[:axis]), prod(shape[axis:])))
    e.reshape(e.add("Softmax", [total], axis=-1), shape, e.output())


@expand("GroupNorm", domain=MICROSOFT)
def group_norm(e: Expansion) -> None:
    need_float32(e.step)
    _group_normalized(e, e.input(0))


@expand("SkipGroupNorm", domain=MICROSOFT)
def skip_group_norm(e: Expansion) -> None:
    """x, scale, bias, skip, bias of the sum; the result, and the sum."""
    need_float32(e.step)
    last, total = bool(e.step.attribute("channels_last", 1)), e.input(0)
    for i in (3, 4):
        if present(e.step, i):
            part, shape = e.input(i), e.shape(e.input(i))
            if len(shape) < 4:
                *lead, channels = (1, *shape)[-2:]
                part = e.reshape(part, (*lead, 1, 1, channels) if last else (*lead, channels, 1, 1))
            total = e.binary("Add", total, part)
    if e.shape(total) != e.shape(e.input(0)):
        raise Refused("a skip larger than the input has no kernel")
    _group_normalized(e, total)
    if e.output(1):
        e.add("Identity", [total], output=e.output(1))


def _group_normalized(e: Expansion, x: str) -> None:
    step, last = e.step, bool(e.step.attribute("channels_last", 1))
    images = _last_to_second(e, x) if last else x
    channels = e.shape(images)[1]
    if any(e.shape(e.input(i)) != (channels,) for i in (1, 2)) or channels % step.attribute("groups"):
        raise Refused("a scale or bias of this shape has no kernel")
    silu = bool(step.attribute("activation", 0))
    y = e.add("GroupNormalization", [images, e.input(1), e.input(2)], output="" if silu or last else e.output(),
              num_groups=step.attribute("groups"), epsilon=float(step.attribute("epsilon", 1e-5)))  # fmt: skip
    if silu:
        y = e.add("Swish", [y], output="" if last else e.output())
    if last:
        _second_to_last(e, y, e.output())


@expand("BiasAdd", domain=MICROSOFT)
def bias_add(e: Expansion) -> None:
    need_float32(e.step)
    e.binary("Add", e.binary("Add", e.input(0), e.input(1)), e.input(2), e.output())


@expand("BiasSplitGelu", domain=MICROSOFT)
def bias_split_gelu(e: Expansion) -> None:
    need_float32(e.step)
    total, shape = e.binary("Add", e.input(0), e.input(1)), output_shape(e.step)
    width, axis = shape[-1], len(shape) - 1
    left, right = (
        e.add("Slice", [total, *(e.literal([n], I64) for n in (i * width, (i + 1) * width, axis))], shape)
        for i in (0, 1)
    )
    e.binary("Mul", left, e.add("Gelu", [right]), e.output())


@expand("GemmFastGelu", domain=MICROSOFT)
def gemm_fast_gelu(e: Expansion) -> None:
    need_float32(e.step)
    inputs = [e.input(i) for i in range(3) if present(e.step, i)]
    e.add("FusedMatMul", inputs, output_shape(e.step), output=e.output(), domain="ai.onnxlet", version=1,
          activation="GeluTanh")  # fmt: skip


@expand("TransposeMatMul", "FusedMatMulActivation", domain=MICROSOFT)
def product(e: Expansion) -> None:
    """With an activation that has no parameters."""
    attributes = dict(e.step.node.attributes)
    activation = text(attributes.pop("activation", ""))
    if any(name.startswith("activation_") for name in attributes) or activation not in ("", "Relu", "Tanh", "Sigmoid"):
        raise Refused(f"activation {activation} has no kernel here")
    shape = output_shape(e.step)
    y = e.add("FusedMatMul", [e.input(0), e.input(1)], shape, output="" if activation else e.output(),
              domain=MICROSOFT, version=1, **attributes)  # fmt: skip
    if activation:
        e.add(activation, [y], output=e.output())


@expand("NhwcConv", "NhwcFusedConv", domain=MICROSOFT)
def convolution_of_last_channels(e: Expansion) -> None:
    """Weights have their channels last too, but for `NhwcFusedConv`."""
    need_float32(e.step)
    step = e.step
    weights = _last_to_second(e, e.input(1)) if step.node.op_type == "NhwcConv" else e.input(1)
    outputs, depth = e.shape(weights)[:2]
    if depth * int(step.attribute("group", 1)) != e.shape(e.input(0))[-1] or outputs != output_shape(step)[-1]:
        raise Refused("weights of this shape have no kernel")
    if present(step, 2) and e.shape(e.input(2)) != (outputs,):
        raise Refused("a bias of this shape has no kernel")
    residual = _last_to_second(e, e.input(3)) if present(step, 3) else ""
    inputs = [_last_to_second(e, e.input(0)), weights, e.input(2), residual]
    while not inputs[-1]:
        inputs.pop()
    y = e.add("FusedConv", inputs, _turned(output_shape(step)), domain=MICROSOFT, version=1, **step.node.attributes)
    _second_to_last(e, y, e.output())


@expand("NhwcMaxPool", domain=MICROSOFT)
def max_pool_of_last_channels(e: Expansion) -> None:
    shape = _turned(output_shape(e.step))
    y = e.add("MaxPool", [_last_to_second(e, e.input(0))], shape, dtype=e.dtype(e.input(0)), **e.step.node.attributes)
    _second_to_last(e, y, e.output())


@expand("Pad", "GatherND", "Trilu", domain=MICROSOFT)
def standard(e: Expansion) -> None:
    """Operators that the standard took over as they were."""
    need_copyable(e.step, 0)
    e.add(e.step.node.op_type, list(e.step.node.inputs), output_shape(e.step), dtype=e.dtype(e.input(0)),
          output=e.output(), **e.step.node.attributes)  # fmt: skip


@expand("ExpandDims", domain=MICROSOFT)
def expand_dims(e: Expansion) -> None:
    need_copyable(e.step, 0)
    e.reshape(e.input(0), output_shape(e.step), e.output())


@expand("ScaledSiLU", domain=MICROSOFT)
def scaled_silu(e: Expansion) -> None:
    need_float32(e.step)
    factor = e.input(1) if present(e.step, 1) else e.literal(float(e.step.attribute("alpha", 1.0)), F32)
    e.add("Swish", [e.binary("Mul", e.input(0), factor)], output=e.output())
