"""What random graphs are made of: each function adds a node or a pattern of nodes to a builder.

The patterns are those that exporters write and the rewrites look for, among others that only resemble them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import TensorProto

from onnxlet.model.dtypes import dtype_of, element_type_of

from .graphs import BOOL, F32, FLOATS, I64, INTEGERS, Builder, Unfit, broadcast

Template = Callable[[Builder], Any]
TEMPLATES: list[Template] = []

MICROSOFT = "com.microsoft"
I8, U8, I32 = np.dtype(np.int8), np.dtype(np.uint8), np.dtype(np.int32)


def template(weight: int = 1) -> Callable[[Template], Template]:
    def register(function: Template) -> Template:
        TEMPLATES.extend([function] * weight)
        return function

    return register


# One operand ---------------------------------------------------------------------------------------------------------

SMOOTH: dict[str, dict[str, Any]] = {
    "Relu": {}, "Sigmoid": {}, "Tanh": {}, "Erf": {}, "Exp": {}, "Neg": {}, "Abs": {}, "Identity": {}, "Sin": {},
    "Cos": {}, "Softplus": {}, "Softsign": {}, "HardSwish": {}, "Mish": {}, "Selu": {}, "Elu": {"alpha": 0.7},
    "Celu": {"alpha": 0.7}, "LeakyRelu": {"alpha": 0.2}, "HardSigmoid": {"alpha": 0.3, "beta": 0.4}, "Gelu": {},
    "Floor": {}, "Ceil": {}, "Round": {}, "Sign": {}, "ThresholdedRelu": {"alpha": 0.3}, "Shrink": {"lambd": 0.4},
    "Atan": {}, "Sinh": {}, "Asinh": {}, "Swish": {"alpha": 1.3}, "IsNaN": {}, "IsInf": {},
}  # fmt: skip


@template(6)
def unary(b: Builder) -> str:
    operator = b.rng.choice(list(SMOOTH))
    attributes = dict(SMOOTH[operator])
    if operator == "Gelu" and b.chance(0.5):
        attributes["approximate"] = "tanh"
    return b.add(operator, [b.floats()], **attributes)


@template(2)
def on_positive(b: Builder) -> str:
    x = b.floats()
    base = b.add("Add", [b.add("Abs", [x]), b.constant(0.1, b.values[x].dtype)])
    return b.add(b.rng.choice(["Sqrt", "Log", "Reciprocal"]), [base])


@template()
def on_others(b: Builder) -> str:
    operator = b.rng.choice(["Abs", "Neg", "Sign", "Identity", "BitwiseNot", "Relu"])
    return b.add(operator, [b.pick(lambda v: v.dtype in INTEGERS, lambda: b.fresh(b.rng.choice(INTEGERS), b.shape()))])


@template(3)
def cast(b: Builder) -> str:
    x = b.pick(lambda v: v.dtype.kind in "fiub" or v.dtype == dtype_of(16))
    kinds = [*FLOATS, F32, F32, F32, BOOL, *INTEGERS]
    if b.opset >= 19:
        kinds += [dtype_of(n) for n in (17, 18, 19, 20)]
    if b.opset >= 21:
        kinds += [dtype_of(TensorProto.INT4), dtype_of(TensorProto.UINT4)]
    to = b.rng.choice(kinds)
    if b.values[x].dtype.kind == "f" and to in INTEGERS:  # out of range means different things
        x = b.add("Clip", [x, b.constant(0, b.values[x].dtype), b.constant(7, b.values[x].dtype)])
        if np.isnan(b.values[x].astype(np.float64)).any():
            raise Unfit
    narrowed = b.add("Cast", [x], to=element_type_of(to))
    return narrowed if to in (*FLOATS, BOOL, *INTEGERS) else b.add("Cast", [narrowed], to=TensorProto.FLOAT)


@template()
def clip(b: Builder) -> str:
    x = b.floats()
    dtype = b.values[x].dtype
    if b.opset < 11:
        return b.add("Clip", [x], min=-0.5, max=b.rng.choice((None, 1.0)))
    low, high = b.rng.choice([(-0.5, 0.5), (0, 6), (None, 1), (0, None), (1, -1)])
    bounds = ["" if v is None else b.setting(v, dtype) for v in (low, high)]
    return b.add("Clip", [x, *bounds])


# Two operands --------------------------------------------------------------------------------------------------------


@template(8)
def arithmetic(b: Builder) -> str:
    x = b.floats()
    operator = b.rng.choice(["Add", "Add", "Sub", "Mul", "Mul", "Div", "Min", "Max", "Pow", "PRelu", "Mean", "Sum"])
    if operator == "Div":
        return b.add("Div", [x, b.fresh(b.values[x].dtype, _part(b, x), 0.5, 2)])
    if operator == "Pow":
        return b.add("Pow", [x, b.constant(b.rng.choice((2, 2, 3, 1)), b.values[x].dtype)])
    if operator == "PRelu":
        return b.add("PRelu", [x, b.fresh(b.values[x].dtype, b.values[x].shape[1:])])
    pair = [x, b.partner(x)]
    if operator in ("Min", "Max", "Mean", "Sum") and b.chance(0.3):
        pair.append(b.partner(x))
    elif b.chance(0.5):
        pair.reverse()
    return b.add(operator, pair)


def _part(b: Builder, x: str) -> tuple[int, ...]:
    """A shape that broadcasts to that of `x`."""
    shape = b.values[x].shape
    return tuple(1 if b.chance(0.3) else d for d in shape)[b.rng.randrange(len(shape) + 1) :]


@template(2)
def integer_arithmetic(b: Builder) -> str:
    kinds = INTEGERS if b.chance(0.3) else (I32, I64)
    x = b.pick(lambda v: v.dtype in kinds, lambda: b.fresh(b.rng.choice(kinds), b.shape()))
    operator = b.rng.choice(["Add", "Sub", "Mul", "Div", "Mod", "Min", "Max", "BitwiseAnd", "BitwiseXor", "Equal"])
    if operator in ("Div", "Mod"):
        divisor = np.where(b.array(BOOL, _part(b, x)), 3, 2).astype(b.values[x].dtype)
        return b.add(operator, [x, b.constant(divisor)])
    return b.add(operator, [x, b.partner(x)])


@template(2)
def compare(b: Builder) -> str:
    x = b.pick(lambda v: v.dtype in (*FLOATS, *INTEGERS))
    return b.add(b.rng.choice(["Less", "Greater", "Equal", "LessOrEqual", "GreaterOrEqual"]), [x, b.partner(x)])


@template()
def logic(b: Builder) -> str:
    x = b.pick(lambda v: v.dtype == BOOL, lambda: b.fresh(BOOL, b.shape()))
    return b.add("Not", [x]) if b.chance(0.3) else b.add(b.rng.choice(["And", "Or", "Xor"]), [x, b.partner(x)])


@template(2)
def where(b: Builder) -> str:
    x = b.pick(lambda v: v.dtype in (*FLOATS, *INTEGERS))
    shape = b.values[x].shape
    c = b.pick(lambda v: v.dtype == BOOL and broadcast(v.shape, shape) is not None, lambda: b.fresh(BOOL, _part(b, x)))
    return b.add("Where", [c, x, b.partner(x)])


# Products ------------------------------------------------------------------------------------------------------------


@template(5)
def matmul(b: Builder) -> str:
    x = b.floats(1, 5)
    a = b.values[x]
    columns = b.rng.choice((1, 2, 5, 8, 16, 33))
    shape = (*(a.shape[:-2] if b.chance(0.3) else ()), a.shape[-1], columns)
    y = b.add("MatMul", [x, b.fresh(a.dtype, shape, -0.5, 0.5)])
    if b.chance(0.6):
        y = b.add("Add", [y, b.fresh(a.dtype, (columns,))][:: b.rng.choice((1, -1))])
    return activation(b, y) if b.chance(0.4) else y


@template(2)
def gemm(b: Builder) -> str:
    x = b.floats(2, 2)
    a = b.values[x]
    columns, left, right = b.rng.choice((1, 3, 8, 17)), b.rng.randrange(2), b.rng.randrange(2)
    depth, rows = a.shape if left else a.shape[::-1]
    w = b.fresh(a.dtype, (columns, depth) if right else (depth, columns), -0.5, 0.5)
    inputs = [x, w]
    if b.opset < 11 or b.chance(0.7):
        inputs.append(b.fresh(a.dtype, b.rng.choice([(columns,), (1, columns), (rows, 1), (), (rows, columns)])))
    scales = {"alpha": b.rng.choice((1.0, 0.5)), "beta": b.rng.choice((1.0, 2.0))}
    y = b.add("Gemm", inputs, transA=left, transB=right, **scales)
    return activation(b, y) if b.chance(0.4) else y


@template()
def einsum(b: Builder) -> str:
    x = b.floats(2, 3)
    a = b.values[x]
    letters = "abc"[: a.ndim]
    equation, shape = b.rng.choice(
        [
            (f"{letters},{letters[-1]}d->{letters[:-1]}d", (a.shape[-1], 4)),
            (f"{letters}->{letters[::-1]}", None),
            (f"{letters},{letters}->{letters[0]}", a.shape),
            (f"...{letters[-1]},{letters[-1]}->...", a.shape[-1:]),
        ]
    )
    return b.add("Einsum", [x, *([] if shape is None else [b.fresh(a.dtype, shape)])], equation=equation)


def activation(b: Builder, x: str) -> str:
    """An activation as an operator or as the nodes that exporters write for it."""
    dtype = b.values[x].dtype
    kind = b.rng.randrange(9)

    def number(value: float) -> str:
        return b.constant(value, dtype)

    if kind == 0:  # GELU
        erf = b.add("Erf", [b.add("Div", [x, number(math.sqrt(2))])])
        return b.add("Mul", [b.add("Mul", [x, b.add("Add", [erf, number(1)])]), number(0.5)])
    if kind == 1:  # its approximation
        cube = b.add("Mul", [b.add("Pow", [x, number(3)]), number(0.044715)])
        inner = b.add("Mul", [b.add("Add", [x, cube]), number(math.sqrt(2 / math.pi))])
        return b.add("Mul", [b.add("Mul", [x, number(0.5)]), b.add("Add", [b.add("Tanh", [inner]), number(1)])])
    if kind == 2:  # hard swish
        clipped = _clipped(b, b.add("Add", [x, number(3)]), 0, 6)
        return b.add("Div", [b.add("Mul", [x, clipped]), number(6)])
    if kind == 3:
        return b.add("Mul", [x, b.add("Sigmoid", [x])])
    if kind == 4:
        return b.add("Mul", [x, b.add("HardSigmoid", [x], alpha=1 / 6)])
    if kind == 5:
        return _clipped(b, x, 0, 6)
    return b.add(b.rng.choice(["Relu", "Sigmoid", "Tanh", "LeakyRelu", "HardSwish", "Gelu", "Elu", "Mish"]), [x])


def _clipped(b: Builder, x: str, low: float, high: float) -> str:
    if b.opset < 11:
        return b.add("Clip", [x], min=float(low), max=float(high))
    dtype = b.values[x].dtype
    return b.add("Clip", [x, b.constant(low, dtype), b.constant(high, dtype)])


@template(2)
def activated(b: Builder) -> str:
    return activation(b, b.floats())


# Norms and sums ------------------------------------------------------------------------------------------------------


def batch_norm(b: Builder, x: str) -> str:
    a = b.values[x]
    channels = (a.shape[1],)
    given = [b.fresh(a.dtype, channels, low, high) for low, high in ((0.5, 2), (-1, 1), (-1, 1), (0.5, 2))]
    return b.add("BatchNormalization", [x, *given], epsilon=b.rng.choice((1e-5, 1e-3)))


@template(4)
def norm(b: Builder) -> str:
    x = b.floats(2, 5)
    a = b.values[x]
    kind = b.rng.randrange(9)
    if kind == 0:
        return batch_norm(b, x)
    if kind == 1:
        return b.add("LRN", [x], size=3)
    if kind == 2:
        axis = b.rng.randrange(-a.ndim, a.ndim)
        scale = b.fresh(a.dtype, a.shape[axis:] if axis < 0 else a.shape[axis % a.ndim :])
        bias = [b.fresh(a.dtype, b.values[scale].shape)] if b.chance(0.5) else []
        return b.add("LayerNormalization", [x, scale, *bias], axis=axis)
    if kind == 3:
        return b.add("LpNormalization", [x], axis=b.rng.randrange(a.ndim), p=b.rng.choice((1, 2)))
    if kind == 4:
        scale = b.fresh(a.dtype, a.shape[-1:])
        return b.add("RMSNormalization", [x, scale])
    if kind == 5 and a.ndim > 2:
        given = [b.fresh(a.dtype, a.shape[1:2]) for _ in range(2)]
        return b.add("InstanceNormalization", [x, *given])
    if kind == 6 and a.ndim > 2 and a.shape[1] % 2 == 0 and b.opset >= 21:
        given = [b.fresh(a.dtype, a.shape[1:2]) for _ in range(2)]
        return b.add("GroupNormalization", [x, *given], num_groups=2)
    return layer_norm(b, x)


def layer_norm(b: Builder, x: str) -> str:
    """As exporters write it."""
    a = b.values[x]
    centred = b.add("Sub", [x, reduced(b, "ReduceMean", x, [-1])])
    square = b.add("Pow", [centred, b.constant(2, a.dtype)]) if b.chance(0.5) else b.add("Mul", [centred, centred])
    variance = b.add("Add", [reduced(b, "ReduceMean", square, [-1]), b.constant(b.rng.choice((1e-5, 1e-3)), a.dtype)])
    y = b.add("Div", [centred, b.add("Sqrt", [variance])])
    if b.chance(0.8):
        y = b.add("Mul", [y, b.fresh(a.dtype, a.shape[-1:])])
    return b.add("Add", [y, b.fresh(a.dtype, a.shape[-1:])]) if b.chance(0.8) else y


def reduced(b: Builder, operator: str, x: str, axes: list[int] | None, keepdims: int = 1) -> str:
    """A reduction, with its axes where this opset has them."""
    since = 13 if operator == "ReduceSum" else 18
    if b.opset < 11 and axes:
        axes = [a % b.values[x].ndim for a in axes]
    if b.opset >= since:
        return b.add(operator, [x, *([] if axes is None else [b.setting(axes)])], keepdims=keepdims)
    return b.add(operator, [x], axes=axes, keepdims=keepdims)


REDUCTIONS = ["ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2",
              "ReduceSumSquare", "ReduceLogSumExp"]  # fmt: skip


@template(4)
def reduction(b: Builder) -> str:
    x = b.floats(1, 5, (F32, I32, I64) if b.chance(0.2) else (F32,))
    rank = b.values[x].ndim
    axes = sorted(b.rng.sample(range(rank), b.rng.randint(1, rank)))
    if b.chance(0.3):
        axes = [a - rank for a in axes]
    return reduced(b, b.rng.choice(REDUCTIONS), x, None if b.chance(0.15) else axes, b.rng.randrange(2))


@template(2)
def extreme(b: Builder) -> str:
    x = b.floats(1, 4)
    axis = b.rng.randrange(b.values[x].ndim)
    if b.chance(0.5):
        return b.add(b.rng.choice(["ArgMax", "ArgMin"]), [x], axis=axis, keepdims=b.rng.randrange(2))
    k = b.rng.randint(0, min(3, b.values[x].shape[axis]))
    if b.opset < 10:
        return b.add("TopK", [x], outputs=2, axis=axis, k=k)
    return b.add("TopK", [x, b.setting([k])], outputs=2, axis=axis)


@template(3)
def softmax(b: Builder) -> str:
    x = b.floats(1, 4)
    axis = b.rng.randrange(b.values[x].ndim)
    if b.chance(0.7):
        return b.add(b.rng.choice(["Softmax", "Softmax", "LogSoftmax", "Hardmax"]), [x], axis=axis)
    e = b.add("Exp", [b.add("Sub", [x, reduced(b, "ReduceMax", x, [axis])])])
    return b.add("Div", [e, reduced(b, "ReduceSum", e, [axis])])


@template()
def cumulative(b: Builder) -> str:
    x = b.floats(1, 4)
    axis = b.setting(b.rng.randrange(b.values[x].ndim))
    return b.add("CumSum", [x, axis], exclusive=b.rng.randrange(2), reverse=b.rng.randrange(2))


# Moving --------------------------------------------------------------------------------------------------------------


def anything(b: Builder, least: int = 0, most: int = 5) -> str:
    return b.pick(lambda v: least <= v.ndim <= most and v.dtype.kind in "fiub", lambda: b.floats(max(least, 1), most))


@template(5)
def transpose(b: Builder) -> str:
    x = anything(b, 1)
    axes = list(range(b.values[x].ndim))
    b.rng.shuffle(axes)
    return b.add("Transpose", [x], perm=None if b.chance(0.2) else axes)


@template(5)
def reshape(b: Builder) -> str:
    x = anything(b)
    shape = b.values[x].shape
    if b.chance(0.15):
        return b.add("Flatten", [x], axis=b.rng.randint(0, len(shape)))
    target = list(shape)
    for _ in range(2):
        if len(target) > 1 and b.chance(0.5):
            i = b.rng.randrange(len(target) - 1)
            target[i : i + 2] = [target[i] * target[i + 1]]
        elif len(target) < 6:
            i = b.rng.randrange(len(target) + 1)
            even = i < len(target) and target[i] and target[i] % 2 == 0
            target[i : i + bool(even)] = [2, target[i] // 2] if even else [1]
    if target and b.chance(0.4) and 0 not in shape:
        target[b.rng.randrange(len(target))] = -1
    return b.add("Reshape", [x, b.setting(target)])


@template(3)
def reshape_by_shape(b: Builder) -> str:
    """The sub-graphs that exporters write for sizes that are not known."""
    x = b.floats(2, 4)
    shape = b.add("Shape", [x])
    first = b.add("Gather", [shape, b.constant(0)], axis=0)
    one = unsqueezed(b, first, [0])
    y = b.add("Reshape", [x, b.add("Concat", [one, b.constant([-1])], axis=0)])
    if b.chance(0.3):
        length = b.add("Gather", [shape, b.constant([b.rng.randrange(b.values[x].ndim)])], axis=0)
        y = b.add("Add", [y, b.add("Cast", [length], to=element_type_of(b.values[x].dtype))])
    return y


def unsqueezed(b: Builder, x: str, axes: list[int]) -> str:
    return b.add("Unsqueeze", [x], axes=axes) if b.opset < 13 else b.add("Unsqueeze", [x, b.setting(axes)])


@template(2)
def squeeze(b: Builder) -> str:
    x = anything(b, 0, 5)
    shape = b.values[x].shape
    if 1 in shape and b.chance(0.6):
        axes = [i for i, d in enumerate(shape) if d == 1]
        return b.add("Squeeze", [x], axes=axes) if b.opset < 13 else b.add("Squeeze", [x, b.setting(axes)])
    return unsqueezed(b, x, [b.rng.randint(0, len(shape))])


@template(3)
def slice_(b: Builder) -> str:
    x = anything(b, 1)
    shape = b.values[x].shape
    axes = sorted(b.rng.sample(range(len(shape)), b.rng.randint(1, len(shape))))
    bounds = [sorted((b.rng.randint(0, shape[a]), b.rng.randint(0, shape[a]))) for a in axes]
    starts, ends = [s for s, _ in bounds], [b.rng.choice((e, 2**31 - 1)) for _, e in bounds]
    if b.opset < 10:
        return b.add("Slice", [x], starts=starts, ends=ends, axes=axes)
    steps = [b.rng.choice((1, 1, 2)) for _ in axes]
    if b.chance(0.2):
        starts, ends, steps = [-1] * len(axes), [-(2**31)] * len(axes), [-1] * len(axes)
    return b.add("Slice", [x, *(b.setting(v) for v in (starts, ends, axes, steps))])


@template(4)
def concat(b: Builder) -> str:
    x = anything(b, 1)
    a = b.values[x]
    axis = b.rng.randrange(a.ndim)
    parts = [x]
    for _ in range(b.rng.choice((1, 1, 2))):
        shape = list(a.shape)
        shape[axis] = b.rng.choice((1, 2, 3))
        same = [
            n for n, v in b.values.items() if isinstance(v, np.ndarray) and v.dtype == a.dtype and v.ndim == a.ndim
            and all(i == axis or d == e for i, (d, e) in enumerate(zip(v.shape, a.shape, strict=True)))
        ]  # fmt: skip
        parts.append(b.rng.choice(same) if same and b.chance(0.5) else b.fresh(a.dtype, shape))
    b.rng.shuffle(parts)
    return b.add("Concat", parts, axis=axis)


@template(2)
def split(b: Builder) -> str:
    x = anything(b, 1)
    shape = b.values[x].shape
    axis = b.rng.randrange(len(shape))
    first = b.rng.randint(0, shape[axis])
    sizes = [first, shape[axis] - first]
    if b.opset < 13:
        return b.add("Split", [x], outputs=2, axis=axis, split=sizes)
    parts = b.add_all("Split", [x, b.setting(sizes)], 2, "", {"axis": axis})
    return b.add("Concat", parts[::-1], axis=axis) if b.chance(0.5) else parts[0]


@template(2)
def pad(b: Builder) -> str:
    x = b.floats(1, 4)
    a = b.values[x]
    pads = [b.rng.choice((0, 0, 1, 2)) for _ in range(2 * a.ndim)]
    mode = b.rng.choice(["constant", "constant", "reflect", "edge"])
    if mode == "reflect" and min(a.shape) < 3:
        raise Unfit
    if b.opset < 11:
        return b.add("Pad", [x], mode=mode, pads=pads, value=0.5)
    return b.add("Pad", [x, b.setting(pads), *([b.constant(0.5, a.dtype)] if b.chance(0.5) else [])], mode=mode)


@template(2)
def stretch(b: Builder) -> str:
    x = anything(b, 0, 4)
    shape = b.values[x].shape
    if b.chance(0.5):
        return b.add("Tile", [x, b.setting([b.rng.choice((1, 1, 2, 3)) for _ in shape], np.int64)])
    wanted = [b.rng.choice((2, 3)) if d == 1 else d for d in shape]
    return b.add("Expand", [x, b.setting([2, *wanted] if b.chance(0.3) else wanted)])


@template(4)
def gather(b: Builder) -> str:
    x = anything(b, 1)
    a = b.values[x]
    axis = b.rng.randrange(a.ndim)
    d = a.shape[axis]
    if not d:
        raise Unfit
    kind = b.rng.randrange(5)
    numbers = b.numbers
    if kind < 2:
        shape = b.rng.choice([(), (1,), (3,), (2, 2)])
        indices = numbers.integers(-d if b.opset >= 11 else 0, d, shape)
        return b.add("Gather", [x, b.setting(indices, b.rng.choice((np.int64, np.int32)))], axis=axis)
    if kind == 2:
        shape = [*a.shape]
        shape[axis] = b.rng.choice((1, 3))
        return b.add("GatherElements", [x, b.setting(numbers.integers(0, d, shape))], axis=axis)
    if kind == 3:
        depth = b.rng.randint(1, a.ndim)
        if 0 in a.shape[:depth]:
            raise Unfit
        return b.add("GatherND", [x, b.setting(np.stack([numbers.integers(0, s, 3) for s in a.shape[:depth]], -1))])
    if 0 in a.shape:
        raise Unfit
    if b.chance(0.5):
        rows = b.numbers.permutation(d)[: b.rng.randint(1, d)]
        shape = [*a.shape]
        shape[axis] = len(rows)
        index = np.broadcast_to(rows.reshape([-1 if i == axis else 1 for i in range(a.ndim)]), shape)
        return b.add("ScatterElements", [x, b.setting(index), b.fresh(a.dtype, shape)], axis=axis)
    rows = b.numbers.permutation(a.shape[0])[: b.rng.randint(1, a.shape[0])]
    return b.add("ScatterND", [x, b.setting(rows[:, None]), b.fresh(a.dtype, (len(rows), *a.shape[1:]))])


@template()
def others(b: Builder) -> str:
    kind = b.rng.randrange(8)
    x = b.floats(2, 2)
    a = b.values[x]
    if kind == 0:
        return b.add("Trilu", [x], upper=b.rng.randrange(2))
    if kind == 1:
        return b.add("EyeLike", [x])
    if kind == 2:
        indices = b.pick(lambda v: v.dtype == I64 and v.ndim < 3, lambda: b.fresh(I64, (3,)))
        return b.add("OneHot", [indices, b.setting(4), b.constant([0, 1], F32)])
    if kind == 3 and a.shape[0]:
        return b.add("Compress", [x, b.fresh(BOOL, (a.shape[0],))], axis=0)
    if kind == 4:
        return b.add("NonZero", [b.pick(lambda v: v.dtype in (F32, BOOL, I64))])
    if kind == 5:
        return b.add("Range", [b.constant(0), b.setting(b.rng.randrange(6)), b.constant(1)])
    if kind == 6 and a.ndim == 2 and min(a.shape):
        return b.add("ReverseSequence", [x, b.setting([a.shape[0]] * a.shape[1])], time_axis=0, batch_axis=1)
    return b.add("ConstantOfShape", [b.setting([2, 3])], value=np.array([0.5], np.float32))
