"""Attention by a recurrent state, and the causal convolution that goes before it."""

from __future__ import annotations

from math import prod, sqrt

from ..kernel import Kernel, flat_body, flat_groups
from ..lowering import Lowering, lowering
from ..wgsl import literal
from .arithmetic import at
from .movement import emit_strided


@lowering("LinearAttention")
def linear_attention(n: Lowering) -> None:
    """An invocation walks through one sequence with one column of one head's state. Results and last states go to one
    buffer, from which the outputs are copied."""
    q, k, v = n.input(0), n.input(1), n.input(2)
    q_heads, heads = n.attribute("q_num_heads"), n.attribute("kv_num_heads")
    n.ignore("chunk_size")
    rule = n.attribute("update_rule", "gated_delta")
    gated, delta = rule.startswith("gated"), rule.endswith("delta")
    batch, time, _ = q.shape
    size, width = k.shape[2] // heads, v.shape[2] // heads
    shared = q_heads // heads
    factor = literal(n.attribute("scale", 0.0) or 1 / sqrt(size), "f32")
    columns = batch * heads * width
    total = batch * time * q_heads * width
    result = n.temporary("results", (total + batch * heads * size * width,))
    reads = [q.binding("q"), k.binding("k"), v.binding("v")]
    row = f"(batch * {time}u + t)"
    start = "0.0"
    if n.has_input(3):
        reads.append(n.input(3).binding("past"))
        start = f"past[((batch * {heads}u + head) * {size}u + d) * {width}u + column]"
    gate = ""
    if gated:
        decay = n.input(4)
        reads.append(decay.binding("decay"))
        own = decay.shape[2] // heads
        which = "d" if own == size else "0u"
        gate = f"state[d] = state[d] * exponential(decay[{row} * {decay.shape[2]}u + head * {own}u + {which}]);"
    update = ""
    if delta:
        beta = n.input(5)
        reads.append(beta.binding("beta"))
        which = "head" if beta.shape[2] == heads else "0u"
        update = f"""
    var known = 0.0;
    for (var d = 0u; d < {size}u; d++) {{ known += k[keys + d] * state[d]; }}
    value = beta[{row} * {beta.shape[2]}u + {which}] * (value - known);"""
    statements = f"""
let column = i % {width}u;
let head = i / {width}u % {heads}u;
let batch = i / {width * heads}u;
var state: array<f32, {size}>;
for (var d = 0u; d < {size}u; d++) {{ state[d] = {start}; }}
for (var t = 0u; t < {time}u; t++) {{
    let keys = {row} * {k.shape[2]}u + head * {size}u;
    var value = v[{row} * {v.shape[2]}u + head * {width}u + column];
    {f"for (var d = 0u; d < {size}u; d++) {{ {gate} }}" if gate else ""}{update}
    for (var d = 0u; d < {size}u; d++) {{ state[d] += k[keys + d] * value; }}
    for (var s = 0u; s < {shared}u; s++) {{
        let asking = head * {shared}u + s;
        var answer = 0.0;
        for (var d = 0u; d < {size}u; d++) {{
            answer += q[{row} * {q.shape[2]}u + asking * {size}u + d] * {factor} * state[d];
        }}
        store({row} * {q_heads * width}u + asking * {width}u + column, answer);
    }}
}}
for (var d = 0u; d < {size}u; d++) {{
    store({total}u + ((batch * {heads}u + head) * {size}u + d) * {width}u + column, state[d]);
}}
"""
    body, groups = flat_body(statements, f"{columns}u"), flat_groups(columns, n.target.flat_groups)
    n.emit(Kernel(n.title(q, k, v, note=rule), reads, result.value, result.shape, "f32", body, groups))
    emit_strided(n, result, n.output(0, "float32"), [total], [1])
    if n.has_output(1):
        state = n.output(1, "float32")
        emit_strided(n, result, state, [state.size], [1], total)


@lowering("CausalConvWithState")
def causal_conv_with_state(n: Lowering) -> None:
    x, w = n.input(0), n.input(1)
    _, channels, length = x.shape
    taps = w.shape[2]
    before = taps - 1
    reads = [x.binding("x"), w.binding("w")]
    past = "0.0"
    if n.has_input(3) and not n.is_empty(3):
        reads.append(n.input(3).binding("past"))
        past = f"past[i / {length}u * {before}u + u32(j)]"
    bias = "0.0"
    if n.has_input(2):
        reads.append(n.input(2).binding("bias"))
        bias = f"bias[{at(x.shape, 1)}]"
    name = n.attribute("activation", "none")
    result = "total * sigmoid(total)" if name in ("silu", "swish") else "total"
    statements = f"""
var total = 0.0;
for (var t = 0; t < {taps}; t++) {{
    let j = i32(i % {length}u) + t;
    var value = 0.0;
    if (j < {before}) {{ value = {past}; }} else {{ value = x[i / {length}u * {length}u + u32(j - {before})]; }}
    total += value * w[{at(x.shape, 1)} * {taps}u + u32(t)];
}}
total += {bias};
store(i, {result});
"""
    n.emit_flat(n.title(x, w, note=name), reads, statements, n.output(0, "float32"))
    if n.has_output(1) and before:
        state = n.output(1, "float32")
        reads = [b for b in reads if b.name in ("x", "past")]
        old = past.replace(f"i / {length}u", f"i / {before}u")
        statements = f"""
let j = i32(i % {before}u) + {length};
var value = 0.0;
if (j < {before}) {{ value = {old}; }} else {{ value = x[i / {before}u * {length}u + u32(j - {before})]; }}
store(i, value);
"""
        n.emit_flat(n.title(x, state, note="state"), reads, statements, state)
    assert channels * taps == prod(w.shape)
