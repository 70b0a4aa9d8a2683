"""Matrix products, attention, normalisation layers and losses."""

from __future__ import annotations

from ...model.dtypes import dtype_of as element_dtype
from ..ir import Dim, Node, TensorType, Type
from .common import (
    Constants,
    Inputs,
    Shape,
    axis_of,
    broadcast_shapes,
    dtype_of,
    fail,
    merge_dim,
    mismatch,
    present,
    product,
    same_dim,
    shape_of,
    show,
    tensor,
)
from .registry import infer


def product_shape(node: Node, a: Shape, b: Shape) -> Shape:
    """The shape of a matrix product as `numpy.matmul` defines it."""
    if a is None or b is None:
        return None
    if not a or not b:
        fail(node, f"shapes {show(a)} and {show(b)}: a matrix product takes no scalars")
    left: tuple[Dim, ...] = (1, *a) if len(a) == 1 else a
    right: tuple[Dim, ...] = (*b, 1) if len(b) == 1 else b
    same_dim(node, left[-1], right[-2], f"the inner dimensions of {show(a)} and {show(b)}")
    lead = broadcast_shapes(node, [left[:-2], right[:-2]])
    assert lead is not None
    return (*lead, *(() if len(a) == 1 else (left[-2],)), *(() if len(b) == 1 else (right[-1],)))


@infer("MatMul")
def matmul(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    shape = product_shape(node, shape_of(node, inputs, 0), shape_of(node, inputs, 1))
    return [TensorType(dtype_of(node, inputs, 0) or dtype_of(node, inputs, 1), shape)]


def swapped(shape: Shape) -> Shape:
    """The shape with its last two dimensions exchanged; vectors stay."""
    return shape if shape is None or len(shape) < 2 else (*shape[:-2], shape[-1], shape[-2])


@infer("FusedMatMul", domain="ai.onnxlet")
def fused_matmul(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    a, b = shape_of(node, inputs, 0), shape_of(node, inputs, 1)
    a = swapped(a) if node.attributes.get("transA", 0) else a
    b = swapped(b) if node.attributes.get("transB", 0) else b
    return [TensorType(dtype_of(node, inputs, 0), product_shape(node, a, b))]


@infer("FusedAttention", domain="ai.onnxlet")
def fused_attention(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    """The heads and rows of the queries, the size of the values; other operands may add to batch and heads."""
    dtype = dtype_of(node, inputs, 0)
    flags = node.attributes.get("heads_last", [0] * 4)
    q, k, v = (_heads_first(shape_of(node, inputs, i), flags[i]) for i in range(3))
    if q is None or k is None or v is None:
        return [TensorType(dtype, None)]
    if not len(q) == len(k) == len(v) or len(q) not in (3, 4):
        fail(node, f"queries, keys and values of shapes {show(q)}, {show(k)}, {show(v)}: expected rank 3 or 4 for all")
    same_dim(node, q[-1], k[-1], "the sizes of queries and keys")
    same_dim(node, k[-2], v[-2], "the numbers of keys and values")
    scores: list[Shape] = [(*q[:-1], k[-2])]
    scores += [(x[0], 1, 1, 1) for x in (k, v) if len(x) == 4]
    scores += [shape_of(node, inputs, i) for i in (3, 4) if present(node, i)]
    weights = broadcast_shapes(node, scores)
    y = None if weights is None else (*weights[:-1], v[-1])
    return [TensorType(dtype, _heads_first(y, flags[3]))]


def _heads_first(shape: Shape, last: int) -> Shape:
    """The shape with the two axes before the last exchanged, if `last`."""
    return shape if shape is None or not last or len(shape) < 3 else (*shape[:-3], shape[-2], shape[-3], shape[-1])


def gemm_shape(node: Node, inputs: Inputs, b_index: int = 1, c_index: int = 2) -> Shape:
    a, b = shape_of(node, inputs, 0, rank=2), shape_of(node, inputs, b_index, rank=2)
    a = swapped(a) if node.attributes.get("transA", 0) else a
    b = swapped(b) if node.attributes.get("transB", 0) else b
    if a is not None and b is not None:
        same_dim(node, a[1], b[0], f"the inner dimensions of {show(a)} and {show(b)}")
    result = (a[0] if a else None, b[1] if b else None)
    if present(node, c_index) and not (node.domain == "" and node.version < 7):
        c = shape_of(node, inputs, c_index)
        for d, wanted in zip((c or ())[::-1], result[::-1], strict=False):
            if isinstance(d, int) and isinstance(wanted, int) and d not in (1, wanted):
                mismatch(node, c_index, show(c), f"a shape that broadcasts to {show(result)}")
    return result


@infer("Gemm")
def gemm(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    return [TensorType(dtype_of(node, inputs, 0), gemm_shape(node, inputs))]


@infer("Det")
def det(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    x = shape_of(node, inputs, 0, least=2)
    if x is not None:
        same_dim(node, x[-2], x[-1], "rows and columns")
    return [TensorType(dtype_of(node, inputs, 0), None if x is None else x[:-2])]


@infer("Einsum")
def einsum(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    dtype = dtype_of(node, inputs, 0)
    equation = node.attributes["equation"].replace(" ", "")
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    if len(terms) != len(inputs):
        fail(node, f"the equation {equation!r} has {len(terms)} terms for {len(inputs)} inputs")
    sizes: dict[str, Dim] = {}
    ellipses: list[Shape] = []
    for i, term in enumerate(terms):
        shape = shape_of(node, inputs, i)
        if shape is None:
            return [TensorType(dtype, None)]
        before, dots, after = term.partition("...")
        if len(before) + len(after) > len(shape) or (not dots and len(before) != len(shape)):
            mismatch(node, i, tensor(node, inputs, i), f"one dimension per letter of {term!r}")
        for letter, d in [*zip(before, shape, strict=False), *zip(after[::-1], shape[::-1], strict=False)]:
            known = sizes.get(letter)
            if known == 1 or d == 1:  # einsum broadcasts
                sizes[letter] = d if known == 1 else known
                sizes[letter] = d if known is None and letter not in sizes else sizes[letter]
            else:
                sizes[letter] = same_dim(node, known, d, f"dimension {letter!r} of {equation!r}")
        if dots:
            ellipses.append(shape[len(before) : len(shape) - len(after)])
    lead = broadcast_shapes(node, ellipses) if ellipses else ()
    if not arrow:
        letters = left.replace(",", "").replace(".", "")
        right = ("..." if ellipses else "") + "".join(sorted(x for x in set(letters) if letters.count(x) == 1))
    before, dots, after = right.partition("...")
    unknown = [x for x in before + after if x not in sizes]
    if unknown or lead is None:
        fail(node, f"the equation {equation!r} gives {unknown}, which no term has")
    return [TensorType(dtype, (*(sizes[x] for x in before), *(lead if dots else ()), *(sizes[x] for x in after)))]


@infer("BatchNormalization")
def batch_normalization(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    x = tensor(node, inputs, 0)
    if x.shape is not None and len(x.shape) > 1:
        channels = x.shape[1]
        for i in range(1, min(5, len(inputs))):
            parameter = shape_of(node, inputs, i)
            if parameter is not None and len(parameter) == 1:
                same_dim(node, channels, parameter[0], f"the channels of {x} and the length of input {i}")
    statistics = [tensor(node, inputs, i) for i in (3, 4, 3, 4)]
    return [x, *statistics]


@infer("InstanceNormalization", "GroupNormalization", "RotaryEmbedding")
def like_first(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    return [tensor(node, inputs, 0)]


@infer("RMSNormalization")
def rms_normalization(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    """The result has the type of the scale, which may be wider."""
    return [TensorType(dtype_of(node, inputs, 1), tensor(node, inputs, 0).shape)]


@infer("SimplifiedLayerNormalization")
@infer("SimplifiedLayerNormalization", domain="com.microsoft")
def simplified_layer_normalization(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    x = tensor(node, inputs, 0)
    # The result has the type of the scale, which may be wider.
    return [TensorType(dtype_of(node, inputs, 1), x.shape), *_statistics(node, x, 1)]


@infer("LayerNormalization")
def layer_normalization(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    x = tensor(node, inputs, 0)
    return [x, *_statistics(node, x, 2)]


def _statistics(node: Node, x: TensorType, number: int) -> list[TensorType]:
    """The types of mean and inverse deviation: reduced from `axis` on, in the precision that stash_type asks for."""
    dtype = element_dtype(node.attributes.get("stash_type", 1))
    if x.shape is None:
        return [TensorType(dtype, None)] * number
    axis = axis_of(node, node.attributes.get("axis", -1), len(x.shape))
    return [TensorType(dtype, (*x.shape[:axis], *(1,) * (len(x.shape) - axis)))] * number


@infer("NegativeLogLikelihoodLoss")
def nll_loss(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    reduction = node.attributes.get("reduction", "mean")
    return [TensorType(dtype_of(node, inputs, 0), shape_of(node, inputs, 1) if reduction == "none" else ())]


@infer("SoftmaxCrossEntropyLoss")
def cross_entropy_loss(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    return [*nll_loss(node, inputs, constants), tensor(node, inputs, 0)]


@infer("Attention")
def attention(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    """Y, present key and value, and the scores. Inputs are (B, heads, length, size) or (B, length, heads * size)."""
    dtype = dtype_of(node, inputs, 0)
    q, k, v = (shape_of(node, inputs, i) for i in range(3))
    if q is None or k is None or v is None:
        return [TensorType(dtype, None)] * 4
    if not len(q) == len(k) == len(v) or len(q) not in (3, 4):
        fail(node, f"query, key and value of shapes {show(q)}, {show(k)}, {show(v)}: expected rank 3 or 4 for all")
    flat = len(q) == 3
    q_heads, kv_heads = node.attributes.get("q_num_heads"), node.attributes.get("kv_num_heads")
    if flat:
        if not q_heads or not kv_heads:
            fail(node, "inputs of rank 3 need the attributes q_num_heads and kv_num_heads")
        batch, length, heads, key_heads = q[0], q[1], q_heads, kv_heads
        key_length, k_size, v_size = k[1], part_of(k[2], kv_heads), part_of(v[2], kv_heads)
    else:
        batch, heads, length = q[:3]
        key_heads, key_length, k_size, v_size = k[1], k[2], k[3], v[3]
    past = shape_of(node, inputs, 4, rank=4)
    total = total_of(past[2], key_length) if past is not None else None if present(node, 4) else key_length
    y = (batch, length, product((heads, v_size))) if flat else (batch, heads, length, v_size)
    return [
        TensorType(dtype, y),
        TensorType(dtype, (batch, key_heads, total, k_size)),
        TensorType(dtype, (batch, key_heads, total, v_size)),
        TensorType(dtype, (batch, heads, length, total)),
    ]


def part_of(d: Dim, heads: int) -> Dim:
    return d // heads if isinstance(d, int) else None


def total_of(a: Dim, b: Dim) -> Dim:
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    return b if a == 0 else a if b == 0 else None


@infer("FlexAttention", domain="ai.onnx.preview")
def flex_attention(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    q, v = shape_of(node, inputs, 0, rank=4), shape_of(node, inputs, 2, rank=4)
    return [TensorType(dtype_of(node, inputs, 0), None if q is None else (*q[:3], None if v is None else v[3]))]


@infer("LinearAttention")
def linear_attention(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    """Output (B, T, q heads * d_v), state (B, kv heads, d_k, d_v)."""
    q, k, v = (shape_of(node, inputs, i, rank=3) for i in range(3))
    heads, kv_heads = node.attributes["q_num_heads"], node.attributes["kv_num_heads"]
    d_k = None if k is None else part_of(k[2], kv_heads)
    d_v = None if v is None else part_of(v[2], kv_heads)
    batch = None if q is None else q[0]
    past = tensor(node, inputs, 3)
    state_dtype = past.dtype if present(node, 3) else dtype_of(node, inputs, 0)
    state = merge(past.shape, (batch, kv_heads, d_k, d_v))
    output = (batch, None if q is None else q[1], product((heads, d_v)))
    return [TensorType(dtype_of(node, inputs, 0), output), TensorType(state_dtype, state)]


def merge(a: Shape, b: tuple[Dim, ...]) -> Shape:
    if a is None or len(a) != len(b):
        return b
    return tuple(merge_dim(x, y) for x, y in zip(a, b, strict=True))
