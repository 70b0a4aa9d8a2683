import io
import sys

import numpy as np
import pytest

from onnxlet.errors import UnsupportedError
from tests.core.ops.calling import call, same


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


def test_image_decoder_names_what_it_needs(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(UnsupportedError, match="install the package pillow"):
        call("ImageDecoder", 20, np.zeros(4, np.uint8))
