"""Into how many independent pieces the work of a heavy kernel falls, as its C source defines them.

Each function returns `units` and `grain` for `Tape.emit`: how many pieces there are, and how many at least are worth
handing to a thread.
"""

from __future__ import annotations

WORTH_A_THREAD = 100_000
"""Multiply-adds, about 4 µs."""

PIECE_ROWS = 12
PIECE_COLUMNS = 16
MANY_ROWS = 96


def grain(units: int, work: int) -> int:
    """The smallest number of units worth a thread, where all units together are `work` multiply-adds."""
    return max(1, -(-WORTH_A_THREAD * units // max(work, 1)))


def packed_size(k: int, n: int) -> int:
    """Bytes of a k x n matrix packed by `pack_b`."""
    return -(-n // 8) * 8 * k * 4


def pack_b(n: int) -> int:
    """Units of `pack_b`."""
    return -(-n // 8)


def gemm(m: int, n: int, k: int) -> tuple[int, int]:
    """Units and grain of `gemm`: m x k times k x n."""
    units = -(-m // PIECE_ROWS) if m >= MANY_ROWS else -(-n // PIECE_COLUMNS)
    return units, grain(units, m * n * k)


def gemm_batched(batch: int, m: int, n: int, k: int) -> tuple[int, int]:
    """Units and grain of `gemm_batched` for a stack of `batch` products."""
    return batch, grain(batch, batch * m * n * k)
