"""Activations that fused operators (FusedConv, FusedGemm, FusedMatMul) carry as attributes."""

from __future__ import annotations

import math
from collections.abc import Callable

from onnxlet.ops.activation_table import parameter_defaults

from ..lowering import Lowering
from ..wgsl import literal


def _clip(low: float = -math.inf, high: float = math.inf) -> str:
    return f"clip({{0}}, {literal(low, 'f32')}, {literal(high, 'f32')})"


def _leaky_relu(alpha: float = 0.01) -> str:
    return f"select({{0}}, {{0}} * {literal(alpha, 'f32')}, {{0}} < 0.0)"


def _hard_sigmoid(alpha: float = 0.2, beta: float = 0.5) -> str:
    return f"clip({literal(alpha, 'f32')} * {{0}} + {literal(beta, 'f32')}, 0.0, 1.0)"


ACTIVATIONS: dict[str, Callable[..., str]] = {
    "Relu": lambda: "select({0}, 0.0, {0} < 0.0)",
    "Sigmoid": lambda: "sigmoid({0})",
    "Tanh": lambda: "hyperbolic_tangent({0})",
    "HardSwish": lambda: "{0} * clip({0} / 6.0 + 0.5, 0.0, 1.0)",
    "Silu": lambda: "{0} * sigmoid({0})",
    "Swish": lambda: "{0} * sigmoid({0})",
    "Gelu": lambda: "gelu({0})",
    "GeluTanh": lambda: "gelu_tanh({0})",
    "Clip": _clip,
    "LeakyRelu": _leaky_relu,
    "HardSigmoid": _hard_sigmoid,
}
"""Name of an activation to what makes its expression from the parameters."""


def apply_activation(n: Lowering) -> None:
    """Add the activation that the node's attributes name to the last kernel."""
    name = n.attribute("activation", "")
    given = n.attribute("activation_params")
    if not name:
        return
    if name not in ACTIVATIONS:
        n.refuse(f"the activation {name} has no GPU kernel")
    parameters = list(given or [])
    single = [n.attribute("activation_alpha"), n.attribute("activation_beta")]
    if single != [None, None] and name in ("LeakyRelu", "HardSigmoid", "Clip"):
        defaults = parameter_defaults(name)
        parameters = [d if v is None else v for v, d in zip(single, defaults, strict=False)]
    n.extend([n.chain()], ACTIVATIONS[name](*parameters))
