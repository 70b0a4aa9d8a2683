"""Convolutions, channels last: 1×1 as a matrix product, depthwise, few input channels, and all others."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from onnxlet.providers.base import Step

from .. import pieces
from ..compiler import Compiler, Place
from ..layouts import LAST, PLAIN
from .common import (
    MOVED,
    NO_ACTIVATION,
    Activation,
    Window,
    activation_of,
    grain,
    need_float32,
    output_shape,
    present,
    shape_of,
    window_of,
)
from .elementwise import add_call
from .gemm import activation_fields, gemm_call, packed_constant
from .registry import Emit, Refused, lower

FEW_CHANNELS = 4
"""So few that a row of the window is better read as one run of pixels than tap by tap."""

WINOGRAD_CHANNELS = 16
WINOGRAD_PIXELS = 32
WINOGRAD_BYTES = 16 << 20
"""Where minimal filtering was measured to be about twice as fast as direct convolution (natively, 2026): from so many
channels and output pixels on, while its weights still come from the cache rather than from memory."""

MIN_LANES = 4
"""Lanes of the narrowest vectors: a bound of how many channel blocks `pack_depthwise` makes."""


@dataclass(frozen=True, slots=True)
class Convolution:
    """Sizes of a convolution in two or three dimensions; `outputs` are channels, all groups together."""

    batch: int
    channels: int
    outputs: int
    groups: int
    window: Window

    @property
    def pixels(self) -> int:
        return self.batch * prod(self.window.output)

    @property
    def depth(self) -> int:
        """Products per output element."""
        return self.channels // self.groups * prod(self.window.kernel)

    @property
    def pointwise(self) -> bool:
        w = self.window
        return self.groups == 1 and prod(w.kernel) == 1 and prod(w.strides) == 1 and not any(w.begin) and not any(w.end)

    @property
    def depthwise(self) -> bool:
        return self.groups == self.channels == self.outputs > 1

    @property
    def minimal(self) -> bool:
        """Whether minimal filtering (Winograd) saves more multiplications than its transforms and its weights, four
        times as large, cost."""
        w = self.window
        return (
            w.kernel == (3, 3) and prod(w.strides) == prod(w.dilations) == self.groups == 1
            and min(self.channels, self.outputs) >= WINOGRAD_CHANNELS and self.pixels >= WINOGRAD_PIXELS
            and 144 * self.channels * self.outputs <= WINOGRAD_BYTES
        )  # fmt: skip

    def grain(self, units: int) -> float:
        return grain(units, self.pixels * self.outputs * self.depth)


@lower("Conv")
def conv(step: Step) -> Emit:
    return _conv(step, NO_ACTIVATION)


@lower("FusedConv", domain="com.microsoft")
def fused_conv(step: Step) -> Emit:
    """X, W, B, Z: activation(convolution + B + Z)."""
    return _conv(step, activation_of(step))


def _conv(step: Step, activation: Activation) -> Emit:
    need_float32(step)
    shape, weights = shape_of(step, 0), shape_of(step, 1)
    if not 3 <= len(shape) <= 5:
        raise Refused(f"convolution in {len(shape) - 2} dimensions has no kernel")
    groups = step.attribute("group", 1)
    window = window_of(step, shape[2:], weights[2:]).in_two_dimensions()
    g = Convolution(shape[0], shape[1], weights[0], groups, window)
    if present(step, 3) and shape_of(step, 3) != output_shape(step):
        raise Refused("a broadcast residual has no kernel")

    def emit(c: Compiler) -> None:
        bias, residual = c.input(2), c.input(3, LAST)
        if g.pointwise:
            _pointwise(c, g, bias, residual, activation)
        elif g.depthwise and len(window.kernel) == 2:
            _depthwise(c, g, bias, residual, activation)
        elif g.minimal:
            _winograd(c, g, bias, residual, activation)
        else:
            _general(c, g, bias, residual, activation)

    return emit


def _pointwise(c: Compiler, g: Convolution, bias: Place, residual: Place, activation: Activation) -> None:
    panels = packed_constant(c, 1, g.channels, g.outputs, transposed=True)
    if panels is None:
        panels = _packed(c, g)
    x, y = c.input(0, LAST), c.output(0, LAST)
    gemm_call(c, x, g.channels, panels, y, g.outputs, g.pixels, g.outputs, g.channels, bias, residual, g.outputs,
              activation)  # fmt: skip


def _packed(c: Compiler, g: Convolution) -> Place:
    """The place of the weights in panels per group."""
    outputs, taps = g.outputs // g.groups, prod(g.window.kernel)
    units = g.groups * pieces.panels(outputs)
    nbytes = g.groups * pieces.packed_size(g.depth, outputs)
    fields = {"groups": g.groups, "oc": outputs, "ic": g.channels // g.groups, "taps": taps}
    tensor = c.tensor(1)
    if tensor is None:
        panels = c.temporary(nbytes)
        work = g.outputs * g.depth * MOVED
        c.emit("pack_conv", units=units, grain=grain(units, work), w=c.input(1), panels=panels, **fields)
        return panels

    def pack(raw: int, address: int) -> None:
        c.memory.engine.call("pack_conv", units=units, w=raw, panels=address, **fields)

    return c.memory.packed(tensor, ("conv", g.groups), nbytes, pack)


def _general(c: Compiler, g: Convolution, bias: Place, residual: Place, activation: Activation) -> None:
    w = g.window
    panels = _packed(c, g)
    depth = w.layers()
    height, width = w.input[-2:]
    channels, kernel_w, top, left = g.channels // g.groups, w.kernel[-1], w.begin[-2], w.begin[-1]
    few = g.channels <= FEW_CHANNELS and g.groups == 1 and w.dilations[-1] == 1
    if few and len(w.kernel) == 2 and PLAIN in c.layouts(0):
        # Padded in memory, a row of the window is one run of kernel_w * channels elements.
        x, height, width = _padded(c, g)
        channels, kernel_w, top, left = channels * kernel_w, 1, 0, 0
    else:
        x = c.input(0, LAST)
    y = c.output(0, LAST)
    units = pieces.conv(g.pixels, g.outputs // g.groups, g.groups)
    c.emit(
        "conv", units=units, grain=g.grain(units), scratch=pieces.conv_scratch(prod(w.kernel[:-1]), kernel_w),
        x=x, x_step=g.channels, panels=panels, bias=bias, residual=residual, y=y, y_step=g.outputs,
        batch=g.batch, h=height, w=width, c=channels, oh=w.output[-2], ow=w.output[-1],
        oc=g.outputs // g.groups, groups=g.groups, kh=w.kernel[-2], kw=kernel_w,
        stride_h=w.strides[-2], stride_w=w.strides[-1], pad_top=top, pad_left=left,
        dilation_h=w.dilations[-2], dilation_w=w.dilations[-1], zeros=c.memory.zeros(4 * channels),
        **depth, **activation_fields(activation),
    )  # fmt: skip


def _winograd(c: Compiler, g: Convolution, bias: Place, residual: Place, activation: Activation) -> None:
    w = g.window
    units, nbytes = pieces.panels(g.outputs), 36 * pieces.packed_size(g.channels, g.outputs)
    tensor = c.tensor(1)
    if tensor is None:
        panels: Place = c.temporary(nbytes)
        work = 36 * g.outputs * g.channels * MOVED
        c.emit("pack_winograd", units=units, grain=grain(units, work), w=c.input(1), panels=panels, oc=g.outputs,
               ic=g.channels)  # fmt: skip
    else:

        def pack(raw: int, address: int) -> None:
            c.memory.engine.call("pack_winograd", units=units, w=raw, panels=address, oc=g.outputs, ic=g.channels)

        panels = c.memory.packed(tensor, "winograd", nbytes, pack)
    x, y = c.input(0, LAST), c.output(0, LAST)
    height, width = w.output
    tiles = pieces.winograd_tiles(g.batch, height, width)
    block = pieces.winograd_block(tiles, g.channels)
    units = pieces.winograd(tiles, g.outputs, block)
    c.emit(
        "winograd", units=units, grain=grain(units, g.pixels * g.outputs * g.channels * 9 // 3),
        scratch=pieces.winograd_scratch(g.channels, g.outputs, block), x=x, panels=panels, bias=bias,
        residual=residual, y=y, batch=g.batch, h=w.input[0], w=w.input[1], c=g.channels, oh=height, ow=width,
        oc=g.outputs, pad_top=w.begin[0], pad_left=w.begin[1], zeros=c.memory.zeros(4 * g.channels), block=block,
        columns=pieces.WINOGRAD_COLUMNS, **activation_fields(activation),
    )  # fmt: skip


def _padded(c: Compiler, g: Convolution) -> tuple[Place, int, int]:
    """The input channels last within its padding, and its height and width."""
    w = g.window
    height, width = (n + b + e for n, b, e in zip(w.input, w.begin, w.end, strict=True))
    x = c.temporary(4 * g.batch * height * width * g.channels)
    c.emit(
        "nchw_to_nhwc", units=g.batch * height, grain=grain(height, height * width * 8), x=c.input(0), y=x,
        batch=g.batch, c=g.channels, h=w.input[0], w=w.input[1], pad_top=w.begin[0], pad_left=w.begin[1],
        oh=height, ow=width,
    )  # fmt: skip
    return x, height, width


def _depthwise(c: Compiler, g: Convolution, bias: Place, residual: Place, activation: Activation) -> None:
    w, taps = g.window, prod(g.window.kernel)
    nbytes = pieces.packed_size(taps, g.channels)
    blocks = -(-g.channels // MIN_LANES)
    tensor = c.tensor(1)
    if tensor is None:
        packed: Place = c.temporary(nbytes)
        c.emit("pack_depthwise", units=blocks, grain=grain(blocks, g.channels * taps * MOVED), w=c.input(1),
               packed=packed, channels=g.channels, taps=taps)  # fmt: skip
    else:

        def pack(raw: int, address: int) -> None:
            c.memory.engine.call("pack_depthwise", units=blocks, w=raw, packed=address, channels=g.channels, taps=taps)

        packed = c.memory.packed(tensor, "depthwise", nbytes, pack)
    x, y = c.input(0, LAST), c.output(0, LAST)
    units = pieces.spans(g.batch * w.output[0], w.output[1])
    c.emit(
        "depthwise", units=units, grain=g.grain(units), x=x, packed=packed, bias=bias, y=y, batch=g.batch,
        h=w.input[0], w=w.input[1], c=g.channels, oh=w.output[0], ow=w.output[1], kh=w.kernel[0], kw=w.kernel[1],
        stride_h=w.strides[0], stride_w=w.strides[1], pad_top=w.begin[0], pad_left=w.begin[1],
        dilation_h=w.dilations[0], dilation_w=w.dilations[1], zeros=c.memory.zeros(4 * w.input[1] * g.channels),
        **activation_fields(NO_ACTIVATION if residual else activation),
    )  # fmt: skip
    if residual:
        add_call(c, y, residual, y, g.pixels * g.channels, activation)
