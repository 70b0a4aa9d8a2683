"""The inner loops of the WebAssembly build, as LLVM assembly with every instruction in its place.

A browser's compiler keeps the order of instructions that it is given and has about 15 vector registers to give out; a
C compiler's own scheduling for an endless supply of registers makes these loops half as fast. So they are written
here: the loads of B first, then per row one broadcast followed at once by its multiply-adds.

What each function computes is said in `tile.h` and `depthwise.c`, where their native twins are C.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence


class Function:
    """Collects the instructions of one function. Parameters and locals are numbers, as in WebAssembly."""

    def __init__(self, name: str, parameters: Sequence[str]):
        self.name = name
        self.parameters = list(parameters)
        self.locals: list[str] = []
        self.code: list[str] = []

    def local(self, kind: str) -> int:
        self.locals.append(kind)
        return len(self.parameters) + len(self.locals) - 1

    def local_list(self, kind: str, count: int) -> list[int]:
        return [self.local(kind) for _ in range(count)]

    def emit(self, *instructions: str) -> None:
        self.code.extend(instructions)

    def get(self, *names: int) -> None:
        for name in names:
            self.emit(f"local.get {name}")

    def set(self, name: int) -> None:
        self.emit(f"local.set {name}")

    def tee(self, name: int) -> None:
        self.emit(f"local.tee {name}")

    def add(self, to: int, term: int) -> None:
        """to += term, both i32 locals."""
        self.get(to, term)
        self.emit("i32.add")
        self.set(to)

    def add_constant(self, to: int, value: int) -> None:
        self.get(to)
        self.emit(f"i32.const {value}", "i32.add")
        self.set(to)

    def load(self, address: int, offset: int, into: int) -> None:
        """into = the 16 bytes at address + offset."""
        self.get(address)
        self.emit(f"v128.load {offset}:p2align=2")
        self.set(into)

    def broadcast(self, address: int, offset: int, into: int) -> None:
        """into = four times the float at address + offset."""
        self.get(address)
        self.emit(f"v128.load32_splat {offset}:p2align=2")
        self.set(into)

    def assembly(self) -> str:
        head = [
            f'\t.section\t.text.{self.name},"",@',
            f"\t.globl\t{self.name}",
            f"\t.hidden\t{self.name}",
            f"\t.type\t{self.name},@function",
            f"{self.name}:",
            f"\t.functype\t{self.name} ({', '.join(self.parameters)}) -> ()",
        ]
        if self.locals:
            head.append("\t.local\t" + ", ".join(self.locals))
        return "\n".join([*head, *(f"\t{line}" for line in self.code), "\tend_function", ""])


class Arithmetic:
    """Multiply-add as the module at hand has it."""

    def __init__(self, relaxed: bool):
        self.relaxed = relaxed

    def multiply_add(self, f: Function, x: int, y: int, total: int) -> None:
        """total += x * y"""
        if self.relaxed:
            f.get(x, y, total)
            f.emit("f32x4.relaxed_madd")
        else:
            f.get(total, x, y)
            f.emit("f32x4.mul", "f32x4.add")
        f.set(total)


# Where the fields of `Tile` (tile.h) lie: all are four bytes long.
TILE_FIELDS = (
    *("a", "rows", "b", "c", "bias", "residual"),
    *("a_step", "c_step", "residual_step", "rows_step", "taps", "depth", "add_to_c", "clamp", "low", "high"),
)
TILE = {name: 4 * i for i, name in enumerate(TILE_FIELDS)}


def matrix_tile(arithmetic: Arithmetic, rows: int, indirect: bool, unroll: int = 4) -> str:
    """rows x 8 elements of C: see `Tile`. Indirect: each row of A is a list of addresses, one per tap."""
    f = Function(f"tile_{'indirect_' if indirect else ''}{rows}", ["i32"])
    tile = 0
    a, c = f.local_list("i32", rows), f.local_list("v128", 2 * rows)
    b, step, pointer, count, taps = f.local_list("i32", 5)
    bv, x = f.local_list("v128", 2), f.local("v128")
    low, high = f.local_list("v128", 2)

    def field(name: str, into: int | None = None) -> None:
        f.get(tile)
        f.emit(f"i32.load {TILE[name]}:p2align=2")
        if into is not None:
            f.set(into)

    # The sums begin with what C holds, or with the bias.
    field("add_to_c")
    f.emit("if")
    field("c", pointer)
    field("c_step", step)
    for i in range(rows):
        for j in range(2):
            f.load(pointer, 16 * j, c[2 * i + j])
        if i < rows - 1:
            f.add(pointer, step)
    f.emit("else")
    field("bias", pointer)
    for j in range(2):
        f.load(pointer, 16 * j, bv[j])
        for i in range(rows):
            f.get(bv[j])
            f.set(c[2 * i + j])
    f.emit("end_if")

    field("b", b)
    if indirect:
        field("rows", pointer)
        field("rows_step", step)
        field("taps", taps)
        f.emit("loop")
        for i in range(rows):
            f.get(pointer)
            f.emit(f"i32.load {4 * i}:p2align=2")
            f.set(a[i])
    else:
        field("a", a[0])
        field("a_step", step)
        for i in range(1, rows):
            f.get(a[i - 1], step)
            f.emit("i32.add")
            f.set(a[i])

    def multiply(steps: int) -> None:
        for k in range(steps):
            for j in range(2):
                f.load(b, 16 * (2 * k + j), bv[j])
            for i in range(rows):
                f.broadcast(a[i], 4 * k, x)
                for j in range(2):
                    arithmetic.multiply_add(f, x, bv[j], c[2 * i + j])
        for i in range(rows):
            f.add_constant(a[i], 4 * steps)
        f.add_constant(b, 32 * steps)

    field("depth")
    f.tee(count)
    f.emit(f"i32.const {unroll}", "i32.ge_s", "if", "loop")
    multiply(unroll)
    f.get(count)
    f.emit(f"i32.const {unroll}", "i32.sub")
    f.tee(count)
    f.emit(f"i32.const {unroll}", "i32.ge_s", "br_if 0", "end_loop", "end_if")
    f.get(count)
    f.emit("if", "loop")
    multiply(1)
    f.get(count)
    f.emit("i32.const 1", "i32.sub")
    f.tee(count)
    f.emit("br_if 0", "end_loop", "end_if")
    if indirect:
        f.add(pointer, step)
        f.get(taps)
        f.emit("i32.const 1", "i32.sub")
        f.tee(taps)
        f.emit("br_if 0", "end_loop")

    field("residual")
    f.tee(pointer)
    f.emit("if")
    field("residual_step", step)
    for i in range(rows):
        for j in range(2):
            f.get(c[2 * i + j], pointer)
            f.emit(f"v128.load {16 * j}:p2align=2", "f32x4.add")
            f.set(c[2 * i + j])
        if i < rows - 1:
            f.add(pointer, step)
    f.emit("end_if")

    field("clamp")
    f.emit("if")
    for name, vector in (("low", low), ("high", high)):
        f.get(tile)
        f.emit(f"v128.load32_splat {TILE[name]}:p2align=2")
        f.set(vector)
    for total in c:  # the pseudo-minimum and -maximum let NaN through
        f.get(total, low)
        f.emit("f32x4.pmax")
        f.get(high)
        f.emit("f32x4.pmin")
        f.set(total)
    f.emit("end_if")

    field("c", pointer)
    field("c_step", step)
    for i in range(rows):
        for j in range(2):
            f.get(pointer, c[2 * i + j])
            f.emit(f"v128.store {16 * j}:p2align=2")
        if i < rows - 1:
            f.add(pointer, step)
    return f.assembly()


def vector_panels(arithmetic: Arithmetic, panels: int) -> str:
    """One row times `panels` panels of 8 columns: (a, depth, b, bytes between panels, c, bias)."""
    f = Function(f"vector_panels_{panels}", ["i32"] * 6)
    a, depth, b, stride, c, bias = range(6)
    panel, total, bv, x = (
        f.local_list("i32", panels),
        f.local_list("v128", 2 * panels),
        f.local("v128"),
        f.local("v128"),
    )
    for i in range(panels):
        if i:
            f.get(panel[i - 1], stride)
            f.emit("i32.add")
        else:
            f.get(b)
        f.set(panel[i])
    for i, t in enumerate(total):
        f.load(bias, 16 * i, t)
    f.emit("block")
    f.get(depth)
    f.emit("i32.eqz", "br_if 0", "loop")
    f.broadcast(a, 0, x)
    for i in range(panels):
        for j in range(2):
            f.load(panel[i], 16 * j, bv)
            arithmetic.multiply_add(f, bv, x, total[2 * i + j])
        f.add_constant(panel[i], 32)
    f.add_constant(a, 4)
    f.get(depth)
    f.emit("i32.const 1", "i32.sub")
    f.tee(depth)
    f.emit("br_if 0", "end_loop", "end_block")
    for i, t in enumerate(total):
        f.get(c, t)
        f.emit(f"v128.store {16 * i}:p2align=2")
    return f.assembly()


def depthwise(arithmetic: Arithmetic, size: int, stride: int, width: int) -> str:
    """`width` neighbouring outputs of a size x size depthwise convolution, for all channels, four at a time.

    (row 0, ..., row size-1, bytes between columns, weights [channels/4][size*size][4], bias, y, channels/4,
    bytes between columns of y, low, high); the rows point at the first input column.
    """
    f = Function(f"depthwise_{size}_{stride}_{width}", ["i32"] * (size + 6) + ["f32", "f32"])
    rows = list(range(size))
    column, weights, bias, y, count, y_column, low, high = range(size, size + 8)
    total, w = f.local_list("v128", width), f.local_list("v128", size)
    x, p, lowest, highest = f.local("v128"), f.local("i32"), f.local("v128"), f.local("v128")
    for scalar, vector in ((low, lowest), (high, highest)):
        f.get(scalar)
        f.emit("f32x4.splat")
        f.set(vector)
    f.emit("loop")
    f.load(bias, 0, x)
    for t in total:
        f.get(x)
        f.set(t)
    columns = (width - 1) * stride + size
    for r in range(size):
        for s in range(size):
            f.load(weights, 16 * (r * size + s), w[s])
        f.get(rows[r])
        f.set(p)
        for j in range(columns):
            f.load(p, 0, x)
            for s in range(size):
                output, rest = divmod(j - s, stride)
                if rest == 0 and 0 <= output < width:
                    arithmetic.multiply_add(f, x, w[s], total[output])
            if j < columns - 1:
                f.add(p, column)
        f.add_constant(rows[r], 16)
    f.get(y)
    f.set(p)
    for i, t in enumerate(total):
        f.get(p, t, lowest)
        f.emit("f32x4.pmax")
        f.get(highest)
        f.emit("f32x4.pmin", "v128.store 0:p2align=2")
        if i < width - 1:
            f.add(p, y_column)
    f.add_constant(y, 16)
    f.add_constant(bias, 16)
    f.add_constant(weights, 16 * size * size)
    f.get(count)
    f.emit("i32.const 1", "i32.sub")
    f.tee(count)
    f.emit("br_if 0", "end_loop")
    return f.assembly()


def integer_tile(rows: int, seven_bits: bool) -> str:
    """rows x 8 sums of products of integers: (a, b, words, sums), see `int8.h`. A lies in quartets of rows, a 32-bit
    word of each side by side; B has 8 such words for each of A, in 16 bits or in bytes of which 7 bits are used.

    One step at a time: unrolled, V8's code is slower.
    """
    f = Function(f"dot_{'seven' if seven_bits else 'pairs'}_{rows}", ["i32"] * 4)
    a, b, words, sums = range(4)
    total, columns = f.local_list("v128", 2 * rows), f.local_list("v128", 2)
    x, ones = f.local("v128"), f.local("v128")
    f.emit("i32.const 1", "i16x8.splat")
    f.set(ones)
    for t in total:
        f.emit("v128.const 0, 0, 0, 0")
        f.set(t)
    f.get(words)  # from here on where B ends
    f.emit("i32.const 5", "i32.shl")
    f.get(b)
    f.emit("i32.add")
    f.set(words)
    f.emit("loop")
    for j in range(2):
        f.load(b, 16 * j, columns[j])
    for i in range(rows):
        f.broadcast(a, 4 * i, x)
        for j in range(2):
            f.get(total[2 * i + j], x, columns[j])
            if seven_bits:
                f.emit("i16x8.relaxed_dot_i8x16_i7x16_s")
                f.get(ones)
            f.emit("i32x4.dot_i16x8_s", "i32x4.add")
            f.set(total[2 * i + j])
    f.add_constant(a, 16)
    f.get(b)
    f.emit("i32.const 32", "i32.add")
    f.tee(b)
    f.get(words)
    f.emit("i32.lt_u", "br_if 0", "end_loop")
    for i, t in enumerate(total):
        f.get(sums, t)
        f.emit(f"v128.store {16 * i}:p2align=2")
    return f.assembly()


def assembly(relaxed: bool) -> str:
    """All hot loops, for the module with or without relaxed SIMD."""
    arithmetic = Arithmetic(relaxed)
    largest = 6 if relaxed else 4  # TILE_ROWS in tile.h
    functions = [
        matrix_tile(arithmetic, rows, indirect) for rows in range(1, largest + 1) for indirect in (False, True)
    ]
    functions.append(vector_panels(arithmetic, 4))
    functions += [depthwise(arithmetic, *shape) for shape in ((3, 1, 4), (3, 1, 2), (3, 1, 1), (3, 2, 4), (3, 2, 2))]
    functions += [depthwise(arithmetic, *shape) for shape in ((3, 2, 1), (5, 1, 4), (5, 1, 1), (5, 2, 4), (5, 2, 1))]
    functions += [
        integer_tile(rows, seven) for seven in ((False, True) if relaxed else (False,)) for rows in (1, 2, 3, 4)
    ]
    return "\t.text\n" + "\n".join(functions)


if __name__ == "__main__":
    print(assembly(sys.argv[1] == "relaxed"))
