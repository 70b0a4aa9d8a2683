"""The operator Gradient (ai.onnx.preview.training), which names tensors of its own graph, as nodes that compute it.

Reverse-mode differentiation: the nodes between the independent variables and `y` are repeated on the values that
Gradient is given, then gone through from the last to the first, each by its rule. As the result is nodes again, a
Gradient of a Gradient's output works too. Rules are written for today's opset, whatever the model's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import ModelError, UnsupportedError
from .ir import Graph, Node

DOMAIN = "ai.onnx.preview.training"
OPSET = 22
OWN = "onnxlet"
"""The domain of a few operators that rules need and ONNX does not have (`ops/gradient.py`)."""


def expand_gradients(graph: Graph) -> None:
    """Replace the Gradient nodes of a graph. Raises `UnsupportedError` where an operator has no rule."""
    taken = {*graph.inputs, *graph.defaults, *graph.initializers, *(o for n in graph.nodes for o in n.outputs)}
    done: list[Node] = []
    for node in graph.nodes:
        if node.op_type == "Gradient" and node.domain == DOMAIN:
            done += _Tape(node, done, taken).nodes
        else:
            done.append(node)
    graph.nodes = done


class _Tape:
    """The nodes that take the place of one Gradient node."""

    def __init__(self, gradient: Node, before: Sequence[Node], taken: set[str]):
        self.prefix = gradient.label
        self.taken = taken
        self.nodes: list[Node] = []
        xs: list[str] = gradient.attributes["xs"]
        variables = [*xs, *gradient.attributes.get("zs", [])]
        if len(variables) != len(gradient.inputs):
            raise ModelError(f"node {self.prefix!r}: {len(gradient.inputs)} inputs for {len(variables)} variables")
        names = dict(zip(variables, gradient.inputs, strict=True))
        target = gradient.attributes["y"]
        forward = [self._repeat(node, names) for node in _between(variables, target, before)]
        if target not in names:
            raise ModelError(f"node {self.prefix!r}: no node before it computes {target!r}")
        end = names[target]
        sums = {end: self("FullLike", end, domain=OWN, value=1.0)}
        for node in reversed(forward):
            self._step_back(node, sums)
        for variable, output in zip(xs, gradient.outputs, strict=False):
            if output:
                value = names[variable]
                slope = self._or_zero(value, sums.get(value))
                self.nodes.append(Node("Identity", [slope], [output], version=OPSET, name=f"{self.prefix}/{variable}"))

    def __call__(self, op_type: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """Add a node with one output and return the output's name."""
        output = self._fresh(op_type)
        version = OPSET if domain == "" else 1
        self.nodes.append(Node(op_type, list(inputs), [output], attributes, domain, version, output))
        return output

    def _or_zero(self, value: str, slope: str | None) -> str:
        return slope or self.constant(value, 0.0)

    def constant(self, like: str, value: float) -> str:
        """A number as a tensor of the type and shape of another."""
        return self("FullLike", like, domain=OWN, value=value)

    def _fresh(self, what: str) -> str:
        i = 0
        while (name := f"{self.prefix}/{what}_{i}") in self.taken:
            i += 1
        self.taken.add(name)
        return name

    def _repeat(self, node: Node, names: dict[str, str]) -> Node:
        inputs = [names.get(i, i) for i in node.inputs]
        # Parts that nobody uses have their places too.
        outputs = [self._fresh(node.op_type) if o or node.op_type == "Split" else "" for o in node.outputs]
        names.update((old, new) for old, new in zip(node.outputs, outputs, strict=True) if old)
        again = Node(
            node.op_type, inputs, outputs, dict(node.attributes), node.domain, node.version, self._fresh("node")
        )
        self.nodes.append(again)
        return again

    def _step_back(self, node: Node, sums: dict[str, str]) -> None:
        slopes = [sums.get(o) if o else None for o in node.outputs]
        if not any(slopes):
            return
        rule = _RULES.get((node.domain, node.op_type))
        if rule is None:
            raise UnsupportedError(f"node {self.prefix!r}: Gradient has no rule for {node.operator}")
        if node.op_type == "Split":
            first = self("Concat", *map(self._or_zero, node.outputs, slopes), axis=node.attributes.get("axis", 0))
        elif any(slopes[1:]):
            raise UnsupportedError(f"node {self.prefix!r}: Gradient has no rule for all the outputs of {node.operator}")
        else:
            first = str(slopes[0])
        for name, part in zip(node.inputs, rule(self, node, first), strict=False):
            if name and part:
                sums[name] = self("Add", sums[name], part) if name in sums else part


def _between(variables: Sequence[str], target: str, nodes: Sequence[Node]) -> list[Node]:
    """The nodes on which `target` depends and which depend on one of `variables`, in their order."""
    reached = set(variables)
    forward = []
    for node in nodes:
        if not reached.isdisjoint(node.inputs) and reached.isdisjoint(node.outputs):
            reached.update(o for o in node.outputs if o)
            forward.append(node)
    needed = {target}
    chosen = []
    for node in reversed(forward):
        if not needed.isdisjoint(node.outputs):
            needed.update(node.inputs)
            chosen.append(node)
    return chosen[::-1]


Rule = Callable[[_Tape, Node, str], Sequence[str | None]]
"""Gets a node and the derivative by its first output (by all those of Split, put together), and returns those by its
inputs (`None`: not differentiable)."""

_RULES: dict[tuple[str, str], Rule] = {}


def _rule(*names: str, domain: str = "") -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        _RULES.update(((domain, name), rule) for name in names)
        return rule

    return register


_SLOPES: dict[str, Callable[[_Tape, str, str], str]] = {
    "Neg": lambda t, x, y: t.constant(x, -1.0),
    "Exp": lambda t, x, y: y,
    "Log": lambda t, x, y: t("Reciprocal", x),
    "Sqrt": lambda t, x, y: t("Div", t.constant(x, 0.5), y),
    "Abs": lambda t, x, y: t("Sign", x),
    "Sin": lambda t, x, y: t("Cos", x),
    "Cos": lambda t, x, y: t("Neg", t("Sin", x)),
    "Tanh": lambda t, x, y: t("Sub", t.constant(y, 1.0), t("Mul", y, y)),
    "Sigmoid": lambda t, x, y: t("Mul", y, t("Sub", t.constant(y, 1.0), y)),
    "Softplus": lambda t, x, y: t("Sigmoid", x),
    "Reciprocal": lambda t, x, y: t("Neg", t("Mul", y, y)),
    "Relu": lambda t, x, y: t("CastLike", t("Greater", x, t.constant(x, 0.0)), x),
    "Tan": lambda t, x, y: t("Add", t.constant(y, 1.0), t("Mul", y, y)),
    "Atan": lambda t, x, y: t("Reciprocal", t("Add", t.constant(x, 1.0), t("Mul", x, x))),
    "Asin": lambda t, x, y: t("Reciprocal", t("Cos", y)),
    "Acos": lambda t, x, y: t("Neg", t("Reciprocal", t("Sin", y))),
    "Sinh": lambda t, x, y: t("Cosh", x),
    "Cosh": lambda t, x, y: t("Sinh", x),
    "Asinh": lambda t, x, y: t("Reciprocal", t("Cosh", y)),
    "Acosh": lambda t, x, y: t("Reciprocal", t("Sinh", y)),
    "Atanh": lambda t, x, y: t("Reciprocal", t("Sub", t.constant(x, 1.0), t("Mul", x, x))),
    "Erf": lambda t, x, y: t("Mul", t.constant(x, 2 / math.sqrt(math.pi)), t("Exp", t("Neg", t("Mul", x, x)))),
}
"""Functions of one element: their derivative at x, where their value is y."""


@_rule(*_SLOPES)
def _elementwise(t: _Tape, node: Node, g: str) -> Sequence[str | None]:
    return [t("Mul", g, _SLOPES[node.op_type](t, node.inputs[0], node.outputs[0]))]


@_rule("LeakyRelu")
def _leaky_relu(t: _Tape, node: Node, g: str) -> Sequence[str | None]:
    x, alpha = node.inputs[0], node.attributes.get("alpha", 0.01)
    return [t("Where", t("Less", x, t.constant(x, 0.0)), t("Mul", g, t.constant(g, alpha)), g)]


@_rule("Elu")
def _elu(t: _Tape, node: Node, g: str) -> Sequence[str | None]:
    x, y, alpha = node.inputs[0], node.outputs[0], node.attributes.get("alpha", 1.0)
    below = t("Mul", g, t("Add", y, t.constant(y, alpha)))
    return [t("Where", t("Less", x, t.constant(x, 0.0)), below, g)]


@_rule("Max", "Min")
def _extreme(t: _Tape, node: Node, g: str) -> Sequence[str | None]:
    """Equal elements share."""
    y = node.outputs[0]
    taken = [t("CastLike", t("Equal", x, y), y) for x in node.inputs]
    share = t("Div", g, t("Sum", *taken))
    return [_summed(t, t("Mul", share, part), x) for part, x in zip(taken, node.inputs, strict=True)]


@_rule("Clip")
def _clip(t: _Tape, node: Node, g: str) -> Sequence[str | None]:
    x, *bounds = node.inputs
    zero = t.constant(g, 0.0)
    outside = [
        t("Where", t(compare, x, bound), g, zero) if bound else None
        for compare, bound in zip(("Less", "Greater"), bounds, strict=False)
    ]
    inside = t("Where", t("Equal", x, node.outputs[0]), g, zero)
    return [inside, *(part and _summed(t, part, bound) for part, bound in zip(outside, bounds, strict=True))]


@_rule("Identity")
def _identity(t: _Tape, node: Node, g: str) -> Sequence[str | None]:
    return [g]


@_rule("FullLike", domain=OWN)
def _constant(t: _Tape, node: Node, g: str) -> Sequence[str | None]:
    return [None]


@_rule("Sign", "Floor", "Ceil", "Round")
def _step(t: _Tape, node: Node, g: str) -> Sequence[str | None]:
    """Zero almost everywhere."""
    return [None]


@_rule("Cast")
def _cast(t: _Tape, node: Node, g: str) -> Sequence[str | None]:
    return [t("CastLike", g, node.inputs[0])]


@_rule("CastLike")
def _cast_like(t: _Tape, node: Node, g: str) -> Sequence[str | None]:
    return [t("CastLike", g, node.inputs[0]), None]


@_rule("SumTo", domain=OWN)
def _sum_to(t: _Tape, node: Node, g: str) -> Sequence[str | None]:
    return [t("Expand", g, t("Shape", node.inputs[0])), None]


def _summed(t: _Tape, g: str, like: str) -> str:
    """`g` summed over the axes along which `like` was broadcast."""
    return t("SumTo", g, like, domain=OWN)


@_rule("Add", "Sum")
def _add(t: _Tape, node: Node, g: str) -> Sequence[str | None]:
    return [_summed(t, g, x) for x in node.inputs]


@_rule("Sub")
def _sub(t: _Tape, node: Node, g: str) -> Sequence[str | None]:
    a, b = node.inputs
    return [_summed(t, g, a), _summed(t, t("Neg", g), b)]


@_rule("Mul")
def _mul(t: _Tape, node: Node, g: str) -> Sequence[str | None]:
    a, b = node.inputs
    return [_summed(t, t("Mul", g, b), a), _summed(t, t("Mul", g, a), b)]


@_rule("Div")
def _div(t: _Tape, node: Node, g: str) -> Sequence[str | None]:
    a, b = node.inputs
    by_a = t("Div", g, b)
    return [_summed(t, by_a, a), _summed(t, t("Neg", t("Mul", by_a, t("Div", a, b))), b)]


@_rule("Pow")
def _pow(t: _Tape, node: Node, g: str) -> Sequence[str | None]:
    a, b = node.inputs
    exponent = t("CastLike", b, a)
    lower = t("Pow", a, t("Sub", exponent, t.constant(exponent, 1.0)))
    by_a = t("Mul", g, t("Mul", exponent, lower))
    by_b = t("Mul", g, t("Mul", node.outputs[0], t("Log", a)))
    return [_summed(t, by_a, a), t("CastLike", _summed(t, by_b, b), b)]


@_rule("Where")
def _where(t: _Tape, node: Node, g: str) -> Sequence[str | None]:
    condition, a, b = node.inputs
    zero = t.constant(g, 0.0)
    return [
        None, _summed(t, t("Where", condition, g, zero), a), _summed(t, t("Where", condition, zero, g), b)
    ]  # fmt: skip


@_rule("MatMul")
def _mat_mul(t: _Tape, node: Node, g: str) -> Sequence[str | None]:
    """Of matrices or stacks of them; a vector is refused when it comes, by Einsum."""
    a, b = node.inputs
    by_a = t("Einsum", g, b, equation="...ik,...jk->...ij")
    by_b = t("Einsum", a, g, equation="...ij,...ik->...jk")
    return [_summed(t, by_a, a), _summed(t, by_b, b)]


@_rule("Gemm")
def _gemm(t: _Tape, node: Node, g: str) -> Sequence[str | None]:
    a, b, *c = node.inputs
    rows = "ji" if node.attributes.get("transA", 0) else "ij"
    columns = "kj" if node.attributes.get("transB", 0) else "jk"
    scaled = t("Mul", g, t.constant(g, node.attributes.get("alpha", 1.0)))
    parts: list[str | None] = [
        t("Einsum", scaled, b, equation=f"ik,{columns}->{rows}"),
        t("Einsum", a, scaled, equation=f"{rows},ik->{columns}"),
    ]
    if c and c[0]:
        parts.append(_summed(t, t("Mul", g, t.constant(g, node.attributes.get("beta", 1.0))), c[0]))
    return parts


@_rule("Reshape", "Flatten", "Squeeze", "Unsqueeze")
def _reshape(t: _Tape, node: Node, g: str) -> Sequence[str | None]:
    return [t("Reshape", g, t("Shape", node.inputs[0]), allowzero=1)]


@_rule("Transpose")
def _transpose(t: _Tape, node: Node, g: str) -> Sequence[str | None]:
    perm = node.attributes.get("perm")
    return [t("Transpose", g) if perm is None else t("Transpose", g, perm=[perm.index(i) for i in range(len(perm))])]


@_rule("ReduceSum", "ReduceMean")
def _reduce(t: _Tape, node: Node, g: str) -> Sequence[str | None]:
    return [t("Unreduce", g, *node.inputs, domain=OWN, **node.attributes, mean=int(node.op_type == "ReduceMean"))]


@_rule("Expand")
def _expand(t: _Tape, node: Node, g: str) -> Sequence[str | None]:
    return [_summed(t, g, node.inputs[0]), None]


@_rule("Concat")
def _concat(t: _Tape, node: Node, g: str) -> Sequence[str | None]:
    """Each input's part of the whole, by Slice."""
    axis = t("Constant", value_ints=[node.attributes.get("axis", 1)])
    parts: list[str | None] = []
    start = t("Constant", value_ints=[0])
    for x in node.inputs:
        end = t("Add", start, t("Gather", t("Shape", x), axis))
        parts.append(t("Slice", g, start, end, axis))
        start = end
    return parts


@_rule("Split")
def _split(t: _Tape, node: Node, g: str) -> Sequence[str | None]:
    return [g]


@_rule("Gather")
def _gather(t: _Tape, node: Node, g: str) -> Sequence[str | None]:
    return [t("GatherInput", g, *node.inputs, domain=OWN, **node.attributes), None]


@_rule("GatherInput", domain=OWN)
def _gather_input(t: _Tape, node: Node, g: str) -> Sequence[str | None]:
    return [t("Gather", g, node.inputs[2], **node.attributes), None, None]


@_rule("Pad")
def _pad(t: _Tape, node: Node, g: str) -> Sequence[str | None]:
    """What was padded is cut off, and what was cut off is zero."""
    if node.attributes.get("mode", "constant") != "constant" or node.version < 11:
        raise UnsupportedError(f"node {t.prefix!r}: Gradient has no rule for Pad before opset 11, nor for its modes")
    _, pads, value, axes = [*node.inputs, "", ""][:4]
    by_x = t("Pad", g, t("Neg", pads), "", axes)
    all_of = [t("ReduceSum", part, keepdims=0) for part in (g, by_x)]
    return [by_x, None, _summed(t, t("Sub", *all_of), value) if value else None, None]


def _sliced(t: _Tape, node: Node) -> list[str]:
    """Starts, ends, axes and steps, which were attributes before opset 10, as inputs."""
    if node.version >= 10:
        return node.inputs[1:]
    names = [name for name in ("starts", "ends", "axes") if name in node.attributes]
    return [t("Constant", value_ints=list(node.attributes[name])) for name in names]


@_rule("Slice")
def _slice(t: _Tape, node: Node, g: str) -> Sequence[str | None]:
    return [t("SliceInput", g, node.inputs[0], *_sliced(t, node), domain=OWN)]


@_rule("SliceInput", domain=OWN)
def _slice_input(t: _Tape, node: Node, g: str) -> Sequence[str | None]:
    return [t("Slice", g, *node.inputs[2:])]


def _of_channels(t: _Tape, g: str) -> str:
    """(channels): the sum of (batch, channels, ...) over everything else."""
    flat = t("Reshape", g, t("Constant", value_ints=[0, 0, -1]))
    return t("ReduceSum", flat, t("Constant", value_ints=[0, 2]), keepdims=0)


@_rule("Conv")
def _conv(t: _Tape, node: Node, g: str) -> Sequence[str | None]:
    x, w, *bias = node.inputs
    parts: list[str | None] = [
        t("ConvInput", g, w, x, domain=OWN, **node.attributes),
        t("ConvWeights", g, x, w, domain=OWN, **node.attributes),
    ]
    return [*parts, _of_channels(t, g)] if bias and bias[0] else parts


@_rule("ConvInput", domain=OWN)
def _conv_input(t: _Tape, node: Node, g: str) -> Sequence[str | None]:
    slope, w, _ = node.inputs
    return [t("Conv", g, w, **node.attributes), t("ConvWeights", slope, g, w, domain=OWN, **node.attributes), None]


@_rule("ConvWeights", domain=OWN)
def _conv_weights(t: _Tape, node: Node, g: str) -> Sequence[str | None]:
    slope, x, _ = node.inputs
    return [t("Conv", x, g, **node.attributes), t("ConvInput", slope, g, x, domain=OWN, **node.attributes), None]


@_rule("ConvTranspose")
def _conv_transpose(t: _Tape, node: Node, g: str) -> Sequence[str | None]:
    """The adjoint of a convolution, whose own is that convolution."""
    given = dict(node.attributes)
    if given.get("output_shape") or given.pop("auto_pad", "NOTSET") not in ("NOTSET", "", "VALID"):
        raise UnsupportedError(
            f"node {t.prefix!r}: Gradient has no rule for ConvTranspose with output_shape or SAME padding"
        )
    given.pop("output_padding", None)
    x, w, *bias = node.inputs
    parts: list[str | None] = [t("Conv", g, w, **given), t("ConvWeights", x, g, w, domain=OWN, **given)]
    return [*parts, _of_channels(t, g)] if bias and bias[0] else parts


@_rule("AveragePool")
def _average_pool(t: _Tape, node: Node, g: str) -> Sequence[str | None]:
    return [t("AveragePoolInput", g, node.inputs[0], domain=OWN, **node.attributes)]


@_rule("AveragePoolInput", domain=OWN)
def _average_pool_input(t: _Tape, node: Node, g: str) -> Sequence[str | None]:
    return [t("AveragePool", g, **node.attributes), None]


@_rule("MaxPool")
def _max_pool(t: _Tape, node: Node, g: str) -> Sequence[str | None]:
    return [t("MaxPoolInput", g, node.inputs[0], domain=OWN, **node.attributes)]


@_rule("MaxPoolInput", domain=OWN)
def _max_pool_input(t: _Tape, node: Node, g: str) -> Sequence[str | None]:
    return [t("MaxPoolPicked", g, node.inputs[1], domain=OWN, **node.attributes), None]


@_rule("MaxPoolPicked", domain=OWN)
def _max_pool_picked(t: _Tape, node: Node, g: str) -> Sequence[str | None]:
    return [t("MaxPoolInput", g, node.inputs[1], domain=OWN, **node.attributes), None]


@_rule("GlobalAveragePool")
def _global_average_pool(t: _Tape, node: Node, g: str) -> Sequence[str | None]:
    return [t("GlobalAveragePoolInput", g, node.inputs[0], domain=OWN)]


@_rule("GlobalAveragePoolInput", domain=OWN)
def _global_average_pool_input(t: _Tape, node: Node, g: str) -> Sequence[str | None]:
    return [t("GlobalAveragePool", g), None]


@_rule("GlobalMaxPool")
def _global_max_pool(t: _Tape, node: Node, g: str) -> Sequence[str | None]:
    """Equal elements share."""
    x, y = node.inputs[0], node.outputs[0]
    greatest = t("CastLike", t("Equal", x, y), x)
    return [t("Mul", t("Div", g, _summed(t, greatest, y)), greatest)]


def _of_powers(t: _Tape, node: Node, g: str) -> tuple[str, str]:
    """Of y = (sum of |x| ** p) ** (1 / p): what the output's derivative is to be multiplied by, once for every output
    and once for every element. Where the output is 0, which has no derivative, the first is 0."""
    x, y, p = node.inputs[0], node.outputs[0], float(node.attributes.get("p", 2))
    zero = t.constant(y, 0.0)
    outer = t("Mul", g, t("Where", t("Equal", y, zero), zero, t("Pow", y, t.constant(y, 1 - p))))
    return outer, t("Mul", t("Sign", x), t("Pow", t("Abs", x), t.constant(x, p - 1)))


@_rule("LpPool")
def _lp_pool(t: _Tape, node: Node, g: str) -> Sequence[str | None]:
    """The sums of windows are their means times how many elements they have."""
    x, given = node.inputs[0], {k: v for k, v in node.attributes.items() if k != "p"}
    outer, inner = _of_powers(t, node, g)
    count = t("LpPool", t.constant(x, 1.0), p=1, **given)
    return [t("Mul", t("AveragePoolInput", t("Mul", outer, count), x, domain=OWN, **given), inner)]


@_rule("GlobalLpPool")
def _global_lp_pool(t: _Tape, node: Node, g: str) -> Sequence[str | None]:
    outer, inner = _of_powers(t, node, g)
    return [t("Mul", outer, inner)]


@_rule("BatchNormalization")
def _batch_normalization(t: _Tape, node: Node, g: str) -> Sequence[str | None]:
    x, scale, _, mean, variance = node.inputs
    training = node.attributes.get("training_mode", 0)
    if node.version < 9 or (node.version < 14 and len(node.outputs) > 1):
        raise UnsupportedError(
            f"node {t.prefix!r}: Gradient has no rule for BatchNormalization before opset 9, nor for its training "
            "before opset 14"
        )
    epsilon = node.attributes.get("epsilon", 1e-5)
    zero, one = t.constant(scale, 0.0), t.constant(scale, 1.0)

    def normalize(x: str, scale: str, mean: str, variance: str) -> str:
        return t("BatchNormalization", x, scale, zero, mean, variance, epsilon=epsilon)

    def for_each(x: str) -> str:
        """One number of each channel, for all its elements."""
        return t("BatchNormalization", t.constant(g, 0.0), x, x, zero, one)

    if training:
        count = _of_channels(t, t.constant(x, 1.0))
        mean = t("Div", _of_channels(t, x), count)
        centred = t("Sub", x, for_each(mean))
        variance = t("Div", _of_channels(t, t("Mul", centred, centred)), count)
    normal = normalize(x, one, mean, variance)
    by_scale, by_bias = _of_channels(t, t("Mul", g, normal)), _of_channels(t, g)
    if training:
        along = t("Mul", normal, for_each(t("Div", by_scale, count)))
        rest = t("Sub", t("Sub", g, for_each(t("Div", by_bias, count))), along)
        return [normalize(rest, scale, zero, variance), by_scale, by_bias, None, None]
    by_x = normalize(g, scale, zero, variance)
    twice = t("Mul", t.constant(variance, 2.0), t("Add", variance, t.constant(variance, epsilon)))
    by_variance = t("Neg", t("Div", t("Mul", by_scale, scale), twice))
    return [by_x, by_scale, by_bias, t("Neg", _of_channels(t, by_x)), by_variance]


@_rule("LogSoftmax")
def _log_softmax(t: _Tape, node: Node, g: str) -> Sequence[str | None]:
    if node.version < 13:
        raise UnsupportedError(f"node {t.prefix!r}: Gradient has no rule for LogSoftmax before opset 13")
    total = t("ReduceSum", g, t("Constant", value_ints=[node.attributes.get("axis", -1)]))
    return [t("Sub", g, t("Mul", t("Exp", node.outputs[0]), total))]


@_rule("Softmax")
def _softmax(t: _Tape, node: Node, g: str) -> Sequence[str | None]:
    if node.version < 13:
        raise UnsupportedError(f"node {t.prefix!r}: Gradient has no rule for Softmax before opset 13")
    y, axes = node.outputs[0], t("Constant", value_ints=[node.attributes.get("axis", -1)])
    weighted = t("Mul", g, y)
    return [t("Sub", weighted, t("Mul", y, t("ReduceSum", weighted, axes)))]
