import numpy as np
import pytest

from tests.core.ops.calling import call, f32, i64, of, same
from tests.core.ops.oracle import Numbers, agrees

MICROSOFT = "com.microsoft"


def test_shapes():
    numbers = Numbers()
    agrees("Trilu", 1, numbers.f32(4, 5), i64(1), domain=MICROSOFT, upper=0)
    agrees("Unique", 1, f32(2, 1, 1, 3, 4, 3), domain=MICROSOFT, outputs=3)
    agrees("ExpandDims", 1, numbers.f32(2, 3), of("int32", -1), domain=MICROSOFT)
    agrees("Range", 1, f32(1), f32(7), f32(2), domain=MICROSOFT)
    agrees("Range", 1, i64(1), i64(7), domain=MICROSOFT)
    agrees("Pad", 1, numbers.f32(2, 3), i64([[0, 1, 1, 0]]), f32([0.5]), domain=MICROSOFT)
    agrees("Pad", 1, numbers.f32(3, 4), i64(1, 1, 1, 0), domain=MICROSOFT, mode="reflect")
    agrees("UnfoldTensor", 1, numbers.f32(3, 8), domain=MICROSOFT, dim=1, size=3, step=2)
    agrees("GatherND", 1, numbers.f32(3, 4), i64([[0, 1], [2, 3]]), domain=MICROSOFT)
    same(call("TorchEmbedding", 1, f32([[1], [2]]), i64([1, 0]), domain=MICROSOFT), f32([[2], [1]]))


def test_linear_algebra():
    numbers = Numbers()
    agrees("Inverse", 1, numbers.f32(2, 4, 4), domain=MICROSOFT, rtol=1e-3, atol=1e-3)
    for metric in ("euclidean", "sqeuclidean"):
        agrees("CDist", 1, numbers.f32(4, 3), numbers.f32(5, 3), domain=MICROSOFT, metric=metric, rtol=1e-3)
    a, b = f32([[1, 2]]), f32([[3, 4]])
    same(call("ComplexMul", 1, a, b, domain=MICROSOFT), f32([[-5, 10]]))
    same(call("ComplexMulConj", 1, a, b, domain=MICROSOFT), f32([[11, 2]]))
    signal = numbers.f32(2, 8)
    spectrum = call("Rfft", 1, signal, domain=MICROSOFT)
    np.testing.assert_allclose(spectrum[..., 0] + 1j * spectrum[..., 1], np.fft.rfft(signal), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(
        call("Irfft", 1, spectrum, domain=MICROSOFT, signal_ndim=1), signal, rtol=1e-4, atol=1e-5
    )
    assert not call("IsAllFinite", 1, signal, f32(np.inf), domain=MICROSOFT)
    assert call("IsAllFinite", 1, signal, f32(np.inf), domain=MICROSOFT, isnan_only=1)


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_crop_and_resize(mode):
    numbers = Numbers()
    rois = f32([[0, 0, 1, 1], [0.2, 0.1, 0.8, 0.9], [-0.2, 0, 1.3, 0.5], [0.9, 0.8, 0.1, 0.2]])
    images, which = numbers.f32(2, 3, 6, 7), of("int32", [0, 1, 0, 1])
    options = {"domain": MICROSOFT, "mode": mode, "extrapolation_value": 0.5}
    agrees("CropAndResize", 1, images, rois, which, of("int32", [4, 5]), **options)
    agrees("CropAndResize", 1, images, rois, which, of("int32", [1, 1]), **options)


@pytest.mark.parametrize("positive", [0, 1])
def test_murmur_hash(positive):
    words = np.array(["", "a", "abcd", "abcde", "hello world", "ü"], object)
    for x in (of("int32", [0, 1, -5]), 7919 * np.arange(5), f32(1.5, -2), of("float64", [1.5]), words):
        agrees("MurmurHash3", 1, x, domain=MICROSOFT, positive=positive, seed=5)


def test_repeated_n_grams_are_blocked():
    ids = i64([[0, 1, 2, 0, 1], [3, 4, 3, 4, 3]])
    for size in (1, 2, 3, 6):
        agrees("NGramRepeatBlock", 1, ids, Numbers().f32(2, 6), domain=MICROSOFT, ngram_size=size)


def test_conv_transpose_with_dynamic_pads():
    numbers = Numbers()
    inputs = numbers.f32(1, 3, 4, 4), numbers.f32(3, 2, 3, 3), i64(1, 0, 1, 1), numbers.f32(2)
    agrees("ConvTransposeWithDynamicPads", 1, *inputs, domain=MICROSOFT, strides=[2, 2])


@pytest.mark.parametrize("shape", [(1, 5, 7), (6, 4), (1, 1), (3, 1)])
def test_dynamic_time_warping(shape):
    agrees("DynamicTimeWarping", 1, Numbers().f32(*shape), domain=MICROSOFT)


def test_relative_position_bias():
    table = np.arange(8, dtype=np.float32)[:, None]
    forward = call("RelativePositionBias", 1, table, i64(6), i64(6), domain=MICROSOFT, max_distance=16)
    # Distances 0 to 3 have buckets of their own, 4 and 5 fall into the first logarithmic one; later keys count as 0.
    same(forward[0, 0, 5], f32(4, 4, 3, 2, 1, 0))
    same(forward[0, 0, 0], np.zeros(6, np.float32))
    both = call("RelativePositionBias", 1, table, i64(3), i64(3), domain=MICROSOFT, max_distance=16, is_bidirectional=1)
    same(both[0, 0], f32([[0, 5, 6], [1, 0, 5], [2, 1, 0]]))


def test_operators_that_the_standard_has_too():
    numbers = Numbers()
    x, w, b, past = numbers.f32(2, 3, 6), numbers.f32(3, 1, 4), numbers.f32(3), numbers.f32(2, 3, 3)
    agrees("CausalConvWithState", 1, x, w, b, past, domain=MICROSOFT, outputs=2, activation="silu")
    heads = {"q_num_heads": 2, "kv_num_heads": 2}
    q, k, v = numbers.f32(2, 5, 8), numbers.f32(2, 5, 8), numbers.f32(2, 5, 12)
    gates = -np.abs(numbers.f32(2, 5, 2)), np.abs(numbers.f32(2, 5, 2))
    agrees("LinearAttention", 1, q, k, v, None, *gates, domain=MICROSOFT, outputs=2, update_rule="gated_delta", **heads)
    agrees("GridSample", 1, numbers.f32(2, 3, 6, 7), numbers.f32(2, 4, 5, 2), domain=MICROSOFT, mode="bicubic")
