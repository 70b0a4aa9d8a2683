"""Operators that slide a window over an image: convolutions and pooling."""

from __future__ import annotations

from collections.abc import Sequence

from ..ir import Dim, Node, TensorType, Type
from .common import (
    INT64,
    Constants,
    Inputs,
    dims,
    dtype_of,
    fail,
    mismatch,
    product,
    same_dim,
    shape_of,
    tensor,
    unknown_rank,
)
from .registry import infer


def per_axis(node: Node, name: str, rank: int, default: int = 1) -> list[int]:
    """An attribute with one number per spatial axis, or its default."""
    values = node.attributes.get(name) or [default] * rank
    if len(values) != rank:
        fail(node, f"{name} {list(values)} has {len(values)} numbers for {rank} spatial axes")
    if min(values, default=default) < default:
        fail(node, f"{name} {list(values)} must be {'positive' if default else '0 or more'}")
    return list(values)


def pads_of(node: Node, rank: int) -> list[tuple[int, int]]:
    """The padding of each spatial axis, begin and end."""
    pads = node.attributes.get("pads") or [0] * 2 * rank
    if len(pads) != 2 * rank:
        fail(node, f"pads {list(pads)} has {len(pads)} numbers, expected {2 * rank}")
    return list(zip(pads[:rank], pads[rank:], strict=True))


def window_sizes(
    node: Node, sizes: Sequence[Dim], kernel: Sequence[Dim], dilations: Sequence[int], ceil: bool = False
) -> list[Dim]:
    """How many windows lie along each spatial axis of an image of the given `sizes`."""
    rank = len(sizes)
    strides, auto = per_axis(node, "strides", rank), node.attributes.get("auto_pad", "NOTSET")
    pads = pads_of(node, rank) if auto in ("NOTSET", "") else [(0, 0)] * rank
    result: list[Dim] = []
    for size, k, stride, dilation, (begin, end) in zip(sizes, kernel, strides, dilations, pads, strict=True):
        if not isinstance(size, int):
            same = stride == 1 and isinstance(k, int) and begin + end == (k - 1) * dilation
            result.append(size if same or (stride == 1 and auto.startswith("SAME")) else None)
        elif auto in ("SAME_UPPER", "SAME_LOWER"):
            result.append(-(-size // stride))
        elif not isinstance(k, int):
            result.append(None)
        else:
            result.append(_count(node, size, (k - 1) * dilation + 1, stride, begin, end, ceil and auto != "VALID"))
    return result


def _count(node: Node, size: int, extent: int, stride: int, begin: int, end: int, ceil: bool) -> int:
    room = size + begin + end - extent
    if ceil:
        count = max(0, -(-room // stride)) + 1
        # A window may not start in the padding at the end.
        return count - 1 if (count - 1) * stride >= size + begin else count
    if room < 0:
        fail(node, f"a window that spans {extent} does not fit into {size} elements with padding {begin} and {end}")
    return room // stride + 1


def convolution(node: Node, x: tuple[Dim, ...] | None, w: tuple[Dim, ...] | None) -> tuple[Dim, ...] | None:
    """The shape of a convolution of (N, C, *sizes) with (M, C / group, *kernel)."""
    if x is None:
        return unknown_rank(None if w is None else len(w))
    rank = len(x) - 2
    kernel: list[Dim] = list(node.attributes.get("kernel_shape") or ([None] * rank if w is None else w[2:]))
    if w is not None:
        if len(w) != len(x):
            mismatch(node, 1, f"of rank {len(w)}", f"rank {len(x)}, as the input has")
        group = node.attributes.get("group", 1)
        if isinstance(x[1], int) and isinstance(w[1], int) and w[1] * group != x[1]:
            fail(node, f"the weights take {w[1]} x {group} (group) channels, the input has {x[1]}")
    if len(kernel) != rank:
        fail(node, f"kernel_shape {kernel} has {len(kernel)} numbers for {rank} spatial axes")
    sizes = window_sizes(node, x[2:], kernel, per_axis(node, "dilations", rank))
    return (x[0], None if w is None else w[0], *sizes)


@infer("Conv")
def conv(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    x, w = shape_of(node, inputs, 0, least=2), shape_of(node, inputs, 1, least=2)
    return [TensorType(dtype_of(node, inputs, 0), convolution(node, x, w))]


@infer("ConvTranspose")
def conv_transpose(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    x, w = shape_of(node, inputs, 0, least=2), shape_of(node, inputs, 1, least=2)
    dtype = dtype_of(node, inputs, 0)
    if x is None or w is None:
        return [TensorType(dtype, unknown_rank(len(x) if x is not None else None if w is None else len(w)))]
    if len(w) != len(x):
        mismatch(node, 1, f"of rank {len(w)}", f"rank {len(x)}, as the input has")
    same_dim(node, x[1], w[0], "channels of input and weights")
    rank, group = len(x) - 2, node.attributes.get("group", 1)
    channels: Dim = product((w[1], group))
    strides, dilations = per_axis(node, "strides", rank), per_axis(node, "dilations", rank)
    extra = per_axis(node, "output_padding", rank, 0)
    wanted, auto = node.attributes.get("output_shape"), node.attributes.get("auto_pad", "NOTSET")
    if wanted:
        if min(wanted) < 0:
            fail(node, f"output_shape {list(wanted)} has a negative size")
        return [TensorType(dtype, (x[0], channels, *list(wanted)[-rank:]))]
    pads = pads_of(node, rank) if auto in ("NOTSET", "") else [(0, 0)] * rank
    kernel: list[Dim] = list(node.attributes.get("kernel_shape") or w[2:])
    sizes: list[Dim] = []
    for d, k, s, dil, more, (begin, end) in zip(x[2:], kernel, strides, dilations, extra, pads, strict=True):
        if not isinstance(d, int) or not isinstance(k, int):
            sizes.append(d if s == 1 and auto.startswith("SAME") else None)
        elif auto.startswith("SAME"):
            sizes.append(d * s)
        else:
            sizes.append((d - 1) * s + (k - 1) * dil + 1 + more - begin - end)
    return [TensorType(dtype, (x[0], channels, *sizes))]


@infer("DeformConv")
def deform_conv(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    x, w = shape_of(node, inputs, 0, least=3), shape_of(node, inputs, 1, least=3)
    return [TensorType(dtype_of(node, inputs, 0), convolution(node, x, w))]


@infer("CausalConvWithState")
def causal_conv(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    x = tensor(node, inputs, 0)
    data, w = shape_of(node, inputs, 0, rank=3), shape_of(node, inputs, 1, rank=3)
    kept = w[2] - 1 if w is not None and isinstance(w[2], int) else None
    state = (None, None, kept) if data is None else (data[0], data[1], kept)
    return [x, TensorType(x.dtype, state)]


@infer("MaxPool", "AveragePool", "LpPool")
def pool(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    x = shape_of(node, inputs, 0, least=3)
    dtype = dtype_of(node, inputs, 0)
    if x is None:
        return [TensorType(dtype, None), TensorType(INT64, None)]
    rank = len(x) - 2
    kernel = node.attributes.get("kernel_shape")
    if not kernel:
        fail(node, "kernel_shape is missing")
    kernel = per_axis(node, "kernel_shape", rank)
    ceil = bool(node.attributes.get("ceil_mode", 0))
    sizes = window_sizes(node, x[2:], kernel, per_axis(node, "dilations", rank), ceil)
    result = (*x[:2], *sizes)
    return [TensorType(dtype, result), TensorType(INT64, result)]


@infer("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def global_pool(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    x = shape_of(node, inputs, 0, least=2)
    return [TensorType(dtype_of(node, inputs, 0), None if x is None else (*x[:2], *(1,) * (len(x) - 2)))]


@infer("MaxUnpool")
def max_unpool(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    x, wanted = shape_of(node, inputs, 0, least=3), dims(constants, 2)
    dtype = dtype_of(node, inputs, 0)
    if x is None:
        return [TensorType(dtype, None)]
    rank = len(x) - 2
    if len(node.inputs) > 2 and node.inputs[2]:
        return [TensorType(dtype, unknown_rank(len(x)) if wanted is None else tuple(wanted))]
    kernel, strides = per_axis(node, "kernel_shape", rank), per_axis(node, "strides", rank)
    sizes = [
        (d - 1) * s + k - a - b if isinstance(d, int) else None
        for d, s, k, (a, b) in zip(x[2:], strides, kernel, pads_of(node, rank), strict=True)
    ]
    return [TensorType(dtype, (*x[:2], *sizes))]


@infer("MaxRoiPool")
def max_roi_pool(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    x, rois = shape_of(node, inputs, 0, rank=4), shape_of(node, inputs, 1, rank=2)
    size = node.attributes.get("pooled_shape") or [None, None]
    return [TensorType(dtype_of(node, inputs, 0), (rois[0] if rois else None, x[1] if x else None, *size))]


@infer("RoiAlign")
def roi_align(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    x, rois = shape_of(node, inputs, 0, rank=4), shape_of(node, inputs, 1, rank=2)
    size = (node.attributes.get("output_height", 1), node.attributes.get("output_width", 1))
    return [TensorType(dtype_of(node, inputs, 0), (rois[0] if rois else None, x[1] if x else None, *size))]


@infer("GridSample")
def grid_sample(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    x, grid = shape_of(node, inputs, 0, least=3), shape_of(node, inputs, 1, least=3)
    dtype = dtype_of(node, inputs, 0)
    if x is None or grid is None:
        return [TensorType(dtype, unknown_rank(len(x or grid or ()) or None))]
    if len(x) != len(grid):
        mismatch(node, 1, f"of rank {len(grid)}", f"rank {len(x)}, as the input has")
    return [TensorType(dtype, (x[0], x[1], *grid[1:-1]))]


@infer("AffineGrid")
def affine_grid(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    theta, size = shape_of(node, inputs, 0, rank=3), dims(constants, 1)
    dtype = dtype_of(node, inputs, 0)
    if size is None:
        return [TensorType(dtype, None)]
    if theta is not None:
        same_dim(node, theta[0], size[0], "the batch of theta and size")
    return [TensorType(dtype, (size[0], *size[2:], len(size) - 2))]


@infer("NonMaxSuppression")
def non_max_suppression(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    return [TensorType(INT64, (None, 3))]
