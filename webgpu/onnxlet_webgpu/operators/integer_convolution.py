"""ConvInteger and QLinearConv.

Floats hold whole numbers up to 2 ** 24 exactly: where the weights are known, and no sum of products can be greater than
that, the kernels for floats compute the same. Otherwise sums are kept in i32: of four channels at once, or element by
element.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..kernel import Operand
from ..lowering import MICROSOFT, Lowering, Tensor, lowering
from .convolution import Filters, emit_convolution
from .direct import emit_direct
from .packed_convolution import emit_packed_convolution
from .quantization import EXACT, emit_requantized
from .windows import window


@lowering("ConvInteger")
def conv_integer(n: Lowering) -> None:
    x, w = n.input(0, "int32", "uint32"), n.input(1, "int32", "uint32")
    emit_integer_convolution(n, x, w, 1, (2, 3), n.output(0, "int32"))


@lowering("QLinearConv")
@lowering("QLinearConv", domain=MICROSOFT)
def qlinear_conv(n: Lowering) -> None:
    if n.attribute("channels_last", 0):
        n.refuse("a quantised convolution with its channels last has no GPU kernel")
    x, w, out = n.input(0, "int32", "uint32"), n.input(3, "int32", "uint32"), n.output(0, "int32", "uint32")
    total = n.temporary("total", out.shape, np.int32)
    emit_integer_convolution(n, x, w, 3, (2, 5), total)
    channels = (w.shape[0],) + (1,) * (len(x.shape) - 2)
    if n.has_input(8):
        bias = n.input(8, "int32")
        n.extend([n.chain(), Operand(bias.value, channels, "i32")], "{0} + {1}", "i32")
    emit_requantized(n, total, out, (1, 4, 6, 7), (channels,) * 4)


def emit_integer_convolution(
    n: Lowering, x: Tensor, w: Tensor, weights: int, zeros: tuple[int, int], out: Tensor
) -> None:
    """Add the convolution of integers as i32. `weights` and `zeros` are the numbers of the inputs that hold the weights
    and the zero points."""
    if not _exact(n, x, weights, zeros):
        g = window(n, x.shape[2:], n.attribute("kernel_shape") or w.shape[2:], out.shape[2:])
        small = x.dtype.itemsize == 1 and w.dtype.itemsize == 1
        if not small or not emit_packed_convolution(n, x, w, weights, zeros, out, g):
            emit_direct(n, x, w, out, g, zeros)
        return
    sources = (weights, zeros[1]) if n.has_input(zeros[1]) else (weights,)
    floats = n.temporary("floats", x.shape)
    operands = [Operand(x.value, x.shape, x.element)]
    expression = "f32({0})"
    if n.has_input(zeros[0]):
        zero = n.input(zeros[0], "int32", "uint32")
        operands.append(Operand(zero.value, (), zero.element))
        expression += " - f32({1})"
    n.emit_map(operands, expression, floats)
    plain = Tensor(n.derive(sources, "real", real_weights), w.shape, np.dtype(np.float32))

    def pack(tag: str, make: Callable[[np.ndarray], np.ndarray]) -> str:
        return n.derive(sources, f"real {tag}", lambda *given: make(real_weights(*given)))

    emit_convolution(n, floats, Filters(plain, True, pack), out)
    n.extend([n.chain()], "i32({0})", "i32")


def real_weights(w: np.ndarray, zero: np.ndarray | None = None) -> np.ndarray:
    """Weights less their zero point, which may be one for each filter, as floats."""
    values = w.astype(np.float32)
    if zero is not None:
        values = values - zero.astype(np.float32).reshape(-1, *(1,) * (w.ndim - 1))
    return values


def _exact(n: Lowering, x: Tensor, weights: int, zeros: tuple[int, int]) -> bool:
    """Whether the kernels for floats give the exact sums."""
    known = n.is_constant(weights) and (n.is_constant(zeros[1]) or not n.has_input(zeros[1]))
    if len(x.shape) not in (3, 4) or not known:
        return False
    w = real_weights(n.known(weights, ""), n.constant(zeros[1]))
    greatest = float(np.abs(w).reshape(w.shape[0], -1).sum(axis=1).max(initial=0))
    return x.dtype.itemsize == 1 and greatest * 255 < EXACT
