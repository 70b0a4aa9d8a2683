"""Linear models, and what is done to features before and after them."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from onnxlet.ops.ml.scores import DOMAIN, class_labels
from onnxlet.providers.base import Step

from ..compiler import Compiler
from .common import (
    BOOL,
    F32,
    I32,
    I64,
    NO_ACTIVATION,
    dtype_of,
    need_float32,
    need_types,
    output_shape,
    shape_of,
    text,
)
from .expansion import Expansion, expand
from .gemm import gemm_call, packed_matrix
from .registry import Emit, Refused, lower
from .scores import OPPOSITE, Verdict, check_verdict, emit_verdict, transform_number


def _linear(step: Step, scores: int, verdict: Verdict) -> Emit:
    """`scores` linear functions of each row, and what becomes of them."""
    rows, features = _matrix(step)
    coefficients, intercepts = step.attribute("coefficients"), step.attribute("intercepts")
    if intercepts and len(intercepts) not in (1, scores):
        raise Refused(f"{len(intercepts)} intercepts for {scores} scores have no kernel")
    check_verdict(step, verdict, rows, scores)

    def emit(c: Compiler) -> None:
        # The list is this node's own, and lives as long as the tensor, which holds it.
        tensor = c.memory.derivations.get(
            ("coefficients", id(coefficients)), (), F32, (scores, features), lambda: np.asarray(coefficients, F32)
        )
        bias = c.data(np.broadcast_to(np.asarray(intercepts, F32), (scores,))) if intercepts else 0
        y = c.temporary(4 * rows * scores)
        gemm_call(c, c.input(0), features, packed_matrix(c, tensor, features, scores, True), y, scores, rows, scores,
                  features, bias, 0, scores, NO_ACTIVATION)  # fmt: skip
        emit_verdict(c, verdict, y, F32, rows, scores)

    return emit


def _matrix(step: Step) -> tuple[int, int]:
    """Rows and columns of input 0; a vector is one row."""
    need_float32(step, 0)
    shape = shape_of(step, 0)
    if not 1 <= len(shape) <= 2 or not shape[-1]:
        raise Refused("an input that is no matrix has no kernel")
    return prod(shape[:-1]), shape[-1]


def _number_of_scores(step: Step) -> int:
    _, features = _matrix(step)
    scores, rest = divmod(len(step.attribute("coefficients", ())), features)
    if rest or not scores:
        raise Refused("coefficients that do not fit the input have no kernel")
    return scores


@lower("LinearRegressor", domain=DOMAIN)
def linear_regressor(step: Step) -> Emit:
    transform = transform_number(text(step.attribute("post_transform", "NONE")))
    return _linear(step, _number_of_scores(step), Verdict(transform, scores=0))


@lower("LinearClassifier", domain=DOMAIN)
def linear_classifier(step: Step) -> Emit:
    """One score decides between two classes by its sign."""
    scores = _number_of_scores(step)
    if step.attribute("classlabels_strings"):
        raise Refused("labels that are strings have no kernel")
    labels = class_labels(step.attribute("classlabels_ints"), None, scores).tolist()
    transform = transform_number(text(step.attribute("post_transform", "NONE")))
    if scores > 1:
        verdict = Verdict(transform, labels)
    elif len(labels) == 2:
        verdict = Verdict(transform, labels, pair=OPPOSITE, threshold=0.0)
    else:
        verdict = Verdict(transform, [0, 1], threshold=0.0)
    return _linear(step, scores, verdict)


def _floats(e: Expansion) -> str:
    """Input 0 as float32."""
    need_types(e.step, (F32, I32, I64), 0)
    return e.input(0) if dtype_of(e.step, 0) == F32 else e.add("Cast", [e.input(0)], to=1)


def _columns(e: Expansion, values: Sequence[float]) -> str:
    """A number for all columns of input 0, or one for each."""
    shape = shape_of(e.step, 0)
    if not shape or len(values) not in (1, shape[-1]):
        raise Refused(f"{len(values)} values for an input of shape {list(shape)} have no kernel")
    return e.literal(values)


@expand("Scaler", domain=DOMAIN)
def scaler(e: Expansion) -> None:
    y, offset, scale = _floats(e), e.step.attribute("offset"), e.step.attribute("scale")
    if offset:
        y = e.binary("Sub", y, _columns(e, offset), output="" if scale else e.output())
    if scale:
        y = e.binary("Mul", y, _columns(e, scale), output=e.output())
    if not offset and not scale:
        e.add("Identity", [y], output=e.output())


NORMS = {"MAX": "ReduceMax", "L1": "ReduceL1", "L2": "ReduceL2"}


@expand("Normalizer", domain=DOMAIN)
def normalizer(e: Expansion) -> None:
    """A row whose norm is 0 stays as it is."""
    norm, shape = text(e.step.attribute("norm", "MAX")), shape_of(e.step, 0)
    if norm not in NORMS or not shape or not shape[-1]:
        raise Refused(f"norm {norm} of an input of shape {list(shape)} has no kernel")
    x, sizes = _floats(e), (*shape[:-1], 1)
    size = e.add(NORMS[norm], [x], sizes, version=11, axes=[-1], keepdims=1)
    none = e.binary("Equal", size, e.literal(0), dtype=BOOL)
    e.binary("Div", x, e.add("Where", [none, e.literal(1), size], sizes), output=e.output())


@expand("Binarizer", domain=DOMAIN)
def binarizer(e: Expansion) -> None:
    need_float32(e.step, 0)
    above = e.binary("Greater", e.input(0), e.literal(e.step.attribute("threshold", 0.0)), dtype=BOOL)
    e.add("Cast", [above], output=e.output(), to=1)


@expand("Imputer", domain=DOMAIN)
def imputer(e: Expansion) -> None:
    need_float32(e.step, 0)
    imputed, replaced = e.step.attribute("imputed_value_floats"), e.step.attribute("replaced_value_float", 0.0)
    if not imputed:
        raise Refused("no imputed values are given")
    if replaced != replaced:
        absent = e.add("IsNaN", [e.input(0)], dtype=BOOL)
    else:
        absent = e.binary("Equal", e.input(0), e.literal(replaced), dtype=BOOL)
    shape = shape_of(e.step, 0)
    e.add("Where", [absent, _columns(e, imputed), e.input(0)], shape, output=e.output())


@expand("ArrayFeatureExtractor", domain=DOMAIN)
def array_feature_extractor(e: Expansion) -> None:
    """Columns of the last axis. Unlike Gather it does not count from the end."""
    need_types(e.step, (I64,), 1)
    shape, count, dtype = shape_of(e.step, 0), prod(shape_of(e.step, 1)), dtype_of(e.step, 0)
    if not shape:
        raise Refused("a scalar has no kernel")
    which = e.reshape(e.input(1), (count,))
    negative = e.binary("Less", which, e.literal(0, I64), dtype=BOOL)
    checked = e.add("Where", [negative, e.literal(shape[-1], I64), which], (count,), dtype=I64)
    columns = e.add("Gather", [e.input(0), checked], (*shape[:-1], count), dtype=dtype, axis=-1)
    e.reshape(columns, output_shape(e.step), output=e.output())
