"""Activation functions by name, as attributes of recurrent and fused operators give them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from . import activations as named

Activation = Callable[[np.ndarray], np.ndarray]


def identity(x: np.ndarray) -> np.ndarray:
    return x


# name in lower case: (function of x and its parameters, the parameters' defaults)
_TABLE: dict[str, tuple[Callable[..., np.ndarray], tuple[float, ...]]] = {
    "": (identity, ()),
    "relu": (named.relu, ()),
    "tanh": (np.tanh, ()),
    "sigmoid": (named.sigmoid, ()),
    "affine": (lambda x, alpha, beta: alpha * x + beta, (1.0, 0.0)),
    "leakyrelu": (lambda x, alpha: named.leaky_relu(x, alpha=alpha), (0.01,)),
    "thresholdedrelu": (lambda x, alpha: np.where(x >= alpha, x, x.dtype.type(0)), (1.0,)),
    "scaledtanh": (lambda x, alpha, beta: alpha * np.tanh(beta * x), (1.0, 1.0)),
    "hardsigmoid": (lambda x, alpha, beta: named.hard_sigmoid(x, alpha=alpha, beta=beta), (0.2, 0.5)),
    "elu": (lambda x, alpha: named.elu(x, alpha=alpha), (1.0,)),
    "softsign": (named.softsign, ()),
    "softplus": (named.softplus, ()),
    "clip": (lambda x, low, high: np.clip(x, low, high), (float("-inf"), float("inf"))),
    "hardswish": (named.hard_swish, ()),
    "silu": (named.swish, ()),
    "gelu": (named.gelu, ()),
    "gelutanh": (lambda x: named.gelu(x, approximate="tanh"), ()),
}


def parameter_defaults(name: str) -> tuple[float, ...]:
    """The parameters that an activation takes, at their defaults. Raises ValueError for an unknown name."""
    if name.lower() not in _TABLE:
        raise ValueError(f"activation {name!r} is unknown; known are {', '.join(filter(None, sorted(_TABLE)))}")
    return _TABLE[name.lower()][1]


def activation(name: str, parameters: Sequence[float] = ()) -> Activation:
    """The activation function of that name (any case) with its parameters filled in; "" is the identity."""
    defaults = parameter_defaults(name)
    function = _TABLE[name.lower()][0]
    values = (*parameters, *defaults[len(parameters) :])[: len(defaults)]
    return (lambda x: function(x, *values)) if values else function


def consume(names: Sequence[str], alphas: Sequence[float], betas: Sequence[float]) -> list[Activation]:
    """Activation functions that take their alpha and beta, in order, from two lists; defaults when those run out."""
    alphas, betas = list(alphas), list(betas)
    result = []
    for name in names:
        defaults = parameter_defaults(name)
        given = [values.pop(0) if values else default for values, default in zip((alphas, betas), defaults)]  # noqa: B905
        result.append(activation(name, given))
    return result
