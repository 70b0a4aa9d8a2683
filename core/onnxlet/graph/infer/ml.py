"""Operators of ai.onnx.ml."""

from __future__ import annotations

import numpy as np

from ..ir import STRING, Dim, MapType, Node, SequenceType, TensorType, Type
from .common import FLOAT, INT64, Constants, Inputs, dtype_of, product, shape_of, tensor
from .registry import infer

ML = "ai.onnx.ml"


def _rows(node: Node, inputs: Inputs) -> Dim:
    """The number of samples: a 1-d input is a single one."""
    x = shape_of(node, inputs, 0)
    return None if x is None else 1 if len(x) == 1 else x[0] if x else None


def _labels(node: Node) -> tuple[np.dtype | None, int | None]:
    """The element type and number of a classifier's labels."""
    a = node.attributes
    for name in ("classlabels_strings", "classlabels_int64s", "classlabels_ints"):
        if a.get(name):
            return (STRING if name.endswith("strings") else INT64), len(a[name])
    return None, None


@infer("Binarizer", "Imputer", domain=ML)
def same_type(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    return [tensor(node, inputs, 0)]


@infer("Scaler", "Normalizer", domain=ML)
def to_float(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    return [TensorType(FLOAT, shape_of(node, inputs, 0))]


@infer("OneHotEncoder", domain=ML)
def one_hot_encoder(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    x = shape_of(node, inputs, 0)
    number = len(node.attributes.get("cats_strings") or node.attributes.get("cats_int64s") or [])
    return [TensorType(FLOAT, None if x is None else (*x, number))]


@infer("ArrayFeatureExtractor", domain=ML)
def array_feature_extractor(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    x, y = shape_of(node, inputs, 0), shape_of(node, inputs, 1)
    if x is None or y is None:
        return [TensorType(dtype_of(node, inputs, 0), None)]
    lead: tuple[Dim, ...] = (1,) if len(x) == 1 else x[:-1]
    return [TensorType(dtype_of(node, inputs, 0), (*lead, product(y)))]


@infer("CastMap", domain=ML)
def cast_map(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    types = {"TO_FLOAT": FLOAT, "TO_INT64": INT64, "TO_STRING": STRING}
    sparse = node.attributes.get("map_form", "DENSE") == "SPARSE"
    length = node.attributes.get("max_map", 1) if sparse else None
    return [TensorType(types.get(node.attributes.get("cast_to", "TO_FLOAT")), (1, length))]


@infer("DictVectorizer", domain=ML)
def dict_vectorizer(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    a = node.attributes
    vocabulary = a.get("string_vocabulary") or a.get("int64_vocabulary") or []
    value = inputs[0].value if isinstance(inputs[0], MapType) else None
    return [TensorType(value.dtype if isinstance(value, TensorType) else None, (1, len(vocabulary)))]


@infer("FeatureVectorizer", domain=ML)
def feature_vectorizer(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    sizes = node.attributes.get("inputdimensions")
    return [TensorType(FLOAT, (_rows(node, inputs), sum(sizes) if sizes else None))]


@infer("LabelEncoder", domain=ML)
def label_encoder(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    a, dtype = node.attributes, None
    if "values_tensor" in a:
        dtype = a["values_tensor"].dtype
    elif "values_strings" in a:
        dtype = STRING
    elif "values_int64s" in a:
        dtype = INT64
    elif "values_floats" in a:
        dtype = FLOAT
    elif "classes_strings" in a:
        dtype = INT64 if dtype_of(node, inputs, 0) == STRING else STRING
    return [TensorType(dtype, shape_of(node, inputs, 0))]


@infer("CategoryMapper", domain=ML)
def category_mapper(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    x = tensor(node, inputs, 0)
    return [TensorType(None if x.dtype is None else INT64 if x.dtype == STRING else STRING, x.shape)]


@infer("TreeEnsembleClassifier", "SVMClassifier", "LinearClassifier", domain=ML)
def classifier(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    dtype, number = _labels(node)
    if node.op_type == "SVMClassifier" and number and number < 3:
        number = None  # one column or two, as the weights say: the run tells
    rows = _rows(node, inputs)
    return [TensorType(dtype, (rows,)), TensorType(FLOAT, (rows, number))]


@infer("TreeEnsembleRegressor", domain=ML)
def tree_regressor(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    return [TensorType(FLOAT, (_rows(node, inputs), node.attributes.get("n_targets")))]


@infer("TreeEnsemble", domain=ML)
def tree_ensemble(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    return [TensorType(dtype_of(node, inputs, 0), (_rows(node, inputs), node.attributes.get("n_targets")))]


@infer("LinearRegressor", domain=ML)
def linear_regressor(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    return [TensorType(FLOAT, (_rows(node, inputs), node.attributes.get("targets", 1)))]


@infer("SVMRegressor", domain=ML)
def svm_regressor(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    return [TensorType(FLOAT, (_rows(node, inputs), 1))]


@infer("ZipMap", domain=ML)
def zip_map(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    key = _labels(node)[0]
    return [None if key is None else SequenceType(MapType(key, TensorType(FLOAT, ())))]
