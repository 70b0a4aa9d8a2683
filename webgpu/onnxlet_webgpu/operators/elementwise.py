"""Elementwise operators: every one is a map, so that it can be fused into the kernel before it.

Expressions name their operands ``{0}``, ``{1}``, ... Each one's twin is the NumPy function of the same operator in
`onnxlet.ops`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..kernel import Operand
from ..lowering import MICROSOFT, Lowering, lowering
from ..wgsl import literal

FLOAT = ("float32",)
SIGNED = ("float32", "int32")
NUMBERS = ("float32", "int32", "uint32")
ANY = ("float32", "int32", "uint32", "bool")
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
    "BitwiseNot": ("~{0}", ("int32", "uint32")),
    "IsNaN": ("select(0u, 1u, is_nan({0}))", FLOAT),
    "Add": ("{0} + {1}", NUMBERS),
    "Sub": ("{0} - {1}", NUMBERS),
    "Mul": ("{0} * {1}", NUMBERS),
    "Div": ("{0} / {1}", NUMBERS),
    "And": ("{0} & {1}", BOOL),
    "Or": ("{0} | {1}", BOOL),
    "Xor": ("{0} ^ {1}", BOOL),
    "BitwiseAnd": ("{0} & {1}", ("int32", "uint32")),
    "BitwiseOr": ("{0} | {1}", ("int32", "uint32")),
    "BitwiseXor": ("{0} ^ {1}", ("int32", "uint32")),
    "Equal": ("select(0u, 1u, {0} == {1})", ANY),
    "Less": ("select(0u, 1u, {0} < {1})", NUMBERS),
    "LessOrEqual": ("select(0u, 1u, {0} <= {1})", NUMBERS),
    "Greater": ("select(0u, 1u, {0} > {1})", NUMBERS),
    "GreaterOrEqual": ("select(0u, 1u, {0} >= {1})", NUMBERS),
    "PRelu": ("select({0}, {0} * {1}, {0} < {zero})", SIGNED),
}
"""Operators without attributes whose operands all have one type: expression and element types."""


@lowering(*SIMPLE)
def simple(n: Lowering) -> None:
    expression, kinds = SIMPLE[n.step.node.op_type]
    factor = n.step.node.op_type in ("Mul", "Div")
    operands = [n.operand(i, *kinds, factor=factor) for i in range(len(n.step.node.inputs))]
    _no_old_broadcast(n)
    if n.step.node.op_type == "PRelu":
        _check_broadcast(n, operands)
    n.emit_map(operands, expression.replace("{zero}", literal(0, operands[0].element)))


def _no_old_broadcast(n: Lowering) -> None:
    """Before opset 7 an attribute `axis` said where a smaller second operand goes."""
    axis = n.attribute("axis")
    if n.attribute("broadcast") and axis is not None:
        n.refuse("the broadcasting of opset 6 with an axis has no GPU kernel")


def _check_broadcast(n: Lowering, operands: list[Operand]) -> None:
    if np.broadcast_shapes(*(o.shape for o in operands)) != n.output().shape:
        n.refuse("its operands do not broadcast to the output")


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
    return "sign({0})" if n.input(0, *SIGNED).element == "i32" else "select(sign({0}), {0}, is_nan({0}))"


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
    ("", "Sign"): (_sign, SIGNED),
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


@lowering("Max", "Min", "Sum", "Mean")
def variadic(n: Lowering) -> None:
    name = n.step.node.op_type
    kinds = NUMBERS if name in ("Max", "Min") else FLOAT
    operands = [n.operand(i, *kinds) for i in range(len(n.step.node.inputs))]
    expression = "{0}"
    suffix = "_nan" if operands[0].element == "f32" else ""
    for i in range(1, len(operands)):
        if name in ("Max", "Min"):
            expression = f"{name.lower()}{suffix}({expression}, {{{i}}})"
        else:
            expression += f" + {{{i}}}"
    if name == "Mean":
        expression = f"({expression}) / {_f(len(operands))}"
    n.emit_map(operands, expression)


@lowering("Clip")
def clip(n: Lowering) -> None:
    x = n.operand(0, *NUMBERS)
    numeric = np.finfo(np.float32) if x.element == "f32" else None
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
    if numeric is not None:
        expression = "{0}"
        if names:
            expression = f"clip({{0}}, {names.get('low', '-infinity()')}, {names.get('high', 'infinity()')})"
    else:
        expression = "{0}" if "low" not in names else f"max({{0}}, {names['low']})"
        expression = expression if "high" not in names else f"min({expression}, {names['high']})"
    n.emit_map(operands, expression)


@lowering("Where")
def where(n: Lowering) -> None:
    n.emit_map([n.operand(0, *BOOL), n.operand(1, *ANY), n.operand(2, *ANY)], "select({2}, {1}, {0} != 0u)")


@lowering("Pow")
def power(n: Lowering) -> None:
    base = n.operand(0, *SIGNED)
    exponent = n.constant(1)
    if exponent is not None and exponent.size == 1 and base.element == "f32" and exponent.ndim <= len(base.shape):
        n.emit_map([base], _constant_power(float(exponent.reshape(-1)[0])))
        return
    second = n.operand(1, *SIGNED)
    if base.element == "i32":
        if second.element != "i32":
            n.refuse("an integer to a power that is not an integer has no GPU kernel")
        n.emit_map([base, second], "integer_power({0}, {1})")
    else:
        n.emit_map([base, second], "power({0}, f32({1}))")


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
    a, b = n.operand(0, "int32", "uint32"), n.operand(1, "int32", "uint32")
    signed_floor = a.element == "i32" and not n.attribute("fmod", 0)
    n.emit_map([a, b], "floor_mod({0}, {1})" if signed_floor else "{0} % {1}")


@lowering("BitShift")
def bit_shift(n: Lowering) -> None:
    shift = "<<" if n.attribute("direction") == "LEFT" else ">>"
    expression = f"select({{0}} {shift} ({{1}} & 31u), 0u, {{1}} > 31u)"
    n.emit_map([n.operand(0, "uint32"), n.operand(1, "uint32")], expression)


CASTS = {
    ("float32", "int32"): "i32({0})",
    ("float32", "uint32"): "u32({0})",
    ("float32", "bool"): "select(1u, 0u, {0} == 0.0)",
    ("int32", "float32"): "f32({0})",
    ("int32", "uint32"): "u32({0})",
    ("int32", "bool"): "select(0u, 1u, {0} != 0)",
    ("uint32", "float32"): "f32({0})",
    ("uint32", "int32"): "i32({0})",
    ("uint32", "bool"): "select(0u, 1u, {0} != 0u)",
    ("bool", "float32"): "f32({0})",
    ("bool", "int32"): "i32({0})",
    ("bool", "uint32"): "{0}",
}


@lowering("Cast", "CastLike")
def cast(n: Lowering) -> None:
    x, out = n.input(0, *ANY), n.output()
    from_, to = ("float32" if t.dtype == np.float16 else t.dtype.name for t in (x, out))
    if x.dtype == out.dtype or (x.dtype == np.float16 and out.dtype == np.float32):
        n.alias(out, x)  # a float16 is the same number in f32
    else:
        n.emit_map([n.operand(0, *ANY)], "{0}" if from_ == to else CASTS[from_, to])


@lowering("BatchNormalization")
def batch_normalization(n: Lowering) -> None:
    n.single_output()
    if n.attribute("training_mode", 0):
        n.refuse("BatchNormalization in training mode has no GPU kernel")
    if n.version < 9 and not n.attribute("spatial", 1):
        n.refuse("BatchNormalization per element (spatial=0) has no GPU kernel")
    if not all(n.is_constant(i) for i in (1, 2, 3, 4)):
        n.refuse("the statistics of BatchNormalization are not constants")
    x = n.operand(0)
    channels = n.input(1).size
    shape = (channels,) + (1,) * (len(x.shape) - 2)
    epsilon = n.attribute("epsilon", 1e-5)

    def scale(s: np.ndarray, variance: np.ndarray) -> np.ndarray:
        return (s.astype(np.float64) / np.sqrt(variance.astype(np.float64) + epsilon)).astype(np.float32)

    def shift(s: np.ndarray, b: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        s64 = s.astype(np.float64) / np.sqrt(variance.astype(np.float64) + epsilon)
        return (b - mean * s64).astype(np.float32)

    factor = Operand(n.derive((1, 4), f"scale {epsilon}", scale), shape, "f32")
    offset = Operand(n.derive((1, 2, 3, 4), f"shift {epsilon}", shift), shape, "f32")
    n.emit_map([x, factor, offset], "{0} * {1} + {2}")
