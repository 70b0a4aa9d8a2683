"""From scores to labels and probabilities, as the models of ai.onnx.ml end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from onnxlet.providers.base import Step

from ..compiler import Compiler, Place
from ..engine import f32
from .common import I64, TYPE_CODES, grain, output_dtype, output_shape
from .registry import Refused

AS_THEY_ARE, COMPLEMENT, OPPOSITE = range(3)
TRANSFORMS = {"NONE": 0, "SOFTMAX": 1, "LOGISTIC": 2, "SOFTMAX_ZERO": 3}
ROW_COST = 30
"""Multiply-adds that finishing a score is worth."""


def transform_number(name: str) -> int:
    """The kernels' number of a `post_transform`."""
    if name not in TRANSFORMS:
        raise Refused(f"post_transform {name} has no kernel")
    return TRANSFORMS[name]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of raw scores: see the kernel `class_scores`.

    Without `threshold`, the largest score tells which of the labels it is; with it, whether it is the second.
    Labels are output 0, where there are any; `scores` says which output the scores are.
    """

    transform: int
    labels: Sequence[int] | None = None
    base: np.ndarray | None = None
    pair: int = AS_THEY_ARE
    threshold: float | None = None
    scores: int = 1


def _wanted(step: Step, index: int) -> bool:
    return index < len(step.node.outputs) and bool(step.node.outputs[index])


def check_verdict(step: Step, verdict: Verdict, rows: int, count: int) -> None:
    """Refuse outputs that are not of the types and shapes that the kernel writes."""
    width = 2 if verdict.pair else count
    if verdict.labels is not None:
        if len(verdict.labels) < (count if verdict.threshold is None else 2):
            raise Refused("fewer labels than scores have no kernel")
        if _wanted(step, 0) and (output_dtype(step) != I64 or output_shape(step) != (rows,)):
            raise Refused("labels of this type or shape have no kernel")
    if _wanted(step, verdict.scores) and (
        output_dtype(step, verdict.scores) != np.float32 or output_shape(step, verdict.scores) != (rows, width)
    ):
        raise Refused("scores of this type or shape have no kernel")


def emit_verdict(c: Compiler, verdict: Verdict, x: Place, dtype: np.dtype, rows: int, count: int) -> None:
    """The outputs of the current step, from `count` scores at `x` for each row."""
    labels = verdict.labels if verdict.labels is not None and c.wanted(0) else None
    shown = c.wanted(verdict.scores)
    start = verdict.base if verdict.base is not None and verdict.base.any() else None
    c.emit(
        "class_scores", units=rows, grain=grain(rows, rows * count * ROW_COST), scratch=8 * (count + 1),
        type=TYPE_CODES[dtype], x=x, count=count, base=0 if start is None else c.data(start), pair=verdict.pair,
        labels=0 if labels is None else c.words(labels), by_threshold=int(verdict.threshold is not None),
        threshold=f32(verdict.threshold or 0.0), transform=verdict.transform,
        label=0 if labels is None else c.output(0), y=c.output(verdict.scores) if shown else 0,
    )  # fmt: skip
