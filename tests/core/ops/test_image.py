import io
import sys

import numpy as np
import pytest

from onnxlet.errors import UnsupportedError
from tests.conftest import DATA
from tests.core.ops.calling import call, same

LUMA = [0.299, 0.587, 0.114]
"""ITU-R BT.601."""


def encoded(pixels, kind):
    image = pytest.importorskip("PIL.Image").fromarray(pixels)
    stream = io.BytesIO()
    image.save(stream, kind)
    return np.frombuffer(stream.getvalue(), np.uint8)


def test_image_decoder():
    pixels = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    stream = encoded(pixels, "PNG")
    same(call("ImageDecoder", 20, stream), pixels)
    same(call("ImageDecoder", 20, stream, pixel_format="BGR"), pixels[:, :, ::-1])
    assert call("ImageDecoder", 20, stream, pixel_format="Grayscale").shape == (2, 4, 1)
    assert call("ImageDecoder", 20, stream[:20]).shape == (0, 0, 3)


@pytest.mark.parametrize("kind", ["JPEG", "JPEG2000"])
def test_image_decoder_without_pillow(monkeypatch, kind):
    gradient = np.arange(12, dtype=np.uint8)[:, None, None] * [20, 10, 5]
    stream = encoded(gradient.repeat(8, 1).astype(np.uint8), kind)
    with_pillow = call("ImageDecoder", 20, stream)
    monkeypatch.setitem(sys.modules, "PIL", None)
    same(call("ImageDecoder", 20, stream), with_pillow)
    same(call("ImageDecoder", 20, stream, pixel_format="BGR"), with_pillow[:, :, ::-1])
    gray = call("ImageDecoder", 20, stream, pixel_format="Grayscale")
    np.testing.assert_allclose(gray[:, :, 0], with_pillow @ LUMA, atol=0.51)
    assert call("ImageDecoder", 20, stream[:40]).shape == (0, 0, 3)


def test_image_decoder_names_what_it_needs(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(UnsupportedError, match="install the package pillow"):
        call("ImageDecoder", 20, np.zeros(4, np.uint8))


def test_one_channel_becomes_three(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    stream = np.frombuffer((DATA / "images" / "plain.j2k").read_bytes(), np.uint8)
    assert call("ImageDecoder", 20, stream).shape == (37, 45, 3)
    assert call("ImageDecoder", 20, stream, pixel_format="Grayscale").shape == (37, 45, 1)
