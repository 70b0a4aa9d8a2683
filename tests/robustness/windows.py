"""Windows over images in random graphs: convolutions, pooling, resampling."""

from __future__ import annotations

from typing import Any

import numpy as np

from .graphs import F32, FLOATS, Builder, Unfit
from .templates import activation, batch_norm, template


def image(b: Builder, dtypes: Any = (F32,)) -> str:
    def make() -> str:
        rank = b.rng.choice((3, 4, 4, 4, 5))
        channels, size = b.rng.choice((1, 2, 3, 4, 8, 16)), (5, 7, 8, 9) if rank < 5 else (3, 4)
        shape = (b.rng.choice((1, 2)), channels, *(b.rng.choice(size) for _ in range(rank - 2)))
        return b.fresh(b.rng.choice(dtypes), shape)

    def fits(v: np.ndarray) -> bool:
        return v.dtype in dtypes and 3 <= v.ndim <= 5 and min(v.shape[2:]) > 2 and v.shape[1] > 0

    return b.pick(fits, make)


def window(b: Builder, rank: int, kernel: list[int], dilate: bool = True) -> dict[str, Any]:
    attributes: dict[str, Any] = {}
    if b.chance(0.5):
        attributes["strides"] = [b.rng.choice((1, 2, 3)) for _ in range(rank)]
    if dilate and b.chance(0.2):
        attributes["dilations"] = [b.rng.choice((1, 2)) for _ in range(rank)]
    if b.chance(0.2):
        attributes["auto_pad"] = b.rng.choice(["SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"])
        attributes.pop("dilations", None)
    elif b.chance(0.6):
        attributes["pads"] = [b.rng.randrange(max(1, k // 2 + 1)) for k in (*kernel, *kernel)]
    return attributes


@template(6)
def conv(b: Builder) -> str:
    x = image(b, FLOATS if b.chance(0.1) else (F32,))
    a = b.values[x]
    rank, channels = a.ndim - 2, a.shape[1]
    group: int = b.rng.choice([1, 1, 1, channels, 1 + (channels % 2 == 0)])
    outputs = group * b.rng.choice((1, 1, 2, 4)) if group > 1 else b.rng.choice((1, 3, 4, 8, 17))
    kernel = [b.rng.choice((1, 1, 2, 3, 3, 5)) for _ in range(rank)] if b.chance(0.3) else [b.rng.choice((1, 3))] * rank
    w = b.fresh(a.dtype, (outputs, channels // group, *kernel), -0.5, 0.5)
    bias = [b.fresh(a.dtype, (outputs,))] if b.chance(0.6) else []
    if b.chance(0.1) and b.opset >= 11:
        x = b.add("Pad", [x, b.constant([0, 0, *[1] * rank] * 2)])
    y = b.add("Conv", [x, w, *bias], group=group, **window(b, rank, kernel))
    if b.chance(0.3) and b.opset >= 9:
        y = batch_norm(b, y)
    if b.chance(0.2):
        y = b.add(b.rng.choice(["Add", "Mul"]), [y, b.fresh(a.dtype, (outputs, *[1] * rank))])
    if b.chance(0.3):
        other = b.pick(lambda v: v.dtype == a.dtype and v.shape == b.values[y].shape)
        y = b.add("Add", [y, other][:: b.rng.choice((1, -1))])
    return activation(b, y) if b.chance(0.5) else y


@template(2)
def conv_transpose(b: Builder) -> str:
    x = image(b)
    a = b.values[x]
    rank, channels = a.ndim - 2, a.shape[1]
    group = b.rng.choice([1, 1, channels])
    kernel = [b.rng.choice((1, 2, 3)) for _ in range(rank)]
    w = b.fresh(a.dtype, (channels, b.rng.choice((1, 2, 3)), *kernel), -0.5, 0.5)
    attributes: dict[str, Any] = {"strides": [b.rng.choice((1, 2)) for _ in range(rank)]}
    if b.chance(0.4):
        attributes["pads"] = [b.rng.randrange(max(1, k // 2 + 1)) for k in (*kernel, *kernel)]
    if b.chance(0.3):
        attributes["output_padding"] = [b.rng.randrange(s) for s in attributes["strides"]]
    return b.add("ConvTranspose", [x, w], group=group, **attributes)


@template(3)
def pool(b: Builder) -> str:
    x = image(b, FLOATS if b.chance(0.1) else (F32,))
    rank = b.values[x].ndim - 2
    if b.chance(0.3):
        return b.add(b.rng.choice(["GlobalAveragePool", "GlobalMaxPool"]), [x])
    kernel = [b.rng.choice((1, 2, 3)) for _ in range(rank)]
    operator = b.rng.choice(["MaxPool", "MaxPool", "AveragePool", "AveragePool", "LpPool"])
    attributes = window(b, rank, kernel, dilate=operator == "MaxPool" and b.opset >= 10)
    if operator != "LpPool" and b.chance(0.3) and b.opset >= 10:
        attributes["ceil_mode"] = 1
        attributes.pop("auto_pad", None)
    if operator == "AveragePool" and b.chance(0.5):
        attributes["count_include_pad"] = 1
    count = 2 if operator == "MaxPool" and b.chance(0.2) else 1
    return b.add(operator, [x], outputs=count, kernel_shape=kernel, **attributes)


@template(2)
def resize(b: Builder) -> str:
    x = image(b)
    rank = b.values[x].ndim
    if not np.isfinite(b.values[x]).all():  # a weight of 0 may or may not be multiplied with
        raise Unfit
    scales = [1.0, 1.0, *[b.rng.choice((0.5, 1.0, 2.0, 1.6)) for _ in range(rank - 2)]]
    if b.opset < 10:
        return b.add("Upsample", [x, b.constant([max(1.0, s) for s in scales], F32)], mode="nearest")
    mode = b.rng.choice(["nearest", "linear", "linear"])
    if b.opset < 11:
        return b.add("Resize", [x, b.constant(scales, F32)], mode=mode)
    if b.chance(0.2):
        mode = "cubic"
    ways = ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"]
    attributes: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": b.rng.choice(ways)}
    if mode == "nearest":
        attributes["nearest_mode"] = b.rng.choice(["round_prefer_floor", "floor", "ceil", "round_prefer_ceil"])
    roi = "" if b.opset >= 13 else b.constant([], F32)
    if b.chance(0.5):
        return b.add("Resize", [x, roi, b.setting(scales, F32)], **attributes)
    sizes = [max(1, int(d * s)) for d, s in zip(b.values[x].shape, scales, strict=True)]
    return b.add("Resize", [x, roi, "" if b.opset >= 13 else b.constant([], F32), b.setting(sizes)], **attributes)


@template()
def blocks(b: Builder) -> str:
    x = b.pick(lambda v: v.dtype == F32 and v.ndim == 4 and v.shape[1] % 4 == 0 and v.size > 0,
               lambda: b.fresh(F32, (2, 8, 4, 6)))  # fmt: skip
    if b.chance(0.5):
        return b.add("DepthToSpace", [x], blocksize=2, mode=b.rng.choice(["DCR", "CRD"]) if b.opset > 10 else None)
    if b.values[x].shape[2] % 2 or b.values[x].shape[3] % 2:
        raise Unfit
    return b.add("SpaceToDepth", [x], blocksize=2)
