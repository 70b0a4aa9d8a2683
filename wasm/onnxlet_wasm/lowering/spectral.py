"""Fourier transforms as matrix products: what models transform is short, and a product with packed weights is fast."""

from __future__ import annotations

from math import prod

import numpy as np

from onnxlet.ops.signal import dft as transform
from onnxlet.providers.base import Step

from ..compiler import Compiler
from .common import F32, F64, NO_ACTIVATION, need_constant, need_float32, normal_axis, output_shape, present, shape_of
from .expansion import Expansion, expand
from .gemm import gemm_call, packed_matrix
from .registry import Emit, Refused, lower

LONGEST = 2048
"""Elements of a transformed line, imaginary parts included: longer ones are left to NumPy's fast transform."""


@lower("STFT")
def stft(step: Step) -> Emit:
    """Frames overlap in memory: each is a row of A as it lies, and the window is part of the matrix."""
    need_float32(step, 0, 2)
    (batch, total, parts), (_, frames, bins, _) = shape_of(step, 0), output_shape(step)
    stride = int(need_constant(step, 1, "step").reshape(()))
    window = need_constant(step, 2, "window") if present(step, 2) else None
    length = total if window is None else len(window)
    if present(step, 3):
        length = int(need_constant(step, 3, "length").reshape(()))
    if parts != 1 or (window is not None and len(window) != length):
        raise Refused("the transform of a complex signal has no kernel")
    if length > LONGEST:
        raise Refused(f"a transform of {length} elements has no kernel")
    if stride < 1 or (frames - 1) * stride + length > total:
        raise Refused("frames beyond the signal have no kernel")
    onesided = int(step.attribute("onesided", 1))
    columns = 2 * bins

    def matrix() -> np.ndarray:
        lines = np.eye(length) if window is None else np.diag(window.astype(F64))
        return np.asarray(transform(lines[..., None], onesided=onesided)).reshape(length, columns).astype(F32)

    def emit(c: Compiler) -> None:
        held = [t for t in (c.tensor(2),) if t is not None]
        key = ("fourier", length, onesided, len(held))
        tensor = c.memory.derivations.get(key, tuple(held), F32, (length, columns), matrix)
        panels, x, y = packed_matrix(c, tensor, length, columns, False), c.input(0), c.output()
        for i in range(batch):
            gemm_call(c, x + 4 * i * total, stride, panels, y + 4 * i * frames * columns, columns, frames, columns,
                      length, 0, 0, 0, NO_ACTIVATION)  # fmt: skip

    return emit


@expand("DFT")
def dft(e: Expansion) -> None:
    step, x = e.step, e.input(0)
    need_float32(step, 0)
    shape, target = e.shape(x), output_shape(step)
    older = step.node.version < 20
    axis = int(step.attribute("axis", 1)) if older else -2
    if not older and present(step, 2):
        axis = int(need_constant(step, 2, "axis").reshape(()))
    axis = normal_axis(axis, len(shape))
    length, parts = shape[axis], shape[-1]
    wanted = int(need_constant(step, 1, "length").reshape(())) if present(step, 1) else None
    if length * parts > LONGEST or (wanted or 0) > LONGEST or axis == len(shape) - 1 or not prod(shape):
        raise Refused(f"a transform of {length} elements has no kernel")
    inverse, onesided = int(step.attribute("inverse", 0)), int(step.attribute("onesided", 0))
    inside, outside = length * parts, target[axis] * target[-1]

    def matrix() -> np.ndarray:
        """What becomes of each part of each element alone."""
        lines = np.eye(inside).reshape(inside, length, parts)
        size = None if wanted is None else np.asarray(wanted)
        return np.asarray(transform(lines, size, inverse=inverse, onesided=onesided)).reshape(inside, outside)

    key = ("fourier", length, parts, wanted, inverse, onesided)
    weights = e.derived(key, [], (inside, outside), matrix)
    others = [i for i in range(len(shape) - 1) if i != axis]
    order = [*others, axis, len(shape) - 1]
    lines = e.reshape(x if order == sorted(order) else e.transpose(x, order), (prod(shape[i] for i in others), inside))
    y = e.add("MatMul", [lines, weights], (e.shape(lines)[0], outside))
    y = e.reshape(y, [target[i] for i in order], e.output() if order == sorted(order) else "")
    if order != sorted(order):
        e.transpose(y, np.argsort(order).tolist(), e.output())
