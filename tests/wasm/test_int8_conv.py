"""Convolutions of 8-bit integers, channels last, against NumPy's exact sums."""

from __future__ import annotations

import numpy as np
import pytest

from onnxlet_wasm import pieces
from onnxlet_wasm.engine import f32

from .test_int8 import TYPES, integers
from .windows import Window, convolve
from .workbench import Workbench

SAME = (1, 1, 1, 1)
# batch, h, w, channels, output channels, groups
SIZES = [(1, 5, 6, 4, 8, 1), (2, 7, 5, 3, 11, 1), (1, 12, 11, 20, 24, 1), (1, 1, 1, 1, 1, 1), (1, 6, 5, 8, 12, 4)]
WINDOWS = [
    Window((1, 1)),
    Window((1, 1), (2, 2)),
    Window((3, 3), pads=SAME),
    Window((3, 3), (2, 2), (0, 0, 1, 1)),
    Window((1, 3), (1, 2), (0, 2, 0, 1)),
    Window((2, 2), (3, 3)),
    Window((3, 3), pads=(2, 2, 2, 2), dilation=(2, 2)),
    Window((3, 2), pads=(4, 0, 3, 5), dilation=(1, 3)),
]
KINDS = [("uint8", "int8", "uint8"), ("int8", "uint8", "int8"), ("uint8", "int8", "int32"), ("int8", "int8", "float32")]
"""The types of x, weights and y."""


BIAS = np.float32(0.25)


def wanted(x, w, x_zero, w_zero, window: Window, groups: int, addend, scale, y_zero, dtype: str) -> np.ndarray:
    wide_x, wide_w = x.astype(np.float64) - x_zero, w.astype(np.float64) - w_zero.reshape(-1, 1, 1, 1)
    total = convolve(wide_x, wide_w, window, groups) + addend
    if dtype == "int32":
        return total.astype(np.int32)
    if dtype == "float32":  # with a bias, and Relu
        return np.maximum(total.astype(np.float32) * scale + BIAS, 0)
    limits = np.iinfo(dtype)
    y = np.rint(total.astype(np.float32) * scale) + y_zero.astype(np.float64)
    return np.clip(y, limits.min, limits.max).astype(dtype)


def operands(rng: np.random.Generator, bench: Workbench, w: np.ndarray, groups: int, types, per_channel: bool):
    """Zero points, scales and addends, and the fields that both kernels take."""
    oc, taps = w.shape[0], w[0].size
    x_zero, w_zero = integers(rng, types[0], 1), integers(rng, types[1], oc if per_channel else 1)
    addend = rng.integers(-3000, 3000, oc).astype(np.int32)
    scale = (rng.uniform(0.5, 1.5, oc if per_channel else 1) / (60 * np.sqrt(taps))).astype(np.float32)
    y_zero = integers(rng, types[2] if "int8" in types[2] else "int8", 1)
    activation = int(types[2] == "float32")
    fields = {
        "type": TYPES[types[0]], "x_zero": bench.put(x_zero), "y_type": TYPES[types[2]], "scale": bench.put(scale),
        "scales": scale.size, "addend": bench.put(addend), "y_zero": bench.put(y_zero),
        "bias": bench.put(np.full(oc, BIAS)), "activation": activation, "low": f32(0.0), "high": f32(np.inf),
    }  # fmt: skip
    return (x_zero, w_zero), (addend, scale, y_zero), fields


@pytest.mark.parametrize("types", KINDS, ids=str)
@pytest.mark.parametrize(
    ("size", "window"), [(s, w) for s in SIZES for w in WINDOWS if min(w.output(s[1], s[2])) > 0], ids=str
)
def test_conv(bench: Workbench, size, window: Window, types):
    batch, h, width, c, oc, groups = size
    rng = np.random.default_rng(c + oc)
    for per_channel in (False, True):
        x, w = integers(rng, types[0], batch, h, width, c), integers(rng, types[1], oc, c // groups, *window.size)
        zeros, epilogue, fields = operands(rng, bench, w, groups, types, per_channel)
        outputs, depth = oc // groups, w[0].size
        count = groups * pieces.panels(outputs)
        panels, columns = bench.out((count * 8 * (depth + 3 & -4),), np.int8), bench.out((count * 32,), np.int32)
        bench.call(
            "pack_b_int8", units=count, b=bench.put(w), type=TYPES[types[1]], inner=c // groups, step_outer=1,
            step_inner=w[0, 0].size, step_n=depth, zero=bench.put(zeros[1]), zeros=zeros[1].size, panels=panels,
            columns=columns, k=depth, n=outputs, best=2,
        )  # fmt: skip
        oh, ow = window.output(h, width)
        y = bench.out((batch, oh, ow, oc), types[2])
        bench.call(
            "conv_int8", units=pieces.conv(batch * oh * ow, outputs, groups), scratch=pieces.int8_scratch(depth),
            x=bench.put(x), x_step=c, panels=bench.put(bench.get(panels)), columns=bench.put(bench.get(columns)), y=y,
            y_step=oc, batch=batch, h=h, w=width, c=c // groups, oh=oh, ow=ow, oc=outputs, groups=groups,
            **fields, **window.fields,
        )  # fmt: skip
        np.testing.assert_array_equal(bench.get(y), wanted(x, w, *zeros, window, groups, *epilogue, types[2]))


@pytest.mark.parametrize("types", KINDS, ids=str)
@pytest.mark.parametrize("window", [*WINDOWS, Window((5, 5), pads=(2, 2, 2, 2))], ids=str)
@pytest.mark.parametrize(("width", "c"), [(6, 1), (6, 3), (6, 8), (6, 16), (6, 29), (331, 9)])
def test_depthwise(bench: Workbench, width: int, c: int, window: Window, types):
    batch, h = 2, 7
    rng = np.random.default_rng(c)
    for per_channel in (False, True):
        x, w = integers(rng, types[0], batch, h, width, c), integers(rng, types[1], c, 1, *window.size)
        zeros, epilogue, fields = operands(rng, bench, w, c, types, per_channel)
        taps, whole = w[0].size, c + 15 & -16
        packed, sums = bench.engine.alloc(2 * whole * (taps + 1 & -2)), bench.engine.alloc(4 * whole)
        bench.call(
            "pack_depthwise_int8", units=-(-c // 8), w=bench.put(w), type=TYPES[types[1]], zero=bench.put(zeros[1]),
            zeros=zeros[1].size, packed=packed, sums=sums, channels=c, taps=taps,
        )  # fmt: skip
        oh, ow = window.output(h, width)
        y = bench.out((batch, oh, ow, c), types[2])
        bench.call(
            "depthwise_int8", units=pieces.spans(batch * oh, ow), scratch=16 * (taps + 1) + c + 64, x=bench.put(x),
            packed=packed, sums=sums, y=y, batch=batch, h=h, w=width, c=c, oh=oh, ow=ow, **fields, **window.fields,
        )  # fmt: skip
        bench.engine.free(packed, 2 * whole * (taps + 1 & -2))
        bench.engine.free(sums, 4 * whole)
        np.testing.assert_array_equal(bench.get(y), wanted(x, w, *zeros, window, c, *epilogue, types[2]))
