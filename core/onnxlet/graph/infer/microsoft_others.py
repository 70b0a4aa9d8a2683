"""The rest of com.microsoft: shapes, images, hashing, text generation, linear algebra."""

from __future__ import annotations

import numpy as np

from ..ir import STRING, Dim, Node, TensorType, Type
from .common import (
    BOOL,
    INT64,
    Constants,
    Inputs,
    Shape,
    axis_of,
    broadcast,
    dims,
    dtype_of,
    ints,
    present,
    product,
    same,
    shape_of,
    tensor,
    unknown_rank,
)
from .matrix import matmul, product_shape, swapped
from .reduce import reduced
from .registry import infer
from .shape import gather_nd, pad, range_
from .windows import conv_transpose, grid_sample, pool

MS = "com.microsoft"
INT32, UINT32 = np.dtype(np.int32), np.dtype(np.uint32)

# The same as the standard's, under another domain.
infer("GatherND", domain=MS)(gather_nd)
infer("GemmFastGelu", domain=MS)(matmul)
infer("GridSample", domain=MS)(grid_sample)
infer("SampleOp", domain=MS)(same)


@infer("MaxpoolWithMask", domain=MS)
def maxpool_with_mask(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    plain = Node("MaxPool", node.inputs[:1], node.outputs, node.attributes, version=12, name=node.name)
    return list(pool(plain, inputs, constants))


@infer("SparseToDenseMatMul", domain=MS)
def sparse_to_dense_mat_mul(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    a, b = shape_of(node, inputs, 0), shape_of(node, inputs, 1)
    a = swapped(a) if node.attributes.get("transA", 0) else a
    b = swapped(b) if node.attributes.get("transB", 0) else b
    return [TensorType(dtype_of(node, inputs, 1), product_shape(node, a, b))]


@infer("BifurcationDetector", domain=MS)
def bifurcation_detector(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    """How many tokens were predicted right depends on their values."""
    current = tensor(node, inputs, 1)
    tokens = TensorType(current.dtype, (None,)) if present(node, 3) else current
    return [tokens, tensor(node, inputs, 2)]


@infer("WordConvEmbedding", domain=MS)
def word_conv_embedding(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    words, weights = shape_of(node, inputs, 0, rank=2), shape_of(node, inputs, 1, rank=4)
    shape = (words[0] if words else None, weights[0] if weights else None)
    return [TensorType(dtype_of(node, inputs, 1), shape)]


@infer("BitmaskDropout", "BitmaskBiasDropout", domain=MS)
def bitmask_dropout(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    x = tensor(node, inputs, 0)
    size = None if x.shape is None else product(x.shape)
    return [x, TensorType(UINT32, (-(-size // 32) if isinstance(size, int) else None,))]


@infer("Pad", domain=MS)
def pad_microsoft(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    return list(pad(Node("Pad", node.inputs, node.outputs, {}, version=13, name=node.name), inputs, constants))


@infer("Range", domain=MS)
def range_microsoft(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    if len(inputs) < 3 or inputs[2] is None:
        dtype = dtype_of(node, inputs, 0)
        return list(range_(node, inputs, [*constants[:2], np.ones((), dtype if dtype is not None else np.int64)]))
    return list(range_(node, inputs, constants))


@infer("Unique", domain=MS)
def unique(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    """Values, where each input is among them, and how often each is there."""
    x, index = tensor(node, inputs, 0), TensorType(INT64, (None,))
    return [TensorType(x.dtype, (None,)), TensorType(INT64, x.shape), index]


@infer("ExpandDims", domain=MS)
def expand_dims(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    x, axis = tensor(node, inputs, 0), ints(constants, 1)
    if x.shape is None:
        return [x]
    if not axis:
        return [TensorType(x.dtype, unknown_rank(len(x.shape) + 1))]
    at = axis_of(node, axis[0], len(x.shape) + 1)
    return [TensorType(x.dtype, (*x.shape[:at], 1, *x.shape[at:]))]


@infer("CDist", domain=MS)
def cdist(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    a, b = shape_of(node, inputs, 0, rank=2), shape_of(node, inputs, 1, rank=2)
    return [TensorType(dtype_of(node, inputs, 0), (a[0] if a else None, b[0] if b else None))]


@infer("ComplexMul", "ComplexMulConj", domain=MS)
def complex_product(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    return [TensorType(dtype_of(node, inputs, 0), broadcast(node, inputs))]


@infer("Rfft", "Irfft", domain=MS)
def real_transform(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    """Real and imaginary parts lie on a last axis of 2."""
    x = tensor(node, inputs, 0)
    if not x.shape:
        return [TensorType(x.dtype, None)]
    if node.op_type == "Rfft":
        last = x.shape[-1] // 2 + 1 if isinstance(x.shape[-1], int) else None
        return [TensorType(x.dtype, (*x.shape[:-1], last, 2))]
    if len(x.shape) < 2:
        return [TensorType(x.dtype, None)]
    last = 2 * (x.shape[-2] - 1) if isinstance(x.shape[-2], int) else None
    return [TensorType(x.dtype, (*x.shape[:-2], last))]


@infer("UnfoldTensor", domain=MS)
def unfold_tensor(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    x = tensor(node, inputs, 0)
    if x.shape is None:
        return [x]
    axis, size = axis_of(node, node.attributes.get("dim", -1), len(x.shape)), node.attributes["size"]
    d, step = x.shape[axis], node.attributes.get("step", 1)
    slices = (d - size) // step + 1 if isinstance(d, int) and step > 0 else None
    return [TensorType(x.dtype, (*x.shape[:axis], slices, *x.shape[axis + 1 :], size))]


@infer("IsAllFinite", domain=MS)
def is_all_finite(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    return [TensorType(BOOL, ())]


@infer("TorchEmbedding", domain=MS)
def torch_embedding(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    table, indices = shape_of(node, inputs, 0, least=1), shape_of(node, inputs, 1)
    shape = None if table is None or indices is None else (*indices, *table[1:])
    return [TensorType(dtype_of(node, inputs, 0), shape)]


@infer("ConvTransposeWithDynamicPads", domain=MS)
def conv_transpose_with_dynamic_pads(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    pads = ints(constants, 2)
    if pads is None:
        x = shape_of(node, inputs, 0)
        return [TensorType(dtype_of(node, inputs, 0), unknown_rank(None if x is None else len(x)))]
    attributes = {**node.attributes, "pads": pads}
    static = Node("ConvTranspose", node.inputs[:2], node.outputs, attributes, version=11, name=node.name)
    return list(conv_transpose(static, inputs[:2], constants[:2]))


@infer("CropAndResize", domain=MS)
def crop_and_resize(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    x, rois = shape_of(node, inputs, 0, rank=4), shape_of(node, inputs, 1, rank=2)
    size = dims(constants, 3) or [None, None]
    return [TensorType(dtype_of(node, inputs, 0), (rois[0] if rois else None, x[1] if x else None, *size))]


@infer("MurmurHash3", domain=MS)
def murmur_hash3(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    return [TensorType(UINT32 if node.attributes.get("positive", 1) else INT32, shape_of(node, inputs, 0))]


@infer("NGramRepeatBlock", domain=MS)
def n_gram_repeat_block(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    return [tensor(node, inputs, 1)]


@infer("RelativePositionBias", domain=MS)
def relative_position_bias(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    table = shape_of(node, inputs, 0, rank=2)
    lengths: list[Dim] = [(dims(constants, i) or [None])[0] for i in (1, 2)]
    return [TensorType(dtype_of(node, inputs, 0), (1, table[1] if table else None, *lengths))]


@infer("DynamicTimeWarping", domain=MS)
def dynamic_time_warping(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    return [TensorType(INT32, (2, None))]


@infer("MulInteger", domain=MS)
def mul_integer(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    return [TensorType(INT32, broadcast(node, inputs, (0, 2)))]


@infer("ReduceSumInteger", domain=MS)
def reduce_sum_integer(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    x = tensor(node, inputs, 0)
    keep = bool(node.attributes.get("keepdims", 1))
    dtype = None if x.dtype is None else UINT32 if x.dtype.kind == "u" else INT32
    return [TensorType(dtype, reduced(node, x.shape, list(node.attributes["axes"]), keep))]


@infer("Tokenizer", domain=MS)
def tokenizer(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    x = shape_of(node, inputs, 0)
    return [TensorType(STRING, None if x is None else (*x, None))]


@infer("GatherBlockQuantized", domain=MS)
def gather_block_quantized(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    data, indices = shape_of(node, inputs, 0), shape_of(node, inputs, 1)
    dtype = dtype_of(node, inputs, 2)
    if not data or indices is None:
        return [TensorType(dtype, None)]
    axis = axis_of(node, node.attributes.get("gather_axis", 0), len(data))
    per_byte = 8 // node.attributes.get("bits", 4) if dtype_of(node, inputs, 0) == np.uint8 else 1
    rows: Shape = (*data[:-1], product((data[-1], per_byte)))
    return [TensorType(dtype, (*rows[:axis], *indices, *rows[axis + 1 :]))]
