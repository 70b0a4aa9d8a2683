"""The inverse wavelet transforms of JPEG 2000 (ITU-T T.800, annex F)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .jpeg2000_packets import Resolution

# Table F.4, in the order in which the steps are undone, and the scaling of the low and high halves.
_LIFTING = (-0.443506852043971, -0.882911075530934, 0.052980118572961, 1.586134342059924)
_SCALE = 1.230174104914001


def inverse(resolutions: Sequence[Resolution], reversible: bool) -> np.ndarray:
    """The samples of a component: integers where the transform is reversible, else floats."""
    low = resolutions[0].bands[0].coefficients(reversible)
    for resolution in resolutions[1:]:
        top, left, bottom, right = resolution.bounds
        whole = np.zeros((bottom - top, right - left), low.dtype)
        side, below, diagonal = (band.coefficients(reversible) for band in resolution.bands)
        y, x = top & 1, left & 1  # the low halves lie at even places of the grid
        whole[y::2, x::2], whole[y::2, 1 - x :: 2] = low, side
        whole[1 - y :: 2, x::2], whole[1 - y :: 2, 1 - x :: 2] = below, diagonal
        lift = _reversible if reversible else _irreversible
        low = lift(lift(whole.T, x).T, y)
    return low


def _extended(values: np.ndarray, first: int, border: int) -> tuple[np.ndarray, int]:
    """Rows mirrored at both ends, an even number of them ahead, and how many those are."""
    ahead = border + (border + first) % 2
    count = len(values)
    period = 2 * (count - 1)
    index = np.arange(-ahead, count + border) % period
    return values[np.minimum(index, period - index)], ahead


def _reversible(values: np.ndarray, first: int) -> np.ndarray:
    """5/3, along the first axis; `first` is 1 where its first row is a high one."""
    if len(values) < 2:
        return values >> 1 if first else values
    x, ahead = _extended(values, first, 4)
    x[2:-1:2] -= x[1:-2:2] + x[3::2] + 2 >> 2
    x[3:-2:2] += x[2:-3:2] + x[4:-1:2] >> 1
    return x[ahead : ahead + len(values)]


def _irreversible(values: np.ndarray, first: int) -> np.ndarray:
    """9/7, along the first axis."""
    if len(values) < 2:
        return values / 2 if first else values
    x, ahead = _extended(values, first, 6)
    x[::2] *= _SCALE
    x[1::2] /= _SCALE
    for i, factor in enumerate(_LIFTING, 2):
        x[i:-1:2] += factor * (x[i - 1 : -2 : 2] + x[i + 1 :: 2])
    return x[ahead : ahead + len(values)]
