"""Recurrent layers: RNN, GRU, LSTM."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from .activation_table import Activation, consume
from .common import to_float32
from .precision import narrow
from .registry import op

State = tuple[np.ndarray, ...]
Step = Callable[[np.ndarray, State], State]
"""One time step: what the input contributes (batch, gates * hidden) and the states before, to the states after.
The first state is the hidden one."""


def directions(direction: str) -> list[bool]:
    """For each direction that the attribute names, whether it runs backwards in time."""
    # GRU-1 spells its default "foward".
    known = {"forward": [False], "foward": [False], "reverse": [True], "bidirectional": [False, True]}
    if direction not in known:
        raise ValueError(f"direction is {direction!r}; forward, reverse and bidirectional are known")
    return known[direction]


def run_steps(
    step: Step, inputs: np.ndarray, states: State, lengths: np.ndarray | None, backwards: bool
) -> tuple[np.ndarray, State]:
    """Run `step` over inputs (time, batch, features), each sequence to its own length.

    Returns the hidden state at every time (time, batch, hidden), zero after a sequence's end, and the states at
    each sequence's last step.
    """
    time, batch = inputs.shape[:2]
    order = None
    if backwards:
        # Each sequence is turned around within its own length.
        t = np.arange(time)[:, None]
        n = np.full(batch, time) if lengths is None else lengths
        order = (np.where(t < n, n - 1 - t, t), np.arange(batch))
        inputs = inputs[order]
    outputs = np.zeros((time, *states[0].shape), states[0].dtype)
    for t in range(time if outputs.size else 0):
        new = step(inputs[t], states)
        if lengths is None:
            states = new
            outputs[t] = new[0]
        else:
            alive = (t < lengths)[:, None]
            states = tuple(np.where(alive, after, before) for after, before in zip(new, states, strict=True))
            outputs[t] = np.where(alive, new[0], 0)
    return (outputs if order is None else outputs[order]), states


def recurrent(
    make_step: Callable[[int], Step],
    contribution: Callable[[int, np.ndarray], np.ndarray],
    x: np.ndarray,
    input_bias: np.ndarray | None,
    sequence_lens: np.ndarray | None,
    initial: Sequence[np.ndarray | None],
    hidden: int,
    direction: str,
    layout: int,
) -> tuple[np.ndarray, ...]:
    """Run a recurrent layer in its direction or both.

    ``contribution(d, x)`` is what the inputs, all at once, add to the gates of direction d: (time, batch, gates *
    hidden). `input_bias` is (directions, gates * hidden). Returns all hidden states and then each state at the end, in
    the axes' order that `layout` asks for.
    """
    if layout:
        x = x.swapaxes(0, 1)
        initial = [None if s is None else s.swapaxes(0, 1) for s in initial]
    backwards = directions(direction)
    time, batch, _ = x.shape
    lengths = None
    if sequence_lens is not None and (np.asarray(sequence_lens) != time).any():
        lengths = np.asarray(sequence_lens).astype(np.int64)
        if lengths.shape != (batch,) or lengths.min() < 0 or lengths.max() > time:
            raise ValueError(f"sequence_lens {lengths.tolist()} must be {batch} lengths from 0 to {time}")
    outputs, ends = [], []
    for d, reverse in enumerate(backwards):
        inputs = contribution(d, x)
        if input_bias is not None:
            inputs = inputs + input_bias[d]
        states = tuple(np.zeros((batch, hidden), x.dtype) if s is None else s[d] for s in initial)
        out, end = run_steps(make_step(d), inputs, states, lengths, reverse)
        outputs.append(out)
        ends.append(end)
    y = np.stack(outputs, axis=1)  # (time, directions, batch, hidden)
    lasts = [np.stack([end[i] for end in ends]) for i in range(len(initial))]
    if layout:
        y = y.transpose(2, 0, 1, 3)
        lasts = [s.swapaxes(0, 1) for s in lasts]
    return (y, *lasts)


def weighted_inputs(w: np.ndarray, direction: str) -> Callable[[int, np.ndarray], np.ndarray]:
    """What inputs contribute through weights (directions, gates * hidden, input size)."""
    if w.shape[0] != len(directions(direction)):
        raise ValueError(
            f"direction {direction} needs {len(directions(direction))} set(s) of weights, not {w.shape[0]}"
        )
    return lambda d, x: np.matmul(x, w[d].T)


def clipper(clip: float | None) -> Activation:
    """Clipping of what goes into the gates' activations; an LSTM's cell is not clipped on its way out."""
    if clip is None or clip == 0:
        return lambda x: x
    return lambda x: np.clip(x, -clip, clip)


def activations_of(
    given: Sequence[str] | None,
    defaults: Sequence[str],
    alphas: Sequence[float] | None,
    betas: Sequence[float] | None,
    direction: str,
) -> list[list[Activation]]:
    """The activation functions of each direction."""
    count = len(directions(direction))
    names = list(given) if given else list(defaults) * count
    if len(names) < len(defaults) * count:
        raise ValueError(f"activations {names} must be {len(defaults) * count} for direction {direction}")
    functions = consume(names, alphas or (), betas or ())
    return [functions[i * len(defaults) : (i + 1) * len(defaults)] for i in range(count)]


def split_bias(b: np.ndarray | None) -> tuple[np.ndarray | None, np.ndarray | None]:
    """The input's and the recurrence's bias of (directions, 2 * gates * hidden)."""
    if b is None:
        return None, None
    half = b.shape[1] // 2
    return b[:, :half], b[:, half:]


@op("RNN")
def rnn(
    x: np.ndarray,
    w: np.ndarray,
    r: np.ndarray,
    b: np.ndarray | None = None,
    sequence_lens: np.ndarray | None = None,
    initial_h: np.ndarray | None = None,
    *,
    hidden_size: int | None = None,
    direction: str = "forward",
    activations: Sequence[str] | None = None,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    clip: float | None = None,
    layout: int = 0,
    output_sequence: int = 0,
):
    dtype = x.dtype
    x, w, r, b, initial_h = (to_float32(v) for v in (x, w, r, b, initial_h))
    functions = activations_of(activations, ["Tanh"], activation_alpha, activation_beta, direction)
    clipped = clipper(clip)
    input_bias, recurrence_bias = split_bias(b)
    bias = None if input_bias is None else input_bias + recurrence_bias

    def make_step(d: int) -> Step:
        weights = r[d].T
        (f,) = functions[d]

        def step(inputs: np.ndarray, states: State) -> State:
            return (f(clipped(inputs + states[0] @ weights)),)

        return step

    results = recurrent(
        make_step, weighted_inputs(w, direction), x, bias, sequence_lens, [initial_h], r.shape[-1], direction, layout
    )
    return tuple(narrow(y, dtype) for y in results)


@op("GRU")
def gru(
    x: np.ndarray,
    w: np.ndarray,
    r: np.ndarray,
    b: np.ndarray | None = None,
    sequence_lens: np.ndarray | None = None,
    initial_h: np.ndarray | None = None,
    *,
    hidden_size: int | None = None,
    direction: str = "forward",
    activations: Sequence[str] | None = None,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    clip: float | None = None,
    linear_before_reset: int = 0,
    layout: int = 0,
    output_sequence: int = 0,
):
    """Gates are in the order update, reset, hidden."""
    dtype = x.dtype
    x, w, r, b, initial_h = (to_float32(v) for v in (x, w, r, b, initial_h))
    hidden = r.shape[-1]
    functions = activations_of(activations, ["Sigmoid", "Tanh"], activation_alpha, activation_beta, direction)
    clipped = clipper(clip)
    input_bias, recurrence_bias = split_bias(b)

    def make_step(d: int) -> Step:
        weights = r[d].T
        gate_weights, hidden_weights = weights[:, : 2 * hidden], weights[:, 2 * hidden :]
        bias = np.zeros(3 * hidden, x.dtype) if recurrence_bias is None else recurrence_bias[d]
        gate_bias, hidden_bias = bias[: 2 * hidden], bias[2 * hidden :]
        f, g = functions[d]

        def step(inputs: np.ndarray, states: State) -> State:
            (before,) = states
            gates = f(clipped(inputs[:, : 2 * hidden] + before @ gate_weights + gate_bias))
            update, reset = gates[:, :hidden], gates[:, hidden:]
            if linear_before_reset:
                recurrence = reset * (before @ hidden_weights + hidden_bias)
            else:
                recurrence = (reset * before) @ hidden_weights + hidden_bias
            candidate = g(clipped(inputs[:, 2 * hidden :] + recurrence))
            return ((1 - update) * candidate + update * before,)

        return step

    results = recurrent(
        make_step, weighted_inputs(w, direction), x, input_bias, sequence_lens, [initial_h], hidden, direction, layout
    )
    return tuple(narrow(y, dtype) for y in results)


def lstm_step(
    recurrence: Callable[[np.ndarray], np.ndarray],
    functions: Sequence[Activation],
    peephole: np.ndarray | None,
    clip: float | None,
    input_forget: int,
) -> Step:
    """A step of an LSTM, whose gates are in the order input, output, forget, cell.

    `recurrence` is what the hidden state adds to the gates; `peephole` holds weights for input, output and forget.
    """
    f, g, h = functions
    clipped = clipper(clip)

    def step(inputs: np.ndarray, states: State) -> State:
        before, cell = states
        i, o, forget, c = np.split(inputs + recurrence(before), 4, axis=1)
        if peephole is not None:
            weights_i, weights_o, weights_f = np.split(peephole, 3)
            i, forget = i + weights_i * cell, forget + weights_f * cell
        i = f(clipped(i))
        forget = 1 - i if input_forget else f(clipped(forget))
        cell = forget * cell + i * g(clipped(c))
        if peephole is not None:
            o = o + weights_o * cell
        return f(clipped(o)) * h(cell), cell

    return step


@op("LSTM")
def lstm(
    x: np.ndarray,
    w: np.ndarray,
    r: np.ndarray,
    b: np.ndarray | None = None,
    sequence_lens: np.ndarray | None = None,
    initial_h: np.ndarray | None = None,
    initial_c: np.ndarray | None = None,
    p: np.ndarray | None = None,
    *,
    hidden_size: int | None = None,
    direction: str = "forward",
    activations: Sequence[str] | None = None,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    clip: float | None = None,
    input_forget: int = 0,
    layout: int = 0,
    output_sequence: int = 0,
):
    dtype = x.dtype
    x, w, r, b, initial_h, initial_c, p = (to_float32(v) for v in (x, w, r, b, initial_h, initial_c, p))
    functions = activations_of(activations, ["Sigmoid", "Tanh", "Tanh"], activation_alpha, activation_beta, direction)
    input_bias, recurrence_bias = split_bias(b)
    bias = None if input_bias is None else input_bias + recurrence_bias

    def make_step(d: int) -> Step:
        weights = r[d].T
        return lstm_step(lambda h: h @ weights, functions[d], None if p is None else p[d], clip, input_forget)

    results = recurrent(
        make_step, weighted_inputs(w, direction), x, bias, sequence_lens, [initial_h, initial_c], r.shape[-1],
        direction, layout,
    )  # fmt: skip
    return tuple(narrow(y, dtype) for y in results)
