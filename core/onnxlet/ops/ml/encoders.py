"""Encoding of categories, maps and features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...graph.ir import STRING
from ..registry import op
from .scores import DOMAIN, prepared, to_float


def lookup(x: np.ndarray, keys: np.ndarray, values: np.ndarray, default: Any) -> np.ndarray:
    """For each element of `x` the value that stands beside the same key (the last, of several), else `default`."""
    if keys.dtype == STRING:
        table = dict(zip(keys.tolist(), range(len(keys)), strict=True))
        index = np.fromiter((table.get(s, -1) for s in x.reshape(-1).tolist()), np.int64, x.size)
    else:
        index = find_numbers(x.reshape(-1), keys)
    found = index >= 0
    result = np.full(x.size, default, values.dtype)
    result[found] = values[index[found]]
    return result.reshape(x.shape)


def find_numbers(x: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """The position of each number in `keys` (the last one of equals), or -1. NaN equals NaN."""
    order = np.argsort(keys, kind="stable")
    ranked = keys[order]
    at = np.searchsorted(ranked, x, side="right") - 1
    same = (at >= 0) & ((ranked[at] == x) | (np.isnan(ranked[at]) & np.isnan(x)))
    return np.where(same, order[at], -1) if len(keys) else np.full(len(x), -1)


@op("LabelEncoder", domain=DOMAIN)
def label_encoder_1(
    x: np.ndarray,
    *,
    classes_strings: Sequence[str] = (),
    default_int64: int = -1,
    default_string: str = "_Unused",
):
    """From strings to their positions in the list, or back."""
    labels = np.array(classes_strings, STRING)
    positions = np.arange(len(labels), dtype=np.int64)
    if x.dtype == STRING:
        return lookup(x, labels, positions, default_int64)
    return lookup(x, positions, labels, default_string)


def one_of(*choices: tuple[Sequence[Any] | None, Any]) -> np.ndarray | None:
    """The first list that is there, as an array of its type."""
    for values, dtype in choices:
        if values:
            return np.array(values, dtype)
    return None


def label_table(keys_strings, keys_int64s, keys_floats, values_strings, values_int64s, values_floats):
    keys = one_of((keys_strings, STRING), (keys_int64s, np.int64), (keys_floats, np.float32))
    values = one_of((values_strings, STRING), (values_int64s, np.int64), (values_floats, np.float32))
    if keys is None or values is None or len(keys) != len(values):
        raise ValueError("LabelEncoder needs as many keys as values")
    return keys, values


@op("LabelEncoder", since=2, domain=DOMAIN)
def label_encoder_2(
    x: np.ndarray,
    *,
    default_float: float = -0.0,
    default_int64: int = -1,
    default_string: str = "_Unused",
    keys_floats: Sequence[float] | None = None,
    keys_int64s: Sequence[int] | None = None,
    keys_strings: Sequence[str] | None = None,
    values_floats: Sequence[float] | None = None,
    values_int64s: Sequence[int] | None = None,
    values_strings: Sequence[str] | None = None,
):
    keys, values = prepared(
        label_table, keys_strings, keys_int64s, keys_floats, values_strings, values_int64s, values_floats
    )
    default = {"O": default_string, "i": default_int64, "f": default_float}[values.dtype.kind]
    return lookup(x, keys, values, default)


@op("LabelEncoder", since=4, domain=DOMAIN)
def label_encoder_4(
    x: np.ndarray,
    *,
    default_float: float = -0.0,
    default_int64: int = -1,
    default_string: str = "_Unused",
    default_tensor: np.ndarray | None = None,
    keys_floats: Sequence[float] | None = None,
    keys_int64s: Sequence[int] | None = None,
    keys_strings: Sequence[str] | None = None,
    keys_tensor: np.ndarray | None = None,
    values_floats: Sequence[float] | None = None,
    values_int64s: Sequence[int] | None = None,
    values_strings: Sequence[str] | None = None,
    values_tensor: np.ndarray | None = None,
):
    keys = one_of((keys_strings, STRING), (keys_int64s, np.int64), (keys_floats, np.float32))
    values = one_of((values_strings, STRING), (values_int64s, np.int64), (values_floats, np.float32))
    keys = keys_tensor if keys is None else keys
    values = values_tensor if values is None else values
    if keys is None or values is None or keys.size != values.size:
        raise ValueError("LabelEncoder needs as many keys as values")
    if default_tensor is not None and default_tensor.size:
        default = default_tensor.reshape(-1)[0]
    else:
        default = {"O": default_string, "i": default_int64, "f": default_float}[values.dtype.kind]
    return lookup(x, keys.reshape(-1), values.reshape(-1), default)


@op("CategoryMapper", domain=DOMAIN)
def category_mapper(
    x: np.ndarray,
    *,
    cats_int64s: Sequence[int] = (),
    cats_strings: Sequence[str] = (),
    default_int64: int = -1,
    default_string: str = "_Unused",
):
    """From strings to integers or back."""
    if len(cats_int64s) != len(cats_strings):
        raise ValueError(f"there are {len(cats_strings)} strings and {len(cats_int64s)} integers")
    integers, strings = np.array(cats_int64s, np.int64), np.array(cats_strings, STRING)
    if x.dtype == STRING:
        return lookup(x, strings, integers, default_int64)
    return lookup(x, integers, strings, default_string)


@op("OneHotEncoder", domain=DOMAIN)
def one_hot_encoder(
    x: np.ndarray,
    *,
    cats_int64s: Sequence[int] | None = None,
    cats_strings: Sequence[str] | None = None,
    zeros: int = 1,
):
    """One column per category; an unknown one is all zero, or an error if `zeros` is 0."""
    if x.dtype == STRING:
        categories = np.array(cats_strings or [], STRING)
        values = x
    else:
        categories = np.array(cats_int64s or [], np.int64)
        values = x.astype(np.int64)
    index = lookup(values, categories, np.arange(len(categories)), -1)
    if not zeros and (index < 0).any():
        raise ValueError(f"category {x[index < 0][0]!r} is not among the {len(categories)} known ones")
    return (index[..., None] == np.arange(len(categories))).astype(np.float32)


@op("ArrayFeatureExtractor", domain=DOMAIN)
def array_feature_extractor(x: np.ndarray, indices: np.ndarray):
    """Columns of the last axis."""
    which = indices.reshape(-1)
    if which.size and not 0 <= which.min() <= which.max() < x.shape[-1]:
        raise ValueError(f"indices reach {which.min()} to {which.max()}, the last axis has {x.shape[-1]} elements")
    return (x[None] if x.ndim == 1 else x)[..., which]


@op("FeatureVectorizer", domain=DOMAIN)
def feature_vectorizer(*xs: np.ndarray, inputdimensions: Sequence[int] | None = None):
    """Columns of all inputs side by side, each cut or filled with 0 to its length."""
    parts = []
    for i, x in enumerate(xs):
        rows = x.reshape(1, -1) if x.ndim == 1 else x.reshape(x.shape[0], -1)
        part = to_float(rows).astype(np.float32)
        if inputdimensions:
            wanted = inputdimensions[i]
            part = part[:, :wanted]
            part = np.pad(part, ((0, 0), (0, wanted - part.shape[1])))
        parts.append(part)
    return np.concatenate(parts, axis=1)


@op("Imputer", domain=DOMAIN)
def imputer(
    x: np.ndarray,
    *,
    imputed_value_floats: Sequence[float] | None = None,
    imputed_value_int64s: Sequence[int] | None = None,
    replaced_value_float: float = 0.0,
    replaced_value_int64: int = 0,
):
    """Replace one value (NaN, say) by another: one for all, or one per column."""
    if x.dtype.kind == "f":
        imputed, replaced = imputed_value_floats, replaced_value_float
    else:
        imputed, replaced = imputed_value_int64s, replaced_value_int64
    if not imputed:
        raise ValueError(f"no imputed values are given for an input of type {x.dtype}")
    absent = np.isnan(x) if replaced != replaced else x == x.dtype.type(replaced)
    if len(imputed) not in (1, x.shape[-1]):
        raise ValueError(f"{len(imputed)} imputed values are given for {x.shape[-1]} columns")
    return np.where(absent, np.asarray(imputed, x.dtype), x)


@op("DictVectorizer", domain=DOMAIN)
def dict_vectorizer(
    x: Mapping[Any, Any],
    *,
    int64_vocabulary: Sequence[int] | None = None,
    string_vocabulary: Sequence[str] | None = None,
    output_types: Sequence[np.dtype | None] = (),
):
    """A map's values in the order of a vocabulary, as one row; absent keys give 0 or an empty string."""
    vocabulary = list(string_vocabulary or int64_vocabulary or [])
    sample = next(iter(x.values()), None)
    declared = output_types[0] if output_types else None
    if declared is None:
        declared = (
            STRING
            if isinstance(sample, str)
            else np.dtype(np.int64)
            if isinstance(sample, (int, np.integer))
            else np.dtype(np.float32)
        )
    missing = "" if declared == STRING else 0
    return np.array([[x.get(key, missing) for key in vocabulary]], declared)


@op("CastMap", domain=DOMAIN)
def cast_map(x: Mapping[int, Any], *, cast_to: str = "TO_FLOAT", map_form: str = "DENSE", max_map: int = 1):
    """The values of a map in the order of its keys, as one row; SPARSE puts each at its key's place in `max_map`."""
    types = {"TO_FLOAT": np.dtype(np.float32), "TO_INT64": np.dtype(np.int64), "TO_STRING": STRING}
    if cast_to not in types:
        raise ValueError(f"cast_to is {cast_to!r}; known are {', '.join(types)}")
    convert = {"TO_FLOAT": float, "TO_INT64": lambda v: int(float(v)), "TO_STRING": text}[cast_to]
    keys = sorted(x)
    if map_form == "DENSE":
        return np.array([[convert(x[k]) for k in keys]], types[cast_to])
    if keys and not 0 <= keys[0] <= keys[-1] < max_map:
        raise ValueError(f"keys reach {keys[0]} to {keys[-1]}; max_map is {max_map}")
    row = np.full((1, max_map), "" if cast_to == "TO_STRING" else 0, types[cast_to])
    for k in keys:
        row[0, k] = convert(x[k])
    return row


def text(value: Any) -> str:
    """A number as text: floats with six decimals, as C++ writes them."""
    return value if isinstance(value, str) else f"{value:f}" if isinstance(value, float) else str(value)


@op("ZipMap", domain=DOMAIN)
def zip_map(
    x: np.ndarray,
    *,
    classlabels_int64s: Sequence[int] | None = None,
    classlabels_strings: Sequence[str] | None = None,
):
    """A sequence of maps from label to value, one per row."""
    labels = list(classlabels_strings or classlabels_int64s or [])
    rows = x[None] if x.ndim == 1 else x
    if rows.shape[1] != len(labels):
        raise ValueError(f"there are {len(labels)} labels for {rows.shape[1]} columns")
    return [dict(zip(labels, row, strict=True)) for row in rows.tolist()]
