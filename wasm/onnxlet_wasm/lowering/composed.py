"""Operators made of others that have kernels."""

from __future__ import annotations

from math import prod

import numpy as np

from onnxlet.ops.shape import range_ as numbers
from onnxlet.providers.base import Step

from ..compiler import Compiler
from ..layouts import size_of
from .carried import to_type
from .common import (
    BOOL,
    F32,
    I32,
    I64,
    TYPE_CODES,
    axes_of,
    dtype_of,
    need_constant,
    need_float32,
    need_types,
    normal_axis,
    output_dtype,
    output_shape,
    present,
    text,
)
from .copies import copy_block, fill, need_copyable
from .elementwise import NUMBERS
from .expansion import Expansion, expand
from .registry import Emit, Refused, lower


def _axis(e: Expansion, name: str, default: int, rank: int) -> int:
    return normal_axis(int(e.step.attribute(name, default)), rank)


@expand("OneHot")
def one_hot(e: Expansion) -> None:
    """Each index is compared with all classes."""
    indices, step = e.input(0), e.step
    target = output_shape(step)
    need_types(step, (F32, I32, I64), 0)
    need_copyable(step, 2)
    axis = _axis(e, "axis", -1, len(target))
    size, dtype = target[axis], dtype_of(step, 2)
    wanted = e.reshape(to_type(e, indices, I64), [*target[:axis], 1, *target[axis + 1 :]])
    if step.node.version >= 11:
        shifted = e.binary("Add", wanted, e.literal(size, I64), dtype=I64)
        negative = e.binary("Less", wanted, e.literal(0, I64), dtype=BOOL)
        wanted = e.add("Where", [negative, shifted, wanted], dtype=I64, shape=e.shape(wanted))
    classes = e.literal(np.arange(size).reshape(-1, *(1,) * (len(target) - 1 - axis)), I64)
    hit = e.binary("Equal", wanted, classes, dtype=BOOL)
    off, on = (
        e.add("Slice", [e.input(2), e.literal([i], I64), e.literal([i + 1], I64)], (1,), dtype=dtype) for i in (0, 1)
    )
    e.add("Where", [hit, on, off], target, dtype=dtype, output=e.output())


@expand("Hardmax")
def hardmax(e: Expansion) -> None:
    x, shape, step = e.input(0), e.shape(e.input(0)), e.step
    need_float32(step)
    flattens = step.node.version < 13
    axis = _axis(e, "axis", 1 if flattens else -1, len(shape))
    if flattens:
        x, axis = e.reshape(x, (prod(shape[:axis]), prod(shape[axis:]))), 1
    lines = list(e.shape(x))
    size, lines[axis] = lines[axis], 1
    first = e.add("ArgMax", [x], lines, dtype=I64, axis=axis, keepdims=1)
    classes = e.literal(np.arange(size).reshape(-1, *(1,) * (len(lines) - 1 - axis)), I64)
    hit = e.binary("Equal", first, classes, dtype=BOOL)
    e.reshape(to_type(e, hit, F32), shape, e.output())


def _reduced(e: Expansion, operator: str, x: str, axes: list[int]) -> str:
    shape = [1 if i in axes else d for i, d in enumerate(e.shape(x))]
    return e.add(operator, [x, e.literal(axes, I64)], shape, dtype=e.dtype(x), keepdims=1)


@expand("LpNormalization")
def lp_normalization(e: Expansion) -> None:
    x = e.input(0)
    need_float32(e.step)
    operator = {1: "ReduceL1", 2: "ReduceL2"}.get(int(e.step.attribute("p", 2)))
    if operator is None:
        raise Refused("this norm has no kernel")
    norm = _reduced(e, operator, x, [_axis(e, "axis", -1, len(e.shape(x)))])
    none = e.binary("Equal", norm, e.literal(0.0), dtype=BOOL)
    e.binary("Div", x, e.add("Where", [none, e.literal(1.0), norm], e.shape(norm)), e.output())


@expand("GlobalLpPool")
def global_lp_pool(e: Expansion) -> None:
    x, p = e.input(0), float(e.step.attribute("p", 2))
    need_float32(e.step)
    axes = list(range(2, len(e.shape(x))))
    operator = {1.0: "ReduceL1", 2.0: "ReduceL2"}.get(p)
    if operator is None or not axes:
        raise Refused("this norm has no kernel")
    e.reshape(_reduced(e, operator, x, axes), output_shape(e.step), e.output())


@expand("CausalConvWithState")
def causal_conv_with_state(e: Expansion) -> None:
    """Every channel by itself, over what was and what is new; the end of that is the next state."""
    step, x = e.step, e.input(0)
    need_float32(step)
    (batch, channels, length), taps = e.shape(x), e.shape(e.input(1))[2]
    activation = text(step.attribute("activation", "none"))
    if activation not in ("none", "silu", "swish") or taps < 2:
        raise Refused(f"activation {activation} has no kernel here")
    wanted = {1: (channels, 1, taps), 2: (channels,), 3: (batch, channels, taps - 1)}
    if any(e.shape(e.input(i)) != shape for i, shape in wanted.items() if present(step, i)):
        raise Refused("weights, bias or state of this shape have no kernel")
    past = e.input(3) if present(step, 3) else e.literal(np.zeros((batch, channels, taps - 1)))
    line = e.add("Concat", [past, x], (batch, channels, taps - 1 + length), axis=2)
    inputs = [line, e.input(1), e.input(2)] if present(step, 2) else [line, e.input(1)]
    plain = activation == "none"
    y = e.add("Conv", inputs, (batch, channels, length), output=e.output() if plain else "", group=channels)
    if not plain:
        e.add("Swish", [y], output=e.output())
    if e.output(1):
        bounds = [e.literal([n], I64) for n in (length, length + taps - 1, 2)]
        e.add("Slice", [line, *bounds], (batch, channels, taps - 1), output=e.output(1))


@expand("MeanVarianceNormalization")
def mean_variance_normalization(e: Expansion) -> None:
    x = e.input(0)
    need_float32(e.step)
    axes = axes_of(e.step, len(e.shape(x))) or [normal_axis(a, len(e.shape(x))) for a in (0, 2, 3)]
    centred = e.binary("Sub", x, _reduced(e, "ReduceMean", x, axes))
    deviation = e.add("Sqrt", [_reduced(e, "ReduceMean", e.binary("Mul", centred, centred), axes)])
    e.binary("Div", centred, e.binary("Add", deviation, e.literal(1e-9)), e.output())


@expand("Shrink")
def shrink(e: Expansion) -> None:
    x = e.input(0)
    need_float32(e.step)
    bias, edge = float(e.step.attribute("bias", 0.0)), float(e.step.attribute("lambd", 0.5))
    above = e.binary("Greater", x, e.literal(edge), dtype=BOOL)
    below = e.binary("Less", x, e.literal(-edge), dtype=BOOL)
    upper = e.add("Where", [above, e.binary("Sub", x, e.literal(bias)), e.literal(0.0)], e.shape(x))
    e.add("Where", [below, e.binary("Add", x, e.literal(bias)), upper], e.shape(x), output=e.output())


@expand("SwiGLU")
def swiglu(e: Expansion) -> None:
    need_float32(e.step)
    gate = e.add("Swish", [e.input(0)], alpha=float(e.step.attribute("alpha", 1.0)))
    e.binary("Mul", gate, e.input(1), e.output())


@expand("LRN")
def lrn(e: Expansion) -> None:
    """x / (bias + alpha * mean over neighbouring channels of x²) ^ beta."""
    x, step = e.input(0), e.step
    need_float32(step)
    shape, size = e.shape(x), int(step.attribute("size"))
    batch, channels, pixels = shape[0], shape[1], prod(shape[2:])
    before = (size - 1) // 2
    planes = e.reshape(e.binary("Mul", x, x), (batch, 1, channels, pixels))
    mean = e.add("AveragePool", [planes], kernel_shape=[size, 1], pads=[before, 0, size - 1 - before, 0],
                 strides=[1, 1], count_include_pad=1)  # fmt: skip
    scaled = e.binary("Mul", mean, e.literal(float(step.attribute("alpha", 1e-4))))
    base = e.binary("Add", scaled, e.literal(float(step.attribute("bias", 1.0))))
    power = e.binary("Pow", base, e.literal(float(step.attribute("beta", 0.75))))
    e.binary("Div", x, e.reshape(power, shape), e.output())


@expand("CenterCropPad")
def center_crop_pad(e: Expansion) -> None:
    x, dtype, shape, target = e.input(0), e.dtype(e.input(0)), e.shape(e.input(0)), output_shape(e.step)
    need_copyable(e.step, 0)
    cut = [(max(0, have - want) // 2, min(have, want)) for have, want in zip(shape, target, strict=True)]
    kept = [length for _, length in cut]
    ends = [first + length for first, length in cut]
    inside = e.add("Slice", [x, e.literal([first for first, _ in cut], I64), e.literal(ends, I64)], kept, dtype=dtype)
    before = [(want - have) // 2 for have, want in zip(kept, target, strict=True)]
    after = [want - have - first for have, want, first in zip(kept, target, before, strict=True)]
    e.add("Pad", [inside, e.literal([*before, *after], I64)], target, dtype=dtype, output=e.output())


@expand("ReverseSequence")
def reverse_sequence(e: Expansion) -> None:
    """Element t of a sequence is element length - 1 - t, from its length on t itself."""
    x, step, dtype = e.input(0), e.step, e.dtype(e.input(0))
    need_copyable(step, 0)
    need_types(step, (I64,), 1)
    shape, time_axis = list(e.shape(x)), _axis(e, "time_axis", 0, 2)
    swapped = [1, 0, *range(2, len(shape))]
    by_sample = x if time_axis == 1 else e.transpose(x, swapped)
    batch, time = e.shape(by_sample)[:2]
    length = e.reshape(e.input(1), (batch, 1, 1))
    at = e.literal(np.arange(time).reshape(1, time, 1), I64)
    back = e.binary("Sub", e.binary("Sub", length, e.literal(1, I64), dtype=I64), at, dtype=I64)
    inside = e.binary("Less", at, length, dtype=BOOL)
    source = e.add("Where", [inside, back, at], (batch, time, 1), dtype=I64)
    last = e.output() if time_axis == 1 else ""
    y = e.add("GatherND", [by_sample, source], e.shape(by_sample), dtype=dtype, output=last, batch_dims=1)
    if time_axis == 0:
        e.transpose(y, swapped, e.output())


@expand("MaxUnpool")
def max_unpool(e: Expansion) -> None:
    """Indices count in the shape that kernel, strides and pads give; another output shape cuts or extends it."""
    x, step, dtype = e.input(0), e.step, e.dtype(e.input(0))
    need_copyable(step, 0)
    shape, target, kernel = e.shape(x), output_shape(step), step.attribute("kernel_shape")
    rank = len(kernel)
    strides, pads = step.attribute("strides") or [1] * rank, step.attribute("pads") or [0] * 2 * rank
    sizes = [
        (n - 1) * s + k - pads[i] - pads[i + rank]
        for i, (n, s, k) in enumerate(zip(shape[2:], strides, kernel, strict=True))
    ]
    whole = (*shape[:2], *sizes)
    zeros = e.add("ConstantOfShape", [e.literal([prod(whole)], I64)], (prod(whole),), dtype=dtype,
                  value=np.zeros(1, dtype))  # fmt: skip
    flat = (prod(shape),)
    indices, values = e.reshape(e.input(1), flat), e.reshape(x, flat)
    same = whole == target
    y = e.add("ScatterElements", [zeros, indices, values], e.shape(zeros), dtype=dtype, axis=0)
    y = e.reshape(y, whole, e.output() if same else "")
    if not same:
        more = [0, 0, *(want - have for want, have in zip(target[2:], sizes, strict=True))]
        e.add("Pad", [y, e.literal([0] * len(more) + more, I64)], target, dtype=dtype, output=e.output())


@expand("AffineGrid")
def affine_grid(e: Expansion) -> None:
    """The positions of all elements, which are known, times each matrix."""
    theta, step = e.input(0), e.step
    need_float32(step, 0)
    sizes = [int(n) for n in need_constant(step, 1, "size")][2:]
    corners, rank, batch = bool(step.attribute("align_corners", 0)), len(sizes), e.shape(theta)[0]

    def points() -> np.ndarray:
        lines = []
        for n in sizes:
            line = np.linspace(-1, 1, n) if corners and n > 1 else (np.arange(n) * 2 + 1) / n - 1
            lines.append(np.zeros(n) if corners and n == 1 else line)
        mesh = np.meshgrid(*lines, indexing="ij")
        return np.stack([*mesh[::-1], np.ones(sizes)], axis=-1).reshape(-1, rank + 1).astype(F32)

    place = e.derived(("grid points", *sizes, corners), [], (prod(sizes), rank + 1), points)
    grid = e.add("FusedMatMul", [place, theta], (batch, prod(sizes), rank), domain="com.microsoft", version=1, transB=1)
    e.reshape(grid, output_shape(step), e.output())


def _is_stacked_inside(step: Step) -> bool:
    return bool(step.attribute("transBatchA", 0) or step.attribute("transBatchB", 0))


@expand("FusedMatMul", domain="com.microsoft", when=_is_stacked_inside)
def product_of_inner_stacks(e: Expansion) -> None:
    """Operands whose rows stand before the stack."""
    inputs = []
    for i, name in enumerate(("transBatchA", "transBatchB")):
        x = e.input(i)
        rank = len(e.shape(x))
        inputs.append(e.transpose(x, [*range(1, rank - 1), 0, rank - 1]) if e.step.attribute(name, 0) else x)
    kept = {k: v for k, v in e.step.node.attributes.items() if not k.startswith("transBatch")}
    e.add("FusedMatMul", inputs, output_shape(e.step), dtype=e.dtype(inputs[0]), output=e.output(),
          domain="com.microsoft", version=1, **kept)  # fmt: skip


# What has no operand, or one of which only the shape counts


@lower("ConstantOfShape")
def constant_of_shape(step: Step) -> Emit:
    """Where the result is too large to be held as a constant of the plan."""
    value, dtype = step.attribute("value"), output_dtype(step)
    if dtype.hasobject or dtype.itemsize > 8:
        raise Refused(f"{dtype} has no kernel here")
    filler = np.zeros((), dtype) if value is None else np.asarray(value).reshape(()).astype(dtype)
    return lambda c: fill(c, c.output(), size_of(output_shape(step)), filler)


@lower("Range")
def range_(step: Step) -> Emit:
    """Where the result is too large to be held as a constant of the plan: computed once per session."""
    start, limit, delta = (need_constant(step, i, "bounds") for i in range(3))
    if start.dtype not in NUMBERS:
        raise Refused(f"{start.dtype} has no kernel here")
    key = ("range", start.dtype, *(v.tobytes() for v in (start, limit, delta)))
    return lambda c: c.share(c.computed(key, lambda: numbers(start, limit, delta)), 0)


@lower("EyeLike")
def eye_like(step: Step) -> Emit:
    dtype, (rows, columns), k = output_dtype(step), output_shape(step), int(step.attribute("k", 0))
    if dtype not in TYPE_CODES:
        raise Refused(f"{dtype} has no kernel here")

    def emit(c: Compiler) -> None:
        y = c.output()
        fill(c, y, rows * columns, np.zeros((), dtype))
        row, column = max(0, -k), max(0, k)
        length = min(rows - row, columns - column)
        if length > 0:
            place = y + (row * columns + column) * dtype.itemsize
            copy_block(c, c.data(np.ones(1, dtype)), [0], place, [columns + 1], [length], dtype.itemsize)

    return emit


@lower("BitCast")
def bit_cast(step: Step) -> Emit:
    """The same bytes."""
    need_copyable(step, 0)
    if dtype_of(step, 0).itemsize != output_dtype(step).itemsize:
        raise Refused("BitCast between sizes has no kernel")

    def emit(c: Compiler) -> None:
        c.share(c.input(0), 0)

    return emit
