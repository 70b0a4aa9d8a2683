"""Attention: the product of queries and keys, a masked softmax, and the product with the values.

Heads are read where they lie, packed side by side or apart: nothing is transposed before the products. The scores are
written once; scaling, soft cap, bias and masks are fused into that store.
"""

from __future__ import annotations

from math import inf, sqrt

from onnxlet.ops.fused_attention import NAN_ZERO, UNSEEN_NAN, UNSEEN_ZERO

from ..kernel import Kernel, Operand, flat_body, flat_groups
from ..lowering import INTERNAL, Lowering, Tensor, lowering
from ..wgsl import contiguous_strides, index_expression, literal
from .matmul import Matrix, Product, emit_product
from .movement import emit_strided, index_at, indices, wrapped
from .normalization import emit_rows


class Heads:
    """Queries, keys or values as (batch, heads, length, size), whether four-dimensional or packed in three."""

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
        base = index_expression((self.batch, self.heads, shared_by), (batch, head, 0), 0, "batch")
        if transposed:
            row, column = column, row
        return Matrix(self.tensor.value, self.tensor.size, row, column, base, batch % 4 == 0 and head % 4 == 0)


@lowering("Attention")
def attention(n: Lowering) -> None:
    """ai.onnx's Attention, with grouped heads, a bias or mask, causal and window masks, and a cache of keys."""
    if any(n.step.node.outputs[3:]):
        n.refuse("the scores of Attention as an output have no GPU kernel")
    if n.has_input(6):
        n.refuse("Attention with lengths of its own for each sequence has no GPU kernel")
    for name in ("softmax_precision", "qk_matmul_output_mode"):
        n.attribute(name)
    out = n.output(0, "float32")
    q = Heads(n, n.input(0), n.attribute("q_num_heads"))
    kv_heads = n.attribute("kv_num_heads")
    k, v = Heads(n, n.input(1), kv_heads), Heads(n, n.input(2), kv_heads)
    past = n.input(4).shape[2] if n.has_input(4) else 0
    k, v = _present(n, k, 4, 1), _present(n, v, 5, 2)
    if q.heads % k.heads or k.heads != v.heads or k.length != v.length or q.size != k.size:
        n.refuse("its heads do not fit together")
    scores = n.temporary("scores", (q.batch, q.heads, q.length, k.length))
    keys = k.matrix(q.heads // k.heads, transposed=True)
    product = Product(q.matrix(), keys, q.length, k.length, q.size, q.batch * q.heads)
    emit_product(n, product, scores, n.title(q.tensor, k.tensor, note="scores"))
    scale = n.attribute("scale")
    scale = 1 / sqrt(q.size) if scale is None else scale
    n.extend([n.chain()], f"{{0}} * {literal(scale, 'f32')}")
    cap = n.attribute("softcap", 0.0)
    if cap:
        n.extend([n.chain()], f"{literal(cap, 'f32')} * hyperbolic_tangent({{0}} / {literal(cap, 'f32')})")
    _mask(n, q.length, k.length, past)
    _weighted_values(n, scores, q, v, UNSEEN_ZERO, out, q.packed)


def _weighted_values(
    n: Lowering, scores: Tensor, q: Heads, v: Heads, unseen: int, out: Tensor, rows_first: bool
) -> None:
    """The softmax of the scores times the values; where `rows_first`, the result has its rows before its heads."""
    weights = n.temporary("weights", scores.shape)
    _masked_softmax(n, scores, weights, unseen)
    product = Product(
        Matrix(weights.value, weights.size, v.length, 1, f"batch * {q.length * v.length}u", v.length % 4 == 0),
        v.matrix(q.heads // v.heads), q.length, v.size, v.length, q.batch * q.heads,
    )  # fmt: skip
    joined = n.temporary("heads", (q.batch, q.heads, q.length, v.size)) if rows_first else out
    emit_product(n, product, joined, n.title(weights, v.tensor, note="values"))
    if rows_first:
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


def _mask(n: Lowering, queries: int, keys: int, past: int) -> None:
    """Mask the scores: by the mask or bias that is fed, by causality, by a window."""
    if n.has_input(3):
        mask = n.input(3, "float32", "bool")
        if mask.shape[-1] not in (1, keys):
            n.refuse("a mask shorter than the keys has no GPU kernel")
        operand = Operand(mask.value, mask.shape, mask.element)
        if mask.element == "u32":
            n.extend([n.chain(), operand], "select(-infinity(), {0}, {1} != 0u)")
        else:
            n.extend([n.chain(), operand], "select({0} + {1}, {1}, {1} == -infinity())")
    key = f"i32(i % {keys}u)"
    position = f"i32(i / {keys}u % {queries}u + {past}u)"
    left, right = n.attribute("left_window_size", -1), n.attribute("right_window_size", -1)
    hidden = [f"{key} > {position}"] if n.attribute("is_causal", 0) else []
    hidden += [f"{key} < {position} - {left}"] if left >= 0 else []
    hidden += [f"{key} > {position} + {right}"] if right >= 0 else []
    if hidden:
        n.extend([n.chain()], f"select({{0}}, -infinity(), {' || '.join(hidden)})")


def _masked_softmax(n: Lowering, scores: Tensor, out: Tensor, unseen: int) -> None:
    """Softmax of rows in which all may be masked; see `onnxlet.ops.fused_attention` for what `unseen` says."""
    length = scores.shape[-1]
    shift = "highest" if unseen == UNSEEN_NAN else "select(highest, 0.0, highest == -infinity())"
    denominator = "total" if unseen == UNSEEN_NAN else "select(total, 1.0, total == 0.0)"
    weight = "exponential(value - shift) / denominator"
    if unseen == NAN_ZERO:
        weight = f"select({weight}, 0.0, is_nan(total))"
    statements = f"""
var part = -infinity();
each {{ part = max_nan(part, value); }}
let highest = row_max(part, lane);
let shift = {shift};
var sum = 0.0;
each {{ sum += exponential(value - shift); }}
let total = row_sum(sum, lane);
let denominator = {denominator};
each {{ store(at, {weight}); }}
"""
    reads = [scores.binding("x")]
    base = f"row * {length}u"
    emit_rows(
        n, n.title(scores, note=f"weights {unseen}"), reads, out, scores.size // length, length, base, 1, statements
    )


@lowering("RotaryEmbedding")
def rotary_embedding(n: Lowering) -> None:
    """ai.onnx's RotaryEmbedding: pairs of elements of each head turned by an angle that its position gives."""
    x, out = n.input(0), n.output(0, "float32")
    heads = Heads(n, x, n.attribute("num_heads") or None)
    cos, sin = n.input(1), n.input(2)
    size = n.attribute("rotary_embedding_dim", 0) or heads.size
    half = size // 2
    if cos.shape[-1] != half:
        n.refuse("a cache of another width than half of what is turned has no GPU kernel")
    interleaved = n.attribute("interleaved", 0)
    batch, _, row, _ = heads.strides
    reads = [x.binding("x"), cos.binding("cos_cache"), sin.binding("sin_cache")]
    # The coordinates of element i, from its place in memory.
    place = {
        "d": f"i % {heads.size}u",
        "s": f"i / {row}u % {heads.length}u",
        "b": f"i / {batch}u",
    }
    where = f"({place['b']}) * {heads.length}u + {place['s']}"
    if n.has_input(3):
        positions = indices(n, 3, cos.shape[0])
        reads.append(positions.binding("positions"))
        where = wrapped(index_at("positions", positions, where), cos.shape[0])
    elif len(cos.shape) == 3 and cos.shape[0] == 1 < heads.batch:
        where = place["s"]
    pair = "d / 2u" if interleaved else f"d % {half}u"
    first = "d % 2u == 0u" if interleaved else f"d < {half}u"
    other = ("i + 1u", "i - 1u") if interleaved else (f"i + {half}u", f"i - {half}u")
    statements = f"""
let d = {place["d"]};
if (d >= {size}u) {{
    store(i, x[i]);
}} else {{
    let angle = ({where}) * {half}u + {pair};
    let value = cos_cache[angle] * x[i];
    if ({first}) {{
        store(i, value - sin_cache[angle] * x[{other[0]}]);
    }} else {{
        store(i, value + sin_cache[angle] * x[{other[1]}]);
    }}
}}
"""
    n.emit_flat(n.title(x, cos, note=f"interleaved {interleaved}"), reads, statements, out)
