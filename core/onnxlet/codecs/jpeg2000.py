"""JPEG 2000, part 1 (ITU-T T.800): code streams, bare or in a JP2 file.

Regions of interest and packed packet headers are not known. Where a file holds more than three channels the first three
are taken as colours; samples of other than 8 bits are scaled to 8.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from .jpeg2000_packets import Band, Change, Channel, Coding, Precinct, Resolution, ceil_div, read_packets
from .jpeg2000_wavelets import inverse

MAX_PIXELS = 1 << 26
MAX_CHANNELS = 32
MAX_CHANGES = 256

SIZ, COD, COC, RGN, QCD, QCC, POC, PPM, PPT, SOT, SOD, EOC = (
    0xFF51, 0xFF52, 0xFF53, 0xFF5E, 0xFF5C, 0xFF5D, 0xFF5F, 0xFF60, 0xFF61, 0xFF90, 0xFF93, 0xFFD9,
)  # fmt: skip

GAINS = {"LL": 0, "HL": 1, "LH": 1, "HH": 2}
"""log2 of how much a band's range exceeds the samples': table E.1."""


@dataclass(frozen=True, slots=True)
class Quantization:
    """QCD or QCC: the exponent and mantissa of each band's step."""

    guard: int
    derived: bool
    steps: tuple[tuple[int, int], ...]


@dataclass(slots=True)
class Parameters:
    """What the main header, and then a tile's own, say."""

    order: int = 0
    layers: int = 1
    transform: bool = False
    coding: Coding | None = None
    own_coding: dict[int, Coding] = field(default_factory=dict)
    quantization: Quantization | None = None
    own_quantization: dict[int, Quantization] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)

    def copy(self) -> Parameters:
        return replace(
            self,
            own_coding=dict(self.own_coding),
            own_quantization=dict(self.own_quantization),
            changes=list(self.changes),
        )


@dataclass(frozen=True, slots=True)
class Grid:
    """The image and its tiles in the reference grid: SIZ."""

    size: tuple[int, int]
    origin: tuple[int, int]
    tile: tuple[int, int]
    tile_origin: tuple[int, int]
    channels: tuple[Channel, ...]


def decode(data: bytes) -> np.ndarray:
    """The image as uint8 of shape (height, width, 1 or 3). Raises `ValueError` for what isn't such an image."""
    try:
        stream, palette, luma = _unboxed(data) if data[4:8] == b"jP  " else (data, None, False)
        channels, planes = _code_stream(stream)
        if palette is not None:
            index = np.clip(planes[0], 0, len(palette) - 1)
            planes = [palette[index, c] for c in range(palette.shape[1])]
            channels = [Channel(8, False, 1, 1)] * len(planes)
        planes = [_eight_bits(plane, channel) for plane, channel in zip(planes, channels, strict=True)]
        if len(planes) < 3:
            return planes[0].astype(np.uint8)[:, :, None]
        image = np.stack(planes[:3], 2)
        return (_rgb(image) if luma else image).astype(np.uint8)
    except (IndexError, KeyError, OverflowError) as error:
        raise ValueError(f"a damaged JPEG 2000 image ({error})") from error


def _unboxed(data: bytes) -> tuple[bytes, np.ndarray | None, bool]:
    """The code stream of a JP2 file, its palette, and whether the channels are luma and chroma (annex I)."""
    palette, luma = None, False
    for kind, body in _boxes(data):
        if kind == b"jp2h":
            for inner, content in _boxes(body):
                if inner == b"pclr":
                    rows, columns = int.from_bytes(content[:2], "big"), content[2]
                    if any(bits > 8 for bits in content[3 : 3 + columns]):
                        raise ValueError("a JPEG 2000 image with a palette of more than 8 bits")
                    values = np.frombuffer(content[3 + columns :], np.uint8, rows * columns)
                    palette = values.reshape(rows, columns).astype(np.int64)
                elif inner == b"colr" and content[0] == 1:
                    luma = int.from_bytes(content[3:7], "big") == 18
        elif kind == b"jp2c":
            return body, palette, luma
    raise ValueError("a JP2 file without an image")


def _boxes(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = 0
    while at + 8 <= len(data):
        length, kind, head = int.from_bytes(data[at : at + 4], "big"), data[at + 4 : at + 8], 8
        if length == 1:
            length, head = int.from_bytes(data[at + 8 : at + 16], "big"), 16
        elif length == 0:
            length = len(data) - at
        if length < head:
            raise ValueError("a damaged JP2 file")
        yield kind, data[at + head : at + length]
        at += length


def _eight_bits(plane: np.ndarray, channel: Channel) -> np.ndarray:
    if channel.signed:
        plane = plane + (1 << (channel.bits - 1))
    shift = channel.bits - 8
    return plane >> shift if shift >= 0 else plane << -shift


def _rgb(image: np.ndarray) -> np.ndarray:
    luma, blue, red = image[..., 0], image[..., 1] - 128, image[..., 2] - 128
    channels = [luma + 1.402 * red, luma - 0.344136 * blue - 0.714136 * red, luma + 1.772 * blue]
    return np.clip(np.rint(np.stack(channels, 2)), 0, 255)


def _code_stream(data: bytes) -> tuple[list[Channel], list[np.ndarray]]:
    if data[:2] != b"\xff\x4f":
        raise ValueError("not a JPEG 2000 image")
    main, grid, at = Parameters(), None, 2
    parts: dict[int, tuple[Parameters, bytes]] = {}
    while True:
        marker = int.from_bytes(data[at : at + 2], "big")
        if marker == EOC or at >= len(data):
            break
        length = int.from_bytes(data[at + 2 : at + 4], "big")
        body = data[at + 4 : at + 2 + length]
        if marker == SIZ:
            grid = _size(body)
        elif marker == SOT:
            tile, size = int.from_bytes(body[:2], "big"), int.from_bytes(body[2:6], "big")
            end = at + size if size else len(data) - 2 * (data[-2:] == b"\xff\xd9")
            parameters, before = parts.get(tile) or (main.copy(), b"")
            begin = _tile_header(data, at + 2 + length, parameters, grid)
            parts[tile] = (parameters, before + data[begin:end])
            at = max(end, begin)
            continue
        else:
            _parameters(main, marker, body, grid)
        at += 2 + length
    if grid is None:
        raise ValueError("a JPEG 2000 image without a size")
    return list(grid.channels), _image(grid, parts)


def _tile_header(data: bytes, at: int, parameters: Parameters, grid: Grid | None) -> int:
    """Read the markers of a tile part; returns where its packets begin."""
    while (marker := int.from_bytes(data[at : at + 2], "big")) != SOD:
        if at >= len(data):
            raise ValueError("a damaged JPEG 2000 image (a tile without packets)")
        length = int.from_bytes(data[at + 2 : at + 4], "big")
        _parameters(parameters, marker, data[at + 4 : at + 2 + length], grid)
        at += 2 + length
    return at + 2


def _size(body: bytes) -> Grid:
    x1, y1, x0, y0, tile_x, tile_y, tile_x0, tile_y0 = np.frombuffer(body, ">u4", 8, 2).tolist()
    count = int.from_bytes(body[34:36], "big")
    rows = [body[36 + 3 * i : 39 + 3 * i] for i in range(count)]
    channels = tuple(Channel((row[0] & 127) + 1, row[0] > 127, row[1], row[2]) for row in rows)
    fits = x0 < x1 and y0 < y1 and tile_x0 <= x0 < tile_x0 + tile_x and tile_y0 <= y0 < tile_y0 + tile_y
    if not channels or not fits or not all(c.across and c.down and c.bits <= 31 for c in channels):
        raise ValueError("a damaged JPEG 2000 image (its size)")
    if (x1 - x0) * (y1 - y0) * count > MAX_PIXELS or count > MAX_CHANNELS:
        raise ValueError(f"a JPEG 2000 image of {x1 - x0} × {y1 - y0} pixels and {count} channels is too large")
    return Grid((y1, x1), (y0, x0), (tile_y, tile_x), (tile_y0, tile_x0), channels)


def _parameters(parameters: Parameters, marker: int, body: bytes, grid: Grid | None) -> None:
    wide = 2 if grid is not None and len(grid.channels) > 256 else 1
    if marker == COD:
        parameters.order, parameters.layers = body[1], int.from_bytes(body[2:4], "big")
        parameters.transform = body[4] != 0
        parameters.coding = _coding(body[5:], bool(body[0] & 1))
    elif marker == COC:
        component = int.from_bytes(body[:wide], "big")
        parameters.own_coding[component] = _coding(body[wide + 1 :], bool(body[wide] & 1))
    elif marker == QCD:
        parameters.quantization = _quantization(body)
    elif marker == QCC:
        parameters.own_quantization[int.from_bytes(body[:wide], "big")] = _quantization(body[wide:])
    elif marker == POC:
        size = 5 + 2 * wide
        for row in (body[i : i + size] for i in range(0, len(body), size)):
            first, last = row[1 : 1 + wide], row[4 + wide : 4 + 2 * wide]
            layers = int.from_bytes(row[1 + wide : 3 + wide], "big")
            components = range(int.from_bytes(first, "big"), int.from_bytes(last, "big") or 256)
            parameters.changes.append(Change(row[-1], layers, range(row[0], row[3 + wide]), components))
        if len(parameters.changes) > MAX_CHANGES:
            raise ValueError("a JPEG 2000 image with too many changes of progression")
    elif marker in (RGN, PPM, PPT):
        raise ValueError("a JPEG 2000 image of a kind that is not supported")


def _coding(body: bytes, has_precincts: bool) -> Coding:
    levels = body[0]
    sizes = body[5 : 6 + levels] if has_precincts else bytes([0xFF]) * (levels + 1)
    precincts = tuple((size & 15, size >> 4) for size in sizes)
    coding = Coding(levels, (body[1] & 15) + 2, (body[2] & 15) + 2, body[3], body[4] == 1, precincts)
    if levels > 32 or len(precincts) != levels + 1 or coding.block_width + coding.block_height > 12:
        raise ValueError("a damaged JPEG 2000 image (its coding)")
    if any(0 in size for size in precincts[1:]):
        raise ValueError("a damaged JPEG 2000 image (its precincts)")
    return coding


def _quantization(body: bytes) -> Quantization:
    kind, guard = body[0] & 31, body[0] >> 5
    if kind == 0:
        return Quantization(guard, False, tuple((value >> 3, 0) for value in body[1:]))
    values = np.frombuffer(body[1:], ">u2").tolist()
    return Quantization(guard, kind == 1, tuple((value >> 11, value & 2047) for value in values))


def _image(grid: Grid, parts: dict[int, tuple[Parameters, bytes]]) -> list[np.ndarray]:
    """The planes of all channels, in the size of the image."""
    (y1, x1), (y0, x0) = grid.size, grid.origin
    shapes = [
        (ceil_div(y1, c.down) - ceil_div(y0, c.down), ceil_div(x1, c.across) - ceil_div(x0, c.across))
        for c in grid.channels
    ]
    planes = [np.zeros(shape, np.int64) for shape in shapes]
    across = ceil_div(x1 - grid.tile_origin[1], grid.tile[1])
    for number, (parameters, data) in parts.items():
        row, column = divmod(number, across)
        top, left = grid.tile_origin[0] + row * grid.tile[0], grid.tile_origin[1] + column * grid.tile[1]
        area = (max(top, y0), max(left, x0), min(top + grid.tile[0], y1), min(left + grid.tile[1], x1))
        if area[0] >= area[2] or area[1] >= area[3]:
            raise ValueError("a damaged JPEG 2000 image (a tile outside of it)")
        for c, plane in enumerate(_tile(grid, parameters, area, data)):
            channel = grid.channels[c]
            top, left = ceil_div(area[0], channel.down), ceil_div(area[1], channel.across)
            top, left = top - ceil_div(y0, channel.down), left - ceil_div(x0, channel.across)
            planes[c][top : top + plane.shape[0], left : left + plane.shape[1]] = plane
    height, width = y1 - y0, x1 - x0
    return [
        plane.repeat(c.down, 0).repeat(c.across, 1)[:height, :width]
        for plane, c in zip(planes, grid.channels, strict=True)
    ]


def _tile(grid: Grid, parameters: Parameters, area: tuple[int, ...], data: bytes) -> list[np.ndarray]:
    """The samples of a tile, by channel."""
    components: list[list[Resolution]] = []
    for c, channel in enumerate(grid.channels):
        coding = parameters.own_coding.get(c) or parameters.coding
        quantization = parameters.own_quantization.get(c) or parameters.quantization
        if coding is None or quantization is None:
            raise ValueError("a JPEG 2000 image without its coding")
        top, left = ceil_div(area[0], channel.down), ceil_div(area[1], channel.across)
        bottom, right = ceil_div(area[2], channel.down), ceil_div(area[3], channel.across)
        components.append(_resolutions(coding, quantization, channel, (top, left, bottom, right)))
    count = sum(len(r.precincts) for resolutions in components for r in resolutions)
    if count > 8 * len(data) + 64:
        raise ValueError("a damaged JPEG 2000 image (it is too short for its size)")
    whole = Change(parameters.order, parameters.layers, range(33), range(len(components)))
    read_packets(data, components, parameters.changes or [whole], parameters.layers, grid.channels, area)
    planes = [inverse(resolutions, resolutions[0].coding.reversible) for resolutions in components]
    if parameters.transform and len(planes) >= 3:
        planes[:3] = _untransformed(planes[:3], components[0][0].coding.reversible)
    return [_leveled(plane, channel) for plane, channel in zip(planes, grid.channels, strict=True)]


def _resolutions(
    coding: Coding, quantization: Quantization, channel: Channel, area: tuple[int, int, int, int]
) -> list[Resolution]:
    """The resolutions of a component of a tile, coarsest first, with their bands and precincts (annex B)."""
    resolutions, levels = [], coding.levels
    for r in range(levels + 1):
        down = levels - r
        bounds = tuple(ceil_div(v, 1 << down) for v in area)
        level = down + (r > 0)
        bands = []
        for i, name in enumerate(("HL", "LH", "HH") if r else ("LL",)):
            high_x, high_y = name[0] == "H", name[1] == "H"
            offsets = [(1 << level >> 1) * high for high in (high_y, high_x, high_y, high_x)]
            inner = tuple(ceil_div(v - o, 1 << level) for v, o in zip(area, offsets, strict=True))
            number = 3 * (r - 1) + 1 + i if r else 0
            if quantization.derived:
                exponent, mantissa = quantization.steps[0]
                exponent -= levels - level
            else:
                exponent, mantissa = quantization.steps[number]
            step = 1.0
            if not coding.reversible:
                step = 2.0 ** (channel.bits + GAINS[name] - exponent) * (1 + mantissa / 2048)
            bands.append(Band(name, inner, quantization.guard + exponent - 1, step))
        resolutions.append(Resolution(coding, bounds, bands, _precincts(coding, r, bounds, bands)))
    return resolutions


def _precincts(coding: Coding, r: int, bounds: tuple[int, ...], bands: list[Band]) -> list[Precinct]:
    """The precincts of a resolution, row by row."""
    width, height = coding.precincts[r]
    top, left, bottom, right = bounds
    if top >= bottom or left >= right:
        return []
    rows = range(top >> height, ceil_div(bottom, 1 << height))
    columns = range(left >> width, ceil_div(right, 1 << width))
    if len(rows) * len(columns) > MAX_PIXELS >> 6:
        raise ValueError("a JPEG 2000 image of too many precincts")
    half = r > 0  # bands have half the resolution's size
    block = (min(coding.block_width, width - half), min(coding.block_height, height - half))
    return [Precinct(y, x, width - half, height - half, block, bands) for y in rows for x in columns]


def _untransformed(planes: list[np.ndarray], reversible: bool) -> list[np.ndarray]:
    """Annex G: red, green and blue from luma and two differences."""
    luma, blue, red = planes
    if reversible:
        green = luma - (blue + red >> 2)
        return [red + green, green, blue + green]
    return [luma + 1.402 * red, luma - 0.344136 * blue - 0.714136 * red, luma + 1.772 * blue]


def _leveled(plane: np.ndarray, channel: Channel) -> np.ndarray:
    """Whole numbers within the range of the channel."""
    half = 1 << (channel.bits - 1)
    values = np.rint(plane).astype(np.int64)
    return np.clip(values, -half, half - 1) if channel.signed else np.clip(values + half, 0, 2 * half - 1)
