"""Weights quantised block by block (MatMulNBits, GatherBlockQuantized, ...), and products of narrow floats."""

from __future__ import annotations

import numpy as np

from ...model.dtypes import dtype_of, float_values, is_extended
from ..activation_table import activation as activation_named
from ..activations import gelu, relu
from ..common import check_axis, to_float32
from ..precision import narrow
from ..registry import op
from .layers import root_mean_square

MICROSOFT = "com.microsoft"


def unpack_bits(packed: np.ndarray, bits: int, count: int) -> np.ndarray:
    """Unsigned integers of 2, 3, 4 or 8 bits along the last axis, the lowest bits of a byte first; `count` of them."""
    if bits not in (2, 3, 4, 8):
        raise ValueError(f"bits is {bits}; 2, 3, 4 and 8 are known")
    if bits == 8:
        return packed[..., :count]
    if bits == 3:
        single = np.unpackbits(packed, axis=-1, count=3 * count, bitorder="little")
        return single.reshape(*packed.shape[:-1], count, 3) @ np.array([1, 2, 4], np.uint8)
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    values = (packed[..., None] >> shifts) & np.uint8((1 << bits) - 1)
    return values.reshape(*packed.shape[:-1], -1)[..., :count]


@op("MatMulNBits", domain=MICROSOFT)
def mat_mul_n_bits(
    a: np.ndarray,
    b: np.ndarray,
    scales: np.ndarray,
    zero_points: np.ndarray | None = None,
    g_idx: np.ndarray | None = None,
    bias: np.ndarray | None = None,
    *,
    K: int,
    N: int,
    accuracy_level: int = 0,
    bits: int = 4,
    block_size: int,
    weight_prepacked: int = 0,
):
    """A (..., K) times weights that B (N, blocks, bytes) packs, each block with a scale and a zero point."""
    if weight_prepacked:
        raise ValueError("weights packed for another runtime's device can't be read")
    blocks = -(-K // block_size)
    scale = to_float32(scales).reshape(N, blocks)
    values = unpack_bits(b.reshape(N, blocks, -1), bits, block_size).astype(np.float32)
    if zero_points is None:
        zeros = np.full((1, 1), 1 << (bits - 1), np.float32)
    elif zero_points.dtype == np.uint8:
        zeros = unpack_bits(zero_points.reshape(N, -1), bits, blocks).astype(np.float32)
    else:
        zeros = to_float32(zero_points).reshape(N, blocks)
    if g_idx is None:
        weights = ((values - zeros[..., None]) * scale[..., None]).reshape(N, -1)[:, :K]
    else:  # every row of the weights names its block
        group = g_idx[:K]
        weights = values.reshape(N, -1)[:, :K] - np.broadcast_to(zeros, (N, blocks))[:, group]
        weights = weights * scale[:, group]
    y = np.matmul(to_float32(a), weights.T)
    if bias is not None:
        y = y + to_float32(bias)
    return narrow(y, a.dtype)


@op("GatherBlockQuantized", domain=MICROSOFT)
def gather_block_quantized(
    data: np.ndarray,
    indices: np.ndarray,
    scales: np.ndarray,
    zero_points: np.ndarray | None = None,
    *,
    bits: int = 4,
    block_size: int = 128,
    gather_axis: int = 0,
    quantize_axis: int = 1,
):
    """Gather from a tensor quantised in blocks along `quantize_axis`, dequantised."""
    gather_axis, quantize_axis = check_axis(gather_axis, data.ndim), check_axis(quantize_axis, data.ndim)
    packed = data.dtype == np.uint8
    per_byte = 8 // bits if packed else 1
    length = data.shape[quantize_axis] * (per_byte if quantize_axis == data.ndim - 1 else 1)
    block = block_size or length

    def spread(table: np.ndarray) -> np.ndarray:
        """A value per block along the quantised axis as one per element."""
        repeated = np.repeat(table, block, axis=quantize_axis)
        return repeated[(slice(None),) * quantize_axis + (slice(length),)]

    if packed:
        values = unpack_bits(data, bits, data.shape[-1] * per_byte).astype(np.float32)
        default = float(1 << (bits - 1))
    else:
        values, default = to_float32(data).astype(np.float32), 0.0
    if zero_points is not None:
        zeros = unpack_bits(zero_points, bits, scales.shape[-1]) if packed else to_float32(zero_points)
        values = values - spread(zeros.astype(np.float32))
    elif default and not is_extended(data.dtype):
        values = values - np.float32(default)
    values = values * spread(to_float32(scales))
    size = data.shape[gather_axis]
    valid = (indices >= -size) & (indices < size)
    picked = values.take(np.where(valid, indices, 0) % size, axis=gather_axis)
    shape = (1,) * gather_axis + indices.shape + (1,) * (data.ndim - gather_axis - 1)
    return narrow(np.where(valid.reshape(shape), picked, np.float32(0)), scales.dtype)


# The values of the 4-bit types of bitsandbytes: quantiles of the normal distribution (NF4; Dettmers et al., "QLoRA",
# 2023, appendix E), and sign, two bits of exponent and one of mantissa (FP4), of the scale that makes the largest 1.
NF4 = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
)  # fmt: skip
FP4 = (0.0, 0.0052083333, 0.6666667, 1.0, 0.3333333, 0.5, 0.1666667, 0.25)


@op("MatMulBnb4", domain=MICROSOFT)
def mat_mul_bnb4(
    a: np.ndarray,
    b: np.ndarray,
    absmax: np.ndarray,
    *,
    K: int,
    N: int,
    block_size: int,
    quant_type: int,
    training_mode: int = 0,
    transB: int = 1,
):
    """Weights (N, K) in the 4-bit types of bitsandbytes, the high bits of a byte first; `quant_type` 0 is FP4."""
    table = np.array(NF4 if quant_type == 1 else (*FP4, *(-v for v in FP4)), np.float32)
    codes = np.stack([b.reshape(-1) >> 4, b.reshape(-1) & 15], axis=1).reshape(-1)[: N * K]
    scale = np.repeat(to_float32(absmax), block_size)[: N * K]
    weights = (table[codes] * scale).reshape(N, K)
    return narrow(np.matmul(to_float32(a), weights.T if transB else weights), a.dtype)


FP4_BLOCKS = {0: (32, 0), 1: (32, 1), 2: (64, 0)}
"""For the types of MatMulFpQ4: how many numbers a block has, and how many bytes its offset."""


@op("MatMulFpQ4", domain=MICROSOFT)
def mat_mul_fp_q4(a: np.ndarray, b: np.ndarray, b_shape: np.ndarray, *, blk_quant_type: int = 1):
    """Weights of 4 bits, column by column in blocks of a float32 scale, an offset (else it is 8) and the numbers; of
    each 32, the first half in the low bits of bytes."""
    if blk_quant_type not in FP4_BLOCKS:
        raise ValueError(f"blk_quant_type is {blk_quant_type}; 0, 1 and 2 are known")
    block, offset = FP4_BLOCKS[blk_quant_type]
    rows, columns = (int(n) for n in b_shape)
    size = 4 + offset + block // 2
    count = -(-rows // block)
    if b.size != columns * count * size:
        raise ValueError(f"{b.size} bytes are not the {columns * count * size} of weights ({rows}, {columns})")
    blocks = b.reshape(columns, count, size)
    scale = np.ascontiguousarray(blocks[..., :4]).view("<f4")
    packed = blocks[..., 4 + offset :].reshape(columns, count, -1, 16)
    values = np.concatenate([packed & 15, packed >> 4], axis=-1).reshape(columns, count, block).astype(np.float32)
    zero = blocks[..., 4:5].astype(np.float32) if offset else np.float32(8)
    return np.matmul(a, ((values - zero) * scale).reshape(columns, -1)[:, :rows].T)


@op("MatMulBlockQuantizedFp4Weight", domain=MICROSOFT)
def mat_mul_block_quantized_fp4(
    a: np.ndarray,
    b: np.ndarray,
    weight_scale: np.ndarray,
    weight_scale_2: np.ndarray,
    input_scale: np.ndarray | None = None,
    bias: np.ndarray | None = None,
    *,
    block_size: int = 16,
):
    """Weights (N, K / 2) of float4e2m1, the low bits of a byte first, whose blocks have scales of float8e4m3, and all
    together one; they are rounded to A's type."""
    inner = 2 * b.shape[1]
    values = float_values("float4_e2m1fn")[unpack_bits(b, 4, inner)]
    scale = float_values("float8_e4m3fn")[weight_scale.reshape(len(b), -1)]
    weights = values * np.repeat(scale, block_size, axis=1)[:, :inner] * weight_scale_2.reshape(())
    y = np.matmul(to_float32(a), to_float32(narrow(weights, a.dtype)).T)
    return narrow(y if bias is None else y + to_float32(bias), a.dtype)


@op("MatMulBlockQuantizedFp8Weight", domain=MICROSOFT)
def mat_mul_block_quantized_fp8(
    a: np.ndarray,
    b: np.ndarray,
    b_scale: np.ndarray,
    a_scale: np.ndarray | None = None,
    bias: np.ndarray | None = None,
    *,
    block_size: int = 128,
):
    """Weights (N, K) of float8e4m3 whose blocks have scales; with `a_scale`, A is rounded to that type too."""
    x = to_float32(a)
    if a_scale is not None:
        factor = a_scale.reshape(())
        x = to_float32(narrow(x / factor, b.dtype)) * factor
    weights = to_float32(b) * np.repeat(b_scale.reshape(len(b), -1), block_size, axis=1)[:, : b.shape[1]]
    y = np.matmul(x, weights.T)
    return narrow(y if bias is None else y + to_float32(bias), a.dtype)


@op("MatMulNBitsQLoRA", domain=MICROSOFT)
def mat_mul_n_bits_qlora(
    x: np.ndarray,
    w: np.ndarray,
    scales: np.ndarray,
    lora_a: np.ndarray,
    lora_a_scales: np.ndarray,
    lora_b: np.ndarray,
    lora_b_scales: np.ndarray,
    *,
    K: int,
    N: int,
    accuracy_level: int = 0,
    bits: int = 4,
    block_size: int = 32,
    lora_bits: int = 8,
    lora_block_size: int = 32,
):
    """MatMulNBits plus that of a low-rank adapter (Dettmers et al. 2023), whose two parts may be empty."""
    y = mat_mul_n_bits(x, w, scales, K=K, N=N, bits=bits, block_size=block_size)
    if not lora_b.size:
        return y
    rank = len(lora_a_scales.reshape(-1)) // max(-(-K // lora_block_size), 1)
    down = np.zeros((*x.shape[:-1], rank), x.dtype)
    if lora_a.size:
        down = mat_mul_n_bits(x, lora_a, lora_a_scales, K=K, N=rank, bits=lora_bits, block_size=lora_block_size)
    up = mat_mul_n_bits(down, lora_b, lora_b_scales, K=rank, N=N, bits=lora_bits, block_size=lora_block_size)
    return narrow(to_float32(y) + to_float32(up), x.dtype)


@op("GemmFloat8", domain=MICROSOFT)
def gemm_float8(
    a: np.ndarray,
    b: np.ndarray,
    c: np.ndarray | None = None,
    scale_a: np.ndarray | None = None,
    scale_b: np.ndarray | None = None,
    scale_y: np.ndarray | None = None,
    *,
    activation: str | None = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    dtype: int = 1,
    transA: int = 0,
    transB: int = 0,
):
    """activation(alpha * A * B + beta * C) of matrices in narrow floats, each times its scale; the result too."""
    functions = {None: lambda x: x, "NONE": lambda x: x, "RELU": relu, "GELU": gelu}
    if activation not in functions:
        raise ValueError(f"activation is {activation!r}; NONE, RELU and GELU are known")
    x, w = (
        to_float32(t) if scale is None else to_float32(t) * scale.reshape(())
        for t, scale in ((a, scale_a), (b, scale_b))
    )
    y = np.matmul(x.T if transA else x, w.T if transB else w) * np.float32(alpha)
    if c is not None:
        y = y + np.float32(beta) * to_float32(c)
    y = functions[activation](y)
    return narrow(y if scale_y is None else y * scale_y.reshape(()), dtype_of(dtype))


def projections(
    a: np.ndarray,
    skip: np.ndarray | None,
    norm_scale: np.ndarray | None,
    layers: list[tuple[np.ndarray, np.ndarray, np.ndarray | None, int]],
    K: int,
    bits: int,
    block_size: int,
    epsilon: float,
) -> tuple[list[np.ndarray], np.ndarray]:
    """Several products by MatMulNBits of A (plus `skip`), normalised if there is a scale for that; and that sum.

    Layers are weights, scales, bias and number of outputs.
    """
    total = a if skip is None else narrow(to_float32(a) + to_float32(skip), a.dtype)
    shared = to_float32(total)
    if norm_scale is not None:
        shared, _ = root_mean_square(shared, (a.ndim - 1,), epsilon)
        shared = shared * to_float32(norm_scale)
    results = [
        mat_mul_n_bits(shared, weights, scales, None, None, bias, K=K, N=n, bits=bits, block_size=block_size)
        for weights, scales, bias, n in layers
    ]
    return results, total


@op("MatMulNBitsQkv", domain=MICROSOFT)
def mat_mul_n_bits_qkv(
    a: np.ndarray,
    skip: np.ndarray | None,
    norm_scale: np.ndarray,
    q_b: np.ndarray,
    q_scales: np.ndarray,
    q_bias: np.ndarray | None,
    k_b: np.ndarray,
    k_scales: np.ndarray,
    k_bias: np.ndarray | None,
    v_b: np.ndarray,
    v_scales: np.ndarray,
    v_bias: np.ndarray | None = None,
    *,
    K: int,
    Nkv: int,
    Nq: int,
    accuracy_level: int = 0,
    bits: int = 4,
    block_size: int,
    epsilon: float = 1e-6,
):
    """Queries, keys and values of one normalised input; also the input plus `skip`."""
    layers = [(q_b, q_scales, q_bias, Nq), (k_b, k_scales, k_bias, Nkv), (v_b, v_scales, v_bias, Nkv)]
    results, total = projections(a, skip, norm_scale, layers, K, bits, block_size, epsilon)
    return (*(narrow(y, a.dtype) for y in results), total)


@op("MatMulNBitsMlp", domain=MICROSOFT)
def mat_mul_n_bits_mlp(
    a: np.ndarray,
    skip: np.ndarray | None,
    norm_scale: np.ndarray | None,
    gate_b: np.ndarray,
    gate_scales: np.ndarray,
    gate_bias: np.ndarray | None,
    up_b: np.ndarray,
    up_scales: np.ndarray,
    up_bias: np.ndarray | None = None,
    *,
    K: int,
    N: int,
    accuracy_level: int = 0,
    activation: str,
    bits: int = 4,
    block_size: int,
    epsilon: float = 1e-5,
):
    """activation(gate) * up of one input, normalised or not; also the input plus `skip`."""
    layers = [(gate_b, gate_scales, gate_bias, N), (up_b, up_scales, up_bias, N)]
    (gate, up), total = projections(a, skip, norm_scale, layers, K, bits, block_size, epsilon)
    return narrow(activation_named(activation)(gate) * up, a.dtype), total
