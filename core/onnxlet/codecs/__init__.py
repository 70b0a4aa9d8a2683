"""Decoders of image files, for where Pillow is missing or decodes otherwise than ONNX asks for.

Each has `decode(data: bytes) -> np.ndarray`, the image as uint8 of shape (height, width, 1 or 3); bytes that it can't
decode are a `ValueError`.
"""
