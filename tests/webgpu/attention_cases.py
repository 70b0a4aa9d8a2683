"""Cases for attention in all its forms, and for steps of optimisers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tests.webgpu.cases import Case, integers, random

NEAR: dict[str, Any] = {"rtol": 1e-4, "atol": 1e-5}
MICROSOFT: dict[str, Any] = {"domain": "com.microsoft", "version": 1, **NEAR}


def ints(*values: int, dtype: Any = np.int32) -> np.ndarray:
    return np.array(values, dtype)


def standard_cases() -> Iterator[Case]:
    """ai.onnx's Attention: the scores as an output, lengths of each sequence, masks that are too short."""
    q, k, v = random(2, 4, 5, 8), random(2, 2, 7, 8, seed=1), random(2, 2, 7, 6, seed=2)
    bias = random(2, 1, 5, 7)
    for mode in range(4):
        more = {"qk_matmul_output_mode": mode, "softcap": 2.0, "is_causal": 1}
        yield Case("Attention", [q, k, v, bias], more, version=23, outputs=4, note=f"shown {mode}", **NEAR)
    lengths = ints(3, 7, dtype=np.int64)
    for causal in (0, 1):
        more = {"is_causal": causal}
        yield Case(
            "Attention", [q, k, v, None, None, None, lengths], more, version=24, note=f"lengths {causal}", **NEAR
        )
    more = {"left_window_size": 2, "is_causal": 1}
    yield Case("Attention", [q, k, v, None, None, None, lengths], more, version=25, note="lengths, window", **NEAR)
    preview: dict[str, Any] = {"domain": "ai.onnx.preview", "version": 1}
    yield Case("FlexAttention", [q, k, v], {"scale": 0.4}, **preview, **NEAR)
    flags = integers(5, 4, low=0, high=2, dtype=np.bool_)
    yield Case("Attention", [q, k, v, flags], {}, version=24, note="short mask", **NEAR)
    yield Case("Attention", [q, k, v, random(2, 4, 5, 3)], {}, version=24, note="short bias", **NEAR)


def standard_input_cases() -> Iterator[Case]:
    """ai.onnx's Attention with all its inputs together: packed and apart, grouped, with a cache, every kind of mask."""
    for packed in (0, 1):
        for past in (0, 3):
            total = past + 5
            if packed:
                q, k, v = random(2, 4, 32), random(2, 5, 16, seed=1), random(2, 5, 12, seed=2)
                heads = {"q_num_heads": 4, "kv_num_heads": 2}
            else:
                q, k, v, heads = random(2, 4, 4, 8), random(2, 2, 5, 8, seed=1), random(2, 2, 5, 6, seed=2), {}
            cache = [random(2, 2, past, 8, seed=3), random(2, 2, past, 6, seed=4)] if past else [None, None]
            hides = integers(2, 1, 4, total, low=0, high=2, dtype=np.bool_)
            masks = [None, hides, hides[0, 0], random(2, 4, 4, total), random(4, total), random(1, 4, 4, total)]
            for number, mask in enumerate(masks):
                more = {**heads, "is_causal": number % 2, "softcap": 0.0 if number % 3 else 3.0}
                if number > 3:
                    more["scale"] = 0.2
                note = f"{packed} {past} {number}"
                yield Case("Attention", [q, k, v, mask, *cache], more, version=23, outputs=3, note=note, **NEAR)
            if not past:
                lengths = ints(2, 5, dtype=np.int64)
                for number, mask in enumerate(masks[:4]):
                    note = f"{packed} lengths {number}"
                    yield Case("Attention", [q, k, v, mask, None, None, lengths], {**heads, "is_causal": number % 2},
                               version=24, note=note, **NEAR)  # fmt: skip


def multi_head_cases() -> Iterator[Case]:
    heads = {"num_heads": 4}
    q, k, v = random(2, 5, 16), random(2, 7, 16, seed=1), random(2, 7, 24, seed=2)
    bias = random(56, seed=3)
    yield Case("MultiHeadAttention", [q, k, v], heads, **MICROSOFT)
    yield Case("MultiHeadAttention", [q, k, v, bias], {**heads, "scale": 0.3}, note="bias", **MICROSOFT)
    yield Case("MultiHeadAttention", [random(2, 5, 4, 3, 6)], heads, note="packed", **MICROSOFT)
    yield Case("MultiHeadAttention", [q, random(2, 7, 4, 2, 4)], heads, note="packed keys", **MICROSOFT)
    ahead = [random(2, 4, 7, 4, seed=1), random(2, 4, 7, 6, seed=2)]
    yield Case("MultiHeadAttention", [q, *ahead], heads, note="heads first", **MICROSOFT)
    masks = [ints(3, 7), integers(2, 7, low=0, high=2), integers(2, 5, 7, low=0, high=2)]
    for mask in masks:
        given = [q, k, v, None, mask, random(2, 4, 5, 7)]
        yield Case("MultiHeadAttention", given, heads, note=f"mask {mask.ndim}", **MICROSOFT)
    past = [random(2, 4, 3, 4, seed=5), random(2, 4, 3, 6, seed=6)]
    given = [q, k[:, :5], v[:, :5], None, None, None, *past]
    more = {**heads, "unidirectional": 1}
    yield Case("MultiHeadAttention", given, more, outputs=4, note="past", **MICROSOFT)
    w, b = random(12, 48), random(48)
    x = random(2, 5, 12)
    yield Case("Attention", [x, w, b], heads, note="plain", **MICROSOFT)
    yield Case("Attention", [x, w, None, integers(2, 5, low=0, high=2)], heads, note="mask", **MICROSOFT)
    cache = random(2, 2, 4, 3, 4, seed=4)
    more = {**heads, "unidirectional": 1}
    yield Case("Attention", [x, w, b, None, cache], more, outputs=2, note="past", **MICROSOFT)
    yield Case("Attention", [x, random(12, 40), random(40)], {**heads, "qkv_hidden_sizes": [16, 16, 8]}, note="sizes",
               **MICROSOFT)  # fmt: skip


def grouped_cases() -> Iterator[Case]:
    heads = {"num_heads": 4, "kv_num_heads": 2}
    angles = random(16, 4, seed=9)
    turned = [np.cos(angles), np.sin(angles)]
    for length, before, capacity in ((5, (0, 0), 0), (1, (4, 2), 5), (1, (4, 2), 9), (3, (4, 1), 4)):
        total = max(before) + length
        q, k, v = random(2, length, 32), random(2, length, 16, seed=1), random(2, length, 16, seed=2)
        past = [random(2, 2, capacity, 8, seed=s) for s in (3, 4)] if capacity else [None, None]
        lengths = ints(*(b + length - 1 for b in before))
        given = [q, k, v, *past, lengths, ints(total)]
        for more, extra in (
            ({}, []),
            ({"do_rotary": 1}, turned),
            ({"do_rotary": 1, "rotary_interleaved": 1, "local_window_size": 3, "softcap": 1.5}, turned),
            ({"scale": 0.2}, [None, None, None, random(1, 4, length, total), random(4)]),
        ):
            yield Case("GroupQueryAttention", [*given, *extra], {**heads, **more}, (6,), outputs=3,
                       note=f"{length} {before} {capacity} {more}", **MICROSOFT)  # fmt: skip
        packed = [np.concatenate([q, k, v], axis=2), None, None, *past, lengths, ints(total), *turned]
        yield Case("GroupQueryAttention", packed, {**heads, "do_rotary": 1}, (6,), outputs=3,
                   note=f"packed {length} {capacity}", **MICROSOFT)  # fmt: skip
    positions = integers(2, 5, low=0, high=16, dtype=np.int64)
    for interleaved in (0, 1):
        for x in (random(2, 3, 5, 8), random(2, 5, 24)):
            for where in (positions, ints(3, dtype=np.int64)):
                yield Case("RotaryEmbedding", [x, where, *turned], {"interleaved": interleaved},
                           note=f"{interleaved} {where.size}", **MICROSOFT)  # fmt: skip
        more = {"interleaved": interleaved, "num_heads": 2, "rotary_embedding_dim": 8}
        yield Case(
            "RotaryEmbedding", [random(2, 5, 24), positions, *turned], more, note=f"part {interleaved}", **MICROSOFT
        )


def cache_cases() -> Iterator[Case]:
    """Caches of integers with their scales, and such as hold the last positions alone."""
    heads = {"num_heads": 4, "kv_num_heads": 2}
    for bits, dtype in ((8, np.int8), (4, np.uint8)):
        for name, shape in (("PER_TENSOR", (1,)), ("PER_CHANNEL", (1, 2, 1, 8))):
            factor = 0.01 if bits == 8 else 0.1
            scales = [(factor * (1 + np.abs(random(*shape, seed=s)))).astype(np.float32) for s in (5, 6)]
            more = {**heads, "k_quant_type": name, "v_quant_type": name, "kv_cache_bit_width": bits}
            for length, capacity, before in ((1, 6, (5, 3)), (3, 9, (4, 1)), (5, 5, (0, 0)), (1, 6, (6, 2))):
                q, k, v = random(2, length, 32), random(2, length, 16, seed=1), random(2, length, 16, seed=2)
                low = -128 if bits == 8 else 0
                past = [integers(2, 2, capacity, bits, low=low, high=127, dtype=dtype) for _ in range(2)]
                lengths = ints(*(b + length - 1 for b in before)), ints(max(before) + length)
                given = [q, k, v, *past, *lengths, None, None, None, None, None, *scales]
                yield Case("GroupQueryAttention", given, more, (6,), outputs=3, note=f"{bits} {name} {length} {before}",
                           **MICROSOFT)  # fmt: skip
    angles = random(40, 4, seed=9)
    turned = [np.cos(angles), np.sin(angles)]
    for capacity in (4, 6, 9):
        for length, before in ((1, 0), (1, 5), (1, 8), (1, 12), (5, 0), (3, 7), (12, 0), (4, 20)):
            q, k, v = random(1, length, 32), random(1, length, 16, seed=1), random(1, length, 16, seed=2)
            past = [random(1, 2, capacity, 8, seed=s) for s in (3, 4)]
            more = {**heads, "sliding_window_cache": 1, "local_window_size": 4, "do_rotary": length % 2}
            given = [q, k, v, *past, ints(before + length - 1), ints(before + length), *turned[: 2 * (length % 2)]]
            yield Case("GroupQueryAttention", given, more, (6,), outputs=3, note=f"window {capacity} {before}",
                       **MICROSOFT)  # fmt: skip
    q, k, v = random(2, 3, 32), random(2, 3, 16, seed=1), random(2, 3, 16, seed=2)
    past = [random(2, 2, 6, 8, seed=s) for s in (3, 4)]
    given = [q, k, v, *past, ints(4, 7), ints(8)]
    more = {**heads, "sliding_window_cache": 1, "local_window_size": 5}
    yield Case("GroupQueryAttention", given, more, (6,), outputs=3, note="windows", **MICROSOFT)
    yield Case("GroupQueryAttention", given, {**heads, "smooth_softmax": 1}, (6,), outputs=3, note="smooth",
               **MICROSOFT)  # fmt: skip
    norms = [np.abs(random(8, seed=s)) for s in (7, 8)]
    more = {**heads, "q_norm_epsilon": 0.1, "qk_norm_epsilon": 0.3}
    yield Case("GroupQueryAttention", [*given, *[None] * 7, *norms], more, (6,), outputs=3, note="norms", **MICROSOFT)
    packed = [np.concatenate([q, k, v], axis=2), None, None, *past, ints(4, 7), ints(8), *[None] * 7, *norms]
    yield Case("GroupQueryAttention", packed, more, (6,), outputs=3, note="packed norms", **MICROSOFT)


def linear_cases() -> Iterator[Case]:
    q, k, v = random(2, 5, 32), random(2, 5, 16, seed=1), random(2, 5, 12, seed=2)
    past, decay, beta = random(2, 2, 8, 6), -np.abs(random(2, 5, 16)), np.abs(random(2, 5, 2))
    heads = {"q_num_heads": 4, "kv_num_heads": 2}
    for rule in ("linear", "gated", "delta", "gated_delta"):
        for start in (None, past):
            more = {**heads, "update_rule": rule}
            yield Case("LinearAttention", [q, k, v, start, decay, beta], more, version=27, outputs=2,
                       note=f"{rule} {start is not None}", **NEAR)  # fmt: skip
    few = [q, k, v, None, -np.abs(random(2, 5, 2)), np.abs(random(2, 5, 1))]
    yield Case("LinearAttention", few, {**heads, "scale": 0.3}, version=27, outputs=2, note="one gate", **NEAR)
    x, w = random(2, 3, 6), random(3, 1, 4)
    for name in ("none", "silu"):
        for extra in ([], [random(3)], [None, random(2, 3, 3)]):
            yield Case("CausalConvWithState", [x, w, *extra], {"activation": name}, version=27, outputs=2,
                       note=f"{name} {len(extra)}", **NEAR)  # fmt: skip


def training_cases() -> Iterator[Case]:
    preview: dict[str, Any] = {"domain": "ai.onnx.preview.training", "version": 1, **NEAR}
    rate = np.array(0.1, np.float32)
    tensors = [random(3, 4, seed=s) for s in range(2)]
    gradients = [random(3, 4, seed=s) for s in range(2, 4)]
    squares = [np.abs(random(3, 4, seed=s)) for s in range(4, 6)]
    for steps in (0, 3):
        t = np.array(steps, np.int64)
        more = {"norm_coefficient": 0.01, "decay_factor": 0.1}
        yield Case("Adagrad", [rate, t, *tensors, *gradients, *squares], more, outputs=4, note=str(steps), **preview)
        more = {"norm_coefficient": 0.01, "norm_coefficient_post": 0.02}
        four = [rate, t, *tensors, *gradients, *gradients, *squares]
        yield Case("Adam", four, more, outputs=6, note=str(steps), **preview)
        for mode in ("standard", "nesterov"):
            more = {"alpha": 0.9, "beta": 0.8, "mode": mode, "norm_coefficient": 0.01}
            yield Case("Momentum", [rate, t, *tensors, *gradients, *squares], more, outputs=4, note=f"{mode} {steps}",
                       **preview)  # fmt: skip


FAMILIES: dict[str, Callable[[], Iterator[Case]]] = {
    "attention outputs": standard_cases,
    "attention inputs": standard_input_cases,
    "heads": multi_head_cases,
    "grouped heads": grouped_cases,
    "caches": cache_cases,
    "linear attention": linear_cases,
    "training": training_cases,
}
