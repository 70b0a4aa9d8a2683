"""Sampling of images, and rotary positions, by kernels on all builds, against their NumPy definitions."""

from __future__ import annotations

import numpy as np
import pytest

import onnxlet.ops  # noqa: F401
from onnxlet.ops.attention import rotate
from onnxlet.ops.detection import roi_align_impl
from onnxlet.ops.grid import grid_sample_impl
from onnxlet_wasm.engine import f32

from .workbench import Workbench

RNG = np.random.default_rng(31)


def some(*shape: int) -> np.ndarray:
    return RNG.uniform(-1, 1, shape).astype(np.float32)


@pytest.mark.parametrize("sizes", [(7,), (5, 4), (1, 1), (3, 2, 4)], ids=str)
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_grid_sample(bench: Workbench, sizes, mode, padding) -> None:
    x, grid = some(2, 3, *sizes), 2 * some(2, 4, 5, len(sizes))
    grid[0, 0, :5, 0] = np.nan, np.inf, -np.inf, 1e30, -50
    for corners in (0, 1):
        y = bench.out((2, 3, 4, 5))
        bench.call("grid_sample", units=40, x=bench.put(x), grid=bench.put(grid), y=y,
                   sizes=bench.put(np.array(sizes, np.int64)), rank=len(sizes), channels=3, points=20,
                   mode=["nearest", "linear", "cubic"].index(mode),
                   padding=["zeros", "border", "reflection"].index(padding), corners=corners)  # fmt: skip
        with np.errstate(invalid="ignore"):
            wanted = grid_sample_impl(x, grid, mode, padding, corners)
        np.testing.assert_allclose(bench.get(y), wanted, rtol=1e-4, atol=1e-5)


ROIS = np.array(
    [[1, 2, 6, 7], [0, 0, 9, 8], [-9, -9, 30, 30], [5, 5, 4, 4], [3, 3, 3, 3], [np.nan, 0, 4, 4]], np.float32
)


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("samples", [0, 2])
@pytest.mark.parametrize("half_pixel", [False, True])
def test_roi_align(bench: Workbench, mode, samples, half_pixel) -> None:
    x, batch = some(2, 3, 10, 9), np.array([0, 1, 1, 0, 1, 0])
    rois = ROIS if samples == 0 else ROIS[:-1]
    y, error = bench.out((len(rois), 3, 3, 2)), bench.put(np.zeros(2, np.int64))
    bench.call("roi_align", units=3 * len(rois), x=bench.put(x), rois=bench.put(rois), batch=bench.put(batch), y=y,
               images=2, channels=3, h=10, w=9, oh=3, ow=2, samples=samples, scale=f32(0.7),
               half_pixel=int(half_pixel), maximum=int(mode == "max"), error=error, limit=error + 8)  # fmt: skip
    with np.errstate(invalid="ignore"):
        wanted = roi_align_impl(x, rois, batch[: len(rois)], mode, 3, 2, samples, 0.7, half_pixel)
    np.testing.assert_allclose(bench.get(y), wanted, rtol=1e-4, atol=1e-5)
    assert not bench.engine.read(error, np.int64, (2,)).any()


@pytest.mark.parametrize(("image", "corner", "flags"), [(2, 4.0, [1, 0]), (-1, 4.0, [1, 0]), (0, 1e9, [0, 1])])
def test_regions_that_can_not_be(bench: Workbench, image, corner, flags) -> None:
    error, y = bench.put(np.zeros(2, np.int64)), bench.out((1, 1, 2, 2))
    bench.call("roi_align", units=1, x=bench.put(some(2, 1, 5, 5)), y=y, batch=bench.put(np.array([image])),
               rois=bench.put(np.array([[0, 0, corner, 4]], np.float32)), images=2, channels=1, h=5, w=5, oh=2, ow=2,
               samples=0, scale=f32(1.0), half_pixel=1, maximum=0, error=error, limit=error + 8)  # fmt: skip
    assert bench.engine.read(error, np.int64, (2,)).tolist() == flags


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("half", [1, 3, 4])
@pytest.mark.parametrize("placed", [False, True])
def test_rotary(bench: Workbench, interleaved, half, placed) -> None:
    batch, heads, length, size = 2, 3, 5, 8
    x = some(batch, heads, length, size)
    positions = RNG.integers(0, 9, (batch, length))
    cos, sin = (some(9, half) if placed else some(batch, length, half) for _ in range(2))
    y, error = bench.out(x.shape), bench.put(np.zeros(1, np.int64))
    bench.call("rotary", units=batch * heads * length, x=bench.put(x), y=y, cos=bench.put(cos), sin=bench.put(sin),
               positions=bench.put(positions) if placed else 0, rows=9, error=error, length=length, heads=heads,
               size=size, half=half, interleaved=interleaved, angles_batch=length, x_batch=heads * length * size,
               x_row=size, x_head=length * size, y_batch=heads * length * size, y_row=size,
               y_head=length * size)  # fmt: skip
    angles = [(a[positions] if placed else a)[:, None] for a in (cos, sin)]
    np.testing.assert_allclose(bench.get(y), rotate(x, angles[0], angles[1], interleaved), rtol=1e-5, atol=1e-6)
