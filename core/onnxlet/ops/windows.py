"""Geometry of sliding windows, shared by convolutions and pooling."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from math import prod

import numpy as np

from ..limits import DEFAULT

Pads = tuple[tuple[int, int], ...]
"""Elements added (or, if negative, cut) before and after along each spatial axis."""


def per_axis(values: Sequence[int] | None, rank: int, default: int, what: str) -> tuple[int, ...]:
    """An attribute with one value per spatial axis, or its default."""
    if not values:
        return (default,) * rank
    if len(values) != rank:
        raise ValueError(f"{what} {list(values)} has {len(values)} values where the input has {rank} spatial axes")
    return tuple(int(v) for v in values)


def explicit_pads(pads: Sequence[int] | None, rank: int) -> Pads:
    """The `pads` attribute (all begins, then all ends) as pairs."""
    if not pads:
        return ((0, 0),) * rank
    if len(pads) != 2 * rank:
        raise ValueError(f"pads {list(pads)} has {len(pads)} values where {2 * rank} are needed")
    return tuple((int(pads[i]), int(pads[i + rank])) for i in range(rank))


def extent(kernel: int, dilation: int) -> int:
    """How many elements a window of `kernel` taps spans."""
    return (kernel - 1) * dilation + 1


def split_pad(total: int, auto_pad: str) -> tuple[int, int]:
    """Divide padding between the two sides: the odd element goes to the end for SAME_UPPER, else to the beginning."""
    small = total // 2
    return (small, total - small) if auto_pad == "SAME_UPPER" else (total - small, small)


def window_pads(
    auto_pad: str,
    pads: Sequence[int] | None,
    sizes: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> Pads:
    """The padding that `auto_pad` or `pads` ask for, for windows over axes of the given `sizes`."""
    if auto_pad in ("NOTSET", ""):
        return explicit_pads(pads, len(sizes))
    if auto_pad == "VALID":
        return ((0, 0),) * len(sizes)
    if auto_pad not in ("SAME_UPPER", "SAME_LOWER"):
        raise ValueError(f"auto_pad is {auto_pad!r}; NOTSET, VALID, SAME_UPPER and SAME_LOWER are known")
    result = []
    for size, k, s, d in zip(sizes, kernel, strides, dilations, strict=True):
        total = max(0, (-(-size // s) - 1) * s + extent(k, d) - size)
        result.append(split_pad(total, auto_pad))
    return tuple(result)


def conv_geometry(
    sizes: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int] | None,
    pads: Sequence[int] | None,
    dilations: Sequence[int] | None,
    auto_pad: str,
) -> tuple[tuple[int, ...], tuple[int, ...], Pads]:
    """Strides, dilations and padding of a convolution over an input of these sizes."""
    rank = len(kernel)
    steps, spread = per_axis(strides, rank, 1, "strides"), per_axis(dilations, rank, 1, "dilations")
    return steps, spread, window_pads(auto_pad, pads, sizes, kernel, steps, spread)


def pad_spatial(x: np.ndarray, pads: Pads, value: float | int = 0) -> np.ndarray:
    """Pad the last ``len(pads)`` axes of `x` with `value`; negative pads cut elements off."""
    lead = x.ndim - len(pads)
    if any(p < 0 for pair in pads for p in pair):
        sizes = x.shape[lead:]
        cut = [slice(max(0, -a), n - max(0, -b)) for (a, b), n in zip(pads, sizes, strict=True)]
        x = x[(..., *cut)]
        pads = tuple((max(0, a), max(0, b)) for a, b in pads)
    if not any(p for pair in pads for p in pair):
        return x
    sizes = x.shape[lead:]
    shape = (*x.shape[:lead], *(n + a + b for n, (a, b) in zip(sizes, pads, strict=True)))
    DEFAULT.check_tensor(shape, x.dtype, "the padded input")
    padded = np.full(shape, value, x.dtype)
    padded[(..., *(slice(a, a + n) for n, (a, _) in zip(sizes, pads, strict=True)))] = x
    return padded


def output_sizes(
    sizes: Sequence[int], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> tuple[int, ...]:
    """How many windows fit along axes of the given (padded) `sizes`."""
    out = []
    for size, k, s, d in zip(sizes, kernel, strides, dilations, strict=True):
        if size < extent(k, d):
            raise ValueError(
                f"a window of {k} taps with dilation {d} spans {extent(k, d)} elements, "
                f"more than the {size} of the padded input"
            )
        out.append((size - extent(k, d)) // s + 1)
    return tuple(out)


def windows(x: np.ndarray, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> np.ndarray:
    """A view of `x` (..., *sizes) as (..., *output sizes, *kernel), without copying."""
    rank = len(kernel)
    lead = x.ndim - rank
    out = output_sizes(x.shape[lead:], kernel, strides, dilations)
    steps = x.strides[lead:]
    return np.lib.stride_tricks.as_strided(
        x,
        (*x.shape[:lead], *out, *kernel),
        (
            *x.strides[:lead],
            *(t * s for t, s in zip(steps, strides, strict=True)),
            *(t * d for t, d in zip(steps, dilations, strict=True)),
        ),
        writeable=False,
    )


def taps(
    kernel: Sequence[int], counts: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...]]]:
    """For each tap of a window, its index and the part of the padded input that it meets over all `counts` windows."""
    for tap in itertools.product(*map(range, kernel)):
        yield (
            tap,
            tuple(
                slice(t * d, t * d + (n - 1) * s + 1 if n else t * d, s)
                for t, d, n, s in zip(tap, dilations, counts, strides, strict=True)
            ),
        )


def fold(
    columns: np.ndarray,
    kernel: Sequence[int],
    counts: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    sizes: Sequence[int],
) -> np.ndarray:
    """Add up overlapping windows: (..., prod(kernel), prod(counts)) to (..., *sizes), the opposite of unfolding."""
    lead = columns.shape[:-2]
    columns = columns.reshape(*lead, prod(kernel), *counts)
    image = np.zeros((*lead, *sizes), columns.dtype)
    if not columns.size:  # however many taps there are
        return image
    for i, (_, where) in enumerate(taps(kernel, counts, strides, dilations)):
        image[(..., *where)] += columns[(slice(None),) * len(lead) + (i,)]
    return image
