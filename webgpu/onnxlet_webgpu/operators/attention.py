"""Attention: the product of queries and keys, a masked softmax, and the product with the values.

Heads are read where they lie, packed side by side or apart: nothing is transposed before the products. The scores are
written once; scaling, soft cap, bias and masks are fused into that store.
"""

from __future__ import annotations

from math import inf, sqrt

import numpy as np

from onnxlet.graph.unseen import NAN_ZERO, UNSEEN_NAN, UNSEEN_ZERO
from onnxlet.model.dtypes import narrow, widen

from ..kernel import Binding, Kernel, Operand, flat_body, flat_groups
from ..lowering import INTERNAL, Lowering, Tensor, lowering
from ..storage import PAIR, type_name
from ..wgsl import contiguous_strides, index_expression, literal
from .matmul import Matrix, Product, emit_product
from .movement import emit_strided
from .normalization import emit_rows, emit_softmax_in_steps


class Heads:
    """Queries, keys or values as (batch, heads, length, size), whether four-dimensional or packed in three.

    `offset` is where they begin in their tensor.
    """

    offset = 0

    @classmethod
    def spread(cls, t: Tensor, shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0) -> Heads:
        """A part of a tensor, whose elements lie `strides` apart."""
        made = cls.__new__(cls)
        made.tensor, made.packed, made.offset, made.strides = t, True, offset, strides
        made.batch, made.heads, made.length, made.size = shape
        return made

    @classmethod
    def laid(cls, t: Tensor, last: int) -> Heads:
        """An operand of FusedAttention, with or without a batch, its heads before or behind its rows."""
        made = cls.__new__(cls)
        made.tensor, made.packed = t, bool(last)
        shape = (1, *t.shape)[-4:]
        order = (0, 2, 1, 3) if last else (0, 1, 2, 3)
        made.batch, made.heads, made.length, made.size = (shape[axis] for axis in order)
        strides = contiguous_strides(shape)
        made.strides = (strides[0], strides[order[1]], strides[order[2]], 1)
        return made

    def __init__(self, n: Lowering, t: Tensor, heads: int | None):
        self.tensor = t
        self.packed = len(t.shape) == 3
        if self.packed:
            if not heads or t.shape[2] % heads:
                n.refuse("the number of heads does not divide the last dimension")
            self.batch, self.length, width = t.shape
            self.heads, self.size = heads, width // heads
            self.strides = (self.length * width, self.size, width, 1)
        else:
            self.batch, self.heads, self.length, self.size = t.shape
            self.strides = tuple(contiguous_strides(t.shape))

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return self.batch, self.heads, self.length, self.size

    def matrix(self, shared_by: int = 1, transposed: bool = False) -> Matrix:
        """The matrices of all heads, each used `shared_by` times in a row."""
        batch, head, row, column = self.strides
        base = index_expression((self.batch, self.heads, shared_by), (batch, head, 0), self.offset, "batch")
        if transposed:
            row, column = column, row
        aligned = all(step % 4 == 0 for step in (batch, head, self.offset))
        return Matrix(self.tensor.value, self.tensor.size, row, column, base, aligned)


@lowering("Attention")
def attention(n: Lowering) -> None:
    """ai.onnx's Attention, with grouped heads, a bias or mask, causal and window masks, and a cache of keys."""
    out = n.output(0, "float32")
    q = Heads(n, n.input(0), n.attribute("q_num_heads"))
    kv_heads = n.attribute("kv_num_heads")
    k, v = Heads(n, n.input(1), kv_heads), Heads(n, n.input(2), kv_heads)
    past = n.input(4).shape[2] if n.has_input(4) else 0
    k, v = _present(n, k, 4, 1), _present(n, v, 5, 2)
    if q.heads % k.heads or k.heads != v.heads or k.length != v.length or q.size != k.size:
        n.refuse("its heads do not fit together")
    scale = n.attribute("scale")
    scale = 1 / sqrt(q.size) if scale is None else scale
    stepped = type_name(q.tensor.dtype) == "bfloat16" and scale >= 0
    precision = n.attribute("softmax_precision")
    if stepped:
        root = float(widen(narrow(np.array([sqrt(scale)], np.float32), q.tensor.dtype))[0])
        q, k = _times(n, q, root, "queries"), _times(n, k, root, "keys")
        scale = 1.0
    scores = emit_scores(n, q, k, scale)
    _step(n, stepped)
    n.ignore("qk_matmul_output_mode")
    shown = n.attribute("qk_matmul_output_mode", 0) if n.has_output(3) else None
    scores = _show(n, scores, shown == 0)
    emit_cap(n, n.attribute("softcap", 0.0))
    _step(n, stepped)
    scores = _show(n, scores, shown == 1)
    _mask(n, q, k.length, past)
    _step(n, stepped)
    scores = _show(n, scores, shown == 2)
    weights = n.temporary("weights", scores.shape)
    if stepped and precision in (None, 16):
        title, length = n.title(scores, note="weights"), k.length
        emit_softmax_in_steps(n, title, scores.binding("x"), weights, scores.size // length, length, f"row * {length}u",
                              1, "bfloat16", "0.0")  # fmt: skip
    else:
        emit_masked_softmax(n, scores, weights, UNSEEN_ZERO)
        _step(n, stepped)
    if shown == 3:
        n.emit_map([Operand(weights.value, weights.shape, "f32")], "{0}", n.output(3, "float32"))
    emit_values(n, weights, q, v, out, q.packed)


def _step(n: Lowering, stepped: bool) -> None:
    """Round what has been computed to bfloat16, if every step is."""
    if stepped:
        n.extend([n.chain()], "rounded_to_bfloat({0})")


def _times(n: Lowering, heads: Heads, factor: float, tag: str) -> Heads:
    """Heads with all elements multiplied, and rounded to bfloat16."""
    t = heads.tensor
    made = n.temporary(tag, t.shape)
    expression = f"rounded_to_bfloat({{0}} * {literal(factor, 'f32')})"
    n.emit_map([Operand(t.value, t.shape, "f32")], expression, made)
    return Heads.spread(made, heads.shape, heads.strides, heads.offset) if heads.packed else Heads(n, made, None)


def emit_scores(n: Lowering, q: Heads, k: Heads, scale: float) -> Tensor:
    """Add the products of queries and keys, with a factor."""
    scores = n.temporary("scores", (q.batch, q.heads, q.length, k.length))
    keys = k.matrix(q.heads // k.heads, transposed=True)
    product = Product(q.matrix(), keys, q.length, k.length, q.size, q.batch * q.heads)
    emit_product(n, product, scores, n.title(q.tensor, k.tensor, note="scores"))
    n.extend([n.chain()], f"{{0}} * {literal(scale, 'f32')}")
    return scores


def emit_cap(n: Lowering, cap: float) -> None:
    if cap:
        n.extend([n.chain()], f"{literal(cap, 'f32')} * hyperbolic_tangent({{0}} / {literal(cap, 'f32')})")


def _show(n: Lowering, scores: Tensor, wanted: bool) -> Tensor:
    """Copy the scores as they are now to the fourth output, if that is wanted; goes on with a copy of them."""
    if not wanted:
        return scores
    operand = Operand(scores.value, scores.shape, "f32")
    n.emit_map([operand], "{0}", n.output(3, "float32"))
    after = n.temporary("scores shown", scores.shape)
    n.emit_map([operand], "{0}", after)
    return after


def _weighted_values(
    n: Lowering, scores: Tensor, q: Heads, v: Heads, unseen: int, out: Tensor, rows_first: bool
) -> None:
    """The softmax of the scores times the values; where `rows_first`, the result has its rows before its heads."""
    weights = n.temporary("weights", scores.shape)
    emit_masked_softmax(n, scores, weights, unseen)
    emit_values(n, weights, q, v, out, rows_first)


def emit_values(n: Lowering, weights: Tensor, q: Heads, v: Heads, out: Tensor, rows_first: bool) -> None:
    """Add the products of weights and values, whose heads the result has behind its rows if `rows_first`."""
    product = Product(
        Matrix(weights.value, weights.size, v.length, 1, f"batch * {q.length * v.length}u", v.length % 4 == 0),
        v.matrix(q.heads // v.heads), q.length, v.size, v.length, q.batch * q.heads,
    )  # fmt: skip
    apart = rows_first and min(q.heads, q.length) > 1  # else both orders are the same
    joined = n.temporary("heads", (q.batch, q.heads, q.length, v.size)) if apart else out
    emit_product(n, product, joined, n.title(weights, v.tensor, note="values"))
    if apart:
        strides = contiguous_strides(joined.shape)
        dims = [q.batch, q.length, q.heads, v.size]
        emit_strided(n, joined, out, dims, [strides[d] for d in (0, 2, 1, 3)])


@lowering("FusedAttention", domain=INTERNAL)
def fused_attention(n: Lowering) -> None:
    """Attention of operands whose heads stand before or behind their rows."""
    last = n.attribute("heads_last") or [0] * 4
    q, k, v = (Heads.laid(n.input(i), last[i]) for i in range(3))
    out = n.output(0, "float32")
    if q.heads % k.heads or k.heads != v.heads or not q.batch == k.batch == v.batch:
        n.refuse("its heads or batches do not fit together")
    if out.size != q.batch * q.heads * q.length * v.size:
        n.refuse("a mask that adds to the batch or the heads has no GPU kernel")
    scores = n.temporary("scores", (q.batch, q.heads, q.length, k.length))
    keys = k.matrix(q.heads // k.heads, transposed=True)
    product = Product(q.matrix(), keys, q.length, k.length, q.size, q.batch * q.heads)
    emit_product(n, product, scores, n.title(q.tensor, k.tensor, note="scores"))
    n.extend([n.chain()], f"{{0}} * {literal(n.attribute('scale', 1.0), 'f32')}")
    if n.has_input(3):
        bias = n.input(3)
        n.extend([n.chain(), Operand(bias.value, bias.shape, bias.element)], "{0} + {1}")
    fill = n.attribute("fill", -inf)
    if n.has_input(4):
        keep = n.input(4, "bool")
        operand = Operand(keep.value, keep.shape, keep.element)
        n.extend([n.chain(), operand], f"select({literal(fill, 'f32')}, {{0}}, {{1}} != 0u)")
    offset = n.attribute("causal_offset")
    if offset is not None:
        position = f"i32(i / {k.length}u % {q.length}u) + {literal(offset, 'i32')}"
        n.extend([n.chain()], f"select({{0}}, -infinity(), i32(i % {k.length}u) > {position})")
    _weighted_values(n, scores, q, v, n.attribute("unseen", UNSEEN_NAN), out, bool(last[3]))


def _present(n: Lowering, new: Heads, past_index: int, output_index: int) -> Heads:
    """Keys or values with those of the cache before them, written out where an output or a cache asks for it."""
    outputs = n.step.node.outputs
    asked = output_index < len(outputs) and bool(outputs[output_index])
    if not asked and not n.has_input(past_index):
        return new
    past = n.input(past_index) if n.has_input(past_index) else None
    before = past.shape[2] if past is not None else 0
    shape = (new.batch, new.heads, before + new.length, new.size)
    whole = n.output(output_index, "float32") if asked else n.temporary(f"present {output_index}", shape)
    row = whole.shape[2] * new.size
    if past is not None:
        _place(n, past, past.shape, tuple(contiguous_strides(past.shape)), whole, row, 0)
    _place(n, new.tensor, new.shape, new.strides, whole, row, before * new.size)
    return Heads(n, whole, None)


def _place(
    n: Lowering, x: Tensor, dims: tuple[int, ...], strides: tuple[int, ...], whole: Tensor, row: int, start: int
) -> None:
    """Copy `x`, read over `dims` with its strides, to `start` in each row of `whole`."""
    part = dims[2] * dims[3]
    source = index_expression(dims, strides)
    body = flat_body(f"store(i / {part}u * {row}u + i % {part}u + {start}u, x[{source}]);", "arrayLength(&x)")
    groups = flat_groups(x.size, n.target.flat_groups)
    title = n.title(x, whole, note=f"to {start}")
    n.emit(Kernel(title, [x.binding("x")], whole.value, whole.shape, "f32", body, groups, fusable=False))


def _mask(n: Lowering, q: Heads, keys: int, past: int) -> None:
    """Mask the scores: by the mask or bias that is fed, by causality, by a window, by each sequence's length."""
    scores = n.kernels[-1]
    if n.has_input(3):
        mask = _padded_mask(n, n.input(3, "float32", "bool"), keys)
        n.kernels.remove(scores)
        n.kernels.append(scores)  # behind what has filled the mask up
        operand = Operand(mask.value, mask.shape, mask.element)
        if mask.element == "u32":
            n.extend([n.chain(), operand], "select(-infinity(), {0}, {1} != 0u)")
        else:
            n.extend([n.chain(), operand], "select({0} + {1}, {1}, {1} == -infinity())")
    key = f"i32(i % {keys}u)"
    position = f"i32(i / {keys}u % {q.length}u + {past}u)"
    operands, length = [n.chain()], ""
    if n.has_input(6):
        lengths = n.input(6, "int64", "int32")
        operands.append(Operand(lengths.value, (q.batch, 1, 1, 1), lengths.element))
        length = "bitcast<i32>({1}.x)" if lengths.element == PAIR else "{1}"
        if not n.has_input(4):
            position = f"({position} + {length} - {q.length})"
    left, right = n.attribute("left_window_size", -1), n.attribute("right_window_size", -1)
    hidden = [f"{key} > {position}"] if n.attribute("is_causal", 0) else []
    hidden += [f"{key} < {position} - {left}"] if left >= 0 else []
    hidden += [f"{key} > {position} + {right}"] if right >= 0 else []
    hidden += [f"{key} >= {length}"] if length else []
    if hidden:
        n.extend(operands, f"select({{0}}, -infinity(), {' || '.join(hidden)})")


def _padded_mask(n: Lowering, mask: Tensor, keys: int) -> Tensor:
    """The mask; where it is shorter than the keys, what it lacks hides them."""
    have = mask.shape[-1] if mask.shape else 1
    if have == keys:
        return mask
    shape = (*mask.shape[:-1], keys)
    filled = Tensor(n.temporary("mask", shape).value, shape, mask.dtype)
    hides = "0u" if mask.element == "u32" else "-infinity()"
    place = f"i / {keys}u * {have}u + i % {keys}u"
    statements = f"var value = {hides};\nif (i % {keys}u < {have}u) {{ value = mask[{place}]; }}\nstore(i, value);"
    n.emit_flat(n.title(mask, filled, note="filled up"), [mask.binding("mask")], statements, filled)
    return filled


def emit_masked_softmax(
    n: Lowering, scores: Tensor, out: Tensor, unseen: int, sink: Binding | None = None, sink_at: str = ""
) -> None:
    """Softmax of rows in which all may be masked; see `onnxlet.ops.fused_attention` for what `unseen` says.

    `sink` holds one more score for each row, at the place `sink_at`, which takes its share of the weights.
    """
    length = scores.shape[-1]
    shift = "highest" if unseen == UNSEEN_NAN else "select(highest, 0.0, highest == -infinity())"
    denominator = "total" if unseen == UNSEEN_NAN else "select(total, 1.0, total == 0.0)"
    weight = "exponential(value - shift) / denominator"
    if unseen == NAN_ZERO:
        weight = f"select({weight}, 0.0, is_nan(total))"
    highest, total = "row_max(part, lane)", "row_sum(sum, lane)"
    if sink is not None:
        value = f"{sink.name}[{sink_at}]"
        highest, total = f"max_nan({highest}, {value})", f"{total} + exponential({value} - shift)"
    statements = f"""
var part = -infinity();
each {{ part = max_nan(part, value); }}
let highest = {highest};
let shift = {shift};
var sum = 0.0;
each {{ sum += exponential(value - shift); }}
let total = {total};
let denominator = {denominator};
each {{ store(at, {weight}); }}
"""
    reads = [scores.binding("x"), *([sink] if sink else [])]
    base = f"row * {length}u"
    emit_rows(
        n, n.title(scores, note=f"weights {unseen}"), reads, out, scores.size // length, length, base, 1, statements
    )


@lowering("FlexAttention", domain="ai.onnx.preview")
def flex_attention(n: Lowering) -> None:
    """Without bodies; those run on providers of their own."""
    n.ignore("softmax_precision")
    q, k, v = (Heads(n, n.input(i), None) for i in range(3))
    scale = n.attribute("scale")
    scores = emit_scores(n, q, k, 1 / sqrt(q.size) if scale is None else scale)
    _weighted_values(n, scores, q, v, UNSEEN_ZERO, n.output(0, "float32"), False)
