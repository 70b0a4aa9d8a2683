"""Everything else of com.microsoft: shapes, images, hashing, text generation, linear algebra."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..common import check_axis, in_float32, to_float32
from ..conv import conv_transpose
from ..index import gather_nd, unique
from ..pad import pad
from ..pool import pool_geometry
from ..precision import narrow
from ..registry import op
from ..shape import range_, trilu
from ..windows import pad_spatial, windows

MICROSOFT = "com.microsoft"

# The same as the standard's, under another domain.
op("Trilu", domain=MICROSOFT)(trilu)
op("GatherND", domain=MICROSOFT)(gather_nd)


@op("Range", domain=MICROSOFT)
def range_microsoft(start: np.ndarray, limit: np.ndarray, delta: np.ndarray | None = None):
    step = np.ones((), start.dtype) if delta is None else delta.reshape(())
    return range_(start.reshape(()), limit.reshape(()), step)


@op("Unique", domain=MICROSOFT)
def unique_microsoft(x: np.ndarray):
    """Values in the order in which they come first, where each is, and how often."""
    values, _, inverse, counts = unique(x, sorted=0)
    return values, inverse, counts


@op("ExpandDims", domain=MICROSOFT)
def expand_dims(x: np.ndarray, axis: np.ndarray):
    return np.expand_dims(x, check_axis(int(axis.reshape(())), x.ndim + 1))


@op("Pad", domain=MICROSOFT)
def pad_microsoft(data: np.ndarray, pads: np.ndarray, value: np.ndarray | None = None, *, mode: str = "constant"):
    return pad(data, pads.reshape(-1), value, mode=mode)


@op("SampleOp", domain=MICROSOFT)
def sample_op(x: np.ndarray):
    return x


@op("SparseToDenseMatMul", domain=MICROSOFT)
def sparse_to_dense_mat_mul(a: np.ndarray, b: np.ndarray, *, alpha: float = 1.0, transA: int = 0, transB: int = 0):
    """The product of a sparse matrix, which arrives dense, and a dense one."""
    y = np.matmul(a.swapaxes(-1, -2) if transA else a, b.swapaxes(-1, -2) if transB else b)
    return y if alpha == 1 else (y * y.dtype.type(alpha)).astype(y.dtype, copy=False)


@op("Inverse", domain=MICROSOFT)
@in_float32
def inverse(x: np.ndarray):
    return np.linalg.inv(x).astype(x.dtype, copy=False)


@op("CDist", domain=MICROSOFT)
def c_dist(a: np.ndarray, b: np.ndarray, *, metric: str = "sqeuclidean"):
    """Distances between all rows of A and all rows of B."""
    x, y = a.astype(np.float64), b.astype(np.float64)
    squares = np.square(x).sum(axis=1)[:, None] + np.square(y).sum(axis=1) - 2 * x @ y.T
    squares = np.maximum(squares, 0)
    if metric == "sqeuclidean":
        return squares.astype(a.dtype)
    if metric == "euclidean":
        return np.sqrt(squares).astype(a.dtype)
    raise ValueError(f"metric is {metric!r}; euclidean and sqeuclidean are known")


def complex_product(a: np.ndarray, b: np.ndarray, sign: int) -> np.ndarray:
    """The product of numbers given as (real, imaginary) on the last axis; b's imaginary parts times `sign`."""
    x, y = to_float32(a), to_float32(b)
    re = x[..., 0] * y[..., 0] - sign * x[..., 1] * y[..., 1]
    im = sign * x[..., 0] * y[..., 1] + x[..., 1] * y[..., 0]
    return narrow(np.stack([re, im], axis=-1), a.dtype)


@op("ComplexMul", domain=MICROSOFT)
def complex_mul(a: np.ndarray, b: np.ndarray):
    return complex_product(a, b, 1)


@op("ComplexMulConj", domain=MICROSOFT)
def complex_mul_conj(a: np.ndarray, b: np.ndarray):
    return complex_product(a, b, -1)


@op("Rfft", domain=MICROSOFT)
def rfft(x: np.ndarray, *, normalized: int = 0, onesided: int = 1, signal_ndim: int = 1):
    axes = tuple(range(x.ndim - signal_ndim, x.ndim))
    spectrum = np.fft.rfftn(to_float32(x), axes=axes)
    return narrow(np.stack([spectrum.real, spectrum.imag], axis=-1), x.dtype)


@op("Irfft", domain=MICROSOFT)
def irfft(x: np.ndarray, *, normalized: int = 0, onesided: int = 1, signal_ndim: int):
    wide = to_float32(x)
    spectrum = wide[..., 0] + 1j * wide[..., 1]
    return narrow(np.fft.irfftn(spectrum, axes=tuple(range(spectrum.ndim - signal_ndim, spectrum.ndim))), x.dtype)


@op("UnfoldTensor", domain=MICROSOFT)
def unfold_tensor(x: np.ndarray, *, dim: int = -1, size: int, step: int = 1):
    """All slices of `size` elements along an axis, every `step`, on a new last axis."""
    axis = check_axis(dim, x.ndim)
    if not 1 <= size <= x.shape[axis] or step < 1:
        raise ValueError(f"slices of {size} every {step} do not fit an axis of {x.shape[axis]}")
    slices = np.lib.stride_tricks.sliding_window_view(x, size, axis=axis)
    return slices[(slice(None),) * axis + (slice(None, None, step),)].copy()


@op("IsAllFinite", domain=MICROSOFT)
def is_all_finite(x: np.ndarray, *others: np.ndarray, isinf_only: int = 0, isnan_only: int = 0):
    bad = np.isinf if isinf_only else np.isnan if isnan_only else lambda x: ~np.isfinite(x)
    return np.array(not any(bad(to_float32(t)).any() for t in (x, *others)))


@op("TorchEmbedding", domain=MICROSOFT)
def torch_embedding(
    weight: np.ndarray,
    indices: np.ndarray,
    padding_idx: np.ndarray | None = None,
    scale_grad_by_freq: np.ndarray | None = None,
):
    return weight.take(indices, axis=0)


@op("ConvTransposeWithDynamicPads", domain=MICROSOFT)
def conv_transpose_with_dynamic_pads(
    x: np.ndarray,
    w: np.ndarray,
    pads: np.ndarray | None = None,
    b: np.ndarray | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    output_padding: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
):
    return conv_transpose(
        x, w, b, auto_pad=auto_pad, dilations=dilations, group=group, kernel_shape=kernel_shape,
        output_padding=output_padding, pads=None if pads is None else [int(p) for p in pads], strides=strides,
    )  # fmt: skip


@op("CropAndResize", domain=MICROSOFT)
def crop_and_resize(
    x: np.ndarray,
    rois: np.ndarray,
    batch_indices: np.ndarray,
    crop_size: np.ndarray,
    *,
    extrapolation_value: float = 0.0,
    mode: str = "bilinear",
):
    """Regions (y1, x1, y2, x2), in units of the image's height and width less one, resampled to one size."""
    if mode not in ("bilinear", "nearest"):
        raise ValueError(f"mode is {mode!r}; bilinear and nearest are known")
    boxes = to_float32(rois)
    positions, inside = [], []
    for axis, (size, count) in enumerate(zip(x.shape[2:], (int(n) for n in crop_size), strict=True)):
        first, last = boxes[:, axis, None], boxes[:, axis + 2, None]
        if count > 1:
            at = first * (size - 1) + np.arange(count, dtype=np.float32) * ((last - first) * (size - 1) / (count - 1))
        else:
            at = 0.5 * (first + last) * (size - 1)
        positions.append(at)
        inside.append((at >= 0) & (at <= size - 1))
    pixels = to_float32(x).transpose(0, 2, 3, 1)
    batch = batch_indices[:, None, None]
    rows, columns = positions[0][:, :, None], positions[1][:, None, :]
    height, width = x.shape[2:]

    def pixel(row: np.ndarray, column: np.ndarray) -> np.ndarray:
        r = np.clip(row, 0, height - 1).astype(np.int64)
        c = np.clip(column, 0, width - 1).astype(np.int64)
        return pixels[batch, r, c]

    if mode == "nearest":
        picked = pixel(np.floor(rows + 0.5), np.floor(columns + 0.5))
    else:
        top, left = np.floor(rows), np.floor(columns)
        y, z = (rows - top)[..., None], (columns - left)[..., None]
        upper = pixel(top, left) * (1 - z) + pixel(top, np.ceil(columns)) * z
        lower = pixel(np.ceil(rows), left) * (1 - z) + pixel(np.ceil(rows), np.ceil(columns)) * z
        picked = upper * (1 - y) + lower * y
    seen = (inside[0][:, :, None] & inside[1][:, None, :])[..., None]
    return narrow(np.where(seen, picked, np.float32(extrapolation_value)).transpose(0, 3, 1, 2), x.dtype)


def rotated(x: np.ndarray, bits: int) -> np.ndarray:
    return (x << np.uint32(bits)) | (x >> np.uint32(32 - bits))


def murmur_words(words: np.ndarray, seed: int) -> np.ndarray:
    """MurmurHash3_x86_32 (A. Appleby, public domain) of rows of 32-bit words."""
    h = np.full(len(words), seed, np.uint32)
    for i in range(words.shape[1]):
        k = rotated(words[:, i] * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
        h = rotated(h ^ k, 13) * np.uint32(5) + np.uint32(0xE6546B64)
    return h


def murmur_finish(h: np.ndarray, length: np.ndarray | int) -> np.ndarray:
    h = h ^ np.asarray(length, np.uint32)
    h = (h ^ (h >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    h = (h ^ (h >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return h ^ (h >> np.uint32(16))


def murmur_bytes(data: bytes, seed: int) -> np.ndarray:
    whole = len(data) // 4 * 4
    h = murmur_words(np.frombuffer(data[:whole], "<u4").reshape(1, -1), seed)
    if whole < len(data):
        tail = np.array([int.from_bytes(data[whole:], "little")], np.uint32)
        h = h ^ (rotated(tail * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593))
    return murmur_finish(h, len(data))


@op("MurmurHash3", domain=MICROSOFT)
def murmur_hash3(x: np.ndarray, *, positive: int = 1, seed: int = 0):
    if x.dtype.kind == "O":
        flat = [murmur_bytes(text.encode(), seed)[0] for text in x.reshape(-1).tolist()]
        hashes = np.array(flat, np.uint32)
    else:
        words = np.ascontiguousarray(x).reshape(-1).view("<u4").reshape(x.size, -1)
        hashes = murmur_finish(murmur_words(words, seed), x.dtype.itemsize)
    hashes = hashes.reshape(x.shape)
    return hashes if positive else hashes.view(np.int32)


def repeated_n_grams(sequences: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of sequences (rows, length), and tokens that would there repeat an n-gram of `size` tokens."""
    length = sequences.shape[1]
    if size < 1 or length < size:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    windows = np.lib.stride_tricks.sliding_window_view(sequences, size, axis=1)
    end = sequences[:, None, length - size + 1 :]
    row, at = np.nonzero((windows[:, :, : size - 1] == end).all(axis=2))
    return row, windows[row, at, -1]


@op("NGramRepeatBlock", domain=MICROSOFT)
def n_gram_repeat_block(input_ids: np.ndarray, scores: np.ndarray, *, ngram_size: int):
    """Scores with -inf for tokens that would repeat an n-gram of the sequence."""
    blocked = scores.copy()
    blocked[repeated_n_grams(input_ids, ngram_size)] = -np.inf
    return blocked


@op("BifurcationDetector", domain=MICROSOFT)
def bifurcation_detector(
    src_tokens: np.ndarray,
    cur_tokens: np.ndarray,
    prev_suffix_match_idx: np.ndarray,
    pred_tokens: np.ndarray | None = None,
    *,
    max_ngram_size: int = 3,
    min_ngram_size: int = 1,
):
    """Tokens plus those predicted as far as they are the source's and one more; and where in the source the longest of
    their last n-grams that is there once ends, or -1.

    Ge et al., "Lossless Acceleration for Seq2seq Generation with Aggressive Decoding" (2022).
    """
    tokens = cur_tokens
    if pred_tokens is not None:
        start = int(prev_suffix_match_idx.reshape(()))
        expected = src_tokens[start:]
        if not 0 <= start <= len(src_tokens) or len(pred_tokens) != len(expected) + 1:
            raise ValueError(f"{len(pred_tokens)} tokens are predicted from {start} of {len(src_tokens)} on")
        same = np.append(pred_tokens[:-1] == expected, False)
        tokens = np.concatenate([cur_tokens, pred_tokens[: int(same.argmin()) + 1]])
    found = -1
    for size in range(min_ngram_size, min(max_ngram_size, len(tokens), len(src_tokens)) + 1):
        windows = np.lib.stride_tricks.sliding_window_view(src_tokens, size)
        places = np.flatnonzero((windows == tokens[len(tokens) - size :]).all(axis=1))
        if not len(places):
            break
        found = int(places[0]) + size
        if found == len(src_tokens):
            break
        if len(places) > 1:
            found = -1
    return tokens, np.full(prev_suffix_match_idx.shape, found, prev_suffix_match_idx.dtype)


@op("WordConvEmbedding", domain=MICROSOFT)
def word_conv_embedding(
    sequence: np.ndarray,
    w: np.ndarray,
    b: np.ndarray,
    c: np.ndarray,
    *,
    char_embedding_size: int | None = None,
    conv_window_size: int | None = None,
    embedding_size: int | None = None,
):
    """Words (words, longest) of characters, 0 after their end, as the greatest values (words, filters) of tanh of a
    convolution over the characters' embeddings. An empty word is all zero."""
    for what, given, size in (
        ("char_embedding_size", char_embedding_size, c.shape[1]),
        ("conv_window_size", conv_window_size, w.shape[2]),
        ("embedding_size", embedding_size, w.shape[0]),
    ):
        if given not in (None, -1, size):
            raise ValueError(f"{what} is {given}, the weights have {size}")
    width = w.shape[2]
    if sequence.shape[1] < width:
        raise ValueError(f"words of {sequence.shape[1]} characters are shorter than a window of {width}")
    length = np.where(sequence[:, 0] > 0, (sequence > 0).sum(axis=1), 0)
    windows = np.lib.stride_tricks.sliding_window_view(c[sequence], width, axis=1)  # (words, places, size, width)
    y = np.tanh(np.tensordot(windows, w[:, 0], axes=((2, 3), (2, 1))) + b)
    there = np.arange(y.shape[1]) <= np.maximum(length - width, 0)[:, None]
    greatest = np.where(there[..., None], y, -np.inf).max(axis=1, initial=-np.inf)
    return np.where(length[:, None] > 0, greatest, 0).astype(w.dtype)


@op("MaxpoolWithMask", domain=MICROSOFT)
def maxpool_with_mask(
    x: np.ndarray,
    mask: np.ndarray,
    *,
    auto_pad: str = "NOTSET",
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    storage_order: int = 0,
    strides: Sequence[int] | None = None,
):
    """MaxPool of the elements in each of a window's rows before the first that the mask hides with 0.

    The mask's images, fewer than the input's, hold for them by turns.
    """
    kernel, steps, spread, _, asked, _ = pool_geometry(x.shape[2:], kernel_shape, strides, pads, None, auto_pad, 0)
    images = math.prod(x.shape[:2])
    whose = np.arange(images) % max(math.prod(mask.shape[:2]), 1)
    open_ = (mask != 0).reshape(-1, *mask.shape[2:])[whose].reshape(x.shape)
    least = np.finfo(x.dtype).min  # what a window gives of which nothing is seen
    values = windows(pad_spatial(x, asked, float(least)), kernel, steps, spread)
    seen = windows(pad_spatial(open_.astype(np.uint8), asked, 1), kernel, steps, spread)
    before = np.minimum.accumulate(seen, axis=-1) > 0
    axes = tuple(range(x.ndim, values.ndim))
    return np.where(before, values, least).max(axis=axes)


@op("RelativePositionBias", domain=MICROSOFT)
def relative_position_bias(
    bias_table: np.ndarray,
    query_length: np.ndarray,
    key_length: np.ndarray,
    *,
    is_bidirectional: int = 0,
    max_distance: int,
):
    """The bias of T5's attention (Raffel et al. 2019): exact buckets for small distances, logarithmic ones beyond."""
    queries, keys = int(query_length.reshape(())), int(key_length.reshape(()))
    buckets = bias_table.shape[0]
    distance = np.arange(queries)[:, None] - np.arange(keys)
    offset = np.zeros(distance.shape, np.int64)
    if is_bidirectional:
        buckets //= 2
        offset = np.where(distance < 0, buckets, 0)
        distance = np.abs(distance)
    else:
        distance = np.maximum(distance, 0)
    exact = buckets // 2
    ratio = np.log(np.maximum(distance, 1).astype(np.float32) / exact) / np.float32(math.log(max_distance / exact))
    far = np.minimum(exact + (ratio * (buckets - exact)).astype(np.int64), buckets - 1)
    bucket = offset + np.where(distance < exact, distance, far)
    return bias_table[bucket].transpose(2, 0, 1)[None].copy()


@op("DynamicTimeWarping", domain=MICROSOFT)
def dynamic_time_warping(cost: np.ndarray):
    """The path of least cost from the first to the last element of a matrix, as rows and columns (2, steps)."""
    matrix = cost.reshape(cost.shape[-2:]).astype(np.float32)
    rows, columns = len(matrix), len(matrix[0])
    total = np.full((rows + 1, columns + 1), np.inf, np.float32)
    total[0, 0] = 0
    came = np.zeros((rows + 1, columns + 1), np.int8)
    for diagonal in range(2, rows + columns + 1):  # elements of one antidiagonal do not depend on each other
        i = np.arange(max(1, diagonal - columns), min(rows, diagonal - 1) + 1)
        j = diagonal - i
        before = np.stack([total[i - 1, j - 1], total[i - 1, j], total[i, j - 1]])
        # The diagonal step, and then the step down, must be strictly best; else the step is to the right.
        choice = np.where(
            (before[0] < before[1]) & (before[0] < before[2]),
            0,
            np.where((before[1] < before[0]) & (before[1] < before[2]), 1, 2),
        )
        came[i, j] = choice
        total[i, j] = matrix[i - 1, j - 1] + before[choice, np.arange(len(i))]
    path = []
    i, j = rows, columns
    while i > 0 or j > 0:
        path.append((i - 1, j - 1))
        step = 2 if i == 0 else 1 if j == 0 else came[i, j]
        i, j = i - (step != 2), j - (step != 1)
    return np.array(path[::-1], np.int32).T.copy()
