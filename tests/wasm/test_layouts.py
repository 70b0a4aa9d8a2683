"""Strides, layouts, and loops with as few axes as possible, against NumPy's strides."""

from __future__ import annotations

import numpy as np
import pytest

from onnxlet_wasm.layouts import LAST, PLAIN, broadcast_strides, collapse, same_in_both, strides_of, to_layout


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (2, 3, 4), (2, 3, 4, 5), (1, 2, 3, 4, 5)])
@pytest.mark.parametrize("layout", [PLAIN, LAST])
def test_strides_reach_the_elements(shape, layout):
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    flat = to_layout(array, layout).reshape(-1)
    for index in np.ndindex(*shape):
        assert flat[sum(i * s for i, s in zip(index, strides_of(shape, layout), strict=True))] == array[index]


def test_layouts_that_are_the_same():
    assert same_in_both((2, 3))
    assert same_in_both((2, 3, 1, 1))
    assert same_in_both((2, 1, 5, 5))
    assert not same_in_both((1, 2, 1, 2))


def test_collapse_joins_what_is_contiguous():
    target = (2, 3, 4, 5)
    full = strides_of(target)
    assert collapse(target, full, full) == ([120], [[1], [1]])
    channel = broadcast_strides((3, 1, 1), target)
    assert collapse(target, full, channel) == ([2, 3, 20], [[60, 20, 1], [0, 1, 0]])
    assert collapse((1, 1), [0, 0]) == ([1], [[0]])
    assert collapse((), []) == ([1], [[0]])


def test_collapse_keeps_the_iteration():
    target = (2, 1, 3, 4)
    a = broadcast_strides((3, 1), target)
    lengths, (steps,) = collapse(target, a)
    offsets = [sum(i * s for i, s in zip(index, steps, strict=True)) for index in np.ndindex(*lengths)]
    expected = np.broadcast_to(np.arange(3).reshape(3, 1), target).reshape(-1)
    assert offsets == expected.tolist()
