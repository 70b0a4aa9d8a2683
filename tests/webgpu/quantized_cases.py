"""Cases for com.microsoft's operators on quantised tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tests.webgpu.cases import Case, integers, random

MICROSOFT: dict[str, Any] = {"domain": "com.microsoft", "version": 1}


def scalar(value: float) -> np.ndarray:
    return np.array(value, np.float32)


def byte(value: int, dtype: Any = np.uint8) -> np.ndarray:
    return np.array(value, dtype)


def pixels(*shape: int, dtype: Any = np.uint8) -> np.ndarray:
    low, high = (0, 256) if dtype == np.uint8 else (-128, 128)
    return integers(*shape, low=low, high=high, dtype=dtype)


def elementwise_cases() -> Iterator[Case]:
    for dtype, zero in ((np.uint8, 120), (np.int8, -3)):
        a, b = pixels(3, 4, 5, dtype=dtype), pixels(4, 1, dtype=dtype)
        z = byte(zero, dtype)
        given = [a, scalar(0.1), z, b, scalar(0.03), byte(7, dtype), scalar(0.07), z]
        for op in ("QLinearAdd", "QLinearMul"):
            yield Case(op, given, note=np.dtype(dtype).name, **MICROSOFT)
            yield Case(op, given[:7], note=f"{np.dtype(dtype)} without a zero point", **MICROSOFT)
        for op in ("QLinearSigmoid", "QLinearLeakyRelu"):
            yield Case(op, [a, scalar(0.05), z, scalar(0.004), byte(0, dtype)], note=np.dtype(dtype).name, **MICROSOFT)
        for opset, axis in ((13, -1), (13, 1), (11, 1)):
            more = {"axis": axis, "opset": opset}
            yield Case("QLinearSoftmax", [a, scalar(0.05), z, scalar(1 / 256), byte(0, dtype)], more,
                       note=f"{np.dtype(dtype)} {opset} {axis}", **MICROSOFT)  # fmt: skip
        flags = integers(3, 4, 1, low=0, high=2, dtype=np.bool_)
        where = [flags, a, scalar(0.1), z, b, scalar(0.2), byte(1, dtype), scalar(0.15), z]
        yield Case("QLinearWhere", where, note=np.dtype(dtype).name, **MICROSOFT)


def pool_cases() -> Iterator[Case]:
    for dtype in (np.uint8, np.int8):
        image = pixels(2, 3, 7, 9, dtype=dtype)
        given = [image, scalar(0.1), byte(9, dtype), scalar(0.05), byte(4, dtype)]
        for last in (0, 1):
            yield Case("QLinearGlobalAveragePool", given, {"channels_last": last}, note=f"{np.dtype(dtype)} {last}",
                       **MICROSOFT)  # fmt: skip
        for pads, padded in (([0, 0, 0, 0], 0), ([1, 1, 0, 1], 0), ([1, 1, 0, 1], 1)):
            window = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": pads, "count_include_pad": padded}
            yield Case("QLinearAveragePool", given, window, note=f"{np.dtype(dtype)} {pads} {padded}", **MICROSOFT)
        yield Case("QLinearReduceMean", given, {"axes": [1, -1], "keepdims": 1}, note=np.dtype(dtype).name, **MICROSOFT)
    parts = [scalar(0.1), byte(5), pixels(2, 3, 4), scalar(0.1), byte(5), pixels(2, 5, 4), scalar(0.3), byte(100)]
    yield Case("QLinearConcat", parts, {"axis": 1}, (0, 1, 3, 4, 6, 7), **MICROSOFT)


def product_cases() -> Iterator[Case]:
    a, b = pixels(6, 7), pixels(7, 5, dtype=np.int8)
    columns = (np.abs(random(5)) * 0.01 + 1e-3).astype(np.float32)
    for b_scale, b_zero in ((scalar(0.02), byte(3, np.int8)), (columns, np.arange(5, dtype=np.int8))):
        head = [a, scalar(0.1), byte(120), b, b_scale, b_zero]
        c = integers(5, low=-999, high=999)
        yield Case("QGemm", [*head, c], {"alpha": 0.7}, note=f"float {b_scale.size}", rtol=1e-5, **MICROSOFT)
        yield Case("QGemm", [*head, None, scalar(0.3), byte(60)], note=f"bytes {b_scale.size}", **MICROSOFT)
        given = [pixels(2, 6, 7), b, scalar(0.1), b_scale, byte(120), b_zero, random(5)]
        for count in (4, 6, 7):
            yield Case("MatMulIntegerToFloat", given[:count], note=f"{count} {b_scale.size}", rtol=1e-5, **MICROSOFT)
        for extra in ([], [b_zero], [b_zero, random(5)]):
            yield Case("DynamicQuantizeMatMul", [random(2, 6, 7, scale=3), b, b_scale, *extra], rtol=1e-4, atol=1e-4,
                       note=f"{len(extra)} {b_scale.size}", **MICROSOFT)  # fmt: skip
    transposed = [
        np.ascontiguousarray(a.T),
        scalar(0.1),
        byte(120),
        np.ascontiguousarray(b.T),
        scalar(0.2),
        byte(1, np.int8),
    ]
    yield Case("QGemm", transposed, {"transA": 1, "transB": 1}, note="transposed", rtol=1e-5, **MICROSOFT)
    inputs = [pixels(1, 4, 6, 5), scalar(0.1), byte(120), pixels(6, 4, 3, 3, dtype=np.int8), scalar(0.02),
              byte(0, np.int8), scalar(0.9), byte(128)]  # fmt: skip
    yield Case("QLinearConv", inputs, {"pads": [1, 1, 1, 1]}, **MICROSOFT)
    for batches in ((1, 0), (0, 1), (1, 1)):
        shapes = [(3, 2, 4, 5) if batches[0] else (2, 4, 3, 5), (5, 2, 4, 6) if batches[1] else (2, 4, 5, 6)]
        more = {"transBatchA": batches[0], "transBatchB": batches[1], "alpha": 0.5}
        yield Case("FusedMatMul", [random(*s, seed=i) for i, s in enumerate(shapes)], more, rtol=1e-4, atol=1e-5,
                   note=f"batches {batches}", **MICROSOFT)  # fmt: skip


FAMILIES: dict[str, Callable[[], Iterator[Case]]] = {
    "quantised elements": elementwise_cases,
    "quantised pools": pool_cases,
    "quantised products": product_cases,
}
