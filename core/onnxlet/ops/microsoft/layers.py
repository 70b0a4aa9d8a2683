"""Parts of transformers and diffusion models: activations with bias, and normalisation with what is added before it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...model.dtypes import dtype_of
from ..activations import gelu, sigmoid, softmax, swish
from ..common import in_float32, to_float32
from ..norm import dropout_12, grouped, standardize, trailing_axes
from ..precision import narrow
from ..registry import op

MICROSOFT = "com.microsoft"


@op("Gelu", domain=MICROSOFT)
@in_float32
def gelu_exact(x: np.ndarray):
    return gelu(x)


@op("FastGelu", domain=MICROSOFT)
@in_float32
def fast_gelu(x: np.ndarray, bias: np.ndarray | None = None):
    return gelu(x if bias is None else x + bias, approximate="tanh")


@op("GemmFastGelu", domain=MICROSOFT)
@in_float32
def gemm_fast_gelu(x: np.ndarray, w: np.ndarray, bias: np.ndarray | None = None):
    y = np.matmul(x, w)
    return gelu(y if bias is None else y + bias, approximate="tanh")


@op("QuickGelu", domain=MICROSOFT)
@in_float32
def quick_gelu(x: np.ndarray, *, alpha: float = 1.702):
    return x * sigmoid(alpha * x)


@op("BiasGelu", domain=MICROSOFT)
@in_float32
def bias_gelu(a: np.ndarray, b: np.ndarray):
    return gelu(a + b)


@op("BiasSplitGelu", domain=MICROSOFT)
@in_float32
def bias_split_gelu(x: np.ndarray, bias: np.ndarray):
    """The left half of the channels times GELU of the right half."""
    left, right = np.split(x + bias, 2, axis=-1)
    return left * gelu(right)


@op("BiasAdd", domain=MICROSOFT)
@in_float32
def bias_add(x: np.ndarray, bias: np.ndarray, skip: np.ndarray):
    return x + bias + skip


@op("BiasSoftmax", domain=MICROSOFT)
@in_float32
def bias_softmax(data: np.ndarray, bias: np.ndarray, *, axis: int = 1, is_inner_broadcast: int):
    """Softmax over all axes from `axis` on, of data plus a bias that lacks either the axes before it or, with
    `is_inner_broadcast`, some of those between."""
    axis %= data.ndim
    if is_inner_broadcast and bias.ndim < data.ndim:
        lead = bias.ndim - (data.ndim - axis)
        shape = (*bias.shape[:lead], *(1,) * (data.ndim - bias.ndim), *bias.shape[lead:])
        bias = bias.reshape(shape)
    y = data + bias
    return softmax(y.reshape(*y.shape[:axis], -1), axis=-1).reshape(y.shape)


def summed(*parts: np.ndarray | None) -> np.ndarray:
    """The sum of those parts that are there, in float32 at least."""
    present = [to_float32(p) for p in parts if p is not None]
    total = present[0]
    for part in present[1:]:
        total = total + part
    return total


@op("SkipLayerNormalization", domain=MICROSOFT)
def skip_layer_normalization(
    x: np.ndarray,
    skip: np.ndarray,
    gamma: np.ndarray,
    beta: np.ndarray | None = None,
    bias: np.ndarray | None = None,
    *,
    epsilon: float = 1e-12,
):
    """LayerNormalization of x + skip + bias; also mean, reciprocal deviation, and the sum itself."""
    total = summed(x, skip, bias)
    normalized, mean, inverse = standardize(total, (x.ndim - 1,), epsilon)
    y = normalized * to_float32(gamma)
    if beta is not None:
        y = y + to_float32(beta)
    return narrow(y, x.dtype), mean, inverse, narrow(total, x.dtype)


def root_mean_square(x: np.ndarray, axes: tuple[int, ...], epsilon: float) -> tuple[np.ndarray, np.ndarray]:
    """`x` divided by its root mean square over `axes`, and the reciprocal of that."""
    inverse = 1 / np.sqrt(np.square(x).mean(axis=axes, keepdims=True) + epsilon)
    return x * inverse, inverse


@op("SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_simplified_layer_normalization(
    x: np.ndarray,
    skip: np.ndarray,
    gamma: np.ndarray,
    bias: np.ndarray | None = None,
    *,
    epsilon: float = 1e-12,
):
    total = summed(x, skip, bias)
    normalized, inverse = root_mean_square(total, (x.ndim - 1,), epsilon)
    y = narrow(normalized * to_float32(gamma), x.dtype)
    return y, np.zeros_like(inverse), inverse, narrow(total, x.dtype)


@op("SimplifiedLayerNormalization")
@op("SimplifiedLayerNormalization", domain=MICROSOFT)
def simplified_layer_normalization(
    x: np.ndarray, scale: np.ndarray, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
):
    """RMSNormalization as it was before the standard had it."""
    normalized, inverse = root_mean_square(to_float32(x), trailing_axes(x.ndim, axis), epsilon)
    return narrow(normalized * to_float32(scale), scale.dtype), narrow(inverse, dtype_of(stash_type))


@op("EmbedLayerNormalization", domain=MICROSOFT)
def embed_layer_normalization(
    input_ids: np.ndarray,
    segment_ids: np.ndarray | None,
    word_embedding: np.ndarray,
    position_embedding: np.ndarray,
    segment_embedding: np.ndarray | None,
    gamma: np.ndarray,
    beta: np.ndarray,
    mask: np.ndarray | None = None,
    position_ids: np.ndarray | None = None,
    *,
    epsilon: float = 1e-12,
    mask_index_type: int = 0,
):
    """Also returns each sequence's number of unmasked words, and the sum before normalisation."""
    for ids, table, what in (
        (input_ids, word_embedding, "input_ids"),
        (segment_ids, segment_embedding, "segment_ids"),
        (position_ids, position_embedding, "position_ids"),
    ):
        if ids is not None and table is not None and ids.size and not 0 <= ids.min() <= ids.max() < len(table):
            raise ValueError(f"{what} reach {ids.min()} to {ids.max()}, the embedding has {len(table)} rows")
    positions = np.arange(input_ids.shape[1])[None] if position_ids is None else position_ids
    segments = None
    if segment_ids is not None and segment_embedding is not None:
        segments = segment_embedding[segment_ids]
    total = summed(word_embedding[input_ids], position_embedding[positions], segments)
    normalized, _, _ = standardize(total, (2,), epsilon)
    y = narrow(normalized * to_float32(gamma) + to_float32(beta), word_embedding.dtype)
    words = np.zeros(len(input_ids), np.int32) if mask is None else (mask == 1).sum(axis=1, dtype=np.int32)
    return y, words, narrow(total, word_embedding.dtype)


def group_normalized(
    x: np.ndarray, gamma: np.ndarray, beta: np.ndarray, groups: int, epsilon: float, activation: int, last: int
) -> np.ndarray:
    """Group normalisation, then SiLU if `activation` is 1, of channels at axis 1 or, with `last`, at the end."""
    images = np.moveaxis(x, -1, 1) if last else x
    normalized = grouped(images, groups, epsilon)
    scale, shift = (to_float32(v).reshape(groups, -1, 1) for v in (gamma, beta))
    y = (normalized * scale + shift).reshape(images.shape)
    if activation:
        y = swish(y)
    return np.moveaxis(y, 1, -1) if last else y


@op("GroupNorm", domain=MICROSOFT)
def group_norm(
    x: np.ndarray,
    gamma: np.ndarray,
    beta: np.ndarray,
    *,
    activation: int,
    channels_last: int = 1,
    epsilon: float = 1e-5,
    groups: int,
):
    y = group_normalized(to_float32(x), gamma, beta, groups, epsilon, activation, channels_last)
    return narrow(np.ascontiguousarray(y), x.dtype)


@op("SkipGroupNorm", domain=MICROSOFT)
def skip_group_norm(
    x: np.ndarray,
    gamma: np.ndarray,
    beta: np.ndarray,
    skip: np.ndarray,
    bias: np.ndarray | None = None,
    *,
    activation: int,
    channels_last: int = 1,
    epsilon: float = 1e-5,
    groups: int,
):
    """GroupNorm of x + skip + bias; also that sum. A skip (N, C) holds for the whole image."""
    channel_shape: Sequence[int] = (1, 1, 1, -1) if channels_last else (1, -1, 1, 1)
    if skip.ndim == 2:
        skip = skip.reshape(len(skip), *channel_shape[1:])
    total = summed(x, skip, None if bias is None else bias.reshape(channel_shape))
    y = group_normalized(total, gamma, beta, groups, epsilon, activation, channels_last)
    return narrow(np.ascontiguousarray(y), x.dtype), narrow(total, x.dtype)


@op("GatedRMSNorm", domain=MICROSOFT)
def gated_rms_norm(
    x: np.ndarray, scale: np.ndarray, gate: np.ndarray, *, activation: str = "silu", epsilon: float = 1e-5
):
    """Each run of as many elements as `scale` has, normalised, times the activation of the gate."""
    gates = {"silu": swish, "swish": swish, "sigmoid": sigmoid}
    if activation not in gates:
        raise ValueError(f"activation is {activation!r}; known are {', '.join(gates)}")
    if x.shape[-1] % len(scale):
        raise ValueError(f"{x.shape[-1]} channels are not a multiple of the scale's {len(scale)}")
    runs = to_float32(x).reshape(*x.shape[:-1], -1, len(scale))
    normalized, _ = root_mean_square(runs, (x.ndim,), epsilon)
    y = (normalized * to_float32(scale)).reshape(x.shape) * gates[activation](to_float32(gate))
    return narrow(y, x.dtype)


@op("SwiGLU", domain=MICROSOFT)
def swi_glu(
    gate: np.ndarray,
    up: np.ndarray | None = None,
    *,
    activation_alpha: float = 1.0,
    activation_beta: float = 0.0,
    limit: float = 0.0,
    round_activation: int = 0,
):
    """gate * sigmoid(alpha * gate) * (up + beta), clamped if the limit is positive. Without `up`, the gate holds both,
    side by side."""
    g, u = np.split(to_float32(gate), 2, axis=-1) if up is None else (to_float32(gate), to_float32(up))
    if limit > 0:
        g, u = np.minimum(g, limit), np.clip(u, -limit, limit)
    activated = g * sigmoid(activation_alpha * g)
    if round_activation:
        activated = to_float32(narrow(activated, gate.dtype))
    return narrow(activated * (u + activation_beta), gate.dtype)


@op("GatedAdd", domain=MICROSOFT)
def gated_add(x: np.ndarray, y: np.ndarray, gate: np.ndarray, gate_weight: np.ndarray | None = None):
    """x + y * gate, with one gate per row; with weights, the gate is the sigmoid of its product with them."""
    factor = to_float32(gate)
    if gate_weight is not None:
        factor = sigmoid(to_float32(narrow(np.matmul(factor, to_float32(gate_weight)), x.dtype)))
    product = to_float32(narrow(to_float32(y) * to_float32(narrow(factor, x.dtype)), x.dtype))
    return narrow(to_float32(x) + product, x.dtype)


def packed_mask(mask: np.ndarray) -> np.ndarray:
    """A boolean mask as the bits of 32-bit words, the lowest of each first."""
    bits = np.zeros(-(-mask.size // 32) * 32, bool)
    bits[: mask.size] = mask.reshape(-1)
    return np.packbits(bits, bitorder="little").view("<u4")


@op("BitmaskDropout", domain=MICROSOFT)
def bitmask_dropout(
    data: np.ndarray,
    ratio: np.ndarray | None = None,
    training_mode: np.ndarray | None = None,
    *,
    seed: int | None = None,
):
    """Dropout whose mask is packed into bits."""
    y, mask = dropout_12(data, ratio, training_mode, seed=seed)
    return y, packed_mask(mask)


@op("BitmaskBiasDropout", domain=MICROSOFT)
def bitmask_bias_dropout(
    data: np.ndarray,
    bias: np.ndarray,
    residual: np.ndarray | None = None,
    ratio: np.ndarray | None = None,
    training_mode: np.ndarray | None = None,
    *,
    seed: int | None = None,
):
    """BiasDropout whose mask is packed into bits."""
    y, mask = bias_dropout(data, bias, residual, ratio, training_mode, seed=seed)
    return y, packed_mask(mask)


@op("BiasDropout", domain=MICROSOFT)
def bias_dropout(
    data: np.ndarray,
    bias: np.ndarray,
    residual: np.ndarray | None = None,
    ratio: np.ndarray | None = None,
    training_mode: np.ndarray | None = None,
    *,
    seed: int | None = None,
):
    """Dropout of data + bias, plus a residual."""
    y, mask = dropout_12(summed(data, bias), ratio, training_mode, seed=seed)
    return narrow(summed(y, residual), data.dtype), mask
