"""The files of `tests/data/images` were written by OpenJPEG 2.5 from `picture()`, without loss."""

import contextlib
import io

import numpy as np
import pytest

from onnxlet.codecs import jpeg2000
from tests.conftest import DATA

FILES = sorted((DATA / "images").glob("*.j2k"))


def picture():
    y, x, c = np.mgrid[:37, :45, :3]
    return ((7 * x + 5 * y + 40 * c + x * y // 9) % 256).astype(np.uint8)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_styles_and_progressions(path):
    np.testing.assert_array_equal(jpeg2000.decode(path.read_bytes()), picture())


def test_there_are_files():
    assert len(FILES) == 12


def encoded(pixels, **options):
    image = pytest.importorskip("PIL.Image")
    if not pytest.importorskip("PIL.features").check_codec("jpg_2000"):
        pytest.skip("Pillow knows no JPEG 2000")
    stream = io.BytesIO()
    image.fromarray(pixels).save(stream, "JPEG2000", **options)
    return stream.getvalue(), np.asarray(image.open(io.BytesIO(stream.getvalue())))


@pytest.mark.parametrize("progression", ["LRCP", "RLCP", "RPCL", "PCRL", "CPRL"])
@pytest.mark.parametrize(
    "options", [{"tile_size": (16, 20)}, {"quality_mode": "rates", "quality_layers": [20, 6]}], ids=str
)
def test_same_pixels_as_openjpeg(options, progression):
    data, expected = encoded(picture(), progression=progression, precinct_size=(32, 32), num_resolutions=3, **options)
    np.testing.assert_array_equal(jpeg2000.decode(data), expected)


@pytest.mark.parametrize(
    "options", [{}, {"quality_mode": "dB", "quality_layers": [30]}, {"num_resolutions": 1}], ids=str
)
def test_lossy_pixels_are_off_by_one_at_most(options):
    data, expected = encoded(picture(), irreversible=True, **options)
    assert np.abs(jpeg2000.decode(data).astype(int) - expected).max() <= 1


def test_channels():
    gray, _ = encoded(picture()[:, :, 0])
    np.testing.assert_array_equal(jpeg2000.decode(gray), picture()[:, :, :1])
    with_alpha, _ = encoded(np.concatenate([picture(), picture()[:, :, :1]], 2))
    np.testing.assert_array_equal(jpeg2000.decode(with_alpha), picture())
    deep, _ = encoded(picture()[:, :, 0].astype(np.uint16) * 256 + 77)
    np.testing.assert_array_equal(jpeg2000.decode(deep), picture()[:, :, :1])


def test_damaged_files():
    numbers = np.random.default_rng(0)
    for damaged in (b"", b"\xff\x4f", b"\0\0\0\x0cjP  \r\n\x87\n", FILES[0].read_bytes()[:60]):
        with pytest.raises(ValueError, match=r"JPEG 2000|JP2"):
            jpeg2000.decode(damaged)
    data = (DATA / "images" / "plain.j2k").read_bytes()
    for _ in range(60):
        changed = bytearray(data)
        for at in numbers.integers(40, 200, 3):
            changed[at] = numbers.integers(256)
        with contextlib.suppress(ValueError):
            assert jpeg2000.decode(bytes(changed)).dtype == np.uint8
