"""Attention in its several forms, written out as products, masks and a softmax."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .common import BOOL, F32, dtype_of, need_constant, need_float32, output_shape, present, shape_of
from .expansion import Expansion, expand
from .registry import Refused

MICROSOFT = "com.microsoft"


@dataclass(frozen=True, slots=True)
class Scores:
    """How scores are made from queries and keys. `biases` are names of values that are added; where `hides` is set
    one of them may hide all keys of a query, whose result is then 0."""

    scale: float
    biases: Sequence[str] = ()
    cap: float = 0.0
    hides: bool = False


def split_heads(e: Expansion, x: str, heads: int | None) -> str:
    """(batch, length, heads * size) as (batch, heads, length, size); four axes stay as they are."""
    shape = e.shape(x)
    if len(shape) == 4:
        return x
    if len(shape) != 3 or not heads or shape[2] % heads:
        raise Refused("queries, keys or values of this shape have no kernel")
    return e.transpose(e.reshape(x, (*shape[:2], heads, shape[2] // heads)), (0, 2, 1, 3))


def join_heads(e: Expansion, x: str, output: str) -> str:
    batch, heads, length, size = e.shape(x)
    return e.reshape(e.transpose(x, (0, 2, 1, 3)), (batch, length, heads * size), output)


def attend(e: Expansion, q: str, k: str, v: str, how: Scores, output: str = "") -> str:
    """Softmax(scores) V per head, (batch, heads, length, size). Keys and values may have fewer heads than queries."""
    batch, heads, queries, size = e.shape(q)
    shared, keys, value_size = e.shape(k)[1], e.shape(k)[2], e.shape(v)[3]
    if not shared or heads % shared or not keys:
        raise Refused("this number of heads or keys has no kernel")
    rows = heads // shared * queries
    if heads != shared:  # queries that share a head are rows of one product
        q = e.reshape(q, (batch, shared, rows, size))
    scores = e.add(
        "FusedMatMul", [q, k], (batch, shared, rows, keys), domain=MICROSOFT, version=1, transB=1, alpha=how.scale
    )
    if heads != shared:
        scores = e.reshape(scores, (batch, heads, queries, keys))
    if how.cap:
        capped = e.add("Tanh", [e.binary("Mul", scores, e.literal(1 / how.cap))])
        scores = e.binary("Mul", capped, e.literal(how.cap))
    for bias in how.biases:
        scores = e.binary("Add", scores, bias)
    weights = e.add("Softmax", [scores], version=13, axis=-1)
    if how.hides:
        # A row that sees nothing; one with a NaN among its scores is NaN.
        largest = e.add("ReduceMax", [scores], (*e.shape(scores)[:-1], 1), version=13, axes=[-1])
        nothing = e.binary("Equal", largest, e.literal(-np.inf), dtype=BOOL)
        weights = e.add("Where", [nothing, e.literal(0), weights], e.shape(weights))
    if heads != shared:
        weights = e.reshape(weights, (batch, shared, rows, keys))
        shared_result = e.add("MatMul", [weights, v], (batch, shared, rows, value_size))
        return e.reshape(shared_result, (batch, heads, queries, value_size), output)
    return e.add("MatMul", [weights, v], (batch, heads, queries, value_size), output=output)


def causal_bias(e: Expansion, queries: int, keys: int, past: int) -> str:
    """-inf where a key comes after the query; query i stands at position past + i."""
    allowed = np.arange(keys) <= np.arange(queries)[:, None] + past
    return e.literal(np.where(allowed, np.float32(0), np.float32(-np.inf)))


def with_past(e: Expansion, past: int, new: str, output: int) -> str:
    """The cache at input `past` with what is new, as output number `output` where that is wanted."""
    name = e.output(output)
    if not present(e.step, past):
        return e.add("Identity", [new], output=name) if name else new
    cached = e.input(past)
    batch, heads, length, size = e.shape(cached)
    total = (batch, heads, length + e.shape(new)[2], size)
    return e.add("Concat", [cached, new], total, output=name, axis=2)


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
    queries, keys, size = e.shape(q)[2], e.shape(k)[2], e.shape(q)[3]
    biases = []
    if step.attribute("is_causal", 0):
        biases.append(causal_bias(e, queries, keys, past))
    if present(step, 3):
        biases.append(_mask(e, keys))
    scale = step.attribute("scale")
    how = Scores(
        1 / math.sqrt(size) if scale is None else float(scale), biases, float(step.attribute("softcap", 0.0)),
        present(step, 3),
    )  # fmt: skip
    if len(shape_of(step, 0)) == 4:
        attend(e, q, k, v, how, e.output())
    else:
        join_heads(e, attend(e, q, k, v, how), e.output())


def _mask(e: Expansion, keys: int) -> str:
    """The mask at input 3 as a bias."""
    if shape_of(e.step, 3)[-1] != keys:
        raise Refused("a mask shorter than the keys has no kernel")
    dtype = dtype_of(e.step, 3)
    if dtype == F32:
        return e.input(3)
    if dtype != BOOL:
        raise Refused(f"a mask of {dtype} has no kernel")
    return e.add("Where", [e.input(3), e.literal(0), e.literal(-np.inf)], shape_of(e.step, 3))


def _hidden_keys(e: Expansion, index: int, queries: int, keys: int) -> list[str]:
    """The mask of com.microsoft's operators, 1 for what is seen, as a bias; nothing where it is absent."""
    if not present(e.step, index):
        return []
    batch = shape_of(e.step, 0)[0]
    shapes = {(batch, keys): (batch, 1, 1, keys), (batch, queries, keys): (batch, 1, queries, keys)}
    shape = shapes.get(shape_of(e.step, index))
    if shape is None or dtype_of(e.step, index).kind not in "i":
        raise Refused("a mask of this shape has no kernel")
    zero = e.literal(0, dtype_of(e.step, index))
    seen = e.reshape(e.binary("Greater", e.input(index), zero, dtype=BOOL), shape)
    value = float(e.step.attribute("mask_filter_value", -10000.0))
    return [e.add("Where", [seen, e.literal(0), e.literal(value)], shape)]


def _microsoft_scores(e: Expansion, q: str, k: str, mask: int, bias: int) -> Scores:
    queries, keys = e.shape(q)[2], e.shape(k)[2]
    biases = _hidden_keys(e, mask, queries, keys)
    if present(e.step, bias):
        biases.append(e.input(bias))
    if e.step.attribute("unidirectional", 0):
        biases.append(causal_bias(e, queries, keys, keys - queries))
    scale = float(e.step.attribute("scale") or 1 / math.sqrt(e.shape(q)[3]))
    return Scores(scale, biases, hides=present(e.step, bias))


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
    join_heads(e, attend(e, q, k, v, _microsoft_scores(e, q, k, 3, 5)), e.output())


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
    join_heads(e, attend(e, q, k, v, _microsoft_scores(e, q, k, 4, 5)), e.output())


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
