"""Products of matrices, as the kernels for them see them."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from ..kernel import Binding


@dataclass(frozen=True, slots=True)
class Matrix:
    """How an operand of a product lies in its buffer: element (row, column) of matrix `batch` is at
    ``base + row * row_stride + column * column_stride``, where `base` is WGSL text of `batch`.

    `aligned` says whether the base is always a multiple of four; `element` is how it is stored, f32 or f16.
    """

    value: str
    count: int
    row_stride: int
    column_stride: int
    base: str = "0u"
    aligned: bool = True
    element: str = "f32"

    def vectorised(self, along: int) -> bool:
        """Whether four neighbours along rows (0) or columns (1) can be read as one vec4."""
        other, own = (self.column_stride, self.row_stride) if along == 0 else (self.row_stride, self.column_stride)
        return own == 1 and other % 4 == 0 and self.count % 4 == 0 and self.aligned

    def binding(self, name: str, vector: bool = False) -> Binding:
        if vector:
            return Binding(name, self.value, f"vec4<{self.element}>", self.count // 4)
        return Binding(name, self.value, self.element, self.count)

    def part(self, pieces: int, step: int, batched: bool) -> Matrix:
        """The pieces, `step` elements apart, that each matrix is cut into, as a batch of matrices."""
        whole = re.sub(r"\bbatch\b", f"(batch / {pieces}u)", self.base)
        number = f"batch % {pieces}u" if batched else "batch"
        return replace(self, base=f"{whole} + {number} * {step}u", aligned=self.aligned and step % 4 == 0)


@dataclass(frozen=True, slots=True)
class Product:
    """Products of `m` × `k` with `k` × `n` matrices, written row-major one after another: `batch` of them, or, where
    that is `None`, a single one."""

    a: Matrix
    b: Matrix
    m: int
    n: int
    k: int
    batch: int | None = None

    # The number of rows of a single product, and of products in a batch, are not numbers in the shaders' text: they
    # follow from the size of the output, so that other sizes share the shader.

    @property
    def height(self) -> str:
        """Text of the number of rows."""
        return f"{self.m}u" if self.batch is not None else f"(arrayLength(&y) / {self.n}u)"

    def within(self, count: int) -> str:
        """Text that takes the remainder by a number of blocks of one matrix; nothing if there is one matrix only."""
        return f" % {count}u" if self.batch is not None else ""

    def quotient(self, index: str, count: int) -> str:
        """Text of the number of the matrix that a block belongs to."""
        return f"{index} / {count}u" if self.batch is not None else "0u"

    def blocks(self, rows: int, columns: int) -> str:
        """Text of the number of blocks of `rows` by `columns` in all the matrices."""
        across = -(-self.n // columns)
        if self.batch is not None:
            return f"arrayLength(&y) / {self.m * self.n}u * {-(-self.m // rows) * across}u"
        return f"({self.height} + {rows - 1}u) / {rows}u * {across}u"
