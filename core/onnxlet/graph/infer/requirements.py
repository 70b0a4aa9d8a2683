"""What operators require of their inputs' types and shapes, beyond what is needed to infer the result's.

Kernels read and write where these numbers say, so a node that does not meet them never reaches one: `check` is called
when a plan is made, with concrete types. The specification's texts are the source; what depends on values (an index in
range) is checked by whoever computes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ..ir import Node, TensorType, Type
from .common import fail

Shape = tuple[int, ...]
Shapes = Sequence[Shape | None]
"""The shapes of the inputs, `None` for those that are absent; at least eight entries."""

Requirement = Callable[[Node, Shapes], None]

_REQUIREMENTS: dict[tuple[str, str], Requirement] = {}

_REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")

INTEGER_INPUTS: dict[str, tuple[int, ...]] = {
    "Compress": (), "ConstantOfShape": (0,), "Expand": (1,), "Gather": (1,), "GatherElements": (1,), "GatherND": (1,),
    "Pad": (1, 3), "Reshape": (1,), "Scatter": (1,), "ScatterElements": (1,), "ScatterND": (1,), "Slice": (1, 2, 3, 4),
    "Split": (1,), "Squeeze": (1,), "Unsqueeze": (1,), "TopK": (1,), "CumSum": (1,), "Resize": (3,),
    "TensorScatter": (2,), "ReverseSequence": (1,), "RotaryEmbedding": (3,), "RoiAlign": (2,), "AffineGrid": (1,),
    "MaxUnpool": (1, 2), "Trilu": (1,), "Col2Im": (1, 2), "CenterCropPad": (1,),
    **{f"Reduce{kind}": (1,) for kind in _REDUCTIONS},
}  # fmt: skip
"""Inputs of ai.onnx operators that hold indices, axes, sizes or shapes."""


_ALIKE = (
    "Add", "Sub", "Mul", "Div", "Mod", "And", "Or", "Xor", "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual",
    "BitwiseAnd", "BitwiseOr", "BitwiseXor", "PRelu", "MatMul",
)  # fmt: skip

SAME_TYPE: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(_ALIKE, (0, 1)),
    **dict.fromkeys(("Max", "Min", "Sum", "Mean", "Concat"), tuple(range(64))),
    "Where": (1, 2), "Gemm": (0, 1, 2), "Conv": (0, 1, 2), "ConvTranspose": (0, 1, 2), "Scatter": (0, 2),
    "ScatterElements": (0, 2), "ScatterND": (0, 2), "TensorScatter": (0, 1), "Pad": (0, 2), "Clip": (0, 1, 2),
    "LSTM": (0, 1, 2, 3, 5, 6, 7), "GRU": (0, 1, 2, 3, 5), "RNN": (0, 1, 2, 3, 5), "InstanceNormalization": (0, 1, 2),
}  # fmt: skip
"""Inputs of ai.onnx operators that have one element type: the specification's type T."""


def requires(*names: str, domain: str = "") -> Callable[[Requirement], Requirement]:
    def register(function: Requirement) -> Requirement:
        for name in names:
            _REQUIREMENTS[domain, name] = function
        return function

    return register


def check(node: Node, inputs: Sequence[Type | None]) -> None:
    """Raise `ShapeError` where the inputs' types, which are concrete, are against the specification."""
    requirement = _REQUIREMENTS.get((node.domain, node.op_type))
    integers = INTEGER_INPUTS.get(node.op_type, ()) if not node.domain else ()
    alike = SAME_TYPE.get(node.op_type, ()) if not node.domain else ()
    if requirement is None and not integers and not alike:
        return
    shapes: list[Shape | None] = [None] * max(8, len(inputs))
    for i, (type_, name) in enumerate(zip(inputs, node.inputs, strict=True)):
        if not name:
            continue
        if not isinstance(type_, TensorType) or not type_.concrete:
            return
        shapes[i] = type_.dims
        if i in integers and type_.dtype is not None and type_.dtype.kind not in "iu":
            fail(node, f"input {i} ({name!r}) is {type_}, expected integers")
    elements = {t.dtype for i, t in enumerate(inputs) if i in alike and isinstance(t, TensorType)}
    if len(elements) > 1:
        came = ", ".join(str(t) for t in inputs if t is not None)
        fail(node, f"inputs {came}: their element types must be the same")
    if requirement is not None:
        requirement(node, shapes)


def _equal(node: Node, what: str, came: Shape | None, wanted: Sequence[int]) -> None:
    if came is not None and came != tuple(wanted):
        fail(node, f"{what} must have shape {list(wanted)}, but has {list(came)}")


def _one_of(node: Node, name: str, default: str, known: Sequence[str]) -> None:
    value = node.attributes.get(name, default)
    if value not in known:
        fail(node, f"{name} is {value!r}; {', '.join(known)} are known")


@requires("Conv")
@requires("FusedConv", domain="com.microsoft")
def conv(node: Node, shapes: Shapes) -> None:
    _auto_pad(node)
    x, w, bias = shapes[:3]
    if x is None or w is None:
        return
    group = node.attributes.get("group", 1)
    if len(x) < 3 or len(w) != len(x):
        fail(node, f"input and weights have ranks {len(x)} and {len(w)}; both must have the same rank, 3 or more")
    if group < 1 or x[1] != w[1] * group or w[0] % group:
        fail(
            node,
            f"weights of shape {list(w)} in {group} group(s) take {w[1] * max(group, 0)} input channels and give a "
            f"multiple of {group}; the input has {x[1]} channels",
        )
    _equal(node, "the bias", bias, w[:1])
    _kernel(node, w)


def _kernel(node: Node, w: Shape) -> None:
    kernel = node.attributes.get("kernel_shape")
    if kernel and tuple(kernel) != w[2:]:
        fail(node, f"kernel_shape {list(kernel)} differs from the weights' spatial shape {list(w[2:])}")


@requires("ConvTranspose")
def conv_transpose(node: Node, shapes: Shapes) -> None:
    _auto_pad(node)
    x, w, bias = shapes[:3]
    if x is None or w is None:
        return
    group = node.attributes.get("group", 1)
    if len(x) < 3 or len(w) != len(x):
        fail(node, f"input and weights have ranks {len(x)} and {len(w)}; both must have the same rank, 3 or more")
    if group < 1 or x[1] % group or x[1] != w[0]:
        fail(node, f"{x[1]} input channels in {group} group(s) do not go with weights of shape {list(w)}")
    _equal(node, "the bias", bias, (w[1] * group,))
    _kernel(node, w)


@requires("CausalConvWithState")
def causal_conv(node: Node, shapes: Shapes) -> None:
    x, w, bias, past = shapes[:4]
    if x is None or w is None:
        return
    if len(x) != 3 or len(w) != 3 or not w[2]:
        fail(node, f"input {list(x)} and weights {list(w)} must have 3 dimensions, and weights a length")
    _equal(node, "the weights", w, (x[1], 1, w[2]))
    _equal(node, "the bias", bias, x[1:2])
    _equal(node, "the past state", past, (*x[:2], w[2] - 1))
    _one_of(node, "activation", "none", ("none", "silu", "swish"))


@requires("RNN", "GRU", "LSTM")
def recurrent(node: Node, shapes: Shapes) -> None:
    """Shapes of W, R, B, sequence_lens, the initial states, and an LSTM's peepholes."""
    x, w, r, bias, lengths, state = shapes[:6]
    if x is None or w is None or r is None:
        return
    _one_of(node, "direction", "forward", ("forward", "reverse", "bidirectional"))
    directions = 2 if node.attributes.get("direction", "forward") == "bidirectional" else 1
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[node.op_type]
    if len(x) != 3 or len(w) != 3 or len(r) != 3:
        fail(node, f"X, W and R have ranks {len(x)}, {len(w)}, {len(r)}; all must have rank 3")
    hidden = r[2]
    if node.attributes.get("hidden_size", hidden) != hidden:
        fail(node, f"hidden_size is {node.attributes['hidden_size']}, but R has shape {list(r)}")
    batch_first = node.attributes.get("layout", 0)
    batch = x[0] if batch_first else x[1]
    first = (batch, directions, hidden) if batch_first else (directions, batch, hidden)
    _equal(node, "W", w, (directions, gates * hidden, x[2]))
    _equal(node, "R", r, (directions, gates * hidden, hidden))
    _equal(node, "B", bias, (directions, 2 * gates * hidden))
    _equal(node, "sequence_lens", lengths, (batch,))
    _equal(node, "the initial state", state, first)
    if node.op_type == "LSTM":
        _equal(node, "the initial cell", shapes[6], first)
        _equal(node, "P", shapes[7], (directions, 3 * hidden))


@requires("GatherElements")
def gather_elements(node: Node, shapes: Shapes) -> None:
    data, indices = shapes[:2]
    if data is None or indices is None:
        return
    axis = node.attributes.get("axis", 0)
    if len(indices) != len(data) or not -len(data) <= axis < len(data):
        fail(node, f"data of shape {list(data)}, indices of shape {list(indices)}, axis {axis} do not go together")
    others = [(i, d) for k, (i, d) in enumerate(zip(indices, data, strict=True)) if k != axis % len(data)]
    if any(i > d for i, d in others):
        fail(node, f"indices of shape {list(indices)} reach outside data of shape {list(data)}")


@requires("TopK")
def top_k(node: Node, shapes: Shapes) -> None:
    if shapes[1] is not None and math.prod(shapes[1]) != 1:
        fail(node, f"k must have one element, but has shape {list(shapes[1])}")


@requires("AffineGrid")
def affine_grid(node: Node, shapes: Shapes) -> None:
    theta, size = shapes[:2]
    if theta is not None and size is not None and theta[1:] != (size[0] - 2, size[0] - 1):
        fail(node, f"theta has shape {list(theta)}, expected [N, {size[0] - 2}, {size[0] - 1}] for {size[0]} sizes")


@requires("OneHot")
def one_hot(node: Node, shapes: Shapes) -> None:
    _equal(node, "the values for off and on", shapes[2], (2,))
    if shapes[1] is not None and math.prod(shapes[1]) != 1:
        fail(node, f"depth must have one element, but has shape {list(shapes[1])}")


@requires("RoiAlign")
def roi_align(node: Node, shapes: Shapes) -> None:
    x, rois, images = shapes[:3]
    if x is not None and len(x) != 4:
        fail(node, f"the input has shape {list(x)}, expected 4 dimensions")
    if rois is not None:
        _equal(node, "the regions", rois, (*rois[:1], 4))
        _equal(node, "the indices of images", images, rois[:1])


@requires("MaxUnpool")
def max_unpool(node: Node, shapes: Shapes) -> None:
    if shapes[0] is not None:
        _equal(node, "the indices", shapes[1], shapes[0])


@requires("ReverseSequence")
def reverse_sequence(node: Node, shapes: Shapes) -> None:
    batch, time = node.attributes.get("batch_axis", 1), node.attributes.get("time_axis", 0)
    if {batch, time} != {0, 1}:
        fail(node, f"batch and time axes are 0 and 1, not {batch} and {time}")
    if shapes[0] is not None:
        if len(shapes[0]) < 2:
            fail(node, f"the input has shape {list(shapes[0])}, expected 2 or more dimensions")
        _equal(node, "sequence_lens", shapes[1], (shapes[0][batch],))


@requires("TensorScatter")
def tensor_scatter(node: Node, shapes: Shapes) -> None:
    cache, update, first = shapes[:3]
    axis = node.attributes.get("axis", -2)
    if cache is None or update is None:
        return
    if not -len(cache) <= axis < len(cache) or axis % len(cache) == 0:
        fail(node, f"axis {axis} of a cache of shape {list(cache)} is none, or the batch's")
    axis %= len(cache)
    _equal(node, "the update", update, (*cache[:axis], *update[axis : axis + 1], *cache[axis + 1 :]))
    _equal(node, "write_indices", first, cache[:1])
    _one_of(node, "mode", "linear", ("linear", "circular"))


@requires("RotaryEmbedding")
def rotary_embedding(node: Node, shapes: Shapes) -> None:
    x, cosines, sines, positions = shapes[:4]
    if x is None or cosines is None:
        return
    batch, _, length, size = _heads(node, x, node.attributes.get("num_heads"))
    angles = (node.attributes.get("rotary_embedding_dim", 0) or size) // 2
    if positions is None:
        if len(cosines) != 3 or not _broadcastable(cosines[:2], (batch, length)) or cosines[2] != angles:
            fail(node, f"cos_cache must have shape {[batch, length, angles]}, but has {list(cosines)}")
    else:
        _equal(node, "cos_cache", cosines, (*cosines[:1], angles))
        _equal(node, "position_ids", positions, (batch, length))
    _equal(node, "sin_cache", sines, cosines)


@requires("BitShift")
def bit_shift(node: Node, shapes: Shapes) -> None:
    _one_of(node, "direction", "", ("LEFT", "RIGHT"))


@requires("GatherND")
@requires("GatherND", domain="com.microsoft")
def gather_nd(node: Node, shapes: Shapes) -> None:
    data, indices = shapes[:2]
    batch = node.attributes.get("batch_dims", 0)
    if data is None or indices is None:
        return
    if not 0 <= batch < min(len(data), len(indices)):
        fail(node, f"batch_dims {batch} is too many for data of shape {list(data)}, indices of shape {list(indices)}")
    if data[:batch] != indices[:batch]:
        fail(node, f"the first {batch} dimensions of {list(data)} and of the indices, {list(indices)}, must be equal")


@requires("Scatter", "ScatterElements")
def scatter_elements(node: Node, shapes: Shapes) -> None:
    gather_elements(node, shapes)
    if shapes[1] is not None:
        _equal(node, "the updates", shapes[2], shapes[1])


@requires("ScatterND")
def scatter_nd(node: Node, shapes: Shapes) -> None:
    data, indices, updates = shapes[:3]
    if data is None or indices is None:
        return
    if not indices or not 1 <= indices[-1] <= len(data):
        fail(node, f"indices of shape {list(indices)} can't name slices of data of shape {list(data)}")
    _equal(node, "the updates", updates, indices[:-1] + data[indices[-1] :])


def _broadcastable(shape: Shape, target: Shape) -> bool:
    """Whether `shape` can be stretched to `target`, which stays as it is."""
    return len(shape) <= len(target) and all(s in (1, t) for s, t in zip(shape[::-1], target[::-1], strict=False))


@requires("PRelu")
def prelu(node: Node, shapes: Shapes) -> None:
    x, slope = shapes[:2]
    if x is None or slope is None:
        return
    if not (_broadcastable(slope, x) or (node.version < 7 and len(x) > 1 and slope == x[1:2])):
        fail(node, f"slopes of shape {list(slope)} can't be broadcast to an input of shape {list(x)}")


@requires("Gemm")
def gemm(node: Node, shapes: Shapes) -> None:
    a, b, c = shapes[:3]
    if a is None or b is None or c is None or len(a) != 2 or len(b) != 2:
        return
    product = (a[1 if node.attributes.get("transA", 0) else 0], b[0 if node.attributes.get("transB", 0) else 1])
    if node.version < 7 and not node.attributes.get("broadcast", 0):
        _equal(node, "C (without broadcast)", c, product)
    elif not _broadcastable(c, product):
        fail(node, f"C of shape {list(c)} can't be broadcast to the product's shape {list(product)}")


@requires("Tile")
def tile(node: Node, shapes: Shapes) -> None:
    if node.version >= 6 and shapes[0] is not None:
        _equal(node, "the repeats", shapes[1], (len(shapes[0]),))


@requires("LayerNormalization", "RMSNormalization")
def layer_normalization(node: Node, shapes: Shapes) -> None:
    x = shapes[0]
    for shape, what in zip(shapes[1:3], ("the scale", "the bias"), strict=True):
        if x is not None and shape is not None and not _broadcastable(shape, x):
            fail(node, f"{what} of shape {list(shape)} can't be broadcast to an input of shape {list(x)}")


@requires("InstanceNormalization")
def instance_normalization(node: Node, shapes: Shapes) -> None:
    x, scale, bias = shapes[:3]
    if x is None:
        return
    if len(x) < 2:
        fail(node, f"the input has shape {list(x)}, expected 2 or more dimensions")
    _equal(node, "the scale", scale, x[1:2])
    _equal(node, "the bias", bias, x[1:2])


@requires("Clip")
def clip(node: Node, shapes: Shapes) -> None:
    for shape, what in zip(shapes[1:3], ("min", "max"), strict=True):
        if shape is not None and math.prod(shape) != 1:
            fail(node, f"{what} must be a scalar, but has shape {list(shape)}")


@requires("Dropout")
def dropout(node: Node, shapes: Shapes) -> None:
    ratio = node.attributes.get("ratio", 0.5)
    if not 0 <= ratio < 1:
        fail(node, f"ratio is {ratio}; it must lie in [0, 1)")
    for shape, what in zip(shapes[1:3], ("the ratio", "training_mode"), strict=True):
        if shape is not None and math.prod(shape) != 1:
            fail(node, f"{what} must be a scalar, but has shape {list(shape)}")


@requires("GroupNormalization")
def group_normalization(node: Node, shapes: Shapes) -> None:
    x, groups = shapes[0], node.attributes.get("num_groups", 1)
    if x is not None and (len(x) < 2 or groups < 1 or x[1] % groups):
        fail(node, f"{groups} groups do not divide the channels of an input of shape {list(x)}")


@requires("MaxPool", "AveragePool", "LpPool")
def pool(node: Node, shapes: Shapes) -> None:
    _auto_pad(node)
    if node.op_type == "LpPool":
        power(node, shapes)


@requires("GlobalLpPool")
def power(node: Node, shapes: Shapes) -> None:
    if not node.attributes.get("p", 2) > 0:
        fail(node, f"p is {node.attributes['p']}, expected a number above 0")


def _auto_pad(node: Node) -> None:
    _one_of(node, "auto_pad", "NOTSET", ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER", ""))


@requires("Gelu")
def gelu(node: Node, shapes: Shapes) -> None:
    _one_of(node, "approximate", "none", ("none", "tanh"))


@requires("BiasGelu", "FastGelu", domain="com.microsoft")
def bias_gelu(node: Node, shapes: Shapes) -> None:
    if shapes[0] is not None:
        _equal(node, "the bias", shapes[1], shapes[0][-1:])


@requires("DepthToSpace", "SpaceToDepth")
def blocks(node: Node, shapes: Shapes) -> None:
    _one_of(node, "mode", "DCR", ("DCR", "CRD"))


@requires("Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "Equal", "Less", "Greater")
def old_broadcast(node: Node, shapes: Shapes) -> None:
    """Before opset 7 shapes are equal unless the node says `broadcast`."""
    a, b = shapes[:2]
    if node.version < 7 and not node.attributes.get("broadcast", 0) and a is not None and b is not None:
        _equal(node, "the second input (without broadcast)", b, a)


@requires("Reshape")
def reshape(node: Node, shapes: Shapes) -> None:
    """A shape without dimensions is that of one element."""
    if shapes[0] is not None and shapes[1] == (0,) and math.prod(shapes[0]) != 1:
        fail(node, f"shape {list(shapes[0])} can't become []")


@requires("Split")
def split(node: Node, shapes: Shapes) -> None:
    parts = node.attributes.get("num_outputs")
    if parts is not None and parts != len(node.outputs):
        fail(node, f"num_outputs is {parts}, but the node has {len(node.outputs)} outputs")


@requires("GlobalMaxPool")
def global_max_pool(node: Node, shapes: Shapes) -> None:
    x = shapes[0]
    if x is not None and math.prod(x[:2]) and not math.prod(x[2:]):
        fail(node, f"an input of shape {list(x)} has no elements to take the maximum of")


@requires("Attention")
def attention(node: Node, shapes: Shapes) -> None:
    """Batches, lengths and head sizes that query, key, value and past must share."""
    q, k, v, mask, past_key, past_value = shapes[:6]
    if q is None or k is None or v is None:
        return
    heads, shared = node.attributes.get("q_num_heads"), node.attributes.get("kv_num_heads")
    split = [_heads(node, x, n) for x, n in ((q, heads), (k, shared), (v, shared))]
    (batch, n, _, size), key, value = split
    _equal(node, "the key, split into heads,", key, (batch, value[1], value[2], size))
    if value[0] != batch:
        fail(node, f"the query has batch {batch}, the value {value[0]}")
    if not value[1] or n % value[1]:
        fail(node, f"{n} query heads are not a multiple of {value[1]} key and value heads")
    if mask is not None and not _broadcastable(mask[:-1], (batch, n, split[0][2])):
        fail(node, f"a mask of shape {list(mask)} can't be broadcast to {n} heads of {split[0][2]} queries")
    if past_key is not None and past_value is not None:
        past = past_key[2] if len(past_key) == 4 else 0
        _equal(node, "the past key", past_key, (batch, value[1], past, size))
        _equal(node, "the past value", past_value, (batch, value[1], past, value[3]))


def _heads(node: Node, shape: Shape, heads: int | None) -> tuple[int, int, int, int]:
    """(batch, heads, length, size) of an input of rank 3 or 4."""
    if len(shape) == 4:
        return shape  # type: ignore[return-value]
    if len(shape) != 3 or not heads or heads < 0 or shape[2] % heads:
        fail(node, f"an input of shape {list(shape)} can't be split into {heads} heads")
    return shape[0], heads, shape[1], shape[2] // heads


@requires("QuantizeLinear", "DequantizeLinear")
@requires("QuantizeLinear", "DequantizeLinear", domain="com.microsoft")
def quantize(node: Node, shapes: Shapes) -> None:
    """A scale per tensor, per slice of an axis, or per block of one."""
    x, scale, zero = shapes[:3]
    if x is None or scale is None:
        return
    if math.prod(scale) == 1 and (zero is None or math.prod(zero) == 1):
        return
    _equal(node, "the zero point", zero, scale)
    axis, block = node.attributes.get("axis", 1), node.attributes.get("block_size", 0)
    if len(x) == 1:  # whatever the default says
        axis = 0
    if not -len(x) <= axis < len(x):
        fail(node, f"axis {axis} is outside [{-len(x)}, {len(x) - 1}]")
    axis %= len(x)
    if block > 0:
        _equal(node, "the scale", scale, (*x[:axis], -(-x[axis] // block), *x[axis + 1 :]))
    else:
        _equal(node, "the scale", scale, x[axis : axis + 1])
