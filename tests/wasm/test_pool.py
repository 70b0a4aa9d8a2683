"""Pooling and changes of layout, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from onnxlet_wasm import pieces

from .windows import Window, patches
from .workbench import Workbench

SIZES = [(1, 7, 7, 8), (2, 6, 9, 5), (1, 1, 1, 1), (1, 10, 11, 20), (1, 5, 37, 2), (1, 3, 331, 3)]
WINDOWS = [
    Window((2, 2), (2, 2)),
    Window((3, 3), (2, 2), (1, 1, 1, 1)),
    Window((3, 3), (1, 1), (1, 1, 1, 1)),
    Window((2, 3), (1, 2), (0, 1, 1, 2)),
    Window((3, 2), (1, 1), (2, 2, 2, 2), (2, 3)),
    Window((5, 4), (3, 3), (2, 1, 2, 2)),
]


def pool(bench: Workbench, kernel: str, x: np.ndarray, window: Window, shape=None, **more: int) -> np.ndarray:
    batch, h, w, c = x.shape
    oh, ow = shape or window.output(h, w)
    y = bench.out((batch, oh, ow, c))
    bench.call(
        kernel, units=pieces.spans(batch * oh, ow), x=bench.put(x), y=y, batch=batch, h=h, w=w, c=c, oh=oh, ow=ow,
        **window.fields, **more,
    )  # fmt: skip
    return bench.get(y)


def pool_planes(bench: Workbench, x: np.ndarray, window: Window, shape=None, **more: int) -> np.ndarray:
    """The same by the kernel for channels first; x and the result are channels last."""
    batch, h, w, c = x.shape
    oh, ow = shape or window.output(h, w)
    y = bench.out((batch, c, oh, ow))
    places = -(-ow // 8) * 8
    line = max(window.pads[1] + w, places * window.stride[1] + (window.size[1] - 1) * window.dilation[1] + 2)
    bench.call(
        "pool_planes", units=batch * c * oh, scratch=4 * (line + places), x=bench.put(x.transpose(0, 3, 1, 2)), y=y,
        planes=batch * c, h=h, w=w, oh=oh, ow=ow, pad_bottom=window.pads[2], pad_right=window.pads[3], **window.fields,
        **more,
    )  # fmt: skip
    return bench.get(y).transpose(0, 2, 3, 1)


def average(x: np.ndarray, window: Window, include_pad: bool, shape=None) -> np.ndarray:
    inside = np.ones_like(x)
    if include_pad:  # what lies inside the padded image counts, and no more
        top, left, bottom, right = window.pads
        inside = np.pad(inside, ((0, 0), (top, bottom), (left, right), (0, 0)), constant_values=1)
        unpadded = Window(window.size, window.stride, (0, 0, 0, 0), window.dilation)
        count = patches(inside, unpadded, 0, shape).sum((3, 4))
    else:
        count = patches(inside, window, 0, shape).sum((3, 4))
    with np.errstate(invalid="ignore"):
        return patches(x.astype(np.float64), window, 0, shape).sum((3, 4)) / count


@pytest.fixture(params=SIZES, ids=str)
def x(request) -> np.ndarray:
    return np.random.default_rng(1).standard_normal(request.param).astype(np.float32)


def shapes(window: Window, x: np.ndarray) -> list[tuple[int, int]]:
    """The output's height and width rounded down, and (ceil_mode) rounded up."""
    oh, ow = window.output(x.shape[1], x.shape[2])
    return [(oh, ow), (oh + 1, ow + 1)] if min(oh, ow) > 0 else []


@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_maximum(bench, x, window):
    for shape in shapes(window, x):
        expected = patches(x, window, -np.inf, shape).max((3, 4))
        np.testing.assert_array_equal(pool(bench, "pool_max", x, window, shape), expected)
        planes = pool_planes(bench, x, window, shape, maximum=1, include_pad=0)
        np.testing.assert_array_equal(planes, expected)


@pytest.mark.parametrize("include_pad", [0, 1])
@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_average(bench, x, window, include_pad):
    for shape in shapes(window, x):
        result = pool(
            bench, "pool_average", x, window, shape, pad_bottom=window.pads[2], pad_right=window.pads[3],
            include_pad=include_pad,
        )  # fmt: skip
        expected = average(x, window, bool(include_pad), shape)
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)
        planes = pool_planes(bench, x, window, shape, maximum=0, include_pad=include_pad)
        np.testing.assert_allclose(planes, expected, rtol=1e-5, atol=1e-6)


def test_not_a_number_goes_through_the_maximum(bench):
    x = np.random.default_rng(2).standard_normal((1, 6, 6, 9)).astype(np.float32)
    x[0, 2, 3, 4], x[0, 0, 0, 8], x[0, 5, 5, 0] = np.nan, np.inf, -np.inf
    window = Window((3, 3), (1, 1), (1, 1, 1, 1))
    expected = patches(x, window, -np.inf).max((3, 4))
    assert np.isnan(expected).any()
    np.testing.assert_array_equal(pool(bench, "pool_max", x, window), expected)
    np.testing.assert_array_equal(pool_planes(bench, x, window, maximum=1, include_pad=0), expected)
    average = pool_planes(bench, x, window, maximum=0, include_pad=0)
    np.testing.assert_array_equal(np.isnan(average), np.isnan(patches(x, window, 0.0).sum((3, 4))))


@pytest.mark.parametrize(("batch", "pixels", "c"), [(1, 49, 64), (3, 1, 5), (2, 200, 37), (1, 64, 1), (1, 65, 33)])
def test_whole_images(bench, batch, pixels, c):
    x = np.random.default_rng(3).standard_normal((batch, pixels, c)).astype(np.float32)
    for maximum, expected in ((0, x.astype(np.float64).mean(1)), (1, x.max(1))):
        y = bench.out((batch, c))
        bench.call(
            "global_pool", units=pieces.global_pool(batch, c), x=bench.put(x), y=y, batch=batch, pixels=pixels, c=c,
            maximum=maximum,
        )  # fmt: skip
        np.testing.assert_allclose(bench.get(y), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("batch", "c", "h", "w", "pads"),
    [
        (1, 3, 5, 7, (0, 0, 0, 0)), (2, 33, 1, 70, (0, 0, 0, 0)), (1, 4, 8, 8, (1, 2, 3, 0)),
        (2, 1, 3, 3, (1, 1, 1, 1)), (1, 65, 6, 5, (0, 1, 0, 1)), (1, 5, 4, 6, (-1, -2, -1, -1)),
        (1, 2, 2, 2, (-3, 0, 3, 0)),
    ],
)  # fmt: skip
def test_to_channels_last(bench, batch, c, h, w, pads):
    x = np.random.default_rng(4).standard_normal((batch, c, h, w)).astype(np.float32)
    top, left, bottom, right = pads
    oh, ow = h + top + bottom, w + left + right
    expected = np.zeros((batch, oh, ow, c), np.float32)
    for i in range(oh):
        for j in range(ow):
            if 0 <= i - top < h and 0 <= j - left < w:
                expected[:, i, j] = x[:, :, i - top, j - left]
    y = bench.out(expected.shape)
    bench.call(
        "nchw_to_nhwc", units=batch * oh, x=bench.put(x), y=y, batch=batch, c=c, h=h, w=w, pad_top=top, pad_left=left,
        oh=oh, ow=ow,
    )  # fmt: skip
    np.testing.assert_array_equal(bench.get(y), expected)


@pytest.mark.parametrize(("batch", "pixels", "c"), [(1, 49, 3), (2, 70, 33), (1, 1, 9), (3, 64, 64), (1, 5, 1)])
def test_to_channels_first(bench, batch, pixels, c):
    x = np.random.default_rng(5).standard_normal((batch, pixels, c)).astype(np.float32)
    y = bench.out((batch, c, pixels))
    bench.call(
        "nhwc_to_nchw", units=pieces.nhwc_to_nchw(batch, pixels), x=bench.put(x), y=y, batch=batch, pixels=pixels, c=c
    )
    np.testing.assert_array_equal(bench.get(y), x.transpose(0, 2, 1))
