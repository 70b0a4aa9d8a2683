"""What the models of ai.onnx.ml share: turning scores into probabilities and labels, and prepared attributes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from ...graph.ir import STRING
from ..activations import sigmoid, softmax

DOMAIN = "ai.onnx.ml"

T = TypeVar("T")

_PREPARED: OrderedDict[tuple[int, ...], tuple[tuple[Any, ...], Any]] = OrderedDict()
_PREPARED_LIMIT = 32


def prepared(build: Callable[..., T], *attributes: Any) -> T:
    """``build(*attributes)``, remembered while the very same attribute objects come again.

    Models hold tables of many thousand entries in attributes, which arrive unchanged at every run.
    """
    key = (id(build), *map(id, attributes))
    found = _PREPARED.get(key)
    if found is not None:
        _PREPARED.move_to_end(key)
        return found[1]
    result = build(*attributes)
    # The attributes are kept with the result, so that their identities are not given to other objects.
    _PREPARED[key] = ((build, *attributes), result)
    if len(_PREPARED) > _PREPARED_LIMIT:
        _PREPARED.popitem(last=False)
    return result


def softmax_zero(scores: np.ndarray) -> np.ndarray:
    """Softmax over the last axis in which scores of zero stay zero."""
    top = scores.max(axis=-1, keepdims=True)
    weights = np.where(np.abs(scores) > 1e-7, np.exp(scores - top), scores * np.exp(-top))
    total = weights.sum(axis=-1, keepdims=True)
    return np.where(total == 0, 0.5, weights / np.where(total == 0, 1, total))


def probit(p: np.ndarray) -> np.ndarray:
    """The inverse of the normal distribution, by Winitzki's approximation of the inverse error function (2008),
    as other runtimes compute it."""
    x = 2 * p - 1
    log = np.log((1 - x) * (1 + x))
    v = 2 / (np.pi * 0.147) + log / 2
    root = np.sqrt(np.sqrt(v * v - log / 0.147) - v)
    return np.where((1 - x) * (1 + x) == 0, 0, np.sqrt(2) * np.sign(x) * root)


POST_TRANSFORMS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "NONE": lambda scores: scores,
    "LOGISTIC": sigmoid,
    "SOFTMAX": softmax,
    "SOFTMAX_ZERO": softmax_zero,
    "PROBIT": probit,
}


def post_transform_of(name: str) -> Callable[[np.ndarray], np.ndarray]:
    """The function of an attribute `post_transform`, over scores (rows, classes)."""
    if name not in POST_TRANSFORMS:
        raise ValueError(f"post_transform is {name!r}; known are {', '.join(POST_TRANSFORMS)}")
    return POST_TRANSFORMS[name]


def class_labels(integers: Sequence[int] | None, strings: Sequence[str] | None, count: int) -> np.ndarray:
    """The labels of `count` classes: integers, strings, or else their numbers."""
    if strings:
        return np.array(strings, STRING)
    if integers:
        return np.array(integers, np.int64)
    return np.arange(count, dtype=np.int64)


def to_float(x: np.ndarray) -> np.ndarray:
    """Inputs as float64 if they are that, else as float32."""
    return x if x.dtype == np.float64 else x.astype(np.float32)


def as_matrix(x: np.ndarray) -> np.ndarray:
    """A vector as one row."""
    if x.ndim == 1:
        return x[None]
    if x.ndim != 2:
        raise ValueError(f"the input must be a matrix, but has shape {list(x.shape)}")
    return x
