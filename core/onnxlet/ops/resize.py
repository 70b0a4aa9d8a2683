"""Resampling on a regular grid: Resize, Upsample."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import floor, inf

import numpy as np

from .common import to_float32
from .precision import narrow
from .registry import op


@dataclass(frozen=True, slots=True)
class AxisPlan:
    """How one axis is resampled: its length before and after, the scale and the exact (perhaps fractional) length
    that it asks for, and the part of the axis, in units of its length, that tf_crop_and_resize looks at.

    Positions are float32 where scales are given, as those are: 3 / 0.6 is 5 there, and a little less in float64.
    Where sizes are given they are float64, and the scale, which need not be a float, is not used.
    """

    before: int
    after: int
    exact: float
    scale: np.float32 | None = None
    start: float = 0.0
    end: float = 1.0

    def coordinates(self) -> np.ndarray:
        """The coordinates after resizing."""
        return np.arange(self.after, dtype=np.float64 if self.scale is None else np.float32)

    def shrink(self, x: np.ndarray) -> np.ndarray:
        """x / scale."""
        return x * self.before / self.after if self.scale is None else x / self.scale


def half_pixel(x: np.ndarray, axis: AxisPlan) -> np.ndarray:
    return axis.shrink(x + 0.5) - 0.5


def half_pixel_symmetric(x: np.ndarray, axis: AxisPlan) -> np.ndarray:
    offset = axis.before / 2 * (1 - axis.after / axis.exact)
    return offset + half_pixel(x, axis)


def pytorch_half_pixel(x: np.ndarray, axis: AxisPlan) -> np.ndarray:
    return half_pixel(x, axis) if axis.after > 1 else np.zeros_like(x)


def align_corners(x: np.ndarray, axis: AxisPlan) -> np.ndarray:
    return x * (axis.before - 1) / (axis.exact - 1) if axis.after > 1 else np.zeros_like(x)


def asymmetric(x: np.ndarray, axis: AxisPlan) -> np.ndarray:
    return axis.shrink(x)


def tf_half_pixel_for_nn(x: np.ndarray, axis: AxisPlan) -> np.ndarray:
    return axis.shrink(x + 0.5)


def tf_crop_and_resize(x: np.ndarray, axis: AxisPlan) -> np.ndarray:
    last = axis.before - 1
    if axis.after > 1:
        return axis.start * last + x * (axis.end - axis.start) * last / (axis.exact - 1)
    return np.full_like(x, 0.5 * (axis.start + axis.end) * last)


TRANSFORMS: dict[str, Callable[[np.ndarray, AxisPlan], np.ndarray]] = {
    "half_pixel": half_pixel,
    "half_pixel_symmetric": half_pixel_symmetric,
    "pytorch_half_pixel": pytorch_half_pixel,
    "align_corners": align_corners,
    "asymmetric": asymmetric,
    "tf_half_pixel_for_nn": tf_half_pixel_for_nn,
    "tf_crop_and_resize": tf_crop_and_resize,
}

ROUNDINGS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


def linear_kernel(distance: np.ndarray) -> np.ndarray:
    return np.clip(1 - np.abs(distance), 0, 1)


def cubic_kernel(a: float) -> Callable[[np.ndarray], np.ndarray]:
    """Keys' cubic convolution kernel."""

    def kernel(distance: np.ndarray) -> np.ndarray:
        d = np.abs(distance)
        near = ((a + 2) * d - (a + 3)) * d * d + 1
        far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
        return np.where(d <= 1, near, np.where(d < 2, far, 0))

    return kernel


def stencil(
    positions: np.ndarray,
    axis: AxisPlan,
    kernel: Callable[[np.ndarray], np.ndarray],
    radius: int,
    antialias: bool,
    exclude_outside: bool,
) -> tuple[np.ndarray, np.ndarray]:
    """Which elements of an axis each position reads, and with which weights: two arrays (positions, taps)."""
    # Antialiasing stretches the kernel where the axis shrinks.
    stretch = min(axis.exact / axis.before, 1.0) if antialias else 1.0
    first = floor(-radius / stretch) + 1
    base = np.floor(positions)
    index = base.astype(np.int64)[:, None] + np.arange(first, 2 - first)
    weights = kernel((index - positions[:, None]) * stretch)
    if exclude_outside:
        weights = np.where((index >= 0) & (index < axis.before), weights, 0)
    if exclude_outside or antialias:
        weights = weights / weights.sum(axis=1, keepdims=True)
    return np.clip(index, 0, axis.before - 1), weights


def resample_axis(x: np.ndarray, dim: int, index: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Weighted sums of elements of axis `dim`: by one matrix product if there are many taps, else tap by tap."""
    if index.shape[1] > 16:
        matrix = np.zeros((len(index), x.shape[dim]), x.dtype)
        np.add.at(matrix, (np.arange(len(index))[:, None], index), weights)
        return np.moveaxis(np.tensordot(x, matrix, (dim, 1)), -1, dim)
    shape = (-1, *(1,) * (x.ndim - dim - 1))
    total = np.zeros((*x.shape[:dim], len(index), *x.shape[dim + 1 :]), x.dtype)
    for tap in range(index.shape[1]):
        if weights[:, tap].any():
            total += x.take(index[:, tap], axis=dim) * weights[:, tap].astype(x.dtype).reshape(shape)
    return total


def axis_plans(
    shape: Sequence[int],
    axes: Sequence[int],
    roi: np.ndarray | None,
    scales: np.ndarray | None,
    sizes: np.ndarray | None,
    policy: str,
    crop: bool,
) -> dict[int, AxisPlan]:
    """What happens to each of the `axes`."""
    if (scales is None) == (sizes is None):
        raise ValueError("exactly one of scales and sizes must be given")
    given = scales if scales is not None else sizes
    assert given is not None
    if len(given) != len(axes):
        raise ValueError(f"{len(given)} scales or sizes are given for {len(axes)} axes")
    if crop and (roi is None or len(roi) != 2 * len(axes)):
        raise ValueError(f"tf_crop_and_resize needs a roi of {2 * len(axes)} values")
    plans = {}
    if sizes is not None and policy != "stretch":
        if policy not in ("not_larger", "not_smaller"):
            raise ValueError(f"keep_aspect_ratio_policy is {policy!r}; stretch, not_larger and not_smaller are known")
        ratios = [int(s) / shape[a] for s, a in zip(sizes, axes, strict=True)]
        ratio = min(ratios) if policy == "not_larger" else max(ratios)
        sizes = np.array([floor(ratio * shape[a] + 0.5) for a in axes])
    for i, a in enumerate(axes):
        start, end = (float(roi[i]), float(roi[i + len(axes)])) if crop and roi is not None else (0.0, 1.0)
        if sizes is not None:
            exact, scale = int(sizes[i]), None
        else:
            assert scales is not None
            scale = np.float32(scales[i])
            if not 0 < scale < inf:
                raise ValueError(f"scale {scale} of axis {a} must be positive and finite")
            exact = float(np.float32(shape[a]) * np.float32(end - start) * scale)
        plans[a] = AxisPlan(shape[a], floor(exact), exact, scale, start, end)
    return plans


def resample(
    x: np.ndarray,
    plans: dict[int, AxisPlan],
    mode: str,
    transform: str,
    nearest_mode: Callable[[np.ndarray, AxisPlan], np.ndarray],
    cubic_coeff_a: float = -0.75,
    exclude_outside: bool = False,
    extrapolation_value: float = 0.0,
    antialias: bool = False,
) -> np.ndarray:
    """Resample the axes of `x` that `plans` names."""
    if transform not in TRANSFORMS:
        raise ValueError(f"coordinate_transformation_mode is {transform!r}; known are {', '.join(TRANSFORMS)}")
    if mode not in ("nearest", "linear", "cubic"):
        raise ValueError(f"mode is {mode!r}; nearest, linear and cubic are known")
    y = x if mode == "nearest" else to_float32(x)
    if y.dtype.kind in "iub" and mode != "nearest":
        y = y.astype(np.float32 if y.dtype.itemsize < 4 else np.float64)
    outside = []
    for dim, axis in plans.items():
        if axis.after == axis.before == axis.exact and (axis.start, axis.end) == (0, 1):
            continue  # also where the transform and rounding would move elements (tf_half_pixel_for_nn)
        positions = TRANSFORMS[transform](axis.coordinates(), axis)
        if axis.before == 0 and axis.after:
            raise ValueError(f"axis {dim} has no elements to resize to {axis.after}")
        if transform == "tf_crop_and_resize":
            beyond = (positions < 0) | (positions > axis.before - 1)
            if beyond.any():
                outside.append((dim, beyond))
        if mode == "nearest":
            index = np.clip(nearest_mode(positions, axis), 0, axis.before - 1).astype(np.int64)
            y = y.take(index, axis=dim)
            continue
        kernel, radius = (linear_kernel, 1) if mode == "linear" else (cubic_kernel(cubic_coeff_a), 2)
        index, weights = stencil(positions, axis, kernel, radius, antialias, exclude_outside)
        y = resample_axis(y, dim, index, weights)
    for dim, beyond in outside:
        y = y.copy()
        y[(slice(None),) * dim + (beyond,)] = extrapolation_value
    if x.dtype.kind in "iu" and y.dtype.kind == "f":
        info = np.iinfo(x.dtype)
        y = np.clip(np.trunc(y), info.min, info.max)
    return narrow(y, x.dtype)


def present(x: np.ndarray | None) -> np.ndarray | None:
    """An optional vector, which counts as absent when it is empty."""
    return None if x is None or x.size == 0 else x.reshape(-1)


def resize_impl(
    x: np.ndarray,
    roi: np.ndarray | None,
    scales: np.ndarray | None,
    sizes: np.ndarray | None,
    axes: Sequence[int] | None,
    mode: str,
    coordinate_transformation_mode: str,
    nearest_mode: str,
    cubic_coeff_a: float,
    exclude_outside: int,
    extrapolation_value: float,
    antialias: int,
    policy: str,
) -> np.ndarray:
    if nearest_mode not in ROUNDINGS:
        raise ValueError(f"nearest_mode is {nearest_mode!r}; known are {', '.join(ROUNDINGS)}")
    which = [a % x.ndim for a in axes] if axes else range(x.ndim)
    crop = coordinate_transformation_mode == "tf_crop_and_resize"
    sizes = present(sizes)
    scales = present(scales)
    if sizes is None and scales is None and not which:
        return x
    plans = axis_plans(x.shape, which, present(roi), scales, sizes, policy, crop)
    rounding = ROUNDINGS[nearest_mode]
    return resample(
        x,
        plans,
        mode,
        coordinate_transformation_mode,
        lambda positions, _: rounding(positions),
        cubic_coeff_a,
        bool(exclude_outside),
        extrapolation_value,
        bool(antialias),
    )


@op("Resize", since=11)
def resize_11(
    x: np.ndarray,
    roi: np.ndarray | None = None,
    scales: np.ndarray | None = None,
    sizes: np.ndarray | None = None,
    *,
    mode: str = "nearest",
    coordinate_transformation_mode: str = "half_pixel",
    nearest_mode: str = "round_prefer_floor",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
):
    return resize_impl(
        x, roi, scales, sizes, None, mode, coordinate_transformation_mode, nearest_mode,
        cubic_coeff_a, exclude_outside, extrapolation_value, 0, "stretch",
    )  # fmt: skip


@op("Resize", since=18)
def resize_18(
    x: np.ndarray,
    roi: np.ndarray | None = None,
    scales: np.ndarray | None = None,
    sizes: np.ndarray | None = None,
    *,
    mode: str = "nearest",
    coordinate_transformation_mode: str = "half_pixel",
    nearest_mode: str = "round_prefer_floor",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    antialias: int = 0,
    axes: Sequence[int] | None = None,
    keep_aspect_ratio_policy: str = "stretch",
):
    return resize_impl(
        x, roi, scales, sizes, axes, mode, coordinate_transformation_mode, nearest_mode,
        cubic_coeff_a, exclude_outside, extrapolation_value, antialias, keep_aspect_ratio_policy,
    )  # fmt: skip


def resize_by_scales(x: np.ndarray, scales: Sequence[float] | np.ndarray, mode: str) -> np.ndarray:
    """Resize and Upsample before opset 11: x / scale, where a nearest element is the one below when growing and the
    one above when shrinking."""
    plans = axis_plans(x.shape, range(x.ndim), None, np.asarray(scales, np.float32), None, "stretch", False)
    return resample(
        x,
        plans,
        "linear" if mode in ("bilinear", "trilinear") else mode,
        "asymmetric",
        lambda positions, axis: np.ceil(positions) if axis.exact < axis.before else np.floor(positions),
    )


@op("Upsample")
def upsample_1(x: np.ndarray, *, height_scale: float, width_scale: float, mode: str = "nearest"):
    return resize_by_scales(x, [1, 1, height_scale, width_scale], mode)


@op("Upsample", since=7)
def upsample_7(x: np.ndarray, *, scales: Sequence[float], mode: str = "nearest"):
    return resize_by_scales(x, scales, mode)


@op("Upsample", since=9)
@op("Resize", since=10)
def upsample_9(x: np.ndarray, scales: np.ndarray, *, mode: str = "nearest"):
    """Upsample was withdrawn in opset 10 for Resize; models that still use it mean this."""
    return resize_by_scales(x, scales, mode)
