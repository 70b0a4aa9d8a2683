"""Convolutions of 8-bit integers: QLinearConv and ConvInteger, channels last, exact in int32."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from onnxlet.graph.ir import Node
from onnxlet.providers.base import Segment, Step

from .. import pieces
from ..compiler import Compiler, Place
from ..layouts import LAST
from .bytewise import OWN, Values, bounds_of
from .common import (
    F32,
    I8,
    I32,
    MOVED,
    TYPE_CODES,
    U8,
    activation_of,
    dtype_of,
    grain,
    need_constant,
    need_types,
    output_dtype,
    present,
    shape_of,
    window_of,
)
from .conv import Convolution
from .gemm import activation_fields
from .quantize import packed_int8
from .registry import Emit, Refused, lower

MIN_CHANNELS = 8
"""Channels of a depthwise convolution that one step computes at least: a bound of how many blocks there are."""


NO_EPILOGUE = dict.fromkeys(("scale", "scales", "addend", "y_zero", "bias", "activation", "low", "high"), 0)


def factor_of(x_scale: np.ndarray, w_scale: np.ndarray, y_scale: np.ndarray) -> np.ndarray:
    """What a sum of products is multiplied by: one number, or one per channel."""
    with np.errstate(all="ignore"):
        return (x_scale.reshape(-1) * w_scale.reshape(-1) / y_scale.reshape(-1)).astype(F32)


@lower("QLinearConv")
def qlinear_conv(step: Step) -> Emit:
    """x, its scale and zero point, w, its scale and zero point, y's scale and zero point, bias."""
    need_types(step, (I8, U8), 0, 2, 3, 5, 7)
    need_types(step, (F32,), 1, 4, 6)
    need_types(step, (I32,), 8)
    g = _convolution(step, 3)
    for i, what in ((1, "scale"), (2, "zero point"), (6, "scale"), (7, "zero point")):
        if prod(shape_of(step, i)) != 1:
            raise Refused(f"a {what} per channel has no kernel here")
    scales = [need_constant(step, i, "scale") for i in (1, 4, 6)]
    factor = factor_of(*scales)
    if not np.isfinite(factor).all():
        raise Refused("scales that are not finite numbers have no kernel")
    if scales[1].size not in (1, g.outputs) or prod(shape_of(step, 5)) not in (1, g.outputs):
        raise Refused("scales that do not fit the channels have no kernel")
    if dtype_of(step, 2) != dtype_of(step, 0) or dtype_of(step, 5) != dtype_of(step, 3):
        raise Refused("zero points of another type have no kernel")

    def emit(c: Compiler) -> None:
        names = [c.step.node.inputs[i] for i in (1, 4, 6)]
        scale = c.computed("factor", lambda: factor, *names)
        epilogue = {
            "y_type": TYPE_CODES[dtype_of(step, 7)], "scale": scale, "scales": max(s.size for s in scales),
            "addend": c.input(8), "y_zero": c.input(7),
        }  # fmt: skip
        _emit(c, g, 3, 2, 5, epilogue)

    return emit


@lower("ConvInteger")
def conv_integer(step: Step) -> Emit:
    """x, w, the zero point of x, the zero points of w: one, or one per output channel."""
    need_types(step, (I8, U8), 0, 1, 2, 3)
    g = _convolution(step, 1)
    if present(step, 2) and (prod(shape_of(step, 2)) != 1 or dtype_of(step, 2) != dtype_of(step, 0)):
        raise Refused("a zero point per channel has no kernel here")
    if present(step, 3) and (prod(shape_of(step, 3)) not in (1, g.outputs) or dtype_of(step, 3) != dtype_of(step, 1)):
        raise Refused("zero points that do not fit the channels have no kernel")
    return lambda c: _emit(c, g, 1, 2, 3, {"y_type": TYPE_CODES[I32]})


@lower("ConvIntegerToFloat", domain=OWN)
def conv_integer_to_float(step: Step) -> Emit:
    """A step that `joined_convolutions` made: ConvInteger's inputs, a scale, a bias."""
    activation, g = activation_of(step), _convolution(step, 1)

    def emit(c: Compiler) -> None:
        scaled: dict[str, Place] = {"y_type": TYPE_CODES[F32], "scale": c.input(4), "scales": 1, "bias": c.input(5)}
        _emit(c, g, 1, 2, 3, scaled | activation_fields(activation))

    return emit


def joined_convolutions(segment: Segment) -> Segment:
    """The segment with what follows ConvInteger in dynamically quantised models put into it: Cast to float32, Mul by a
    number, Add of a constant per channel, Relu or Clip."""
    graph = Values(segment)
    joined: dict[int, Step | None] = {}
    for step in segment.steps:
        if step.node.op_type == "ConvInteger" and not step.node.domain:
            steps, new = _following(graph, step)
            if new is not None:
                joined.update((id(s), None) for s in steps)
                joined[id(steps[-1])] = new
    if not joined:
        return segment
    return replace(segment, steps=[new for s in segment.steps if (new := joined.get(id(s), s)) is not None])


def _following(graph: Values, conv: Step) -> tuple[list[Step], Step | None]:
    """The steps to be joined, and what they become; `None` where the convolution is not scaled."""
    steps = [conv]

    def following(*operators: str) -> Step | None:
        step = graph.only_reader(steps[-1].node.outputs[0])
        return step if step is not None and not step.node.domain and step.node.op_type in operators else None

    def other(step: Step) -> int:
        """The index of a binary step's other input."""
        return int(step.node.inputs[0] == steps[-1].node.outputs[0])

    cast = following("Cast")
    if cast is None or output_dtype(cast) != F32:
        return steps, None
    steps.append(cast)
    scaled = following("Mul")
    if scaled is None or prod(shape_of(scaled, other(scaled))) != 1 or scaled.node.inputs[0] == scaled.node.inputs[1]:
        return steps, None
    at = other(scaled)
    inputs, types = [*conv.node.inputs, "", ""][:4], [*conv.inputs, None, None][:4]
    inputs.append(scaled.node.inputs[at])
    types.append(scaled.inputs[at])
    constants = {**conv.constants, **scaled.constants}
    attributes = dict(conv.node.attributes)
    steps.append(scaled)
    channels, rank = shape_of(conv, 1)[0], len(shape_of(conv, 0))
    add = following("Add")
    if add is not None and add.node.inputs[0] != add.node.inputs[1]:
        at, shape = other(add), (channels, *(1,) * (rank - 2))
        if add.node.inputs[at] in add.constants and shape_of(add, at) in (shape, (1, *shape)):
            inputs.append(add.node.inputs[at])
            types.append(add.inputs[at])
            constants.update(add.constants)
            steps.append(add)
    clip = following("Relu", "Clip")
    bounds = None if clip is None else bounds_of(clip)
    if clip is not None and bounds is not None:
        attributes |= {"activation": "Clip", "activation_params": list(bounds)}
        steps.append(clip)
    node = Node("ConvIntegerToFloat", inputs, steps[-1].node.outputs, attributes, OWN, 1, conv.node.label)
    return steps, Step(node, types, steps[-1].outputs, constants)


def _convolution(step: Step, weights: int) -> Convolution:
    """The sizes of the convolution of input 0 by input `weights`."""
    shape, kernel = shape_of(step, 0), shape_of(step, weights)
    if not 3 <= len(shape) <= 4:
        raise Refused(f"convolution of integers in {len(shape) - 2} dimensions has no kernel")
    window = window_of(step, shape[2:], kernel[2:]).in_two_dimensions()
    return Convolution(shape[0], shape[1], kernel[0], step.attribute("group", 1), window)


def _emit(c: Compiler, g: Convolution, weights: int, x_zero: int, w_zero: int, epilogue: dict[str, Place]) -> None:
    w, taps, channels = g.window, prod(g.window.kernel), g.channels // g.groups
    fields = {
        "type": TYPE_CODES[dtype_of(c.step, 0)], "x_zero": c.input(x_zero), **NO_EPILOGUE, **epilogue,
        "batch": g.batch, "h": w.input[0], "w": w.input[1], "oh": w.output[0], "ow": w.output[1],
        "kh": w.kernel[0], "kw": w.kernel[1], "stride_h": w.strides[0], "stride_w": w.strides[1],
        "pad_top": w.begin[0], "pad_left": w.begin[1], "dilation_h": w.dilations[0], "dilation_w": w.dilations[1],
    }  # fmt: skip
    if g.depthwise:
        packed, sums = _packed_depthwise(c, weights, w_zero, g.channels, taps)
        x, y, units = c.input(0, LAST), c.output(0, LAST), pieces.spans(g.batch * w.output[0], w.output[1])
        c.emit(
            "depthwise_int8", units=units, grain=g.grain(units), scratch=16 * (taps + 1) + g.channels + 64, x=x, y=y,
            packed=packed, sums=sums, c=g.channels, **fields,
        )  # fmt: skip
        return
    depth, outputs = channels * taps, g.outputs // g.groups
    panels, columns = packed_int8(c, weights, w_zero, depth, outputs, (channels, 1, taps, depth), groups=g.groups)
    x, y = c.input(0, LAST), c.output(0, LAST)
    units = pieces.conv(g.pixels, outputs, g.groups)
    c.emit(
        "conv_int8", units=units, grain=g.grain(units), scratch=pieces.int8_scratch(depth), x=x, x_step=g.channels,
        panels=panels, columns=columns, y=y, y_step=g.outputs, c=channels, oc=outputs, groups=g.groups, **fields,
    )  # fmt: skip


def _packed_depthwise(c: Compiler, weights: int, w_zero: int, channels: int, taps: int) -> tuple[Place, Place]:
    """The places of the weights in blocks of channels, and of their sums."""
    whole = channels + 15 & -16
    split = 2 * whole * (taps + 1 & -2)
    units = -(-channels // MIN_CHANNELS)
    zeros = prod(shape_of(c.step, w_zero)) if present(c.step, w_zero) else 0
    fields = {"type": TYPE_CODES[dtype_of(c.step, weights)], "zeros": zeros, "channels": channels, "taps": taps}
    tensor, zero = c.tensor(weights), c.tensor(w_zero)
    if tensor is None or (zeros and zero is None):
        place = c.temporary(split + 4 * whole)
        c.emit("pack_depthwise_int8", units=units, grain=grain(units, channels * taps * MOVED), w=c.input(weights),
               zero=c.input(w_zero), packed=place, sums=place + split, **fields)  # fmt: skip
        return place, place + split
    at = 0 if zero is None else c.memory.constant(zero)

    def pack(raw: int, address: int) -> None:
        c.memory.engine.call("pack_depthwise_int8", units=units, w=raw, zero=at, packed=address, sums=address + split,
                             **fields)  # fmt: skip

    kind = ("depthwise int8", None if zero is None else zero.numpy().tobytes())
    address = c.memory.packed(tensor, kind, split + 4 * whole, pack)
    return address, address + split
