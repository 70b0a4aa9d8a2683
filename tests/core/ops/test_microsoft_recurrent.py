import ml_dtypes
import numpy as np
import pytest

from onnxlet.errors import UnsupportedError
from tests.core.ops.calling import call, of, same
from tests.core.ops.oracle import Numbers, agrees

MICROSOFT = "com.microsoft"


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("layer", [False, True])
def test_attn_lstm(direction, layer):
    numbers = Numbers()
    d = 2 if direction == "bidirectional" else 1
    time, batch, size, hidden, depth, attention, memory, out = 5, 3, 4, 6, 5, 7, 8, 3
    seen = out if layer else depth
    x, w, r = (
        numbers.f32(time, batch, size),
        numbers.f32(d, 4 * hidden, size + seen),
        numbers.f32(d, 4 * hidden, hidden),
    )
    bias, lengths = numbers.f32(d, 8 * hidden), of("int32", [5, 2, 4])
    states = numbers.f32(d, batch, hidden), numbers.f32(d, batch, hidden)
    looking = numbers.f32(d, hidden, attention), numbers.f32(d, depth, attention), numbers.f32(d, attention)
    remembered = numbers.f32(batch, memory, depth), of("int32", [8, 3, 5])
    aw = numbers.f32(d, depth + hidden, out) if layer else None
    options = {"outputs": 3, "domain": MICROSOFT, "direction": direction, "hidden_size": hidden}
    agrees("AttnLSTM", 1, x, w, r, bias, lengths, *states, None, *looking, *remembered, aw, **options)
    agrees("AttnLSTM", 1, x, w, r, None, None, None, None, None, *looking, *remembered, aw, clip=0.5, **options)
    functions = ["Relu", "Sigmoid", "Tanh"] * d
    agrees(
        "AttnLSTM", 1, x, w, r, bias, None, *states, numbers.f32(d, 3 * hidden), *looking, *remembered, aw,
        activations=functions, **options,
    )  # fmt: skip


RULES = ["linear", "gated", "delta", "gated_delta"]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("per_key", [False, True])
def test_gated_delta_net(rule, per_key):
    numbers = Numbers()
    q, k, v = numbers.f32(9, 2, 8), numbers.f32(9, 2, 8), numbers.f32(9, 4, 6)
    decay = -np.abs(numbers.f32(9, 4, 8) if per_key else numbers.f32(9, 4))
    beta, state = np.abs(numbers.f32(9, 4)) / 2, numbers.f32(3, 4, 6, 8)
    decay, beta = decay if "gated" in rule else None, beta if "delta" in rule else None
    starts = of("int32", [0, 4, 5, 9])
    options = {"domain": MICROSOFT, "update_rule": rule, "qk_l2_norm": 1, "outputs": 2}
    agrees("GatedDeltaNet", 1, q, k, v, starts, decay, beta, state, **options)
    agrees("GatedDeltaNet", 1, q, k, v, starts, decay, beta, scale=0.3, **options)
    agrees("GatedDeltaNet", 1, q, k, v, None, decay, beta, state, **options)
    small = {**options, "rtol": 3e-3, "atol": 3e-3}
    half = (None if t is None else t.astype(np.float16) for t in (q, k, v, None, decay, beta))
    agrees("GatedDeltaNet", 1, *half, state, **small)
    packed = np.concatenate([t.reshape(9, -1) for t in (q, k, v)], axis=1)
    agrees("GatedDeltaNet", 1, packed, None, None, starts, decay, beta, state, **options)
    batched = [None if t is None else t.reshape(3, 3, *t.shape[1:]) for t in (q, k, v, decay, beta)]
    agrees("GatedDeltaNet", 1, *batched[:3], None, *batched[3:], state, **options)


@pytest.mark.parametrize("gate", ["softplus", "qwen", "sigmoid", "kda"])
@pytest.mark.parametrize("per_key", [False, True])
def test_gates_of_gated_delta_net(gate, per_key):
    numbers = Numbers()
    q, k, v = numbers.f32(9, 2, 8), numbers.f32(9, 2, 8), numbers.f32(9, 4, 6)
    decay = numbers.f32(9, 4, 8) if per_key else numbers.f32(9, 4)
    inputs = q, k, v, of("int32", [0, 4, 5, 9]), decay, numbers.f32(9, 4), numbers.f32(3, 4, 6, 8), numbers.f32(4)
    options = {"gate_activation": gate, "beta_activation": "sigmoid", "qk_l2_norm": 1, "domain": MICROSOFT}
    agrees("GatedDeltaNet", 1, *inputs, numbers.f32(4), outputs=2, **options)
    if per_key:
        agrees("GatedDeltaNet", 1, *inputs, numbers.f32(32), outputs=2, gate_lower_bound=-2.0, **options)


@pytest.mark.parametrize("per_key", [False, True])
def test_replayed_transitions_give_the_state(per_key):
    """What a layer captures, replayed from the state before, gives the state that fewer tokens leave."""
    numbers = Numbers()
    q, k, v = numbers.f32(6, 2, 8), numbers.f32(6, 2, 8), numbers.f32(6, 4, 6)
    decay = -np.abs(numbers.f32(6, 4, 8) if per_key else numbers.f32(6, 4))
    beta, state = np.abs(numbers.f32(6, 4)) / 2, numbers.f32(1, 4, 6, 8)
    count = of("int32", [3])
    options = {"domain": MICROSOFT, "qk_l2_norm": 1}
    inputs = q, k, v, None, decay, beta, state
    _, _, update = call("GatedDeltaNet", 1, *inputs, None, None, count, outputs=3, state_update_capacity=4, **options)
    agrees("GatedDeltaNet", 1, *inputs, None, None, of("int32", [4]), outputs=3, state_update_capacity=4, **options)
    off = call(
        "GatedDeltaNet", 1, *inputs, None, None, count, of("int32", [0]), outputs=3, state_update_capacity=4, **options
    )[2]
    same(off, np.zeros_like(update))
    _, after = call("GatedDeltaNet", 1, q[:2], k[:2], v[:2], None, decay[:2], beta[:2], state, outputs=2, **options)
    width = 4 * (8 if per_key else 1)
    capsule = np.concatenate([np.ones(5, np.float32), update[0]])
    offsets = 5, 5 + 4 * width, 5 + 4 * (width + 2 * 8)
    destination = numbers.f32(200)
    got = call(
        "GatedDeltaNetStateReplay", 1, state.reshape(-1), capsule, destination,
        of("int64", [0, 3, *offsets, 4, 6, 8, 2, 4, 2]), domain=MICROSOFT,
    )  # fmt: skip
    np.testing.assert_allclose(got[3 : 3 + 192], after.reshape(-1), rtol=1e-4, atol=1e-5)
    same(np.delete(got, np.arange(3, 195)), np.delete(destination, np.arange(3, 195)))
    metadata = of("int64", [0, 9, *offsets, 4, 6, 8, 2, 4, 2])
    with pytest.raises(ValueError, match="192 elements from 9 on reach outside a tensor of shape"):
        call("GatedDeltaNetStateReplay", 1, state.reshape(-1), capsule, destination, metadata, domain=MICROSOFT)


@pytest.mark.parametrize("kept", [0, 1, 2, 5])
def test_conv_state_replay(kept):
    """Element by element, by the formula of the operator's text."""
    numbers = Numbers()
    batch, channels, width, capacity = 2, 3, 4, 6
    source, capture = numbers.f32(2 + batch * channels * width), numbers.f32(1 + batch * capacity * channels)
    destination = numbers.f32(30)
    got = call(
        "ConvStateReplay", 1, source, capture, destination,
        of("int64", [8, 12, 4, batch, channels, width, capacity, kept]), domain=MICROSOFT,
    )  # fmt: skip
    expected = destination.copy()
    for b in range(batch):
        for c in range(channels):
            for p in range(width):
                old = 2 + (b * channels + c) * width + p + kept
                new = 1 + (b * capacity + p + kept - width) * channels + c
                expected[3 + (b * channels + c) * width + p] = source[old] if p + kept < width else capture[new]
    same(got, expected)
    wrong = of("int64", [6, 12, 4, batch, channels, width, capacity, kept])
    with pytest.raises(ValueError, match="does not describe a state"):
        call("ConvStateReplay", 1, source, capture, destination, wrong, domain=MICROSOFT)


@pytest.mark.parametrize("activation", ["none", "silu", "swish"])
@pytest.mark.parametrize("dilation", [1, 3])
def test_varlen_causal_conv(activation, dilation):
    numbers = Numbers()
    x, w, starts = numbers.f32(9, 5), numbers.f32(5, 1, 3), of("int32", [0, 1, 7, 9])
    state, bias = numbers.f32(3, 5, 2 * dilation), numbers.f32(5)
    options = {"domain": MICROSOFT, "activation": activation, "dilation": dilation}
    agrees("VarlenCausalConvWithState", 1, x, w, starts, bias, state, outputs=2, **options)
    agrees("VarlenCausalConvWithState", 1, x, w, starts, None, state, outputs=2, **options)
    count = of("int32", [3, 2, -1])
    agrees(
        "VarlenCausalConvWithState", 1, x, w, starts, bias, state, count, outputs=3, state_update_capacity=4, **options
    )


def test_taps_that_differ_from_token_to_token():
    """The steps of the operator's text, each rounded to float16."""
    numbers = Numbers()
    x, w, state = (t.astype(np.float16) for t in (numbers.f32(5, 4), numbers.f32(4, 1, 2), numbers.f32(2, 4, 1)))
    delta, mask = numbers.f32(5, 3, 2).astype(np.float16), of("float16", [[0], [1], [1], [0], [0.5]])
    y, final = call(
        "VarlenCausalConvWithState", 1, x, w, of("int32", [0, 2, 5]), None, state, None, delta, mask,
        domain=MICROSOFT, outputs=2, delta_offset=1, group_size=2,
    )  # fmt: skip
    before = np.stack([state[0, :, 0], x[0], state[1, :, 0], x[2], x[3]])
    spread = np.repeat(delta, 2, axis=2)
    same(y, (w[:, 0, 1] + spread[:, 1]) * x + (w[:, 0, 0] + spread[:, 2]) * before * mask)
    same(final, np.stack([x[1], x[4]])[..., None])


@pytest.mark.parametrize(("rows", "slots", "row"), [(3, 5, 2), (3, 2, 1), (1, 1, 0), (2, 4, 7)])
def test_mamba2(rows, slots, row):
    """The recurrence of the operator's text, head by head in float64."""
    numbers = Numbers()
    heads, size, states, groups = 4, 6, 5, 2
    inner, shared = heads * size, groups * states

    def bf16(*shape):
        return numbers.f32(*shape).astype(ml_dtypes.bfloat16)

    projection, conv_state = bf16(rows, 2 * inner + 2 * shared + heads), bf16(slots, inner + 2 * shared, 3)
    ssm, weight, bias = numbers.f32(slots, heads, states, size), bf16(inner + 2 * shared, 4), bf16(inner + 2 * shared)
    dt_bias, a, d, norm = numbers.f32(heads), -np.abs(numbers.f32(heads)), numbers.f32(heads), numbers.f32(inner)
    got = call(
        "Mamba2Verify", 1, projection, conv_state, ssm, weight, bias, dt_bias, a, d, norm, of("int32", [row]),
        domain=MICROSOFT, outputs=5, heads=heads, n_groups=groups, head_dim=size, d_state=states, time_step_min=0.2,
    )  # fmt: skip
    if row >= slots:
        assert all(np.isnan(g.astype(np.float32)[: min(rows, slots)]).all() for g in got)
        same(got[2][rows:], ssm[rows:])
        return
    p = projection.astype(np.float64)
    window = list(conv_state[row].astype(np.float64).T)
    state = ssm[row].astype(np.float64)
    for t in range(rows):
        gate, xbc, dt = np.split(p[t], [inner, 2 * inner + 2 * shared])
        window = [*window[-3:], xbc]
        mixed = sum(weight[:, j].astype(np.float64) * window[j] for j in range(4)) + bias.astype(np.float64)
        mixed = mixed / (1 + np.exp(-mixed))
        np.testing.assert_allclose(got[3][t].astype(np.float64), mixed, rtol=1e-2, atol=1e-2)
        mixed = got[3][t].astype(np.float64)  # rounded to bfloat16, from which the recurrence goes on
        x, b, c = np.split(mixed, [inner, inner + shared])
        step = np.maximum(np.log1p(np.exp(dt + dt_bias)), 0.2)
        read = np.empty((heads, size))
        for h in range(heads):
            own = slice(h // 2 * states, (h // 2 + 1) * states)
            xh = x[h * size : (h + 1) * size]
            state[h] = np.exp(a[h] * step[h]) * state[h] + np.outer(b[own], step[h] * xh)
            read[h] = d[h] * xh + c[own] @ state[h]
        np.testing.assert_allclose(got[4][t], read.reshape(-1), rtol=1e-4, atol=1e-4)
        gated = (read.reshape(-1) * gate / (1 + np.exp(-gate))).reshape(groups, -1)
        y = (gated / np.sqrt((gated**2).mean(-1, keepdims=True) + 1e-5)).reshape(-1) * norm
        np.testing.assert_allclose(got[0][t].astype(np.float64), y, rtol=1e-2, atol=1e-2)
        slot = t - max(rows - slots, 0)
        if slot >= 0:
            same(got[1][slot], np.stack(window[-3:], axis=1).astype(ml_dtypes.bfloat16))
            np.testing.assert_allclose(got[2][slot], state, rtol=1e-4, atol=1e-4)
    same(got[2][rows:], ssm[rows:])


@pytest.mark.parametrize("activation", ["none", "silu"])
@pytest.mark.parametrize("dilation", [1, 3])
def test_causal_conv(activation, dilation):
    numbers = Numbers()
    x, w, bias, state = numbers.f32(2, 5, 7), numbers.f32(5, 1, 3), numbers.f32(5), numbers.f32(2, 5, 2 * dilation)
    options = {"domain": MICROSOFT, "activation": activation, "dilation": dilation, "outputs": 2}
    agrees("CausalConvWithState", 1, x, w, bias, state, **options)
    agrees("CausalConvWithState", 1, x[:, :, :1].copy(), w, bias, state, **options)
    agrees("CausalConvWithState", 1, x, w, **options)
    last = [t.swapaxes(1, 2).copy() for t in (x, state)]
    agrees("CausalConvWithState", 1, last[0], w, bias, last[1], channels_last=1, **options)
    apart, w = numbers.f32(2, 4, 3, 2), numbers.f32(6, 1, 3)
    agrees("CausalConvWithState", 1, apart, w, channels_last=1, **options)


@pytest.mark.parametrize("last", [0, 1])
def test_states_of_a_convolution_after_the_last_inputs(last):
    """Each is the state that fewer inputs leave."""
    numbers = Numbers()
    w, options = numbers.f32(3, 1, 3), {"domain": MICROSOFT, "outputs": 2, "channels_last": last}
    for length in (2, 6):
        x, states = numbers.f32(2, 3, length), numbers.f32(4, 2, 3, 2)
        if last:
            x, states = x.swapaxes(1, 2).copy(), states.swapaxes(2, 3).copy()
        y, after = call("CausalConvWithState", 1, x, w, None, states, state_window=4, **options)
        plain = call("CausalConvWithState", 1, x, w, None, states[3], **options)
        same(y, plain[0])
        for j in range(4):
            end = length - 4 + j + 1
            if end <= 0:
                assert not after[j].any()
                continue
            part = x[:, :end] if last else x[:, :, :end]
            same(after[j], call("CausalConvWithState", 1, part, w, None, states[3], **options)[1])


def test_a_part_of_the_channels():
    """The same as a convolution of that part; with a longer state, of which the end is read."""
    numbers = Numbers()
    x, w, state = numbers.f32(2, 5, 9), numbers.f32(4, 1, 3), numbers.f32(2, 4, 6)
    options = {"input_channels": 4, "input_channel_offset": 3, "state_length": 6, "state_channels_last": 0}
    y, after, first = call(
        "CausalConvWithState", 1, x, w, None, state, outputs=3, domain=MICROSOFT, channels_last=1,
        state_update_capacity=7, **options,
    )  # fmt: skip
    part = x[:, :, 3:7]
    plain = call("CausalConvWithState", 1, part.swapaxes(1, 2), w, None, state[:, :, 4:], outputs=2, domain=MICROSOFT)
    np.testing.assert_allclose(y, plain[0].swapaxes(1, 2), rtol=1e-6)
    same(after, np.concatenate([state, part.swapaxes(1, 2)], axis=2)[:, :, 5:])
    same(first, np.concatenate([part, np.zeros((2, 2, 4), np.float32)], axis=1))
    with pytest.raises(UnsupportedError, match="over 2 axes is not defined"):
        call("CausalConvWithState", 1, numbers.f32(1, 2, 3, 4), numbers.f32(2, 1, 3, 3), domain=MICROSOFT, ndim=2)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("heads", [(4, 2), (2, 4), (2, 2)])
def test_linear_attention(rule, heads):
    numbers = Numbers()
    queries, keys = heads
    q, k, v = numbers.f32(2, 5, queries * 8), numbers.f32(2, 5, keys * 8) / 3, numbers.f32(2, 5, keys * 6)
    decay = -np.abs(numbers.f32(2, 5, keys)) if "gated" in rule else None
    beta = np.abs(numbers.f32(2, 5, keys)) / 2 if "delta" in rule else None
    options = {"domain": MICROSOFT, "q_num_heads": queries, "kv_num_heads": keys, "update_rule": rule, "outputs": 2}
    state = numbers.f32(2, keys, 8, 6)
    agrees("LinearAttention", 1, q, k, v, state, decay, beta, **options)
    agrees("LinearAttention", 1, q, k, v, None, decay, beta, **options)
    plain = call("LinearAttention", 1, q, k, v, state, decay, beta, **options)
    for window in (3, 7):
        states = np.stack([state + 1] * (window - 1) + [state])
        y, after = call("LinearAttention", 1, q, k, v, states, decay, beta, state_window=window, **options)
        np.testing.assert_allclose(y, plain[0], rtol=1e-5, atol=1e-6)
        for j in range(window):
            end = 5 - window + j + 1
            if end <= 0:
                assert not after[j].any()
                continue
            parts = [None if t is None else t[:, :end] for t in (q, k, v)]
            gates = [None if t is None else t[:, :end] for t in (decay, beta)]
            expected = call("LinearAttention", 1, *parts, state, *gates, **options)[1]
            np.testing.assert_allclose(after[j], expected, rtol=1e-5, atol=1e-6)
