"""Support vector machines, as libsvm defines them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..activations import sigmoid
from ..registry import op
from .scores import DOMAIN, as_matrix, class_labels, post_transform_of, to_float


def kernel(a: np.ndarray, b: np.ndarray, kind: str, params: Sequence[float] | None) -> np.ndarray:
    """The kernel between all rows of `a` and all rows of `b`."""
    gamma, coef0, degree = params if params else (0.0, 0.0, 0.0)
    if kind == "RBF":
        squares = np.square(a).sum(axis=1)[:, None] + np.square(b).sum(axis=1) - 2 * np.matmul(a, b.T)
        return np.exp(-gamma * np.maximum(squares, 0))
    product = np.matmul(a, b.T)
    if kind == "LINEAR":
        return product
    if kind == "POLY":
        return (gamma * product + coef0) ** degree
    if kind == "SIGMOID":
        return np.tanh(gamma * product + coef0)
    raise ValueError(f"kernel_type is {kind!r}; LINEAR, POLY, RBF and SIGMOID are known")


@op("SVMRegressor", domain=DOMAIN)
def svm_regressor(
    x: np.ndarray,
    *,
    coefficients: Sequence[float] = (),
    kernel_params: Sequence[float] | None = None,
    kernel_type: str = "LINEAR",
    n_supports: int = 0,
    one_class: int = 0,
    post_transform: str = "NONE",
    rho: Sequence[float] = (0.0,),
    support_vectors: Sequence[float] = (),
):
    """With `one_class` the result is 1 for inliers and -1 for outliers."""
    rows = to_float(as_matrix(x)).astype(np.float64)
    weights = np.asarray(coefficients, np.float64)
    if n_supports:
        vectors = np.asarray(support_vectors, np.float64).reshape(n_supports, -1)
        y = np.matmul(kernel(rows, vectors, kernel_type, kernel_params), weights[:n_supports])
    else:
        y = np.matmul(rows, weights)
    y = y + rho[0]
    if one_class:
        y = np.where(y > 0, 1.0, -1.0)
    return post_transform_of(post_transform)(y[:, None]).astype(np.float32)


def pairs(classes: int) -> list[tuple[int, int]]:
    """Pairs of classes in libsvm's order."""
    return [(i, j) for i in range(classes) for j in range(i + 1, classes)]


def pairwise_decisions(
    kernels: np.ndarray, coefficients: np.ndarray, counts: Sequence[int], rho: Sequence[float]
) -> np.ndarray:
    """The decision value of each pair of classes, (rows, pairs). Support vectors are sorted by class."""
    starts = np.concatenate([[0], np.cumsum(counts)])
    decisions = []
    for k, (i, j) in enumerate(pairs(len(counts))):
        own, other = slice(starts[i], starts[i + 1]), slice(starts[j], starts[j + 1])
        decisions.append(
            kernels[:, own] @ coefficients[j - 1, own] + kernels[:, other] @ coefficients[i, other] + rho[k]
        )
    return np.stack(decisions, axis=1)


def couple(pairwise: np.ndarray) -> np.ndarray:
    """Class probabilities (rows, k) from pairwise ones (rows, k, k).

    The second method of Wu, Lin and Weng, "Probability Estimates for Multi-class Classification by Pairwise
    Coupling" (2004), with libsvm's stopping rule.
    """
    rows, k, _ = pairwise.shape
    off_diagonal = pairwise * (1 - np.eye(k))
    q = -off_diagonal.swapaxes(1, 2) * off_diagonal
    diagonal = np.square(off_diagonal).sum(axis=1)
    index = np.arange(k)
    q[:, index, index] = diagonal
    p = np.full((rows, k), 1 / k)
    running = np.ones(rows, bool)
    for _ in range(max(100, k)):
        qp = np.einsum("rij,rj->ri", q, p)
        pqp = (p * qp).sum(axis=1)
        running &= np.abs(qp - pqp[:, None]).max(axis=1) >= 0.005 / k
        if not running.any():
            break
        for t in range(k):
            step = np.where(running, (pqp - qp[:, t]) / diagonal[:, t], 0)
            p[:, t] += step
            pqp = (pqp + step * (step * diagonal[:, t] + 2 * qp[:, t])) / (1 + step) ** 2
            qp = (qp + step[:, None] * q[:, t]) / (1 + step[:, None])
            p = p / (1 + step[:, None])
    return p


@op("SVMClassifier", domain=DOMAIN)
def svm_classifier(
    x: np.ndarray,
    *,
    classlabels_ints: Sequence[int] | None = None,
    classlabels_strings: Sequence[str] | None = None,
    coefficients: Sequence[float] = (),
    kernel_params: Sequence[float] | None = None,
    kernel_type: str = "LINEAR",
    post_transform: str = "NONE",
    prob_a: Sequence[float] | None = None,
    prob_b: Sequence[float] | None = None,
    rho: Sequence[float] = (),
    support_vectors: Sequence[float] = (),
    vectors_per_class: Sequence[int] = (),
):
    """Labels are the classes that win most pairwise decisions.

    Scores are class probabilities where `prob_a` and `prob_b` are given, else decision values: one per pair of
    classes (for two classes the value that votes for the first, its opposite before it), or with linear coefficients
    alone one per class.
    """
    rows = to_float(as_matrix(x)).astype(np.float64)
    weights = np.asarray(coefficients, np.float64)
    labels = class_labels(classlabels_ints, classlabels_strings, max(len(vectors_per_class), 1))
    total = sum(vectors_per_class)
    transform = post_transform_of(post_transform)
    if not total:
        scores = np.matmul(rows, weights.reshape(len(labels), -1).T) + rho[0]
        return labels[scores.argmax(axis=1)], transform(scores).astype(np.float32)
    vectors = np.asarray(support_vectors, np.float64).reshape(total, -1)
    kernels = kernel(rows, vectors, kernel_type, kernel_params)
    decisions = pairwise_decisions(kernels, weights.reshape(-1, total), vectors_per_class, rho)
    classes = len(vectors_per_class)
    votes = np.zeros((len(rows), classes))
    for k, (i, j) in enumerate(pairs(classes)):
        wins = decisions[:, k] > 0
        votes[:, i] += wins
        votes[:, j] += ~wins
    best = votes.argmax(axis=1)
    if prob_a and prob_b:
        pairwise = np.zeros((len(rows), classes, classes))
        for k, (i, j) in enumerate(pairs(classes)):
            p = np.clip(sigmoid(-(decisions[:, k] * prob_a[k] + prob_b[k])), 1e-7, 1 - 1e-7)
            pairwise[:, i, j], pairwise[:, j, i] = p, 1 - p
        return labels[best], transform(couple(pairwise)).astype(np.float32)
    if classes == 2:
        pair = np.concatenate([-decisions, decisions], axis=1)
        return labels[best], transform(pair).astype(np.float32)
    return labels[best], transform(decisions).astype(np.float32)
