"""Activation functions."""

from __future__ import annotations

import math

import numpy as np

from .common import check_axis, in_float32, to_float32
from .math import erf
from .precision import BFLOAT16, narrow, softmax_in_steps
from .registry import op


@op("Relu")
@in_float32
def relu(x: np.ndarray):
    return np.maximum(x, 0)


@op("LeakyRelu")
@in_float32
def leaky_relu(x: np.ndarray, *, alpha: float = 0.01):
    return np.where(x >= 0, x, alpha * x)


@op("PRelu")
@in_float32
def prelu_1(x: np.ndarray, slope: np.ndarray):
    """One slope for all, or one per channel (axis 1)."""
    if slope.size > 1 and x.ndim > 1:
        slope = slope.reshape((-1, *(1,) * (x.ndim - 2)))
    return np.where(x >= 0, x, slope * x)


@op("PRelu", since=7)
@in_float32
def prelu(x: np.ndarray, slope: np.ndarray):
    return np.where(x >= 0, x, slope * x)


@op("ThresholdedRelu", since=10)
@in_float32
def thresholded_relu(x: np.ndarray, *, alpha: float = 1.0):
    return np.where(x > alpha, x, x.dtype.type(0))


@op("Elu")
@in_float32
def elu(x: np.ndarray, *, alpha: float = 1.0):
    return np.where(x < 0, alpha * np.expm1(x), x)


@op("Celu", since=12)
@in_float32
def celu(x: np.ndarray, *, alpha: float = 1.0):
    return np.where(x > 0, x, np.minimum(alpha * np.expm1(x / alpha), 0))


@op("Selu")
@in_float32
def selu_1(x: np.ndarray, *, alpha: float = 1.6732, gamma: float = 1.0507):
    return selu(x, alpha=alpha, gamma=gamma)


@op("Selu", since=6)
@in_float32
def selu(x: np.ndarray, *, alpha: float = 1.67326319217681884765625, gamma: float = 1.05070102214813232421875):
    return gamma * np.where(x <= 0, alpha * np.expm1(x), x)


@op("Sigmoid")
@in_float32
def sigmoid(x: np.ndarray):
    decay = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, decay) / (1 + decay)


@op("HardSigmoid")
@in_float32
def hard_sigmoid(x: np.ndarray, *, alpha: float = 0.2, beta: float = 0.5):
    return np.clip(alpha * x + beta, 0, 1)


@op("HardSwish", since=14)
@in_float32
def hard_swish(x: np.ndarray):
    return x * np.clip(x / 6 + 0.5, 0, 1)


@op("Swish", since=24)
@in_float32
def swish(x: np.ndarray, *, alpha: float = 1.0):
    return x * sigmoid(alpha * x)


@op("SwiGLU", since=28)
@in_float32
def swi_glu(a: np.ndarray, b: np.ndarray, *, alpha: float = 1.0):
    if a.shape != b.shape:
        raise ValueError(f"gate and value must have one shape, but have {list(a.shape)} and {list(b.shape)}")
    return swish(a, alpha=alpha) * b


@op("Tanh")
@in_float32
def tanh(x: np.ndarray):
    return np.tanh(x)


@op("Softplus")
@in_float32
def softplus(x: np.ndarray):
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


@op("Softsign")
@in_float32
def softsign(x: np.ndarray):
    return x / (1 + np.abs(x))


@op("Mish", since=18)
@in_float32
def mish(x: np.ndarray):
    return x * np.tanh(softplus(x))


@op("Gelu", since=20)
@in_float32
def gelu(x: np.ndarray, *, approximate: str = "none"):
    if approximate == "tanh":
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))
    if approximate != "none":
        raise ValueError(f"approximate is none or tanh, not {approximate!r}")
    return 0.5 * x * (1 + erf(x * math.sqrt(0.5)))


@op("Shrink", since=9)
@in_float32
def shrink(x: np.ndarray, *, bias: float = 0.0, lambd: float = 0.5):
    return np.where(x < -lambd, x + bias, np.where(x > lambd, x - bias, 0)).astype(x.dtype)


def _rows(x: np.ndarray, axis: int):
    """The matrix whose rows the operators before opset 13 normalise: the dimensions from `axis` on are one."""
    axis = check_axis(axis, x.ndim) if axis != x.ndim else axis
    return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))


@op("Softmax", since=13)
def softmax(x: np.ndarray, *, axis: int = -1):
    """16-bit floats are rounded after each operator of the function's body, as in the standard's cases."""
    axis = check_axis(axis, x.ndim)
    if x.dtype in (np.float16, BFLOAT16):
        y = softmax_in_steps(to_float32(x).swapaxes(axis, -1), x.dtype)
        return narrow(y.swapaxes(axis, -1), x.dtype)
    e = np.exp(x - np.max(x, axis, keepdims=True, initial=-np.inf))
    return e / np.sum(e, axis, keepdims=True)


@op("LogSoftmax", since=13)
@in_float32
def log_softmax(x: np.ndarray, *, axis: int = -1):
    axis = check_axis(axis, x.ndim)
    shifted = x - np.max(x, axis, keepdims=True, initial=-np.inf)
    return shifted - np.log(np.sum(np.exp(shifted), axis, keepdims=True))


@op("Hardmax", since=13)
@in_float32
def hardmax(x: np.ndarray, *, axis: int = -1):
    """1 for the first of the greatest, 0 for the others."""
    axis = check_axis(axis, x.ndim)
    out = np.zeros_like(x)
    if x.size:
        np.put_along_axis(out, np.argmax(x, axis, keepdims=True), x.dtype.type(1), axis)
    return out


@op("Softmax")
def softmax_1(x: np.ndarray, *, axis: int = 1):
    return softmax(_rows(x, axis), axis=1).reshape(x.shape)


@op("LogSoftmax")
@in_float32
def log_softmax_1(x: np.ndarray, *, axis: int = 1):
    return log_softmax(_rows(x, axis), axis=1).reshape(x.shape)


@op("Hardmax")
@in_float32
def hardmax_1(x: np.ndarray, *, axis: int = 1):
    return hardmax(_rows(x, axis), axis=1).reshape(x.shape)
