"""Operators that run sub-graphs: If, Loop, Scan, SequenceMap.

They are generators: a body's outputs are awaited with ``yield from body(...)``.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any

import numpy as np

from ..errors import LimitError
from ..graph.ir import TensorType, Type
from ..limits import DEFAULT, Limits
from .common import zeros
from .registry import op

Body = Callable[..., Generator[Any, Any, Sequence[Any]]]
Results = Generator[Any, Any, tuple[Any, ...]]


def condition(value: Any, what: str) -> bool:
    """The truth of a boolean tensor with one element."""
    array = np.asarray(value)
    if array.size != 1:
        raise ValueError(f"{what} must have one element, but has shape {list(array.shape)}")
    return bool(array.reshape(()))


def stacked(parts: Sequence[np.ndarray], declared: Type | None, axis: int = 0) -> np.ndarray:
    """A scan output: what the iterations gave, along a new axis.

    Without any iteration it is empty, of the type that the body declares for an element; dimensions that the body
    leaves open are 0.
    """
    if not parts:
        known = declared if isinstance(declared, TensorType) else TensorType(None, None)
        shape = [d if isinstance(d, int) else 0 for d in known.shape or ()]
        shape.insert(axis if axis >= 0 else len(shape) + 1 + axis, 0)
        return zeros(shape, np.dtype(np.float32) if known.dtype is None else known.dtype)
    shapes = {p.shape for p in parts}
    if len(shapes) > 1:
        raise ValueError(f"a scan output changes its shape between iterations: {sorted(shapes)[:4]}")
    return np.stack(parts, axis=axis)


def type_at(types: Sequence[Type | None], i: int) -> Type | None:
    return types[i] if i < len(types) else None


@op("If")
def if_(cond: np.ndarray, *, then_branch: Body, else_branch: Body) -> Results:
    outputs = yield from (then_branch if condition(cond, "the condition") else else_branch)()
    return tuple(outputs)


@op("Loop")
def loop(
    m: np.ndarray | None = None,
    cond: np.ndarray | None = None,
    *initial: Any,
    body: Body,
    n_outputs: int,
    body_types: Sequence[Type | None],
    limits: Limits = DEFAULT,
) -> Results:
    """Runs the body `m` times, or while `cond`; returns the carried values and the stacked scan outputs."""
    trips = None if m is None else int(np.asarray(m).reshape(-1)[0])
    going = True if cond is None else condition(cond, "the condition")
    carried = list(initial)
    scans: list[list[np.ndarray]] = []
    i = 0
    while going and (trips is None or i < trips):
        if i >= limits.loop_iterations:
            raise LimitError(
                f"Loop still goes on after {limits.loop_iterations} iterations (SessionOptions.limits.loop_iterations)"
            )
        again, *values = yield from body(np.array(i, np.int64), np.array(going), *carried)
        carried = values[: len(initial)]
        if i == 0:
            scans = [[] for _ in values[len(initial) :]]
        for collected, value in zip(scans, values[len(initial) :], strict=True):
            collected.append(value)
        if cond is not None:
            going = condition(again, "the condition that the body gives")
        i += 1
    if i == 0:
        scans = [[] for _ in range(n_outputs - len(initial))]
    stacks = [stacked(parts, type_at(body_types, 1 + len(initial) + k)) for k, parts in enumerate(scans)]
    return (*carried, *stacks)


def scan_lengths(scanned: Sequence[np.ndarray], axes: Sequence[int]) -> int:
    """The number of iterations that the scan inputs, along their axes, give: all the same."""
    lengths = {x.shape[a] for x, a in zip(scanned, axes, strict=True)}
    if len(lengths) != 1:
        raise ValueError(f"scan inputs have different lengths along their scan axes: {sorted(lengths)}")
    return lengths.pop()


def run_scan(
    body: Body,
    states: list[Any],
    scanned: Sequence[np.ndarray],
    axes: Sequence[int],
    reverse: Sequence[int],
    trips: int,
    limits: Limits,
) -> Generator[Any, Any, tuple[list[Any], list[list[np.ndarray]]]]:
    """The states at the end, and what each scan output got at each iteration."""
    if trips > limits.loop_iterations:
        raise LimitError(
            f"Scan goes over {trips} elements; the limit is {limits.loop_iterations} "
            "(SessionOptions.limits.loop_iterations)"
        )
    collected: list[list[np.ndarray]] = []
    for t in range(trips):
        elements = [
            x[(slice(None),) * a + (trips - 1 - t if back else t,)]
            for x, a, back in zip(scanned, axes, reverse, strict=True)
        ]
        values = yield from body(*states, *map(np.asarray, elements))
        if t == 0:
            collected = [[] for _ in values[len(states) :]]
        for parts, value in zip(collected, values[len(states) :], strict=True):
            parts.append(value)
        states = list(values[: len(states)])
    return states, collected


@op("Scan", since=8)
def scan_8(
    sequence_lens: np.ndarray | None = None,
    *inputs: np.ndarray,
    body: Body,
    num_scan_inputs: int,
    directions: Sequence[int] | None = None,
    n_outputs: int,
    body_types: Sequence[Type | None],
    limits: Limits = DEFAULT,
) -> Results:
    """Axis 0 of all inputs is a batch, whose members are scanned along axis 1, each to its own length."""
    n_states = len(inputs) - num_scan_inputs
    states, scanned = inputs[:n_states], inputs[n_states:]
    longest = scan_lengths(scanned, [1] * num_scan_inputs)
    batch = scanned[0].shape[0]
    lengths = [longest] * batch if sequence_lens is None else [int(n) for n in sequence_lens]
    if len(lengths) != batch or any(not 0 <= n <= longest for n in lengths):
        raise ValueError(f"sequence_lens {lengths} must be {batch} lengths from 0 to {longest}")
    reverse = directions or [0] * num_scan_inputs
    ends: list[list[np.ndarray]] = []
    outputs: list[list[list[np.ndarray]]] = []
    for b, length in enumerate(lengths):
        end, collected = yield from run_scan(
            body,
            [s[b] for s in states],
            [x[b, :length] for x in scanned],
            [0] * num_scan_inputs,
            reverse,
            length,
            limits,
        )
        ends.append(end)
        outputs.append(collected)
    results: list[np.ndarray] = [np.stack([np.asarray(end[i]) for end in ends]) for i in range(n_states)]
    for k in range(n_outputs - n_states):
        rows = []
        for collected in outputs:
            parts = collected[k] if collected else []
            row = stacked(parts, type_at(body_types, n_states + k))
            if len(parts) < longest:  # beyond a sequence's end there is zero
                element = next((c[k][0].shape for c in outputs if c), row.shape[1:])
                filled = zeros((longest, *element), row.dtype)
                if parts:
                    filled[: len(parts)] = row
                row = filled
            rows.append(row)
        results.append(np.stack(rows))
    return tuple(results)


@op("Scan", since=9)
def scan_9(
    *inputs: np.ndarray,
    body: Body,
    num_scan_inputs: int,
    scan_input_axes: Sequence[int] | None = None,
    scan_input_directions: Sequence[int] | None = None,
    scan_output_axes: Sequence[int] | None = None,
    scan_output_directions: Sequence[int] | None = None,
    n_outputs: int,
    body_types: Sequence[Type | None],
    limits: Limits = DEFAULT,
) -> Results:
    n_states = len(inputs) - num_scan_inputs
    if num_scan_inputs < 1 or n_states < 0:
        raise ValueError(f"num_scan_inputs is {num_scan_inputs}, of {len(inputs)} inputs")
    states, scanned = list(inputs[:n_states]), inputs[n_states:]
    axes = [a % x.ndim for a, x in zip(scan_input_axes or [0] * num_scan_inputs, scanned, strict=True)]
    reverse = scan_input_directions or [0] * num_scan_inputs
    states, collected = yield from run_scan(body, states, scanned, axes, reverse, scan_lengths(scanned, axes), limits)
    collected = collected or [[] for _ in range(n_outputs - n_states)]
    output_axes = scan_output_axes or [0] * len(collected)
    output_reverse = scan_output_directions or [0] * len(collected)
    outputs = [
        stacked(parts[::-1] if back else parts, type_at(body_types, n_states + k), axis)
        for k, (parts, axis, back) in enumerate(zip(collected, output_axes, output_reverse, strict=True))
    ]
    return (*states, *outputs)


@op("SequenceMap", since=17)
def sequence_map(input_sequence: list[Any], *additional: Any, body: Body, n_outputs: int) -> Results:
    """Maps the body over a sequence; other sequences go along element by element, tensors are given whole."""
    for extra in additional:
        if isinstance(extra, list) and len(extra) != len(input_sequence):
            raise ValueError(f"sequences have different lengths: {len(input_sequence)} and {len(extra)}")
    outputs: list[list[Any]] = [[] for _ in range(n_outputs)]
    for i, element in enumerate(input_sequence):
        values = yield from body(element, *(x[i] if isinstance(x, list) else x for x in additional))
        for collected, value in zip(outputs, values, strict=False):
            collected.append(value)
    return tuple(outputs)
