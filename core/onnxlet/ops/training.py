"""Optimisers of the domain ai.onnx.preview.training: one step each, for any number of tensors."""

from __future__ import annotations

import numpy as np

from .registry import op

DOMAIN = "ai.onnx.preview.training"


def groups(tensors: tuple[np.ndarray, ...], count: int) -> list[tuple[np.ndarray, ...]]:
    """For each optimised tensor what belongs to it, from `count` lists that follow each other."""
    if len(tensors) % count:
        raise ValueError(f"{len(tensors)} tensors are not {count} lists of equal length")
    n = len(tensors) // count
    return [tensors[i::n] for i in range(n)]


def columns(results: list[tuple[np.ndarray, ...]]) -> tuple[np.ndarray, ...]:
    """First results of all tensors, then second ones, and so on."""
    return tuple(value for column in zip(*results, strict=True) for value in column)


@op("Adagrad", domain=DOMAIN)
def adagrad(
    r: np.ndarray,
    t: np.ndarray,
    *tensors: np.ndarray,
    decay_factor: float = 0.0,
    epsilon: float = 1e-6,
    norm_coefficient: float = 0.0,
):
    """Tensors, their gradients, their accumulated squared gradients; returns tensors and squares."""
    rate = r / (1 + t * decay_factor)
    results = []
    for x, gradient, squares in groups(tensors, 3):
        g = norm_coefficient * x + gradient
        h = squares + g * g
        results.append(((x - rate * g / (np.sqrt(h) + epsilon)).astype(x.dtype), h))
    return columns(results)


@op("Adam", domain=DOMAIN)
def adam(
    r: np.ndarray,
    t: np.ndarray,
    *tensors: np.ndarray,
    alpha: float = 0.9,
    beta: float = 0.999,
    epsilon: float = 1e-6,
    norm_coefficient: float = 0.0,
    norm_coefficient_post: float = 0.0,
):
    """Tensors, their gradients, averaged gradients, averaged squares; returns tensors, averages and squares."""
    steps = int(t)
    rate = r * np.sqrt(1 - beta**steps) / (1 - alpha**steps) if steps > 0 else r
    results = []
    for x, gradient, average, squares in groups(tensors, 4):
        g = norm_coefficient * x + gradient
        v = alpha * average + (1 - alpha) * g
        h = beta * squares + (1 - beta) * g * g
        new = (1 - norm_coefficient_post) * (x - rate * v / (np.sqrt(h) + epsilon))
        results.append((new.astype(x.dtype), v, h))
    return columns(results)


@op("Momentum", domain=DOMAIN)
def momentum(
    r: np.ndarray,
    t: np.ndarray,
    *tensors: np.ndarray,
    alpha: float,
    beta: float,
    mode: str,
    norm_coefficient: float,
):
    """Tensors, their gradients, their momenta; returns tensors and momenta."""
    if mode not in ("standard", "nesterov"):
        raise ValueError(f"mode is {mode!r}; standard and nesterov are known")
    share = beta if int(t) > 0 else 1
    results = []
    for x, gradient, velocity in groups(tensors, 3):
        g = norm_coefficient * x + gradient
        v = alpha * velocity + share * g
        direction = g + alpha * v if mode == "nesterov" else v
        results.append(((x - r * direction).astype(x.dtype), v))
    return columns(results)
