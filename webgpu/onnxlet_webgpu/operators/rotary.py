"""RotaryEmbedding, of ai.onnx and of com.microsoft: pairs of elements of each head turned by an angle."""

from __future__ import annotations

from ..lowering import MICROSOFT, Lowering, Tensor, lowering
from .attention import Heads
from .movement import index_at, indices, wrapped


@lowering("RotaryEmbedding")
def rotary_embedding(n: Lowering) -> None:
    x, out = n.input(0), n.output(0, "float32")
    heads = Heads(n, x, n.attribute("num_heads") or None)
    positions = indices(n, 3, n.input(1).shape[0]) if n.has_input(3) else None
    _rotate(n, heads, n.input(1), n.input(2), positions, n.attribute("rotary_embedding_dim", 0) or heads.size, out)


@lowering("RotaryEmbedding", domain=MICROSOFT)
def rotary_embedding_microsoft(n: Lowering) -> None:
    """Positions are one per token, or a single number that counts on from it."""
    x, cos, out = n.input(0), n.input(2), n.output(0, "float32")
    n.ignore("is_packed_batching", "scale", "rotary_embedding_dim")
    turned = 2 * cos.shape[1]
    count = n.attribute("num_heads", 0)
    size = turned
    if n.attribute("rotary_embedding_dim", 0) and count:
        size = x.shape[2] // count if len(x.shape) == 3 else x.shape[3]
    heads = Heads(n, x, count or x.shape[2] // size)
    positions = indices(n, 1, cos.shape[0])
    _rotate(n, heads, cos, n.input(3), positions, turned, out, counted=positions.size == 1)


def _rotate(
    n: Lowering, heads: Heads, cos: Tensor, sin: Tensor, positions: Tensor | None, size: int, out: Tensor,
    counted: bool = False,
) -> None:  # fmt: skip
    """Add the rotation of the first `size` elements of every head. Positions index the caches, which else hold the
    angles of every token; where they are `counted`, there is one for the first token."""
    x = heads.tensor
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
    if positions is not None:
        reads.append(positions.binding("positions"))
        if counted:
            where = f"u32({index_at('positions', positions, '0u')}) + {place['s']}"
        else:
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
