"""What convolution and pooling share: window geometry from attributes, for every opset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..lowering import Lowering


@dataclass(frozen=True, slots=True)
class Window:
    """Per spatial dimension: kernel size, stride, dilation, padding before, and input and output size."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begins: tuple[int, ...]
    sizes: tuple[int, ...]
    out_sizes: tuple[int, ...]

    @property
    def rank(self) -> int:
        return len(self.kernel)

    def turned(self) -> Window:
        """The same with the dimensions in reverse order."""
        fields = self.kernel, self.strides, self.dilations, self.begins, self.sizes, self.out_sizes
        return Window(*(field[::-1] for field in fields))


def window(n: Lowering, sizes: Sequence[int], kernel: Sequence[int], out_sizes: Sequence[int]) -> Window:
    """The geometry of a convolution's or pool's window. `auto_pad` is resolved from the sizes."""
    rank = len(kernel)
    strides = tuple(n.attribute("strides") or [1] * rank)
    dilations = tuple(n.attribute("dilations") or [1] * rank)
    auto_pad = n.attribute("auto_pad", "NOTSET") or "NOTSET"
    pads = tuple(n.attribute("pads") or [0] * (2 * rank))
    if auto_pad in ("NOTSET", "VALID"):
        begins = pads[:rank] if auto_pad == "NOTSET" else (0,) * rank
    else:
        total = [
            max(0, (out - 1) * s + (k - 1) * d + 1 - size)
            for out, s, k, d, size in zip(out_sizes, strides, kernel, dilations, sizes, strict=True)
        ]
        begins = tuple(t // 2 if auto_pad == "SAME_UPPER" else t - t // 2 for t in total)
    return Window(tuple(kernel), strides, dilations, begins, tuple(sizes), tuple(out_sizes))


def coordinate(index: str, stride: int, begin: int, offset: str = "") -> str:
    """Text of the input coordinate (i32) of a window that starts at output coordinate `index` (u32)."""
    text = f"i32({index})" if stride == 1 else f"i32({index} * {stride}u)"
    text += f" - {begin}" if begin > 0 else f" + {-begin}" if begin < 0 else ""
    return f"{text} + {offset}" if offset else text
