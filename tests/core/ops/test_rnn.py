import numpy as np
import pytest

from tests.core.ops.calling import call, same
from tests.core.ops.oracle import Numbers, agrees

DIRECTIONS = {"forward": 1, "reverse": 1, "bidirectional": 2}
LENGTHS = [None, np.array([6, 3], np.int32)]


def layer(numbers, gates, count, lengths):
    """Inputs of a layer of 3 units over 6 steps, a batch of 2 and 5 features: X, W, R, B, lengths, initial_h."""
    return [
        numbers.f32(6, 2, 5),
        numbers.f32(count, gates * 3, 5),
        numbers.f32(count, gates * 3, 3),
        numbers.f32(count, 2 * gates * 3),
        lengths,
        numbers.f32(count, 2, 3),
    ]


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("lengths", LENGTHS)
def test_lstm(direction, lengths):
    numbers, count = Numbers(), DIRECTIONS[direction]
    inputs = [*layer(numbers, 4, count, lengths), numbers.f32(count, 2, 3)]
    common = {"outputs": 3, "direction": direction, "hidden_size": 3}
    agrees("LSTM", 14, *inputs, **common)
    agrees("LSTM", 7, *inputs, numbers.f32(count, 9), clip=0.7, **common)
    agrees("LSTM", 7, *inputs, input_forget=1, **common)
    agrees(
        "LSTM", 14, *inputs, activations=["HardSigmoid", "Relu", "Softsign"] * count,
        activation_alpha=[0.3] * count, activation_beta=[0.4] * count, **common,
    )  # fmt: skip


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("linear_before_reset", [0, 1])
def test_gru(direction, lengths, linear_before_reset):
    numbers, count = Numbers(), DIRECTIONS[direction]
    inputs = layer(numbers, 3, count, lengths)
    common = {"outputs": 2, "direction": direction, "hidden_size": 3, "linear_before_reset": linear_before_reset}
    agrees("GRU", 14, *inputs, clip=0.8, **common)
    agrees("GRU", 7, *inputs, activations=["Sigmoid", "LeakyRelu"] * count, activation_alpha=[0.2] * count, **common)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("lengths", LENGTHS)
def test_rnn(direction, lengths):
    numbers, count = Numbers(), DIRECTIONS[direction]
    inputs = layer(numbers, 1, count, lengths)
    agrees("RNN", 14, *inputs, outputs=2, direction=direction, hidden_size=3)
    named = {"activations": ["Elu", "Affine"][:count], "activation_alpha": [0.5, 0.6][:count]}
    agrees("RNN", 7, *inputs, outputs=2, direction=direction, hidden_size=3, **named)


@pytest.mark.parametrize(("operator", "gates", "states"), [("RNN", 1, 1), ("GRU", 3, 1), ("LSTM", 4, 2)])
def test_layout_1_is_the_same_with_the_batch_first(operator, gates, states):
    numbers = Numbers()
    x, w, r, b, _, h = layer(numbers, gates, 2, None)
    initial = [h, numbers.f32(2, 2, 3)][:states]
    options = {"outputs": 1 + states, "direction": "bidirectional", "hidden_size": 3}
    plain = call(operator, 14, x, w, r, b, None, *initial, **options)
    swapped = [s.swapaxes(0, 1) for s in initial]
    turned = call(operator, 14, x.swapaxes(0, 1), w, r, b, None, *swapped, layout=1, **options)
    same(turned[0], plain[0].transpose(2, 0, 1, 3))
    for t, p in zip(turned[1:], plain[1:], strict=True):
        same(t, p.swapaxes(0, 1))


@pytest.mark.parametrize(("operator", "gates"), [("RNN", 1), ("GRU", 3), ("LSTM", 4)])
def test_float16_layers_compute_in_float32(operator, gates):
    numbers = Numbers()
    inputs = [v.astype(np.float16) for v in layer(numbers, gates, 1, None)[:4]]
    got = call(operator, 14, *inputs, hidden_size=3)
    exact = call(operator, 14, *[v.astype(np.float32) for v in inputs], hidden_size=3)
    same(got, exact.astype(np.float16))


def test_what_lies_beyond_a_sequence_is_zero_and_does_not_count():
    numbers = Numbers()
    x, w, r, b, _, _ = layer(numbers, 4, 1, None)
    lengths = np.array([4, 0], np.int32)
    y, last, _ = call("LSTM", 14, x, w, r, b, lengths, outputs=3, hidden_size=3)
    short = call("LSTM", 14, x[:4, :1], w, r, b, hidden_size=3)
    same(y[:4, :, :1], short)
    assert not y[4:].any()
    assert not y[:, :, 1].any()
    same(last[0, 0], short[3, 0, 0])
    assert not last[0, 1].any()


def test_wrong_arguments_are_named():
    numbers = Numbers()
    x, w, r, *_ = layer(numbers, 4, 1, None)
    with pytest.raises(ValueError, match="direction is 'both'"):
        call("LSTM", 14, x, w, r, direction="both")
    with pytest.raises(ValueError, match="needs 2 set"):
        call("LSTM", 14, x, w, r, direction="bidirectional")
    with pytest.raises(ValueError, match="sequence_lens"):
        call("LSTM", 14, x, w, r, None, np.array([7, 1], np.int32))
    with pytest.raises(ValueError, match="activation 'Swich' is unknown"):
        call("LSTM", 14, x, w, r, activations=["Swich", "Tanh", "Tanh"])


def test_without_elements_no_step_is_taken():
    x = np.zeros((10**8, 0, 5), np.float32)
    y = call("RNN", 14, x, np.zeros((1, 3, 5), np.float32), np.zeros((1, 3, 3), np.float32))
    assert y.shape == (10**8, 1, 0, 3)
