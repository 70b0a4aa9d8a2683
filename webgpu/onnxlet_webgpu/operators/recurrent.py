"""Recurrent layers: RNN, GRU, LSTM. Their twins are in `onnxlet.ops.rnn`.

What the inputs add to the gates is one matrix product for all time steps. The recurrence is one kernel: a workgroup
walks through the steps of one sequence in one direction, with the states in shared memory. It writes all hidden states
and the last ones to one buffer, from which the outputs are copied.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from onnxlet.ops.activation_table import parameter_defaults
from onnxlet.ops.rnn import directions

from ..kernel import WORKGROUP, Kernel, grid
from ..lowering import Lowering, Tensor, lowering
from ..wgsl import contiguous_strides, literal
from .arithmetic import whole
from .matmul import Matrix, Product, emit_product
from .movement import emit_strided

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
DEFAULTS = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}

FUNCTIONS = {
    "relu": "select(x, 0.0, x < 0.0)",
    "tanh": "hyperbolic_tangent(x)",
    "sigmoid": "sigmoid(x)",
    "affine": "{0} * x + {1}",
    "leakyrelu": "select(x, {0} * x, x < 0.0)",
    "thresholdedrelu": "select(0.0, x, x >= {0})",
    "scaledtanh": "{0} * hyperbolic_tangent({1} * x)",
    "hardsigmoid": "clip({0} * x + {1}, 0.0, 1.0)",
    "elu": "select(x, {0} * exp_minus_one(x), x < 0.0)",
    "softsign": "x / (1.0 + abs(x))",
    "softplus": "softplus(x)",
}
"""Activations by name in lower case, with their parameters as ``{0}`` and ``{1}``."""


Text = Callable[..., str]
Sum = Callable[[int, str, str], list[str]]


def _activations(n: Lowering, count: int) -> str:
    """WGSL functions ``act0``, ``act1``, ... of a number and a direction."""
    defaults = DEFAULTS[n.step.node.op_type]
    names = list(n.attribute("activations") or defaults * count)
    alphas, betas = list(n.attribute("activation_alpha") or []), list(n.attribute("activation_beta") or [])
    texts = []
    for name in names:
        name = (name.decode() if isinstance(name, bytes) else name).lower()
        if name not in FUNCTIONS:
            n.refuse(f"the activation {name} has no GPU kernel")
        values = [
            given.pop(0) if given else default
            for given, default in zip((alphas, betas), parameter_defaults(name), strict=False)
        ]
        texts.append(FUNCTIONS[name].format(*(literal(v, "f32") for v in values)))
    each = len(defaults)
    return "\n".join(
        f"fn act{'abc'[f]}(x: f32, direction: u32) -> f32 {{\n"
        + (f"    if (direction == 1u) {{ return {texts[each + f]}; }}\n" if count == 2 else "")
        + f"    return {texts[f]};\n}}"
        for f in range(each)
    )


@lowering("RNN", "GRU", "LSTM")
def recurrent(n: Lowering) -> None:
    name = n.step.node.op_type
    gates = GATES[name]
    x, w, r = n.input(0), n.input(1), n.input(2)
    layout, clip = n.attribute("layout", 0), n.attribute("clip")
    n.ignore("hidden_size", "output_sequence")
    backwards = directions(n.attribute("direction", "forward"))
    count, hidden, size = len(backwards), r.shape[2], x.shape[2]
    time, batch = (x.shape[1], x.shape[0]) if layout else x.shape[:2]
    if 4 * hidden * 4 > n.target.max_shared_bytes:
        n.refuse(f"{hidden} hidden units do not fit into the memory that a workgroup shares")

    width = count * gates * hidden
    projected = n.temporary("projected", (time * batch, width))
    product = Product(Matrix(x.value, x.size, size, 1), Matrix(w.value, w.size, 1, size), time * batch, width, size)
    emit_product(n, product, projected, n.title(x, w, note="inputs"))

    reads = [projected.binding("projected"), r.binding("r")]
    optional = {3: "bias", 5: "first_hidden", 6: "first_cell", 7: "peephole"}
    for index, binding in optional.items():
        if n.has_input(index):
            reads.append(n.input(index).binding(binding))
    length = f"{time}"
    if n.has_input(4):
        t = n.input(4, "int32", "int64")
        reads.append(t.binding("lengths"))
        length = f"clamp({whole(n, 'lengths', t, 'sequence')}, 0, {time})"
    every = (time, count, batch, hidden)
    last = count * batch * hidden
    states = 2 if name == "LSTM" else 1
    whole_size = prod(every) + states * last
    result = n.temporary("states", (whole_size,))
    body = _walk(n, name, hidden, batch, time, count, backwards, layout, width, clip, length)
    shared = ["hidden_state", "next_state", *(["cell_state"] if name == "LSTM" else [])]
    shared += ["update_gate", "reset_hidden"] if name == "GRU" else []
    declarations = "\n".join([*(f"var<workgroup> {s}: array<f32, {hidden}>;" for s in shared), _activations(n, count)])
    note = f"{time} steps of {hidden} {''.join('<' if b else '>' for b in backwards)}"
    n.emit(
        Kernel(n.title(r, note=note), reads, result.value, result.shape, "f32", body,
               grid(batch * count, n.target.max_groups), declarations=declarations)
    )  # fmt: skip
    _copy(
        n, result, 0, (prod(every[1:]), batch * hidden, hidden, 1), 0, (2, 0, 1, 3) if layout else (0, 1, 2, 3), every
    )
    for k in range(states):
        own = (count, batch, hidden)
        _copy(n, result, prod(every) + k * last, tuple(contiguous_strides(own)), k + 1,
              (1, 0, 2) if layout else (0, 1, 2), own)  # fmt: skip


def _copy(
    n: Lowering, source: Tensor, offset: int, strides: tuple[int, ...], output: int, order: tuple[int, ...],
    dims: tuple[int, ...],
) -> None:  # fmt: skip
    """Copy a part of the states to an output, with its dimensions in another order."""
    if n.has_output(output):
        out = n.output(output, "float32")
        emit_strided(n, source, out, [dims[d] for d in order], [strides[d] for d in order], offset)


def _walk(
    n: Lowering, name: str, hidden: int, batch: int, time: int, count: int, backwards: list[bool], layout: int,
    width: int, clip: float | None, length: str,
) -> str:  # fmt: skip
    """Statements of a workgroup that walks through one sequence in one direction."""
    gates = GATES[name]
    step_row = f"sequence * {time}u + u32(t)" if layout else f"u32(t) * {batch}u + sequence"
    reverse = "true" if all(backwards) else "direction == 1u" if any(backwards) else "false"
    first_state = f"sequence * {count}u + direction" if layout else f"direction * {batch}u + sequence"
    each = f"for (var j = lane; j < {hidden}u; j += {WORKGROUP}u) {{"

    def start(index: int, binding: str) -> str:
        return f"{binding}[({first_state}) * {hidden}u + j]" if n.has_input(index) else "0.0"

    def given(q: int, recurrence: bool = True) -> str:
        """What the inputs add to gate `q`, with the biases."""
        text = f"projected[row + {q * hidden}u + j]"
        if n.has_input(3):
            text += f" + bias[direction * {2 * gates * hidden}u + {q * hidden}u + j]"
            if recurrence:
                text += " + " + recurrence_bias(q)
        return text

    def recurrence_bias(q: int) -> str:
        return f"bias[direction * {2 * gates * hidden}u + {(gates + q) * hidden}u + j]" if n.has_input(3) else "0.0"

    def sum_of(q: int, state: str, into: str) -> list[str]:
        return [
            f"var {into} = 0.0;",
            f"for (var k = 0u; k < {hidden}u; k++) {{",
            f"    {into} += {state}[k] * r[((direction * {gates}u + {q}u) * {hidden}u + j) * {hidden}u + k];",
            "}",
        ]

    def clipped(text: str) -> str:
        bound = literal(clip, "f32") if clip else ""
        return f"clip({text}, -{bound}, {bound})" if clip else text

    phases = {"RNN": _rnn, "GRU": _gru, "LSTM": _lstm}[name](n, given, recurrence_bias, sum_of, clipped, hidden)
    lines = [
        "let walk = wid.x + wid.y * groups.x;",
        f"if (walk >= {batch * count}u) {{ return; }}",
        f"let direction = walk / {batch}u;",
        f"let sequence = walk % {batch}u;",
        f"let length = {length};",
        each,
        f"    hidden_state[j] = {start(5, 'first_hidden')};",
        *([f"    cell_state[j] = {start(6, 'first_cell')};"] if name == "LSTM" else []),
        "}",
        "workgroupBarrier();",
        f"for (var step = 0; step < {time}; step++) {{",
        f"    let t = select(step, select(step, length - 1 - step, step < length), {reverse});",
        f"    let row = ({step_row}) * {width}u + direction * {gates * hidden}u;",
        f"    let place = ((u32(t) * {count}u + direction) * {batch}u + sequence) * {hidden}u;",
    ]
    for phase in phases:
        lines += [
            f"    {each}",
            "        if (step < length) {",
            *("            " + t for t in phase),
            "        }",
            "    }",
        ]
        lines.append("    workgroupBarrier();")
    lines += [
        f"    {each}",
        "        if (step < length) { hidden_state[j] = next_state[j]; }",
        "        store(place + j, select(0.0, hidden_state[j], step < length));",
        "    }",
        "    workgroupBarrier();",
        "}",
        each,
        f"    let end = {time * count * batch * hidden}u + walk * {hidden}u + j;",
        "    store(end, hidden_state[j]);",
        *([f"    store(end + {count * batch * hidden}u, cell_state[j]);"] if name == "LSTM" else []),
        "}",
    ]
    return "\n".join(lines)


def _rnn(n: Lowering, given: Text, recurrence_bias: Text, sum_of: Sum, clipped: Text, hidden: int) -> list[list[str]]:
    return [[*sum_of(0, "hidden_state", "s"), f"next_state[j] = acta({clipped(f's + {given(0)}')}, direction);"]]


def _gru(n: Lowering, given: Text, recurrence_bias: Text, sum_of: Sum, clipped: Text, hidden: int) -> list[list[str]]:
    """Gates in the order update, reset, hidden."""
    gates = [
        *sum_of(0, "hidden_state", "s"),
        *sum_of(1, "hidden_state", "u"),
        f"update_gate[j] = acta({clipped(f's + {given(0)}')}, direction);",
        f"let reset = acta({clipped(f'u + {given(1)}')}, direction);",
    ]
    if n.attribute("linear_before_reset", 0):
        gates += [*sum_of(2, "hidden_state", "v"), f"reset_hidden[j] = reset * (v + {recurrence_bias(2)});"]
        last = [f"let candidate = actb({clipped(f'reset_hidden[j] + {given(2, False)}')}, direction);"]
    else:
        gates.append("reset_hidden[j] = reset * hidden_state[j];")
        last = [*sum_of(2, "reset_hidden", "v"), f"let candidate = actb({clipped(f'v + {given(2)}')}, direction);"]
    last.append("next_state[j] = (1.0 - update_gate[j]) * candidate + update_gate[j] * hidden_state[j];")
    return [gates, last]


def _lstm(n: Lowering, given: Text, recurrence_bias: Text, sum_of: Sum, clipped: Text, hidden: int) -> list[list[str]]:
    """Gates in the order input, output, forget, cell; peepholes in the order input, output, forget."""
    peephole = n.has_input(7)

    def seen(q: int, cell: str) -> str:
        return f" + peephole[direction * {3 * hidden}u + {q * hidden}u + j] * {cell}" if peephole else ""

    forget = f"acta({clipped(f'sf + {given(2)}' + seen(2, 'cell'))}, direction)"
    lines = [
        *sum_of(0, "hidden_state", "si"),
        *sum_of(1, "hidden_state", "so"),
        *sum_of(2, "hidden_state", "sf"),
        *sum_of(3, "hidden_state", "sc"),
        "let cell = cell_state[j];",
        f"let input_gate = acta({clipped(f'si + {given(0)}' + seen(0, 'cell'))}, direction);",
        f"let forget = {'1.0 - input_gate' if n.attribute('input_forget', 0) else forget};",
        f"let now = forget * cell + input_gate * actb({clipped(f'sc + {given(3)}')}, direction);",
        "cell_state[j] = now;",
        f"next_state[j] = acta({clipped(f'so + {given(1)}' + seen(1, 'now'))}, direction) * actc(now, direction);",
    ]
    return [lines]
