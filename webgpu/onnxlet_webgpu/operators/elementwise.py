"""Elementwise operators: every one is a map, so that it can be fused into the kernel before it.

Expressions name their operands ``{0}``, ``{1}``, ... Each one's twin is the NumPy function of the same operator in
`onnxlet.ops`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..kernel import Operand
from ..lowering import MICROSOFT, Lowering, lowering
from ..storage import MOVED, PAIR, widened
from ..wgsl import literal
from .casts import CASTS

FLOAT = ("float32",)
SIGNED = ("float32", "int32", "int64")
INTEGERS = ("int32", "uint32", "int64", "uint64")
NUMBERS = ("float32", *INTEGERS)
ANY = (*NUMBERS, "bool")
BOOL = ("bool",)


def _f(value: float) -> str:
    return literal(value, "f32")


SIMPLE: dict[str, tuple[str, tuple[str, ...]]] = {
    "Abs": ("abs({0})", SIGNED),
    "Neg": ("-{0}", SIGNED),
    "Relu": ("select({0}, {zero}, {0} < {zero})", SIGNED),
    "Sigmoid": ("sigmoid({0})", FLOAT),
    "Tanh": ("hyperbolic_tangent({0})", FLOAT),
    "Erf": ("error_function({0})", FLOAT),
    "Exp": ("exponential({0})", FLOAT),
    "Log": ("logarithm({0})", FLOAT),
    "Sqrt": ("square_root({0})", FLOAT),
    "Reciprocal": ("1.0 / {0}", FLOAT),
    "Floor": ("floor({0})", FLOAT),
    "Ceil": ("ceil({0})", FLOAT),
    "Round": ("round({0})", FLOAT),
    "Sin": ("sine({0})", FLOAT),
    "Cos": ("cosine({0})", FLOAT),
    "Tan": ("sine({0}) / cosine({0})", FLOAT),
    "Asin": ("arc_sine({0})", FLOAT),
    "Acos": ("arc_cosine({0})", FLOAT),
    "Atan": ("arc_tangent({0})", FLOAT),
    "Sinh": ("sine_hyperbolic({0})", FLOAT),
    "Cosh": ("0.5 * exponential({0}) + 0.5 * exponential(-{0})", FLOAT),
    "Asinh": ("inverse_sinh({0})", FLOAT),
    "Acosh": ("inverse_cosh({0})", FLOAT),
    "Atanh": ("inverse_tanh({0})", FLOAT),
    "Softplus": ("softplus({0})", FLOAT),
    "Softsign": ("{0} / (1.0 + abs({0}))", FLOAT),
    "HardSwish": ("{0} * clip({0} / 6.0 + 0.5, 0.0, 1.0)", FLOAT),
    "Mish": ("{0} * hyperbolic_tangent(softplus({0}))", FLOAT),
    "Not": ("1u - {0}", BOOL),
    "BitwiseNot": ("~{0}", INTEGERS),
    "IsNaN": ("select(0u, 1u, is_nan({0}))", FLOAT),
    "Add": ("{0} + {1}", NUMBERS),
    "Sub": ("{0} - {1}", NUMBERS),
    "Mul": ("{0} * {1}", NUMBERS),
    "Div": ("{0} / {1}", NUMBERS),
    "And": ("{0} & {1}", BOOL),
    "Or": ("{0} | {1}", BOOL),
    "Xor": ("{0} ^ {1}", BOOL),
    "BitwiseAnd": ("{0} & {1}", INTEGERS),
    "BitwiseOr": ("{0} | {1}", INTEGERS),
    "BitwiseXor": ("{0} ^ {1}", INTEGERS),
    "Equal": ("select(0u, 1u, {0} == {1})", ANY),
    "Less": ("select(0u, 1u, {0} < {1})", NUMBERS),
    "LessOrEqual": ("select(0u, 1u, {0} <= {1})", NUMBERS),
    "Greater": ("select(0u, 1u, {0} > {1})", NUMBERS),
    "GreaterOrEqual": ("select(0u, 1u, {0} >= {1})", NUMBERS),
    "PRelu": ("select({0}, {0} * {1}, {0} < {zero})", SIGNED),
}
"""Operators without attributes whose operands all have one type: expression and element types."""


PAIRS: dict[str, tuple[str, ...]] = {
    "Abs": ("pair_absolute({0})",) * 2,
    "Neg": ("pair_negate({0})",) * 2,
    "Relu": ("select({0}, vec2<u32>(0u), pair_is_negative({0}))",) * 2,
    "Add": ("pair_add({0}, {1})",) * 2,
    "Sub": ("pair_subtract({0}, {1})",) * 2,
    "Mul": ("pair_multiply({0}, {1})",) * 2,
    "Div": ("pair_divide({0}, {1})", "pair_quotient({0}, {1})"),
    "Equal": ("select(0u, 1u, pair_equal({0}, {1}))",) * 2,
    "Less": ("select(0u, 1u, pair_less({0}, {1}))", "select(0u, 1u, pair_below({0}, {1}))"),
    "Greater": ("select(0u, 1u, pair_less({1}, {0}))", "select(0u, 1u, pair_below({1}, {0}))"),
    "LessOrEqual": ("select(1u, 0u, pair_less({1}, {0}))", "select(1u, 0u, pair_below({1}, {0}))"),
    "GreaterOrEqual": ("select(1u, 0u, pair_less({0}, {1}))", "select(1u, 0u, pair_below({0}, {1}))"),
    "PRelu": ("select({0}, pair_multiply({0}, {1}), pair_is_negative({0}))", "{0}"),
}
"""Expressions for int64 and for uint64; operators that aren't here have the same for pairs as for words."""


@lowering(*SIMPLE)
def simple(n: Lowering) -> None:
    name = n.step.node.op_type
    expression, kinds = SIMPLE[name]
    factor = name in ("Mul", "Div")
    operands = [n.operand(i, *kinds, factor=factor) for i in range(len(n.step.node.inputs))]
    if operands[0].element == PAIR and name in PAIRS:
        expression = PAIRS[name][n.input(0, *kinds).kind == "uint64"]
    if len(operands) > 1:
        operands[1] = _second_operand(n, operands)
    n.emit_map(operands, expression.replace("{zero}", literal(0, operands[0].element)))


def _second_operand(n: Lowering, operands: list[Operand]) -> Operand:
    """The second operand as it is broadcast: before opset 7 it was laid along an axis of the first."""
    first, second = operands
    shape = second.shape
    axis = n.attribute("axis")
    n.attribute("broadcast")
    if n.version < 7 and n.step.node.op_type != "PRelu" and len(shape) < len(first.shape):
        start = len(first.shape) - len(shape) if axis is None else axis % len(first.shape)
        shape = shape + (1,) * (len(first.shape) - start - len(shape))
    if n.step.node.op_type == "PRelu" and n.version < 7 and len(shape) == 1 and len(first.shape) > 1:
        shape = shape + (1,) * (len(first.shape) - 2)  # one slope, or one for each channel
    if np.broadcast_shapes(first.shape, shape) != n.output().shape:
        n.refuse("its operands do not broadcast to the output")
    return Operand(second.value, shape, second.element, second.text)


def _elu(n: Lowering) -> str:
    return f"select({{0}}, {_f(n.attribute('alpha', 1.0))} * exp_minus_one({{0}}), {{0}} < 0.0)"


def _selu(n: Lowering) -> str:
    alpha = n.attribute("alpha", 1.67326319217681884765625)
    gamma = n.attribute("gamma", 1.05070102214813232421875)
    return f"{_f(gamma)} * select({{0}}, {_f(alpha)} * exp_minus_one({{0}}), {{0}} < 0.0)"


def _celu(n: Lowering) -> str:
    alpha = n.attribute("alpha", 1.0)
    return f"select({{0}}, {_f(alpha)} * exp_minus_one({{0}} / {_f(alpha)}), {{0}} < 0.0)"


def _leaky_relu(n: Lowering) -> str:
    return f"select({{0}}, {{0}} * {_f(n.attribute('alpha', 0.01))}, {{0}} < 0.0)"


def _thresholded_relu(n: Lowering) -> str:
    # NumPy's where(x > alpha, x, 0): a NaN gives 0.
    return f"select(0.0, {{0}}, {{0}} > {_f(n.attribute('alpha', 1.0))})"


def _hard_sigmoid(n: Lowering) -> str:
    return f"clip({_f(n.attribute('alpha', 0.2))} * {{0}} + {_f(n.attribute('beta', 0.5))}, 0.0, 1.0)"


def _shrink(n: Lowering) -> str:
    bias, lambd = _f(n.attribute("bias", 0.0)), _f(n.attribute("lambd", 0.5))
    return f"select(select(0.0, {{0}} - {bias}, {{0}} > {lambd}), {{0}} + {bias}, {{0}} < -{lambd})"


def _gelu(n: Lowering) -> str:
    return "gelu_tanh({0})" if n.attribute("approximate", "none") == "tanh" else "gelu({0})"


def _swish(n: Lowering) -> str:
    return f"{{0}} * sigmoid({_f(n.attribute('alpha', 1.0))} * {{0}})"


def _quick_gelu(n: Lowering) -> str:
    return f"{{0}} * sigmoid({_f(n.attribute('alpha', 1.702))} * {{0}})"


def _sign(n: Lowering) -> str:
    x = n.input(0, *NUMBERS)
    return {
        "float32": "select(sign({0}), {0}, is_nan({0}))",
        "int32": "sign({0})",
        "uint32": "min({0}, 1u)",
        "int64": "pair_sign({0})",
        "uint64": "vec2<u32>(min({0}.x | {0}.y, 1u), 0u)",
    }[x.kind]


def _is_inf(n: Lowering) -> str:
    tests = {"detect_negative": "{0} < 0.0", "detect_positive": "{0} > 0.0"}
    wanted = [f"({test})" for name, test in tests.items() if n.attribute(name, 1)]
    return f"select(0u, 1u, is_inf({{0}}) && ({' || '.join(wanted)}))" if wanted else "select(0u, 0u, {0} == {0})"


PARAMETRIC: dict[tuple[str, str], tuple[Callable[[Lowering], str], tuple[str, ...]]] = {
    ("", "Elu"): (_elu, FLOAT),
    ("", "Selu"): (_selu, FLOAT),
    ("", "Celu"): (_celu, FLOAT),
    ("", "LeakyRelu"): (_leaky_relu, FLOAT),
    ("", "ThresholdedRelu"): (_thresholded_relu, FLOAT),
    ("", "HardSigmoid"): (_hard_sigmoid, FLOAT),
    ("", "Shrink"): (_shrink, FLOAT),
    ("", "Gelu"): (_gelu, FLOAT),
    ("", "Swish"): (_swish, FLOAT),
    ("", "Sign"): (_sign, NUMBERS),
    ("", "IsInf"): (_is_inf, FLOAT),
    (MICROSOFT, "Gelu"): (lambda n: "gelu({0})", FLOAT),
    (MICROSOFT, "QuickGelu"): (_quick_gelu, FLOAT),
}
"""Operators of one operand with attributes: what makes the expression, and element types."""


def parametric(n: Lowering) -> None:
    make, kinds = PARAMETRIC[n.step.node.domain, n.step.node.op_type]
    numbers = [value for value in n.step.node.attributes.values() if isinstance(value, float)]
    if not np.isfinite(numbers).all() or (n.step.node.op_type == "Celu" and n.attribute("alpha", 1.0) <= 0):
        n.refuse(f"parameters {numbers} have no GPU kernel")
    n.emit_map([n.operand(0, *kinds)], make(n))


for _domain, _name in PARAMETRIC:
    lowering(_name, domain=_domain)(parametric)


@lowering("FastGelu", "BiasGelu", domain=MICROSOFT)
def gelu_with_bias(n: Lowering) -> None:
    function = "gelu_tanh" if n.step.node.op_type == "FastGelu" else "gelu"
    if n.has_input(1):
        n.emit_map([n.operand(0), n.operand(1)], f"{function}({{0}} + {{1}})")
    else:
        n.emit_map([n.operand(0)], f"{function}({{0}})")


EXTREMA = {
    "float32": ("max_nan", "min_nan"),
    "int32": ("max", "min"),
    "uint32": ("max", "min"),
    "int64": ("pair_max", "pair_min"),
    "uint64": ("pair_highest", "pair_lowest"),
}
"""The functions for the greater and the smaller of two numbers, by kind."""


@lowering("Max", "Min", "Sum", "Mean")
def variadic(n: Lowering) -> None:
    name = n.step.node.op_type
    kinds = NUMBERS if name in ("Max", "Min") else FLOAT
    operands = [n.operand(i, *kinds) for i in range(len(n.step.node.inputs))]
    kind = n.input(0, *kinds).kind
    most = n.target.max_bindings - 1
    while len(operands) > most:  # more than a shader may bind: the first ones are combined to a value of their own
        first, operands = operands[:most], operands[most:]
        shape = np.broadcast_shapes(*(o.shape for o in first))
        part = n.temporary(f"first but {len(operands)}", shape, ELEMENT_TYPES[first[0].element])
        n.emit_map(first, _joined(name, kind, most), part)
        operands.insert(0, Operand(part.value, shape, part.element))
    expression = _joined(name, kind, len(operands))
    if name == "Mean":
        expression = f"({expression}) / {_f(len(n.step.node.inputs))}"
    n.emit_map(operands, expression)


ELEMENT_TYPES = {"f32": np.float32, "i32": np.int32, "u32": np.uint32, PAIR: np.int64}


def _joined(name: str, kind: str, count: int) -> str:
    """Text of the greatest, the smallest, or the sum of `count` operands."""
    expression = "{0}"
    for i in range(1, count):
        if name in ("Max", "Min"):
            expression = f"{EXTREMA[kind][name == 'Min']}({expression}, {{{i}}})"
        else:
            expression += f" + {{{i}}}"
    return expression


@lowering("Clip")
def clip(n: Lowering) -> None:
    x = n.operand(0, *NUMBERS)
    if n.version < 11:
        bounds = [n.attribute("min"), n.attribute("max")]
        low, high = (None if b is None else Operand("", (), x.element, literal(b, x.element)) for b in bounds)
    else:
        low, high = (n.operand(i, *NUMBERS) if n.has_input(i) else None for i in (1, 2))
    operands, names = [x], {}
    for key, bound in (("low", low), ("high", high)):
        if bound is not None:
            if len(bound.shape) and bound.shape != (1,):
                n.refuse("Clip's bounds must be scalars")
            operands.append(Operand(bound.value, (), bound.element, bound.text))
            names[key] = f"{{{len(operands) - 1}}}"
    expression = "{0}"
    greater, smaller = EXTREMA[n.input(0, *NUMBERS).kind]
    if x.element == "f32" and names:
        expression = f"clip({{0}}, {names.get('low', '-infinity()')}, {names.get('high', 'infinity()')})"
    elif x.element != "f32":
        expression = expression if "low" not in names else f"{greater}({expression}, {names['low']})"
        expression = expression if "high" not in names else f"{smaller}({expression}, {names['high']})"
    n.emit_map(operands, expression)


@lowering("Where")
def where(n: Lowering) -> None:
    n.emit_map([n.operand(0, *BOOL), n.operand(1, *MOVED), n.operand(2, *MOVED)], "select({2}, {1}, {0} != 0u)")


@lowering("Pow")
def power(n: Lowering) -> None:
    kind = n.input(0, *NUMBERS).kind
    base = n.operand(0, *NUMBERS)
    known = n.constant(1)
    if known is not None and known.size == 1 and kind == "float32" and known.ndim <= len(base.shape):
        n.emit_map([base], _constant_power(float(widened(known).reshape(-1)[0])))
        return
    other = n.input(1, *NUMBERS).kind
    operands = [base, n.operand(1, *NUMBERS)]
    if n.version < 7:
        operands[1] = _second_operand(n, operands)
    if kind == "float32":
        exponent = "{1}" if other == kind else CASTS[other, kind].replace("{0}", "{1}")
        n.emit_map(operands, f"power({{0}}, {exponent})")
    elif kind == other == "int32":
        n.emit_map(operands, "integer_power({0}, {1})")
    elif kind == other == "int64":
        n.emit_map(operands, "pair_power({0}, {1})")
    elif kind == "int32" and other == "int64":
        n.emit_map(operands, "bitcast<i32>(pair_power(pair_of_int({0}), {1}).x)")
    elif kind == "int64" and other == "int32":
        n.emit_map(operands, "pair_power({0}, pair_of_int({1}))")
    elif kind == "int32" and other == "uint32":
        n.emit_map(operands, "integer_power({0}, bitcast<i32>({1}))")
    else:
        n.refuse(f"Pow of {kind} and {other} has no GPU kernel")


def _constant_power(e: float) -> str:
    if e in (1.0, 2.0, 3.0, 4.0):
        return " * ".join(["{0}"] * int(e))
    if e == -1.0:
        return "1.0 / {0}"
    if e == 0.5:
        return "square_root({0})"
    return f"power({{0}}, {_f(e)})"


@lowering("Mod")
def mod(n: Lowering) -> None:
    kind = n.input(0, *NUMBERS).kind
    fmod = bool(n.attribute("fmod", 0))
    expression = {
        "float32": "float_remainder({0}, {1})" if fmod else "float_floor_mod({0}, {1})",
        "int32": "{0} % {1}" if fmod else "floor_mod({0}, {1})",
        "uint32": "{0} % {1}",
        "int64": "pair_remainder({0}, {1})" if fmod else "pair_floor_mod({0}, {1})",
        "uint64": "pair_rest({0}, {1})",
    }[kind]
    n.emit_map([n.operand(0, *NUMBERS), n.operand(1, *NUMBERS)], expression)


@lowering("BitShift")
def bit_shift(n: Lowering) -> None:
    """Amounts that are negative or as many as there are bits shift everything out."""
    x = n.input(0, *INTEGERS)
    left = n.attribute("direction") == "LEFT"
    bits = x.dtype.itemsize * 8
    if x.element == PAIR:
        amount = "select({1}.x, 64u, {1}.y != 0u)"
        expression = f"pair_shift_{'left' if left else 'right'}({{0}}, {amount})"
        if x.kind == "int64" and not left:
            expression = f"select({expression}, ~pair_shift_right(~{{0}}, {amount}), pair_is_negative({{0}}))"
    else:
        amount = "bitcast<u32>({1})" if x.kind == "int32" else "{1}"
        outside = "{0} >> 31u" if x.kind == "int32" and not left else literal(0, x.element)
        expression = f"select({{0}} {'<<' if left else '>>'} ({amount} & 31u), {outside}, {amount} >= {bits}u)"
    n.emit_map([n.operand(0, *INTEGERS), n.operand(1, *INTEGERS)], expression)


@lowering("SwiGLU")
def swi_glu(n: Lowering) -> None:
    alpha = _f(n.attribute("alpha", 1.0))
    n.emit_map([n.operand(0), n.operand(1)], f"{{0}} * sigmoid({alpha} * {{0}}) * {{1}}")


@lowering("ConstantOfShape")
def constant_of_shape(n: Lowering) -> None:
    """A constant that is too large to be kept in the plan."""
    out = n.output(0)
    value = n.attribute("value")
    number = 0 if value is None else widened(np.asarray(value.numpy() if hasattr(value, "numpy") else value))
    if out.dtype == np.float64:
        n.refuse("float64 has no GPU kernel")
    n.emit_flat(n.title(out), [], f"store(i, {literal(np.reshape(number, -1)[0], out.element)});", out)
