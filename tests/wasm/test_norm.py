"""Normalisation and softmax against NumPy in float64."""

from __future__ import annotations

import numpy as np
import pytest

from onnxlet_wasm.engine import Engine, f32

from .workbench import Workbench

EPSILON = 1e-5
SOFTMAX_SHAPES = [
    (1, 1, 1),
    (3, 7, 1),
    (2, 128, 1),
    (2, 9, 5),
    (2, 33, 17),
    (3, 2500, 1),
    (2, 0, 1),
    (0, 3, 1),
    (1, 4, 8),
]


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def normalized(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    x = x.astype(np.float64)
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + EPSILON)


@pytest.mark.parametrize("parts", ["", "scale", "bias", "scale bias", "residual scale bias"])
@pytest.mark.parametrize(("rows", "n"), [(0, 4), (1, 1), (3, 5), (7, 16), (5, 384), (2, 3001)])
def test_layer_norm(bench: Workbench, rows: int, n: int, parts: str) -> None:
    x = random(rows, n) * 2 + 5
    residual, scale, bias = random(rows, n, seed=1), random(n, seed=2), random(n, seed=3)
    y, total, mean, inverse = bench.out((rows, n)), bench.out((rows, n)), bench.out((rows,)), bench.out((rows,))
    has_residual = "residual" in parts
    bench.call(
        "layer_norm",
        units=rows,
        x=bench.put(x),
        residual=bench.put(residual) if has_residual else 0,
        total=total if has_residual else 0,
        scale=bench.put(scale) if "scale" in parts else 0,
        bias=bench.put(bias) if "bias" in parts else 0,
        y=y,
        n=n,
        epsilon=f32(EPSILON),
        mean=mean,
        inverse=inverse,
    )
    t = x + residual if has_residual else x
    wanted = normalized(t, (1,)) * (scale if "scale" in parts else 1) + (bias if "bias" in parts else 0)
    np.testing.assert_allclose(bench.get(y), wanted, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(bench.get(mean), t.astype(np.float64).mean(1), rtol=1e-6)
    np.testing.assert_allclose(bench.get(inverse), 1 / np.sqrt(t.astype(np.float64).var(1) + EPSILON), rtol=1e-5)
    if has_residual:
        np.testing.assert_array_equal(bench.get(total), t)


def test_layer_norm_of_large_means_loses_nothing(bench: Workbench) -> None:
    x = random(4, 512) + 1000
    y = bench.out(x.shape)
    bench.call(
        "layer_norm",
        units=4,
        x=bench.put(x),
        residual=0,
        total=0,
        scale=0,
        bias=0,
        y=y,
        n=512,
        epsilon=f32(EPSILON),
        mean=0,
        inverse=0,
    )
    np.testing.assert_allclose(bench.get(y), normalized(x, (1,)), atol=1e-4)


@pytest.mark.parametrize("has_residual", [False, True])
@pytest.mark.parametrize(("rows", "n"), [(0, 4), (1, 1), (3, 5), (5, 384), (2, 3001)])
def test_rms_norm(bench: Workbench, rows: int, n: int, has_residual: bool) -> None:
    x, residual, scale = random(rows, n), random(rows, n, seed=1), random(n, seed=2)
    y, total = bench.out((rows, n)), bench.out((rows, n))
    bench.call(
        "rms_norm",
        units=rows,
        x=bench.put(x),
        residual=bench.put(residual) if has_residual else 0,
        total=total if has_residual else 0,
        scale=bench.put(scale),
        y=y,
        n=n,
        epsilon=f32(EPSILON),
    )
    t = (x + residual if has_residual else x).astype(np.float64)
    wanted = t / np.sqrt(np.square(t).mean(1, keepdims=True) + EPSILON) * scale
    np.testing.assert_allclose(bench.get(y), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("images", "channels", "groups", "spatial"), [(1, 1, 1, 1), (2, 6, 3, 7), (2, 6, 6, 50), (1, 8, 2, 2000)]
)
def test_group_norm(bench: Workbench, images: int, channels: int, groups: int, spatial: int) -> None:
    x, scale, bias = random(images, channels, spatial) + 3, random(channels, seed=1), random(channels, seed=2)
    y = bench.out(x.shape)
    bench.call(
        "group_norm",
        units=images * groups,
        x=bench.put(x),
        scale=bench.put(scale),
        bias=bench.put(bias),
        y=y,
        channels=channels,
        groups=groups,
        spatial=spatial,
        epsilon=f32(EPSILON),
    )
    wanted = normalized(x.reshape(images, groups, -1), (2,)).reshape(x.shape) * scale[:, None] + bias[:, None]
    np.testing.assert_allclose(bench.get(y), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("activation", [0, 1])
@pytest.mark.parametrize(("images", "channels", "inner"), [(1, 1, 1), (2, 5, 1), (2, 5, 33), (3, 17, 1), (2, 3, 400)])
def test_scale_shift(bench: Workbench, images: int, channels: int, inner: int, activation: int) -> None:
    scale, shift = random(channels, seed=1), random(channels, seed=2)
    x = random(images, channels, inner)
    for parts in (3, 1, 2):
        y = bench.out(x.shape)
        bench.call(
            "scale_shift",
            units=images * channels if inner > 1 else images,
            x=bench.put(x),
            scale=bench.put(scale) if parts & 1 else 0,
            shift=bench.put(shift) if parts & 2 else 0,
            y=y,
            channels=channels,
            inner=inner,
            activation=activation,
            low=f32(0),
            high=f32(np.inf),
        )
        wanted = x * (scale[:, None] if parts & 1 else 1) + (shift[:, None] if parts & 2 else 0)
        wanted = np.maximum(wanted, 0) if activation else wanted
        np.testing.assert_allclose(bench.get(y), wanted, rtol=1e-5, atol=1e-6)


def softmax(bench: Workbench, x: np.ndarray, log: int) -> np.ndarray:
    outer, axis, inner = x.shape
    y = bench.out(x.shape)
    bench.call("softmax", units=outer * inner, x=bench.put(x), y=y, axis=axis, inner=inner, log=log)
    return bench.get(y)


def expected_softmax(x: np.ndarray, log: int) -> np.ndarray:
    with np.errstate(all="ignore"):
        x = x.astype(np.float64)
        x = x - x.max(1, keepdims=True, initial=-np.inf)
        return x - np.log(np.exp(x).sum(1, keepdims=True)) if log else np.exp(x) / np.exp(x).sum(1, keepdims=True)


@pytest.mark.parametrize("log", [0, 1])
@pytest.mark.parametrize(
    "shape", [(1, 1, 1), (3, 7, 1), (2, 128, 1), (2, 9, 5), (2, 33, 17), (3, 2500, 1), (2, 0, 1), (0, 3, 1), (1, 4, 8)]
)
def test_softmax(bench: Workbench, shape: tuple[int, int, int], log: int) -> None:
    x = random(*shape) * 5
    np.testing.assert_allclose(
        softmax(bench, x, log), expected_softmax(x, log), rtol=3e-6, atol=1e-9 if not log else 3e-6
    )


@pytest.mark.parametrize("log", [0, 1])
@pytest.mark.parametrize("inner", [1, 3, 8])
def test_softmax_at_the_limits(bench: Workbench, inner: int, log: int) -> None:
    lines = np.array(
        [
            [1000, 999, -1000, 0, 0],
            [-np.inf, 0, 1, -np.inf, 2],
            [-np.inf] * 5,
            [np.nan, 1, 2, 3, 4],
            [np.inf, 1, 2, 3, 4],
            [3e38, 3e38, -3e38, 0, 0],
        ]
    )
    x = np.repeat(lines[:, :, None], inner, 2).astype(np.float32)
    with np.errstate(over="ignore"):
        wanted = expected_softmax(x, log).astype(np.float32)
    np.testing.assert_allclose(softmax(bench, x, log), wanted, rtol=1e-6, atol=1e-37)


def test_softmax_in_place(bench: Workbench, engine: Engine) -> None:
    x = random(3, 50, 1)
    address = bench.put(x)
    engine.call("softmax", units=3, x=address, y=address, axis=50, inner=1, log=0)
    np.testing.assert_allclose(engine.read(address, np.float32, x.shape), expected_softmax(x, 0), rtol=3e-6)
