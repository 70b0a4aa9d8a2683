"""Quantising and dequantising at once: what lies between them is not needed."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from onnxlet.graph.ir import Node
from onnxlet.providers.base import Segment, Step

from ..compiler import Compiler
from ..layouts import axis_order, size_of
from .common import TYPE_CODES, normal_axis, present, shape_of
from .elementwise import GRAIN, kept_layout
from .registry import Emit, lower

OWN = "ai.onnxlet"


def joined_rounding(segment: Segment) -> Segment:
    """The segment with each QuantizeLinear that only DequantizeLinear reads, with the same zero point, put into these.

    Models with quantised activations are full of such pairs, and they are written out so for QLinear operators.
    """
    readers: dict[str, list[Step]] = {}
    for step in segment.steps:
        for name in set(step.node.inputs):
            readers.setdefault(name, []).append(step)
    joined: dict[int, Step] = {}
    dropped: set[int] = set()
    for step in segment.steps:
        if step.node.op_type != "QuantizeLinear" or step.node.outputs[0] in segment.outputs:
            continue
        following = readers.get(step.node.outputs[0], [])
        if following and all(_match(step, f) for f in following):
            dropped.add(id(step))
            joined.update((id(f), _join(step, f)) for f in following)
    steps = [joined.get(id(s), s) for s in segment.steps if id(s) not in dropped]
    return replace(segment, steps=steps) if dropped else segment


def _match(q: Step, d: Step) -> bool:
    """Whether `d` dequantises, with the same zero point, what `q` quantises."""
    if d.node.op_type != "DequantizeLinear" or q.node.outputs[0] in d.node.inputs[1:] or not _same(q, d, 2):
        return False
    scales = shape_of(q, 1), shape_of(d, 1)
    return prod(scales[0]) == prod(scales[1]) == 1 or (
        scales[0] == scales[1] and q.attribute("axis", 1) == d.attribute("axis", 1)
    )


def _same(q: Step, d: Step, index: int) -> bool:
    if not present(q, index) or not present(d, index):
        return present(q, index) == present(d, index)
    if q.node.inputs[index] == d.node.inputs[index]:
        return True
    one, other = q.constant(index), d.constant(index)
    return one is not None and other is not None and one.dtype == other.dtype and np.array_equal(one, other)


def _join(q: Step, d: Step) -> Step:
    """x, its scale, the zero point, the scale of the result."""
    zero = q.node.inputs[2] if present(q, 2) else ""
    inputs = [*q.node.inputs[:2], zero, d.node.inputs[1]]
    types = [*q.inputs[:2], q.inputs[2] if zero else None, d.inputs[1]]
    small = q.outputs[0]
    assert small is not None
    attributes = {"axis": q.attribute("axis", 1), "type": TYPE_CODES[small.dtype]}  # type: ignore[index]
    node = Node("FakeQuantize", inputs, d.node.outputs, attributes, OWN, 1, d.node.label)
    return Step(node, types, d.outputs, {**q.constants, **d.constants})


@lower("FakeQuantize", domain=OWN)
def fake_quantize(step: Step) -> Emit:
    """A step that `joined_rounding` made, of two that have kernels."""
    shape, channels = shape_of(step, 0), prod(shape_of(step, 1))
    axis = normal_axis(step.attribute("axis"), len(shape)) if channels > 1 and len(shape) > 1 else 0

    def emit(c: Compiler) -> None:
        layout = kept_layout(c, 0)
        order = axis_order(len(shape), layout)
        inner = size_of(shape) if channels == 1 else prod(shape[a] for a in order[order.index(axis) + 1 :])
        x, y = c.input(0, layout), c.output(0, layout, over=[0])
        c.emit(
            "fake_quantize", units=size_of(shape), grain=GRAIN, type=step.attribute("type"), x=x, scale=c.input(1),
            zero=c.input(2), y_scale=c.input(3), y=y, axis=channels, inner=inner,
        )  # fmt: skip

    return emit
