"""Contributed operators of onnxruntime (domain com.microsoft), which its optimiser and exporters write."""

from __future__ import annotations

import numpy as np

from ...model.dtypes import dtype_of as dtype_of_number
from ..ir import Dim, Node, TensorType, Type
from .common import (
    FLOAT,
    Constants,
    Inputs,
    Shape,
    axis_of,
    broadcast,
    dtype_of,
    fail,
    ints,
    present,
    product,
    shape_of,
    tensor,
)
from .matrix import gemm_shape, part_of, product_shape, swapped, total_of
from .reduce import reduced
from .registry import infer
from .windows import convolution, per_axis, window_sizes

MS = "com.microsoft"
INT32 = np.dtype(np.int32)


@infer(
    "Gelu", "FastGelu", "QuickGelu", "BiasGelu", "GroupNorm", "RotaryEmbedding", "BiasSoftmax",
    "Inverse", "Trilu", "MoE", "QMoE", "GatedRMSNorm", "GatedAdd", "MRotaryEmbedding", "MoEPacked",
    "LongformerAttention", domain=MS,
)  # fmt: skip
def like_first(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    return [tensor(node, inputs, 0)]


@infer("SwiGLU", domain=MS)
def swi_glu(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    """Without a second input, the first holds both halves."""
    x = tensor(node, inputs, 0)
    if present(node, 1) or not x.shape:
        return [x]
    return [TensorType(x.dtype, (*x.shape[:-1], x.shape[-1] // 2 if isinstance(x.shape[-1], int) else None))]


@infer("BiasDropout", domain=MS)
def bias_dropout(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    x = tensor(node, inputs, 0)
    return [x, TensorType(np.dtype(bool), x.shape)]


@infer("GatedRelativePositionBias", domain=MS)
def gated_relative_position_bias(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    x, rel_pos = tensor(node, inputs, 0), shape_of(node, inputs, 2, rank=4)
    batch = x.shape[0] if x.shape and len(x.shape) == 3 else None
    return [TensorType(x.dtype, None if rel_pos is None else (batch, *rel_pos[1:]))]


@infer("RemovePadding", domain=MS)
def remove_padding(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    batch, length, size = shape_of(node, inputs, 0, rank=3) or (None, None, None)
    starts = batch + 1 if isinstance(batch, int) else None
    return [
        TensorType(dtype_of(node, inputs, 0), (None, size)),
        TensorType(INT32, (batch, length)),
        TensorType(INT32, (starts,)),
        TensorType(INT32, (1,)),
    ]


@infer("RestorePadding", domain=MS)
def restore_padding(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    tokens, places = shape_of(node, inputs, 0, rank=2), shape_of(node, inputs, 1, rank=2)
    return [TensorType(dtype_of(node, inputs, 0), (*(places or (None, None)), tokens[1] if tokens else None))]


@infer("PackedAttention", domain=MS)
def packed_attention(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    tokens, weights = shape_of(node, inputs, 0, rank=2), shape_of(node, inputs, 1, rank=2)
    sizes, width = node.attributes.get("qkv_hidden_sizes"), weights[1] if weights else None
    size = sizes[2] if sizes else width // 3 if isinstance(width, int) else None
    return [TensorType(dtype_of(node, inputs, 0), (tokens[0] if tokens else None, size))]


@infer("SkipGroupNorm", domain=MS)
def skip_group_norm(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    """The result, and the sum before normalisation."""
    return [tensor(node, inputs, 0)] * 2


@infer("BiasAdd", "BiasSplitGelu", domain=MS)
def bias(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    x = tensor(node, inputs, 0)
    if node.op_type == "BiasAdd" or x.shape is None:
        return [x]
    return [TensorType(x.dtype, (*x.shape[:-1], x.shape[-1] // 2 if isinstance(x.shape[-1], int) else None))]


@infer("FusedConv", domain=MS)
def fused_conv(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    shape = convolution(node, shape_of(node, inputs, 0), shape_of(node, inputs, 1))
    return [TensorType(dtype_of(node, inputs, 0), shape)]


def last_channels(shape: Shape) -> Shape:
    return None if shape is None else (shape[0], *shape[2:], shape[1])


def first_channels(shape: Shape) -> Shape:
    return None if shape is None else (shape[0], shape[-1], *shape[1:-1])


@infer("NhwcConv", "NhwcFusedConv", domain=MS)
def nhwc_conv(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    # Weights are (M, *kernel, C / group) in NhwcConv, (M, C / group, *kernel) in NhwcFusedConv.
    w = shape_of(node, inputs, 1)
    w = first_channels(w) if node.op_type == "NhwcConv" else w
    shape = convolution(node, first_channels(shape_of(node, inputs, 0)), w)
    return [TensorType(dtype_of(node, inputs, 0), last_channels(shape))]


@infer("FusedMatMul", "FusedMatMulActivation", "TransposeMatMul", domain=MS)
def fused_matmul(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    a, b = shape_of(node, inputs, 0), shape_of(node, inputs, 1)
    if node.attributes.get("transBatchA", 0) and a is not None:
        a = (*a[1:-1], a[0], a[-1])
    if node.attributes.get("transBatchB", 0) and b is not None:
        b = (*b[1:-1], b[0], b[-1])
    a = swapped(a) if node.attributes.get("transA", 0) else a
    b = swapped(b) if node.attributes.get("transB", 0) else b
    return [TensorType(dtype_of(node, inputs, 0), product_shape(node, a, b))]


@infer("FusedGemm", domain=MS)
def fused_gemm(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    return [TensorType(dtype_of(node, inputs, 0), gemm_shape(node, inputs))]


@infer("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", domain=MS)
def skip_layer_normalization(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    x = tensor(node, inputs, 0)
    statistics = TensorType(FLOAT, None if x.shape is None else (*x.shape[:-1], 1))
    return [x, statistics, statistics, x]


@infer("EmbedLayerNormalization", "QEmbedLayerNormalization", domain=MS)
def embed_layer_normalization(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    ids, table = shape_of(node, inputs, 0, rank=2), shape_of(node, inputs, 2, rank=2)
    batch, length = ids or (None, None)
    dtype = dtype_of(node, inputs, 2) if node.op_type[0] != "Q" else dtype_of(node, inputs, 8)
    y = TensorType(dtype, (batch, length, table[1] if table else None))
    return [y, TensorType(INT32, (batch,)), y]


@infer("Attention", "QAttention", domain=MS)
def attention(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    quantized = node.op_type == "QAttention"
    x, w = shape_of(node, inputs, 0, rank=3), shape_of(node, inputs, 1, rank=2)
    dtype = dtype_of(node, inputs, 3 if quantized else 0)
    heads, sizes = node.attributes["num_heads"], node.attributes.get("qkv_hidden_sizes")
    width: Dim = sizes[2] if sizes else w[1] // 3 if w is not None and isinstance(w[1], int) else None
    batch, length = (None, None) if x is None else (x[0], x[1])
    at = 8 if quantized else 4
    past = shape_of(node, inputs, at, rank=5)
    total: Dim = None if present(node, at) else length
    if past is not None:
        shared = not quantized and node.attributes.get("past_present_share_buffer", 0)
        total = past[3] if shared else total_of(past[3], length)
    # Keys and values of different sizes can't be one tensor.
    alike = not sizes or sizes[1] == sizes[2]
    state: Shape = (2, batch, heads, total, part_of(width, heads)) if alike else None
    return [TensorType(dtype, (batch, length, width)), TensorType(dtype, state)]


@infer("MultiHeadAttention", domain=MS)
def multi_head_attention(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    """The output, keys and values with the past, and the scores."""
    q, k, v = (shape_of(node, inputs, i) for i in range(3))
    dtype, heads = dtype_of(node, inputs, 0), node.attributes["num_heads"]
    if q is None:
        return [TensorType(dtype, (None, None, None))]
    batch, length = q[0], q[1]
    keys: Dim = None
    k_size: Dim = None
    v_size: Dim = None
    if len(q) == 5:  # query, key and value packed: (B, S, heads, 3, size)
        keys, k_size, v_size = length, q[4], q[4]
    elif k is not None and len(k) == 5:  # key and value packed: (B, L, heads, 2, size)
        keys, k_size, v_size = k[1], k[4], k[4]
    elif k is not None and v is not None:  # each (B, L, heads * size), or a cache (B, heads, L, size)
        keys = k[2] if len(k) == 4 else k[1]
        k_size = k[3] if len(k) == 4 else part_of(k[2], heads)
        v_size = v[3] if len(v) == 4 else part_of(v[2], heads)
    held = keys
    if present(node, 6):
        past = shape_of(node, inputs, 6, rank=4)
        filled = ints(constants, 8)
        if present(node, 8):  # the past is a buffer, of which that much is filled
            held = past[2] if past is not None else None
            keys = total_of(filled[0], keys) if filled else None
        else:
            held = keys = total_of(past[2], keys) if past is not None else None
    return [
        TensorType(dtype, (batch, length, product((heads, v_size)))),
        TensorType(dtype, (batch, heads, held, k_size)),
        TensorType(dtype, (batch, heads, held, v_size)),
        TensorType(dtype, (batch, heads, length, keys)),
    ]


@infer("GroupQueryAttention", domain=MS)
def group_query_attention(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    q = shape_of(node, inputs, 0, rank=3)
    dtype = dtype_of(node, inputs, 0)
    heads, kv_heads = node.attributes["num_heads"], node.attributes["kv_num_heads"]
    batch, length, width = q or (None, None, None)
    if not present(node, 1):  # query, key and value packed
        size = part_of(width, heads + 2 * kv_heads)
        width = product((heads, size))
    size = part_of(width, heads)
    # How long the cache gets depends on the total length, unless its buffer is shared and longer.
    past = shape_of(node, inputs, 3, rank=4) if present(node, 3) else (0, 0, 0, size)
    known = ints(constants, 6)
    total: Dim = known[0] if known else None
    capacity: Dim = None
    if past is not None and isinstance(past[2], int):
        held = past[2] if node.attributes.get("sliding_window_cache", 0) else 0
        capacity = held or (max(total, past[2]) if isinstance(total, int) else None)
    # Numbers of four bits are stored two to a byte.
    stored = size if past is None else past[3]
    cache = TensorType(dtype_of(node, inputs, 3) or dtype, (batch, kv_heads, capacity, stored))
    scores = TensorType(dtype, (batch, heads, length, total))
    return [TensorType(dtype, (batch, length, width)), cache, cache, scores]


@infer("MatMulFpQ4", domain=MS)
def matmul_fp_q4(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    a, shape = tensor(node, inputs, 0), ints(constants, 2)
    columns = shape[1] if shape and len(shape) == 2 else None
    return [TensorType(a.dtype, None if not a.shape else (*a.shape[:-1], columns))]


@infer("MatMulBlockQuantizedFp4Weight", "MatMulBlockQuantizedFp8Weight", domain=MS)
def matmul_block_quantized(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    a, b = tensor(node, inputs, 0), shape_of(node, inputs, 1, rank=2)
    return [TensorType(a.dtype, None if not a.shape else (*a.shape[:-1], b[0] if b else None))]


@infer("GemmFloat8", domain=MS)
def gemm_float8(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    a, b = shape_of(node, inputs, 0, rank=2), shape_of(node, inputs, 1, rank=2)
    a = swapped(a) if node.attributes.get("transA", 0) else a
    b = swapped(b) if node.attributes.get("transB", 0) else b
    return [TensorType(dtype_of_number(node.attributes.get("dtype", 1)), product_shape(node, a, b))]


@infer("GatherPacked", domain=MS)
def gather_packed(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    indices = shape_of(node, inputs, 1)
    shape = None if indices is None else (*indices, node.attributes["K"])
    return [TensorType(dtype_of_number(node.attributes.get("output_dtype", 16)), shape)]


@infer("MatMulNBits", "MatMulBnb4", "MatMulNBitsQLoRA", "MatMulPacked", domain=MS)
def matmul_n_bits(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    a = shape_of(node, inputs, 0, least=1)
    inner, columns = node.attributes["K"], node.attributes["N"]
    if a is not None and isinstance(a[-1], int) and a[-1] != inner:
        fail(node, f"input 0 has {a[-1]} columns, the weights have K = {inner} rows")
    return [TensorType(dtype_of(node, inputs, 0), None if a is None else (*a[:-1], columns))]


@infer("MatMulNBitsQkv", "MatMulNBitsMlp", domain=MS)
def joined_n_bits(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    """Products of one input that differ in their numbers of columns, and that input's sum with a skip."""
    a = tensor(node, inputs, 0)
    names = ("N",) if node.op_type == "MatMulNBitsMlp" else ("Nq", "Nkv", "Nkv")
    shapes = [None if a.shape is None else (*a.shape[:-1], node.attributes[name]) for name in names]
    types: list[Type | None] = [TensorType(a.dtype, shape) for shape in shapes]
    return [*types, a][: len(node.outputs)]


@infer("DynamicQuantizeMatMul", domain=MS)
def dynamic_quantize_matmul(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    shape = product_shape(node, shape_of(node, inputs, 0), shape_of(node, inputs, 1))
    return [TensorType(dtype_of(node, inputs, 0), shape)]


@infer("MatMulIntegerToFloat", domain=MS)
def matmul_integer_to_float(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    shape = product_shape(node, shape_of(node, inputs, 0), shape_of(node, inputs, 1))
    return [TensorType(dtype_of(node, inputs, 2), shape)]


@infer("QGemm", domain=MS)
def qgemm(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    dtype = dtype_of(node, inputs, 8) if present(node, 8) else FLOAT
    return [TensorType(dtype, gemm_shape(node, inputs, b_index=3, c_index=6))]


@infer("QLinearAdd", "QLinearMul", domain=MS)
def qlinear_arithmetic(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    return [TensorType(dtype_of(node, inputs, 0), broadcast(node, inputs, (0, 3)))]


@infer("QLinearConcat", domain=MS)
def qlinear_concat(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    """Inputs are the output's scale and zero point, then data, scale and zero point of each part."""
    dtype = dtype_of(node, inputs, 1)
    parts = [shape_of(node, inputs, i) for i in range(2, len(inputs), 3)]
    first = parts[0] if parts else None
    if first is None or any(p is None or len(p) != len(first) for p in parts):
        return [TensorType(dtype, None)]
    axis = axis_of(node, node.attributes["axis"], len(first))
    column = [p[axis] for p in parts if p is not None]
    total = sum(d for d in column if isinstance(d, int)) if all(isinstance(d, int) for d in column) else None
    return [TensorType(dtype, (*first[:axis], total, *first[axis + 1 :]))]


@infer("QLinearWhere", domain=MS)
def qlinear_where(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    return [TensorType(dtype_of(node, inputs, 1), broadcast(node, inputs, (0, 1, 4)))]


@infer("QLinearGlobalAveragePool", domain=MS)
def qlinear_global_average_pool(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    x = shape_of(node, inputs, 0, least=3)
    dtype = dtype_of(node, inputs, 0)
    if x is None:
        return [TensorType(dtype, None)]
    ones = (1,) * (len(x) - 2)
    last = node.attributes.get("channels_last", 0)
    return [TensorType(dtype, (x[0], *ones, x[-1]) if last else (x[0], x[1], *ones))]


@infer("QLinearAveragePool", "NhwcMaxPool", domain=MS)
def channels_last_pool(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    x = shape_of(node, inputs, 0, least=3)
    dtype = dtype_of(node, inputs, 0)
    if x is None:
        return [TensorType(dtype, None)]
    last = node.op_type == "NhwcMaxPool" or node.attributes.get("channels_last", 0)
    rank = len(x) - 2
    kernel, dilations = per_axis(node, "kernel_shape", rank), per_axis(node, "dilations", rank)
    sizes = window_sizes(node, x[1:-1] if last else x[2:], kernel, dilations, bool(node.attributes.get("ceil_mode", 0)))
    return [TensorType(dtype, (x[0], *sizes, x[-1]) if last else (x[0], x[1], *sizes))]


@infer("QLinearReduceMean", domain=MS)
def qlinear_reduce_mean(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    keep = bool(node.attributes.get("keepdims", 1))
    shape = reduced(node, shape_of(node, inputs, 0), node.attributes.get("axes"), keep)
    return [TensorType(dtype_of(node, inputs, 0), shape)]


@infer("DecoderMaskedMultiHeadAttention", domain=MS)
def decoder_masked_multi_head_attention(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    """The output, the caches, and the scores."""
    dtype, heads = dtype_of(node, inputs, 0), node.attributes["num_heads"]
    batch, length, width = shape_of(node, inputs, 0, rank=3) or (None, None, None)
    k, v = shape_of(node, inputs, 1), shape_of(node, inputs, 2)
    packed = not present(node, 1) or not present(node, 2)
    size = width // 3 if packed and isinstance(width, int) else None if packed else width
    past = shape_of(node, inputs, 5, rank=4)
    if not present(node, 5):
        across = None if k is None or len(k) != 4 else k[2]
        return [TensorType(dtype, (batch, length, size)), None, None, TensorType(dtype, (batch, heads, length, across))]
    if not packed and v is not None and len(v) == 3:
        size = v[2]
    filled = ints(constants, 7) if node.attributes.get("past_present_share_buffer", 0) else None
    shared = bool(node.attributes.get("past_present_share_buffer", 0))
    before: Dim = filled[0] if filled else None if shared or past is None else past[2]
    total = before + 1 if isinstance(before, int) else None
    cache = None if past is None else (*past[:2], past[2] if shared else total, past[3])
    return [
        TensorType(dtype, (batch, length, size)),
        TensorType(dtype, cache),
        TensorType(dtype, cache),
        TensorType(dtype, (batch, heads, length, total)),
    ]


@infer("DecoderMaskedSelfAttention", domain=MS)
def decoder_masked_self_attention(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    x, w, past = shape_of(node, inputs, 0, rank=3), shape_of(node, inputs, 1, rank=2), shape_of(node, inputs, 4, rank=5)
    dtype = dtype_of(node, inputs, 0)
    width = w[1] // 3 if w is not None and isinstance(w[1], int) else None
    if past is not None and not node.attributes.get("past_present_share_buffer", 0):
        past = (*past[:3], past[3] + 1 if isinstance(past[3], int) else None, past[4])
    return [TensorType(dtype, (*(x[:2] if x else (None, None)), width)), TensorType(dtype, past)]


@infer("DecoderAttention", domain=MS)
def decoder_attention(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    """How long the caches get depends on the flags."""
    q, heads = tensor(node, inputs, 0), node.attributes["num_heads"]
    batch, width = (q.shape[1], q.shape[2]) if q.shape and len(q.shape) == 3 else (None, None)
    cache = TensorType(q.dtype, (batch, heads, None, part_of(width, heads)))
    return [q, cache, cache]


@infer("PackedMultiHeadAttention", domain=MS)
def packed_multi_head_attention(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    q, v = shape_of(node, inputs, 0), shape_of(node, inputs, 2)
    width: Dim = v[1] if v else None
    if q is not None and len(q) == 4:
        width = product((q[1], q[3]))
    return [TensorType(dtype_of(node, inputs, 0), (q[0] if q else None, width))]


@infer("SparseAttention", domain=MS)
def sparse_attention(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    q, dtype = shape_of(node, inputs, 0, rank=3), dtype_of(node, inputs, 0)
    heads, kv_heads = node.attributes["num_heads"], node.attributes["kv_num_heads"]
    batch, length, width = q or (None, None, None)
    if not present(node, 1):
        width = product((heads, part_of(width, heads + 2 * kv_heads)))
    return [TensorType(dtype, (batch, length, width)), tensor(node, inputs, 3), tensor(node, inputs, 4)]


@infer("PagedAttention", "SparsePagedAttention", domain=MS)
def paged_attention(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    q = shape_of(node, inputs, 0, rank=2)
    heads, kv_heads = node.attributes["num_heads"], node.attributes["kv_num_heads"]
    tokens, width = q or (None, None)
    narrower = node.attributes.get("v_head_size", 0)
    if narrower:
        width = heads * narrower
    elif not present(node, 1):
        width = product((heads, part_of(width, heads + 2 * kv_heads)))
    return [TensorType(dtype_of(node, inputs, 0), (tokens, width)), tensor(node, inputs, 3), tensor(node, inputs, 4)]


@infer("DynamicSparseAttention", domain=MS)
def dynamic_sparse_attention(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    q, dtype = shape_of(node, inputs, 0, rank=3), dtype_of(node, inputs, 0)
    heads, kv_heads = node.attributes["num_heads"], node.attributes["kv_num_heads"]
    batch, length, width = q or (None, None, None)
    if not present(node, 1):
        width = product((heads, part_of(width, heads + 2 * kv_heads)))
    past = shape_of(node, inputs, 3, rank=4) if present(node, 3) else (batch, kv_heads, 0, part_of(width, heads))
    total = ints(constants, 10)
    capacity = max(total[0], past[2]) if total and past is not None and isinstance(past[2], int) else None
    cache = TensorType(dtype_of(node, inputs, 3) or dtype, None if past is None else (*past[:2], capacity, past[3]))
    y = TensorType(dtype_of_number(16) if node.attributes.get("output_bf16", 0) else dtype, (batch, length, width))
    return [y, cache, cache, TensorType(INT32, (1,))]
