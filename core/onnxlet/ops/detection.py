"""Regions of interest and boxes: RoiAlign, MaxRoiPool, NonMaxSuppression."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from ..errors import LimitError
from .common import to_float32
from .precision import narrow
from .registry import op


def border_clamped(position: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Lower and upper element, the upper's weight, and whether a position counts at all.

    Positions up to one element outside are moved to the border; those farther out count as zero.
    """
    inside = (position >= -1) & (position <= size)
    clamped = np.clip(position, 0, size - 1)
    low = np.floor(clamped).astype(np.int64)
    return low, np.minimum(low + 1, size - 1), clamped - low, inside


MAX_SAMPLES = 1 << 24
"""Samples of one region in all: those of a region of 4096 by 4096 elements."""


def roi_align_samples(images: np.ndarray, batch: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> list[np.ndarray]:
    """The four terms of bilinear samples of `images` at the grid rows (R, h) × columns (R, w) of image ``batch[r]``:
    each (R, h, w, C), a corner's value times its weight."""
    height, width = images.shape[2:]
    y0, y1, wy, in_y = border_clamped(rows, height)
    x0, x1, wx, in_x = border_clamped(columns, width)
    pixels = images.transpose(0, 2, 3, 1)
    b = batch[:, None, None]
    inside = in_y[:, :, None] & in_x[:, None, :]
    terms = []
    for y, weight_y in ((y0, 1 - wy), (y1, wy)):
        for x, weight_x in ((x0, 1 - wx), (x1, wx)):
            weight = np.where(inside, weight_y[:, :, None] * weight_x[:, None, :], 0).astype(images.dtype)
            terms.append(pixels[b, y[:, :, None], x[:, None, :]] * weight[..., None])
    return terms


def roi_align_impl(
    x: np.ndarray,
    rois: np.ndarray,
    batch_indices: np.ndarray,
    mode: str,
    output_height: int,
    output_width: int,
    sampling_ratio: int,
    spatial_scale: float,
    half_pixel: bool,
) -> np.ndarray:
    wide, boxes = to_float32(x), to_float32(rois)
    shift = boxes.dtype.type(0.5 if half_pixel else 0)
    boxes = boxes * boxes.dtype.type(spatial_scale) - shift
    x1, y1 = boxes[:, 0], boxes[:, 1]
    roi_width, roi_height = boxes[:, 2] - x1, boxes[:, 3] - y1
    if not half_pixel:  # then a malformed region counts as one element
        roi_width, roi_height = np.maximum(roi_width, 1), np.maximum(roi_height, 1)
    if sampling_ratio > 0:
        grid = np.full((len(boxes), 2), sampling_ratio)
    else:
        grid = np.stack([np.ceil(roi_height / output_height), np.ceil(roi_width / output_width)], axis=1)
        grid = grid.astype(np.int64)
    result = np.zeros((len(boxes), x.shape[1], output_height, output_width), wide.dtype)
    for rows, columns in np.unique(grid, axis=0):  # regions with equally many samples go together
        if rows < 1 or columns < 1:
            continue
        if rows * output_height * columns * output_width > MAX_SAMPLES:
            raise LimitError(f"a region takes {rows} by {columns} samples per output, above {MAX_SAMPLES} in all")
        chosen = np.flatnonzero((grid == (rows, columns)).all(axis=1))
        step_y = (np.arange(output_height * rows, dtype=boxes.dtype) + boxes.dtype.type(0.5)) / rows / output_height
        step_x = (np.arange(output_width * columns, dtype=boxes.dtype) + boxes.dtype.type(0.5)) / columns / output_width
        terms = roi_align_samples(
            wide,
            batch_indices[chosen],
            y1[chosen, None] + step_y * roi_height[chosen, None],
            x1[chosen, None] + step_x * roi_width[chosen, None],
        )
        # The standard's own cases take the maximum of the weighted corners, not of the interpolated samples.
        samples = functools.reduce(np.maximum if mode == "max" else np.add, terms)
        samples = samples.reshape(len(chosen), output_height, rows, output_width, columns, x.shape[1])
        pooled = samples.max(axis=(2, 4)) if mode == "max" else samples.mean(axis=(2, 4))
        result[chosen] = pooled.transpose(0, 3, 1, 2)
    return narrow(result, x.dtype)


@op("RoiAlign", since=10)
def roi_align_10(
    x: np.ndarray,
    rois: np.ndarray,
    batch_indices: np.ndarray,
    *,
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
):
    return roi_align_impl(
        x, rois, batch_indices, mode, output_height, output_width, sampling_ratio, spatial_scale, False
    )


@op("RoiAlign", since=16)
def roi_align_16(
    x: np.ndarray,
    rois: np.ndarray,
    batch_indices: np.ndarray,
    *,
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
    coordinate_transformation_mode: str = "half_pixel",
):
    half_pixel = coordinate_transformation_mode == "half_pixel"
    return roi_align_impl(
        x, rois, batch_indices, mode, output_height, output_width, sampling_ratio, spatial_scale, half_pixel
    )


@op("MaxRoiPool")
def max_roi_pool(x: np.ndarray, rois: np.ndarray, *, pooled_shape: Sequence[int], spatial_scale: float = 1.0):
    """Rows of `rois` are (batch index, x1, y1, x2, y2), both corners included; an empty bin gives 0."""
    height, width = x.shape[2:]
    rows, columns = pooled_shape
    wide, boxes = to_float32(x), to_float32(rois)
    result = np.zeros((len(boxes), x.shape[1], rows, columns), wide.dtype)
    scaled = boxes[:, 1:] * boxes.dtype.type(spatial_scale)
    corners = (np.sign(scaled) * np.floor(np.abs(scaled) + 0.5)).astype(np.int64)  # halves away from zero
    for r, (x1, y1, x2, y2) in enumerate(corners.tolist()):
        image = wide[int(boxes[r, 0])]
        top, bottom = bins(y1, y2, rows, height)
        left, right = bins(x1, x2, columns, width)
        for i in range(rows):
            for j in range(columns):
                if top[i] < bottom[i] and left[j] < right[j]:
                    result[r, :, i, j] = image[:, top[i] : bottom[i], left[j] : right[j]].max(axis=(1, 2))
    return narrow(result, x.dtype)


def bins(first: int, last: int, count: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Begins and ends of `count` bins that cover `first` to `last`, clipped to an axis of `size` elements."""
    length = np.float32(max(last - first + 1, 1)) / np.float32(count)
    steps = np.arange(count, dtype=np.float32)
    begins = np.floor(steps * length).astype(np.int64) + first
    ends = np.ceil((steps + 1) * length).astype(np.int64) + first
    return np.clip(begins, 0, size), np.clip(ends, 0, size)


def corners_of(boxes: np.ndarray, center_point_box: int) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper corners of boxes (..., 4), given as two opposite corners or as centre and size."""
    if center_point_box:
        half = boxes[..., 2:] / 2
        return boxes[..., :2] - half, boxes[..., :2] + half
    return np.minimum(boxes[..., :2], boxes[..., 2:]), np.maximum(boxes[..., :2], boxes[..., 2:])


def suppress(lower: np.ndarray, upper: np.ndarray, limit: int, iou_threshold: float | np.floating) -> list[int]:
    """Indices of the boxes kept, at most `limit`, from boxes in order of falling score."""
    area = np.prod(upper - lower, axis=1)
    alive = np.arange(len(lower))
    kept: list[int] = []
    while alive.size and len(kept) < limit:
        best, rest = alive[0], alive[1:]
        kept.append(int(best))
        overlap = np.minimum(upper[best], upper[rest]) - np.maximum(lower[best], lower[rest])
        intersection = np.prod(np.maximum(overlap, 0), axis=1)
        union = area[best] + area[rest] - intersection
        alive = rest[~(intersection / union > iou_threshold)]  # two empty boxes give NaN: both stay
    return kept


@op("NonMaxSuppression", since=10)
def non_max_suppression(
    boxes: np.ndarray,
    scores: np.ndarray,
    max_output_boxes_per_class: np.ndarray | None = None,
    iou_threshold: np.ndarray | None = None,
    score_threshold: np.ndarray | None = None,
    *,
    center_point_box: int = 0,
):
    """Boxes (batch, n, 4), scores (batch, classes, n); rows of the result are (batch, class, box)."""
    limit = 0 if max_output_boxes_per_class is None else int(np.ravel(max_output_boxes_per_class)[0])
    overlap = 0.0 if iou_threshold is None else np.ravel(iou_threshold)[0]
    lowest_score = -np.inf if score_threshold is None else float(np.ravel(score_threshold)[0])
    if not 0 <= overlap <= 1:
        raise ValueError(f"iou_threshold is {overlap}; it must lie in [0, 1]")
    lower, upper = corners_of(boxes, center_point_box)
    selected: list[tuple[int, int, int]] = []
    for batch in range(scores.shape[0]):
        for klass in range(scores.shape[1]):
            score = scores[batch, klass]
            order = np.flatnonzero(score > lowest_score)  # few, as a rule, and sorting many takes long
            order = order[np.argsort(-score[order], kind="stable")]
            kept = suppress(lower[batch, order], upper[batch, order], limit, overlap)
            selected += [(batch, klass, int(order[i])) for i in kept]
    return np.array(selected, np.int64).reshape(-1, 3)
