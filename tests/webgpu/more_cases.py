"""Cases for operators that look along axes, scatter, sample, quantise, recur; and for tensors without elements."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from onnxlet.model.dtypes import dtype_of, narrow
from tests.webgpu.cases import SPECIAL, Case, integers, random


def i64(*values: Any) -> np.ndarray:
    return np.array(values[0] if len(values) == 1 else values, np.int64)


def ties(*shape: int) -> np.ndarray:
    """Few different numbers, NaN and infinities among them."""
    rng = np.random.default_rng(sum(shape))
    return rng.choice(np.array([0, -0.0, 1, 2, -3, np.nan, np.inf, -np.inf], np.float32), shape)


def selection_cases() -> Iterator[Case]:
    for op in ("ArgMax", "ArgMin"):
        for last in (0, 1):
            for x in (
                random(3, 4, 5),
                ties(3, 4, 5),
                integers(3, 4, 5, dtype=np.int8),
                integers(3, 4, 5, dtype=np.int64),
            ):
                for axis in (0, 1, -1):
                    yield Case(op, [x], {"axis": axis, "select_last_index": last}, note=f"{x.dtype} {axis} {last}")
        yield Case(op, [random(5)], {"axis": 0, "keepdims": 0}, note="flat")
    for axis in (0, 1, -1):
        yield Case("Hardmax", [random(3, 4, 5)], {"axis": axis}, note=str(axis))
        yield Case("Hardmax", [ties(3, 4, 5)], {"axis": axis}, version=11, note=f"11 {axis}")
    for x in (
        random(3, 20, 4),
        ties(3, 20, 4),
        integers(3, 20, 4, dtype=np.int64),
        integers(3, 20, 4, dtype=np.uint8, low=0),
    ):
        for axis, k in ((1, 5), (-1, 4), (0, 1)):
            for largest in (0, 1):
                yield Case(
                    "TopK",
                    [x, i64([k])],
                    {"axis": axis, "largest": largest},
                    (1,),
                    outputs=2,
                    note=f"{x.dtype} {axis} {largest}",
                )
    yield Case("TopK", [random(2, 3000), i64([7])], {}, (1,), outputs=2, note="long")
    for op, version in (("CumSum", 14), ("CumProd", 26)):
        for x in (random(3, 4, 5), integers(3, 4, 5), integers(3, 4, 5, dtype=np.int64)):
            for exclusive in (0, 1):
                for reverse in (0, 1):
                    more = {"exclusive": exclusive, "reverse": reverse}
                    yield Case(op, [x, np.array(1, np.int64)], more, (1,), version, rtol=1e-4, note=f"{x.dtype} {more}")
    indices = i64([[0, 2, -1], [5, -7, 4]])
    for version, axis in ((11, -1), (11, 0), (9, 1)):
        values = np.array([0.5, 2], np.float32)
        yield Case("OneHot", [indices, i64(5), values], {"axis": axis}, (1,), version, note=f"{version} {axis}")
    yield Case("OneHot", [indices.astype(np.float32), i64(5), i64([3, 9])], {}, (1,), note="of floats")
    for dtype, k in ((1, 0), (7, 1), (6, -2)):
        yield Case("EyeLike", [integers(4, 5)], {"dtype": dtype, "k": k}, note=f"{dtype} {k}")
    lengths = i64([3, 1, 0, 4])
    yield Case("ReverseSequence", [random(4, 4, 3), lengths], {"batch_axis": 1, "time_axis": 0})
    yield Case("ReverseSequence", [random(4, 4, 3), lengths], {"batch_axis": 0, "time_axis": 1})


def permuted(size: int, *shape: int) -> np.ndarray:
    """Indices without repetition along the last axis."""
    rng = np.random.default_rng(size)
    rows = int(np.prod(shape[:-1], dtype=int))
    return i64(np.stack([rng.permutation(size)[: shape[-1]] for _ in range(rows)]).reshape(shape)) - size * (
        np.arange(int(np.prod(shape))).reshape(shape) % 3 == 0
    )


def scattering_cases() -> Iterator[Case]:
    x, updates = random(3, 5, 4), random(3, 3, 4, seed=1)
    index = permuted(5, 3, 4, 3).swapaxes(1, 2)
    yield Case("ScatterElements", [x, index, updates], {"axis": 1})
    yield Case("Scatter", [x, index, updates], {"axis": 1}, version=9)
    repeated = integers(3, 3, 4, low=-5, high=5, dtype=np.int64)
    for reduction in ("add", "mul", "max", "min"):
        more = {"axis": 1, "reduction": reduction}
        yield Case("ScatterElements", [x, repeated, updates], more, version=18, note=reduction)
        whole = [integers(3, 5, 4, dtype=np.int64), repeated, integers(3, 3, 4, dtype=np.int64)]
        yield Case("ScatterElements", whole, more, version=18, note=f"int64 {reduction}")
        half = [x.astype(np.float16), repeated, updates.astype(np.float16)]
        yield Case("ScatterElements", half, more, version=18, rtol=2e-3, note=f"half {reduction}")
    places = i64([[0, 1], [2, -1], [1, 4], [0, -5]])
    yield Case("ScatterND", [x, places, random(4, 4)], {})
    yield Case("ScatterND", [integers(7), i64([[3], [-1]]), integers(2)], {}, note="i32")
    again = i64([[0, 1], [2, -1], [0, 1], [0, -4]])
    for reduction in ("add", "mul", "max", "min"):
        yield Case("ScatterND", [x, again, random(4, 4)], {"reduction": reduction}, version=18, note=reduction)
    yield Case("GatherND", [x, places], {})
    yield Case("GatherND", [x, i64([[[0, 1, 2]], [[-1, -1, -1]]])], {}, note="points")
    yield Case(
        "GatherND", [x, i64([[[1], [2]], [[0], [-1]], [[4], [4]]])], {"batch_dims": 1}, version=13, note="batched"
    )
    cache, new = random(2, 3, 6, 4), random(2, 3, 2, 4, seed=1)
    for mode, first in (("linear", [0, 4]), ("circular", [5, 3])):
        yield Case("TensorScatter", [cache, new, i64(first)], {"mode": mode}, version=24, note=mode)
    yield Case("TensorScatter", [cache, new], {}, version=24, note="from the start")
    pooled = random(1, 2, 2, 3)
    places = i64([[[[0, 3, 5], [13, 14, 16]], [[24, 26, 29], [37, 40, 47]]]])
    yield Case("MaxUnpool", [pooled, places], {"kernel_shape": [2, 2], "strides": [2, 2]})
    yield Case(
        "MaxUnpool", [pooled, places, i64(1, 2, 5, 7)], {"kernel_shape": [2, 2], "strides": [2, 2]}, (2,), note="larger"
    )


def loss_cases() -> Iterator[Case]:
    scores = random(4, 5, 3)
    log = np.log(np.abs(random(4, 5, 3)) + 0.1)
    target = integers(4, 3, low=0, high=5, dtype=np.int64)
    weight = np.abs(random(5)) + 0.1
    for reduction in ("none", "sum", "mean"):
        for given in ([], [weight]):
            for ignored in ({}, {"ignore_index": 2}, {"ignore_index": -100}):
                more, note = {"reduction": reduction, **ignored}, f"{reduction} {len(given)} {ignored}"
                labels = target.copy()
                if ignored.get("ignore_index") == -100:
                    labels[0, 1] = -100
                yield Case("NegativeLogLikelihoodLoss", [log, labels, *given], more, note=note, rtol=1e-4)
                yield Case("SoftmaxCrossEntropyLoss", [scores, labels, *given], more, outputs=2, note=note, rtol=1e-4)
    yield Case("SoftmaxCrossEntropyLoss", [random(6, 4), integers(6, low=0, high=4)], {}, rtol=1e-4, note="i32")


def quantization_cases() -> Iterator[Case]:
    x = np.concatenate([random(60, scale=40), [0.5, 1.5, -2.5, 1e9, -1e9, np.nan, np.inf, -np.inf, 0]]).astype(
        np.float32
    )
    for number, zero in ((2, 130), (3, -5), (4, 3), (5, -7), (21, 5), (22, -2), (25, 1), (26, -1)):
        dtype = dtype_of(number)
        z = narrow(np.array(zero), dtype) if number > 20 else np.array(zero, dtype)
        yield Case("QuantizeLinear", [x, np.array(0.5, np.float32), z], version=25, note=str(number))
        q = np.arange(-8, 8)
        q = narrow(q, dtype) if number > 20 else q.astype(dtype)
        yield Case("DequantizeLinear", [q, np.array(0.25, np.float32), z], version=25, note=str(number))
    image, scales = random(2, 6, 5, scale=9), np.abs(random(6)) + 0.05
    zeros = np.arange(6, dtype=np.uint8)
    yield Case("QuantizeLinear", [image, scales, zeros], {"axis": 1}, note="channels")
    yield Case("QuantizeLinear", [image, scales], {"axis": 1, "output_dtype": 3}, note="channels, no zero point")
    yield Case(
        "DequantizeLinear",
        [integers(2, 6, 5, dtype=np.int8), scales, zeros.astype(np.int8)],
        {"axis": -2},
        note="channels",
    )
    blocks = np.abs(random(2, 3, 5)) + 0.1
    yield Case("QuantizeLinear", [image, blocks], {"axis": 1, "block_size": 2, "output_dtype": 2}, note="blocks")
    yield Case(
        "DequantizeLinear", [integers(2, 6, 5, dtype=np.int8), blocks], {"axis": 1, "block_size": 2}, note="blocks"
    )
    yield Case("DequantizeLinear", [integers(30, low=-999, high=999), np.array(0.5, np.float32)], note="i32")
    half = np.array(0.3, np.float16)
    yield Case("QuantizeLinear", [x[:60].astype(np.float16), half, np.array(9, np.uint8)], note="half")
    for to in (17, 18, 19, 20):
        z = narrow(np.zeros(1, np.float32), dtype_of(to)).reshape(())
        yield Case("QuantizeLinear", [x, np.array(0.5, np.float32), z], note=f"float8 {to}")
        yield Case("DequantizeLinear", [narrow(x, dtype_of(to)), np.array(0.5, np.float32)], note=f"float8 {to}")
    for data in (random(40, scale=3), np.abs(random(40)) + 1, np.zeros(5, np.float32)):
        yield Case("DynamicQuantizeLinear", [data], outputs=3, note=f"{data.max():.2f}")
    a, b = integers(3, 4, 7, low=0, high=255, dtype=np.uint8), integers(7, 5, low=-128, high=127, dtype=np.int8)
    yield Case("MatMulInteger", [a, b])
    yield Case("MatMulInteger", [a, b, np.array(12, np.uint8), np.array(-3, np.int8)], note="zero points")
    yield Case("MatMulInteger", [a[0], b, np.arange(4, dtype=np.uint8), np.arange(5, dtype=np.int8)], note="by row")
    scale, y_zero = np.array(0.01, np.float32), np.array(120, np.uint8)
    columns = (np.abs(random(5)) * 0.01 + 1e-3).astype(np.float32)
    for b_scale, b_zero in ((scale, np.array(1, np.int8)), (columns, np.arange(5, dtype=np.int8))):
        yield Case(
            "QLinearMatMul",
            [a, scale, np.array(128, np.uint8), b, b_scale, b_zero, np.array(0.2, np.float32), y_zero],
            note=f"{b_scale.size}",
        )
    image8, w = integers(2, 4, 6, 5, low=0, high=255, dtype=np.uint8), integers(6, 2, 3, 3, dtype=np.int8)
    more = {"group": 2, "pads": [1, 0, 1, 1], "strides": [2, 1]}
    yield Case("ConvInteger", [image8, w, np.array(120, np.uint8), np.array(2, np.int8)], more)
    yield Case("ConvInteger", [image8, w], more, note="no zero points")
    for w_scale in (scale, np.abs(random(6)) * 0.01):
        inputs = [
            image8,
            scale,
            np.array(120, np.uint8),
            w,
            w_scale.astype(np.float32),
            np.zeros(w_scale.shape, np.int8),
            np.array(0.05, np.float32),
            y_zero,
            integers(6, low=-999, high=999),
        ]
        yield Case("QLinearConv", inputs, more, note=f"{w_scale.size}")
    older = {"domain": "com.microsoft", "version": 1}
    yield Case("QuantizeLinear", [image, scales, zeros], {"axis": 1}, **older)
    yield Case("DequantizeLinear", [integers(2, 6, 5, dtype=np.int8), scales], {"axis": 1}, **older)
    yield from few_bits_cases()


def known_weights_cases() -> Iterator[Case]:
    """Convolutions of bytes with weights that are known: in floats where the sums stay exact, else in integers."""
    zero, y_zero, scale = np.array(120, np.uint8), np.array(100, np.uint8), np.array(0.01, np.float32)
    shapes = [
        ((2, 4, 7, 6), (8, 4, 3, 3), {"pads": [1, 1, 1, 1]}),
        ((1, 8, 9, 7), (8, 1, 3, 3), {"group": 8, "pads": [1, 1, 1, 1], "strides": [2, 2]}),
        ((1, 16, 5, 5), (12, 16, 1, 1), {}),
        ((1, 6, 20), (4, 3, 5), {"group": 2, "pads": [2, 2]}),
        ((1, 600, 3, 3), (2, 600, 1, 1), {}),  # beyond what is exact in floats
    ]
    for shape, kernel, more in shapes:
        x = integers(*shape, low=0, high=256, dtype=np.uint8)
        w = integers(*kernel, low=-128, high=128, dtype=np.int8)
        if shape[1] == 600:
            x, w = np.full(shape, 255, np.uint8), np.full(kernel, 127, np.int8)
        for w_zero in (np.array(3, np.int8), np.arange(kernel[0], dtype=np.int8)):
            yield Case("ConvInteger", [x, w, zero, w_zero], more, (1, 3), note=f"known {w_zero.size}")
            w_scale = (np.abs(random(*w_zero.shape)) * 0.01 + 1e-3).astype(np.float32)
            bias = integers(kernel[0], low=-9999, high=9999)
            inputs = [x, scale, zero, w, w_scale, w_zero, np.array(0.6, np.float32), y_zero, bias]
            yield Case("QLinearConv", inputs, more, (3, 5, 8), note=f"known {w_zero.size}")
        yield Case("ConvInteger", [x, w], more, (1,), note="known, no zero points")


def known_product_cases() -> Iterator[Case]:
    """Products of bytes with a matrix that is known, in floats where the sums stay exact."""
    for depth in (7, 64, 600):
        a = integers(2, 4, depth, low=0, high=256, dtype=np.uint8)
        b = integers(depth, 10, low=-128, high=128, dtype=np.int8)
        if depth == 600:
            a, b = np.full(a.shape, 255, np.uint8), np.full(b.shape, 127, np.int8)
        for b_zero in (np.array(-3, np.int8), np.arange(10, dtype=np.int8)):
            yield Case("MatMulInteger", [a, b, np.array(12, np.uint8), b_zero], {}, (1, 3), note=f"known {b_zero.size}")
            rows = np.arange(4, dtype=np.uint8)
            yield Case("MatMulInteger", [a[0], b, rows, b_zero], {}, (1, 3), note=f"known, by row {b_zero.size}")
            inputs = [a, np.array(0.02, np.float32), np.array(128, np.uint8), b, np.array(0.01, np.float32), b_zero]
            inputs += [np.array(0.3, np.float32), np.array(9, np.uint8)]
            yield Case("QLinearMatMul", inputs, {}, (3, 5), note=f"known {b_zero.size}")
        yield Case("MatMulInteger", [a, b], {}, (1,), note="known, no zero points")
        older: dict[str, Any] = {"domain": "com.microsoft", "version": 1, "rtol": 1e-4, "atol": 1e-4}
        given = [random(2, 4, depth), b, np.array(0.02, np.float32), np.array(1, np.int8)]
        yield Case("DynamicQuantizeMatMul", given, {}, (1, 3), note="known", **older)
        turned = [a[0], np.array(0.1, np.float32), np.array(3, np.uint8), np.ascontiguousarray(b.T)]
        turned += [np.array(0.2, np.float32), np.array(1, np.int8)]
        yield Case("QGemm", turned, {"transB": 1}, (3, 5), note="known", **older)


def few_bits_cases() -> Iterator[Case]:
    rng = np.random.default_rng(0)
    for bits, depth, block in ((4, 40, 16), (4, 64, 32), (8, 20, 16), (2, 32, 16)):
        blocks = -(-depth // block)
        w = rng.integers(0, 256, (6, blocks, block * bits // 8), dtype=np.uint8)
        scale = np.abs(random(6, blocks))
        zero = rng.integers(0, 256, (6, -(-blocks * bits // 8)), dtype=np.uint8)
        attributes = {"K": depth, "N": 6, "bits": bits, "block_size": block}
        for more, note in (([], "plain"), ([zero], "zero points"), ([None, None, random(6)], "bias")):
            yield Case(
                "MatMulNBits",
                [random(2, 3, depth), w, scale, *more],
                attributes,
                (1, 3) if more == [zero] else (1,),
                1,
                "com.microsoft",
                rtol=1e-4,
                atol=1e-4,
                note=f"{bits} {note}",
            )
    table, scale = rng.integers(0, 256, (5, 16), dtype=np.uint8), np.abs(random(5, 2))
    index = i64([[0, 4], [-1, 2]])
    more = {"block_size": 16, "gather_axis": 0, "quantize_axis": 1}
    for zeros in ([], [rng.integers(0, 256, (5, 1), dtype=np.uint8)]):
        yield Case(
            "GatherBlockQuantized",
            [table, index, scale, *zeros],
            {**more, "bits": 4},
            (),
            1,
            "com.microsoft",
            note=f"packed {len(zeros)}",
        )
    yield Case(
        "GatherBlockQuantized",
        [table, index, np.abs(random(5, 1))],
        {**more, "bits": 8},
        (),
        1,
        "com.microsoft",
        note="bytes",
    )


def plain_conv_cases() -> Iterator[Case]:
    """Convolutions over three dimensions, and with weights that are fed."""
    for constants in ((), (1, 2)):
        more: dict[str, Any] = {"strides": [2, 1, 1], "pads": [1, 0, 1, 1, 1, 0], "dilations": [1, 2, 1]}
        yield Case(
            "Conv",
            [random(2, 4, 6, 7, 5), random(6, 2, 2, 3, 2), random(6)],
            {**more, "group": 2},
            constants,
            rtol=1e-4,
            atol=1e-4,
            note=f"3d {constants}",
        )
        yield Case(
            "ConvTranspose",
            [random(2, 4, 3, 4, 5), random(4, 3, 2, 3, 2), random(6)],
            {**more, "group": 2},
            constants,
            rtol=1e-4,
            atol=1e-4,
            note=f"3d {constants}",
        )
    yield Case(
        "Conv",
        [random(2, 6, 9, 8), random(9, 2, 3, 3)],
        {"group": 3, "pads": [1, 1, 1, 1]},
        rtol=1e-4,
        atol=1e-4,
        note="fed, groups",
    )
    yield Case(
        "Conv",
        [random(1, 6, 20), random(6, 1, 4)],
        {"group": 6, "auto_pad": "SAME_UPPER"},
        rtol=1e-4,
        atol=1e-4,
        note="fed, depthwise",
    )
    yield Case(
        "ConvTranspose",
        [random(1, 3, 5, 6), random(3, 2, 3, 3)],
        {"strides": [2, 2], "pads": [1, 1, 0, 0]},
        rtol=1e-4,
        atol=1e-4,
        note="fed",
    )
    yield Case("Col2Im", [random(2, 12, 12), i64(5, 5), i64(2, 3)], {"dilations": [1, 1], "pads": [0, 0, 0, 0]}, (1, 2))
    yield Case("Col2Im", [random(1, 8, 9), i64(6, 6), i64(2, 2)], {"strides": [2, 2]}, (1, 2), note="stride")
    for storage in (0, 1):
        for shape, kernel in (((2, 3, 8, 9), [3, 2]), ((1, 2, 5, 6, 4), [2, 2, 2]), ((1, 2, 12), [3])):
            more = {"kernel_shape": kernel, "strides": [2] * len(kernel), "pads": [1] * (2 * len(kernel))}
            yield Case(
                "MaxPool", [random(*shape)], {**more, "storage_order": storage}, outputs=2, note=f"indices {storage}"
            )
    yield Case("MaxPool", [integers(1, 2, 6, 6, dtype=np.int8)], {"kernel_shape": [2, 2]}, note="int8")


def sampling_cases() -> Iterator[Case]:
    image, grid = random(2, 3, 5, 6), np.random.default_rng(0).uniform(-1.4, 1.4, (2, 4, 3, 2)).astype(np.float32)
    volume, cloud = (
        random(1, 2, 3, 4, 5),
        np.random.default_rng(1).uniform(-1.4, 1.4, (1, 3, 2, 2, 3)).astype(np.float32),
    )
    for mode in ("linear", "nearest", "cubic"):
        for padding in ("zeros", "border", "reflection"):
            for corners in (0, 1):
                more = {"mode": mode, "padding_mode": padding, "align_corners": corners}
                yield Case("GridSample", [image, grid], more, rtol=1e-3, atol=1e-4, note=str(more))
                if mode != "cubic":
                    yield Case("GridSample", [volume, cloud], more, rtol=1e-3, atol=1e-4, note=f"3d {more}")
    yield Case("GridSample", [image, grid], {}, domain="com.microsoft", version=1, rtol=1e-3, atol=1e-4)
    for corners in (0, 1):
        yield Case("AffineGrid", [random(2, 2, 3), i64(2, 3, 4, 5)], {"align_corners": corners}, (1,), 20, rtol=1e-4)
        yield Case("AffineGrid", [random(2, 3, 4), i64(2, 3, 4, 1, 5)], {"align_corners": corners}, (1,), 20, rtol=1e-4)
    boxes = np.array([[0.5, 0.2, 5.5, 4.1], [1, 1, 2, 2], [-2, -3, 20, 30]], np.float32)
    for mode in ("avg", "max"):
        for ratio in (0, 2):
            for version in (10, 16):
                more = {
                    "mode": mode,
                    "sampling_ratio": ratio,
                    "output_height": 3,
                    "output_width": 2,
                    "spatial_scale": 0.7,
                }
                yield Case(
                    "RoiAlign",
                    [random(2, 3, 7, 8), boxes, i64(0, 1, 1)],
                    more,
                    version=version,
                    rtol=1e-3,
                    atol=1e-4,
                    note=f"{mode} {ratio} {version}",
                )
    regions = np.array([[0, 0, 0, 4, 5], [1, 2, 1, 7, 6], [1, 6, 6, 5, 5]], np.float32)
    yield Case("MaxRoiPool", [random(2, 3, 7, 8), regions], {"pooled_shape": [2, 3], "spatial_scale": 0.8})
    offset = random(1, 2 * 2 * 9, 5, 6)
    inputs = [random(1, 4, 5, 6), random(6, 2, 3, 3), offset, random(6), np.abs(random(1, 18, 5, 6))]
    more = {"group": 2, "offset_group": 2, "pads": [1, 1, 1, 1]}
    yield Case("DeformConv", inputs, more, rtol=1e-3, atol=1e-4)
    yield Case("DeformConv", [*inputs[:3]], more, rtol=1e-3, atol=1e-4, note="no bias, no mask")


def spectral_cases() -> Iterator[Case]:
    near = {"rtol": 1e-4, "atol": 1e-4}
    for length in (10, 13, 7):
        for axis in (1, 2):
            for inverse in (0, 1):
                given = [random(2, 10, 9, 2), i64(length), i64(axis)]
                yield Case("DFT", given, {"inverse": inverse}, (1, 2), 20, note=f"{length} {axis} {inverse}", **near)
            yield Case(
                "DFT",
                [random(2, 10, 9, 1), i64(length), i64(axis)],
                {"onesided": 1},
                (1, 2),
                20,
                note=f"one-sided {length} {axis}",
                **near,
            )
            more = {"onesided": 1, "inverse": 1}
            yield Case(
                "DFT",
                [random(2, 6, 5, 2), i64(length), i64(axis)],
                more,
                (1, 2),
                20,
                note=f"one-sided inverse {length} {axis}",
                **near,
            )
    yield Case("DFT", [random(2, 10, 1)], {"axis": 1}, version=17, note="17", **near)
    for onesided in (0, 1):
        yield Case(
            "STFT",
            [random(2, 40, 1), i64(5), np.hanning(16).astype(np.float32), i64(16)],
            {"onesided": onesided},
            (1, 3),
            note=f"{onesided}",
            **near,
        )


def recurrent_cases() -> Iterator[Case]:
    time, batch, size, hidden = 5, 3, 4, 6
    for op, gates in (("RNN", 1), ("GRU", 3), ("LSTM", 4)):
        outputs = 3 if op == "LSTM" else 2
        for direction in ("forward", "reverse", "bidirectional"):
            for layout in (0, 1):
                d = 2 if direction == "bidirectional" else 1
                x = random(*((batch, time) if layout else (time, batch)), size)
                w, r = random(d, gates * hidden, size, seed=1), random(d, gates * hidden, hidden, seed=2, scale=0.3)
                first = random(*((batch, d) if layout else (d, batch)), hidden, seed=3)
                extra = [first, random(d, 3 * hidden, seed=5)] if op == "LSTM" else []
                inputs = [x, w, r, random(d, 2 * gates * hidden, seed=4), np.array([5, 2, 4], np.int32), first, *extra]
                more = {"hidden_size": hidden, "direction": direction, "layout": layout}
                yield Case(op, inputs, more, outputs=outputs, rtol=1e-4, atol=1e-5, note=f"all {direction} {layout}")
                yield Case(op, inputs[:3], more, outputs=outputs, rtol=1e-4, atol=1e-5, note=f"{direction} {layout}")
    x, w, r = random(4, 2, 3), random(1, 15, 3), random(1, 15, 5, seed=1)
    b = random(1, 30)
    yield Case(
        "GRU", [x, w, r, b], {"hidden_size": 5, "linear_before_reset": 1, "clip": 0.8}, outputs=2, rtol=1e-4, atol=1e-5
    )
    named = {"activations": ["HardSigmoid", "LeakyRelu"], "activation_alpha": [0.3, 0.1], "activation_beta": [0.4]}
    yield Case("GRU", [x, w, r, b], {"hidden_size": 5, **named}, outputs=2, rtol=1e-4, atol=1e-5, note="activations")
    w, r = random(1, 20, 3), random(1, 20, 5, seed=1)
    yield Case("LSTM", [x, w, r], {"hidden_size": 5, "input_forget": 1, "clip": 0.5}, outputs=3, rtol=1e-4, atol=1e-5)
    yield Case(
        "LSTM",
        [random(3, 2, 8), random(1, 400, 8, scale=0.2), random(1, 400, 100, scale=0.1)],
        {"hidden_size": 100},
        outputs=3,
        rtol=1e-4,
        atol=1e-5,
        note="wide",
    )


def einsum_cases() -> Iterator[Case]:
    for equation, shapes in (
        ("ij,jk->ik", ((3, 4), (4, 5))),
        ("bij,bjk->bik", ((2, 3, 4), (2, 4, 5))),
        ("ij->ji", ((3, 4),)),
        ("ii->i", ((4, 4),)),
        ("ii", ((4, 4),)),
        ("...ij,...jk", ((2, 3, 4), (1, 4, 5))),
        ("i,j->ij", ((3,), (4,))),
        ("bhqd,bhkd->bhqk", ((2, 3, 4, 5), (2, 3, 6, 5))),
        ("ijk->", ((2, 3, 4),)),
        ("b...,b...->b...", ((2, 3, 4), (2, 3, 4))),
        ("ab,bc,cd->ad", ((2, 3), (3, 4), (4, 2))),
        ("ij, i -> j", ((3, 4), (3,))),
    ):
        yield Case(
            "Einsum",
            [random(*s, seed=i) for i, s in enumerate(shapes)],
            {"equation": equation},
            rtol=1e-4,
            atol=1e-5,
            note=equation,
        )
    yield Case(
        "Einsum", [integers(3, 4, dtype=np.int64), integers(4, 2, dtype=np.int64)], {"equation": "ij,jk"}, note="i64"
    )
    yield Case("Det", [random(5, 4, 4)], rtol=1e-4, atol=1e-5)
    yield Case("Det", [np.array([[0, 1], [2, 0]], np.float32)])
    yield Case("Det", [np.zeros((3, 3), np.float32)])


def norm_cases() -> Iterator[Case]:
    x, near = random(3, 4, 5, 2), {"rtol": 1e-4, "atol": 1e-5}
    yield Case("LayerNormalization", [x, random(5, 2), random(5, 2)], {"axis": 2}, outputs=3, note="statistics", **near)
    yield Case("MeanVarianceNormalization", [x], **near)
    yield Case("MeanVarianceNormalization", [x], {"axes": [1, 3]}, note="axes", **near)
    for size in (1, 3, 4, 20):
        yield Case("LRN", [random(2, 6, 3, 3)], {"size": size, "alpha": 0.01, "bias": 1.5}, note=str(size), **near)
    stats = [random(4, seed=1), random(4, seed=2), random(4, seed=3), np.abs(random(4, seed=4)) + 0.1]
    yield Case("BatchNormalization", [x, *stats], note="fed", **near)
    training = {"training_mode": 1, "momentum": 0.7}
    yield Case("BatchNormalization", [x, *stats], training, outputs=3, note="training", **near)
    yield Case("BatchNormalization", [x, *stats], {"momentum": 0.7}, version=9, outputs=5, note="9 training", **near)
    elements = [random(4, 5, 2, seed=i) for i in range(3)]
    elements.append(np.abs(random(4, 5, 2)) + 0.1)
    yield Case("BatchNormalization", [x, *elements], {"spatial": 0}, version=7, note="per element", **near)
    yield Case("Dropout", [x], outputs=2, version=13, note="mask")
    yield Case("SwiGLU", [x, random(3, 4, 5, 2, seed=1)], {"alpha": 1.5}, version=28, **near)
    yield Case("ConstantOfShape", [i64(2, 3)], {"value": np.array([7], np.int64)}, (0,))
    yield Case("CenterCropPad", [x, i64(2, 6, 5, 3)], {}, (1,))
    yield Case(
        "Mod",
        [np.concatenate([random(30, scale=9), [6, -6]]).astype(np.float32), np.array([3, -2.5] * 16, np.float32)],
        {},
        rtol=0,
        atol=1e-6,
    )


def empty_cases() -> Iterator[Case]:
    """Results without elements need no kernel; what is made of nothing is a constant."""
    nothing = np.zeros((2, 0, 3), np.float32)
    for op in ("Relu", "Exp", "Softmax", "Not"):
        yield Case(op, [nothing if op != "Not" else nothing.astype(bool)])
    yield Case("Add", [nothing, random(3)])
    yield Case("MatMul", [np.zeros((0, 4), np.float32), random(4, 5)])
    yield Case("Concat", [random(2, 2, 3), nothing, random(2, 1, 3)], {"axis": 1})
    yield Case("Split", [random(2, 5, 3), i64(2, 0, 3)], {"axis": 1}, (1,), outputs=3)
    yield Case("Transpose", [nothing], {"perm": [2, 1, 0]})
    for op in (
        "ReduceSum",
        "ReduceMax",
        "ReduceMin",
        "ReduceProd",
        "ReduceL1",
        "ReduceSumSquare",
        "ReduceLogSum",
        "ReduceMean",
    ):
        yield Case(op, [nothing, i64([1])], {}, (1,))
    for dtype in (np.int32, np.int64, np.uint8, np.bool_):
        for op in ("ReduceMax", "ReduceMin"):
            yield Case(op, [np.zeros((2, 0), dtype), i64([1])], {}, (1,), version=20, note=np.dtype(dtype).name)


def integer_reduction_cases() -> Iterator[Case]:
    for dtype in (np.int8, np.uint8, np.int32, np.uint32, np.int64, np.uint64):
        x = integers(3, 7, low=0 if np.dtype(dtype).kind == "u" else -9, high=9, dtype=dtype)
        for op in ("ReduceSum", "ReduceProd", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceSumSquare"):
            yield Case(op, [x, i64([1])], {}, (1,), note=np.dtype(dtype).name)
    flags = integers(3, 4, low=0, high=2, dtype=np.bool_)
    for op in ("ReduceMax", "ReduceMin"):
        yield Case(op, [flags, i64([0])], {}, (1,), version=20, note="bool")
    yield Case("ReduceSum", [SPECIAL.reshape(3, 7), i64([])], {"noop_with_empty_axes": 1}, (1,), note="no axes")
    yield Case("ReduceL2", [random(3, 7), i64([])], {"noop_with_empty_axes": 1}, (1,), version=18, note="no axes")


FAMILIES: dict[str, Callable[[], Iterator[Case]]] = {
    "selection": selection_cases,
    "scattering": scattering_cases,
    "losses": loss_cases,
    "quantization": quantization_cases,
    "known weights": known_weights_cases,
    "known products": known_product_cases,
    "plain convolution": plain_conv_cases,
    "sampling": sampling_cases,
    "spectral": spectral_cases,
    "recurrent": recurrent_cases,
    "einsum": einsum_cases,
    "norms": norm_cases,
    "empty": empty_cases,
    "integer reductions": integer_reduction_cases,
}
