"""Normalisation over batches, channels, groups and neighbourhoods, and Dropout."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..model.dtypes import dtype_of
from .common import to_float32
from .precision import full_precision, narrow
from .registry import op


def per_channel(values: np.ndarray, rank: int) -> np.ndarray:
    """Values (C) shaped to broadcast over (N, C, ...)."""
    return values.reshape(-1, *(1,) * max(rank - 2, 0))


def standardize(x: np.ndarray, axes: tuple[int, ...], epsilon: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`x` with mean 0 and variance 1 over `axes`; also the mean and the reciprocal of the standard deviation."""
    mean = x.mean(axis=axes, keepdims=True)
    centred = x - mean
    variance = (centred * centred).mean(axis=axes, keepdims=True)
    inverse = 1 / np.sqrt(variance + x.dtype.type(epsilon))
    return centred * inverse, mean, inverse


def batch_statistics(x: np.ndarray, spatial: bool) -> tuple[np.ndarray, np.ndarray]:
    """Mean and population variance of each channel (of each activation if not `spatial`)."""
    axes = (0, *range(2, x.ndim)) if spatial else (0,)
    mean = x.mean(axis=axes, keepdims=True)
    variance = np.square(x - mean).mean(axis=axes)
    return mean.reshape(variance.shape), variance


def scale_shift(
    x: np.ndarray,
    scale: np.ndarray,
    bias: np.ndarray,
    mean: np.ndarray,
    variance: np.ndarray,
    epsilon: float,
    spatial: bool = True,
) -> np.ndarray:
    """Batch normalisation with given statistics, of shape (C), or of an image's shape if not `spatial`."""
    factor = scale / np.sqrt(variance + x.dtype.type(epsilon))
    if spatial and x.ndim > 1:
        factor, mean, bias = (per_channel(v, x.ndim) for v in (factor, mean, bias))
    return (x - mean) * factor + bias


def batch_normalization_9_impl(x, scale, b, mean, var, epsilon, momentum, spatial, training, n_outputs):
    """The versions before 14: training yields the running and the batch's own statistics."""
    dtype = x.dtype
    x, scale, b, mean, var = (full_precision(v) for v in (x, scale, b, mean, var))
    if not training:
        return narrow(scale_shift(x, scale, b, mean, var, epsilon, spatial), dtype)
    batch_mean, batch_var = batch_statistics(x, spatial)
    keep = x.dtype.type(momentum)
    y = scale_shift(x, scale, b, batch_mean, batch_var, epsilon, spatial)
    running_mean = mean * keep + batch_mean * (1 - keep)
    running_var = var * keep + batch_var * (1 - keep)
    results = (y, running_mean, running_var, batch_mean, batch_var)
    return tuple(narrow(r, dtype) for r in results[:n_outputs])


@op("BatchNormalization")
def batch_normalization_1(
    x: np.ndarray,
    scale: np.ndarray,
    b: np.ndarray,
    mean: np.ndarray,
    var: np.ndarray,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    spatial: int = 1,
    is_test: int = 0,
    n_outputs: int = 1,
):
    """Training mode takes more than one output and `is_test` = 0."""
    training = not is_test and n_outputs > 1
    return batch_normalization_9_impl(x, scale, b, mean, var, epsilon, momentum, bool(spatial), training, n_outputs)


@op("BatchNormalization", since=7)
def batch_normalization_7(
    x: np.ndarray,
    scale: np.ndarray,
    b: np.ndarray,
    mean: np.ndarray,
    var: np.ndarray,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    spatial: int = 1,
    n_outputs: int = 1,
):
    """The number of outputs tells training from inference."""
    return batch_normalization_9_impl(
        x, scale, b, mean, var, epsilon, momentum, bool(spatial), n_outputs > 1, n_outputs
    )


@op("BatchNormalization", since=14)
def batch_normalization_14(
    x: np.ndarray,
    scale: np.ndarray,
    b: np.ndarray,
    input_mean: np.ndarray,
    input_var: np.ndarray,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
):
    wide, scale, b, mean, var = (full_precision(v) for v in (x, scale, b, input_mean, input_var))
    if not training_mode:
        return narrow(scale_shift(wide, scale, b, mean, var, epsilon), x.dtype)
    batch_mean, batch_var = batch_statistics(wide, spatial=True)
    keep = wide.dtype.type(momentum)
    return (
        narrow(scale_shift(wide, scale, b, batch_mean, batch_var, epsilon), x.dtype),
        narrow(mean * keep + batch_mean * (1 - keep), input_mean.dtype),
        narrow(var * keep + batch_var * (1 - keep), input_var.dtype),
    )


@op("InstanceNormalization")
def instance_normalization(
    x: np.ndarray,
    scale: np.ndarray,
    b: np.ndarray,
    *,
    epsilon: float = 1e-5,
):
    normalized, _, _ = standardize(to_float32(x), tuple(range(2, x.ndim)), epsilon)
    return narrow(normalized * per_channel(to_float32(scale), x.ndim) + per_channel(to_float32(b), x.ndim), x.dtype)


def grouped(x: np.ndarray, num_groups: int, epsilon: float) -> np.ndarray:
    """`x` (N, C, ...) standardised over each group of channels, as (N, groups, C / groups, -1)."""
    if num_groups < 1 or x.shape[1] % num_groups:
        raise ValueError(f"num_groups {num_groups} does not divide the {x.shape[1]} channels")
    groups = to_float32(x).reshape(x.shape[0], num_groups, x.shape[1] // num_groups, -1)
    return standardize(groups, (2, 3), epsilon)[0]


@op("GroupNormalization", since=18)
def group_normalization_18(
    x: np.ndarray, scale: np.ndarray, bias: np.ndarray, *, num_groups: int, epsilon: float = 1e-5
):
    """Scale and bias have one value per group."""
    normalized = grouped(x, num_groups, epsilon)
    scale, bias = (to_float32(v).reshape(-1, 1, 1) for v in (scale, bias))
    return narrow((normalized * scale + bias).reshape(x.shape), x.dtype)


@op("GroupNormalization", since=21)
def group_normalization_21(
    x: np.ndarray,
    scale: np.ndarray,
    bias: np.ndarray,
    *,
    num_groups: int,
    epsilon: float = 1e-5,
    stash_type: int = 1,
):
    """Scale and bias have one value per channel."""
    normalized = grouped(x, num_groups, epsilon)
    scale, bias = (to_float32(v).reshape(num_groups, -1, 1) for v in (scale, bias))
    return narrow((normalized * scale + bias).reshape(x.shape), x.dtype)


def trailing_axes(rank: int, axis: int) -> tuple[int, ...]:
    """The axes from `axis` to the last."""
    if not -rank <= axis < max(rank, 1):
        raise ValueError(f"axis {axis} is out of range for an input of rank {rank}")
    return tuple(range(axis % rank if rank else 0, rank))


@op("LayerNormalization")
def layer_normalization(
    x: np.ndarray,
    scale: np.ndarray,
    b: np.ndarray | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
):
    """Computes in float32 at least, whatever `stash_type` says; mean and deviation have its type.

    Older opsets lack this operator, but optimisers of other runtimes put it there.
    """
    normalized, mean, inverse = standardize(to_float32(x), trailing_axes(x.ndim, axis), epsilon)
    y = normalized * to_float32(scale)
    if b is not None:
        y = y + to_float32(b)
    stash = dtype_of(stash_type)
    return narrow(y, x.dtype), narrow(mean, stash), narrow(inverse, stash)


@op("RMSNormalization", since=23)
def rms_normalization(x: np.ndarray, scale: np.ndarray, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1):
    wide = to_float32(x)
    mean_square = np.square(wide).mean(axis=trailing_axes(x.ndim, axis), keepdims=True)
    normalized = wide / np.sqrt(mean_square + wide.dtype.type(epsilon))
    return narrow(normalized * to_float32(scale), scale.dtype)


@op("LRN")
def lrn(x: np.ndarray, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0):
    wide = to_float32(x)
    channels = x.shape[1]
    if size < 1:
        raise ValueError(f"size is {size}; it must be positive")
    before = min((size - 1) // 2, channels)
    after = min(size - 1 - (size - 1) // 2, channels)
    squares = np.zeros((x.shape[0], before + channels + after, *x.shape[2:]), wide.dtype)
    squares[:, before : before + channels] = np.square(wide)
    total = np.zeros_like(wide)
    for i in range(before + 1 + after):
        total += squares[:, i : i + channels]
    real = wide.dtype.type
    return narrow(wide / (real(bias) + real(alpha / size) * total) ** real(beta), x.dtype)


@op("LpNormalization")
def lp_normalization(x: np.ndarray, *, axis: int = -1, p: int = 2):
    """Where the norm is 0 the result is 0."""
    wide = to_float32(x)
    if p == 1:
        norm = np.abs(wide).sum(axis=axis, keepdims=True)
    elif p == 2:
        norm = np.sqrt(np.square(wide).sum(axis=axis, keepdims=True))
    else:
        raise ValueError(f"p is {p}; 1 and 2 are defined")
    return narrow(wide / np.where(norm == 0, wide.dtype.type(1), norm), x.dtype)


@op("MeanVarianceNormalization", since=9)
def mean_variance_normalization(x: np.ndarray, *, axes: Sequence[int] = (0, 2, 3)):
    wide = to_float32(x)
    centred = wide - wide.mean(axis=tuple(axes), keepdims=True)
    deviation = np.sqrt(np.square(centred).mean(axis=tuple(axes), keepdims=True))
    return narrow(centred / (deviation + wide.dtype.type(1e-9)), x.dtype)


def drop(x: np.ndarray, ratio: float, seed: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Zero a `ratio` of the elements and scale up the others; also says which were kept."""
    if not 0 <= ratio < 1:
        raise ValueError(f"ratio is {ratio}; it must lie in [0, 1)")
    generator = np.random.RandomState(None if seed is None else seed % 2**32)
    kept = generator.uniform(0, 1, x.shape) >= ratio
    wide = to_float32(x)
    return narrow(np.where(kept, wide * wide.dtype.type(1 / (1 - ratio)), wide.dtype.type(0)), x.dtype), kept


@op("Dropout")
def dropout_1(data: np.ndarray, *, ratio: float = 0.5, is_test: int = 0):
    """The mask has the type of the data."""
    if is_test:
        return data, narrow(np.ones(data.shape, np.float32), data.dtype)
    y, kept = drop(data, ratio, None)
    return y, narrow(kept.astype(np.float32), data.dtype)


@op("Dropout", since=7)
def dropout_7(data: np.ndarray, *, ratio: float = 0.5):
    """Inference only; the mask has the type of the data."""
    return data, narrow(np.ones(data.shape, np.float32), data.dtype)


@op("Dropout", since=10)
def dropout_10(data: np.ndarray, *, ratio: float = 0.5):
    """Inference only; the mask is boolean."""
    return data, np.ones(data.shape, bool)


@op("Dropout", since=12)
def dropout_12(
    data: np.ndarray,
    ratio: np.ndarray | None = None,
    training_mode: np.ndarray | None = None,
    *,
    seed: int | None = None,
):
    share = 0.5 if ratio is None else float(to_float32(np.asarray(ratio)).reshape(()))
    if training_mode is None or not bool(np.asarray(training_mode).reshape(())) or share == 0:
        return data, np.ones(data.shape, bool)
    return drop(data, share, seed)
