from typing import Any

import numpy as np
import pytest

from tests.core.ops.calling import call, f32, i64, same
from tests.core.ops.oracle import Numbers, agrees

ML = "ai.onnx.ml"
WORDS = np.array([["a", "q"], ["b", "c"]], object)


def floats(numbers, count):
    return [float(v) for v in numbers.f32(count)]


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
@pytest.mark.parametrize("classes", [2, 3])
def test_linear_classifier(transform, classes):
    numbers = Numbers()
    options: dict[str, Any] = {"coefficients": floats(numbers, classes * 4), "intercepts": floats(numbers, classes)}
    options |= {"post_transform": transform, "domain": ML, "outputs": 2}
    x = numbers.f32(9, 4)
    agrees("LinearClassifier", 1, x, classlabels_ints=[5, 7, 9][:classes], **options)
    agrees("LinearClassifier", 1, x, classlabels_strings=["a", "b", "c"][:classes], **options)


def test_linear_classifier_with_one_row_of_coefficients():
    options = {"coefficients": [1.0, -1.0], "domain": ML, "outputs": 2}
    x = f32([[3, 1], [1, 3]])
    label, scores = call("LinearClassifier", 1, x, classlabels_strings=["no", "yes"], **options)
    assert label.tolist() == ["yes", "no"]
    same(scores, f32([[-2, 2], [2, -2]]))
    agrees("LinearClassifier", 1, x, classlabels_ints=[4, 6], post_transform="LOGISTIC", intercepts=[0.5], **options)


@pytest.mark.parametrize("targets", [1, 3])
def test_linear_regressor(targets):
    numbers = Numbers()
    options = {"coefficients": floats(numbers, targets * 4), "intercepts": floats(numbers, targets), "domain": ML}
    agrees("LinearRegressor", 1, numbers.f32(9, 4), targets=targets, **options)
    with pytest.raises(ValueError, match="do not fit an input of 5 features"):
        call("LinearRegressor", 1, numbers.f32(2, 5), **options)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int32"])
def test_scalings(dtype):
    x = (3 * Numbers().f32(9, 4)).astype(dtype)
    agrees("Scaler", 1, x, domain=ML, offset=[1.0, 2.0, 3.0, 4.0], scale=[0.5, 0.25, 2.0, 3.0])
    agrees("Scaler", 1, x, domain=ML, offset=[1.0], scale=[0.5])
    same(call("Binarizer", 1, x, domain=ML, threshold=0.5), (x > 0.5).astype(dtype))
    for norm in ("MAX", "L1", "L2"):
        agrees("Normalizer", 1, x, domain=ML, norm=norm)


def test_normalizer_leaves_rows_of_zeros():
    same(call("Normalizer", 1, f32([[0, 0], [3, -4]]), domain=ML, norm="L2"), f32([[0, 0], [0.6, -0.8]]))


def test_label_encoder_of_all_versions():
    classes = {"classes_strings": ["a", "b", "c"], "domain": ML}
    agrees("LabelEncoder", 1, WORDS, default_int64=-3, **classes)
    agrees("LabelEncoder", 1, i64(0, 2, 5), default_string="zz", **classes)
    keys = {"keys_strings": ["a", "b", "c"], "domain": ML}
    agrees("LabelEncoder", 2, WORDS, values_int64s=[4, 5, 6], **keys)
    agrees("LabelEncoder", 2, WORDS, values_floats=[4.0, 5.0, 6.5], default_float=9.0, **keys)
    agrees("LabelEncoder", 2, WORDS, values_strings=["x", "y", "z"], **keys)
    agrees("LabelEncoder", 2, i64(1, 2, 3), domain=ML, keys_int64s=[3, 1], values_floats=[0.5, 1.5])
    y = call(
        "LabelEncoder", 4, np.array([1.5, np.nan, 2]), domain=ML, keys_tensor=np.array([np.nan, 1.5, 1.5]),
        values_tensor=np.array([7, 8, 9], np.int16), default_tensor=np.array([-1], np.int16),
    )  # fmt: skip
    same(y, np.array([9, 7, -1], np.int16))  # the last of equal keys counts, and NaN is a key
    with pytest.raises(ValueError, match="as many keys as values"):
        call("LabelEncoder", 2, WORDS, domain=ML, keys_strings=["a"], values_int64s=[1, 2])


def test_categories():
    pairs = {"cats_strings": ["a", "b"], "cats_int64s": [5, 9], "domain": ML}
    agrees("CategoryMapper", 1, WORDS, default_int64=-7, **pairs)
    agrees("CategoryMapper", 1, i64(5, 2, 9), default_string="?", **pairs)
    agrees("OneHotEncoder", 1, WORDS, domain=ML, cats_strings=["a", "b", "c"])
    agrees("OneHotEncoder", 1, i64(5, 2, 9), domain=ML, cats_int64s=[5, 9])
    agrees("OneHotEncoder", 1, f32(5, 2, 9), domain=ML, cats_int64s=[5, 9])
    with pytest.raises(ValueError, match="category 'q' is not among the 3"):
        call("OneHotEncoder", 1, WORDS, domain=ML, cats_strings=["a", "b", "c"], zeros=0)


def test_features():
    x = Numbers().f32(3, 4)
    agrees("ArrayFeatureExtractor", 1, x, i64([[1, 3]]), domain=ML)
    agrees("ArrayFeatureExtractor", 1, x[0], i64(2, 1), domain=ML)
    agrees("FeatureVectorizer", 1, x, x[:, :2], domain=ML, inputdimensions=[3, 3])
    with pytest.raises(ValueError, match="indices reach 1 to 9"):
        call("ArrayFeatureExtractor", 1, x, i64(1, 9), domain=ML)


def test_imputer():
    x = f32([[1, np.nan, 0]])
    agrees("Imputer", 1, x, domain=ML, imputed_value_floats=[7.0, 8.0, 9.0], replaced_value_float=float("nan"))
    agrees("Imputer", 1, x, domain=ML, imputed_value_floats=[7.0])
    agrees("Imputer", 1, i64([[1, 2, 0]]), domain=ML, imputed_value_int64s=[7])


def test_maps():
    vocabulary = ["a", "b", "z"]
    same(call("DictVectorizer", 1, {"b": 2.5, "a": 1.0}, domain=ML, string_vocabulary=vocabulary), f32([[1, 2.5, 0]]))
    same(call("DictVectorizer", 1, {7: 3}, domain=ML, int64_vocabulary=[6, 7]), i64([[0, 3]]))
    x = {3: 1.5, 1: 0.5}
    same(call("CastMap", 1, x, domain=ML), f32([[0.5, 1.5]]))
    same(call("CastMap", 1, x, domain=ML, map_form="SPARSE", max_map=5), f32([[0, 0.5, 0, 1.5, 0]]))
    same(call("CastMap", 1, {1: "2", 0: "-3"}, domain=ML, cast_to="TO_INT64"), i64([[-3, 2]]))
    assert call("CastMap", 1, x, domain=ML, cast_to="TO_STRING").tolist() == [["0.500000", "1.500000"]]
    with pytest.raises(ValueError, match="max_map is 2"):
        call("CastMap", 1, x, domain=ML, map_form="SPARSE", max_map=2)


def test_zip_map():
    rows = f32([[0.25, 0.75], [1, 0]])
    strings = call("ZipMap", 1, rows, domain=ML, classlabels_strings=["no", "yes"])
    assert strings == [{"no": 0.25, "yes": 0.75}, {"no": 1, "yes": 0}]
    assert call("ZipMap", 1, rows[0], domain=ML, classlabels_int64s=[3, 4]) == [{3: 0.25, 4: 0.75}]
    with pytest.raises(ValueError, match="3 labels for 2 columns"):
        call("ZipMap", 1, rows, domain=ML, classlabels_int64s=[1, 2, 3])


KERNELS = ["LINEAR", "POLY", "RBF", "SIGMOID"]


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("one_class", [0, 1])
def test_svm_regressor(kernel, one_class):
    numbers = Numbers()
    agrees(
        "SVMRegressor", 1, numbers.f32(9, 4), domain=ML, kernel_type=kernel, kernel_params=[0.3, 0.5, 2.0],
        n_supports=6, one_class=one_class, coefficients=floats(numbers, 6), support_vectors=floats(numbers, 24),
        rho=[0.2],
    )  # fmt: skip


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("probabilities", [False, True])
def test_svm_classifier(kernel, classes, probabilities):
    numbers = Numbers()
    counts = [3, 2, 4][:classes]
    pairs = classes * (classes - 1) // 2
    options: dict[str, Any] = (
        {"prob_a": [-1.2, -0.5, -0.8][:pairs], "prob_b": [0.1, 0.2, -0.1][:pairs]} if probabilities else {}
    )
    agrees(
        "SVMClassifier", 1, numbers.f32(9, 4), domain=ML, outputs=2, kernel_type=kernel,
        kernel_params=[0.3, 0.5, 2.0], vectors_per_class=counts, rho=[0.2, -0.3, 0.1][:pairs],
        coefficients=floats(numbers, (classes - 1) * sum(counts)), support_vectors=floats(numbers, 4 * sum(counts)),
        classlabels_ints=[10, 20, 30][:classes], rtol=1e-3, **options,
    )  # fmt: skip
