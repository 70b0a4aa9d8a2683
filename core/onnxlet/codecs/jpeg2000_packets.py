"""Packets of JPEG 2000: which bytes belong to which code block (ITU-T T.800, annex B)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from .jpeg2000_blocks import BYPASS, FIRST_BYPASSED, TERMINATE, Block


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


@dataclass(frozen=True, slots=True)
class Channel:
    """One component as SIZ describes it."""

    bits: int
    signed: bool
    across: int
    """The step between its samples in the image's grid."""
    down: int


@dataclass(frozen=True, slots=True)
class Coding:
    """How a component is divided and coded: COD or COC."""

    levels: int
    block_width: int
    """As a power of 2, as all sizes here."""
    block_height: int
    style: int
    reversible: bool
    precincts: tuple[tuple[int, int], ...]
    """(width, height) by resolution."""


@dataclass(frozen=True, slots=True)
class Change:
    """A progression, and the packets that come in it: those of the whole tile, or what a POC marker says."""

    order: int
    layers: int
    resolutions: range
    components: range


@dataclass(slots=True)
class Segment:
    """Bytes that are coded in one go, and the number of passes in them."""

    data: bytes = b""
    passes: int = 0


class CodeBlock:
    """A code block, and the segments of its passes that packets have brought so far."""

    __slots__ = ("bounds", "included", "length_bits", "missing", "passes", "segments")

    def __init__(self, bounds: tuple[int, int, int, int]):
        self.bounds = bounds
        self.included = False
        self.missing = 0
        """Bit planes without any coefficient."""
        self.length_bits = 3
        self.passes = 0
        self.segments: list[Segment] = []


class Band:
    """One sub-band of a component of a tile."""

    def __init__(self, name: str, bounds: tuple[int, ...], planes: int, step: float):
        self.name, self.bounds, self.planes, self.step = name, bounds, planes, step
        self.style = 0
        self.blocks: list[CodeBlock] = []
        """Those that have any bytes."""

    def coefficients(self, reversible: bool) -> np.ndarray:
        """The coefficients: integers where the transform is reversible, else floats. Bits not given count as a half."""
        top, left, bottom, right = self.bounds
        values = np.zeros((max(0, bottom - top), max(0, right - left)), np.int64 if reversible else np.float64)
        for block in self.blocks:
            y0, x0, y1, x1 = block.bounds
            coder = Block(x1 - x0, y1 - y0, self.name, self.style)
            found, lowest = coder.decode([(s.data, s.passes) for s in block.segments], self.planes - block.missing)
            half = np.where(found != 0, np.sign(found) * np.exp2(lowest - 1.0), 0)
            exact = found + np.trunc(half).astype(np.int64) if reversible else (found + half) * self.step
            values[y0 - top : y1 - top, x0 - left : x1 - left] = exact
        return values


class Tree:
    """A tag tree, B.10.2: numbers of a grid, told bit by bit as far as they are needed."""

    def __init__(self, height: int, width: int):
        self.levels = []
        while True:
            self.levels.append((width, [0] * (height * width), [False] * (height * width)))
            if height * width <= 1:
                break
            height, width = ceil_div(height, 2), ceil_div(width, 2)

    def value(self, bits: Bits, y: int, x: int, below: int) -> int | None:
        """The number at (y, x) if it is less than `below`, else `None`."""
        floor = 0
        for level in range(len(self.levels) - 1, -1, -1):
            width, lows, known = self.levels[level]
            i = (y >> level) * width + (x >> level)
            lows[i] = max(lows[i], floor)
            while not known[i] and lows[i] < below:
                if bits.bit():
                    known[i] = True
                else:
                    lows[i] += 1
            floor = lows[i]
        return floor if floor < below else None


class Precinct:
    """The code blocks of a part of a resolution, and what is known of them."""

    def __init__(self, y: int, x: int, width: int, height: int, block: tuple[int, int], bands: Sequence[Band]):
        self.place = (y, x)
        self.size = (height, width)
        self.block = block
        self.bands = bands
        self.grids: list[tuple[list[list[CodeBlock]], Tree, Tree]] | None = None

    def prepared(self) -> list[tuple[list[list[CodeBlock]], Tree, Tree]]:
        """For each band rows of code blocks, and trees of their first layers and of their missing bit planes."""
        if self.grids is None:
            self.grids = [self._grid(band) for band in self.bands]
        return self.grids

    def _grid(self, band: Band) -> tuple[list[list[CodeBlock]], Tree, Tree]:
        (y, x), (height, width) = self.place, self.size
        top, left = max(band.bounds[0], y << height), max(band.bounds[1], x << width)
        bottom, right = min(band.bounds[2], (y + 1) << height), min(band.bounds[3], (x + 1) << width)
        if top >= bottom or left >= right:
            return [], Tree(0, 0), Tree(0, 0)
        wide, high = self.block
        across = [
            (max(left, j << wide), min(right, j + 1 << wide)) for j in range(left >> wide, (right - 1 >> wide) + 1)
        ]
        down = [(max(top, i << high), min(bottom, i + 1 << high)) for i in range(top >> high, (bottom - 1 >> high) + 1)]
        rows = [[CodeBlock((y0, x0, y1, x1)) for x0, x1 in across] for y0, y1 in down]
        return rows, Tree(len(rows), len(rows[0])), Tree(len(rows), len(rows[0]))


class Resolution:
    """A resolution of a component of a tile."""

    def __init__(self, coding: Coding, bounds: tuple[int, ...], bands: list[Band], precincts: list[Precinct]):
        self.coding, self.bounds, self.bands, self.precincts = coding, bounds, bands, precincts
        for band in bands:
            band.style = coding.style


class Bits:
    """The bits of packet headers, with a bit stuffed after each byte of ones (B.10.1)."""

    def __init__(self, data: bytes, at: int):
        self.data, self.at = data, at
        self.byte = self.left = 0

    def bit(self) -> int:
        if not self.left:
            self.left = 7 if self.byte == 0xFF else 8
            self.byte = self.data[self.at]
            self.at += 1
        self.left -= 1
        return self.byte >> self.left & 1

    def number(self, count: int) -> int:
        value = 0
        for _ in range(count):
            value = value << 1 | self.bit()
        return value

    def end(self) -> int:
        """Where the bytes after the header begin."""
        return self.at + (self.byte == 0xFF)


def read_packets(
    data: bytes,
    components: Sequence[Sequence[Resolution]],
    changes: Sequence[Change],
    layers: int,
    channels: Sequence[Channel],
    area: tuple[int, ...],
) -> None:
    """Hand the bytes of a tile to its code blocks. Data may end early, between or within packets."""
    at = 0
    done: dict[int, int] = {}  # layers by precinct
    for change in changes:
        chosen = [
            (c, r, resolution)
            for c, resolutions in enumerate(components)
            for r, resolution in enumerate(resolutions)
            if c in change.components and r in change.resolutions
        ]
        last = min(change.layers, layers)
        for layer, resolution, precinct in _in_order(chosen, change.order, last, channels, area):
            if done.get(id(precinct), 0) != layer:
                continue
            if at >= len(data):
                return
            try:
                at = _packet(data, at, layer, resolution, precinct)
            except IndexError:
                return
            done[id(precinct)] = layer + 1


def _in_order(
    chosen: Sequence[tuple[int, int, Resolution]],
    order: int,
    layers: int,
    channels: Sequence[Channel],
    area: tuple[int, ...],
) -> Iterator[tuple[int, Resolution, Precinct]]:
    """Layers, resolutions and precincts in a progression order (B.12)."""
    found = []
    for c, r, resolution in chosen:
        shift = resolution.coding.levels - r + (r > 0)  # a precinct's size is in a band's coefficients
        for k, precinct in enumerate(resolution.precincts):
            y = max(area[0], (precinct.place[0] << precinct.size[0] + shift) * channels[c].down)
            x = max(area[1], (precinct.place[1] << precinct.size[1] + shift) * channels[c].across)
            key = ((r, c, k), (r, c, k), (r, y, x, c, k), (y, x, c, r, k), (c, y, x, r, k))[order]
            found.append((key, resolution, precinct))
    found.sort(key=lambda entry: entry[0])
    if order == 0:
        yield from ((layer, entry[1], entry[2]) for layer in range(layers) for entry in found)
    elif order == 1:
        for r in sorted({entry[0][0] for entry in found}):
            same = [entry for entry in found if entry[0][0] == r]
            yield from ((layer, entry[1], entry[2]) for layer in range(layers) for entry in same)
    else:
        yield from ((layer, entry[1], entry[2]) for entry in found for layer in range(layers))


def _packet(data: bytes, at: int, layer: int, resolution: Resolution, precinct: Precinct) -> int:
    """Read one packet, B.9 and B.10; returns where the next begins."""
    if data[at : at + 2] == b"\xff\x91":  # SOP
        at += 6
    bits = Bits(data, at)
    bodies: list[tuple[Segment, int]] = []
    if bits.bit():
        for band, (rows, layer_tree, missing_tree) in zip(precinct.bands, precinct.prepared(), strict=True):
            for y, row in enumerate(rows):
                for x, block in enumerate(row):
                    if block.included:
                        if not bits.bit():
                            continue
                    elif layer_tree.value(bits, y, x, layer + 1) is None:
                        continue
                    else:
                        block.included = True
                        block.missing = _missing(bits, missing_tree, y, x, band.planes)
                        band.blocks.append(block)
                    bodies += _contribution(bits, block, resolution.coding.style)
    at = bits.end()
    if data[at : at + 2] == b"\xff\x92":  # EPH
        at += 2
    for segment, length in bodies:
        segment.data += data[at : at + length]
        at += length
    return at


def _missing(bits: Bits, tree: Tree, y: int, x: int, planes: int) -> int:
    for below in range(1, planes + 2):
        value = tree.value(bits, y, x, below)
        if value is not None:
            return value
    raise ValueError("a damaged JPEG 2000 image (bit planes)")


def _contribution(bits: Bits, block: CodeBlock, style: int) -> Iterator[tuple[Segment, int]]:
    """The segments that a packet adds to a code block, with their lengths."""
    passes = _passes(bits)
    while bits.bit():
        block.length_bits += 1
    if block.length_bits > 32:
        raise ValueError("a damaged JPEG 2000 image (lengths)")
    while passes:
        if not block.segments or block.segments[-1].passes == _capacity(block, style):
            block.segments.append(Segment())
        segment = block.segments[-1]
        count = min(passes, _capacity(block, style) - segment.passes)
        segment.passes += count
        block.passes += count
        passes -= count
        yield segment, bits.number(block.length_bits + count.bit_length() - 1)


def _capacity(block: CodeBlock, style: int) -> int:
    """How many passes the last segment of a block can hold."""
    before = block.passes - block.segments[-1].passes
    if style & TERMINATE:
        return 1
    if not style & BYPASS:
        return 1 << 30
    if before < FIRST_BYPASSED:
        return FIRST_BYPASSED
    return 1 if before % 3 == 0 else 2


def _passes(bits: Bits) -> int:
    """The number of new passes: table B.4."""
    if not bits.bit():
        return 1
    if not bits.bit():
        return 2
    if (more := bits.number(2)) < 3:
        return 3 + more
    if (more := bits.number(5)) < 31:
        return 6 + more
    return 37 + bits.number(7)
