"""Products and convolutions with what follows them in one node: bias, residual, activation.

`ai.onnxlet::FusedMatMul` is what the rewrites make; the others are those of com.microsoft.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .activation_table import activation as activation_named
from .activation_table import parameter_defaults
from .activations import softmax
from .common import to_float32
from .conv import convolution
from .precision import narrow
from .registry import op

MICROSOFT = "com.microsoft"


def transposed(x: np.ndarray, swap: int) -> np.ndarray:
    """The last two axes exchanged, if `swap`."""
    return x.swapaxes(-1, -2) if swap and x.ndim > 1 else x


@op("FusedMatMul", domain="ai.onnxlet")
def fused_mat_mul(
    a: np.ndarray,
    b: np.ndarray,
    bias: np.ndarray | None = None,
    residual: np.ndarray | None = None,
    *,
    activation: str = "",
    activation_params: Sequence[float] = (),
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
):
    """activation(alpha * A @ B + bias + residual); bias and residual are broadcast."""
    y = np.matmul(transposed(to_float32(a), transA), transposed(to_float32(b), transB))
    if alpha != 1:
        y = y * alpha
    for addend in (bias, residual):
        if addend is not None:
            y = y + to_float32(addend)
    return narrow(activation_named(activation, activation_params)(y), a.dtype)


@op("FusedConv", domain=MICROSOFT)
def fused_conv(
    x: np.ndarray,
    w: np.ndarray,
    b: np.ndarray | None = None,
    z: np.ndarray | None = None,
    *,
    activation: str = "",
    activation_params: Sequence[float] = (),
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
):
    """activation(Conv(X, W, B) + Z)"""
    y = convolution(x, w, b, kernel_shape, strides, pads, dilations, group, auto_pad)
    if z is not None:
        y = y + to_float32(z)
    return narrow(activation_named(activation, activation_params)(y), x.dtype)


@op("NhwcFusedConv", domain=MICROSOFT)
def nhwc_fused_conv(
    x: np.ndarray,
    w: np.ndarray,
    b: np.ndarray | None = None,
    z: np.ndarray | None = None,
    *,
    activation: str = "",
    activation_params: Sequence[float] = (),
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
):
    """FusedConv of images (N, ..., C); weights are (M, C / group, ...) all the same."""
    y = fused_conv(
        np.moveaxis(x, -1, 1), w, b, None if z is None else np.moveaxis(z, -1, 1), activation=activation,
        activation_params=activation_params, auto_pad=auto_pad, dilations=dilations, group=group,
        kernel_shape=kernel_shape, pads=pads, strides=strides,
    )  # fmt: skip
    return np.ascontiguousarray(np.moveaxis(y, 1, -1))


@op("NhwcConv", domain=MICROSOFT)
def nhwc_conv(
    x: np.ndarray,
    w: np.ndarray,
    b: np.ndarray | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
):
    """A convolution of images (N, ..., C) with weights (M, ..., C / group), as the optimiser for diffusion models
    writes them."""
    return nhwc_fused_conv(
        x, np.moveaxis(w, -1, 1), b, auto_pad=auto_pad, dilations=dilations, group=group, kernel_shape=kernel_shape,
        pads=pads, strides=strides,
    )  # fmt: skip


@op("FusedGemm", domain=MICROSOFT)
def fused_gemm(
    a: np.ndarray,
    b: np.ndarray,
    c: np.ndarray | None = None,
    *,
    activation: str = "",
    activation_alpha: float | None = None,
    activation_beta: float | None = None,
    activation_gamma: float | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
):
    """activation(alpha * A @ B + beta * C)"""
    y = alpha * np.matmul(transposed(to_float32(a), transA), transposed(to_float32(b), transB))
    if c is not None:
        y = y + beta * to_float32(c)
    given = (activation_alpha, activation_beta, activation_gamma)
    defaults = parameter_defaults(activation)
    parameters = [d if v is None else v for v, d in zip(given, defaults, strict=False)]
    return narrow(activation_named(activation, parameters)(y), a.dtype)


def batch_transposed(x: np.ndarray, batch: int, swap: int) -> np.ndarray:
    """First the rows, which stand before the batch, moved behind it (if `batch`), then the last two axes exchanged."""
    return transposed(np.moveaxis(x, 0, -2) if batch else x, swap)


@op("FusedMatMul", domain=MICROSOFT)
def fused_mat_mul_microsoft(
    a: np.ndarray,
    b: np.ndarray,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    transBatchA: int = 0,
    transBatchB: int = 0,
):
    x = batch_transposed(to_float32(a), transBatchA, transA)
    return narrow(alpha * np.matmul(x, batch_transposed(to_float32(b), transBatchB, transB)), a.dtype)


@op("TransposeMatMul", domain=MICROSOFT)
def transpose_mat_mul(a: np.ndarray, b: np.ndarray, *, alpha: float = 1.0, transA: int = 0, transB: int = 0):
    y = alpha * np.matmul(transposed(to_float32(a), transA), transposed(to_float32(b), transB))
    return narrow(y, a.dtype)


@op("FusedMatMulActivation", domain=MICROSOFT)
def fused_mat_mul_activation(
    a: np.ndarray,
    b: np.ndarray,
    *,
    activation: str,
    activation_alpha: float | None = None,
    activation_axis: int | None = None,
    activation_beta: float | None = None,
    activation_gamma: float | None = None,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    transBatchA: int = 0,
    transBatchB: int = 0,
):
    y = fused_mat_mul_microsoft(
        to_float32(a),
        to_float32(b),
        alpha=alpha,
        transA=transA,
        transB=transB,
        transBatchA=transBatchA,
        transBatchB=transBatchB,
    )
    if activation == "Softmax":
        return narrow(softmax(y, axis=-1 if activation_axis is None else activation_axis), a.dtype)
    defaults = parameter_defaults(activation)
    given = (activation_alpha, activation_beta, activation_gamma)
    parameters = [d if v is None else v for v, d in zip(given, defaults, strict=False)]
    return narrow(activation_named(activation, parameters)(y), a.dtype)
