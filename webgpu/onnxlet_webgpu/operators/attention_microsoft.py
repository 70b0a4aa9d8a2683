"""Attention as com.microsoft's operators define it. Their twins are in `onnxlet.ops.microsoft`."""

from __future__ import annotations

from math import prod, sqrt

import numpy as np

from onnxlet.graph.unseen import UNSEEN_ZERO

from ..kernel import Binding, Kernel, Operand, flat_body, flat_groups
from ..lowering import MICROSOFT, Lowering, Tensor, lowering
from ..wgsl import contiguous_strides, index_expression, literal
from .arithmetic import at
from .attention import Heads, emit_cap, emit_masked_softmax, emit_scores, emit_values
from .caches import WindowCache, emit_normalised, emit_quantised
from .matmul import Matrix, Product, emit_product


def padding(n: Lowering, index: int, value: float, q: Heads, keys: int) -> None:
    """Add `value` to the scores of the keys that the mask (input `index`) hides: lengths, ends and starts, or 1 for
    what is seen."""
    mask = n.input(index, "int32")
    batch, number = q.batch, literal(value, "f32")
    key = f"i32(i % {keys}u)"
    if mask.shape == (batch,):
        operands = [Operand(mask.value, (batch, 1, 1, 1), "i32")]
        hidden = f"{key} >= {{1}}"
    elif len(mask.shape) == 2 and mask.shape[1] == keys:
        operands, hidden = [Operand(mask.value, (mask.shape[0], 1, 1, keys), "i32")], "{1} <= 0"
    elif mask.shape == (batch, q.length, keys):
        operands, hidden = [Operand(mask.value, (batch, 1, q.length, keys), "i32")], "{1} <= 0"
    else:
        n.refuse(f"a mask of shape {list(mask.shape)} has no GPU kernel")
    n.extend([n.chain(), *operands], f"{{0}} + select(0.0, {number}, {hidden})")


def biases_and_causality(n: Lowering, index: int, q: Heads, keys: int) -> None:
    """Add the bias of input `index`; hide what comes after each query, the queries being the last of the keys."""
    if n.has_input(index):
        bias = n.input(index)
        n.extend([n.chain(), Operand(bias.value, bias.shape, "f32")], "{0} + {1}")
    if n.attribute("unidirectional", 0):
        position = f"i32(i / {keys}u % {q.length}u) + {keys - q.length}"
        n.extend([n.chain()], f"select({{0}}, -infinity(), i32(i % {keys}u) > {position})")


def finish(n: Lowering, scores: Tensor, q: Heads, v: Heads, sink: Binding | None = None, sink_at: str = "") -> None:
    """The weights and the products with the values, rows before heads."""
    weights = n.temporary("weights", scores.shape)
    emit_masked_softmax(n, scores, weights, UNSEEN_ZERO, sink, sink_at)
    emit_values(n, weights, q, v, n.output(0, "float32"), True)


def place(n: Lowering, new: Heads, whole: Tensor, row: int, start: int) -> None:
    """Copy heads to `start` in each row, of `row` elements, of `whole`."""
    part = new.length * new.size
    source = index_expression(new.shape, new.strides, new.offset)
    count = prod(new.shape)
    body = flat_body(f"store(i / {part}u * {row}u + i % {part}u + {start}u, x[{source}]);", f"{count}u")
    title = n.title(new.tensor, whole, note=f"to {start}")
    n.emit(
        Kernel(title, [new.tensor.binding("x")], whole.value, whole.shape, "f32", body,
               flat_groups(count, n.target.flat_groups), fusable=False)
    )  # fmt: skip


def shifted(n: Lowering, t: Tensor, bias: int, offset: int, tag: str) -> Tensor:
    """A tensor plus a part of a bias (input `bias`) along its last dimension."""
    result, width = n.temporary(tag, t.shape), t.shape[-1]
    reads = [t.binding("x"), n.input(bias).binding("bias")]
    n.emit_flat(
        n.title(t, note=f"shifted by {offset}"), reads, f"store(i, x[i] + bias[i % {width}u + {offset}u]);", result
    )
    return result


@lowering("MultiHeadAttention", domain=MICROSOFT)
def multi_head_attention(n: Lowering) -> None:
    if n.has_input(8) or n.has_input(9):
        n.refuse("a cache in a shared buffer has no GPU kernel")
    count = n.attribute("num_heads")
    query = n.input(0)
    packed = len(query.shape) == 5 or (n.has_input(1) and len(n.input(1).shape) == 5)
    if packed and n.has_input(3):
        n.refuse("a bias of packed queries, keys and values has no GPU kernel")

    def part(t: Tensor, which: int) -> Heads:
        batch, length, heads, parts, size = t.shape
        strides = (length * heads * parts * size, parts * size, heads * parts * size, 1)
        return Heads.spread(t, (batch, heads, length, size), strides, which * size)

    if len(query.shape) == 5:
        q, k, v = (part(query, which) for which in range(3))
    else:
        tensors, offset = [], 0
        for index, tag in enumerate(("query", "key", "value")):
            t = n.input(index if not (index == 2 and packed) else 1)
            if n.has_input(3) and len(t.shape) == 3:
                t, width = shifted(n, t, 3, offset, tag), t.shape[2]
                offset += width
            elif n.has_input(3):
                offset += query.shape[2]
            tensors.append(t)
        q = Heads(n, tensors[0], count)
        k, v = (part(t, which) if len(t.shape) == 5 else Heads(n, t, count) for which, t in enumerate(tensors[1:]))
    k, v = _with_past(n, k, 6, 1), _with_past(n, v, 7, 2)
    if q.heads != k.heads or k.length != v.length:
        n.refuse("its heads do not fit together")
    scores = emit_scores(n, q, k, n.attribute("scale") or 1 / sqrt(q.size))
    if n.has_input(4):
        padding(n, 4, n.attribute("mask_filter_value", -10000.0), q, k.length)
    biases_and_causality(n, 5, q, k.length)
    if n.has_output(3):
        n.emit_map([Operand(scores.value, scores.shape, "f32")], "{0}", n.output(3, "float32"))
    n.ignore("mask_filter_value")
    finish(n, scores, q, v)


def _with_past(n: Lowering, new: Heads, past_index: int, output: int) -> Heads:
    """Keys or values with those of the cache before them."""
    if not n.has_input(past_index) and not n.has_output(output):
        return new
    past = n.input(past_index) if n.has_input(past_index) and not n.is_empty(past_index) else None
    before = past.shape[2] if past is not None else 0
    shape = (new.batch, new.heads, before + new.length, new.size)
    whole = n.output(output, "float32") if n.has_output(output) else n.temporary(f"present {output}", shape)
    row = shape[2] * shape[3]
    if past is not None:
        place(n, Heads(n, past, None), whole, row, 0)
    place(n, new, whole, row, before * new.size)
    return Heads(n, whole, None)


@lowering("Attention", domain=MICROSOFT)
def attention(n: Lowering) -> None:
    """One product gives queries, keys and values side by side."""
    if n.attribute("do_rotary", 0) or n.attribute("past_present_share_buffer", 0):
        n.refuse("rotary positions and shared buffers in this operator have no GPU kernel")
    n.ignore("rotary_embedding_dim", "mask_filter_value")
    count = n.attribute("num_heads")
    x, w = n.input(0), n.input(1)
    batch, length, depth = x.shape
    width = w.shape[1]
    sizes = list(n.attribute("qkv_hidden_sizes") or [width // 3] * 3)
    projected = n.temporary("projected", (batch, length, width))
    product = Product(
        Matrix(x.value, x.size, depth, 1), Matrix(w.value, w.size, width, 1), batch * length, width, depth
    )
    emit_product(n, product, projected, n.title(x, w, note="projection"))
    if n.has_input(2):
        n.extend([n.chain(), n.operand(2)], "{0} + {1}")
    heads, offset = [], 0
    for size in sizes:
        own = size // count
        heads.append(Heads.spread(projected, (batch, count, length, own), (length * width, own, width, 1), offset))
        offset += size
    q, k, v = heads
    if n.has_input(4) or n.has_output(1):
        k, v = _joint_cache(n, k, v)
    scores = emit_scores(n, q, k, n.attribute("scale") or 1 / sqrt(q.size))
    if n.has_input(3):
        padding(n, 3, n.attribute("mask_filter_value", -10000.0), q, k.length)
    biases_and_causality(n, 5, q, k.length)
    finish(n, scores, q, v)


def _joint_cache(n: Lowering, k: Heads, v: Heads) -> tuple[Heads, Heads]:
    """Keys and values with those of the cache, all in one tensor (2, batch, heads, total, size)."""
    if k.size != v.size:
        n.refuse("keys and values of different sizes in one cache have no GPU kernel")
    past = n.input(4) if n.has_input(4) and not n.is_empty(4) else None
    before = past.shape[3] if past is not None else 0
    shape = (2, k.batch, k.heads, before + k.length, k.size)
    whole = n.output(1, "float32") if n.has_output(1) else n.temporary("present", shape)
    row, half = shape[3] * shape[4], prod(shape[1:])
    strides = contiguous_strides(shape)[1:]
    for which, new in enumerate((k, v)):
        if past is not None:
            own = (k.batch, k.heads, before, k.size)
            old = Heads.spread(past, own, tuple(contiguous_strides(own)), which * prod(own))
            place(n, old, whole, row, which * half)
        place(n, new, whole, row, which * half + before * k.size)
    made = [Heads.spread(whole, shape[1:], tuple(strides), which * half) for which in range(2)]
    return made[0], made[1]


@lowering("GroupQueryAttention", domain=MICROSOFT)
def group_query_attention(n: Lowering) -> None:
    """Causal attention with fewer key and value heads, over a cache that each sequence has filled to its own length."""
    if n.has_input(16) or n.has_output(3):
        n.refuse("padded queries and scores as an output have no GPU kernel")
    n.ignore("kv_cache_bit_width", "qk_output")
    count, kv_count = n.attribute("num_heads"), n.attribute("kv_num_heads")
    query = n.input(0)
    batch, length, width = query.shape
    if n.has_input(1):
        q, k, v = Heads(n, query, count), Heads(n, n.input(1), kv_count), Heads(n, n.input(2), kv_count)
    else:
        size = width // (count + 2 * kv_count)
        strides = (length * width, size, width, 1)
        q = Heads.spread(query, (batch, count, length, size), strides)
        k = Heads.spread(query, (batch, kv_count, length, size), strides, count * size)
        v = Heads.spread(query, (batch, kv_count, length, size), strides, (count + kv_count) * size)
    epsilon = n.attribute("qk_norm_epsilon", 1e-6)
    epsilons = n.attribute("q_norm_epsilon") or epsilon, n.attribute("k_norm_epsilon") or epsilon
    if n.has_input(14) and n.has_input(15):
        q = emit_normalised(n, q, 14, epsilons[0], "normalised queries")
        k = emit_normalised(n, k, 15, epsilons[1], "normalised keys")
    total = int(n.known(6, "the total length").reshape(-1)[0])
    lengths = n.input(5, "int32")
    # How many keys of each sequence come before the new ones.
    before = "0" if length == total else f"(lengths[{{0}}] + 1 - {length})"
    if n.attribute("do_rotary", 0):
        q = _turned(n, q, lengths, before, "turned queries")
        k = _turned(n, k, lengths, before, "turned keys")
    n.ignore("rotary_interleaved")
    hidden, places = [], []
    key, row = f"i32(i % {total}u)", f"i32(i / {total}u % {length}u)"
    if n.attribute("sliding_window_cache", 0):
        if n.has_input(10) or n.has_input(12) or n.has_input(13):
            n.refuse("a bias or scales with a cache of a window have no GPU kernel")
        cache = WindowCache(n, lengths, before, length)
        k, v = cache.emit(k, 3, 1), cache.emit(v, 4, 2)
        places.append(cache.positions(batch))
        total = cache.rows
        key, row = f"(i32(i % {total}u) + {{2}})", f"i32(i / {total}u % {length}u)"
        hidden.append(f"{key} > {{1}}")
    else:
        k = _cached(n, k, 3, 1, 12, "k_quant_type", lengths, before, total)
        v = _cached(n, v, 4, 2, 13, "v_quant_type", lengths, before, total)
    scores = emit_scores(n, q, k, n.attribute("scale") or 1 / sqrt(q.size))
    emit_cap(n, n.attribute("softcap", 0.0))
    if n.has_input(10):
        bias = n.input(10)
        if bias.shape[-1] != total:
            n.refuse("a bias longer than the keys has no GPU kernel")
        n.extend([n.chain(), Operand(bias.value, bias.shape, "f32")], "{0} + {1}")
    first = before.format("0").replace("lengths[0]", "{1}")
    hidden.append(f"{key} > {row} + {first}" if n.attribute("causal", 1) else f"{key} > {{1}}")
    window = n.attribute("local_window_size", -1)
    if window > 0:
        hidden.append(f"{key} <= {row} + {first} - {window}")
    operand = Operand(lengths.value, (batch, 1, 1, 1), "i32")
    n.extend([n.chain(), operand, *places], f"select({{0}}, -infinity(), {' || '.join(hidden)})")
    sink, sink_at = None, ""
    if n.has_input(11):
        t = n.input(11)
        sink, sink_at = t.binding("sink"), f"row / {length}u % {count}u"
    elif n.attribute("smooth_softmax", -1) > 0:
        zeros = n.table("sink", np.zeros(count, np.float32))
        sink, sink_at = Binding("sink", zeros, "f32", count), f"row / {length}u % {count}u"
    n.ignore("smooth_softmax")
    finish(n, scores, q, v, sink, sink_at)


def _turned(n: Lowering, x: Heads, lengths: Tensor, before: str, tag: str) -> Heads:
    """Heads turned by the angles of their positions."""
    cos, sin = n.input(7), n.input(8)
    half = cos.shape[1]
    interleaved = n.attribute("rotary_interleaved", 0)
    result = n.temporary(tag, x.shape)
    reads = [x.tensor.binding("x"), cos.binding("cos_cache"), sin.binding("sin_cache")]
    batch, token = at(x.shape, 0), at(x.shape, 2)
    if n.has_input(9):
        t = n.input(9, "int64", "int32")
        n.index_limits.append((t.value, cos.shape[0]))
        reads.append(t.binding("positions"))
        position = f"positions[{batch} * {x.length}u + {token}]"
        position = f"{position}.x" if t.element != "i32" else f"u32({position})"
    else:
        start = before.format(batch)
        if start != "0":
            reads.append(lengths.binding("lengths"))
        position = f"u32({start} + i32({token}))"
    pair = "d / 2u" if interleaved else f"d % {half}u"
    first = "d % 2u == 0u" if interleaved else f"d < {half}u"
    step = 1 if interleaved else half
    statements = f"""
let d = i % {x.size}u;
let at = {index_expression(x.shape, x.strides, x.offset)};
var value = x[at];
if (d < {2 * half}u) {{
    let angle = {position} * {half}u + {pair};
    if ({first}) {{
        value = value * cos_cache[angle] - sin_cache[angle] * x[at + {step}u];
    }} else {{
        value = value * cos_cache[angle] + sin_cache[angle] * x[at - {step}u];
    }}
}}
store(i, value);
"""
    n.emit_flat(n.title(x.tensor, cos, note=f"{tag} {x.offset}"), reads, statements, result)
    return Heads(n, result, None)


def _cached(
    n: Lowering, new: Heads, past: int, output: int, scale: int, quant: str, lengths: Tensor, before: str, total: int
) -> Heads:
    """The first `total` keys or values of a cache that holds numbers as they are, or integers."""
    if n.attribute(quant, "NONE") == "NONE" and not n.has_input(scale):
        return _filled(n, new, past, output, lengths, before, total)
    return emit_quantised(n, new, (past, output, scale), lengths, before, total)


def _filled(n: Lowering, new: Heads, past_index: int, output: int, lengths: Tensor, before: str, total: int) -> Heads:
    """The cache with the new keys or values behind the old ones of each sequence; those of the first `total`."""
    past = n.input(past_index) if n.has_input(past_index) and not n.is_empty(past_index) else None
    capacity = max(total, past.shape[2] if past is not None else 0)
    shape = (new.batch, new.heads, capacity, new.size)
    whole = n.output(output, "float32") if n.has_output(output) else n.temporary(f"present {output}", shape)
    reads = [new.tensor.binding("x")]
    start = before.format(at(shape, 0))
    if start != "0":
        reads.append(lengths.binding("lengths"))
    batch, head, row, _ = new.strides
    source = f"{at(shape, 0)} * {batch}u + {at(shape, 1)} * {head}u + u32(slot - before) * {row}u + i % {new.size}u"
    source += f" + {new.offset}u" if new.offset else ""
    lines = [f"let slot = i32({at(shape, 2)});", f"let before = {start};", "var value = 0.0;"]
    lines.append(f"if (slot >= before && slot < before + {new.length}) {{ value = x[{source}]; }}")
    if past is not None:
        reads.append(past.binding("past"))
        old = f"i / {capacity * new.size}u * {past.shape[2] * new.size}u + i % {capacity * new.size}u"
        lines.append(f"if (slot < min(before, {past.shape[2]})) {{ value = past[{old}]; }}")
    lines.append("store(i, value);")
    n.emit_flat(n.title(new.tensor, whole, note=f"cache {new.offset}"), reads, "\n".join(lines), whole)
    return Heads.spread(whole, (new.batch, new.heads, total, new.size), tuple(contiguous_strides(shape)))
