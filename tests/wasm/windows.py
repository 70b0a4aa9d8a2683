"""Sliding windows, the plain way: what convolutions and pools are compared with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

FLAT = {"d": 1, "od": 1, "kd": 1, "stride_d": 1, "pad_front": 0, "dilation_d": 1}
"""The arguments by which kernels for three dimensions know that there are two."""


@dataclass(frozen=True)
class Window:
    """Size, stride, padding (begin of both axes, end of both axes) and dilation, as ONNX has them."""

    size: tuple[int, int] = (3, 3)
    stride: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)

    def output(self, h: int, w: int) -> tuple[int, int]:
        padded = h + self.pads[0] + self.pads[2], w + self.pads[1] + self.pads[3]
        reach = [(k - 1) * d + 1 for k, d in zip(self.size, self.dilation, strict=True)]
        oh, ow = ((p - r) // s + 1 for p, r, s in zip(padded, reach, self.stride, strict=True))
        return oh, ow

    @property
    def fields(self) -> dict[str, int]:
        """The arguments that all kernels with windows have."""
        return {
            "kh": self.size[0], "kw": self.size[1], "stride_h": self.stride[0], "stride_w": self.stride[1],
            "pad_top": self.pads[0], "pad_left": self.pads[1], "dilation_h": self.dilation[0],
            "dilation_w": self.dilation[1],
        }  # fmt: skip

    def __str__(self) -> str:
        return "-".join("x".join(map(str, part)) for part in (self.size, self.stride, self.pads, self.dilation))


def patches(x: np.ndarray, window: Window, fill: float, shape: tuple[int, int] | None = None) -> np.ndarray:
    """The windows of x (NHWC) as [n][oh][ow][kh][kw][c], with `fill` outside of the image."""
    n, h, w, c = x.shape
    oh, ow = shape or window.output(h, w)
    (kh, kw), (sh, sw), (dh, dw) = window.size, window.stride, window.dilation
    tall = max(h + sum(window.pads[::2]), (oh - 1) * sh + (kh - 1) * dh + 1)
    wide = max(w + sum(window.pads[1::2]), (ow - 1) * sw + (kw - 1) * dw + 1)
    padded = np.full((n, tall, wide, c), fill, x.dtype)
    padded[:, window.pads[0] : window.pads[0] + h, window.pads[1] : window.pads[1] + w] = x
    out = np.empty((n, oh, ow, kh, kw, c), x.dtype)
    for r in range(kh):
        for s in range(kw):
            out[:, :, :, r, s] = padded[:, r * dh :, s * dw :][:, : (oh - 1) * sh + 1 : sh, : (ow - 1) * sw + 1 : sw]
    return out


def convolve(x: np.ndarray, w: np.ndarray, window: Window, groups: int = 1) -> np.ndarray:
    """x (NHWC) by w (output channels, channels of a group, kh, kw), in float64."""
    p = patches(x.astype(np.float64), window, 0.0)
    n, oh, ow, kh, kw, c = p.shape
    p = p.reshape(n, oh, ow, kh, kw, groups, c // groups)
    w = w.astype(np.float64).reshape(groups, -1, c // groups, kh, kw)
    return np.einsum("nyxrsgi,goirs->nyxgo", p, w).reshape(n, oh, ow, -1)
