"""Into how many independent pieces (units) the work of a heavy kernel falls, as its C source defines them."""

from __future__ import annotations

PANEL = 8
PIECE_COLUMNS = 16


def panels(n: int) -> int:
    """How many panels n columns make: units of `pack_b`, and (per group) of `pack_conv`."""
    return -(-n // PANEL)


def packed_size(k: int, n: int) -> int:
    """Bytes of a k x n matrix packed by `pack_b`."""
    return panels(n) * PANEL * k * 4


def gemm(m: int, n: int) -> int:
    """Units of `gemm` with m rows and n columns (tile.h)."""
    across = -(-n // PIECE_COLUMNS)
    if not m or not across:
        return 0
    down = -(-m // min(96, 12 * across))
    rows = (-(-m // down) + 3) // 4 * 4
    return -(-m // rows) * across


def gemm_batched(n: int) -> int:
    """Units of `gemm_batched` for each matrix of n columns."""
    return -(-n // PIECE_COLUMNS)


def conv(pixels: int, channels: int, groups: int = 1) -> int:
    """Units of `conv` for all output pixels of the batch and the output channels of a group."""
    return groups * gemm(pixels, channels)


def int8_scratch(k: int) -> int:
    """Bytes of scratch that products of 8-bit integers need, with sums of k products."""
    return 92 * ((k + 15 & -16) + 32)


def conv_scratch(kh: int, kw: int) -> int:
    """Bytes of scratch that `conv` needs."""
    return 768 * kh * kw


SPAN = 64


def spans(rows: int, columns: int) -> int:
    """Units of kernels that work on spans of rows of pixels."""
    return rows * -(-columns // SPAN)


CHANNEL_BLOCK = 32
PIXEL_BLOCK = 32


def global_pool(batch: int, channels: int) -> int:
    """Units of `global_pool`."""
    return batch * -(-channels // CHANNEL_BLOCK)


def nhwc_to_nchw(batch: int, pixels: int) -> int:
    """Units of `nhwc_to_nchw`."""
    return batch * -(-pixels // PIXEL_BLOCK)


WINOGRAD_COLUMNS = 64
WINOGRAD_CACHED = 350 << 10
"""Bytes of transformed tiles that are best worked on at once: they stay in the second cache beside the weights."""
TILE_ROWS = 6
"""Rows of most machines' tile of the matrix product."""


def winograd_tiles(batch: int, oh: int, ow: int) -> int:
    """Tiles of 4 x 4 outputs."""
    return batch * -(-oh // 4) * -(-ow // 4)


def winograd_block(tiles: int, channels: int) -> int:
    """How many tiles `winograd` best transforms at once."""
    most = WINOGRAD_CACHED // (144 * (channels + WINOGRAD_COLUMNS))
    return min(tiles, max(TILE_ROWS, most // TILE_ROWS * TILE_ROWS))


def winograd(tiles: int, oc: int, block: int) -> int:
    """Units of `winograd` with `WINOGRAD_COLUMNS` columns."""
    return -(-tiles // block) * -(-oc // WINOGRAD_COLUMNS)


def winograd_scratch(c: int, oc: int, block: int) -> int:
    """Bytes of scratch that `winograd` needs."""
    return 144 * (block * (panels(c) * PANEL + min(WINOGRAD_COLUMNS, panels(oc) * PANEL)) + 32)
