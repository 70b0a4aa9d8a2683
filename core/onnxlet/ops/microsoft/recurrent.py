"""Layers that go through sequences with a state: AttnLSTM, gated delta networks, Mamba, causal convolutions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from ...errors import UnsupportedError
from ..activations import sigmoid, softmax, softplus, swish
from ..attention import linear_attention
from ..common import to_float32
from ..precision import narrow
from ..registry import op
from ..rnn import State, Step, activations_of, lstm_step, recurrent, split_bias
from .hashing import sequence_edges
from .layers import MICROSOFT, root_mean_square
from .streams import rounded


@op("AttnLSTM", domain=MICROSOFT)
def attn_lstm(
    x: np.ndarray,
    w: np.ndarray,
    r: np.ndarray,
    b: np.ndarray | None = None,
    sequence_lens: np.ndarray | None = None,
    initial_h: np.ndarray | None = None,
    initial_c: np.ndarray | None = None,
    p: np.ndarray | None = None,
    qw: np.ndarray | None = None,
    mw: np.ndarray | None = None,
    v: np.ndarray | None = None,
    m: np.ndarray | None = None,
    memory_seq_lens: np.ndarray | None = None,
    aw: np.ndarray | None = None,
    *,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    activations: Sequence[str] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
):
    """An LSTM that at each step looks at a memory (Bahdanau et al. 2014), and takes what it saw, next to the input, to
    the next step."""
    if qw is None or mw is None or v is None or m is None:
        raise ValueError("AttnLSTM needs QW, MW, V and M")
    functions = activations_of(activations, ["Sigmoid", "Tanh", "Tanh"], activation_alpha, activation_beta, direction)
    input_bias, recurrence_bias = split_bias(b)
    bias = None if input_bias is None or recurrence_bias is None else input_bias + recurrence_bias
    batch, longest, _ = m.shape
    lengths = np.full(batch, longest) if memory_seq_lens is None else memory_seq_lens
    real = np.arange(longest) < lengths[:, None]
    values = np.where(real[..., None], m, 0)
    size = x.shape[2]

    def make_step(d: int) -> Step:
        cell = lstm_step(lambda h: h @ r[d].T, functions[d], None if p is None else p[d], clip, input_forget)
        keys, seen_weights = values @ mw[d], w[d][:, size:].T

        def step(inputs: np.ndarray, states: State) -> State:
            h, c = cell(inputs + states[2] @ seen_weights, states[:2])
            scores = (np.tanh(keys + (h @ qw[d])[:, None]) * v[d]).sum(axis=-1)
            aligned = softmax(np.where(real, scores, scores.dtype.type(-np.inf)))
            context = (aligned[..., None] * values).sum(axis=1)
            return h, c, context if aw is None else np.concatenate([h, context], axis=1) @ aw[d]

        return step

    seen = np.zeros((w.shape[0], batch, w.shape[2] - size), x.dtype)
    y, last_h, last_c, _ = recurrent(
        make_step, lambda d, inputs: inputs @ w[d][:, :size].T, x, bias, sequence_lens, [initial_h, initial_c, seen],
        r.shape[-1], direction, 0,
    )  # fmt: skip
    return y, last_h, last_c


def padded(edges: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Where the tokens of sequences, set side by side (batch, longest), are among all; and which of those are there."""
    starts = np.array(edges)
    lengths = np.diff(starts)
    step = np.arange(lengths.max(initial=0))
    real = step < lengths[:, None]
    return np.where(real, starts[:-1, None] + step, 0), real


def unit(x: np.ndarray) -> np.ndarray:
    """Vectors of length one."""
    return x / np.sqrt(np.square(x).sum(axis=-1, keepdims=True) + np.float32(1e-6))


def effective_decay(
    decay: np.ndarray, activation: str, a_log: np.ndarray | None, dt_bias: np.ndarray | None, lower_bound: float
) -> np.ndarray:
    """Logarithms of decays (tokens, heads or heads, key size) from what a projection gave."""
    if activation == "none":
        return decay
    if a_log is None or dt_bias is None:
        raise ValueError(f"gate_activation {activation!r} needs a_log and dt_bias")
    rate = np.exp(a_log)
    shift = dt_bias
    if decay.ndim == 3:
        rate = rate[:, None]
        shift = dt_bias[:, None] if dt_bias.shape == a_log.shape else dt_bias.reshape(decay.shape[1:])
    if activation in ("softplus", "qwen"):
        return -rate * softplus(decay + shift)
    if activation in ("sigmoid", "kda"):
        return lower_bound * sigmoid(rate * (decay + shift))
    raise ValueError(f"gate_activation is {activation!r}; none, softplus, sigmoid and kda are known")


@op("GatedDeltaNet", domain=MICROSOFT)
def gated_delta_net(
    query: np.ndarray,
    key: np.ndarray | None = None,
    value: np.ndarray | None = None,
    cu_seqlens: np.ndarray | None = None,
    decay: np.ndarray | None = None,
    beta: np.ndarray | None = None,
    initial_state: np.ndarray | None = None,
    a_log: np.ndarray | None = None,
    dt_bias: np.ndarray | None = None,
    capture_count: np.ndarray | None = None,
    state_update_active: np.ndarray | None = None,
    *,
    beta_activation: str = "none",
    chunk_size: int = 64,
    gate_activation: str = "none",
    gate_lower_bound: float = -5.0,
    qk_l2_norm: int = 0,
    scale: float = 0.0,
    state_update_capacity: int = 0,
    update_rule: str = "gated_delta",
):
    """Linear attention with a recurrent state (batch, heads, value size, key size), over tokens that follow each other.

    Yang et al., "Gated Delta Networks" (2024). Also the states at the end, and what the first tokens of each sequence
    did to them: decays, keys and differences.
    """
    if update_rule not in ("linear", "gated", "delta", "gated_delta"):
        raise ValueError(f"update_rule is {update_rule!r}; linear, gated, delta and gated_delta are known")
    if beta_activation not in ("none", "sigmoid"):
        raise ValueError(f"beta_activation is {beta_activation!r}; none and sigmoid are known")
    gated, delta = update_rule.startswith("gated"), update_rule.endswith("delta")
    if (gated and decay is None) or (delta and beta is None):
        raise ValueError(f"update_rule {update_rule} needs {'decay' if gated and decay is None else 'beta'}")
    lead = query.shape[:-1] if key is None else query.shape[:-2]
    if key is None or value is None:
        if initial_state is None:
            raise ValueError("packed queries, keys and values need initial_state")
        _, value_heads, value_size, size = initial_state.shape
        width = (query.shape[-1] - value_heads * value_size) // 2
        parts = np.split(to_float32(query), [width, 2 * width], axis=-1)
        q, k, v = (p.reshape(-1, p.shape[-1] // n, n) for p, n in zip(parts, (size, size, value_size), strict=True))
    else:
        q, k, v = (to_float32(t).reshape(-1, *t.shape[-2:]) for t in (query, key, value))
    tokens, key_heads, size = k.shape
    heads, value_size = v.shape[1:]
    if q.shape[1] != key_heads or not key_heads or heads % key_heads:
        raise ValueError(f"{q.shape[1]} query, {key_heads} key and {heads} value heads do not go together")
    if cu_seqlens is not None:
        edges = sequence_edges(cu_seqlens, tokens)
    elif len(lead) == 2 or initial_state is not None:
        batch = lead[0] if len(lead) == 2 or initial_state is None else len(initial_state)
        edges = [i * (tokens // max(batch, 1)) for i in range(batch + 1)]
    else:
        raise ValueError("without cu_seqlens, initial_state says how many sequences there are")
    if qk_l2_norm:
        q, k = unit(q), unit(k)
    logs = None
    if gated and decay is not None:
        flat = to_float32(decay).reshape(tokens, heads, *decay.shape[len(lead) + 1 :])
        logs = effective_decay(flat, gate_activation, a_log, dt_bias, gate_lower_bound)
    rates = np.ones((tokens, heads), np.float32)
    if delta and beta is not None:
        rates = to_float32(beta).reshape(tokens, heads)
        rates = sigmoid(rates) if beta_activation == "sigmoid" else rates

    at, real = padded(edges)
    batch, longest = at.shape
    decays = np.ones((tokens, heads, 1), np.float32) if logs is None else np.exp(logs.reshape(tokens, heads, -1))
    factor = scale or 1 / math.sqrt(size)
    shared = heads // key_heads
    q, spread = np.repeat(q * factor, shared, axis=1), np.repeat(k, shared, axis=1)
    state = np.zeros((batch, heads, value_size, size), np.float32)
    if initial_state is not None:
        state = initial_state.astype(np.float32)
    y = np.zeros((tokens, heads, value_size), np.float32)
    deltas = np.zeros((tokens, heads, value_size), np.float32)
    for t in range(longest):
        here, alive = at[:, t], real[:, t]
        before = decays[here][:, :, None] * state
        new = v[here]
        if delta:
            new = new - np.matmul(before, spread[here][..., None])[..., 0]
        new = rates[here][..., None] * new
        state = np.where(alive[:, None, None, None], before + new[..., None] * spread[here][:, :, None], state)
        y[here[alive]] = np.matmul(state, q[here][..., None])[alive, :, :, 0]
        deltas[here[alive]] = new[alive]
    width = decays.shape[2] if logs is not None else 1
    captured = np.zeros((batch, state_update_capacity * (heads * width + key_heads * size + heads * value_size)), "f4")
    active = state_update_active is None or bool(state_update_active.reshape(()))
    if capture_count is not None and active and state_update_capacity:
        first = np.zeros((batch, state_update_capacity), np.int64)
        known = min(longest, state_update_capacity)
        first[:, :known] = at[:, :known]
        kept = np.arange(state_update_capacity) < np.clip(capture_count, 0, real.sum(axis=1))[:, None]
        rows = [np.where(kept[..., None], t.reshape(tokens, -1)[first], 0) for t in (decays, k, deltas)]
        captured = np.concatenate([row.reshape(batch, -1) for row in rows], axis=1).astype(np.float32)
    return narrow(y.reshape(*lead, heads, value_size), query.dtype), state, captured


@op("GatedDeltaNetStateReplay", domain=MICROSOFT)
def gated_delta_net_state_replay(
    source_backing: np.ndarray, capsule_backing: np.ndarray, destination_backing: np.ndarray, metadata: np.ndarray
):
    """The destination with a state as it is after the first transitions that a GatedDeltaNet captured.

    `metadata` are offsets (of source, destination, decays, keys and deltas), the numbers of value heads, value
    elements, key elements and key heads, and how many transitions there are and are kept.
    """
    source, destination, decay_at, key_at, delta_at, heads, value_size, size, key_heads, capacity, kept = (
        metadata.tolist()
    )
    if min(heads, value_size, size, key_heads) < 1 or heads % key_heads or not 0 < kept <= capacity:
        raise ValueError(f"metadata {metadata.tolist()} does not describe a state")
    state = part(source_backing, source, (heads, value_size, size)).copy()
    per_key = key_at - decay_at == capacity * heads * size and size > 1
    decays = part(capsule_backing, decay_at, (capacity, heads, 1, size if per_key else 1))
    keys = part(capsule_backing, key_at, (capacity, key_heads, size))
    deltas = part(capsule_backing, delta_at, (capacity, heads, value_size, 1))
    for t in range(kept):
        state = state * decays[t] + deltas[t] * np.repeat(keys[t], heads // key_heads, axis=0)[:, None]
    result = destination_backing.copy()
    part(result, destination, state.shape)[...] = state
    return result


def part(flat: np.ndarray, offset: int, shape: Sequence[int]) -> np.ndarray:
    """A view of a part of a 1-d array. Raises ValueError where it reaches outside."""
    size = math.prod(shape)
    if flat.ndim != 1 or not 0 <= offset <= len(flat) - size:
        raise ValueError(f"{size} elements from {offset} on reach outside a tensor of shape {list(flat.shape)}")
    return flat[offset : offset + size].reshape(shape)


@op("ConvStateReplay", domain=MICROSOFT)
def conv_state_replay(
    source_backing: np.ndarray, capture_backing: np.ndarray, destination_backing: np.ndarray, metadata: np.ndarray
):
    """The destination with a convolution's last inputs (batch, channels, width) as they are after the first inputs that
    were captured (batch, capacity, channels).

    `metadata` are offsets in bytes (of source, destination and capture), batch, channels, width, capacity, and how many
    inputs are kept.
    """
    *offsets, batch, channels, width, capacity, kept = metadata.tolist()
    item = source_backing.dtype.itemsize
    if min(batch, width) < 0 or channels < 1 or not 0 <= kept <= capacity or any(o % item for o in offsets):
        raise ValueError(f"metadata {metadata.tolist()} does not describe a state")
    source, destination, capture = (o // item for o in offsets)
    before = part(source_backing, source, (batch, channels, width))
    new = part(capture_backing, capture, (batch, capacity, channels))[:, :kept].swapaxes(1, 2)
    result = destination_backing.copy()
    part(result, destination, before.shape)[...] = np.concatenate([before, new], axis=2)[:, :, kept:]
    return result


@op("CausalConvWithState", domain=MICROSOFT)
def causal_conv_with_state(
    x: np.ndarray,
    weight: np.ndarray,
    bias: np.ndarray | None = None,
    past_state: np.ndarray | None = None,
    *,
    activation: str = "none",
    channels_last: int = 0,
    dilation: int = 1,
    input_channel_offset: int = 0,
    input_channels: int = 0,
    ndim: int = 1,
    state_channels_last: int = -1,
    state_length: int = 0,
    state_update_capacity: int = 0,
    state_window: int = 0,
):
    """A depthwise convolution over (batch, channels, length) or (batch, length, *channels) that looks only back, into a
    state of the inputs before first; also the state at the end, or those after each of the last `state_window` inputs;
    and the first inputs (batch, inputs, channels)."""
    if activation not in ("none", "silu", "swish"):
        raise ValueError(f"activation is {activation!r}; silu, swish and none are known")
    if ndim != 1:
        raise UnsupportedError(
            f"CausalConvWithState over {ndim} axes is not defined: its text does not say how the others are padded"
        )
    inputs = x.reshape(*x.shape[:2], -1).swapaxes(1, 2) if channels_last else x
    if input_channels:
        inputs = inputs[:, input_channel_offset : input_channel_offset + input_channels]
    batch, channels, length = inputs.shape
    taps = weight.shape[2]
    reach = state_length or (taps - 1) * dilation
    if reach < (taps - 1) * dilation:
        raise ValueError(f"a state of {reach} inputs is too short for {taps} taps, {dilation} apart")
    last = channels_last if state_channels_last < 0 else state_channels_last
    before = np.zeros((batch, channels, reach), x.dtype)
    if past_state is not None:
        one = past_state[state_window - 1] if state_window else past_state
        before = one.reshape(batch, reach, channels).swapaxes(1, 2) if last else one.reshape(batch, channels, reach)
    line = np.concatenate([before, inputs], axis=2)
    wide, kernel = to_float32(line), to_float32(weight).reshape(channels, taps)
    first = reach - (taps - 1) * dilation
    y = np.zeros(inputs.shape, wide.dtype)
    for j in range(taps):
        y = y + wide[:, :, first + j * dilation :][:, :, :length] * kernel[:, j, None]
    if bias is not None:
        y = y + to_float32(bias)[:, None]
    if activation != "none":
        y = swish(y)
    ends = [length] if not state_window else range(length - state_window + 1, length + 1)
    states = np.stack([line[:, :, e : e + reach] if e > 0 or not state_window else 0 * before for e in ends])
    lead = x.shape[2:] if channels_last and not input_channels else (channels,)
    if last:
        states = states.swapaxes(2, 3).reshape(len(states), batch, reach, *lead)
    else:
        states = states.reshape(len(states), batch, *lead, reach)
    result = narrow(y, x.dtype)
    if channels_last:
        result = np.ascontiguousarray(result.swapaxes(1, 2)).reshape(batch, length, *lead)
    captured = np.zeros((batch, state_update_capacity, channels), x.dtype)
    kept = min(length, state_update_capacity)
    captured[:, :kept] = inputs[:, :, :kept].swapaxes(1, 2)
    return result, np.ascontiguousarray(states if state_window else states[0]), captured


@op("LinearAttention", domain=MICROSOFT)
def linear_attention_microsoft(
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    past_state: np.ndarray | None = None,
    decay: np.ndarray | None = None,
    beta: np.ndarray | None = None,
    *,
    chunk_size: int = 64,
    kv_num_heads: int,
    q_num_heads: int,
    scale: float = 0.0,
    state_window: int = 0,
    update_rule: str = "gated_delta",
    output_types: Sequence[np.dtype | None] = (),
):
    """LinearAttention of the standard, in which several value heads may share a query's too; also the states after each
    of the last `state_window` tokens."""
    heads = max(q_num_heads, kv_num_heads)
    if kv_num_heads > q_num_heads:
        if kv_num_heads % q_num_heads:
            raise ValueError(f"{kv_num_heads} key heads are not a multiple of {q_num_heads} query heads")
        apart = query.reshape(*query.shape[:2], q_num_heads, -1)
        query = np.repeat(apart, kv_num_heads // q_num_heads, axis=2).reshape(*query.shape[:2], -1)
    length = query.shape[1]
    cuts = sorted({0, *range(max(length - state_window + 1, 0), length + 1)}) if state_window else [0, length]
    state = past_state[state_window - 1] if state_window and past_state is not None else past_state
    outputs, states = [], []
    for begin, end in itertools.pairwise(cuts):
        own = np.s_[:, begin:end]
        gates = [None if p is None else p[own] for p in (decay, beta)]
        y, state = linear_attention(
            query[own], key[own], value[own], state, *gates, chunk_size=chunk_size, kv_num_heads=kv_num_heads,
            q_num_heads=heads, scale=scale, update_rule=update_rule, output_types=output_types,
        )  # fmt: skip
        outputs.append(y)
        states.append(state)
    result = np.concatenate(outputs, axis=1)
    if not state_window:
        return result, state
    empty = [np.zeros_like(state)] * (state_window - len(states))
    return result, np.stack([*empty, *states])


@op("VarlenCausalConvWithState", domain=MICROSOFT)
def varlen_causal_conv_with_state(
    x: np.ndarray,
    weight: np.ndarray,
    cumulative_sequence_length: np.ndarray,
    bias: np.ndarray | None,
    initial_state: np.ndarray,
    capture_count: np.ndarray | None = None,
    kernel_delta: np.ndarray | None = None,
    previous_mask: np.ndarray | None = None,
    *,
    activation: str = "none",
    delta_offset: int = 0,
    dilation: int = 1,
    group_size: int = 1,
    state_update_capacity: int = 0,
):
    """A depthwise convolution over tokens (tokens, channels) that looks back within its sequence and then into that
    sequence's state; also the states at the end, and the first tokens of each sequence."""
    if activation not in ("none", "silu", "swish"):
        raise ValueError(f"activation is {activation!r}; silu, swish and none are known")
    edges = sequence_edges(cumulative_sequence_length, len(x))
    taps, reach = weight.shape[2], initial_state.shape[2]
    if reach != (weight.shape[2] - 1) * dilation:
        raise ValueError(f"a state of {reach} tokens does not go with {taps} taps, {dilation} apart")
    at, real = padded(edges)
    batch = len(at)
    # All sequences in one line, each after its state.
    line = np.empty((len(x) + batch * reach, x.shape[1]), x.dtype)
    place = np.arange(len(x)) + reach * (1 + np.repeat(np.arange(batch), np.diff(edges)))
    before = (np.array(edges[:-1]) + reach * np.arange(batch))[:, None] + np.arange(reach)
    line[place], line[before] = x, initial_state.swapaxes(1, 2)
    final = line[(np.array(edges[1:]) + reach * np.arange(batch))[:, None] + np.arange(reach)].swapaxes(1, 2)
    wide, kernel = to_float32(line), to_float32(weight)[:, 0]
    if kernel_delta is not None and previous_mask is not None:
        # Two taps that differ from token to token; every step is rounded.
        step = np.repeat(to_float32(kernel_delta)[:, delta_offset : delta_offset + 2], group_size, axis=2)
        current = rounded(rounded(kernel[:, 1] + step[:, 0], x.dtype) * wide[place], x.dtype)
        previous = rounded(rounded(kernel[:, 0] + step[:, 1], x.dtype) * wide[place - 1], x.dtype)
        y = current + rounded(previous * to_float32(previous_mask), x.dtype)
    else:
        y = sum(wide[place - (taps - 1 - j) * dilation] * kernel[:, j] for j in range(taps))
    y = np.asarray(y) if bias is None else y + to_float32(bias)
    if activation != "none":
        y = swish(y)
    captured = np.zeros((batch, state_update_capacity, x.shape[1]), x.dtype)
    if capture_count is not None:
        known = min(at.shape[1], state_update_capacity)
        kept = (np.arange(known) < capture_count[:, None]) & real[:, :known]
        captured[:, :known][kept] = x[at[:, :known]][kept]
    return narrow(y, x.dtype), np.ascontiguousarray(final), captured


@op("Mamba2Verify", domain=MICROSOFT)
def mamba2_verify(
    projection: np.ndarray,
    conv_state: np.ndarray,
    ssm_state: np.ndarray,
    conv_weight: np.ndarray,
    conv_bias: np.ndarray,
    dt_bias: np.ndarray,
    a_negative: np.ndarray,
    d: np.ndarray,
    norm_weight: np.ndarray,
    state_row: np.ndarray,
    *,
    d_state: int = 128,
    epsilon: float = 1e-5,
    head_dim: int = 64,
    heads: int,
    n_groups: int,
    time_step_min: float = 0.001,
):
    """A layer of Mamba-2 (Dao and Gu 2024) over the rows of one sequence, from one of several states on.

    Also the states after the last rows, what the convolution gave, and what was read before gating. A `state_row` that
    is not there makes NaN of all that is computed.
    """
    dtype, rows, slots = projection.dtype, len(projection), len(conv_state)
    inner, shared = heads * head_dim, n_groups * d_state
    row = int(state_row.reshape(()))
    there = 0 <= row < slots
    gate, xbc, dt = np.split(to_float32(projection), [inner, 2 * inner + 2 * shared], axis=1)
    before = to_float32(conv_state)[row if there else 0].T
    line = np.concatenate([before, xbc])
    taps = np.lib.stride_tricks.sliding_window_view(line, 4, axis=0)  # (rows, channels, 4)
    mixed = (taps * to_float32(conv_weight).reshape(-1, 4)).sum(axis=2) + to_float32(conv_bias)
    mixed = rounded(swish(mixed), dtype)
    x = mixed[:, :inner].reshape(rows, heads, head_dim)
    b, c = (
        np.repeat(part_.reshape(rows, n_groups, d_state), heads // n_groups, axis=1)
        for part_ in np.split(mixed[:, inner:], 2, axis=1)
    )
    steps = dt + dt_bias
    steps = np.maximum(np.where(steps > 20, steps, softplus(np.minimum(steps, np.float32(20)))), time_step_min)
    state, states, read = ssm_state[row if there else 0], [], []
    for t in range(rows):
        decay = np.exp(a_negative * steps[t])[:, None, None]
        state = decay * state + b[t][:, :, None] * (steps[t][:, None] * x[t])[:, None]
        states.append(state)
        read.append(d[:, None] * x[t] + (c[t][:, :, None] * state).sum(axis=1))
    readout = np.stack(read).reshape(rows, inner)
    gated = (readout * swish(gate)).reshape(rows, n_groups, -1)
    y = root_mean_square(gated, (2,), epsilon)[0].reshape(rows, inner) * norm_weight
    kept = min(rows, slots)
    last = np.arange(rows - kept, rows)
    windows = np.lib.stride_tricks.sliding_window_view(line, 3, axis=0)[last + 1]
    conv_snapshots, ssm_snapshots = conv_state.copy(), ssm_state.copy()
    conv_snapshots[:kept] = narrow(windows, dtype)
    ssm_snapshots[:kept] = np.stack(states)[last]
    results = [narrow(y, dtype), conv_snapshots, ssm_snapshots, narrow(mixed, dtype), readout]
    if not there:
        nan = narrow(np.full((), np.nan, np.float32), dtype)
        for result, count in zip(results, (rows, kept, kept, rows, rows), strict=True):
            result[:count] = nan if result.dtype == dtype else np.nan
    return tuple(results)
