import numpy as np
import pytest

from tests.core.ops.calling import call, f32, same
from tests.core.ops.oracle import Numbers, agrees


def parameters(numbers, *shape):
    return [numbers.f32(*shape), numbers.f32(*shape), numbers.f32(*shape), np.abs(numbers.f32(*shape))]


@pytest.mark.parametrize("opset", [7, 9, 14, 15])
def test_batch_normalization(opset):
    numbers = Numbers()
    agrees("BatchNormalization", opset, numbers.f32(2, 3, 4, 5), *parameters(numbers, 3))


def test_batch_normalization_per_activation():
    numbers = Numbers()
    agrees("BatchNormalization", 7, numbers.f32(2, 3, 4, 5), *parameters(numbers, 3, 4, 5), spatial=0)


def test_batch_normalization_in_training():
    numbers = Numbers()
    x = numbers.f32(2, 3, 4, 5)
    scale, bias, mean, var = parameters(numbers, 3)
    agrees("BatchNormalization", 14, x, scale, bias, mean, var, outputs=3, training_mode=1, momentum=0.8)
    batch_mean, batch_var = x.mean(axis=(0, 2, 3)), x.var(axis=(0, 2, 3))
    y = (x - batch_mean[:, None, None]) / np.sqrt(batch_var + 1e-5)[:, None, None] * scale[:, None, None]
    expected = [
        y + bias[:, None, None],
        0.8 * mean + 0.2 * batch_mean,
        0.8 * var + 0.2 * batch_var,
        batch_mean,
        batch_var,
    ]
    # Before opset 14 the number of outputs says that this is training, and from 7 on nothing else does.
    for opset in (1, 9):
        got = call("BatchNormalization", opset, x, scale, bias, mean, var, outputs=5, momentum=0.8)
        for g, e in zip(got, expected, strict=True):
            np.testing.assert_allclose(g, e, rtol=1e-4, atol=1e-5)


def test_batch_normalization_of_one_axis_has_one_channel():
    one = f32([2])
    y = call("BatchNormalization", 15, f32(1, 3), one, f32([1]), f32([1]), f32([4]), epsilon=0.0)
    same(y, f32(1, 3))


def test_float16_statistics_do_not_overflow():
    x = np.full((1, 1, 4096), 300, np.float16)
    x[..., ::2] = -300
    ones, zeros = np.ones(1, np.float16), np.zeros(1, np.float16)
    same(call("InstanceNormalization", 6, x, ones, zeros), np.sign(x))
    same(call("LayerNormalization", 17, x, ones), np.sign(x))
    same(call("MeanVarianceNormalization", 13, x[None], axes=[2, 3]), np.sign(x)[None])


def test_layer_normalization():
    numbers = Numbers()
    x = numbers.f32(2, 3, 4)
    agrees("LayerNormalization", 17, x, numbers.f32(3, 4), numbers.f32(3, 4), outputs=3, axis=1)
    double = call("LayerNormalization", 17, x.astype(np.float64), np.ones(4), outputs=2)
    assert [v.dtype for v in double] == [np.float64, np.float32]
    with pytest.raises(ValueError, match="axis 3 is out of range"):
        call("LayerNormalization", 17, x, np.ones(4, np.float32), axis=3)


def test_rms_normalization():
    y = call("RMSNormalization", 23, f32([[3, 4]]), f32(1, 2), epsilon=0.0)
    np.testing.assert_allclose(y, [[3 / np.sqrt(12.5), 8 / np.sqrt(12.5)]], rtol=1e-6)


def test_group_normalization_scales_groups_and_then_channels():
    x = f32([[[1, 3], [5, 7], [0, 0], [2, 2]]])
    normalized = (x.reshape(2, 2, 2) - f32([4, 1])[:, None, None]) / np.sqrt(f32([5, 1]))[:, None, None]
    per_group = call("GroupNormalization", 18, x, f32(2, 3), f32(0, 1), num_groups=2, epsilon=0.0)
    np.testing.assert_allclose(
        per_group[0], (normalized * f32([2, 3])[:, None, None] + f32([0, 1])[:, None, None]).reshape(4, 2), rtol=1e-5
    )
    per_channel = call("GroupNormalization", 21, x, f32(1, 2, 3, 4), f32(0, 0, 1, 1), num_groups=2, epsilon=0.0)
    np.testing.assert_allclose(
        per_channel[0], normalized.reshape(4, 2) * f32([[1], [2], [3], [4]]) + f32([[0], [0], [1], [1]]), rtol=1e-5
    )
    with pytest.raises(ValueError, match="num_groups 3 does not divide the 4 channels"):
        call("GroupNormalization", 21, x, f32(1, 2, 3, 4), f32(0, 0, 1, 1), num_groups=3)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 9])
def test_lrn(size):
    x = Numbers().f32(1, 7, 2)
    before, after = (size - 1) // 2, size - 1 - (size - 1) // 2
    total = np.stack([np.square(x[:, max(0, c - before) : c + after + 1]).sum(axis=1) for c in range(7)], axis=1)
    expected = x / (2 + 0.5 / size * total) ** 0.6
    np.testing.assert_allclose(call("LRN", 13, x, size=size, alpha=0.5, beta=0.6, bias=2.0), expected, rtol=1e-5)


def test_lp_normalization():
    x = f32([[3, -4], [0, 0]])
    same(call("LpNormalization", 1, x, axis=1), f32([[0.6, -0.8], [0, 0]]))
    np.testing.assert_allclose(call("LpNormalization", 22, x, axis=0, p=1), [[1, -1], [0, 0]])


def test_dropout_at_rest():
    x = f32(1, 2)
    for opset, dtype in ((7, np.float32), (10, bool), (13, bool)):
        y, mask = call("Dropout", opset, x, outputs=2)
        same(y, x)
        same(mask, np.ones(2, dtype))
    y, mask = call("Dropout", 6, x, outputs=2, is_test=1)
    same(y, x)
    same(mask, f32(1, 1))


def test_dropout_in_training_is_reproducible():
    x = np.ones(10000, np.float32)
    ratio, training = np.array(0.25, np.float32), np.array(True)
    y, mask = call("Dropout", 13, x, ratio, training, outputs=2, seed=7)
    same(y, np.where(mask, np.float32(4 / 3), np.float32(0)))
    assert 0.73 < mask.mean() < 0.77
    same(call("Dropout", 13, x, ratio, training, seed=7), y)
    old = call("Dropout", 1, x, ratio=0.25)
    assert 0.73 < (old > 0).mean() < 0.77
    with pytest.raises(ValueError, match="ratio"):
        call("Dropout", 13, x, np.array(1.0, np.float32), training)
