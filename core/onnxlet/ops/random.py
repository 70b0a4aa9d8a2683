"""Random numbers. With a `seed` they are the same in every run on every machine; other runtimes draw others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..model.dtypes import dtype_of
from .cast import convert
from .common import to_float32
from .registry import op


def _generator(seed: float | None) -> np.random.Generator:
    return np.random.default_rng(None if seed is None else int(np.float32(seed).view(np.uint32)))


def _normal(shape: Sequence[int], dtype: np.dtype, mean: float, scale: float, seed: float | None):
    return convert(mean + scale * _generator(seed).standard_normal(shape), dtype)


def _uniform(shape: Sequence[int], dtype: np.dtype, low: float, high: float, seed: float | None):
    return convert(low + (high - low) * _generator(seed).random(shape), dtype)


@op("RandomNormal")
def random_normal(
    *, shape: list[int], dtype: int = 1, mean: float = 0.0, scale: float = 1.0, seed: float | None = None
):
    return _normal(shape, dtype_of(dtype), mean, scale, seed)


@op("RandomNormalLike")
def random_normal_like(
    x: np.ndarray, *, dtype: int | None = None, mean: float = 0.0, scale: float = 1.0, seed: float | None = None
):
    return _normal(x.shape, x.dtype if dtype is None else dtype_of(dtype), mean, scale, seed)


@op("RandomUniform")
def random_uniform(*, shape: list[int], dtype: int = 1, low: float = 0.0, high: float = 1.0, seed: float | None = None):
    return _uniform(shape, dtype_of(dtype), low, high, seed)


@op("RandomUniformLike")
def random_uniform_like(
    x: np.ndarray, *, dtype: int | None = None, low: float = 0.0, high: float = 1.0, seed: float | None = None
):
    return _uniform(x.shape, x.dtype if dtype is None else dtype_of(dtype), low, high, seed)


@op("Bernoulli", since=15)
def bernoulli(x: np.ndarray, *, dtype: int | None = None, seed: float | None = None):
    """1 with the probability that `x` gives, else 0."""
    drawn = _generator(seed).random(x.shape) < to_float32(x)
    return convert(np.asarray(drawn), x.dtype if dtype is None else dtype_of(dtype))


@op("Multinomial", since=7)
def multinomial(x: np.ndarray, *, dtype: int = 6, sample_size: int = 1, seed: float | None = None):
    """For each row of unnormalised log-probabilities (batch, classes), `sample_size` classes drawn with replacement."""
    if x.ndim != 2 or x.shape[1] == 0:
        raise ValueError(f"the input must have shape [batch, classes], but has {list(x.shape)}")
    scores = to_float32(x).astype(np.float64)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    steps = np.cumsum(weights, axis=1)
    drawn = _generator(seed).random((len(x), sample_size)) * steps[:, -1:]
    classes = (drawn[:, :, None] >= steps[:, None, :]).sum(axis=2)
    return np.minimum(classes, x.shape[1] - 1).astype(dtype_of(dtype))
