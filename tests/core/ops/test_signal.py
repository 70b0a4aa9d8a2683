import numpy as np
import pytest

from tests.core.ops.calling import call, f32, i64, of, same

X = np.arange(12, dtype=np.float32).reshape(1, 6, 2, 1)


def as_complex(x):
    return x[..., 0] + 1j * x[..., 1]


def near(got, expected):
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-4)


def test_dft():
    near(as_complex(call("DFT", 17, X)), np.fft.fft(X[..., 0], axis=1))
    near(as_complex(call("DFT", 20, X)), np.fft.fft(X[..., 0], axis=2))
    near(as_complex(call("DFT", 20, X, i64(4), i64(1))), np.fft.fft(X[..., 0], 4, axis=1))
    near(as_complex(call("DFT", 17, X, i64(9), onesided=1)), np.fft.rfft(X[..., 0], 9, axis=1))
    spectrum = call("DFT", 17, X)
    near(call("DFT", 17, spectrum, inverse=1)[..., 0], X[..., 0])
    half = call("DFT", 20, X, None, i64(-3), onesided=1)
    near(call("DFT", 20, half, None, i64(1), onesided=1, inverse=1), X)
    assert call("DFT", 20, X.astype(np.float16)).dtype == np.float16
    assert call("DFT", 17, X.astype(np.float64)).dtype == np.float64
    with pytest.raises(ValueError, match="no transform goes along it"):
        call("DFT", 17, X, axis=3)


def test_stft():
    signal = np.sin(np.arange(20, dtype=np.float32)).reshape(1, 20, 1)
    window = np.hanning(8).astype(np.float32)
    got = call("STFT", 17, signal, i64(3), window)
    frames = np.stack([signal[0, i : i + 8, 0] * window for i in range(0, 13, 3)])
    assert got.shape == (1, 5, 5, 2)
    near(as_complex(got)[0], np.fft.rfft(frames))
    assert call("STFT", 17, signal, i64(4), None, i64(8), onesided=0).shape == (1, 4, 8, 2)
    assert call("STFT", 17, signal, i64(4)).shape == (1, 1, 11, 2)
    with pytest.raises(ValueError, match="frames of length 30"):
        call("STFT", 17, signal, i64(4), None, i64(30))
    with pytest.raises(ValueError, match="takes a real signal"):
        call("STFT", 17, np.zeros((1, 8, 2), np.float32), i64(4))


def test_windows():
    near(call("HannWindow", 17, i64(5), periodic=0), np.hanning(5))
    near(call("HannWindow", 17, i64(4)), np.hanning(5)[:4])
    near(call("BlackmanWindow", 17, np.int32(7), periodic=0), np.blackman(7))
    # The optimal Hamming window has 25/46 where the usual one has 0.54.
    near(call("HammingWindow", 17, i64(2)), [4 / 46, 1])
    assert call("HannWindow", 17, i64(4), output_datatype=11).dtype == np.float64
    assert call("HannWindow", 17, i64(1), periodic=0).shape == (1,)


def test_mel_weights():
    got = call("MelWeightMatrix", 17, i64(8), i64(16), i64(8192), f32(0), f32(4096))
    assert got.shape == (9, 8)
    assert got.dtype == np.float32
    assert (got >= 0).all()
    assert (got.max(axis=0) == 1).all()
    whole = call("MelWeightMatrix", 17, i64(4), i64(32), i64(8000), f32(100), f32(3000), output_datatype=6)
    same(whole.max(axis=0), of("int32", [1, 1, 1, 1]))
