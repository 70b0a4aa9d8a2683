import numpy as np
import onnx
import onnxruntime
import pytest

import onnxlet
from tests.core.ops.calling import call, f32, i64, of, same
from tests.core.ops.oracle import Numbers, agrees, onnxruntime_results

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


@pytest.mark.parametrize("predicted", [None, [5, 6, 9, 4, 1], [1, 2, 3, 4, 5], [5, 6, 7, 8, 2]])
@pytest.mark.parametrize("sizes", [(1, 3), (2, 2), (1, 6)])
def test_bifurcation_detector(predicted, sizes):
    source, current = i64([2, 3, 5, 6, 7, 8]), i64([9, 2, 3])
    tokens = None if predicted is None else i64(predicted)
    options = {"domain": MICROSOFT, "outputs": 2, "min_ngram_size": sizes[0], "max_ngram_size": sizes[1]}
    agrees("BifurcationDetector", 1, source, current, i64([2]), tokens, **options)
    repeated = i64([2, 3, 5, 2, 3, 5, 6])
    agrees("BifurcationDetector", 1, repeated, i64([4, 2, 3]), i64([0]), **options)
    agrees("BifurcationDetector", 1, repeated, i64([4, 5, 6]), i64([0]), **options)
    with pytest.raises(ValueError, match="2 tokens are predicted from 1 of 6 on"):
        call("BifurcationDetector", 1, source, current, i64([1]), i64([1, 2]), **options)


def test_word_conv_embedding():
    numbers = Numbers()
    words = of("int32", [[1, 2, 3, 4, 0], [5, 0, 0, 0, 0], [0, 0, 0, 0, 0], [3, 3, 3, 3, 3], [2, 1, 0, 0, 0]])
    weights = numbers.f32(4, 1, 3, 6), numbers.f32(4), numbers.f32(7, 6)
    expected = onnxruntime_results("WordConvEmbedding", 1, [words, *weights], 1, MICROSOFT, {})[0]
    got = call("WordConvEmbedding", 1, words, *weights, domain=MICROSOFT, conv_window_size=3, embedding_size=4)
    real = [0, 1, 3, 4]  # onnxruntime leaves empty words as they are in memory
    np.testing.assert_allclose(got[real], expected[real], rtol=1e-5, atol=1e-6)
    same(got[2], np.zeros(4, np.float32))
    with pytest.raises(ValueError, match="conv_window_size is 2, the weights have 3"):
        call("WordConvEmbedding", 1, words, *weights, domain=MICROSOFT, conv_window_size=2)


@pytest.mark.parametrize("kernel", [[3], [2, 3], [1, 2, 2]])
def test_maxpool_with_mask(kernel):
    numbers = Numbers()
    shape = [6, 7, 5][: len(kernel)]
    x, mask = numbers.f32(2, 3, *shape), numbers.ints(0, 2, 1, 1, *shape, dtype="int32")
    mask.reshape(-1)[0] = 1
    options = {"domain": MICROSOFT, "kernel_shape": kernel}
    agrees("MaxpoolWithMask", 1, x, mask, **options)
    agrees("MaxpoolWithMask", 1, x, mask, strides=[2] * len(kernel), auto_pad="SAME_UPPER", **options)


def test_sparse_to_dense_mat_mul():
    """Of a sparse input, which is fed dense here."""
    numbers = Numbers()
    dense = np.zeros((4, 3), np.float32)
    dense[[0, 1, 3], [2, 0, 1]] = [1.5, -2, 3]
    places = np.ascontiguousarray(np.argwhere(dense).astype(np.int64))
    device = onnxruntime.OrtDevice.make("cpu", 0)
    given = onnxruntime.SparseTensor.sparse_coo_from_numpy(
        np.array([4, 3], np.int64), dense[dense != 0], places, device
    )
    for attributes, shape in (({}, (3, 5)), ({"transA": 1, "alpha": 0.5}, (4, 5)), ({"transB": 1}, (5, 3))):
        node = onnx.helper.make_node("SparseToDenseMatMul", ["a", "b"], ["y"], domain=MICROSOFT, **attributes)
        b = numbers.f32(*shape)
        inputs = [
            onnx.helper.make_value_info("a", onnx.helper.make_sparse_tensor_type_proto(1, None)),
            onnx.helper.make_tensor_value_info("b", 1, shape),
        ]
        graph = onnx.helper.make_graph([node], "sparse", inputs, [onnx.helper.make_tensor_value_info("y", 1, None)])
        opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid(MICROSOFT, 1)]
        model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
        peer = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
        feeds = {
            "a": onnxruntime.OrtValue.ort_value_from_sparse_tensor(given),
            "b": onnxruntime.OrtValue.ortvalue_from_numpy(b),
        }
        expected = peer.run_with_ort_values(["y"], feeds)[0].numpy()
        (got,) = onnxlet.InferenceSession(model).run(None, {"a": dense, "b": b})
        np.testing.assert_allclose(got, expected, rtol=1e-5)
        np.testing.assert_allclose(call("SparseToDenseMatMul", 1, dense, b, domain=MICROSOFT, **attributes), expected)


def test_sample_op():
    agrees("SampleOp", 1, Numbers().f32(2, 3), domain=MICROSOFT)
