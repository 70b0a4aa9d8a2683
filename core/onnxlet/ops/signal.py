"""Fourier transforms and what is computed around them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..model.dtypes import dtype_of
from .cast import convert
from .common import check_axis, in_float32, scalar
from .registry import op


@op("DFT", since=17)
@in_float32
def dft_17(x: np.ndarray, dft_length: np.ndarray | None = None, *, axis: int = 1, inverse: int = 0, onesided: int = 0):
    return _dft(x, dft_length, axis, inverse, onesided)


@op("DFT", since=20)
@in_float32
def dft(
    x: np.ndarray,
    dft_length: np.ndarray | None = None,
    axis: np.ndarray | None = None,
    *,
    inverse: int = 0,
    onesided: int = 0,
):
    return _dft(x, dft_length, -2 if axis is None else int(scalar(axis, "axis")), inverse, onesided)


def _dft(x: np.ndarray, dft_length: np.ndarray | None, axis: int, inverse: int, onesided: int):
    """Of a signal whose last axis holds the real part, or that and the imaginary part; so does the result's.

    One-sided, the forward transform gives the first half of a real signal's spectrum, and the inverse one takes it.
    """
    if x.ndim < 2 or x.shape[-1] not in (1, 2):
        raise ValueError(f"the last dimension of {list(x.shape)} must be 1 (real) or 2 (complex)")
    axis = check_axis(axis, x.ndim)
    if axis == x.ndim - 1:
        raise ValueError("the last axis holds real and imaginary parts: no transform goes along it")
    n = None if dft_length is None else int(scalar(dft_length, "dft_length"))
    signal = _complex(x)
    if onesided and inverse:
        return np.fft.irfft(signal, n, axis)[..., None].astype(x.dtype)
    if onesided:
        if x.shape[-1] != 1:
            raise ValueError("the one-sided transform takes a real signal")
        return _parts(np.fft.rfft(x[..., 0], n, axis), x.dtype)
    return _parts((np.fft.ifft if inverse else np.fft.fft)(signal, n, axis), x.dtype)


def _complex(x: np.ndarray):
    return x[..., 0] + 1j * x[..., 1] if x.shape[-1] == 2 else x[..., 0]


def _parts(spectrum: Any, dtype: np.dtype):
    return np.stack([spectrum.real, spectrum.imag], axis=-1).astype(dtype)


@op("STFT", since=17)
@in_float32
def stft(
    signal: np.ndarray,
    frame_step: np.ndarray,
    window: np.ndarray | None = None,
    frame_length: np.ndarray | None = None,
    *,
    onesided: int = 1,
):
    """signal (batch, length, 1 or 2) -> (batch, frames, bins, 2)."""
    if signal.ndim != 3 or signal.shape[-1] not in (1, 2):
        raise ValueError(f"the signal must have shape [batch, length, 1 or 2], but has {list(signal.shape)}")
    step, total = int(scalar(frame_step, "frame_step")), signal.shape[1]
    length = total if window is None else window.shape[0]
    if frame_length is not None:
        length = int(scalar(frame_length, "frame_length"))
    if window is not None and window.shape != (length,):
        raise ValueError(f"a window of shape {list(window.shape)} for frames of length {length}")
    if step < 1 or not 1 <= length <= total:
        raise ValueError(f"frames of length {length} every {step} for a signal of length {total}")
    samples = _complex(signal)
    frames = np.lib.stride_tricks.sliding_window_view(samples, length, axis=1)[:, ::step]
    if window is not None:
        frames = frames * window
    if onesided and signal.shape[-1] == 2:
        raise ValueError("the one-sided transform takes a real signal")
    return _parts((np.fft.rfft if onesided else np.fft.fft)(frames, axis=-1), signal.dtype)


def _cosines(size: np.ndarray, periodic: int, output_datatype: int, *coefficients: float):
    """The window sum of (-1)**k * coefficient k * cos(2 pi k i / n), n being size if periodic, else size - 1."""
    length = int(scalar(size, "size"))
    angle = 2 * np.pi * np.arange(length) / max(length if periodic else length - 1, 1)
    window = sum((-1) ** k * c * np.cos(k * angle) for k, c in enumerate(coefficients))
    return convert(np.asarray(window, np.float64), dtype_of(output_datatype))


@op("HannWindow", since=17)
def hann_window(size: np.ndarray, *, output_datatype: int = 1, periodic: int = 1):
    return _cosines(size, periodic, output_datatype, 0.5, 0.5)


@op("HammingWindow", since=17)
def hamming_window(size: np.ndarray, *, output_datatype: int = 1, periodic: int = 1):
    return _cosines(size, periodic, output_datatype, 25 / 46, 21 / 46)


@op("BlackmanWindow", since=17)
def blackman_window(size: np.ndarray, *, output_datatype: int = 1, periodic: int = 1):
    return _cosines(size, periodic, output_datatype, 0.42, 0.5, 0.08)


@op("MelWeightMatrix", since=17)
@in_float32
def mel_weight_matrix(
    num_mel_bins: np.ndarray,
    dft_length: np.ndarray,
    sample_rate: np.ndarray,
    lower_edge_hertz: np.ndarray,
    upper_edge_hertz: np.ndarray,
    *,
    output_datatype: int = 1,
):
    """(dft_length // 2 + 1, num_mel_bins): triangles whose corners are evenly spaced on the mel scale."""
    bins, length = int(scalar(num_mel_bins, "num_mel_bins")), int(scalar(dft_length, "dft_length"))
    rate = scalar(sample_rate, "sample_rate")
    edges = [2595 * np.log10(1 + scalar(e, "edge") / 700) for e in (lower_edge_hertz, upper_edge_hertz)]
    mels = edges[0] + (edges[1] - edges[0]) / (bins + 2) * np.arange(bins + 2)
    hertz = 700 * (10 ** (mels / 2595) - 1)
    corners = ((length + 1) * hertz // rate).astype(np.int64)
    low, peak, high = corners[:-2], corners[1:-1], corners[2:]
    at = np.arange(length // 2 + 1)[:, None]
    rising = np.where(peak > low, (at - low) / np.maximum(peak - low, 1), at == peak)
    falling = (high - at) / np.maximum(high - peak, 1)
    weights = np.where(at <= peak, rising, falling) * ((at >= low) & (at < np.maximum(high, peak + 1)))
    return convert(np.maximum(weights, 0.0), dtype_of(output_datatype))
