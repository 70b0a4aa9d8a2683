import ml_dtypes
import numpy as np
import pytest

from tests.core.ops.calling import call, f32, of, same

X = f32(-1000, -2, -0.5, 0, 0.5, 2, 1000)


def near(got, expected, tolerance=1e-6):
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)


def test_selu_has_shorter_constants_at_first():
    near(call("Selu", 1, f32(1, -1)), [1.0507, 1.0507 * 1.6732 * (np.exp(-1) - 1)])
    near(call("Selu", 6, f32(1, -1)), [1.0507009873554805, 1.0507009873554805 * 1.6732632423543772 * (np.exp(-1) - 1)])


def test_piecewise():
    near(call("Relu", 14, X), np.maximum(X, 0))
    same(call("Relu", 14, of("int8", [-3, 4])), of("int8", [0, 4]))
    near(call("LeakyRelu", 16, f32(-2, 3)), [-0.02, 3])
    near(call("Elu", 6, f32(-1, 3), alpha=2.0), [2 * (np.exp(-1) - 1), 3])
    near(call("Celu", 12, f32(-1, 3), alpha=2.0), [2 * (np.exp(-0.5) - 1), 3])
    # max(0, x) + min(0, alpha (exp(x / alpha) - 1)): infinity times 0 is no number.
    near(call("Celu", 12, f32(-1, 0), alpha=np.inf), [np.nan, np.nan])
    near(call("Celu", 12, f32(-1, 3), alpha=-1.0), [1 - np.e, 3])
    near(call("ThresholdedRelu", 10, f32(0.5, 1, 1.5)), [0, 0, 1.5])
    near(call("HardSigmoid", 6, f32(-3, 0, 1, 3)), [0, 0.5, 0.7, 1])
    near(call("HardSwish", 14, f32(-4, -1, 3, 4)), [0, -1 / 3, 3, 4])
    near(call("Shrink", 9, f32(-2, -1, 1, 2), lambd=1.5, bias=1.5), [-0.5, 0, 0, 0.5])
    same(call("Shrink", 9, of("int32", [-3, 1, 3]), lambd=1.5, bias=1.0), of("int32", [-2, 0, 2]))


def test_smooth_ones_at_the_extremes():
    near(call("Sigmoid", 13, f32(-1000, 0, 1000)), [0, 0.5, 1])
    assert call("Sigmoid", 13, f32(-100)) > 0
    near(call("Softplus", 1, f32(-1000, 0, 1000)), [0, np.log(2), 1000])
    near(call("Softsign", 1, f32(-3, 0, 1)), [-0.75, 0, 0.5])
    near(call("Mish", 18, f32(-1000, 0, 1000)), [0, 0, 1000])
    near(call("Swish", 24, f32(-1, 2), alpha=2.0), [-1 / (1 + np.exp(2)), 2 / (1 + np.exp(-4))])
    near(call("SwiGLU", 28, f32(-1, 2), f32(3, 4)), [-3 / (1 + np.exp(1)), 8 / (1 + np.exp(-2))])
    # erf(1 / sqrt 2) from tables of the normal distribution: P(|Z| < 1) = 0.6826894921.
    near(call("Gelu", 20, f32(-1, 0, 1)), [-0.5 * (1 - 0.6826894921), 0, 0.5 * (1 + 0.6826894921)])
    near(call("Gelu", 20, f32(1), approximate="tanh"), 0.841192)


@pytest.mark.parametrize("name", ["Relu", "LeakyRelu", "Elu", "Selu", "Sigmoid", "HardSigmoid", "Tanh", "Softplus"])
def test_nan_passes(name):
    assert np.isnan(call(name, 6 if name != "LeakyRelu" else 1, f32(np.nan)))


def test_prelu_slopes_go_with_channels_before_opset_7():
    x = -np.ones((1, 2, 2), np.float32)
    same(call("PRelu", 6, x, f32(2, 3)), f32([[[-2, -2], [-3, -3]]]))
    same(call("PRelu", 6, x, f32([5])), 5 * x)
    same(call("PRelu", 7, x, f32(2, 3)), f32([[[-2, -3], [-2, -3]]]))
    same(call("PRelu", 9, of("int32", [-4, 4]), of("int32", [2, 2])), of("int32", [-8, 4]))


def test_softmax_flattens_before_opset_13():
    x = np.zeros((2, 3, 4), np.float32)
    near(call("Softmax", 12, x), np.full(x.shape, 1 / 12))
    near(call("Softmax", 11, x, axis=0), np.full(x.shape, 1 / 24))
    near(call("Softmax", 11, x, axis=-1), np.full(x.shape, 1 / 4))
    near(call("Softmax", 13, x, axis=1), np.full(x.shape, 1 / 3))
    near(call("LogSoftmax", 12, x), np.full(x.shape, -np.log(12)))
    near(call("LogSoftmax", 13, f32(0, 1000)), [-1000, 0])
    near(call("Softmax", 13, f32(-np.inf, 0, 0)), [0, 0.5, 0.5])


def test_hardmax_takes_the_first():
    x = f32([[1, 3], [3, 2]])
    same(call("Hardmax", 13, x), f32([[0, 1], [1, 0]]))
    same(call("Hardmax", 13, x, axis=0), f32([[0, 1], [1, 0]]))
    same(call("Hardmax", 11, x, axis=0), f32([[0, 1], [0, 0]]))


def test_softmax_sums_float16_in_float32():
    x = np.zeros(4096, np.float16)
    same(call("Softmax", 13, x), np.full(4096, 1 / 4096, np.float16))


def test_empty_inputs():
    x = np.zeros((0, 3), np.float32)
    for name in ("Softmax", "LogSoftmax", "Hardmax"):
        assert call(name, 13, x, axis=0).shape == (0, 3)
        assert call(name, 11, x).shape == (0, 3)


def test_wrong_arguments():
    with pytest.raises(ValueError, match="axis 2 is out of range for a tensor of rank 1"):
        call("Softmax", 13, f32(1, 2), axis=2)
    with pytest.raises(ValueError, match="none or tanh"):
        call("Gelu", 20, f32(1), approximate="fast")
    with pytest.raises(ValueError, match="one shape"):
        call("SwiGLU", 28, f32(1, 2), f32(1))


def test_softmax_of_16_bits_rounds_each_step():
    """The steps of the function's body: subtract, exp, sum, divide, each in the type."""
    x = np.linspace(-3, 3, 8).reshape(2, 4)
    for dtype in (ml_dtypes.bfloat16, np.float16):
        narrow = x.astype(dtype)
        e = np.exp(narrow - narrow.max(-1, keepdims=True))
        expected = e / e.sum(-1, keepdims=True)
        np.testing.assert_array_equal(call("Softmax", 13, narrow).astype(np.float32), expected.astype(np.float32))
    # A sum of ones in bfloat16 would stay at 256.
    even = call("Softmax", 13, np.zeros((1, 4096), ml_dtypes.bfloat16))
    np.testing.assert_array_equal(even.astype(np.float32), np.full((1, 4096), 1 / 4096))
    columns = call("Softmax", 13, x.astype(ml_dtypes.bfloat16), axis=0).astype(np.float32)
    np.testing.assert_allclose(columns.sum(0), np.ones(4), rtol=2**-7)
    assert np.isnan(call("Softmax", 13, np.full(3, -np.inf, np.float16))).all()
