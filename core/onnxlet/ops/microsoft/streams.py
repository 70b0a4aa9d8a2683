"""Models with several residual streams (hyper-connections, Zhu et al. 2024), and the gates that go with them."""

from __future__ import annotations

import numpy as np

from ...model.dtypes import dtype_of
from ..activations import sigmoid, softplus
from ..common import to_float32
from ..precision import full_precision, narrow
from ..registry import op
from .layers import MICROSOFT, root_mean_square, swi_glu


def rounded(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """`x` as the type `dtype` holds it, in float32 again: the rounding of a step in between."""
    return to_float32(narrow(x, dtype))


def branches(x: np.ndarray, count: int) -> np.ndarray:
    """(..., C, H) in float32 of streams that are grouped so or, where `count` says how many, lie side by side."""
    wide = to_float32(x)
    if not count:
        if x.ndim < 2:
            raise ValueError(f"streams of shape {list(x.shape)} are not grouped, and num_branches is not given")
        return wide
    if count < 0 or x.shape[-1] % count:
        raise ValueError(f"{x.shape[-1]} features are not a multiple of {count} branches")
    return wide.reshape(*x.shape[:-1], count, -1)


def gates(gate: np.ndarray, streams: np.ndarray) -> np.ndarray:
    """Gates (..., C), (..., C, 1), (..., C, H) or (..., C * H), in float32, so that they broadcast to streams."""
    wide = to_float32(gate)
    if gate.ndim == streams.ndim:
        return wide
    if gate.shape[-1] == streams.shape[-2]:
        return wide[..., None]
    return wide.reshape(*gate.shape[:-1], *streams.shape[-2:])


@op("ScaledSiLU", domain=MICROSOFT)
def scaled_silu(x: np.ndarray, scale: np.ndarray | None = None, *, alpha: float = 1.0):
    """z * sigmoid(z) of z = scale * x; each step is rounded to the type of `x`."""
    factor = np.float32(alpha) if scale is None else to_float32(scale).reshape(())
    z = rounded(factor * to_float32(x), x.dtype)
    return narrow(z * rounded(sigmoid(z), x.dtype), x.dtype)


@op("BranchwiseRMSNorm", domain=MICROSOFT)
def branchwise_rms_norm(
    x: np.ndarray, scale: np.ndarray | None = None, *, epsilon: float = 1e-5, num_branches: int = 0
):
    """Each stream divided by its root mean square; the scale holds for all features, or for each stream's."""
    streams = branches(x, num_branches)
    y, _ = root_mean_square(streams, (streams.ndim - 1,), epsilon)
    if scale is not None:
        weights = to_float32(scale)
        y = y * (weights if scale.size == streams.shape[-1] else weights.reshape(streams.shape[-2:]))
    return narrow(y.reshape(x.shape), x.dtype)


@op("HyperConnectionPreMix", domain=MICROSOFT)
def hyper_connection_pre_mix(
    streams: np.ndarray, pre_mix: np.ndarray, *, num_branches: int = 0, reduction_scale: float = 1.0
):
    """The gated sum of all streams (..., H)."""
    x = branches(streams, num_branches)
    return narrow((x * gates(pre_mix, x)).sum(axis=-2) * np.float32(reduction_scale), streams.dtype)


@op("HyperConnectionPostMix", domain=MICROSOFT)
def hyper_connection_post_mix(
    streams: np.ndarray,
    block_output: np.ndarray,
    post_mix: np.ndarray,
    stream_mix: np.ndarray | None = None,
    *,
    num_branches: int = 0,
):
    """Streams mixed among themselves (stream c goes to k with weight [..., c, k]), plus a block's output, gated."""
    x = branches(streams, num_branches)
    mixed = x if stream_mix is None else np.matmul(to_float32(stream_mix).swapaxes(-1, -2), x)
    y = mixed + gates(post_mix, x) * to_float32(block_output)[..., None, :]
    return narrow(y.reshape(streams.shape), streams.dtype)


@op("HyperConnectionLowRankMix", domain=MICROSOFT)
def hyper_connection_low_rank_mix(
    streams: np.ndarray,
    norm_scale: np.ndarray,
    down_weight: np.ndarray,
    up_weight: np.ndarray,
    inject_weight: np.ndarray,
    prev_block_output: np.ndarray | None = None,
    prev_post_gate: np.ndarray | None = None,
    *,
    epsilon: float = 1e-5,
    gate_div: float = 1.0,
    gate_mul: float = 1.0,
    num_branches: int,
    reduction_scale: float = 1.0,
    silu_alpha: float = 1.0,
):
    """The input of the next block, its gate, and the streams after the previous block's output joined them.

    Every step is rounded to the type of the streams.
    """
    if (prev_block_output is None) != (prev_post_gate is None):
        raise ValueError("prev_block_output and prev_post_gate go together")
    dtype = streams.dtype
    x = branches(streams, num_branches)
    if prev_block_output is not None and prev_post_gate is not None:
        x = rounded(x + to_float32(prev_post_gate)[..., None] * to_float32(prev_block_output)[..., None, :], dtype)
    normalized, _ = root_mean_square(x, (x.ndim - 1,), epsilon)
    normalized = rounded(normalized * to_float32(norm_scale).reshape(x.shape[-2:]), dtype)
    flat = normalized.reshape(*x.shape[:-2], -1)
    z = rounded(np.float32(silu_alpha) * rounded(np.matmul(flat, to_float32(down_weight)), dtype), dtype)
    hidden = rounded(z * rounded(sigmoid(z), dtype), dtype)
    gate = rounded(sigmoid(rounded(np.matmul(hidden, to_float32(up_weight)), dtype)), dtype)
    pre_output = np.float32(reduction_scale) * (normalized * gate.reshape(x.shape)).sum(axis=-2)
    inject = rounded(np.matmul(flat, to_float32(inject_weight)), dtype)
    post_gate = rounded(sigmoid(rounded(inject / np.float32(gate_div), dtype)), dtype) * np.float32(gate_mul)
    return narrow(pre_output, dtype), narrow(post_gate, dtype), narrow(x.reshape(streams.shape), dtype)


@op("EngramGate", domain=MICROSOFT)
def engram_gate(
    key: np.ndarray,
    query: np.ndarray,
    value: np.ndarray,
    key_norm_scale: np.ndarray,
    query_norm_scale: np.ndarray,
    conv_norm_scale: np.ndarray | None = None,
    *,
    epsilon: float = 1e-5,
):
    """A value (batch, length, H) for each stream, gated by how its normalised key and query agree; also that gated
    value, normalised."""
    k, _ = root_mean_square(to_float32(key), (3,), epsilon)
    q, _ = root_mean_square(to_float32(query), (3,), epsilon)
    scaled = (k * to_float32(key_norm_scale)) * (q * to_float32(query_norm_scale))
    dot = scaled.sum(axis=-1, keepdims=True) / np.sqrt(np.float32(key.shape[-1]))
    gate = sigmoid(np.sign(dot) * np.sqrt(np.maximum(np.abs(dot), np.float32(1e-6))))
    y = gate * to_float32(value)[:, :, None]
    normed = None
    if conv_norm_scale is not None:
        normed = root_mean_square(y, (3,), epsilon)[0] * to_float32(conv_norm_scale)
        normed = narrow(normed, key.dtype)
    return narrow(y, key.dtype), normed


@op("LinearAttentionGate", domain=MICROSOFT)
def linear_attention_gate(a: np.ndarray, dt_bias: np.ndarray, decay_scale: np.ndarray, b: np.ndarray | None = None):
    """The decay and the rate of LinearAttention, from what a projection gave."""
    decay = narrow(decay_scale * softplus(to_float32(a) + dt_bias), a.dtype)
    return decay, None if b is None else narrow(sigmoid(to_float32(b)), b.dtype)


def best(scores: np.ndarray, count: int) -> np.ndarray:
    """Where the `count` greatest of each row are, of equal ones the first."""
    return np.argsort(-scores, axis=-1, kind="stable")[..., :count]


@op("MoEGroupRouter", domain=MICROSOFT)
def moe_group_router(
    logits: np.ndarray,
    expert_bias: np.ndarray,
    projection_weight: np.ndarray | None = None,
    *,
    group_topk: int = 2,
    n_group: int = 1,
    router_sentinel: float = -10000.0,
    top_k: int,
    topk_group: int = 1,
    n_outputs: int,
):
    """Logarithms of the scores of the experts chosen for each token, out of the groups that are best (DeepSeek-V3,
    2024); or, where more than one output is asked for, all scores with and without bias."""
    scores = to_float32(logits).reshape(-1, logits.shape[-1])
    if projection_weight is not None:
        scores = np.matmul(scores, to_float32(projection_weight).T)
    scores = sigmoid(scores)
    biased = scores + expert_bias
    if n_outputs > 1:
        return None, biased, scores
    tokens, experts = scores.shape
    if n_group < 1 or experts % n_group or not 1 <= topk_group <= n_group:
        raise ValueError(f"{topk_group} of {n_group} groups can't be chosen among {experts} experts")
    grouped = biased.reshape(tokens, n_group, -1)
    size = grouped.shape[2]
    strength = -np.sort(-grouped, axis=2)[:, :, : min(group_topk, size)].sum(axis=2)
    open_groups = np.zeros((tokens, n_group), bool)
    np.put_along_axis(open_groups, best(strength, topk_group), True, axis=1)
    eligible = np.where(np.repeat(open_groups, size, axis=1), biased, np.float32(-np.inf))
    if not 1 <= top_k <= topk_group * size:
        raise ValueError(f"top_k is {top_k}; the chosen groups have {topk_group * size} experts")
    chosen = best(eligible, top_k)
    y = np.full(scores.shape, router_sentinel, np.float32)
    kept = np.log(np.maximum(np.take_along_axis(scores, chosen, axis=1), np.float32(1e-20)))
    np.put_along_axis(y, chosen, kept, axis=1)
    return narrow(y, logits.dtype), None, None


@op("RouterGateUpProj", domain=MICROSOFT)
def router_gate_up_proj(
    x: np.ndarray,
    w: np.ndarray,
    *,
    activation: str = "swiglu",
    activation_alpha: float = 1.0,
    activation_beta: float = 0.0,
    limit: float = 0.0,
    router_size: int,
):
    """One product: a router's logits, and SwiGLU of the rest."""
    if activation != "swiglu":
        raise ValueError(f"activation is {activation!r}; only swiglu is defined")
    y = narrow(np.matmul(to_float32(x), to_float32(w)), x.dtype)
    activated = swi_glu(
        y[..., router_size:], activation_alpha=activation_alpha, activation_beta=activation_beta, limit=limit
    )
    return y[..., :router_size].copy(), activated


@op("GemmaRotaryEmbedding", domain=MICROSOFT)
def gemma_rotary_embedding(emb: np.ndarray, q: np.ndarray, q_rot: np.ndarray, k: np.ndarray, k_rot: np.ndarray):
    """q * cos(emb) + q_rot * sin(emb), and the same of k; sine, cosine and each step are rounded to q's type."""
    sin, cos = (rounded(f(full_precision(emb)), q.dtype)[:, None] for f in (np.sin, np.cos))

    def turned(x: np.ndarray, other: np.ndarray) -> np.ndarray:
        parts = rounded(to_float32(x) * cos, q.dtype), rounded(to_float32(other) * sin, q.dtype)
        return narrow(parts[0] + parts[1], q.dtype)

    return turned(q, q_rot), turned(k, k_rot)


@op("RMSNormRotary", domain=MICROSOFT)
def rms_norm_rotary(
    x: np.ndarray,
    scale: np.ndarray,
    position_ids: np.ndarray,
    cosine: np.ndarray,
    sine: np.ndarray,
    prefill_numerics: np.ndarray | None = None,
    *,
    epsilon: float = 1e-6,
    flatten_batch: int = 0,
    input_start: int = 0,
    input_width: int = 0,
    output_fp16: int = 0,
    rotary_embedding_dim: int,
    use_fp32_arithmetic: int = 1,
):
    """A slice of each head, normalised and then rotated by halves; also the normalised slice in float32.

    With bfloat16 throughout, what is normalised is rounded before it is rotated and, in the prefill or without
    `use_fp32_arithmetic`, the products of the rotation too.
    """
    out = dtype_of(10 if output_fp16 else 16)
    width = input_width or x.shape[3] - input_start
    part = to_float32(x)[..., input_start : input_start + width]
    mean = np.square(part).mean(axis=-1, keepdims=True) + np.float32(epsilon)
    exact = x.dtype == np.float16 or bool(output_fp16) or cosine.dtype == np.float32
    prefill = prefill_numerics is not None and bool(prefill_numerics.reshape(()))
    y = part * (1 / np.sqrt(mean)) if exact or prefill else part / np.sqrt(mean)
    y = y * scale
    if not exact:
        y = rounded(y, out)
    batch, length, heads, _ = x.shape
    at = position_ids.reshape(-1)
    if at.size == 1:
        at = at + np.arange(batch * length)
        at = at if flatten_batch else np.tile(at[:length], batch)
    cos, sin = (to_float32(t)[at].reshape(batch, length, 1, -1) for t in (cosine, sine))
    half = rotary_embedding_dim // 2
    first, second = y[..., :half], y[..., half : 2 * half]
    products = [first * cos, second * sin, second * cos, first * sin]
    if not exact and (prefill or not use_fp32_arithmetic):
        products = [rounded(p, out) for p in products]
    turned = np.concatenate([products[0] - products[1], products[2] + products[3], y[..., 2 * half :]], axis=-1)
    shape = (1, batch * length, heads * width) if flatten_batch else (batch, length, heads * width)
    return narrow(turned, out).reshape(shape), y
