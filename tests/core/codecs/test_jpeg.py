import contextlib
import io

import numpy as np
import pytest

from onnxlet.codecs import jpeg

Image = pytest.importorskip("PIL.Image")
features = pytest.importorskip("PIL.features")


def picture(height, width, channels):
    y, x, c = np.mgrid[:height, :width, :channels]
    noise = np.random.default_rng(0).integers(0, 40, y.shape)
    return ((5 * x + 3 * y + 60 * c) % 216 + noise).astype(np.uint8)


def encoded(pixels, **options):
    stream = io.BytesIO()
    Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels).save(stream, "JPEG", **options)
    return stream.getvalue()


@pytest.mark.skipif(not features.check_feature("libjpeg_turbo"), reason="Pillow has another JPEG library")
@pytest.mark.parametrize("subsampling", ["4:4:4", "4:2:2", "4:2:0"])
@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"restart_marker_blocks": 2}, {"quality": 20}], ids=str)
@pytest.mark.parametrize("size", [(1, 1), (2, 3), (17, 33), (40, 50)])
def test_same_pixels_as_libjpeg_turbo(size, options, subsampling):
    height, width = size
    data = encoded(picture(height, width, 3), subsampling=subsampling, **options)
    np.testing.assert_array_equal(jpeg.decode(data), np.asarray(Image.open(io.BytesIO(data))))


@pytest.mark.skipif(not features.check_feature("libjpeg_turbo"), reason="Pillow has another JPEG library")
@pytest.mark.parametrize("options", [{}, {"progressive": True}], ids=str)
def test_other_colours(options):
    gray = encoded(picture(20, 30, 1), **options)
    np.testing.assert_array_equal(jpeg.decode(gray)[:, :, 0], np.asarray(Image.open(io.BytesIO(gray))))
    rgb = encoded(picture(20, 30, 3), keep_rgb=True, **options)
    np.testing.assert_array_equal(jpeg.decode(rgb), np.asarray(Image.open(io.BytesIO(rgb))))
    stream = io.BytesIO()
    Image.frombytes("CMYK", (30, 20), picture(20, 30, 4).tobytes()).save(stream, "JPEG", **options)
    inks = stream.getvalue()
    np.testing.assert_array_equal(jpeg.decode(inks), np.asarray(Image.open(io.BytesIO(inks)).convert("RGB")))


def test_colours_are_interpolated_as_onnx_describes():
    """B0 = round half down (A/4 + 3B/4), B1 = round half up (3B/4 + C/4), in both directions."""
    chroma = np.array([[0, 2, 9]])
    np.testing.assert_array_equal(jpeg._upsampled(chroma, 1, 2), [[0, 1, 1, 4, 7, 9]])
    np.testing.assert_array_equal(jpeg._upsampled(np.array([[0], [2], [9]]), 2, 1), [[0], [1], [1], [4], [7], [9]])


def test_damaged_files():
    data = encoded(picture(24, 40, 3), progressive=True)
    numbers = np.random.default_rng(0)
    for damaged in (b"", b"\xff\xd8", data[:300], data[:-40]):
        with pytest.raises(ValueError, match="JPEG"):
            jpeg.decode(damaged)
    for _ in range(200):
        changed = bytearray(data)
        for at in numbers.integers(2, len(data), 3):
            changed[at] = numbers.integers(256)
        with contextlib.suppress(ValueError):
            assert jpeg.decode(bytes(changed)).dtype == np.uint8
