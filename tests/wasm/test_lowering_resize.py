"""Resampling and transposed convolution through compiled programs, against the NumPy definitions and onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

from onnxlet.ops.registry import find

from .helpers import check, node, refusal

RNG = np.random.default_rng(31)


def some(*shape: int) -> np.ndarray:
    return RNG.uniform(-1, 1, shape).astype(np.float32)


def definition(operator: str, version: int):
    found = find(operator, "", version)
    assert found is not None
    return {operator: found.function}


SCALES = [(2.0, 2.0), (0.5, 1.5), (3.0, 0.4), (1.0, 2.6), (1.0, 1.0)]


@pytest.mark.parametrize("scales", SCALES, ids=str)
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("transform", ["half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"])
@pytest.mark.parametrize("last", [False, True])
def test_resize_by_scales(provider, scales, mode, transform, last):
    one = node("Resize", ("c" if last else "x") + " - s", mode=mode, coordinate_transformation_mode=transform)
    nodes = [node("Conv", "x w", "c"), one] if last else [one]
    constants = {"s": np.array([1, 1, *scales], np.float32), **({"w": some(6, 5, 1, 1)} if last else {})}
    check(provider, nodes, {"x": some(2, 5, 6, 7)}, constants, references=definition("Resize", 21))


@pytest.mark.parametrize("attributes", [
    {"nearest_mode": "ceil"}, {"nearest_mode": "floor"}, {"nearest_mode": "round_prefer_ceil"},
    {"mode": "linear", "antialias": 1}, {"mode": "cubic", "exclude_outside": 1, "cubic_coeff_a": -0.5},
    {"mode": "linear", "coordinate_transformation_mode": "half_pixel_symmetric"},
], ids=str)  # fmt: skip
def test_resize_to_sizes(provider, attributes):
    constants = {"z": np.array([4, 9])}
    one = node("Resize", "x - - z", axes=[2, 3], **attributes)
    check(provider, one, {"x": some(1, 3, 6, 7)}, constants, references=definition("Resize", 21))


def test_resize_in_one_dimension(provider):
    one = node("Resize", "x - s", mode="linear")
    check(
        provider, one, {"x": some(2, 3, 7)}, {"s": np.array([1, 1, 2], np.float32)}, references=definition("Resize", 21)
    )


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_upsample(provider, mode):
    scales = np.array([1, 1, 2, 3], np.float32)
    for operator, version in (("Upsample", 9), ("Resize", 10)):
        one = node(operator, "x s", version=version, mode=mode)
        check(provider, one, {"x": some(1, 3, 4, 5)}, {"s": scales}, references=definition(operator, version))


def test_resizing_channels_is_refused(provider):
    one = node("Resize", "x - s")
    reason = refusal(provider, one, {"x": some(1, 2, 3, 3)}, {"s": np.array([1, 2, 1, 1], np.float32)})
    assert reason == "resizing batch or channels has no kernel"


TRANSPOSED = [
    (4, 1, 1, (5, 7), (2, 2), {"strides": [2, 2]}),
    (6, 6, 3, (5, 7), (3, 2), {"strides": [3, 2]}),
    (4, 8, 1, (6,), (4,), {"strides": [4]}),
    (4, 6, 1, (5, 7), (2, 2), {"strides": [2, 2]}),
    (4, 6, 1, (5, 7), (3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]}),
    (4, 3, 1, (5, 4), (4, 3), {"strides": [2, 3], "pads": [1, 0, 1, 2], "dilations": [1, 2]}),
    (6, 6, 3, (4, 4), (3, 3), {"strides": [2, 1]}),
    (4, 5, 1, (5, 4), (3, 3), {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    (4, 5, 1, (5, 4), (3, 3), {"auto_pad": "SAME_LOWER", "strides": [2, 3]}),
    (4, 5, 1, (5, 4), (3, 3), {"output_shape": [10, 9], "strides": [2, 2]}),
    (8, 8, 8, (6,), (4,), {"strides": [2], "pads": [1, 1]}),
]


@pytest.mark.parametrize("case", TRANSPOSED, ids=str)
@pytest.mark.parametrize("computed", [False, True])
def test_conv_transpose(provider, case, computed):
    channels, outputs, groups, size, kernel, attributes = case
    weights = {"w": some(channels, outputs // groups if groups < channels else 1, *kernel)}
    weights["b"] = some(weights["w"].shape[1] * groups)
    feeds = {"x": some(2, channels, *size), **(weights if computed else {})}
    one = node("ConvTranspose", "x w b", group=groups, **attributes)
    check(provider, one, feeds, {} if computed else weights, references=definition("ConvTranspose", 11))
