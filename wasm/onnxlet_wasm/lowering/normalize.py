"""Softmax and the normalisations."""

from __future__ import annotations

from math import prod

import numpy as np

from onnxlet.providers.base import Step

from ..compiler import Compiler, Place
from ..engine import f32
from ..layouts import LAST, PLAIN, axis_order, same_in_both, size_of
from .common import (
    MOVED,
    grain,
    need_constant,
    need_float32,
    need_single_output,
    normal_axis,
    present,
    shape_of,
)
from .elementwise import kept_layout
from .registry import Emit, Refused, lower

EXPENSIVE = 8
"""Multiply-adds that a normalised element is worth."""


@lower("Softmax", "LogSoftmax")
def softmax(step: Step) -> Emit:
    """Along one axis; before opset 13 over all axes from `axis` on."""
    need_float32(step, 0)
    shape = shape_of(step, 0)
    flattens = step.node.version < 13
    axis = normal_axis(step.attribute("axis", 1 if flattens else -1), len(shape))
    log = int(step.node.op_type == "LogSoftmax")
    if not shape:
        raise Refused("Softmax of a scalar has no kernel")

    def emit(c: Compiler) -> None:
        layout = PLAIN if flattens else kept_layout(c, 0)
        order = axis_order(len(shape), layout)
        position = order.index(axis)
        inner = 1 if flattens else prod(shape[a] for a in order[position + 1 :])
        length = prod(shape[axis:]) if flattens else shape[axis]
        x, y = c.input(0, layout), c.output(0, layout, over=[0])
        lines = size_of(shape) // max(1, length)
        c.emit("softmax", units=lines, grain=grain(lines, size_of(shape) * EXPENSIVE), x=x, y=y, axis=length,
               inner=inner, log=log)  # fmt: skip

    return emit


def _normalized_size(step: Step, default_axis: int = -1) -> tuple[int, int]:
    """Rows, and elements of a row, of a normalisation over all axes from `axis` on."""
    shape = shape_of(step, 0)
    axis = normal_axis(step.attribute("axis", default_axis), len(shape))
    return prod(shape[:axis]), prod(shape[axis:])


def _need_rows(step: Step, n: int, *indices: int) -> None:
    """Refuse scales and biases that are not one value per element of a row."""
    for i in indices:
        if present(step, i) and prod(shape_of(step, i)) != n:
            raise Refused("a broadcast scale or bias has no kernel")


@lower("LayerNormalization")
def layer_normalization(step: Step) -> Emit:
    need_float32(step)
    rows, n = _normalized_size(step)
    _need_rows(step, n, 1, 2)
    epsilon = float(step.attribute("epsilon", 1e-5))

    def emit(c: Compiler) -> None:
        _layer_norm(c, c.input(0), 0, 0, rows, n, epsilon, c.input(1), c.input(2))

    return emit


def _layer_norm(
    c: Compiler, x: Place, residual: Place, total: Place, rows: int, n: int, epsilon: float, scale: Place, bias: Place
) -> None:
    mean, inverse = (c.output(i) if c.wanted(i) else 0 for i in (1, 2))
    y = c.output(0, over=[] if residual else [0])
    c.emit(
        "layer_norm", units=rows, grain=grain(rows, rows * n * EXPENSIVE), x=x, residual=residual, total=total,
        scale=scale, bias=bias, y=y, n=n, epsilon=f32(epsilon), mean=mean, inverse=inverse,
    )  # fmt: skip


def _rms_norm(
    c: Compiler, x: Place, residual: Place, total: Place, rows: int, n: int, epsilon: float, scale: Place
) -> None:
    y = c.output(0, over=[] if residual else [0])
    c.emit("rms_norm", units=rows, grain=grain(rows, rows * n * EXPENSIVE), x=x, residual=residual, total=total,
           scale=scale, y=y, n=n, epsilon=f32(epsilon))  # fmt: skip


@lower("RMSNormalization", "SimplifiedLayerNormalization")
@lower("SimplifiedLayerNormalization", domain="com.microsoft")
def rms_normalization(step: Step) -> Emit:
    need_float32(step)
    need_single_output(step)
    rows, n = _normalized_size(step)
    _need_rows(step, n, 1)
    epsilon = float(step.attribute("epsilon", 1e-5))
    return lambda c: _rms_norm(c, c.input(0), 0, 0, rows, n, epsilon, c.input(1))


@lower("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", domain="com.microsoft")
def skip_layer_normalization(step: Step) -> Emit:
    """input, skip, gamma, beta (layer norm only), bias: the norm of input + bias + skip; output 3 is that sum."""
    need_float32(step)
    simplified = step.node.op_type.startswith("SkipSimplified")
    shape = shape_of(step, 0)
    if shape_of(step, 1) != shape:
        raise Refused("a broadcast skip has no kernel")
    n = shape[-1]
    rows = size_of(shape) // max(1, n)
    bias_index = 3 if simplified else 4
    if present(step, bias_index):
        raise Refused("a bias of the skip has no kernel")
    if simplified and any(step.node.outputs[1:3]):
        raise Refused("mean and variance have no kernel")
    _need_rows(step, n, 2, *(() if simplified else (3,)))
    epsilon = float(step.attribute("epsilon", 1e-12))

    def emit(c: Compiler) -> None:
        x, skip = c.input(0), c.input(1)
        total = c.output(3) if c.wanted(3) else c.temporary(4 * rows * n)
        if simplified:
            _rms_norm(c, x, skip, total, rows, n, epsilon, c.input(2))
        else:
            _layer_norm(c, x, skip, total, rows, n, epsilon, c.input(2), c.input(3))

    return emit


@lower("InstanceNormalization")
def instance_normalization(step: Step) -> Emit:
    need_float32(step)
    return _group_norm(step, shape_of(step, 0)[1], float(step.attribute("epsilon", 1e-5)))


@lower("GroupNormalization")
def group_normalization(step: Step) -> Emit:
    """Scale and bias per channel; per group in opset 18."""
    need_float32(step)
    groups, channels = step.attribute("num_groups"), shape_of(step, 0)[1]
    if groups is None or channels % groups:
        raise Refused("GroupNormalization with a ragged group has no kernel")
    if any(shape_of(step, i) != (channels,) for i in (1, 2)):
        raise Refused("a scale per group has no kernel")
    return _group_norm(step, groups, float(step.attribute("epsilon", 1e-5)))


def _group_norm(step: Step, groups: int, epsilon: float) -> Emit:
    shape = shape_of(step, 0)
    batch, channels, spatial = shape[0], shape[1], prod(shape[2:])
    if not size_of(shape):
        raise Refused("an empty tensor has no kernel here")

    def emit(c: Compiler) -> None:
        x, y = c.input(0), c.output(0, over=[0])
        units = batch * groups
        c.emit(
            "group_norm", units=units, grain=grain(units, size_of(shape) * EXPENSIVE), x=x, scale=c.input(1),
            bias=c.input(2), y=y, channels=channels, groups=groups, spatial=spatial, epsilon=f32(epsilon),
        )  # fmt: skip

    return emit


@lower("BatchNormalization")
def batch_normalization(step: Step) -> Emit:
    """At inference, with constant statistics, which are folded into a factor and an offset per channel."""
    need_float32(step)
    need_single_output(step)
    if step.attribute("training_mode", 0) or step.attribute("spatial", 1) != 1:
        raise Refused("BatchNormalization in training has no kernel")
    shape = shape_of(step, 0)
    if len(shape) < 2:
        raise Refused("BatchNormalization without channels has no kernel")
    scale, bias, mean, variance = (need_constant(step, i, "statistics") for i in (1, 2, 3, 4))
    epsilon = np.float32(step.attribute("epsilon", 1e-5))

    def factor() -> np.ndarray:
        return scale / np.sqrt(variance + epsilon)

    def emit(c: Compiler) -> None:
        names = c.step.node.inputs
        multiplier = c.computed(("batch norm factor", float(epsilon)), factor, names[1], names[4])
        offset = c.computed(("batch norm offset", float(epsilon)), lambda: bias - mean * factor(), *names[1:5])
        layout = kept_layout(c, 0)
        channels, inner = shape[1], prod(shape[2:])
        by_pixel = layout == LAST or same_in_both(shape) or inner == 1
        units = size_of(shape) // max(1, channels if by_pixel else inner)
        x, y = c.input(0, layout), c.output(0, layout, over=[0])
        c.emit(
            "scale_shift", units=units, grain=grain(units, size_of(shape) * MOVED), x=x, scale=multiplier, shift=offset,
            y=y, channels=channels, inner=1 if by_pixel else inner, activation=0, low=0, high=0,
        )  # fmt: skip

    return emit
