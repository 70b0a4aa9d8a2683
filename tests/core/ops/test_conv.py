import itertools

import numpy as np
import pytest

from tests.core.ops.calling import call, f32, i64, same
from tests.core.ops.oracle import Numbers, agrees

CONVOLUTIONS = [
    ((2, 4, 9), (6, 2, 3), {"group": 2, "strides": [2], "pads": [1, 2], "dilations": [2]}),
    ((2, 4, 7, 6), (6, 4, 3, 2), {"strides": [2, 1], "pads": [1, 0, 2, 1]}),
    ((1, 4, 7, 6), (8, 1, 3, 3), {"group": 4, "pads": [1, 1, 1, 1]}),
    ((1, 3, 5, 6, 4), (2, 3, 2, 3, 1), {"dilations": [1, 2, 1]}),
    ((1, 2, 6, 7), (3, 2, 3, 3), {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    ((1, 2, 6, 7), (3, 2, 3, 3), {"auto_pad": "SAME_LOWER", "strides": [2, 2]}),
    ((1, 2, 6, 7), (3, 2, 3, 3), {"auto_pad": "VALID", "kernel_shape": [3, 3]}),
]


@pytest.mark.parametrize(("x", "w", "attributes"), CONVOLUTIONS)
def test_conv(x, w, attributes):
    numbers = Numbers()
    agrees("Conv", 11, numbers.f32(*x), numbers.f32(*w), numbers.f32(w[0]), **attributes)


def test_conv_by_its_definition():
    numbers = Numbers()
    x, w = numbers.f32(1, 2, 5, 6), numbers.f32(3, 2, 2, 3)
    expected = np.zeros((1, 3, 4, 4), np.float32)
    for m, i, j in itertools.product(range(3), range(4), range(4)):
        expected[0, m, i, j] = (x[0, :, i : i + 2, j : j + 3] * w[m]).sum()
    np.testing.assert_allclose(call("Conv", 1, x, w), expected, rtol=1e-5, atol=1e-5)


def test_conv_of_float16_sums_in_float32():
    x = np.ones((1, 4096, 1), np.float16)
    same(call("Conv", 11, x, np.ones((1, 4096, 1), np.float16)), np.array([[[4096]]], np.float16))


def test_conv_without_elements():
    assert call("Conv", 11, np.zeros((0, 3, 5, 5), np.float32), np.ones((2, 3, 3, 3), np.float32)).shape == (0, 2, 3, 3)
    same(call("Conv", 11, np.zeros((1, 0, 3), np.float32), np.zeros((2, 0, 1), np.float32)), np.zeros((1, 2, 3), "f4"))


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"group": 3}, "group 3 does not divide"),
        ({"kernel_shape": [2, 2]}, "kernel_shape"),
        ({"strides": [1]}, "strides"),
        ({"pads": [1, 1]}, "pads"),
        ({"auto_pad": "SAME"}, "auto_pad"),
        ({"dilations": [9, 9]}, "spans 19 elements"),
    ],
)
def test_conv_says_what_is_wrong(attributes, message):
    with pytest.raises(ValueError, match=message):
        call("Conv", 11, np.zeros((1, 4, 5, 5), np.float32), np.zeros((2, 4, 3, 3), np.float32), **attributes)


@pytest.mark.parametrize(
    ("x", "w", "attributes"),
    [
        ((1, 4, 5), (4, 3, 3), {"strides": [2], "auto_pad": "SAME_UPPER"}),
        ((1, 4, 5, 5), (4, 3, 3, 3), {"strides": [2, 2], "output_shape": [10, 11]}),
        ((1, 4, 5, 5), (4, 3, 3, 2), {"group": 2, "strides": [2, 1], "pads": [1, 0, 0, 1], "dilations": [1, 2]}),
        ((2, 2, 3, 4, 3), (2, 2, 2, 2, 2), {"strides": [2, 2, 1], "output_padding": [1, 0, 0]}),
    ],
)
def test_conv_transpose(x, w, attributes):
    numbers = Numbers()
    channels = w[1] * attributes.get("group", 1)
    agrees("ConvTranspose", 11, numbers.f32(*x), numbers.f32(*w), numbers.f32(channels), **attributes)


def test_conv_transpose_extends_what_is_too_short():
    x, w = f32([[[1, 2]]]), f32([[[1, 1]]])
    same(call("ConvTranspose", 11, x, w, strides=[2], pads=[-1, -2]), f32([[[0, 1, 1, 2, 2, 0, 0]]]))
    same(call("ConvTranspose", 11, x, w, strides=[2], output_padding=[1]), f32([[[1, 1, 2, 2, 0]]]))
    same(call("ConvTranspose", 11, x, w, strides=[2], output_shape=[6]), f32([[[1, 1, 2, 2, 0, 0]]]))


def test_conv_transpose_divides_odd_padding_as_auto_pad_says():
    x, w = f32([[[1, 2]]]), f32([[[1, 10, 100]]])  # the full result is 1, 10, 102, 20, 200
    same(call("ConvTranspose", 11, x, w, strides=[2], auto_pad="SAME_UPPER"), f32([[[1, 10, 102, 20]]]))
    same(call("ConvTranspose", 11, x, w, strides=[2], auto_pad="SAME_LOWER"), f32([[[10, 102, 20, 200]]]))


def test_deform_conv_without_offsets_is_a_convolution():
    numbers = Numbers()
    x, w, b = numbers.f32(2, 4, 6, 7), numbers.f32(6, 2, 3, 2), numbers.f32(6)
    geometry = {"group": 2, "pads": [1, 1, 0, 1], "strides": [2, 1]}
    plain = call("Conv", 11, x, w, b, **geometry)
    offset = np.zeros((2, 2 * 2 * 6, *plain.shape[2:]), np.float32)
    mask = np.ones((2, 2 * 6, *plain.shape[2:]), np.float32)
    deformed = call("DeformConv", 19, x, w, offset, b, mask, offset_group=2, **geometry)
    np.testing.assert_allclose(deformed, plain, rtol=1e-5, atol=1e-5)
    agrees("DeformConv", 19, x, w, numbers.f32(*offset.shape), b, numbers.f32(*mask.shape), offset_group=2, **geometry)


def test_deform_conv_in_one_dimension():
    # Half a step to the right: the mean of neighbours, the last one's being 0 outside.
    x, w, offset = f32([[[1, 2, 4]]]), f32([[[1]]]), np.full((1, 1, 3), 0.5, np.float32)
    same(call("DeformConv", 19, x, w, offset), f32([[[1.5, 3, 2]]]))


def test_col2im_counts_how_many_blocks_cover_an_element():
    ones = np.ones((1, 4, 9), np.float32)
    counts = f32([[1, 2, 2, 1], [2, 4, 4, 2], [2, 4, 4, 2], [1, 2, 2, 1]])
    same(call("Col2Im", 18, ones, i64(4, 4), i64(2, 2)), counts[None, None])
    with pytest.raises(ValueError, match="do not hold blocks"):
        call("Col2Im", 18, ones, i64(5, 4), i64(2, 2))


def test_causal_conv_goes_on_where_it_stopped():
    numbers = Numbers()
    x, w, b = numbers.f32(2, 3, 8), numbers.f32(3, 1, 4), numbers.f32(3)
    whole, state = call("CausalConvWithState", 27, x, w, b, outputs=2, activation="silu")
    first, kept = call("CausalConvWithState", 27, x[:, :, :5], w, b, outputs=2, activation="silu")
    second, last = call("CausalConvWithState", 27, x[:, :, 5:], w, b, kept, outputs=2, activation="silu")
    np.testing.assert_allclose(np.concatenate([first, second], axis=2), whole, rtol=1e-6, atol=1e-6)
    same(last, state)
    same(state, x[:, :, 5:])


def test_integer_convolution():
    numbers = Numbers()
    zero = np.array(120, np.uint8)
    agrees("ConvInteger", 10, numbers.u8(2, 4, 6, 6), numbers.u8(6, 4, 3, 3), zero, zero, pads=[1, 1, 1, 1])
    x, w = np.full((1, 2, 1), 255, np.uint8), np.full((1, 2, 1), 255, np.uint8)
    same(call("ConvInteger", 10, x, w), np.array([[[2 * 255 * 255]]], np.int32))
