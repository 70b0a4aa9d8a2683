"""Attention in its several forms, written out as `ai.onnxlet::FusedAttention`, which has a kernel."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from onnxlet.providers.base import Step

from ..compiler import Compiler, Place
from ..engine import f32
from ..layouts import broadcast_strides, strides_of
from ..pieces import PANEL
from .common import (
    BOOL,
    F32,
    I32,
    I64,
    dtype_of,
    grain,
    need_constant,
    need_float32,
    need_types,
    output_shape,
    present,
    shape_of,
)
from .copies import copy_block
from .expansion import Expansion, expand
from .normalize import EXPENSIVE
from .registry import Emit, Refused, lower

MICROSOFT = "com.microsoft"


ONNXLET = "ai.onnxlet"
UNITS = 8
"""Pieces of work that attention should fall into, for threads to share."""

LEAST_SPAN = 96
"""Queries that are worth packing keys and values for."""


@dataclass(frozen=True, slots=True)
class Heads:
    """Queries, keys or values (batch, heads, rows, size); with `last`, they lie as (batch, rows, heads, size)."""

    name: str
    last: int = 0


@dataclass(frozen=True, slots=True)
class Scores:
    """How scores are made from queries and keys. `biases` are names of values that are added, `keep` is that of a mask
    or empty; where `hides` is set one of them may hide all keys of a query, whose result is then 0."""

    scale: float
    biases: Sequence[str] = ()
    keep: str = ""
    causal_offset: int | None = None
    cap: float = 0.0
    hides: bool = False


def split_heads(e: Expansion, x: str, heads: int | None) -> Heads:
    """(batch, length, heads * size) as (batch, length, heads, size); four axes stay as they are."""
    shape = e.shape(x)
    if len(shape) == 4:
        return Heads(x)
    if len(shape) != 3 or not heads or shape[2] % heads:
        raise Refused("queries, keys or values of this shape have no kernel")
    return Heads(e.reshape(x, (*shape[:2], heads, shape[2] // heads)), 1)


def heads_first(e: Expansion, x: Heads) -> str:
    return e.transpose(x.name, (0, 2, 1, 3)) if x.last else x.name


def size(e: Expansion, x: Heads) -> tuple[int, int, int, int]:
    """Batch, heads, rows and size."""
    batch, heads, rows, size = e.shape(x.name)
    return (batch, rows, heads, size) if x.last else (batch, heads, rows, size)


def attend(e: Expansion, q: Heads, k: Heads, v: Heads, how: Scores, *, joined: bool, output: str = "") -> str:
    """Softmax(scores) V per head: (batch, heads, length, size), or (batch, length, heads * size) where `joined`. Keys
    and values may have fewer heads than queries."""
    batch, heads, queries, _ = size(e, q)
    shared, keys, value_size = size(e, k)[1], size(e, k)[2], size(e, v)[3]
    if not shared or heads % shared or not keys:
        raise Refused("this number of heads or keys has no kernel")
    if how.cap:
        y = _attend_capped(e, heads_first(e, q), heads_first(e, k), heads_first(e, v), how, "" if joined else output)
        return e.reshape(e.transpose(y, (0, 2, 1, 3)), (batch, queries, heads * value_size), output) if joined else y
    bias = ""
    for other in how.biases:
        bias = e.binary("Add", bias, other) if bias else other
    attributes: dict[str, Any] = {"scale": how.scale, "unseen": int(how.hides)}
    if how.causal_offset is not None:
        attributes["causal_offset"] = how.causal_offset
    y = e.add(
        "FusedAttention", [q.name, k.name, v.name, bias, how.keep],
        (batch, queries, heads, value_size) if joined else (batch, heads, queries, value_size),
        output="" if joined else output, domain=ONNXLET, version=1, heads_last=[q.last, k.last, v.last, int(joined)],
        **attributes,
    )  # fmt: skip
    return e.reshape(y, (batch, queries, heads * value_size), output) if joined else y


def _attend_capped(e: Expansion, q: str, k: str, v: str, how: Scores, output: str) -> str:
    """Attention whose scores go through a tanh, as a chain of products; all heads first."""
    batch, heads, queries, depth = e.shape(q)
    shared, keys, value_size = e.shape(k)[1], e.shape(k)[2], e.shape(v)[3]
    rows = heads // shared * queries
    if heads != shared:  # queries that share a head are rows of one product
        q = e.reshape(q, (batch, shared, rows, depth))
    scores = e.add(
        "FusedMatMul", [q, k], (batch, shared, rows, keys), domain=MICROSOFT, version=1, transB=1, alpha=how.scale
    )
    scores = e.reshape(scores, (batch, heads, queries, keys))
    capped = e.add("Tanh", [e.binary("Mul", scores, e.literal(1 / how.cap))])
    scores = e.binary("Mul", capped, e.literal(how.cap))
    for bias in how.biases:
        scores = e.binary("Add", scores, bias)
    if how.keep:
        scores = e.add("Where", [how.keep, scores, e.literal(-np.inf)], e.shape(scores))
    if how.causal_offset is not None:
        seen = np.arange(keys) <= np.arange(queries)[:, None] + how.causal_offset
        scores = e.add("Where", [e.literal(seen, BOOL), scores, e.literal(-np.inf)], e.shape(scores))
    weights = e.add("Softmax", [scores], version=13, axis=-1)
    if how.hides:
        # A row that sees nothing; one with a NaN among its scores is NaN.
        largest = e.add("ReduceMax", [scores], (*e.shape(scores)[:-1], 1), version=13, axes=[-1])
        nothing = e.binary("Equal", largest, e.literal(-np.inf), dtype=BOOL)
        weights = e.add("Where", [nothing, e.literal(0), weights], e.shape(weights))
    weights = e.reshape(weights, (batch, shared, rows, keys))
    shared_result = e.add("MatMul", [weights, v], (batch, shared, rows, value_size))
    return e.reshape(shared_result, (batch, heads, queries, value_size), output)


def _placed(shape: tuple[int, ...], last: int, index: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Batch, heads, rows and size of an operand of FusedAttention, and their strides in elements."""
    if len(shape) not in (3, 4):
        raise Refused("attention of this rank has no kernel")
    lengths = (1, *shape)[-4:]
    strides = tuple(strides_of(lengths))
    if last:
        lengths, strides = ((t[0], t[2], t[1], t[3]) for t in (lengths, strides))
    return lengths, strides


@lower("FusedAttention", domain=ONNXLET)
def fused_attention(step: Step) -> Emit:
    """Q, K, V, bias, mask of what is kept."""
    need_float32(step, 0, 1, 2, 3)
    need_types(step, (BOOL,), 4)
    last = step.attribute("heads_last") or [0] * 4
    (q, q_strides), (k, k_strides), (v, v_strides) = (_placed(shape_of(step, i), last[i], i) for i in range(3))
    y, y_strides = _placed(output_shape(step), last[3], 3)
    batch, heads, queries, depth = q
    shared, keys, value_depth = k[1], k[2], v[3]
    if v[1] != shared or not shared or heads % shared or not keys or not depth or not prod(y):
        raise Refused("this number of heads or keys has no kernel")
    if y != (batch, heads, queries, value_depth) or not {k[0], v[0]} <= {1, batch}:
        raise Refused("a batch that is broadcast has no kernel")
    scores = (batch, heads, queries, keys)
    units = batch * heads
    spans = min(-(-UNITS // units), max(1, queries // LEAST_SPAN))
    span = -(-queries // spans)
    units *= -(-queries // span)
    offset = step.attribute("causal_offset")

    def emit(c: Compiler) -> None:
        fields = {
            name: place
            for letter, lengths, strides, place in (
                ("q", q, q_strides, c.input(0)), ("k", k, k_strides, c.input(1)), ("v", v, v_strides, c.input(2)),
                ("y", y, y_strides, c.output()),
            )
            for name, place in (
                (letter, place), (f"{letter}_batch", strides[0] if lengths[0] > 1 else 0),
                (f"{letter}_head", strides[1]), (f"{letter}_row", strides[2]),
            )
        }  # fmt: skip
        for name, index, itemsize in (("bias", 3, 4), ("keep", 4, 1)):
            place, steps = _mask_rows(c, index, scores, itemsize)
            fields |= {name: place, f"{name}_batch": steps[0], f"{name}_head": steps[1], f"{name}_row": steps[2]}
        padded = -(-keys // PANEL) * PANEL
        c.emit(
            "attention", units=units, grain=grain(units, prod(scores) * (depth + value_depth + EXPENSIVE)),
            scratch=4 * (padded * (depth + 24) + keys * -(-value_depth // PANEL) * PANEL),
            heads=heads, group=heads // shared, queries=queries, keys=keys, depth=depth, value_depth=value_depth,
            scale=f32(float(step.attribute("scale", 1.0))), fill=f32(float(step.attribute("fill", -math.inf))),
            causal=int(offset is not None), causal_offset=offset or 0, unseen=step.attribute("unseen", 0), span=span,
            **fields,
        )  # fmt: skip

    return emit


def _mask_rows(c: Compiler, index: int, scores: tuple[int, ...], itemsize: int) -> tuple[Place, list[int]]:
    """The place of a mask whose rows are as long as those of the scores, and its steps per batch, head and row."""
    if not present(c.step, index):
        return 0, [0, 0, 0]
    shape = shape_of(c.step, index)
    place = c.input(index)
    steps = broadcast_strides(shape, scores)
    if steps[3] != 1 and scores[3] > 1:  # one value for all keys
        rows = (*shape[:-1], scores[3]) if shape else (scores[3],)
        spread = c.temporary(itemsize * prod(rows))
        copy_block(c, place, broadcast_strides(shape, rows), spread, strides_of(rows), rows, itemsize)
        place, steps = spread, broadcast_strides(rows, scores)
    return place, steps[:3]


def with_past(e: Expansion, past: int, new: Heads, output: int) -> Heads:
    """The cache at input `past` with what is new, as output number `output` where that is wanted."""
    name = e.output(output)
    if not present(e.step, past):
        return Heads(e.add("Identity", [heads_first(e, new)], output=name)) if name else new
    cached = e.input(past)
    batch, heads, length, depth = e.shape(cached)
    total = (batch, heads, length + size(e, new)[2], depth)
    return Heads(e.add("Concat", [cached, heads_first(e, new)], total, output=name, axis=2))


@expand("Attention")
def attention(e: Expansion) -> None:
    """Q, K, V, mask, past keys and values; outputs Y, present keys and values."""
    step = e.step
    need_float32(step, 0, 1, 2, 4, 5)
    if present(step, 6) or e.output(3):
        raise Refused("Attention with lengths, or that shows its scores, has no kernel")
    if step.attribute("softmax_precision", 1) not in (1, 10, 16):
        raise Refused("a softmax in float64 has no kernel")
    if max(step.attribute("left_window_size", -1), step.attribute("right_window_size", -1)) >= 0:
        raise Refused("Attention in a window has no kernel")
    q = split_heads(e, e.input(0), step.attribute("q_num_heads"))
    k, v = (split_heads(e, e.input(i), step.attribute("kv_num_heads")) for i in (1, 2))
    past = shape_of(step, 4)[2] if present(step, 4) else 0
    k, v = with_past(e, 4, k, 1), with_past(e, 5, v, 2)
    bias, keep = _mask(e, size(e, k)[2])
    scale = step.attribute("scale")
    how = Scores(
        1 / math.sqrt(size(e, q)[3]) if scale is None else float(scale), bias, keep,
        past if step.attribute("is_causal", 0) else None, float(step.attribute("softcap", 0.0)), present(step, 3),
    )  # fmt: skip
    attend(e, q, k, v, how, joined=len(shape_of(step, 0)) == 3, output=e.output())


def _mask(e: Expansion, keys: int) -> tuple[list[str], str]:
    """The mask at input 3 as biases, and as a mask of what is kept."""
    if not present(e.step, 3):
        return [], ""
    if shape_of(e.step, 3)[-1] != keys:
        raise Refused("a mask shorter than the keys has no kernel")
    dtype = dtype_of(e.step, 3)
    if dtype not in (F32, BOOL):
        raise Refused(f"a mask of {dtype} has no kernel")
    return ([], e.input(3)) if dtype == BOOL else ([e.input(3)], "")


def _hidden_keys(e: Expansion, index: int, queries: int, keys: int) -> list[str]:
    """The mask of com.microsoft's operators, 1 for what is seen, as a bias; nothing where it is absent."""
    if not present(e.step, index):
        return []
    batch, given, dtype = shape_of(e.step, 0)[0], shape_of(e.step, index), dtype_of(e.step, index)
    shapes = {(batch, keys): (batch, 1, 1, keys), (batch, queries, keys): (batch, 1, queries, keys)}
    if given in ((batch,), (2 * batch,)):
        seen, shape = _between(e, e.input(index), batch, keys), (batch, 1, 1, keys)
    elif given in shapes and dtype.kind == "i":
        shape = shapes[given]
        seen = e.reshape(e.binary("Greater", e.input(index), e.literal(0, dtype), dtype=BOOL), shape)
    else:
        raise Refused("a mask of this shape has no kernel")
    value = float(e.step.attribute("mask_filter_value", -10000.0))
    return [e.add("Where", [seen, e.literal(0), e.literal(value)], shape)]


def _between(e: Expansion, bounds: str, batch: int, keys: int) -> str:
    """Which keys lie before the end, and not before the start, of each sample: `bounds` holds all ends, then perhaps
    all starts."""
    dtype = e.dtype(bounds)
    if dtype not in (I32, I64):
        raise Refused(f"a mask of {dtype} has no kernel")
    sides = e.shape(bounds)[0] // batch
    ends = e.reshape(bounds, (sides, batch, 1, 1, 1))
    at = e.literal(np.arange(keys), dtype)
    cuts = [
        e.add("Slice", [ends, *(e.literal([n], I64) for n in (side, side + 1))], (1, batch, 1, 1, 1), dtype=dtype)
        for side in range(sides)
    ]
    seen = e.binary("Less", at, e.reshape(cuts[0], (batch, 1, 1, 1)), dtype=BOOL)
    if sides == 2:
        begun = e.binary("GreaterOrEqual", at, e.reshape(cuts[1], (batch, 1, 1, 1)), dtype=BOOL)
        seen = e.binary("And", seen, begun, dtype=BOOL)
    return seen


def _microsoft_scores(e: Expansion, q: Heads, k: Heads, mask: int, bias: int) -> Scores:
    queries, keys = size(e, q)[2], size(e, k)[2]
    biases = _hidden_keys(e, mask, queries, keys)
    if present(e.step, bias):
        biases.append(e.input(bias))
    offset = keys - queries if e.step.attribute("unidirectional", 0) else None
    scale = float(e.step.attribute("scale") or 1 / math.sqrt(size(e, q)[3]))
    return Scores(scale, biases, causal_offset=offset, hides=present(e.step, bias))


@expand("Attention", domain=MICROSOFT)
def attention_with_projection(e: Expansion) -> None:
    """Input, weights, bias, mask, past, bias of the scores; outputs Y and keys and values."""
    step = e.step
    need_float32(step, 0, 1, 2, 4, 5)
    if present(step, 4) or e.output(1) or step.attribute("do_rotary", 0):
        raise Refused("Attention with a cache or rotary positions has no kernel")
    (batch, length, _), heads = shape_of(step, 0), step.attribute("num_heads")
    sizes = step.attribute("qkv_hidden_sizes") or [shape_of(step, 1)[1] // 3] * 3
    inputs = [e.input(0), e.input(1), e.input(2)] if present(step, 2) else [e.input(0), e.input(1)]
    projected = e.add("FusedMatMul", inputs, (batch, length, sum(sizes)), domain="ai.onnxlet", version=1)
    q, k, v = (split_heads(e, _columns(e, projected, sum(sizes[:i]), sizes[i]), heads) for i in range(3))
    attend(e, q, k, v, _microsoft_scores(e, q, k, 3, 5), joined=True, output=e.output())


@expand("QAttention", domain=MICROSOFT)
def attention_of_bytes(e: Expansion) -> None:
    """Input and weights in 8 bits, bias, both scales, mask, both zero points, past; outputs Y and keys and values."""
    step = e.step
    if present(step, 8) or e.output(1) or step.attribute("do_rotary", 0):
        raise Refused("QAttention with a cache or rotary positions has no kernel")
    (batch, length, _), columns = shape_of(step, 0), shape_of(step, 1)[1]
    inputs = [e.input(i) for i in (0, 1, 3, 4, 6, 7, 2)]
    projected = e.add("MatMulIntegerToFloat", inputs, (batch, length, columns), domain=MICROSOFT, version=1)
    parts = [_columns(e, projected, i * columns // 3, columns // 3) for i in range(3)]
    q, k, v = (split_heads(e, part, step.attribute("num_heads")) for part in parts)
    attend(e, q, k, v, _microsoft_scores(e, q, k, 5, len(step.node.inputs)), joined=True, output=e.output())


def _columns(e: Expansion, x: str, start: int, count: int) -> str:
    shape = e.shape(x)
    bounds = [e.literal([n], np.dtype(np.int64)) for n in (start, start + count, len(shape) - 1)]
    return e.add("Slice", [x, *bounds], (*shape[:-1], count))


@expand("MultiHeadAttention", domain=MICROSOFT)
def multi_head_attention(e: Expansion) -> None:
    """Query, key, value, bias, mask of keys, bias of the scores, past keys and values."""
    step = e.step
    need_float32(step, 0, 1, 2, 3, 5, 6, 7)
    if any(present(step, i) for i in (8, 9)) or e.output(3) or not (present(step, 1) and present(step, 2)):
        raise Refused("packed inputs and shared caches have no kernel")
    if len(shape_of(step, 0)) != 3 or len(shape_of(step, 1)) == 5:
        raise Refused("packed inputs have no kernel")
    heads, parts, start = step.attribute("num_heads"), [], 0
    for i in range(3):
        part = e.input(i)
        if present(step, 3) and len(e.shape(part)) == 3:
            width = e.shape(part)[2]
            part = e.binary("Add", part, _columns(e, e.input(3), start, width))
        start += e.shape(e.input(0))[2]
        parts.append(split_heads(e, part, heads))
    q, k, v = parts[0], with_past(e, 6, parts[1], 1), with_past(e, 7, parts[2], 2)
    attend(e, q, k, v, _microsoft_scores(e, q, k, 4, 5), joined=True, output=e.output())


@expand("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_with_bias(e: Expansion) -> None:
    """A bias of the skip is added first; without one the operator has a kernel."""
    at = 4 if e.step.node.op_type == "SkipLayerNormalization" else 3
    if not present(e.step, at):
        e.steps.append(e.step)
        return
    if any(e.output(i) for i in (1, 2, 3)):
        raise Refused("further outputs of a biased skip have no kernel")
    biased = e.binary("Add", e.input(0), e.input(at))
    attributes = dict(e.step.node.attributes)
    inputs = [biased, *(e.input(i) for i in range(1, at))]
    e.add(e.step.node.op_type, inputs, output=e.output(), domain=MICROSOFT, version=1, **attributes)


@expand("GroupNormalization")
def group_normalization_by_group(e: Expansion) -> None:
    """In opset 18 scale and bias are per group: constants are repeated for the channels."""
    groups, channels = e.step.attribute("num_groups"), shape_of(e.step, 0)[1]
    if not groups or channels % groups or groups == channels or shape_of(e.step, 1) != (groups,):
        e.steps.append(e.step)
        return
    for i in (1, 2):
        need_constant(e.step, i, "scale and bias")
    repeats = channels // groups
    scale, bias = (
        e.derived(("repeated", repeats), [i], (channels,), lambda values: np.repeat(values, repeats)) for i in (1, 2)
    )
    e.add("GroupNormalization", [e.input(0), scale, bias], output_shape(e.step), output=e.output(),
          **e.step.node.attributes)  # fmt: skip
