"""More of what random graphs are made of: bodies that take values from around them, sequences, optionals, and the
standard's own cases, each as a node among others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx
from onnx import helper

from tests.conformance.suite import Case

from . import (
    layers,  # noqa: F401  (adds templates)
    victim,
)
from .graphs import BOOL, F32, VERSIONS, Builder, Unfit, captured, loose_type
from .templates import TEMPLATES, template

SIMPLE = 12
"""Attempts to add something to a body."""


def grow(b: Builder, templates: Sequence[Callable[[Builder], object]], attempts: int) -> None:
    """Add what fits of so many templates drawn."""
    for _ in range(attempts):
        before = len(b.nodes)
        try:
            b.rng.choice(templates)(b)
        except Unfit:
            # What a pattern added before it found no place may stay: it is valid.
            assert len(b.nodes) >= before


def _results(b: Builder) -> list[str]:
    """Tensors that the nodes of a body made."""
    return [n for node in b.nodes for n in node.output if isinstance(b.values.get(n), np.ndarray)]


@template(3)
def if_(b: Builder) -> str:
    """Both branches give a value of one type, of shapes that may differ."""
    condition = b.pick(lambda v: v.dtype == BOOL and v.size == 1, lambda: b.fresh(BOOL, ()))
    bodies = []
    wanted = None
    for branch in ("then", "else"):
        inner = Builder(b.rng, b.opset, b)
        grow(inner, TEMPLATES, b.rng.choice((1, 2, 4)))
        found = [n for n in _results(inner) if wanted is None or inner.values[n].dtype == wanted]
        if found:
            output = found[-1]
        else:
            source = inner.pick(lambda v: v.dtype == (F32 if wanted is None else wanted))  # noqa: B023
            output = inner.add("Identity", [source])
        wanted = inner.values[output].dtype
        bodies.append(inner.body(branch, [output]))
    name = b.name()
    b.keep(helper.make_node("If", [condition], [name], then_branch=bodies[0], else_branch=bodies[1]))
    return name


@template(3)
def loop(b: Builder) -> str:
    """One value carried, of any shape, and one collected; the bound and the condition may come from anywhere."""
    x = b.floats(0, 4)
    inner = Builder(b.rng, b.opset, b)
    iteration, condition, state = b.name(), b.name(), b.name()
    inner.values |= {iteration: np.array(0), condition: np.array(True), state: b.values[x]}
    inner.near |= {state}
    grow(inner, TEMPLATES, b.rng.choice((1, 2)))
    step = inner.partner(state)
    if (
        inner.values[step].ndim > b.values[x].ndim
        or np.broadcast_shapes(inner.values[step].shape, b.values[x].shape) != b.values[x].shape
    ):
        step = state
    carried = inner.add(b.rng.choice(["Add", "Max", "Sub"]), [state, step])
    carried = inner.add(b.rng.choice(["Tanh", "Sigmoid", "Relu"]), [carried])
    goes_on = inner.add("Identity", [condition])
    if b.chance(0.3):
        goes_on = inner.add("Less", [iteration, inner.constant(b.rng.randrange(3))]) if b.opset >= 9 else goes_on
    collected = inner.add("Identity", [b.rng.choice([carried, state])])
    inputs = [
        helper.make_value_info(iteration, loose_type(np.array(0))),
        helper.make_value_info(condition, loose_type(np.array(True))),
        helper.make_value_info(state, loose_type(b.values[x])),
    ]
    body = inner.body("body", [goes_on, carried, collected], inputs)
    bound = "" if b.chance(0.0) else b.setting(b.rng.choice((0, 1, 2, 3)))
    first = "" if b.chance(0.6) else b.fresh(BOOL, ())
    names = [b.name(), b.name()]
    b.keep(helper.make_node("Loop", [bound, first, x], names, body=body))
    return names[0]


@template(2)
def scan(b: Builder) -> str:
    """A sum that runs along an axis, in either direction."""
    if b.opset < 9:  # it had another form
        raise Unfit
    x = b.floats(1, 4)
    a = b.values[x]
    axis = b.rng.randrange(a.ndim)
    if not 0 < a.shape[axis] < victim.LIMITS.loop_iterations:
        raise Unfit
    slice_ = np.take(a, 0, axis)
    state = b.fresh(a.dtype, slice_.shape)
    inner = Builder(b.rng, b.opset, b)
    carried, element = b.name(), b.name()
    inner.values |= {carried: b.values[state], element: slice_}
    inner.near |= {carried, element}
    following = inner.add("Tanh" if a.dtype == F32 else "Identity", [inner.add("Add", [carried, element])])
    collected = inner.add("Mul", [following, element])
    infos = [helper.make_value_info(n, loose_type(slice_)) for n in (carried, element)]
    body = inner.body("body", [following, collected], infos)
    names = [b.name(), b.name()]
    b.keep(
        helper.make_node(
            "Scan", [state, x], names, body=body, num_scan_inputs=1, scan_input_axes=[axis],
            scan_input_directions=[b.rng.randrange(2)], scan_output_axes=[b.rng.randrange(slice_.ndim + 1)],
            scan_output_directions=[b.rng.randrange(2)],
        )
    )  # fmt: skip
    return names[1]


@template(2)
def sequence(b: Builder) -> str:
    x = b.floats(1, 3)
    a = b.values[x]
    parts = [x, b.fresh(a.dtype, a.shape), b.fresh(a.dtype, a.shape)]
    made = b.add("SequenceConstruct", parts)
    if b.chance(0.3):
        made = b.add("SplitToSequence", [x], axis=b.rng.randrange(a.ndim))
    if not b.values[made]:
        raise Unfit
    if b.chance(0.4):
        made = b.add("SequenceInsert", [made, x, *([b.setting(0)] if b.chance(0.5) else [])])
    if b.chance(0.3) and len(b.values[made]) > 1:
        made = b.add("SequenceErase", [made, b.setting(0)])
    kind = b.rng.randrange(3)
    if kind == 0:
        return b.add("SequenceAt", [made, b.setting(b.rng.choice((0, -1)))])
    if kind == 1:
        return b.add("SequenceLength", [made])
    return b.add("ConcatFromSequence", [made], axis=b.rng.choice((0, -1)))


@template()
def optional(b: Builder) -> str:
    if b.opset < 18:
        raise Unfit
    x = b.floats()
    made = b.name()
    b.keep(helper.make_node("Optional", [x], [made]))
    if b.chance(0.3):
        return b.add("OptionalHasElement", [made])
    return b.add("OptionalGetElement", [made])


def from_cases(cases: Sequence[Case]) -> Callable[[Builder], None]:
    """A template that adds one of these cases, its operands being inputs, constants, or values that are there."""
    drawn = ("bernoulli", "dropout", "random", "multinomial", "sampling")
    proper = [c for c in cases if c.sets and not any(word in c.name.lower() for word in drawn)]

    def case(b: Builder) -> None:
        chosen = b.rng.choice(proper)
        model = onnx.load_model_from_string(chosen.model)
        opsets = {o.domain: o.version for o in model.opset_import}
        if model.functions or len(model.graph.node) != 1:
            raise Unfit
        node = model.graph.node[0]
        if node.domain and opsets[node.domain] != VERSIONS.get(node.domain, 1):
            raise Unfit
        if not node.domain and not _same_version(node, opsets.get("", b.opset), b.opset):
            raise Unfit
        if any(a.type == onnx.AttributeProto.GRAPH for a in node.attribute) and opsets.get("") != b.opset:
            raise Unfit
        names = {"": ""}
        given = dict(zip([i.name for i in model.graph.input], chosen.sets[0][0], strict=False))
        for name in [n for n in node.input if n]:
            value = given.get(name)
            if not isinstance(value, np.ndarray):
                raise Unfit
            names[name] = b.pick(
                lambda v: v.dtype == value.dtype == F32 and v.shape == value.shape,  # noqa: B023
                lambda: b.feed(value) if b.chance(0.5) else b.constant(value),  # noqa: B023
            )
        for name in captured(node):
            if name not in names:
                raise Unfit
        made = onnx.NodeProto()
        made.CopyFrom(node)
        made.input[:] = [names[n] for n in node.input]
        made.output[:] = [b.name() if n else "" for n in node.output]
        b.keep(made)

    return case


def _same_version(node: onnx.NodeProto, one: int, other: int) -> bool:
    try:
        versions = [onnx.defs.get_schema(node.op_type, opset, "").since_version for opset in (one, other)]
    except onnx.defs.SchemaError:
        raise Unfit from None
    return versions[0] == versions[1]
