"""Resampling of images. Which pixels an output pixel reads, and with what weights, is asked of the NumPy definition."""

from __future__ import annotations

from math import prod

import numpy as np

from onnxlet.ops.resize import ROUNDINGS, AxisPlan, axis_plans, resample
from onnxlet.providers.base import Step

from ..compiler import Compiler
from ..layouts import LAST
from .common import grain, need_constant, need_float32, normal_axis, output_shape, present, shape_of, text
from .elementwise import kept_layout
from .registry import Emit, Refused, lower


@lower("Resize", "Upsample")
def resize(step: Step) -> Emit:
    need_float32(step, 0)
    shape, target = shape_of(step, 0), output_shape(step)
    if not 3 <= len(shape) <= 4 or not prod(shape) or not prod(target):
        raise Refused(f"resizing a tensor of shape {list(shape)} has no kernel")
    early = step.node.op_type == "Upsample" or step.node.version < 11
    plans = _early_plans(step, shape) if early else _plans(step, shape)
    if any(not _unchanged(plan) for axis, plan in plans.items() if axis < 2):
        raise Refused("resizing batch or channels has no kernel")
    mode = text(step.attribute("mode", "nearest"))
    if mode not in ("nearest", "linear", "bilinear", "cubic"):
        raise Refused(f"mode {mode} has no kernel")
    if len(shape) == 3 and mode == "bilinear":
        mode = "linear"

    def emit(c: Compiler) -> None:
        layout = kept_layout(c, 0)
        batch, channels = shape[:2]
        if layout != LAST:
            batch, channels = batch * channels, 1
        tables = [_table(step, plans.get(axis), shape[axis], mode, early) for axis in range(2, len(shape))]
        if len(tables) == 1:
            tables.insert(0, (np.zeros((1, 1), np.int32), np.ones((1, 1), np.float32)))
        (rows, row_weights), (columns, column_weights) = tables
        height, width = (1, *shape[2:])[-2:]
        new_height, new_width = (1, *target[2:])[-2:]
        x, y = c.input(0, layout), c.output(0, layout)
        units = batch * new_height
        blends = max(rows.shape[1], columns.shape[1]) > 1
        c.emit(
            "resize", units=units, grain=grain(units, 4 * prod(target)),
            scratch=4 * width * max(channels, 8) if blends else 0, x=x, y=y, batch=batch, h=height, w=width,
            c=channels, oh=new_height, ow=new_width, row_taps=rows.shape[1], row_indices=c.data(rows),
            row_weights=c.data(row_weights), column_taps=columns.shape[1], column_indices=c.data(columns),
            column_weights=c.data(column_weights), column_repeat=_repeats(columns, width),
        )  # fmt: skip

    return emit


def _repeats(places: np.ndarray, length: int) -> int:
    """How many places in a row each of `length` elements fills; 0 where the numbers differ or elements are blended."""
    count, taps = places.shape
    each = count // length
    regular = taps == 1 and each * length == count
    return each if regular and (places[:, 0] == np.repeat(np.arange(length), each)).all() else 0


def _unchanged(plan: AxisPlan) -> bool:
    return plan.before == plan.after == plan.exact


def _early_plans(step: Step, shape: tuple[int, ...]) -> dict[int, AxisPlan]:
    """Resize before opset 11, and Upsample: scales alone."""
    scales = step.attribute("scales")
    if scales is None and present(step, 1):
        scales = need_constant(step, 1, "scales")
    if scales is None:
        scales = [1, 1, step.attribute("height_scale", 1), step.attribute("width_scale", 1)]
    return axis_plans(shape, range(len(shape)), None, np.asarray(scales, np.float32), None, "stretch", False)


def _plans(step: Step, shape: tuple[int, ...]) -> dict[int, AxisPlan]:
    if text(step.attribute("coordinate_transformation_mode", "half_pixel")) == "tf_crop_and_resize":
        raise Refused("tf_crop_and_resize has no kernel")
    axes = [normal_axis(a, len(shape)) for a in step.attribute("axes") or range(len(shape))]
    scales, sizes = (
        value if present(step, i) and (value := need_constant(step, i, "sizes")).size else None for i in (2, 3)
    )
    policy = text(step.attribute("keep_aspect_ratio_policy", "stretch"))
    try:
        return axis_plans(shape, axes, None, scales, sizes, policy, False)
    except ValueError as error:
        raise Refused(str(error)) from None


def _table(step: Step, plan: AxisPlan | None, length: int, mode: str, early: bool) -> tuple[np.ndarray, np.ndarray]:
    """For every place along the resized axis the places it reads (int32) and their weights, as many for each."""
    if plan is None or _unchanged(plan):
        return np.arange(length, dtype=np.int32)[:, None], np.ones((length, 1), np.float32)
    kind = "linear" if mode == "bilinear" else mode
    unit = np.eye(length, dtype=np.float32)
    if early:
        weights = resample(
            unit, {0: plan}, kind, "asymmetric",
            lambda positions, axis: np.ceil(positions) if axis.exact < axis.before else np.floor(positions),
        )  # fmt: skip
    else:
        rounding = ROUNDINGS[text(step.attribute("nearest_mode", "round_prefer_floor"))]
        weights = resample(
            unit, {0: plan}, kind, text(step.attribute("coordinate_transformation_mode", "half_pixel")),
            lambda positions, _: rounding(positions), float(step.attribute("cubic_coeff_a", -0.75)),
            bool(step.attribute("exclude_outside", 0)), 0.0, bool(step.attribute("antialias", 0)),
        )  # fmt: skip
    used = weights != 0
    taps = max(1, int(used.sum(axis=1).max()))
    # Those that are read come first; the others, with weight 0, repeat what is read anyway.
    places = np.argsort(~used, axis=1, kind="stable")[:, :taps]
    chosen = np.take_along_axis(weights, places, axis=1)
    places = np.where(np.take_along_axis(used, places, axis=1), places, places[:, :1])
    return places.astype(np.int32), np.ascontiguousarray(chosen)
