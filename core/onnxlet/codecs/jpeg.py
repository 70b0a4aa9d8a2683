"""JPEG (ITU-T T.81): Huffman-coded baseline, extended and progressive images of 8 bits.

The standard leaves the rounding of the inverse transform and the upsampling of colours open; ONNX asks for the linear
upsampling of libjpeg-turbo. The numbers here are those of that library's default decoder, bit by bit.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

# Figure A.6: where the k-th coefficient of a block lies.
ZIGZAG = np.array(
    [0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5, 12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6, 7, 14, 21,
     28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54,
     47, 55, 62, 63]
)  # fmt: skip

# The inverse cosine transform in 13 bits. Row x, column u is 8192 √2 cos((2x+1)uπ/16), and 8192 in column 0, with the
# few entries one off that come of adding rounded constants. The other four rows mirror these.
_HALF = np.array(
    [
        [8192, 11363, 10703, 9633, 8192, 6437, 4433, 2260],
        [8192, 9633, 4433, -2259, -8192, -11362, -10704, -6436],
        [8192, 6437, -4433, -11362, -8192, 2261, 10704, 9633],
        [8192, 2260, -10703, -6436, 8192, 9633, -4433, -11363],
    ]
)
COSINES = np.concatenate([_HALF, _HALF[::-1] * np.tile([1, -1], 4)])

BASELINE, EXTENDED, PROGRESSIVE = 0xC0, 0xC1, 0xC2
OTHER_FRAMES = {0xC3, 0xC5, 0xC6, 0xC7, 0xC9, 0xCA, 0xCB, 0xCD, 0xCE, 0xCF}
END, SCAN, HUFFMAN, QUANTIZATION, RESTART_INTERVAL, ADOBE, JFIF = 0xD9, 0xDA, 0xC4, 0xDB, 0xDD, 0xEE, 0xE0


@dataclass(slots=True)
class Component:
    """One colour: its sampling factors and its blocks of coefficients, padded to whole MCUs."""

    name: int
    horizontal: int
    vertical: int
    quantization: int
    width: int
    """In samples."""
    height: int
    blocks_across: int
    blocks_down: int
    coefficients: array[int]


@dataclass(slots=True)
class Image:
    """What the segments ahead of a scan have said."""

    width: int = 0
    height: int = 0
    progressive: bool = False
    components: list[Component] = field(default_factory=list)
    quantization: dict[int, np.ndarray] = field(default_factory=dict)
    huffman: dict[int, list[int]] = field(default_factory=dict)
    """By class and number as the file writes them: 0x00 to 0x03 for DC, 0x10 to 0x13 for AC."""
    restart_interval: int = 0
    jfif: bool = False
    adobe: int | None = None


def decode(data: bytes) -> np.ndarray:
    """The image as uint8 of shape (height, width, 1 or 3). Raises `ValueError` for what isn't such an image."""
    try:
        image = _read(data)
        return _pixels(image)
    except (IndexError, KeyError, OverflowError) as error:
        raise ValueError(f"a damaged JPEG image ({error})") from error


def _read(data: bytes) -> Image:
    if data[:2] != b"\xff\xd8":
        raise ValueError("not a JPEG image")
    image, at = Image(), 2
    while True:
        while data[at] != 0xFF or data[at + 1] in (0, 0xFF):
            at += 1
        marker, at = data[at + 1], at + 2
        if marker == END:
            return image
        if marker == 1 or 0xD0 <= marker <= 0xD7:
            continue
        length = int.from_bytes(data[at : at + 2], "big")
        body, at = data[at + 2 : at + length], at + length
        if marker in OTHER_FRAMES:
            raise ValueError(f"a JPEG image of a kind that is not supported (SOF{marker - 0xC0})")
        if marker in (BASELINE, EXTENDED, PROGRESSIVE):
            _frame(image, body, marker == PROGRESSIVE, 8 * len(data))
        elif marker == HUFFMAN:
            _huffman_tables(image, body)
        elif marker == QUANTIZATION:
            _quantization_tables(image, body)
        elif marker == RESTART_INTERVAL:
            image.restart_interval = int.from_bytes(body[:2], "big")
        elif marker == JFIF:
            image.jfif |= body[:5] == b"JFIF\0"
        elif marker == ADOBE and body[:5] == b"Adobe":
            image.adobe = body[11]
        elif marker == SCAN:
            pieces, at = _entropy_coded(data, at)
            Scan(image, body).decode(pieces)


def _frame(image: Image, body: bytes, progressive: bool, bits: int) -> None:
    precision, count = body[0], body[5]
    image.height, image.width = int.from_bytes(body[1:3], "big"), int.from_bytes(body[3:5], "big")
    if precision != 8 or image.components or not image.width or not image.height:
        raise ValueError(f"a JPEG image of {precision} bits and {image.width} × {image.height} pixels")
    image.progressive = progressive
    rows = [body[6 + 3 * i : 9 + 3 * i] for i in range(count)]
    factors = [(row[1] >> 4, row[1] & 15) for row in rows]
    widest, highest = max(h for h, _ in factors), max(v for _, v in factors)
    if not all(1 <= f <= 4 for pair in factors for f in pair):
        raise ValueError("a damaged JPEG image (sampling factors)")
    across, down = -(-image.width // (8 * widest)), -(-image.height // (8 * highest))
    if across * down > bits:  # each MCU takes a bit at the least
        raise ValueError("a damaged JPEG image (it is too short for its size)")
    for row, (h, v) in zip(rows, factors, strict=True):
        width, height = -(-image.width * h // widest), -(-image.height * v // highest)
        coefficients = array("i", bytes(4 * 64 * across * h * down * v))
        image.components.append(Component(row[0], h, v, row[2], width, height, across * h, down * v, coefficients))


def _huffman_tables(image: Image, body: bytes) -> None:
    """Tables from the next 16 bits to 256 * (length of the code) + symbol; 0 where no code fits."""
    while body:
        counts = body[1:17]
        total = sum(counts)
        symbols = np.frombuffer(body[17 : 17 + total], np.uint8).astype(np.int64)
        lengths = np.repeat(np.arange(1, 17), np.frombuffer(counts, np.uint8).astype(np.intp))
        table = np.repeat(lengths * 256 + symbols, 1 << (16 - lengths))
        if len(table) > 1 << 16:
            raise ValueError("a damaged JPEG image (codes)")
        image.huffman[body[0]] = np.pad(table, (0, (1 << 16) - len(table))).tolist()
        body = body[17 + total :]


def _quantization_tables(image: Image, body: bytes) -> None:
    while body:
        wide, number = body[0] >> 4, body[0] & 15
        size = 128 if wide else 64
        table = np.frombuffer(body[1 : 1 + size], ">u2" if wide else np.uint8)
        image.quantization[number] = np.zeros(64, np.int64)
        image.quantization[number][ZIGZAG] = table
        body = body[1 + size :]


def _entropy_coded(data: bytes, begin: int) -> tuple[list[bytes], int]:
    """The pieces between restart markers, without stuffed bytes, and where the next marker is."""
    pieces, at = [], begin
    while True:
        at = data.find(b"\xff", at)
        if at < 0 or at + 1 == len(data):
            raise ValueError("a JPEG image without an end")
        following = data[at + 1]
        if 0xD0 <= following <= 0xD7:
            pieces.append(data[begin:at])
            begin = at + 2
        elif following not in (0, 0xFF):
            pieces.append(data[begin:at])
            return [piece.replace(b"\xff\x00", b"\xff") for piece in pieces], at
        at += 1 if following == 0xFF else 2


class Scan:
    """One pass over some of the components: all of their coefficients, or a band of them, or one more bit of each."""

    def __init__(self, image: Image, header: bytes):
        by_name = {component.name: component for component in image.components}
        count = header[0]
        self.image = image
        self.components = [by_name[header[1 + 2 * i]] for i in range(count)]
        tables = [header[2 + 2 * i] for i in range(count)]
        self.first, self.last, approximation = header[1 + 2 * count : 4 + 2 * count]
        self.high, self.low = approximation >> 4, approximation & 15
        if not image.progressive:
            self.first, self.last, self.high, self.low = 0, 63, 0, 0
        if not self.components or self.first > self.last or self.last > 63 or (self.first and count > 1):
            raise ValueError("a damaged JPEG image (the header of a scan)")
        needs_dc = self.first == 0 and not self.high
        self.dc = [image.huffman[t >> 4] if needs_dc else [] for t in tables]
        self.ac = [image.huffman[16 + (t & 15)] if self.last else [] for t in tables]
        self.window: list[int] = []
        self.position = 0
        self.run = 0
        self.previous = [0] * count

    def decode(self, pieces: Sequence[bytes]) -> None:
        block = self._decoder()
        blocks = self._blocks()
        interval = self.image.restart_interval
        for piece in pieces:
            # The 32 bits from each byte on, so that one shift gives what a code or a number can take.
            padded = np.frombuffer(piece + bytes(512), np.uint8).astype(np.int64)
            self.window = (padded[:-3] << 24 | padded[1:-2] << 16 | padded[2:-1] << 8 | padded[3:]).tolist()
            self.position, self.run, self.previous = 0, 0, [0] * len(self.components)
            end = 8 * len(piece) + 7
            done = 0
            while not interval or done < interval:
                unit = next(blocks, None)
                if unit is None:
                    return
                for which, at in unit:
                    block(which, at)
                    if self.position > end:
                        raise ValueError("a JPEG image that was cut off")
                done += 1
        if next(blocks, None) is not None:
            raise ValueError("a JPEG image that was cut off")

    def _blocks(self) -> Iterator[list[tuple[int, int]]]:
        """For each MCU its blocks: the number of the component, and where its coefficients begin."""
        if len(self.components) == 1:
            (only,) = self.components
            for y in range(-(-only.height // 8)):
                for x in range(-(-only.width // 8)):
                    yield [(0, 64 * (y * only.blocks_across + x))]
            return
        parts = [
            (which, c, y, x)
            for which, c in enumerate(self.components)
            for y in range(c.vertical)
            for x in range(c.horizontal)
        ]
        one = self.components[0]
        for down in range(one.blocks_down // one.vertical):
            for across in range(one.blocks_across // one.horizontal):
                yield [
                    (which, 64 * ((down * c.vertical + y) * c.blocks_across + across * c.horizontal + x))
                    for which, c, y, x in parts
                ]

    def _decoder(self) -> Callable[[int, int], None]:
        if not self.image.progressive:
            return self._whole_block
        if self.first == 0:
            return self._dc_bit if self.high else self._dc
        return self._ac_bit if self.high else self._ac

    def _bits(self, count: int) -> int:
        position = self.position
        self.position = position + count
        return self.window[position >> 3] >> (32 - count - (position & 7)) & ((1 << count) - 1)

    def _signed(self, size: int) -> int:
        """A number of `size` bits as F.2.2.1 writes it: those below half the range are negative."""
        bits = self._bits(size)
        return bits if bits >> (size - 1) else bits - (1 << size) + 1

    def _symbol(self, table: list[int]) -> int:
        position = self.position
        entry = table[self.window[position >> 3] >> (16 - (position & 7)) & 0xFFFF]
        if not entry:
            raise ValueError("a damaged JPEG image (no such code)")
        self.position = position + (entry >> 8)
        return entry & 255

    def _dc(self, which: int, at: int) -> None:
        size = self._symbol(self.dc[which])
        if size:
            self.previous[which] += self._signed(size & 15)
        self.components[which].coefficients[at] = self.previous[which] << self.low

    def _dc_bit(self, which: int, at: int) -> None:
        self.components[which].coefficients[at] |= self._bits(1) << self.low

    def _whole_block(self, which: int, at: int) -> None:
        self._dc(which, at)
        table, window, position = self.ac[which], self.window, self.position
        coefficients = self.components[which].coefficients
        k = 1
        while k < 64:
            entry = table[window[position >> 3] >> (16 - (position & 7)) & 0xFFFF]
            if not entry:
                raise ValueError("a damaged JPEG image (no such code)")
            position += entry >> 8
            size = entry & 15
            if size:
                k += entry >> 4 & 15
                bits = window[position >> 3] >> (32 - size - (position & 7)) & ((1 << size) - 1)
                position += size
                if k > 63:
                    raise ValueError("a damaged JPEG image (too many coefficients)")
                coefficients[at + k] = bits if bits >> (size - 1) else bits - (1 << size) + 1
                k += 1
            elif entry & 0xF0 == 0xF0:
                k += 16
            else:
                break
        self.position = position

    def _ac(self, which: int, at: int) -> None:
        """The first pass over a band, G.1.2.2: runs of blocks without further coefficients are counted."""
        if self.run:
            self.run -= 1
            return
        coefficients, k = self.components[which].coefficients, self.first
        while k <= self.last:
            symbol = self._symbol(self.ac[which])
            run, size = symbol >> 4, symbol & 15
            if size:
                k += run
                if k > self.last:
                    raise ValueError("a damaged JPEG image (too many coefficients)")
                coefficients[at + k] = self._signed(size) << self.low
                k += 1
            elif run == 15:
                k += 16
            else:
                self.run = (1 << run) + self._bits(run) - 1
                return

    def _ac_bit(self, which: int, at: int) -> None:
        """A later pass, G.1.2.3: one bit for each coefficient that isn't 0 yet, and new ones of magnitude 1."""
        coefficients, k = self.components[which].coefficients, at + self.first
        end, one = at + self.last + 1, 1 << self.low
        while k < end and not self.run:
            symbol = self._symbol(self.ac[which])
            zeros, size = symbol >> 4, symbol & 15
            value = 0
            if size:
                value = one if self._bits(1) else -one
            elif zeros < 15:
                self.run = (1 << zeros) + self._bits(zeros)
                break
            while k < end:
                if coefficients[k]:
                    self._refine(coefficients, k, one)
                elif zeros:
                    zeros -= 1
                else:
                    coefficients[k] = value
                    k += 1
                    break
                k += 1
        if self.run:
            self.run -= 1
            for i in range(k, end):
                if coefficients[i]:
                    self._refine(coefficients, i, one)

    def _refine(self, coefficients: array[int], k: int, one: int) -> None:
        if self._bits(1) and not abs(coefficients[k]) & one:
            coefficients[k] += one if coefficients[k] > 0 else -one


def _pixels(image: Image) -> np.ndarray:
    if not image.components:
        raise ValueError("a JPEG image without an image")
    planes = [_plane(image, component) for component in image.components]
    if len(planes) == 1:
        return planes[0].astype(np.uint8)[:, :, None]
    if len(planes) == 3:
        names = bytes(component.name for component in image.components)
        is_rgb = image.adobe == 0 if image.adobe is not None else names == b"RGB" and not image.jfif
        return (np.stack(planes, 2) if is_rgb else _rgb(*planes)).astype(np.uint8)
    if len(planes) == 4:
        # Inks, written inverted as Adobe does; with a transform also as luma and chroma.
        colours = np.stack(planes[:3], 2) if image.adobe != 2 else 255 - _rgb(*planes[:3])
        product = (255 - colours) * planes[3][:, :, None] + 128
        return np.clip(planes[3][:, :, None] - (product + (product >> 8) >> 8), 0, 255).astype(np.uint8)
    raise ValueError(f"a JPEG image of {len(planes)} components")


def _plane(image: Image, component: Component) -> np.ndarray:
    """The samples of a component, in the size of the image."""
    blocks = np.frombuffer(component.coefficients, np.int32).reshape(-1, 64)
    ordered = np.zeros(blocks.shape, np.int64)
    ordered[:, ZIGZAG] = blocks
    values = (ordered * image.quantization[component.quantization]).reshape(-1, 8, 8)
    columns = COSINES @ values + (1 << 10) >> 11  # two more bits than in the end
    samples = np.clip((columns @ COSINES.T + (1 << 17) >> 18) + 128, 0, 255)
    down, across = component.blocks_down, component.blocks_across
    plane = samples.reshape(down, across, 8, 8).swapaxes(1, 2).reshape(8 * down, 8 * across)
    plane = plane[: component.height, : component.width]
    widest = max(c.horizontal for c in image.components)
    highest = max(c.vertical for c in image.components)
    if widest % component.horizontal or highest % component.vertical:
        raise ValueError("a JPEG image with fractional sampling")
    plane = _upsampled(plane, highest // component.vertical, widest // component.horizontal)
    return plane[: image.height, : image.width]


def _upsampled(plane: np.ndarray, down: int, across: int) -> np.ndarray:
    """Factors of 2 across are linear (with rounding up and down in turn) unless there are fewer than 3 samples."""
    linear = plane.shape[1] > 2
    if (down, across) == (1, 2) and linear:
        return _doubled(plane, 1, 1, 2, 2)
    if (down, across) == (2, 2) and linear:
        return _doubled(_doubled(plane, 0, 0, 0, 0), 1, 8, 7, 4)
    if (down, across) == (2, 1):
        return _doubled(plane, 0, 1, 2, 2)
    return plane.repeat(down, 0).repeat(across, 1)


def _doubled(plane: np.ndarray, axis: int, before: int, after: int, shift: int) -> np.ndarray:
    """3 parts of each sample and 1 of its neighbour before (then: after), plus what rounds, shifted."""
    plane = np.moveaxis(plane, axis, 0)
    previous, following = np.concatenate([plane[:1], plane[:-1]]), np.concatenate([plane[1:], plane[-1:]])
    pairs = np.stack([3 * plane + previous + before >> shift, 3 * plane + following + after >> shift], 1)
    return np.moveaxis(pairs.reshape(-1, plane.shape[1]), 0, axis)


def _rgb(luma: np.ndarray, blue: np.ndarray, red: np.ndarray) -> np.ndarray:
    """ITU-R BT.601 over the full range, in 16 bits."""
    blue, red = blue - 128, red - 128
    half = 1 << 15
    channels = [
        luma + (91881 * red + half >> 16),
        luma + (-22554 * blue - 46802 * red + half >> 16),
        luma + (116130 * blue + half >> 16),
    ]
    return np.clip(np.stack(channels, 2), 0, 255)
