from typing import Any

import numpy as np
import pytest

from onnxlet.ops import registry
from tests.core.ops.calling import call, f32, i64, of, same
from tests.core.ops.oracle import Numbers, agrees, onnxruntime_results

MICROSOFT = "com.microsoft"


@pytest.fixture(params=["uint8", "int8"])
def kind(request):
    """Random tensors of an 8-bit type, and zero points of it."""
    numbers = Numbers()
    random = numbers.u8 if request.param == "uint8" else numbers.s8
    return numbers, random, lambda value: of(request.param, value)


def test_elementwise(kind):
    _, random, zero = kind
    a, b = random(3, 4, 5), random(4, 5)
    agrees("QLinearAdd", 1, a, f32(0.1), zero(7), b, f32(0.2), zero(3), f32(0.25), zero(5), domain=MICROSOFT, flips=2)
    agrees("QLinearMul", 1, a, f32(0.1), zero(7), b, f32(0.2), zero(3), f32(1.5), zero(5), domain=MICROSOFT, flips=2)
    agrees("QLinearSigmoid", 1, a, f32(0.05), zero(7), f32(1 / 256), zero(0), domain=MICROSOFT)
    agrees("QLinearLeakyRelu", 1, a, f32(0.05), zero(7), f32(0.04), zero(9), domain=MICROSOFT, alpha=0.3)
    condition = np.arange(60).reshape(3, 4, 5) % 2 == 0
    choice = a, f32(0.1), zero(7), b, f32(0.2), zero(3), f32(0.15), zero(5)
    agrees("QLinearWhere", 1, condition, *choice, domain=MICROSOFT)
    agrees(
        "QLinearConcat", 1, f32(0.1), zero(3), a, f32(0.1), zero(3), random(3, 2, 5), f32(0.2), zero(6),
        domain=MICROSOFT, axis=1,
    )  # fmt: skip


def test_qlinear_add_rounds_after_the_zero_point():
    half = of("uint8", [1, 3, 5]), f32(0.5), of("uint8", 0)
    nothing = of("uint8", [0, 0, 0]), f32(0.5), of("uint8", 0)
    for zero, expected in ((0, [0, 2, 2]), (1, [2, 2, 4])):
        y = call("QLinearAdd", 1, *half, *nothing, f32(1), of("uint8", zero), domain=MICROSOFT)
        same(y, of("uint8", expected))
        agrees("QLinearAdd", 1, *half, *nothing, f32(1), of("uint8", zero), domain=MICROSOFT)


@pytest.mark.parametrize("axis", [-1, 1])
@pytest.mark.parametrize("version", [11, 13])
def test_softmax(kind, axis, version):
    _, random, zero = kind
    x, low = random(3, 4, 5), zero(0 if zero(0).dtype == np.uint8 else -128)
    inputs = x, f32(0.05), zero(7), f32(1 / 256), low
    attributes = {"axis": axis, "opset": version}
    (expected,) = onnxruntime_results("QLinearSoftmax", 1, inputs, 1, MICROSOFT, attributes)
    softmax = registry.find("QLinearSoftmax", MICROSOFT, 1)
    assert softmax is not None
    same(softmax.function(*inputs, **attributes), expected)


@pytest.mark.parametrize("channels_last", [0, 1])
def test_images(kind, channels_last):
    numbers, random, zero = kind
    image = random(2, 6, 7, 3) if channels_last else random(2, 3, 6, 7)
    scales = f32(0.1), zero(7), f32(0.08), zero(3)
    options = {"domain": MICROSOFT, "channels_last": channels_last}
    window: dict[str, Any] = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}
    agrees("QLinearAveragePool", 1, image, *scales, **window, **options)
    agrees("QLinearGlobalAveragePool", 1, image, *scales, flips=1, **options)
    weights = numbers.s8(4, 3, 3, 3), f32(0.05), of("int8", 0), f32(3), zero(5), numbers.ints(-99, 99, 4, dtype="int32")
    agrees("QLinearConv", 1, image, f32(0.1), zero(7), *weights, pads=[1, 1, 1, 1], flips=2, **options)
    if channels_last:
        agrees("NhwcMaxPool", 1, image, domain=MICROSOFT, **window)


@pytest.mark.parametrize("per_column", [False, True])
def test_products(kind, per_column):
    numbers, random, zero = kind
    a, b, c = random(3, 6), numbers.s8(6, 4), numbers.ints(-99, 99, 4, dtype="int32")
    scale = np.abs(numbers.f32(4)) if per_column else f32(0.05)
    zeros = np.zeros(4, np.int8) if per_column else of("int8", 2)
    agrees("QGemm", 1, a, f32(0.1), zero(7), b, scale, zeros, c, f32(3), zero(5), domain=MICROSOFT, flips=1)
    turned = np.ascontiguousarray(b.T)
    agrees("QGemm", 1, a, f32(0.1), zero(7), turned, scale, zeros, domain=MICROSOFT, transB=1, alpha=0.5)
    agrees("MatMulIntegerToFloat", 1, a, b, f32(0.1), scale, zero(7), zeros, numbers.f32(4), domain=MICROSOFT)
    agrees("DynamicQuantizeMatMul", 1, numbers.f32(3, 6), b, scale, zeros, numbers.f32(4), domain=MICROSOFT)


def test_other_integer_arithmetic():
    a = of("int16", [[30000, -30000]])
    same(call("MatMulInteger16", 1, a, a.T, domain=MICROSOFT), of("int32", [[1800000000]]))
    x, y = of("uint8", [5, 250]), of("uint8", [3, 1])
    same(call("MulInteger", 1, x, of("uint8", 10), y, domain=MICROSOFT), of("int32", [-15, 240]))
    same(
        call("ReduceSumInteger", 1, of("int8", [[100, 100]]), domain=MICROSOFT, axes=[1], keepdims=0),
        of("int32", [200]),
    )
    mean = call(
        "QLinearReduceMean",
        1,
        x,
        f32(2),
        of("uint8", 0),
        f32(1),
        of("uint8", 0),
        domain=MICROSOFT,
        axes=[0],
        keepdims=1,
    )
    same(mean, of("uint8", [255]))


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("per_channel", [False, True])
def test_dynamic_quantize_lstm(direction, per_channel):
    numbers = Numbers()
    count = 2 if direction == "bidirectional" else 1
    shape = (count, 12) if per_channel else (count,)
    zeros = [np.full(shape, 0 if per_channel else z, np.int8 if per_channel else np.uint8) for z in (100, 90)]
    random = numbers.s8 if per_channel else numbers.u8
    # One sequence: onnxruntime quantises the sequences of a batch apart or together, as its threads happen to be.
    agrees(
        "DynamicQuantizeLSTM", 1, numbers.f32(6, 1, 5), random(count, 5, 12), random(count, 3, 12),
        numbers.f32(count, 24), None, numbers.f32(count, 1, 3), numbers.f32(count, 1, 3), None,
        np.full(shape, 0.004, np.float32), zeros[0], np.full(shape, 0.005, np.float32), zeros[1],
        domain=MICROSOFT, outputs=3, direction=direction, hidden_size=3,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("bits", "zeros"),
    # onnxruntime has no zero points of floats for 8 bits.
    [(b, z) for b in (2, 4, 8) for z in (None, "packed", "float") if (b, z) != (8, "float")],
)
def test_mat_mul_n_bits(bits, zeros):
    numbers = Numbers()
    k, n, block, blocks = 40, 6, 16, 3
    points = {
        None: None,
        "packed": numbers.u8(n, -(-blocks * bits // 8)),
        "float": 8 * numbers.f32(n, blocks),
    }[zeros]
    weights = numbers.u8(n, blocks, block * bits // 8), numbers.f32(n, blocks), points, None, numbers.f32(n)
    options = {"domain": MICROSOFT, "K": k, "N": n, "bits": bits, "block_size": block, "rtol": 1e-3, "atol": 1e-4}
    agrees("MatMulNBits", 1, numbers.f32(2, 3, k), *weights, **options)


def test_gather_block_quantized():
    numbers = Numbers()
    indices = i64([[1, -1], [0, 3]])
    for bits in (4, 8):
        table, scales = numbers.u8(7, 32 * bits // 8), numbers.f32(7, 2)
        options = {"domain": MICROSOFT, "bits": bits, "block_size": 16}
        agrees("GatherBlockQuantized", 1, table, indices, scales, **options)
        agrees("GatherBlockQuantized", 1, table, np.abs(indices), scales, numbers.u8(7, 2 * bits // 8), **options)
    outside = call("GatherBlockQuantized", 1, table, i64(99), scales, **options)
    same(outside, np.zeros(32, np.float32))


@pytest.mark.parametrize("quant_type", [0, 1])
def test_mat_mul_bnb4(quant_type):
    numbers = Numbers()
    agrees(
        "MatMulBnb4", 1, numbers.f32(2, 32), numbers.u8(6 * 32 // 2), np.abs(numbers.f32(6 * 32 // 16)),
        domain=MICROSOFT, K=32, N=6, block_size=16, quant_type=quant_type, rtol=1e-3, atol=1e-4,
    )  # fmt: skip
