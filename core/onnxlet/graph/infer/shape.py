"""Operators that say or change a tensor's shape and leave its elements as they are."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...model.dtypes import dtype_of as element_dtype
from ...model.dtypes import widen
from ..ir import Dim, Node, TensorType, Type
from .common import (
    FLOAT,
    INT64,
    Constants,
    Inputs,
    Shape,
    attribute_or_input,
    axes_of,
    axis_of,
    constant,
    dims,
    fail,
    ints,
    length,
    merge_dim,
    mismatch,
    present,
    product,
    shape_of,
    show,
    tensor,
    unknown_rank,
)
from .registry import infer


@infer("Shape")
def shape(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    data = shape_of(node, inputs, 0)
    if data is None:
        return [TensorType(INT64, (None,))]
    start, end = node.attributes.get("start", 0), node.attributes.get("end", len(data))
    return [TensorType(INT64, (len(range(len(data))[start:end]),))]


@infer("Size")
def size(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    return [TensorType(INT64, ())]


@infer("Reshape")
def reshape(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    data = tensor(node, inputs, 0)
    wanted: list[Dim] | None = node.attributes.get("shape") if node.version < 5 else dims(constants, 1)
    if wanted is None:
        return [TensorType(data.dtype, unknown_rank(length(inputs, 1)))]
    if wanted.count(-1) > 1 or any(isinstance(d, int) and d < -1 for d in wanted):
        fail(node, f"the shape {wanted} must have at most one -1 and nothing below")
    result: list[Dim] = list(wanted)
    if not node.attributes.get("allowzero", 0):
        for i, d in enumerate(wanted):
            if d == 0:
                if data.shape is not None and i >= len(data.shape):
                    fail(node, f"the shape {wanted} has a 0 at {i}, but the input's shape is {show(data.shape)}")
                result[i] = None if data.shape is None else data.shape[i]
    if -1 in wanted:
        at = wanted.index(-1)
        result[at] = None
        result[at] = _remaining(node, data.shape, [d for i, d in enumerate(result) if i != at], wanted)
    elif data.concrete and all(isinstance(d, int) for d in result) and math.prod(data.dims) != product(result):
        fail(node, f"{math.prod(data.dims)} elements of shape {show(data.shape)} do not fit the shape {wanted}")
    return [TensorType(data.dtype, tuple(result))]


def _remaining(node: Node, shape: Shape, others: list[Dim], wanted: list[Dim]) -> Dim:
    """The dimension that makes the number of elements right: what remains when equal dimensions cancel out."""
    if shape is None:
        return None
    have, rest = list(shape), []
    for d in others:
        if isinstance(d, str) and d in have:
            have.remove(d)
        else:
            rest.append(d)
    total, divisor = product(have), product(rest)
    if isinstance(total, int) and isinstance(divisor, int):
        if divisor == 0:
            return 0 if total == 0 else None
        if total % divisor:
            fail(node, f"the shape {show(shape)} does not fit {wanted}")
        return total // divisor
    if divisor == 1:
        return total
    # A symbolic dimension times a number, divided by that same number.
    symbols = [d for d in have if not isinstance(d, int)]
    if len(symbols) == 1 and isinstance(divisor, int) and product(d for d in have if isinstance(d, int)) == divisor:
        return symbols[0]
    return None


@infer("Flatten")
def flatten(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    data = tensor(node, inputs, 0)
    if data.shape is None:
        return [TensorType(data.dtype, (None, None))]
    rank, axis = len(data.shape), node.attributes.get("axis", 1)
    if not -rank <= axis <= rank:
        fail(node, f"axis {axis} is outside [{-rank}, {rank}]")
    axis = axis + rank if axis < 0 else axis
    return [TensorType(data.dtype, (product(data.shape[:axis]), product(data.shape[axis:])))]


@infer("Squeeze")
def squeeze(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    data = tensor(node, inputs, 0)
    given, axes = attribute_or_input(node, constants, "axes", 1)
    if data.shape is None:
        return [data]
    if given and axes is None:
        number = length(inputs, 1)
        return [TensorType(data.dtype, None if number is None else unknown_rank(len(data.shape) - number))]
    if not given:
        if not all(isinstance(d, int) for d in data.shape):
            return [TensorType(data.dtype, None)]
        return [TensorType(data.dtype, tuple(d for d in data.shape if d != 1))]
    chosen = axes_of(node, axes or [], len(data.shape))
    for axis in chosen:
        if isinstance(data.shape[axis], int) and data.shape[axis] != 1:
            mismatch(node, 0, data, f"1 at axis {axis}")
    return [TensorType(data.dtype, tuple(d for i, d in enumerate(data.shape) if i not in chosen))]


@infer("Unsqueeze")
def unsqueeze(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    data = tensor(node, inputs, 0)
    _, axes = attribute_or_input(node, constants, "axes", 1)
    number = length(inputs, 1) if axes is None else len(axes)
    if data.shape is None or number is None:
        return [TensorType(data.dtype, None)]
    rank = len(data.shape) + number
    if axes is None:
        return [TensorType(data.dtype, unknown_rank(rank))]
    chosen, rest = axes_of(node, axes, rank), iter(data.shape)
    return [TensorType(data.dtype, tuple(1 if i in chosen else next(rest) for i in range(rank)))]


@infer("Transpose")
def transpose(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    data = tensor(node, inputs, 0)
    order = node.attributes.get("perm")
    if data.shape is None:
        return [TensorType(data.dtype, unknown_rank(None if order is None else len(order)))]
    rank = len(data.shape)
    order = list(range(rank))[::-1] if order is None else [axis_of(node, p, rank) for p in order]
    if sorted(order) != list(range(rank)):
        fail(node, f"perm {order} is not a permutation of the {rank} axes of {data}")
    return [TensorType(data.dtype, tuple(data.shape[i] for i in order))]


@infer("Concat")
def concat(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    types = [tensor(node, inputs, i) for i in range(len(inputs))]
    dtype = next((t.dtype for t in types if t.dtype is not None), None)
    known = [t.shape for t in types if t.shape is not None]
    if not known:
        return [TensorType(dtype, None)]
    rank = len(known[0])
    if any(len(s) != rank for s in known):
        fail(node, f"inputs have different ranks: {', '.join(map(show, known))}")
    axis = axis_of(node, node.attributes.get("axis", 1), rank)
    result: list[Dim] = []
    for i in range(rank):
        column = [s[i] for s in known]
        if i == axis:
            complete = len(known) == len(types) and all(isinstance(d, int) for d in column)
            result.append(sum(d for d in column if isinstance(d, int)) if complete else _single(column, types))
            continue
        merged = column[0]
        for d in column[1:]:
            if isinstance(merged, int) and isinstance(d, int) and merged != d:
                fail(node, f"inputs differ outside of axis {axis}: {', '.join(map(show, known))}")
            merged = merge_dim(merged, d)
        result.append(merged)
    return [TensorType(dtype, tuple(result))]


def _single(column: list[Dim], types: list[TensorType]) -> Dim:
    """The sum of dimensions of which one is symbolic and the others are 0."""
    rest = [d for d in column if d != 0]
    return rest[0] if len(rest) == 1 and len(column) == len(types) else None


@infer("Split")
def split(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    data = tensor(node, inputs, 0)
    outputs = len(node.outputs)
    if data.shape is None:
        return [TensorType(data.dtype, None)] * outputs
    axis = axis_of(node, node.attributes.get("axis", 0), len(data.shape))
    given, sizes = attribute_or_input(node, constants, "split", 1)
    total = data.shape[axis]
    parts: list[Dim] = [None] * outputs
    if given and sizes is not None:
        if len(sizes) != outputs:
            fail(node, f"split {sizes} has {len(sizes)} parts for {outputs} outputs")
        if any(s < 0 for s in sizes) or (isinstance(total, int) and sum(sizes) != total):
            fail(node, f"split {sizes} does not add up to the {total} elements along axis {axis}")
        parts = list(sizes)
    elif not given and isinstance(total, int):
        number = node.attributes.get("num_outputs", outputs)
        each = -(-total // number)
        if total % number and node.version < 18:
            fail(node, f"{total} elements along axis {axis} can't be split into {number} equal parts")
        parts = [max(0, min(each, total - i * each)) for i in range(outputs)]
    return [TensorType(data.dtype, (*data.shape[:axis], part, *data.shape[axis + 1 :])) for part in parts]


@infer("Slice")
def slice_(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    data = tensor(node, inputs, 0)
    if data.shape is None:
        return [data]
    rank = len(data.shape)
    if node.version < 10:
        starts, ends, axes, steps = (
            node.attributes.get("starts"), node.attributes.get("ends"), node.attributes.get("axes"), None,
        )  # fmt: skip
        known_axes = True
    else:
        starts, ends, axes, steps = (ints(constants, i) for i in (1, 2, 3, 4))
        known_axes = axes is not None or not present(node, 3)
    number = len(starts) if starts is not None else length(inputs, 1)
    if not known_axes or (axes is None and number is None):
        return [TensorType(data.dtype, unknown_rank(rank))]
    chosen = axes_of(node, range(number or 0) if axes is None else axes, rank)
    if present(node, 4) and steps is None:
        starts = None
    bounds = dims(constants, 2) if node.version >= 10 else None
    result: list[Dim] = list(data.shape)
    for i, axis in enumerate(chosen):
        step = 1 if steps is None else steps[i]
        if step == 0:
            fail(node, "a step of 0")
        d = data.shape[axis]
        if starts is None:
            result[axis] = None
        elif ends is None:
            # Up to a symbolic end: from 0 to the dimension itself leaves all of it.
            whole = bounds is not None and starts[i] == 0 and step == 1 and d is not None and bounds[i] == d
            result[axis] = d if whole else None
        elif isinstance(d, int):
            result[axis] = len(range(*_bounds(starts[i], ends[i], step, d)))
        elif not (step == 1 and starts[i] == 0 and ends[i] >= 2**31 - 1):
            result[axis] = None
    return [TensorType(data.dtype, tuple(result))]


def _bounds(start: int, end: int, step: int, dim: int) -> tuple[int, int, int]:
    """Bounds of a slice as the specification clamps them, for `range`."""
    start = start + dim if start < 0 else start
    end = end + dim if end < 0 else end
    if step > 0:
        return min(max(start, 0), dim), min(max(end, 0), dim), step
    return min(max(start, 0), dim - 1), min(max(end, -1), dim), step


@infer("Gather")
def gather(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    data, indices = shape_of(node, inputs, 0, least=1), shape_of(node, inputs, 1)
    dtype = tensor(node, inputs, 0).dtype
    if data is None or indices is None:
        return [TensorType(dtype, None)]
    axis = axis_of(node, node.attributes.get("axis", 0), len(data))
    return [TensorType(dtype, (*data[:axis], *indices, *data[axis + 1 :]))]


@infer("GatherElements")
def gather_elements(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    data, indices = tensor(node, inputs, 0), tensor(node, inputs, 1)
    if data.shape is not None and indices.shape is not None and len(data.shape) != len(indices.shape):
        mismatch(node, 1, indices, f"the rank of the data, {data}")
    return [TensorType(data.dtype, indices.shape)]


@infer("GatherND")
def gather_nd(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    data, indices = shape_of(node, inputs, 0, least=1), shape_of(node, inputs, 1, least=1)
    dtype = tensor(node, inputs, 0).dtype
    if data is None or indices is None or not isinstance(indices[-1], int):
        return [TensorType(dtype, None)]
    start = node.attributes.get("batch_dims", 0) + indices[-1]
    if start > len(data):
        mismatch(node, 1, tensor(node, inputs, 1), f"at most {len(data)} in the last dimension and batch_dims together")
    return [TensorType(dtype, (*indices[:-1], *data[start:]))]


@infer("Scatter", "ScatterElements", "ScatterND", "TensorScatter")
def scatter(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    return [tensor(node, inputs, 0)]


@infer("Expand")
def expand(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    data, wanted = tensor(node, inputs, 0), dims(constants, 1)
    if data.shape is None:
        return [data]
    if wanted is None:
        number = length(inputs, 1)
        return [TensorType(data.dtype, unknown_rank(None if number is None else max(number, len(data.shape))))]
    rank = max(len(wanted), len(data.shape))
    a = [1] * (rank - len(data.shape)) + list(data.shape)
    b = [1] * (rank - len(wanted)) + list(wanted)
    result: list[Dim] = []
    for x, y in zip(a, b, strict=True):
        if x == 1 or x == y:
            result.append(y)
        elif y == 1:
            result.append(x)
        elif isinstance(x, int) and isinstance(y, int):
            fail(node, f"the shape {show(data.shape)} can't be expanded to {wanted}")
        else:
            # One is symbolic and may be 1: a number above 1 wins.
            number = x if isinstance(x, int) else y if isinstance(y, int) else None
            result.append(number)
    return [TensorType(data.dtype, tuple(result))]


@infer("Tile")
def tile(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    data = tensor(node, inputs, 0)
    if data.shape is None:
        return [data]
    if node.version < 6:
        return [TensorType(data.dtype, unknown_rank(len(data.shape)))]
    repeats = dims(constants, 1)
    if repeats is None:
        return [TensorType(data.dtype, unknown_rank(len(data.shape)))]
    if len(repeats) != len(data.shape):
        fail(node, f"{len(repeats)} repeats for a tensor of rank {len(data.shape)}")
    return [TensorType(data.dtype, tuple(product((d, r)) for d, r in zip(data.shape, repeats, strict=True)))]


@infer("Pad")
def pad(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    data = tensor(node, inputs, 0)
    if data.shape is None:
        return [data]
    if node.version < 11:
        pads, axes = node.attributes.get("pads", node.attributes.get("paddings")), None
    else:
        pads, axes = ints(constants, 1), ints(constants, 3)
        if present(node, 3) and axes is None:
            pads = None
    if pads is None:
        return [TensorType(data.dtype, unknown_rank(len(data.shape)))]
    chosen = axes_of(node, range(len(data.shape)) if axes is None else axes, len(data.shape))
    if len(pads) != 2 * len(chosen):
        fail(node, f"{len(pads)} pads for {len(chosen)} axes of {data}, expected {2 * len(chosen)}")
    result: list[Dim] = list(data.shape)
    for i, axis in enumerate(chosen):
        d, change = data.shape[axis], pads[i] + pads[i + len(chosen)]
        result[axis] = max(0, d + change) if isinstance(d, int) else d if change == 0 else None
    return [TensorType(data.dtype, tuple(result))]


@infer("CenterCropPad")
def center_crop_pad(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    data, wanted = tensor(node, inputs, 0), dims(constants, 1)
    if data.shape is None:
        return [data]
    chosen = axes_of(node, node.attributes.get("axes", range(len(data.shape))), len(data.shape))
    if wanted is None:
        return [TensorType(data.dtype, tuple(None if i in chosen else d for i, d in enumerate(data.shape)))]
    if len(wanted) != len(chosen):
        fail(node, f"the shape {wanted} has not one size for each of the axes {chosen}")
    sizes = dict(zip(chosen, wanted, strict=True))
    return [TensorType(data.dtype, tuple(sizes.get(i, d) for i, d in enumerate(data.shape)))]


@infer("DepthToSpace", "SpaceToDepth")
def depth_space(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    data = shape_of(node, inputs, 0, rank=4)
    dtype = tensor(node, inputs, 0).dtype
    block = node.attributes.get("blocksize")
    if data is None or not block:
        return [TensorType(dtype, unknown_rank(4))]
    n, c, h, w = data
    if node.op_type == "DepthToSpace":
        channels = _divided(node, c, block * block, "channels")
        return [TensorType(dtype, (n, channels, product((h, block)), product((w, block))))]
    return [
        TensorType(dtype, (n, product((c, block * block)), _divided(node, h, block, "rows"),
                           _divided(node, w, block, "columns")))
    ]  # fmt: skip


def _divided(node: Node, d: Dim, by: int, what: str) -> Dim:
    if not isinstance(d, int):
        return d if by == 1 else None
    if d % by:
        fail(node, f"{d} {what} are not a multiple of {by}")
    return d // by


@infer("Upsample", "Resize")
def resize(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    data = tensor(node, inputs, 0)
    if data.shape is None:
        return [data]
    rank = len(data.shape)
    if "scales" in node.attributes or "height_scale" in node.attributes:
        scales = node.attributes.get("scales")
        sizes = None
        if scales is None:
            scales = [1.0, 1.0, node.attributes["height_scale"], node.attributes["width_scale"]]
    else:
        old = node.op_type == "Upsample" or node.version < 11
        value = constant(constants, 1 if old else 2)
        scales = None if value is None or value.size == 0 else [float(s) for s in value.reshape(-1)]
        sizes = None if old else dims(constants, 3)
    axes = axes_of(node, node.attributes.get("axes", range(rank)), rank)
    if not sizes and scales is None:
        return [TensorType(data.dtype, tuple(None if i in axes else d for i, d in enumerate(data.shape)))]
    given = sizes or scales or []
    if len(given) != len(axes):
        fail(node, f"{len(given)} sizes or scales for {len(axes)} axes of {data}")
    result: list[Dim] = list(data.shape)
    if sizes:
        wanted = _sizes(node, sizes, [data.shape[a] for a in axes])
    else:
        regions = _regions(node, constants, len(axes))
        wanted = [_scaled(data.shape[a], s, r) for a, s, r in zip(axes, scales or [], regions, strict=True)]
    for axis, d in zip(axes, wanted, strict=True):
        result[axis] = d
    return [TensorType(data.dtype, tuple(result))]


def _regions(node: Node, constants: Constants, number: int) -> Sequence[np.float32 | None]:
    """The part of each axis that is resized: all of it, but for tf_crop_and_resize."""
    if node.attributes.get("coordinate_transformation_mode") != "tf_crop_and_resize":
        return [np.float32(1)] * number
    roi = constant(constants, 1)
    if roi is None or roi.size != 2 * number:
        return [None] * number
    return [np.float32(float(roi[i + number]) - float(roi[i])) for i in range(number)]


def _scaled(d: Dim, scale: float, region: np.float32 | None) -> Dim:
    """A dimension after resizing, rounded down from a float32 product as the specification says."""
    if region is None:
        return None
    if isinstance(d, int):
        return math.floor(np.float32(d) * region * np.float32(scale))
    return d if scale == 1 and region == 1 else None


def _sizes(node: Node, sizes: list[Dim], shape: list[Dim]) -> list[Dim]:
    """The sizes to resize to, under the policy that may keep the aspect ratio (since opset 18)."""
    policy = node.attributes.get("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return sizes
    if not all(isinstance(d, int) for d in (*sizes, *shape)) or 0 in shape:
        return [None] * len(sizes)
    ratios = [size / d for size, d in zip(sizes, shape, strict=True)]  # type: ignore[operator]
    scale = min(ratios) if policy == "not_larger" else max(ratios)
    return [math.floor(scale * d + 0.5) for d in shape]  # type: ignore[operator]


@infer("ConstantOfShape")
def constant_of_shape(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    value = node.attributes.get("value")
    dtype = FLOAT if value is None else value.dtype
    wanted = dims(constants, 0)
    if any(isinstance(d, int) and d < 0 for d in wanted or ()):
        fail(node, f"the shape {wanted} has a negative dimension")
    return [TensorType(dtype, unknown_rank(length(inputs, 0)) if wanted is None else tuple(wanted))]


@infer("Range")
def range_(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    dtype = tensor(node, inputs, 0).dtype
    values = [constant(constants, i) for i in range(3)]
    if any(v is None for v in values):
        symbols = [dims(constants, i) if dtype is not None and dtype.kind in "iu" else None for i in range(3)]
        whole = symbols[0] == [0] and symbols[2] == [1] and symbols[1] is not None
        return [TensorType(dtype, (symbols[1][0],) if whole and symbols[1] else (None,))]
    start, limit, delta = (widen(v).reshape(-1)[0].item() for v in values if v is not None)
    if delta == 0:
        fail(node, "delta is 0")
    if dtype is not None and dtype.kind in "iu":
        return [TensorType(dtype, (max(0, -((start - limit) // delta)),))]
    return [TensorType(dtype, (max(0, math.ceil((limit - start) / delta)),))]


@infer("OneHot")
def one_hot(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    indices, depth = shape_of(node, inputs, 0), dims(constants, 1)
    dtype = tensor(node, inputs, 2).dtype
    if indices is None:
        return [TensorType(dtype, None)]
    axis = axis_of(node, node.attributes.get("axis", -1), len(indices) + 1)
    return [TensorType(dtype, (*indices[:axis], depth[0] if depth else None, *indices[axis:]))]


@infer("EyeLike")
def eye_like(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    data = tensor(node, inputs, 0)
    shape_of(node, inputs, 0, rank=2)
    to = node.attributes.get("dtype")
    return [TensorType(data.dtype if to is None else element_dtype(to), data.shape)]


@infer("TopK")
def top_k(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    data = tensor(node, inputs, 0)
    if data.shape is None:
        return [data, TensorType(INT64, None)]
    axis = axis_of(node, node.attributes.get("axis", -1), len(data.shape))
    wanted = [node.attributes["k"]] if "k" in node.attributes else dims(constants, 1)
    k = wanted[0] if wanted else None
    d = data.shape[axis]
    if isinstance(k, int) and isinstance(d, int) and not 0 <= k <= d:
        fail(node, f"k is {k}, but axis {axis} of {data} has {d} elements")
    result = (*data.shape[:axis], k, *data.shape[axis + 1 :])
    return [TensorType(data.dtype, result), TensorType(INT64, result)]


@infer("NonZero")
def non_zero(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    data = shape_of(node, inputs, 0)
    return [TensorType(INT64, (None if data is None else len(data), None))]


@infer("Compress")
def compress(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    data = tensor(node, inputs, 0)
    axis = node.attributes.get("axis")
    if axis is None:
        return [TensorType(data.dtype, (None,))]
    if data.shape is None:
        return [data]
    axis = axis_of(node, axis, len(data.shape))
    return [TensorType(data.dtype, (*data.shape[:axis], None, *data.shape[axis + 1 :]))]


@infer("Unique")
def unique(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    data = tensor(node, inputs, 0)
    axis = node.attributes.get("axis")
    found: Shape = (None,)
    if axis is not None:
        found = None
        if data.shape is not None:
            axis = axis_of(node, axis, len(data.shape))
            found = (*data.shape[:axis], None, *data.shape[axis + 1 :])
    index = TensorType(INT64, (None,))
    return [TensorType(data.dtype, found), index, index, index]


@infer("Col2Im")
def col2im(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    data = shape_of(node, inputs, 0, rank=3)
    dtype = tensor(node, inputs, 0).dtype
    image, block = dims(constants, 1), ints(constants, 2)
    number = length(inputs, 1) if image is None else len(image)
    if number is None:
        return [TensorType(dtype, None)]
    channels: Dim = None
    if data is not None and isinstance(data[1], int) and block is not None and math.prod(block):
        channels = data[1] // math.prod(block)
    return [TensorType(dtype, (None if data is None else data[0], channels, *(image or [None] * number)))]
