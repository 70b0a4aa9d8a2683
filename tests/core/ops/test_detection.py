import numpy as np
import pytest

from tests.core.ops.calling import call, f32, i64, same
from tests.core.ops.oracle import Numbers, agrees

BOXES = f32([[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, -0.1, 1, 0.9], [0, 10, 1, 11], [0, 10.1, 1, 11.1], [0, 100, 1, 101]])
SCORES = f32([[[0.9, 0.75, 0.6, 0.95, 0.5, 0.3]]])


@pytest.mark.parametrize("center_point_box", [0, 1])
def test_non_max_suppression(center_point_box):
    numbers = Numbers()
    boxes = np.abs(numbers.f32(2, 20, 4))
    scores = numbers.f32(2, 3, 20)
    options = {"center_point_box": center_point_box}
    agrees("NonMaxSuppression", 11, boxes, scores, i64([5]), f32([0.4]), f32([0.1]), **options)


def test_non_max_suppression_limits_and_ties():
    selected = call("NonMaxSuppression", 10, BOXES[None], SCORES, i64(3), f32(0.5))
    same(selected, i64([[0, 0, 3], [0, 0, 0], [0, 0, 5]]))
    assert call("NonMaxSuppression", 11, BOXES[None], SCORES).shape == (0, 3)  # at most none, by default
    same(call("NonMaxSuppression", 11, BOXES[None], SCORES, i64(9), f32(0.5), f32(0.9)), i64([[0, 0, 3]]))
    tied = call("NonMaxSuppression", 11, BOXES[None], np.ones((1, 1, 6), np.float32), i64(9), f32(0.5))
    same(tied[:, 2], i64(0, 3, 5))
    with pytest.raises(ValueError, match=r"iou_threshold is 1\.5"):
        call("NonMaxSuppression", 11, BOXES[None], SCORES, i64(1), f32(1.5))


@pytest.mark.parametrize("opset", [10, 16])
@pytest.mark.parametrize("sampling_ratio", [0, 2])
def test_roi_align(opset, sampling_ratio):
    x = Numbers().f32(2, 3, 8, 9)
    rois = f32([[1, 1, 6, 5], [0, 0, 3, 3], [2, 2, 2, 2.5], [-3, -3, 20, 20]])
    agrees(
        "RoiAlign", opset, x, rois, i64(0, 1, 0, 1), output_height=2, output_width=3,
        spatial_scale=0.8, sampling_ratio=sampling_ratio,
    )  # fmt: skip


def test_max_roi_pool():
    x = Numbers().f32(2, 3, 8, 9)
    rois = f32([[0, 1, 1, 6, 5], [1, 0, 0, 3, 3], [0, 2, 2, 2, 2], [1, -2, -2, 30, 30]])
    agrees("MaxRoiPool", 1, x, rois, pooled_shape=[2, 3], spatial_scale=0.8)
