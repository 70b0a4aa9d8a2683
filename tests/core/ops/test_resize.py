from typing import Any

import numpy as np
import pytest

from tests.core.ops.calling import call, f32, i64, of, same
from tests.core.ops.oracle import Numbers, agrees

NONE = np.zeros(0, np.float32)
SCALES = [[1, 1, 0.6, 0.6], [1, 1, 2, 2], [1, 1, 3.3, 1.7]]
TRANSFORMS = ["half_pixel", "asymmetric", "pytorch_half_pixel", "tf_half_pixel_for_nn"]


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("scales", SCALES)
def test_resize_before_opset_11(mode, scales):
    x = Numbers().f32(1, 2, 5, 7)
    agrees("Resize", 10, x, f32(scales), mode=mode)
    if min(scales) >= 1:
        agrees("Upsample", 9, x, f32(scales), mode=mode)
        upsampled = call("Upsample", 9, x, f32(scales), mode=mode)
        same(call("Upsample", 7, x, scales=scales, mode=mode), upsampled)
        same(call("Upsample", 1, x, height_scale=scales[2], width_scale=scales[3], mode=mode), upsampled)


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize("rounding", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
def test_nearest(transform, scales, rounding):
    x = Numbers().f32(1, 2, 5, 7)
    options = {"mode": "nearest", "coordinate_transformation_mode": transform, "nearest_mode": rounding}
    agrees("Resize", 11, x, NONE, f32(scales), **options)
    agrees("Resize", 11, x, NONE, NONE, i64(1, 2, int(5 * scales[2]), int(7 * scales[3])), **options)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("transform", [*TRANSFORMS[:3], "align_corners"])
@pytest.mark.parametrize("scales", SCALES)
def test_interpolation(mode, transform, scales):
    x = Numbers().f32(1, 2, 5, 7)
    options: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": transform}
    agrees("Resize", 11, x, NONE, NONE, i64(1, 2, int(5 * scales[2]), int(7 * scales[3])), **options)
    if transform != "align_corners":  # there onnxruntime rounds the length that a scale gives
        agrees("Resize", 11, x, NONE, f32(scales), **options)
    if mode == "cubic":
        agrees("Resize", 11, x, NONE, NONE, i64(1, 2, 8, 9), exclude_outside=1, cubic_coeff_a=-0.5, **options)


def test_align_corners_uses_the_fractional_length():
    y = call(
        "Resize", 13, f32(1, 2, 3, 4), None, f32(0.6), mode="linear", coordinate_transformation_mode="align_corners"
    )
    np.testing.assert_allclose(y, [1, 1 + 3 / 1.4], rtol=1e-6)  # 4 * 0.6 = 2.4 elements


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_antialiasing(mode):
    x = Numbers().f32(1, 1, 9, 13)
    agrees("Resize", 18, x, None, None, i64(1, 1, 4, 5), mode=mode, antialias=1, exclude_outside=1)
    flat = call("Resize", 18, np.full((11,), 3, np.float32), None, f32(0.3), mode=mode, antialias=1)
    np.testing.assert_allclose(flat, [3, 3, 3], rtol=1e-6)


def test_crop_and_resize_takes_the_length_from_the_region():
    x = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    roi = f32(0, 0, 0, 0, 1, 1, 0.5, 0.5)
    options: dict[str, Any] = {"mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize"}
    # floor(4 * 0.5 * 2) elements, half an element apart: x * 0.5 * (4 - 1) / (4 - 1).
    y = call("Resize", 13, x, roi, f32(1, 1, 2, 2), **options)
    steps = np.arange(4) / 2
    np.testing.assert_allclose(y[0, 0], 4 * steps[:, None] + steps, rtol=1e-6)
    outside = call("Resize", 13, x[0, 0, 0], f32(-0.5, 1.5), None, i64(5), extrapolation_value=9.0, **options)
    same(outside, f32(9, 0, 1.5, 3, 9))
    with pytest.raises(ValueError, match="needs a roi"):
        call("Resize", 13, x, None, f32(1, 1, 2, 2), **options)


def test_axes_and_aspect_ratio():
    x = Numbers().f32(2, 3, 6, 4)
    some = call("Resize", 18, x, None, None, i64(3, 6), axes=[2, 3])
    same(call("Resize", 18, x, None, None, i64(6, 3), axes=[-1, -2]), some)
    assert some.shape == (2, 3, 3, 6)
    for policy, shape in (("not_larger", (2, 3, 3, 2)), ("not_smaller", (2, 3, 9, 6))):
        y = call("Resize", 18, x, None, None, i64(3, 6), axes=[2, 3], keep_aspect_ratio_policy=policy)
        assert y.shape == shape


def test_other_element_types():
    integers = of("uint8", [0, 100, 255])
    y = call("Resize", 13, integers, None, None, i64(5), mode="linear")
    same(y, of("uint8", [0, 40, 100, 193, 255]))
    words = np.array(["a", "b"], object)
    assert call("Resize", 13, words, None, f32(2)).tolist() == ["a", "a", "b", "b"]
    same(call("Resize", 13, f32(1, 3).astype(np.float16), None, f32(2), mode="linear"), of("float16", [1, 1.5, 2.5, 3]))


@pytest.mark.parametrize(
    ("inputs", "attributes", "message"),
    [
        ((None, f32(2), i64(3)), {}, "exactly one of scales and sizes"),
        ((None, f32(2, 2)), {}, "2 scales or sizes are given for 1 axes"),
        ((None, f32(-1)), {}, "must be positive"),
        ((None, f32(2)), {"mode": "area"}, "mode is 'area'"),
        ((None, f32(2)), {"nearest_mode": "up"}, "nearest_mode is 'up'"),
        ((None, f32(2)), {"coordinate_transformation_mode": "corner"}, "coordinate_transformation_mode is 'corner'"),
    ],
)
def test_resize_says_what_is_wrong(inputs, attributes, message):
    with pytest.raises(ValueError, match=message):
        call("Resize", 13, f32(1, 2), *inputs, **attributes)


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding_mode", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align_corners", [0, 1])
def test_grid_sample(mode, padding_mode, align_corners):
    numbers = Numbers()
    x, grid = numbers.f32(2, 3, 6, 7), 1.3 * numbers.f32(2, 4, 5, 2)
    options = {"padding_mode": padding_mode, "align_corners": align_corners}
    agrees("GridSample", 16, x, grid, mode=mode, **options)
    volume, points = numbers.f32(2, 3, 5, 6, 7), 1.3 * numbers.f32(2, 2, 4, 5, 3)
    if mode != "bicubic":
        agrees("GridSample", 20, volume, points, mode=mode.removeprefix("bi"), **options)


def test_affine_grid_reads_an_image_where_it_is():
    x = Numbers().f32(2, 3, 4, 5)
    identity = np.tile(f32([[1, 0, 0], [0, 1, 0]]), (2, 1, 1))
    for align_corners in (0, 1):
        grid = call("AffineGrid", 20, identity, i64(2, 3, 4, 5), align_corners=align_corners)
        back = call("GridSample", 20, x, grid, align_corners=align_corners)
        np.testing.assert_allclose(back, x, rtol=1e-4, atol=1e-5)
    shifted = call("AffineGrid", 20, f32([[[1, 0, 0, 9], [0, 1, 0, 8], [0, 0, 1, 7]]]), i64(1, 1, 1, 1, 1))
    same(shifted, f32([[[[[9, 8, 7]]]]]))
