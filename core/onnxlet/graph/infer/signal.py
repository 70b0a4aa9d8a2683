"""Signals, random numbers and strings."""

from __future__ import annotations

import numpy as np

from ...model.dtypes import dtype_of as element_dtype
from ..ir import STRING, Dim, Node, TensorType, Type
from .common import FLOAT, INT64, Constants, Inputs, axis_of, dims, dtype_of, ints, present, shape_of, tensor
from .registry import infer


def _first(constants: Constants, index: int) -> Dim:
    found = dims(constants, index)
    return found[0] if found else None


@infer("HannWindow", "HammingWindow", "BlackmanWindow")
def window(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    return [TensorType(element_dtype(node.attributes.get("output_datatype", 1)), (_first(constants, 0),))]


@infer("MelWeightMatrix")
def mel_weight_matrix(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    bands, length = _first(constants, 0), _first(constants, 1)
    rows = length // 2 + 1 if isinstance(length, int) else None
    return [TensorType(element_dtype(node.attributes.get("output_datatype", 1)), (rows, bands))]


@infer("DFT")
def dft(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    x = tensor(node, inputs, 0)
    if x.shape is None:
        return [x]
    rank = len(x.shape)
    inverse, onesided = node.attributes.get("inverse", 0), node.attributes.get("onesided", 0)
    parts = 1 if inverse and onesided else 2
    if node.version < 20:
        axis = node.attributes.get("axis", 1)
    else:
        known = ints(constants, 2)
        if present(node, 2) and known is None:
            return [TensorType(x.dtype, (*(None,) * (rank - 1), parts))]
        axis = known[0] if known else -2
    axis = axis_of(node, axis, rank)
    given = present(node, 1)
    length: Dim = _first(constants, 1) if given else x.shape[axis]
    if onesided and inverse and not given:
        length = 2 * (length - 1) if isinstance(length, int) else None
    elif onesided and not inverse:
        length = length // 2 + 1 if isinstance(length, int) else None
    shape = [*x.shape[:-1], parts]
    shape[axis] = length
    return [TensorType(x.dtype, tuple(shape))]


@infer("STFT")
def stft(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    x, taper = shape_of(node, inputs, 0), shape_of(node, inputs, 2, rank=1)
    dtype = dtype_of(node, inputs, 0)
    step = _first(constants, 1)
    length: Dim = None
    if present(node, 3):
        length = _first(constants, 3)
    elif present(node, 2):
        length = taper[0] if taper else None
    elif x is not None:
        length = x[1]
    frames: Dim = None
    if x is not None and isinstance(x[1], int) and isinstance(length, int) and isinstance(step, int) and step > 0:
        frames = (x[1] - length) // step + 1
    bins: Dim = length
    if node.attributes.get("onesided", 1):
        bins = length // 2 + 1 if isinstance(length, int) else None
    return [TensorType(dtype, (x[0] if x else None, frames, bins, 2))]


@infer("RandomNormal", "RandomUniform")
def random(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    return [TensorType(element_dtype(node.attributes.get("dtype", 1)), tuple(node.attributes["shape"]))]


@infer("RandomNormalLike", "RandomUniformLike", "Bernoulli")
def random_like(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    x, asked = tensor(node, inputs, 0), node.attributes.get("dtype")
    return [TensorType(x.dtype if asked is None else element_dtype(asked), x.shape)]


@infer("Multinomial")
def multinomial(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    x = shape_of(node, inputs, 0, rank=2)
    dtype = element_dtype(node.attributes.get("dtype", 6))
    return [TensorType(dtype, (x[0] if x else None, node.attributes.get("sample_size", 1)))]


@infer("StringSplit")
def string_split(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    x = shape_of(node, inputs, 0)
    return [TensorType(STRING, None if x is None else (*x, None)), TensorType(INT64, x)]


@infer("StringNormalizer")
def string_normalizer(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    x = shape_of(node, inputs, 0)
    if x is None:
        return [TensorType(STRING, None)]
    if node.attributes.get("stopwords"):
        return [TensorType(STRING, (*x[:-1], None))]  # stop words are left out
    return [TensorType(STRING, x)]


@infer("TfIdfVectorizer")
def tfidf_vectorizer(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    x = shape_of(node, inputs, 0)
    width = max(node.attributes["ngram_indexes"], default=-1) + 1
    return [TensorType(FLOAT, None if x is None else (*x[:-1], width))]


@infer("ImageDecoder")
def image_decoder(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    channels = 1 if node.attributes.get("pixel_format", "RGB") == "Grayscale" else 3
    return [TensorType(np.dtype(np.uint8), (None, None, channels))]
