"""Decoding of image files, by Pillow where it is installed."""

from __future__ import annotations

import io

import numpy as np

from ..errors import UnsupportedError
from .registry import op


@op("ImageDecoder", since=20)
def image_decoder(encoded_stream: np.ndarray, *, pixel_format: str = "RGB"):
    """The image as (height, width, channels); without any elements if the bytes can't be decoded."""
    if pixel_format not in ("RGB", "BGR", "Grayscale"):
        raise ValueError(f"pixel_format is {pixel_format!r}; RGB, BGR and Grayscale are known")
    try:
        from PIL import Image
    except ImportError as error:
        raise UnsupportedError("ImageDecoder needs Pillow: install the package pillow") from error
    gray = pixel_format == "Grayscale"
    try:
        with Image.open(io.BytesIO(encoded_stream.tobytes())) as image:
            pixels = np.asarray(image.convert("L" if gray else "RGB"))
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return np.zeros((0, 0, 1 if gray else 3), np.uint8)
    if gray:
        return pixels[:, :, None].copy()
    return pixels[:, :, ::-1].copy() if pixel_format == "BGR" else pixels.copy()
