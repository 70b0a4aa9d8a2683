"""Linear models and the preparation of features through compiled programs, against the NumPy definitions."""

from __future__ import annotations

import numpy as np
import pytest

from onnxlet.errors import NodeError
from onnxlet.ops.registry import find

from .helpers import check, node, refusal

ML = "ai.onnx.ml"
RNG = np.random.default_rng(59)


def definition(operator: str):
    found = find(operator, ML, 3)
    assert found is not None, operator
    return {operator: found.function}


def compare(provider, operator: str, x: np.ndarray, outputs: str = "y", **attributes) -> None:
    one = node(operator, "x", outputs, domain=ML, version=3, **attributes)
    check(provider, one, {"x": x}, references=definition(operator))


def some(*shape: int) -> np.ndarray:
    return RNG.uniform(-1, 1, shape).astype(np.float32)


def numbers(count: int) -> list[float]:
    return some(count).tolist()


TRANSFORMS = ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"]


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize(("scores", "labels"), [(1, [3, 8]), (1, [4]), (3, [5, 9, 2]), (2, [1, 0]), (11, None)])
@pytest.mark.parametrize("intercepts", [False, True])
def test_linear_classifier(provider, transform, scores, labels, intercepts):
    attributes = {"classlabels_ints": labels or list(range(scores)), "post_transform": transform}
    if intercepts:
        attributes["intercepts"] = numbers(scores)
    compare(provider, "LinearClassifier", some(20, 7), "label y", coefficients=numbers(7 * scores), **attributes)


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("targets", [1, 4])
@pytest.mark.parametrize("shape", [(9, 5), (5,), (0, 5)], ids=str)
def test_linear_regressor(provider, transform, targets, shape):
    compare(provider, "LinearRegressor", some(*shape), coefficients=numbers(5 * targets), intercepts=numbers(targets),
            targets=targets, post_transform=transform)  # fmt: skip


@pytest.mark.parametrize("attributes", [
    {"offset": numbers(4), "scale": numbers(4)}, {"offset": [0.5], "scale": [2.0]}, {"scale": numbers(4)},
    {"offset": numbers(4)}, {},
], ids=str)  # fmt: skip
@pytest.mark.parametrize("dtype", [np.float32, np.int64], ids=lambda t: t.__name__)
def test_scaler(provider, attributes, dtype):
    compare(provider, "Scaler", (10 * some(6, 4)).astype(dtype), **attributes)


@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
@pytest.mark.parametrize("shape", [(5, 4), (1, 1), (300, 33)], ids=str)
def test_normalizer(provider, norm, shape):
    x = some(*shape)
    x[0] = 0
    compare(provider, "Normalizer", x, norm=norm)


def test_binarizer(provider):
    compare(provider, "Binarizer", some(5, 4), threshold=0.25)


@pytest.mark.parametrize("replaced", [np.nan, 2.0])
@pytest.mark.parametrize("imputed", [[7.5], [1.0, 2.0, 3.0]], ids=str)
def test_imputer(provider, replaced, imputed):
    x = RNG.choice(np.float32([np.nan, 2.0, 5.0]), (6, 3))
    compare(provider, "Imputer", x, imputed_value_floats=imputed, replaced_value_float=replaced)


@pytest.mark.parametrize("dtype", [np.float32, np.int64], ids=lambda t: t.__name__)
@pytest.mark.parametrize("shape", [(4, 5), (5,), (2, 3, 5)], ids=str)
def test_array_feature_extractor(provider, dtype, shape):
    one = node("ArrayFeatureExtractor", "x i", domain=ML, version=1)
    x = (10 * some(*shape)).astype(dtype)
    references = definition("ArrayFeatureExtractor")
    check(provider, one, {"x": x}, {"i": np.array([[4, 0, 0]])}, references=references)
    check(provider, one, {"i": np.array([[4, 0, 0]])}, {"x": x}, references=references)


@pytest.mark.parametrize("index", [5, -1])
def test_array_feature_extractor_out_of_bounds(provider, index):
    one = node("ArrayFeatureExtractor", "x i", domain=ML, version=1)
    feeds = {"x": some(4, 5), "i": np.array([0, 1])}
    program = check(provider, one, feeds, references=definition("ArrayFeatureExtractor"))
    with pytest.raises(NodeError, match="out of bounds"):
        program.run([feeds["x"], np.array([0, index])])


@pytest.mark.parametrize(("operator", "attributes", "reason"), [
    ("LinearRegressor", {"coefficients": [1.0, 2.0]}, "coefficients that do not fit"),
    ("LinearRegressor", {"coefficients": [1.0, 2.0, 3.0], "intercepts": [1.0, 2.0]}, "2 intercepts"),
    ("LinearClassifier", {"coefficients": [1.0, 2.0, 3.0] * 2, "classlabels_ints": [1]}, "fewer labels"),
    ("LinearClassifier", {"coefficients": [1.0, 2.0, 3.0], "classlabels_strings": ["a", "b"]}, "strings"),
    ("Scaler", {"offset": [1.0, 2.0]}, "2 values"),
    ("Normalizer", {"norm": "L3"}, "norm L3"),
    ("Imputer", {"imputed_value_int64s": [1]}, "no imputed values"),
])  # fmt: skip
def test_refused(provider, operator, attributes, reason):
    outputs = "label y" if "Classifier" in operator else "y"
    one = node(operator, "x", outputs, domain=ML, version=3, **attributes)
    reference = (lambda x, **_: (np.zeros(len(x), np.int64), x)) if "Classifier" in operator else lambda x, **_: x
    found = refusal(provider, one, {"x": some(2, 3)}, references={operator: reference})
    assert found is not None
    assert reason in found
