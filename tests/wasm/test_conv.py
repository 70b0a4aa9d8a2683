"""Convolutions, channels last, against NumPy in float64."""

from __future__ import annotations

import numpy as np
import pytest

from onnxlet_wasm import pieces

from .windows import FLAT, Window, convolve
from .workbench import Workbench, close

SAME = (1, 1, 1, 1)
# batch, h, w, channels, output channels, groups
SIZES = [(1, 5, 6, 4, 8, 1), (2, 7, 5, 3, 11, 1), (1, 12, 11, 5, 16, 1), (1, 1, 1, 1, 1, 1), (1, 6, 5, 8, 12, 4)]
WINDOWS = [
    Window((1, 1)),
    Window((3, 3), pads=SAME),
    Window((3, 3), (2, 2), (0, 0, 1, 1)),
    Window((1, 3), (1, 2), (0, 2, 0, 1)),
    Window((2, 2), (3, 3)),
    Window((3, 3), pads=(2, 2, 2, 2), dilation=(2, 2)),
    Window((3, 2), pads=(4, 0, 3, 5), dilation=(1, 3)),
]


def random(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def conv(bench: Workbench, x, w, window: Window, groups=1, bias=None, residual=None, activation=0, low=0.0, high=6.0):
    """x (NHWC), w as ONNX has it."""
    batch, h, width, c = x.shape
    oc, ic, kh, kw = w.shape
    oc //= groups
    oh, ow = window.output(h, width)
    panels = bench.out((groups, pieces.panels(oc), kh * kw * ic, 8))
    bench.call(
        "pack_conv", units=groups * pieces.panels(oc), w=bench.put(w), panels=panels, groups=groups, oc=oc, ic=ic,
        taps=kh * kw,
    )  # fmt: skip
    y = bench.out((batch, oh, ow, groups * oc))
    bench.call(
        "conv", units=pieces.conv(batch * oh * ow, oc, groups), scratch=pieces.conv_scratch(kh, kw), x=bench.put(x),
        x_step=c, panels=bench.put(bench.get(panels)), bias=0 if bias is None else bench.put(bias),
        residual=0 if residual is None else bench.put(residual), y=y, y_step=groups * oc, batch=batch, h=h, w=width,
        c=ic, oh=oh, ow=ow, oc=oc, groups=groups, zeros=bench.put(np.zeros(ic, np.float32)), activation=activation,
        low=low, high=high, **window.fields, **FLAT,
    )  # fmt: skip
    return bench.get(y)


def depthwise(bench: Workbench, x, w, window: Window, bias=None, activation=0, low=0.0, high=6.0):
    """x (NHWC), w: channels, 1, kh, kw."""
    batch, h, width, c = x.shape
    oh, ow = window.output(h, width)
    taps = w.shape[2] * w.shape[3]
    packed = bench.engine.alloc(-(-c // 8) * 8 * taps * 4)
    bench.call("pack_depthwise", units=-(-c // 4), w=bench.put(w), packed=packed, channels=c, taps=taps)
    y = bench.out((batch, oh, ow, c))
    bench.call(
        "depthwise", units=pieces.spans(batch * oh, ow), x=bench.put(x), packed=packed,
        bias=0 if bias is None else bench.put(bias), y=y, batch=batch, h=h, w=width, c=c, oh=oh, ow=ow,
        zeros=bench.put(np.zeros(width * c, np.float32)), activation=activation, low=low, high=high, **window.fields,
    )  # fmt: skip
    bench.engine.free(packed, -(-c // 8) * 8 * taps * 4)
    return bench.get(y)


@pytest.mark.parametrize(
    ("size", "window"), [(s, w) for s in SIZES for w in WINDOWS if min(w.output(s[1], s[2])) > 0], ids=str
)
def test_conv(bench, size, window):
    batch, h, width, c, oc, groups = size
    rng = np.random.default_rng(c)
    x, w, bias = random(rng, batch, h, width, c), random(rng, oc, c // groups, *window.size), random(rng, oc)
    expected = convolve(x, w, window, groups) + bias
    close(conv(bench, x, w, window, groups, bias), expected, 9 * c)


@pytest.mark.parametrize("activation", [0, 1, 2, 6])
@pytest.mark.parametrize(("h", "oc"), [(4, 24), (11, 9)])
def test_conv_epilogue(bench, activation, h, oc):
    rng = np.random.default_rng(h)
    window = Window(pads=SAME)
    x, w, bias = random(rng, 1, h, h, 6), random(rng, oc, 6, 3, 3) / 4, random(rng, oc)
    residual = random(rng, 1, h, h, oc)
    expected = convolve(x, w, window) + bias + residual
    functions = {
        0: lambda v: v,
        1: lambda v: np.clip(v, 0, 6),
        2: lambda v: v / (1 + np.exp(-v)),
        6: lambda v: v * np.clip(v / 6 + 0.5, 0, 1),
    }
    result = conv(bench, x, w, window, 1, bias, residual, activation, 0.0, 6.0)
    close(result, functions[activation](expected), 54)


def test_conv_with_a_row_of_the_window_in_one_run(bench):
    """The first layer: an image with few channels, padded in memory, and kw = 1 with kw * c channels."""
    rng = np.random.default_rng(2)
    x, w = random(rng, 1, 3, 13, 10), random(rng, 16, 3, 7, 7)
    window = Window((7, 7), (2, 2), (3, 3, 3, 3))
    oh, ow = window.output(13, 10)
    expected = convolve(x.transpose(0, 2, 3, 1), w, window)
    tall, wide = 13 + 6, 10 + 6
    padded = bench.out((1, tall, wide, 3))
    bench.call(
        "nchw_to_nhwc", units=tall, x=bench.put(x), y=padded, batch=1, c=3, h=13, w=10, pad_top=3, pad_left=3, oh=tall,
        ow=wide,
    )  # fmt: skip
    image = bench.get(padded)
    np.testing.assert_array_equal(image, np.pad(x.transpose(0, 2, 3, 1), ((0, 0), (3, 3), (3, 3), (0, 0))))
    panels = bench.out((2, 7 * 7 * 3, 8))
    bench.call("pack_conv", units=2, w=bench.put(w), panels=panels, groups=1, oc=16, ic=3, taps=49)
    y = bench.out((1, oh, ow, 16))
    bench.call(
        "conv", units=pieces.conv(oh * ow, 16), scratch=pieces.conv_scratch(7, 1), x=bench.put(image), x_step=3,
        panels=bench.put(bench.get(panels)), bias=0, residual=0, y=y, y_step=16, batch=1, h=tall, w=wide, c=7 * 3,
        oh=oh, ow=ow, oc=16, groups=1, kh=7, kw=1, stride_h=2, stride_w=2, pad_top=0, pad_left=0, dilation_h=1,
        dilation_w=1, zeros=bench.put(np.zeros(21, np.float32)), activation=0, low=0.0, high=0.0, **FLAT,
    )  # fmt: skip
    close(bench.get(y), expected, 147)


DEPTHWISE = [
    Window(pads=SAME),
    Window(stride=(2, 2), pads=SAME),
    Window(stride=(2, 2), pads=(0, 0, 1, 1)),
    Window((5, 5), pads=(2, 2, 2, 2)),
    Window((5, 5), (2, 2), (2, 2, 2, 2)),
    Window((3, 3), (1, 2), (0, 3, 2, 0)),
    Window((3, 3), (3, 3), (1, 1, 1, 1)),
    Window((3, 3), pads=(2, 2, 2, 2), dilation=(2, 2)),
    Window((1, 7), pads=(0, 3, 0, 3)),
    Window((7, 7), pads=(3, 3, 3, 3)),
    Window((2, 3), pads=(1, 1, 0, 1)),
]


@pytest.mark.parametrize(
    ("batch", "h", "w", "c"), [(1, 7, 7, 8), (2, 6, 13, 12), (1, 5, 9, 3), (1, 9, 17, 21), (1, 5, 331, 9)]
)
@pytest.mark.parametrize("window", DEPTHWISE, ids=str)
def test_depthwise(bench, batch, h, w, c, window):
    rng = np.random.default_rng(c)
    x, weights, bias = random(rng, batch, h, w, c), random(rng, c, 1, *window.size), random(rng, c)
    expected = convolve(x, weights, window, c)
    close(depthwise(bench, x, weights, window), expected, 9)
    close(depthwise(bench, x, weights, window, bias, 1, -0.5, 1.0), np.clip(expected + bias, -0.5, 1.0), 9)


def test_depthwise_activation(bench):
    rng = np.random.default_rng(4)
    window = Window(pads=SAME)
    x, weights = random(rng, 1, 6, 6, 12), random(rng, 12, 1, 3, 3)
    expected = convolve(x, weights, window, 12)
    close(depthwise(bench, x, weights, window, activation=2), expected / (1 + np.exp(-expected)), 9)


@pytest.mark.parametrize("channels", [1, 8, 11])
def test_not_a_number_and_infinity_reach_their_neighbours_only(bench, channels):
    rng = np.random.default_rng(6)
    window = Window(pads=SAME)
    x = random(rng, 1, 9, 9, channels)
    x[0, 4, 4, 0], x[0, 8, 8, -1] = np.nan, np.inf
    w = random(rng, channels, 1, 3, 3)
    result = depthwise(bench, x, w, window, activation=1, low=0.0, high=6.0)
    expected = np.clip(convolve(x, w, window, channels), 0, 6)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)
    w = random(rng, 9, channels, 3, 3)
    result = conv(bench, x, w, window)
    np.testing.assert_array_equal(np.isfinite(result), np.isfinite(convolve(x, w, window)))
