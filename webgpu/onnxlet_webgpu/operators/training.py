"""Steps of optimisers: ai.onnx.preview.training. Their twins are in `onnxlet.ops.training`."""

from __future__ import annotations

from ..kernel import Operand
from ..lowering import Lowering, lowering
from ..storage import PAIR
from ..wgsl import literal

TRAINING = "ai.onnx.preview.training"


def _f(value: float) -> str:
    return literal(value, "f32")


def _groups(n: Lowering, count: int) -> list[list[Operand]]:
    """For each optimised tensor the operands that belong to it, out of `count` lists one after another."""
    each = (len(n.step.node.inputs) - 2) // count
    return [[n.operand(2 + j * each + i) for j in range(count)] for i in range(each)]


def _rate_and_steps(n: Lowering) -> tuple[Operand, Operand, str]:
    """The learning rate, how many steps there were, and the text of these as f32."""
    steps = n.input(1, "int64")
    return n.operand(0), Operand(steps.value, (), PAIR), "float_of_pair({1})"


@lowering("Adagrad", domain=TRAINING)
def adagrad(n: Lowering) -> None:
    rate, steps, t = _rate_and_steps(n)
    decay, epsilon = _f(n.attribute("decay_factor", 0.0)), _f(n.attribute("epsilon", 1e-6))
    norm = _f(n.attribute("norm_coefficient", 0.0))
    groups = _groups(n, 3)
    g = f"({norm} * {{2}} + {{3}})"
    for i, group in enumerate(groups):
        operands = [rate, steps, *group]
        square = f"({{4}} + {g} * {g})"
        step = f"{{0}} / (1.0 + {t} * {decay}) * {g} / (sqrt({square}) + {epsilon})"
        n.emit_map(operands, f"{{2}} - {step}", n.output(i, "float32"))
        n.emit_map(operands, square, n.output(len(groups) + i, "float32"))


@lowering("Adam", domain=TRAINING)
def adam(n: Lowering) -> None:
    rate, steps, t = _rate_and_steps(n)
    alpha, beta = n.attribute("alpha", 0.9), n.attribute("beta", 0.999)
    epsilon, norm = _f(n.attribute("epsilon", 1e-6)), _f(n.attribute("norm_coefficient", 0.0))
    kept = _f(1 - n.attribute("norm_coefficient_post", 0.0))
    groups = _groups(n, 4)
    g = f"({norm} * {{2}} + {{3}})"
    average = f"({_f(alpha)} * {{4}} + {_f(1 - alpha)} * {g})"
    square = f"({_f(beta)} * {{5}} + {_f(1 - beta)} * {g} * {g})"
    corrected = f"{{0}} * sqrt(1.0 - power({_f(beta)}, {t})) / (1.0 - power({_f(alpha)}, {t}))"
    step = f"select({{0}}, {corrected}, {t} > 0.0) * {average} / (sqrt({square}) + {epsilon})"
    for i, group in enumerate(groups):
        operands = [rate, steps, *group]
        for k, expression in enumerate((f"{kept} * ({{2}} - {step})", average, square)):
            n.emit_map(operands, expression, n.output(k * len(groups) + i, "float32"))


@lowering("Momentum", domain=TRAINING)
def momentum(n: Lowering) -> None:
    rate, steps, t = _rate_and_steps(n)
    alpha, beta = _f(n.attribute("alpha")), _f(n.attribute("beta"))
    norm = _f(n.attribute("norm_coefficient"))
    groups = _groups(n, 3)
    g = f"({norm} * {{2}} + {{3}})"
    velocity = f"({alpha} * {{4}} + select(1.0, {beta}, {t} > 0.0) * {g})"
    direction = f"({g} + {alpha} * {velocity})" if n.attribute("mode") == "nesterov" else velocity
    for i, group in enumerate(groups):
        operands = [rate, steps, *group]
        n.emit_map(operands, f"{{2}} - {{0}} * {direction}", n.output(i, "float32"))
        n.emit_map(operands, velocity, n.output(len(groups) + i, "float32"))
