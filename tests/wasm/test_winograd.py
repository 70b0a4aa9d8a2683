"""Winograd's convolution against the direct one in float64."""

from __future__ import annotations

import numpy as np
import pytest

from onnxlet_wasm import pieces

from .windows import Window, convolve
from .workbench import Workbench


def winograd(
    bench: Workbench, x, w, window: Window, block: int, bias=None, residual=None, activation=0, low=0.0, high=1.0
):
    batch, h, width, c = x.shape
    oc = len(w)
    oh, ow = window.output(h, width)
    packed = bench.out((36, pieces.panels(oc), c, 8))
    bench.call("pack_winograd", units=pieces.panels(oc), w=bench.put(w), panels=packed, oc=oc, ic=c)
    y = bench.out((batch, oh, ow, oc))
    bench.call(
        "winograd", units=pieces.winograd(pieces.winograd_tiles(batch, oh, ow), oc, block),
        scratch=pieces.winograd_scratch(c, oc, block),
        x=bench.put(x), panels=bench.put(bench.get(packed)), bias=0 if bias is None else bench.put(bias),
        residual=0 if residual is None else bench.put(residual), y=y, batch=batch, h=h, w=width, c=c, oh=oh, ow=ow,
        oc=oc, pad_top=window.pads[0], pad_left=window.pads[1], zeros=bench.put(np.zeros(c, np.float32)), block=block,
        columns=pieces.WINOGRAD_COLUMNS, activation=activation, low=low, high=high,
    )  # fmt: skip
    return bench.get(y)


@pytest.mark.parametrize("pads", [(1, 1, 1, 1), (0, 0, 0, 0), (2, 0, 1, 3)])
@pytest.mark.parametrize(
    ("batch", "h", "w", "c", "oc", "block"),
    [(1, 8, 8, 8, 8, 4), (2, 7, 10, 3, 5, 3), (1, 5, 4, 17, 12, 100), (1, 9, 9, 5, 64, 2), (2, 9, 12, 20, 150, 5)],
)
def test_winograd(bench, batch, h, w, c, oc, block, pads):
    rng = np.random.default_rng(c)
    x = rng.standard_normal((batch, h, w, c)).astype(np.float32)
    weights = rng.standard_normal((oc, c, 3, 3)).astype(np.float32)
    expected = convolve(x, weights, Window(pads=pads))
    np.testing.assert_allclose(
        winograd(bench, x, weights, Window(pads=pads), block), expected, rtol=0, atol=1e-5 * np.abs(expected).max()
    )


@pytest.mark.parametrize("activation", [1, 2])
def test_winograd_epilogue(bench, activation):
    rng = np.random.default_rng(9)
    window = Window(pads=(1, 1, 1, 1))
    x, weights = rng.standard_normal((1, 6, 9, 4)), rng.standard_normal((7, 4, 3, 3)) / 4
    bias, residual = rng.standard_normal(7), rng.standard_normal((1, 6, 9, 7))
    x, weights, bias, residual = (v.astype(np.float32) for v in (x, weights, bias, residual))
    expected = convolve(x, weights, window) + bias + residual
    expected = np.clip(expected, 0, 1) if activation == 1 else expected / (1 + np.exp(-expected))
    result = winograd(bench, x, weights, window, 2, bias, residual, activation)
    np.testing.assert_allclose(result, expected, rtol=0, atol=3e-5)


def test_the_error_stays_below_its_bound(bench):
    """1e-5 of the result's scale, as the kernel's comment says."""
    rng = np.random.default_rng(10)
    x, weights = rng.standard_normal((1, 12, 12, 128)), rng.standard_normal((64, 128, 3, 3))
    x, weights = x.astype(np.float32), weights.astype(np.float32)
    window = Window(pads=(1, 1, 1, 1))
    expected = convolve(x, weights, window)
    result = winograd(bench, x, weights, window, pieces.winograd_block(9, 128))
    assert np.abs(result - expected).max() < 1e-5 * np.abs(expected).max()
