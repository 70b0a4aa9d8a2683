"""Calling an operator's definition as a node would, at a given opset."""

from __future__ import annotations

from typing import Any

import numpy as np

import onnxlet.ops  # noqa: F401  (registers the operators)
from onnxlet.ops import registry


def call(operator: str, opset: int, /, *inputs: Any, domain: str = "", outputs: int = 1, **attributes: Any) -> Any:
    """The output of an operator (a list of them if `outputs` is more than one), as the executor would keep it."""
    found = registry.find(operator, domain, opset)
    assert found is not None, f"no {operator} at opset {opset}"
    assert set(attributes) <= found.attributes, f"{operator} at {opset} has no {set(attributes) - found.attributes}"
    injected = {"n_outputs": outputs, "output_types": [None] * outputs}
    with np.errstate(all="ignore"):
        result = found.function(*inputs, **attributes, **{k: injected[k] for k in found.injected if k in injected})
    values = list(result) if isinstance(result, tuple) else [result]
    for value in values:
        assert value is None or isinstance(value, (np.ndarray, np.generic, list)), type(value)
    values = [np.asarray(v) if isinstance(v, np.generic) else v for v in values]
    return values[0] if outputs == 1 else values[:outputs]


def f32(*values: Any) -> np.ndarray:
    return np.array(values[0] if len(values) == 1 else values, np.float32)


def i64(*values: Any) -> np.ndarray:
    return np.array(values[0] if len(values) == 1 else values, np.int64)


def of(dtype: Any, values: Any) -> np.ndarray:
    return np.array(values, dtype)


def same(got: Any, expected: Any, dtype: Any = None) -> None:
    """Exactly equal, NaN to NaN, with the element type `dtype` (by default that of `expected`)."""
    expected = np.asarray(expected)
    assert isinstance(got, np.ndarray)
    assert got.dtype == np.dtype(dtype or expected.dtype), got.dtype
    assert got.shape == expected.shape, got.shape
    np.testing.assert_array_equal(got, expected)
