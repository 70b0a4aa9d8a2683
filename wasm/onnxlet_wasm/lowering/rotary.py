"""Rotary positions, and attention with them over a cache: RotaryEmbedding, GroupQueryAttention, TensorScatter."""

from __future__ import annotations

import math
from collections.abc import Sequence
from math import prod

import numpy as np

from onnxlet.providers.base import Step

from ..compiler import Compiler
from ..layouts import strides_of
from .attention import Heads, Scores, attend, split_heads
from .carried import to_type
from .common import (
    BOOL,
    F32,
    I32,
    I64,
    grain,
    need_constant,
    need_float32,
    need_types,
    normal_axis,
    present,
    shape_of,
    text,
)
from .copies import need_copyable
from .expansion import Expansion, expand
from .registry import Emit, Refused, lower

OWN = "ai.onnxlet"
MICROSOFT = "com.microsoft"

NOWHERE = 1 << 40
"""An index that no axis has, in place of a negative one, which would count from the end."""


@lower("Rotary", domain=OWN)
def rotary(step: Step) -> Emit:
    """x (batch, heads, length, size), with `heads_last` (batch, length, heads, size); cosines and sines; positions."""
    shape, angles, last = shape_of(step, 0), shape_of(step, 1), bool(step.attribute("heads_last"))
    batch, length, heads, size = shape if last else (shape[0], shape[2], shape[1], shape[3])
    half, placed = angles[-1], present(step, 3)
    if 2 * half > size or shape_of(step, 2) != angles or len(angles) != (2 if placed else 3):
        raise Refused("angles of this shape have no kernel")
    if placed and prod(shape_of(step, 3)) != batch * length:
        raise Refused("positions of this shape have no kernel")
    if not placed and (angles[1] != length or angles[0] not in (1, batch)):
        raise Refused("angles of this shape have no kernel")
    steps = strides_of(shape)
    by_batch, by_head, by_row = (steps[0], steps[2], steps[1]) if last else steps[:3]

    def emit(c: Compiler) -> None:
        units = batch * length * heads
        c.emit(
            "rotary", units=units, grain=grain(units, 4 * units * size), x=c.input(0), y=c.output(0, over=[0]),
            cos=c.input(1), sin=c.input(2), positions=c.input(3), rows=angles[0], error=c.error_flag(), length=length,
            heads=heads, size=size, half=half, interleaved=step.attribute("interleaved"),
            angles_batch=0 if placed or angles[0] == 1 else length, x_batch=by_batch, x_row=by_row, x_head=by_head,
            y_batch=by_batch, y_row=by_row, y_head=by_head,
        )  # fmt: skip

    return emit


def _rotate(e: Expansion, x: Heads, cos: str, sin: str, positions: str, interleaved: int, output: str = "") -> Heads:
    inputs = [x.name, cos, sin, positions] if positions else [x.name, cos, sin]
    y = e.add("Rotary", inputs, output=output, domain=OWN, version=1, heads_last=x.last, interleaved=interleaved)
    return Heads(y, x.last)


def _rotate_heads(e: Expansion, x: str, heads: int, cos: str, sin: str, positions: str) -> None:
    parts = split_heads(e, x, heads)
    interleaved, whole = int(e.step.attribute("interleaved", 0)), parts.name == x
    y = _rotate(e, parts, cos, sin, positions, interleaved, e.output() if whole else "")
    if not whole:
        e.reshape(y.name, e.shape(x), e.output())


@expand("RotaryEmbedding")
def rotary_embedding(e: Expansion) -> None:
    step = e.step
    need_float32(step, 0, 1, 2)
    need_types(step, (I32, I64), 3)
    placed = present(step, 3)
    positions = to_type(e, e.input(3), I64) if placed else ""
    _rotate_heads(e, e.input(0), step.attribute("num_heads", 0), e.input(1), e.input(2), positions)


@expand("RotaryEmbedding", domain=MICROSOFT)
def rotary_embedding_microsoft(e: Expansion) -> None:
    """Positions are one per token, or a single one from which they count on."""
    step, x = e.step, e.input(0)
    need_float32(step, 0, 2, 3)
    need_types(step, (I64,), 1)
    shape, given, heads = shape_of(step, 0), shape_of(step, 1), int(step.attribute("num_heads", 0))
    size = 2 * shape_of(step, 2)[1]
    if step.attribute("rotary_embedding_dim", 0) and heads:
        size = shape[2] // heads if len(shape) == 3 else shape[3]
    if len(shape) == 3:
        heads = heads or shape[2] // size
    length = shape[1] if len(shape) == 3 else shape[2]
    positions = e.input(1)
    if prod(given) == 1 and (shape[0], length) != (1, 1):
        steps = e.literal(np.broadcast_to(np.arange(length), (shape[0], length)), I64)
        positions = e.binary("Add", e.reshape(positions, (1, 1)), steps, dtype=I64)
    _rotate_heads(e, x, heads, e.input(2), e.input(3), positions)


def _not_negative(e: Expansion, positions: str) -> str:
    """Positions with negative ones moved to where they are an error."""
    below = e.binary("Less", positions, e.literal(0, I64), dtype=BOOL)
    return e.add("Where", [below, e.literal(NOWHERE, I64), positions], e.shape(positions), dtype=I64)


def _written(e: Expansion, cache: str, new: str, positions: str, axis: int, output: str = "") -> str:
    """The cache with `new`, whose `axis` is shorter, written at positions (batch, length) along that axis."""
    shape, dtype = e.shape(new), e.dtype(new)
    indexed = shape[: axis + 1]
    rows = [1 if i not in (0, axis) else n for i, n in enumerate(indexed)]
    zeros = e.literal(np.zeros((*indexed, 1)), I64)
    along = e.binary("Add", e.reshape(positions, (*rows, 1)), zeros, dtype=I64)
    others = np.stack(list(np.indices(indexed))[:-1], -1)
    indices = e.add("Concat", [e.literal(others, I64), along], (*indexed, axis + 1), dtype=I64, axis=-1)
    return e.add("ScatterND", [cache, indices, new], dtype=dtype, output=output, reduction="none")


@expand("TensorScatter")
def tensor_scatter(e: Expansion) -> None:
    step, cache, new = e.step, e.input(0), e.input(1)
    need_copyable(step, 0)
    axis = normal_axis(int(step.attribute("axis", -2)), len(e.shape(cache)))
    mode, space = text(step.attribute("mode", "linear")), e.shape(cache)[axis]
    if axis == 0 or mode not in ("linear", "circular") or not prod(e.shape(new)):
        raise Refused("this way to scatter has no kernel")
    batch, length = e.shape(new)[0], e.shape(new)[axis]
    positions = e.literal(np.broadcast_to(np.arange(length), (batch, length)), I64)
    if present(step, 2):
        first = e.reshape(to_type(e, e.input(2), I64), (batch, 1))
        positions = e.binary("Add", first, positions, dtype=I64)
    if mode == "circular":
        positions = e.binary("Mod", positions, e.literal(space, I64), dtype=I64)
    _written(e, cache, new, _not_negative(e, positions), axis, e.output())


@expand("GroupQueryAttention", domain=MICROSOFT)
def group_query_attention(e: Expansion) -> None:
    """Query, key, value, caches of both, lengths less one, total length; cosines, sines, positions, bias of scores."""
    step = e.step
    need_float32(step, 0, 1, 2, 3, 4, 7, 8, 10)
    if any(present(step, i) for i in range(11, 17)) or e.output(3) or int(step.attribute("smooth_softmax", -1)) > 0:
        raise Refused("sinks, scales and norms of heads and padded queries have no kernel")
    if step.attribute("sliding_window_cache", 0):
        raise Refused("caches of a window's size have no kernel")
    need_types(step, (I32, I64), 5)
    total = int(need_constant(step, 6, "total length").reshape(-1)[0])
    heads, shared = int(step.attribute("num_heads")), int(step.attribute("kv_num_heads"))
    q, k, v = _parts(e, heads, shared)
    batch, length, _, size = e.shape(q.name)
    if not batch or not length or length > total:
        raise Refused("attention of this many queries has no kernel")
    for i, new in ((3, k), (4, v)):
        past = shape_of(step, i) if present(step, i) else (batch, shared, 0, e.shape(new.name)[3])
        fits = past == (batch, shared, past[2], e.shape(new.name)[3]) and e.shape(new.name)[:2] == (batch, length)
        if not fits or present(step, 3) != present(step, 4):
            raise Refused("keys, values or caches of this shape have no kernel")
    if e.shape(k.name)[3] != size or prod(shape_of(step, 5)) != batch:
        raise Refused("keys or lengths of this shape have no kernel")
    if present(step, 10) and np.broadcast_shapes(shape_of(step, 10), (batch, heads, length, total)) != (
        batch, heads, length, total,
    ):  # fmt: skip
        raise Refused("a bias of this shape has no kernel")
    steps = np.broadcast_to(np.arange(length), (batch, length))
    if length == total:
        positions = e.literal(steps, I64)
    else:
        before = e.reshape(to_type(e, e.input(5), I64), (batch, 1))
        positions = e.binary("Add", before, e.literal(steps + 1 - length, I64), dtype=I64)
        positions = _not_negative(e, positions)
    if step.attribute("do_rotary", 0):
        angles = positions
        if present(step, 9):
            angles = to_type(e, e.input(9), I64)
        turn = (e.input(7), e.input(8), angles, int(step.attribute("rotary_interleaved", 0)))
        q, k = _rotate(e, q, *turn), _rotate(e, k, *turn)
    keys, values = (_cached(e, 3 + i, x, positions, total, e.output(1 + i)) for i, x in enumerate((k, v)))

    keep = ""
    window = int(step.attribute("local_window_size", -1))
    at, slots = e.reshape(positions, (batch, 1, length, 1)), e.literal(np.arange(total), I64)
    if step.attribute("causal", 1):
        keep = e.binary("LessOrEqual", slots, at, dtype=BOOL)
    else:
        ends = e.reshape(to_type(e, e.input(5), I64), (batch, 1, 1, 1))
        keep = e.binary("LessOrEqual", slots, ends, dtype=BOOL)
    if window > 0:
        inside = e.binary("Greater", slots, e.binary("Sub", at, e.literal(window, I64), dtype=I64), dtype=BOOL)
        keep = e.binary("And", keep, inside, dtype=BOOL)
    bias = [e.input(10)] if present(step, 10) else []
    scale = float(step.attribute("scale") or 1 / math.sqrt(size))
    how = Scores(scale, bias, keep, cap=float(step.attribute("softcap", 0.0)), hides=True)
    attend(e, q, keys, values, how, joined=True, output=e.output())


def _parts(e: Expansion, heads: int, shared: int) -> list[Heads]:
    """Queries, keys and values, (batch, length, heads, size); they may come packed as the query."""
    if present(e.step, 1) and present(e.step, 2):
        names = [e.input(i) for i in range(3)]
        return [split_heads(e, name, n) for name, n in zip(names, (heads, shared, shared), strict=True)]
    batch, length, width = shape_of(e.step, 0)
    size, parts, start = width // (heads + 2 * shared), [], 0
    for n in (heads, shared, shared):
        bounds = [e.literal([b], I64) for b in (start, start + n * size, 2)]
        cut = e.add("Slice", [e.input(0), *bounds], (batch, length, n * size))
        parts.append(split_heads(e, cut, n))
        start += n * size
    return parts


def _cached(e: Expansion, past: int, new: Heads, positions: str, total: int, output: str) -> Heads:
    """The cache, (batch, heads, capacity, size), with what is new, up to the `total` length."""
    batch, length, heads, size = e.shape(new.name)
    rows = e.transpose(new.name, (0, 2, 1, 3))
    filled = shape_of(e.step, past)[2] if present(e.step, past) else 0
    capacity = max(total, filled)
    shape = (batch, heads, capacity, size)
    if length == capacity:
        return Heads(e.add("Identity", [rows], output=output) if output else rows)
    if filled:
        # What lies behind the sequence so far is not of it.
        first = e.add("Slice", [positions, *(e.literal([b], I64) for b in (0, 1, 1))], (batch, 1), dtype=I64)
        first = e.reshape(first, (batch, 1, 1, 1))
        slots = e.literal(np.arange(filled).reshape(-1, 1), I64)
        seen = e.binary("Less", slots, first, dtype=BOOL)
        cache = e.add("Where", [seen, e.input(past), e.literal(0.0)], (batch, heads, filled, size))
        if filled < capacity:
            cache = e.add("Pad", [cache, e.literal([0] * 6 + [capacity - filled, 0], I64)], shape)
    else:
        cache = e.literal(np.zeros(shape), F32)
    whole = _written(e, cache, rows, positions, 2, output)
    if capacity == total:
        return Heads(whole)
    bounds: Sequence[str] = [e.literal([b], I64) for b in (0, total, 2)]
    return Heads(e.add("Slice", [whole, *bounds], (batch, heads, total, size)))
