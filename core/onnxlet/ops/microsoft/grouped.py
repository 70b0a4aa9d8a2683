"""GroupQueryAttention, with caches that may be quantised or hold a window alone."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ...model.dtypes import bits_of, float_values, named
from ..attention import grouped_matmul, join_heads, masked_softmax, rotate, soft_cap
from ..common import to_float32
from ..precision import narrow
from ..registry import op
from .blockwise import unpack_bits
from .layers import MICROSOFT, root_mean_square

QUANT_TYPES = ("NONE", "PER_TENSOR", "PER_CHANNEL")


def normalized_heads(x: np.ndarray, weight: np.ndarray, epsilon: float) -> np.ndarray:
    return root_mean_square(x, (x.ndim - 1,), epsilon)[0] * to_float32(weight)


def separate(
    query: np.ndarray, key: np.ndarray | None, value: np.ndarray | None, num_heads: int, kv_num_heads: int
) -> list[np.ndarray]:
    """Queries, keys and values (..., heads, size), which may lie side by side in the query (..., all of them)."""
    heads = (num_heads, kv_num_heads, kv_num_heads)
    if key is None or value is None:
        size = query.shape[-1] // (num_heads + 2 * kv_num_heads)
        parts = np.split(query, [num_heads * size, (num_heads + kv_num_heads) * size], axis=-1)
    else:
        parts = [query, key, value]
    for p, n in zip(parts, heads, strict=True):
        if p.shape[-1] % n:
            raise ValueError(f"query, key or value of shape {list(p.shape)} can't be split into {n} heads")
    return [to_float32(p).reshape(*p.shape[:-1], n, -1) for p, n in zip(parts, heads, strict=True)]


@dataclass(frozen=True)
class Store:
    """How a cache holds numbers: as they are, or as integers or narrow floats that a scale makes them.

    Those of four bits are stored two to a byte, the low bits first: integers plus 8 (`packing` "offset"), integers
    ("int4") or floats ("float4e2m1").
    """

    dtype: np.dtype
    scale: np.ndarray | None = None
    packing: str = ""

    def values(self) -> np.ndarray:
        """The number of each code of four bits."""
        if self.packing == "float4e2m1":
            return float_values("float4_e2m1fn")
        code = np.arange(16, dtype=np.float32)
        return code - 8 if self.packing == "offset" else np.where(code < 8, code, code - 16)

    def read(self, x: np.ndarray, size: int) -> np.ndarray:
        """Numbers (..., size) from a cache."""
        if self.scale is None:
            return to_float32(x)
        if self.packing:
            return self.values()[unpack_bits(x, 4, size)] * self.scale
        return to_float32(x).astype(np.float32) * self.scale

    def write(self, x: np.ndarray) -> np.ndarray:
        """What a cache holds for numbers (..., size), rounded to even and saturated."""
        if self.scale is None:
            return narrow(x, self.dtype)
        y = x / self.scale
        if not self.packing:
            if self.dtype.kind not in "iu":
                return narrow(y, self.dtype)
            return np.clip(np.rint(y), -128, 127).astype(self.dtype)
        if self.packing == "float4e2m1":
            codes = bits_of(narrow(y, named("float4_e2m1fn"))) & np.uint8(15)
        else:
            whole = np.clip(np.rint(y), -8, 7).astype(np.int8) + np.int8(8 if self.packing == "offset" else 0)
            codes = whole.view(np.uint8) & np.uint8(15)
        if codes.shape[-1] % 2:
            codes = np.pad(codes, [(0, 0)] * (codes.ndim - 1) + [(0, 1)])
        return codes[..., ::2] | codes[..., 1::2] << 4

    @classmethod
    def of(cls, cache: np.ndarray, scale: np.ndarray | None, quant_type: str, packing: str = "") -> Store:
        """For a cache of this type, which `quant_type` says to be quantised or not."""
        if quant_type not in QUANT_TYPES:
            raise ValueError(f"a cache quantised {quant_type!r}; known are {', '.join(QUANT_TYPES)}")
        if quant_type == "NONE" and scale is None:
            return cls(cache.dtype)
        if scale is None:
            raise ValueError(f"a cache quantised {quant_type} needs scales")
        return cls(cache.dtype, scale.astype(np.float32), packing)


def resident(total: np.ndarray, capacity: int, window: int) -> np.ndarray:
    """How many of `total` positions a cache of a window's size holds: it lets go of several at once when it is full."""
    slack = capacity - window + 1
    return np.where(total <= capacity, total, total - slack * -(-(total - capacity) // slack))


@op("GroupQueryAttention", domain=MICROSOFT)
def group_query_attention(
    query: np.ndarray,
    key: np.ndarray | None,
    value: np.ndarray | None,
    past_key: np.ndarray | None,
    past_value: np.ndarray | None,
    seqlens_k: np.ndarray,
    total_sequence_length: np.ndarray,
    cos_cache: np.ndarray | None = None,
    sin_cache: np.ndarray | None = None,
    position_ids: np.ndarray | None = None,
    attention_bias: np.ndarray | None = None,
    head_sink: np.ndarray | None = None,
    k_scale: np.ndarray | None = None,
    v_scale: np.ndarray | None = None,
    q_norm_weight: np.ndarray | None = None,
    k_norm_weight: np.ndarray | None = None,
    query_seqlens: np.ndarray | None = None,
    *,
    causal: int = 1,
    do_rotary: int = 0,
    k_norm_epsilon: float | None = None,
    k_quant_type: str = "NONE",
    kv_cache_bit_width: int = 0,
    kv_num_heads: int,
    local_window_size: int = -1,
    num_heads: int,
    q_norm_epsilon: float | None = None,
    qk_norm_epsilon: float = 1e-6,
    qk_output: int = 0,
    rotary_interleaved: int = 0,
    scale: float | None = None,
    sliding_window_cache: int = 0,
    smooth_softmax: int = -1,
    softcap: float = 0.0,
    v_quant_type: str = "NONE",
):
    """Causal attention with fewer key and value heads, over a cache that each batch has filled to its own length.

    ``seqlens_k + 1`` is how many keys there are, the new ones counted; `query_seqlens` are how many of the new ones
    are not padding. The cache returned is as long as the one given, or as the longest sequence. One of a window's size
    holds the last positions alone, in order from its first row on.
    """
    q, k, v = (
        x.swapaxes(1, 2) for x in separate(query, key, value, num_heads, kv_num_heads)
    )  # (batch, heads, length, size)
    if q_norm_weight is not None and k_norm_weight is not None:
        q = normalized_heads(q, q_norm_weight, q_norm_epsilon or qk_norm_epsilon)
        k = normalized_heads(k, k_norm_weight, k_norm_epsilon or qk_norm_epsilon)
    batch, _, length, size = q.shape
    total = int(np.asarray(total_sequence_length).reshape(-1)[0])
    lengths = np.asarray(seqlens_k).reshape(-1).astype(np.int64) + 1
    new = np.full(batch, length) if query_seqlens is None else query_seqlens.reshape(-1).astype(np.int64)
    before = np.zeros(batch, np.int64) if query_seqlens is None and length == total else lengths - new
    if before.min(initial=0) < 0:
        raise ValueError(f"seqlens_k {lengths - 1} leave no room for {length} new keys")
    positions = before[:, None] + np.arange(length)
    if do_rotary:
        if cos_cache is None or sin_cache is None:
            raise ValueError("do_rotary needs cos_cache and sin_cache")
        angles = positions if position_ids is None else position_ids
        # Rows of padding may lie beyond the caches.
        angles = np.minimum(angles, len(cos_cache) - 1) if query_seqlens is not None else angles
        cos, sin = to_float32(cos_cache)[angles][:, None], to_float32(sin_cache)[angles][:, None]
        q, k = rotate(q, cos, sin, rotary_interleaved), rotate(k, cos, sin, rotary_interleaved)

    window = local_window_size if sliding_window_cache else 0
    past_length = 0 if past_key is None else past_key.shape[2]
    reach = max(total, past_length, int((before + new).max(initial=0)))
    capacity = past_length if window else max(total, past_length)
    if sliding_window_cache and not 0 < window <= capacity:
        raise ValueError(f"a window of {window} does not fit into a cache of {capacity}")
    held, kept = before, before + new
    if window:
        held, kept = resident(before, capacity, window), resident(before + new, capacity, window)
    row = np.arange(batch)[:, None]
    real = np.arange(length) < new[:, None]
    slot = np.arange(past_length)
    filled, whence = np.nonzero(slot < held[:, None])
    whole, presents = [], []
    for past, fresh, how in (
        (past_key, k, (k_scale, k_quant_type)),
        (past_value, v, (v_scale, v_quant_type)),
    ):
        packing = "offset" if kv_cache_bit_width == 4 else ""
        store = Store(query.dtype) if past is None else Store.of(past, *how, packing)
        written = store.write(fresh)
        cache = np.zeros((batch, kv_num_heads, reach, written.shape[3]), written.dtype)
        if past is not None:  # each row is put at its position
            cache[filled, :, (before - held)[filled] + whence] = past[filled, :, whence]
        cache[np.broadcast_to(row, real.shape)[real], :, positions[real]] = written.swapaxes(1, 2)[real]
        first = kept * 0 if not window else before + new - kept
        at = first[:, None] + np.arange(capacity)
        present = cache[row, :, np.minimum(at, reach - 1)].swapaxes(1, 2)
        there = np.arange(capacity) < kept[:, None] if window else at < reach
        presents.append(np.where(there[:, None, :, None], present, np.zeros((), present.dtype)))
        whole.append(store.read(cache[:, :, :total], fresh.shape[3]))
    keys, values = whole

    scores = grouped_matmul(q, keys.swapaxes(-1, -2)) * (scale or 1 / math.sqrt(size))
    scores = soft_cap(scores, softcap)
    if attention_bias is not None:
        scores = scores + to_float32(attention_bias)[..., :total]
    at, slots = positions[:, None, :, None], np.arange(total)
    seen = slots <= at if causal else slots < lengths[:, None, None, None]
    if local_window_size > 0:
        seen = seen & (slots > at - local_window_size)
    scores = np.where(seen, scores, scores.dtype.type(-np.inf))
    sink = None
    if head_sink is not None:
        sink = to_float32(head_sink).reshape(1, -1, 1, 1)
    elif smooth_softmax > 0:
        sink = np.zeros((1, 1, 1, 1), scores.dtype)
    probabilities = masked_softmax(scores, sink)
    y = join_heads(grouped_matmul(probabilities, values))
    shown = probabilities if qk_output == 2 else scores
    return narrow(y, query.dtype), *presents, narrow(shown, query.dtype)
