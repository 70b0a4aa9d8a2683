"""Linear models and scalings of ai.onnx.ml."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..registry import op
from .scores import DOMAIN, as_matrix, class_labels, post_transform_of, to_float


def linear_scores(x: np.ndarray, coefficients: Sequence[float], intercepts: Sequence[float] | None) -> np.ndarray:
    """x @ coefficients.T + intercepts, with one row of coefficients per score."""
    x = to_float(as_matrix(x))
    if x.shape[1] == 0 or len(coefficients) % x.shape[1]:
        raise ValueError(f"{len(coefficients)} coefficients do not fit an input of {x.shape[1]} features")
    scores = np.matmul(x, np.asarray(coefficients, x.dtype).reshape(-1, x.shape[1]).T)
    return scores + np.asarray(intercepts, x.dtype) if intercepts else scores


@op("LinearClassifier", domain=DOMAIN)
def linear_classifier(
    x: np.ndarray,
    *,
    coefficients: Sequence[float],
    intercepts: Sequence[float] | None = None,
    classlabels_ints: Sequence[int] | None = None,
    classlabels_strings: Sequence[str] | None = None,
    multi_class: int = 0,
    post_transform: str = "NONE",
):
    scores = linear_scores(x, coefficients, intercepts)
    transform = post_transform_of(post_transform)
    labels = class_labels(classlabels_ints, classlabels_strings, scores.shape[1])
    if scores.shape[1] == 1:
        positive = scores[:, 0] > 0
        if len(labels) == 2:
            pair = transform(np.concatenate([-scores, scores], axis=1))
            return labels[positive.astype(np.int64)], pair.astype(np.float32)
        known = ["0", "1"] if labels.dtype == object else [0, 1]
        return np.array(known, labels.dtype)[positive.astype(np.int64)], transform(scores).astype(np.float32)
    return labels[scores.argmax(axis=1)], transform(scores).astype(np.float32)


@op("LinearRegressor", domain=DOMAIN)
def linear_regressor(
    x: np.ndarray,
    *,
    coefficients: Sequence[float] = (),
    intercepts: Sequence[float] | None = None,
    post_transform: str = "NONE",
    targets: int = 1,
):
    scores = linear_scores(x, coefficients, intercepts)
    return post_transform_of(post_transform)(scores).astype(np.float32)


@op("Scaler", domain=DOMAIN)
def scaler(x: np.ndarray, *, offset: Sequence[float] | None = None, scale: Sequence[float] | None = None):
    """(x - offset) * scale; each is one number or one per feature."""
    y = to_float(x)
    if offset:
        y = y - np.asarray(offset, y.dtype)
    if scale:
        y = y * np.asarray(scale, y.dtype)
    return y.astype(np.float32)


@op("Normalizer", domain=DOMAIN)
def normalizer(x: np.ndarray, *, norm: str = "MAX"):
    """Rows divided by their norm; a row whose norm is 0 stays as it is."""
    y = to_float(x)
    if norm == "MAX":
        size = y.max(axis=-1, keepdims=True)  # of the values, not their magnitudes: so the specification
    elif norm == "L1":
        size = np.abs(y).sum(axis=-1, keepdims=True)
    elif norm == "L2":
        size = np.sqrt(np.square(y).sum(axis=-1, keepdims=True))
    else:
        raise ValueError(f"norm is {norm!r}; MAX, L1 and L2 are known")
    return (y / np.where(size == 0, 1, size)).astype(np.float32)


@op("Binarizer", domain=DOMAIN)
def binarizer(x: np.ndarray, *, threshold: float = 0.0):
    return (x > threshold).astype(x.dtype)
