"""Decoding of image files."""

from __future__ import annotations

import io

import numpy as np

from ..errors import UnsupportedError
from .registry import op


@op("ImageDecoder", since=20)
def image_decoder(encoded_stream: np.ndarray, *, pixel_format: str = "RGB"):
    """The image as (height, width, channels); without any elements if the bytes can't be decoded.

    Pillow decodes, where it is installed and its JPEG library upsamples colours as ONNX asks for. JPEG and JPEG 2000
    need no Pillow.
    """
    if pixel_format not in ("RGB", "BGR", "Grayscale"):
        raise ValueError(f"pixel_format is {pixel_format!r}; RGB, BGR and Grayscale are known")
    gray = pixel_format == "Grayscale"
    try:
        pixels = _decoded(encoded_stream.tobytes(), gray)
    except (OSError, ValueError, SyntaxError):
        return np.zeros((0, 0, 1 if gray else 3), np.uint8)
    return pixels[:, :, ::-1].copy() if pixel_format == "BGR" else pixels


def _decoded(data: bytes, gray: bool) -> np.ndarray:
    try:
        from PIL import Image, features
    except ImportError:
        Image = features = None
    is_jpeg = data[:2] == b"\xff\xd8"
    is_jpeg2000 = data[:4] == b"\xff\x4f\xff\x51" or data[4:8] == b"jP  "
    if is_jpeg and not (features and features.check_feature("libjpeg_turbo")):
        from ..codecs import jpeg

        return _converted(jpeg.decode(data), gray)
    if is_jpeg2000 and not (features and features.check_codec("jpg_2000")):
        from ..codecs import jpeg2000

        return _converted(jpeg2000.decode(data), gray)
    if Image is None:
        raise UnsupportedError("ImageDecoder needs Pillow for this image: install the package pillow")
    try:
        with Image.open(io.BytesIO(data)) as image:
            pixels = np.asarray(image.convert("L" if gray else "RGB"))
    except Image.DecompressionBombError as error:
        raise ValueError(str(error)) from error
    return pixels[:, :, None].copy() if gray else pixels.copy()


def _converted(pixels: np.ndarray, gray: bool) -> np.ndarray:
    """Pixels with one or three channels; luma by ITU-R BT.601, rounded."""
    if gray and pixels.shape[2] == 3:
        weighted = pixels.astype(np.int64) @ np.array([19595, 38470, 7471])
        return (weighted + (1 << 15) >> 16).astype(np.uint8)[:, :, None]
    return pixels if gray or pixels.shape[2] == 3 else pixels.repeat(3, 2)
