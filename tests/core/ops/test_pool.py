import numpy as np
import pytest

from tests.core.ops.calling import call, f32, i64, of, same
from tests.core.ops.oracle import Numbers, agrees

RAMP = np.arange(1, 17, dtype=np.float32).reshape(1, 1, 4, 4)


@pytest.mark.parametrize("opset", [1, 7, 8, 10, 12, 22])
def test_max_pool_means_the_same_in_all_versions(opset):
    y = call("MaxPool", opset, RAMP, kernel_shape=[2, 2], strides=[2, 2])
    same(y, f32([[6, 8], [14, 16]])[None, None])


@pytest.mark.parametrize(
    ("shape", "attributes"),
    [
        ((1, 2, 6, 5), {"kernel_shape": [3, 2], "strides": [2, 2], "storage_order": 1}),
        ((1, 2, 6, 5), {"kernel_shape": [3, 2], "strides": [2, 2], "dilations": [1, 2], "ceil_mode": 1}),
        ((1, 2, 4, 6, 5), {"kernel_shape": [3, 2, 2], "strides": [2, 2, 1], "storage_order": 1}),
        ((2, 1, 7), {"kernel_shape": [3], "strides": [2], "pads": [1, 1]}),
        ((2, 1, 7, 6), {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_LOWER"}),
    ],
)
def test_max_pool_and_its_indices(shape, attributes):
    agrees("MaxPool", 12, Numbers().f32(*shape), outputs=2, **attributes)


def test_max_pool_of_special_values():
    x = f32([[[np.nan, 1, -np.inf, -np.inf]]])
    values, indices = call("MaxPool", 12, x, outputs=2, kernel_shape=[2], strides=[2])
    same(values, f32([[[np.nan, -np.inf]]]))
    same(indices, i64([[[0, 2]]]))
    padded, indices = call("MaxPool", 12, f32([[[-np.inf]]]), outputs=2, kernel_shape=[3], pads=[1, 1])
    same(padded, f32([[[-np.inf]]]))
    same(indices, i64([[[0]]]))
    same(call("MaxPool", 12, of("int8", [[[-128, -5]]]), kernel_shape=[2], pads=[1, 0]), of("int8", [[[-128, -5]]]))


def test_ceil_mode_ignores_windows_that_start_in_the_padding():
    x = f32([[[1, 2, 3, 4]]])
    # Five windows would fit by the formula; the fifth starts in the padding.
    assert call("MaxPool", 12, x, kernel_shape=[1], strides=[2], pads=[0, 1], ceil_mode=1).shape == (1, 1, 2)
    same(call("AveragePool", 19, x, kernel_shape=[3], strides=[2], ceil_mode=1), f32([[[2, 3.5]]]))


def test_average_pool_counts_padding_but_not_what_ceil_mode_adds():
    x = f32([[[1, 2, 3, 4]]])
    geometry = {"kernel_shape": [3], "strides": [3], "pads": [1, 0], "ceil_mode": 1}
    same(call("AveragePool", 19, x, **geometry), f32([[[1.5, 3.5]]]))
    same(call("AveragePool", 19, x, count_include_pad=1, **geometry), f32([[[1, 3.5]]]))


@pytest.mark.parametrize(
    "attributes",
    [
        {"kernel_shape": [3, 2], "auto_pad": "SAME_LOWER", "strides": [2, 2]},
        {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 1, 1, 1], "count_include_pad": 1},
        {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 1, 1, 1]},
    ],
)
def test_average_pool(attributes):
    agrees("AveragePool", 10, Numbers().f32(1, 2, 6, 5), **attributes)


def test_dilated_average():
    x = f32([[[1, 2, 3, 4, 5]]])
    same(call("AveragePool", 19, x, kernel_shape=[2], dilations=[3]), f32([[[2.5, 3.5]]]))


@pytest.mark.parametrize("p", [1, 2, 3])
def test_lp_pool(p):
    x = Numbers().f32(1, 2, 6, 5)
    agrees("LpPool", 11, x, kernel_shape=[3, 2], p=p)
    agrees("GlobalLpPool", 11, x, p=p)
    same(call("LpPool", 1, f32([[[3, 4]]]), kernel_shape=[2], p=2.0), f32([[[5]]]))


def test_global_pools():
    same(call("GlobalAveragePool", 1, RAMP), f32([[[[8.5]]]]))
    same(call("GlobalMaxPool", 22, RAMP), f32([[[[16]]]]))
    big = np.full((1, 1, 8), 60000, np.float16)
    same(call("GlobalAveragePool", 1, big), np.full((1, 1, 1), 60000, np.float16))


def test_max_unpool_undoes_max_pool():
    x = Numbers().f32(2, 3, 6, 4)
    values, indices = call("MaxPool", 12, x, outputs=2, kernel_shape=[2, 2], strides=[2, 2])
    back = call("MaxUnpool", 11, values, indices, kernel_shape=[2, 2], strides=[2, 2])
    np.testing.assert_array_equal(back, np.where(np.isin(x, values), x, 0))
    larger = call("MaxUnpool", 11, values, indices, i64(2, 3, 7, 6), kernel_shape=[2, 2], strides=[2, 2])
    np.testing.assert_array_equal(larger[:, :, :6, :4], back)
    assert not larger[:, :, 6:].any()
    with pytest.raises(ValueError, match="indices reach"):
        call("MaxUnpool", 11, values, indices + 1000, kernel_shape=[2, 2], strides=[2, 2])


def test_missing_kernel_shape_is_named():
    with pytest.raises(ValueError, match="kernel_shape is missing"):
        call("MaxPool", 12, RAMP)


def test_without_elements_no_window_is_walked():
    size = 10**12
    y = call("MaxPool", 12, np.zeros((0, 1, 3), np.float32), kernel_shape=[size], pads=[size, size])
    assert y.shape == (0, 1, size + 4)
