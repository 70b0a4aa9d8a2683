"""Losses: NegativeLogLikelihoodLoss, SoftmaxCrossEntropyLoss."""

from __future__ import annotations

import numpy as np

from .activations import log_softmax
from .common import to_float32
from .precision import narrow
from .registry import op


def log_likelihood_loss(
    log_prob: np.ndarray,
    target: np.ndarray,
    weight: np.ndarray | None,
    ignore_index: int | None,
    reduction: str,
) -> np.ndarray:
    """The weighted negative of the target classes' log probabilities (batch, classes, ...).

    Targets equal to `ignore_index`, which need not be a class, count nothing. The mean is weighted.
    """
    classes = log_prob.shape[1]
    counted = np.ones(target.shape, bool) if ignore_index is None else target != ignore_index
    if counted.any() and not 0 <= target[counted].min() <= target[counted].max() < classes:
        raise ValueError(f"targets reach {target[counted].min()} to {target[counted].max()} of {classes} classes")
    chosen = np.where(counted, target, 0).astype(np.int64)
    picked = np.take_along_axis(log_prob, chosen[:, None], axis=1)[:, 0]
    weights = np.ones((), log_prob.dtype) if weight is None else weight[chosen]
    weights = np.where(counted, weights, log_prob.dtype.type(0))
    loss = np.where(counted, -picked * weights, log_prob.dtype.type(0))
    if reduction == "none":
        return loss
    if reduction == "sum":
        return loss.sum()
    if reduction == "mean":
        return loss.sum() / weights.sum()
    raise ValueError(f"reduction is {reduction!r}; none, sum and mean are known")


@op("NegativeLogLikelihoodLoss", since=12)
def negative_log_likelihood_loss(
    log_prob: np.ndarray,
    target: np.ndarray,
    weight: np.ndarray | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
):
    loss = log_likelihood_loss(to_float32(log_prob), target, to_float32(weight), ignore_index, reduction)
    return narrow(np.asarray(loss), log_prob.dtype)


@op("SoftmaxCrossEntropyLoss", since=12)
def softmax_cross_entropy_loss(
    scores: np.ndarray,
    labels: np.ndarray,
    weights: np.ndarray | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
):
    log_prob = log_softmax(to_float32(scores), axis=1)
    loss = log_likelihood_loss(log_prob, labels, to_float32(weights), ignore_index, reduction)
    return narrow(np.asarray(loss), scores.dtype), narrow(log_prob, scores.dtype)
