"""Transposed convolution, channels last, against a plain sum in float64."""

from __future__ import annotations

import numpy as np
import pytest

from onnxlet_wasm import pieces

from .windows import FLAT, Window
from .workbench import Workbench, close


def scatter(x: np.ndarray, w: np.ndarray, window: Window, groups: int, shape: tuple[int, int]) -> np.ndarray:
    """x (NHWC) by w (channels, output channels of a group, kh, kw): every input adds to its window of the output."""
    n, h, width, c = x.shape
    oc = w.shape[1]
    (kh, kw), (sh, sw), (dh, dw) = window.size, window.stride, window.dilation
    y = np.zeros((n, *shape, groups * oc))
    for iy in range(h):
        for ix in range(width):
            for r in range(kh):
                for s in range(kw):
                    oy, ox = iy * sh + r * dh - window.pads[0], ix * sw + s * dw - window.pads[1]
                    if 0 <= oy < shape[0] and 0 <= ox < shape[1]:
                        for g in range(groups):
                            part = slice(g * c // groups, (g + 1) * c // groups)
                            y[:, oy, ox, g * oc : (g + 1) * oc] += (
                                x[:, iy, ix, part].astype(np.float64) @ w[part, :, r, s]
                            )
    return y


def conv_transpose(bench: Workbench, x, w, window: Window, groups, shape, bias=None, activation=0, low=0.0, high=1.0):
    n, h, width, c = x.shape
    oc, taps, ic = w.shape[1], w.shape[2] * w.shape[3], c // groups
    columns = taps * oc
    packed = bench.out((groups, pieces.panels(columns), ic, 8))
    bench.call(
        "pack_conv_transpose", units=groups * pieces.panels(columns), w=bench.put(w), panels=packed, groups=groups,
        ic=ic, oc=oc, taps=taps,
    )  # fmt: skip
    panels, image = bench.get(packed), bench.put(x)
    parts = bench.engine.alloc(n * h * width * groups * columns * 4)
    for g in range(groups):
        bench.call(
            "gemm", units=pieces.gemm(n * h * width, columns), a=image + g * ic * 4, lda=c, b=bench.put(panels[g]),
            c=parts + g * columns * 4, ldc=groups * columns, m=n * h * width, n=columns, k=ic, bias=0, residual=0,
            ldr=0, activation=0, low=0, high=0,
        )  # fmt: skip
    y = bench.out((n, *shape, groups * oc))
    bench.call(
        "gather_windows", units=pieces.spans(n * shape[0], shape[1]), parts=parts,
        bias=0 if bias is None else bench.put(bias), y=y, batch=n, h=h, w=width, oh=shape[0], ow=shape[1], oc=oc,
        groups=groups, activation=activation, low=low, high=high, **window.fields, **FLAT,
    )  # fmt: skip
    bench.engine.free(parts, n * h * width * groups * columns * 4)
    return bench.get(y)


@pytest.mark.parametrize(
    ("size", "groups", "window", "shape"),
    [
        ((1, 4, 5, 3, 4), 1, Window((2, 2), (2, 2)), (8, 10)),
        ((2, 3, 3, 5, 9), 1, Window((3, 3), (2, 2), (1, 1, 1, 1)), (6, 6)),  # with output padding
        ((1, 4, 4, 6, 2), 2, Window((4, 4), (2, 2), (1, 1, 1, 1)), (8, 8)),
        ((1, 3, 4, 4, 1), 4, Window((3, 3), (1, 2), (0, 1, 0, 1), (2, 1)), (7, 7)),
        ((1, 2, 2, 1, 8), 1, Window((1, 3), (3, 1)), (4, 4)),
        ((1, 1, 90, 3, 5), 1, Window((1, 4), (1, 2), (0, 1, 0, 1)), (1, 180)),
    ],
    ids=str,
)
def test_conv_transpose(bench, size, groups, window, shape):
    n, h, width, c, oc = size
    rng = np.random.default_rng(c)
    x, w = rng.standard_normal((n, h, width, c)), rng.standard_normal((c, oc, *window.size))
    x, w, bias = x.astype(np.float32), w.astype(np.float32), rng.standard_normal(groups * oc).astype(np.float32)
    expected = scatter(x, w, window, groups, shape)
    close(conv_transpose(bench, x, w, window, groups, shape), expected, 9 * c)
    result = conv_transpose(bench, x, w, window, groups, shape, bias, 1, -0.5, 0.5)
    close(result, np.clip(expected + bias, -0.5, 0.5), 9 * c)
