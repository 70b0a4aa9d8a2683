"""Caches of keys and values that hold integers, or the last positions alone.

The twin is `onnxlet.ops.microsoft.grouped`.
"""

from __future__ import annotations

from math import prod

import numpy as np

from ..kernel import Operand
from ..lowering import Lowering, Tensor
from ..storage import type_name
from ..wgsl import broadcast_index, contiguous_strides
from .arithmetic import at
from .attention import Heads


def _new_at(new: Heads, shape: tuple[int, ...], position: str, element: str) -> str:
    """Text of where element `element` of the new row at `position` lies, for the index `i` over `shape`."""
    batch, head, row, _ = new.strides
    text = f"{at(shape, 0)} * {batch}u + {at(shape, 1)} * {head}u + u32({position}) * {row}u + {element}"
    return text + (f" + {new.offset}u" if new.offset else "")


def emit_quantised(
    n: Lowering, new: Heads, indices: tuple[int, int, int], lengths: Tensor, before: str, total: int
) -> Heads:
    """Add kernels that put new keys or values, divided by scales and rounded, into a cache of 8 or 4 bits, and read
    its first `total` rows as floats. `indices` are the numbers of the input with the past, of the output, and of the
    input with the scales."""
    past_index, output, scale_index = indices
    past, scale = n.input(past_index, "int32", "uint32"), n.input(scale_index)
    packed = n.attribute("kv_cache_bit_width", 0) == 4
    if type_name(past.dtype) != ("uint8" if packed else "int8"):
        n.refuse(f"a cache of {type_name(past.dtype)} has no GPU kernel")
    capacity, stored = max(total, past.shape[2]), past.shape[3]
    shape = (new.batch, new.heads, capacity, stored)
    whole = n.output(output) if n.has_output(output) else n.temporary(f"codes {output}", shape, past.dtype.type)
    floats = n.temporary(f"floats {output}", (new.batch, new.heads, total, new.size))
    start = before.format(at(shape, 0))
    reads = [new.tensor.binding("x"), past.binding("past"), scale.binding("scale")]
    if start != "0":
        reads.append(lengths.binding("lengths"))
    scale_at = broadcast_index(scale.shape, (*shape[:3], new.size), "e")
    low, high = (-8, 7) if packed else (-128, 127)
    row = f"i / {stored}u * {new.size}u"
    code = f"clip(round(x[{_new_at(new, shape, 'slot - before', 'd')}] / scale[{scale_at}]), f32({low}), f32({high}))"
    if packed:
        fresh = f"""for (var s = 0u; s < 2u; s++) {{
        let d = i % {stored}u * 2u + s;
        let e = {row} + d;
        if (d < {new.size}u) {{ value |= u32({code} + 8.0) << (4u * s); }}
    }}"""
    else:
        fresh = f"let d = i % {stored}u;\n    let e = i;\n    value = i32({code});"
    old = f"i / {capacity * stored}u * {past.shape[2] * stored}u + i % {capacity * stored}u"
    statements = f"""
let slot = i32({at(shape, 2)});
let before = {start};
var value = {"0u" if packed else "0"};
if (slot >= before && slot < before + {new.length}) {{
    {fresh}
}}
if (slot < min(before, {past.shape[2]})) {{ value = past[{old}]; }}
store(i, value);
"""
    n.emit_flat(n.title(new.tensor, whole, note=f"codes {new.offset}"), reads, statements, whole)
    place = f"i / {total * new.size}u * {capacity * stored}u + i / {new.size}u % {total}u * {stored}u"
    place += f" + i % {new.size}u" + (" / 2u" if packed else "")
    value = f"f32((codes[{place}] >> (i % {new.size}u % 2u * 4u)) & 15u) - 8.0" if packed else f"f32(codes[{place}])"
    scale_at = broadcast_index(scale.shape, floats.shape)
    statements = f"store(i, ({value}) * scale[{scale_at}]);"
    reads = [whole.binding("codes"), scale.binding("scale")]
    n.emit_flat(n.title(whole, floats, note="as floats"), reads, statements, floats)
    return Heads.spread(floats, floats.shape, tuple(contiguous_strides(floats.shape)))


RESIDENT = """fn resident(total: i32) -> i32 {{
    return select(total - {slack} * ((total - {capacity} + {slack} - 1) / {slack}), total, total <= {capacity});
}}"""
"""How many of `total` positions a cache of a window holds: it lets go of several at once when it is full."""


class WindowCache:
    """A cache that holds the last positions of each sequence alone, in order from its first row on.

    What is attended to are its rows and the new ones behind them: row `j` is at the position ``before - held + j``.
    """

    def __init__(self, n: Lowering, lengths: Tensor, before: str, length: int):
        window = n.attribute("local_window_size", -1)
        self.capacity = n.input(3).shape[2]
        if not 0 < window <= self.capacity:
            n.refuse(f"a window of {window} does not fit into a cache of {self.capacity}")
        self.n, self.lengths, self.before, self.length = n, lengths, before, length
        self.rows = self.capacity + length
        self.resident = RESIDENT.format(slack=self.capacity - window + 1, capacity=self.capacity)

    def _start(self, shape: tuple[int, ...]) -> tuple[list, str]:
        start = self.before.format(at(shape, 0))
        return ([self.lengths.binding("lengths")] if start != "0" else []), f"let before = {start};"

    def emit(self, new: Heads, past_index: int, output: int) -> Heads:
        """Add kernels for the rows that are attended to, and for the cache afterwards."""
        n = self.n
        past = n.input(past_index)
        shape = (new.batch, new.heads, self.rows, new.size)
        rows = n.temporary(f"rows {output}", shape)
        reads, begin = self._start(shape)
        row = f"i / {self.rows * new.size}u * {self.capacity * new.size}u + u32(j) * {new.size}u + i % {new.size}u"
        statements = f"""
{begin}
let held = resident(before);
let j = i32({at(shape, 2)});
var value = 0.0;
if (j < held) {{ value = past[{row}]; }}
else if (j < held + {self.length}) {{ value = x[{_new_at(new, shape, "j - held", f"i % {new.size}u")}]; }}
store(i, value);
"""
        reads = [new.tensor.binding("x"), past.binding("past"), *reads]
        n.emit_flat(n.title(new.tensor, rows, note=f"rows {new.offset}"), reads, statements, rows, self.resident)
        if n.has_output(output):
            out = n.output(output)
            reads, begin = self._start(out.shape)
            source = f"i / {self.capacity * new.size}u * {self.rows * new.size}u + u32(slot + gone) * {new.size}u"
            statements = f"""
{begin}
let kept = resident(before + {self.length});
let gone = resident(before) + {self.length} - kept;
let slot = i32({at(out.shape, 2)});
var value = 0.0;
if (slot < kept) {{ value = rows[{source} + i % {new.size}u]; }}
store(i, value);
"""
            reads = [rows.binding("rows"), *reads]
            n.emit_flat(n.title(rows, out, note="window"), reads, statements, out, self.resident)
        return Heads.spread(rows, shape, tuple(contiguous_strides(shape)))

    def positions(self, batch: int) -> Operand:
        """Add a kernel that computes the position of row 0 of each sequence."""
        n = self.n
        out = n.temporary("first positions", (batch, 1, 1, 1), np.int32)
        reads, begin = self._start(out.shape)
        statements = f"{begin}\nstore(i, before - resident(before));"
        n.emit_flat(n.title(out, note=f"of {self.rows} rows"), reads, statements, out, self.resident)
        return Operand(out.value, out.shape, "i32")


def emit_normalised(n: Lowering, x: Heads, weight_index: int, epsilon: float, tag: str) -> Heads:
    """Add a kernel that divides heads by their root mean square and multiplies them with weights."""
    weight = n.input(weight_index)
    out = n.temporary(tag, x.shape)
    rows = prod(x.shape[:3])
    batch, head, row, _ = x.strides
    statements = f"""
let base = i / {x.heads * x.length}u * {batch}u + i / {x.length}u % {x.heads}u * {head}u + i % {x.length}u * {row}u;
var squares = 0.0;
for (var d = 0u; d < {x.size}u; d++) {{
    let value = x[base + d + {x.offset}u];
    squares += value * value;
}}
let factor = 1.0 / sqrt(squares / f32({x.size}u) + f32({epsilon!r}));
for (var d = 0u; d < {x.size}u; d++) {{ store(i * {x.size}u + d, x[base + d + {x.offset}u] * factor * weight[d]); }}
"""
    from .scans import emit_many

    reads = [x.tensor.binding("x"), weight.binding("weight")]
    emit_many(n, n.title(x.tensor, out, note=f"{tag} {x.offset}"), reads, out, rows, statements)
    return Heads.spread(out, x.shape, tuple(contiguous_strides(x.shape)))
